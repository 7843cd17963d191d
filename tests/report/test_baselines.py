"""Baselines stand beside the normalizations of a page, neither ranked nor tested."""

from __future__ import annotations

import re
from pathlib import Path

import pytest

import graphnorm
from fake_training import FakeTraining
from graphnorm.data import load
from graphnorm.report import (
    build_page,
    join_baselines,
    read_comparison,
    read_studies,
)
from graphnorm.study.baselines import baseline_plan, train_baseline
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import Store
from page_reader import Reader

pytest.importorskip("plotly")


def baseline_study(path: Path, name: str, folds: int) -> None:
    """A trained study of a baseline on the trees of the other studies."""
    graphs = load("synthetic:trees")
    plan = baseline_plan(graphs, name, protocol="paper", folds=folds, epochs=3)
    with Store(path) as store:
        study = store.add_study(plan.name, plan.spec, plan.trials, [range(folds)])
        outcomes = train_baseline(graphs, plan.trials, make_splits(graphs, plan.trials), device="cpu", workers=1)
        store.save(store.begin_session(study, "local"), outcomes)


def test_studies_of_baselines_are_rows_beside_normalizations(store: Path, tmp_path: Path) -> None:
    path = tmp_path / "copy.db"
    with Store(store, writable=False) as opened:
        opened._connection.execute("VACUUM INTO ?", (str(path),))
    for name, folds in (("wl", 4), ("mlp", 4), ("dcnn", 5)):
        baseline_study(path, name, folds)
    with Store(path, writable=False) as opened:
        sources = join_baselines(read_studies(opened, opened.studies(), fold=True))
    assert [source.model for source in sources] == ["gin", "gin", "dcnn"]  # of other folds: a chapter of its own
    paper, fair, alone = sources
    assert [score.name for score in paper.baselines] == ["wl", "mlp"]
    assert not fair.baselines  # another protocol
    kernel, network = paper.baselines
    assert (kernel.epoch, kernel.settings.split()[0], network.epoch is None) == (None, "depth", False)
    assert "neither ranked nor tested" in paper.notes[-1]
    assert not alone.norms
    assert alone.verdict.startswith("dcnn is a baseline")
    page = build_page(sources)
    rows = re.findall(r'<tr class="baseline"><th scope="row" class="stays">(.*?)</th><td>(.*?)</td>', page)
    scores = [f"{score.mean:.1f} ± {score.std:.1f}" for source in sources for score in source.baselines]
    assert rows == list(zip(["baseline wl", "baseline mlp", "baseline dcnn"], scores, strict=True))
    assert not re.search(r'data-norm="baseline', page)  # no button: they have no curve to hide


def test_baselines_of_a_comparison(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.training.train", FakeTraining())
    graphnorm.compare(
        "synthetic:trees", norms=["graph"], baselines="wl", protocol="paper", epochs=3, folds=3, out=tmp_path / "a",
        progress=False,
    )  # fmt: skip
    source = read_comparison(tmp_path / "a")
    (score,) = source.baselines
    assert (score.name, score.epoch) == ("wl", None)
    assert re.fullmatch(r"depth \d, C [\d.]+", score.settings)
    text = Reader(build_page([source])).text
    assert "baseline wl" in text
    assert score.settings in text
