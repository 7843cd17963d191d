"""Shared by the tests of reports: studies that took no time to train, and the page of one of them."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path

import pytest

from fakes import fill, outcome
from graphnorm.cli import main
from graphnorm.data import load
from graphnorm.report import Chapter, build_page, read_analysis
from graphnorm.settings import Settings
from graphnorm.study import Result, Store, make_plan, read


@pytest.fixture
def store(tmp_path: Path) -> Iterator[Store]:
    with Store(tmp_path / "graphnorm.db") as opened:
        yield opened


@pytest.fixture(scope="session")
def result(tmp_path_factory: pytest.TempPathFactory) -> Result:
    """Five normalizations on trees; one training diverged."""
    settings = Settings(epochs=30, folds=5, batch_size=128)
    plan = make_plan(load("synthetic:trees"), settings)
    with Store(tmp_path_factory.mktemp("result") / "graphnorm.db") as store:
        study = store.add(plan, [range(len(plan.trials))])
        lost = next(trial for trial in plan.trials if (trial.norm, trial.fold) == ("layer", 1))
        store.save(store.begin_session(study, "local"), [outcome(lost, status="diverged")])
        fill(store, plan)
        return read(store, plan)


@pytest.fixture(scope="session")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an analysis of the same trees, with models trained for it."""
    folder = tmp_path_factory.mktemp("analysis") / "trees"
    main(["analyze", "synthetic:trees", "--parts", "noise", "alpha", "--graphs", "40", "--epochs", "2",
          "--device", "cpu", "--json", "--out", str(folder)])  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def page(result: Result, analysis: Path) -> str:
    """A page with everything but the paper's claims and tables."""
    _, fingerprint, section = read_analysis(analysis)
    return build_page([Chapter(result)], find_graphs=lambda of: load(of.dataset), models=[(fingerprint, section)])
