"""What the tests of reports share: comparisons and a study that took no time to train."""

from __future__ import annotations

import json
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

import graphnorm
from fake_training import FakeTraining
from graphnorm.cli import main
from graphnorm.data import load
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import Store


@pytest.fixture(scope="session")
def comparison(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """The folder of a comparison on trees."""
    folder = tmp_path_factory.mktemp("comparison") / "trees"
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr("graphnorm.training.train", FakeTraining(diverging=[("layer", 1)]))
        graphnorm.compare("synthetic:trees", epochs=30, folds=5, out=folder, progress=False)
    return folder


@pytest.fixture(scope="session")
def analysis(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of an analysis of the same trees, with models trained for it."""
    folder = tmp_path_factory.mktemp("analysis") / "trees"
    main(["analyze", "synthetic:trees", "--parts", "noise", "alpha", "--graphs", "40", "--epochs", "2",
          "--device", "cpu", "--json", "--out", str(folder)])  # fmt: skip
    return folder


@pytest.fixture(scope="session")
def store(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A store with a study under each of two protocols, one of them only half trained."""
    path = tmp_path_factory.mktemp("store") / "graphnorm.db"
    graphs = load("synthetic:trees")
    grid = Grid("two", {"epochs": (12,), "lr": (1e-3, 1e-2)})
    with Store(path) as opened:
        for protocol, share in (("paper", 1.0), ("fair", 0.5)):
            plan = make_plan(graphs, grid, norms=["batch", "graph"], protocol=protocol, folds=4, hidden=8)
            study = opened.add_study(f"trees-{protocol}", plan.spec, plan.trials, [range(len(plan.trials))])
            trials = plan.trials[: round(share * len(plan.trials))]
            outcomes = FakeTraining()(graphs, trials, make_splits(graphs, trials))
            opened.save(opened.begin_session(study, "local"), outcomes)
    return path


@pytest.fixture
def renamed(comparison: Path, tmp_path: Path) -> Callable[[Callable[[dict[str, Any]], None]], Path]:
    """A copy of the comparison with something changed in it."""

    def change(edit: Callable[[dict[str, Any]], None]) -> Path:
        content = json.loads((comparison / "comparison.json").read_text())
        edit(content)
        (tmp_path / "comparison.json").write_text(json.dumps(content))
        return tmp_path

    return change
