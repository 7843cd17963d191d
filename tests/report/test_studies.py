"""Studies in a report: joined by the question they ask, before they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch
from scipy import stats

from fake_training import FakeTraining
from graphnorm.data import PackedGraphs, load
from graphnorm.report import Source, read_studies
from graphnorm.report.page import build_page
from graphnorm.report.scope import configurations_in_words
from graphnorm.study.grid import GRIDS, Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.significance import holm
from graphnorm.study.store import Store

ONE = Grid("one", {"epochs": (3,), "lr": (1e-2,)})
TWO = Grid("two", {"epochs": (3,), "lr": (1e-3, 1e-2)})


@pytest.fixture(scope="module")
def split() -> PackedGraphs:
    """Trees with an official split."""
    parts = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
    return replace(load("synthetic:trees"), splits=parts)


def enter(store: Store, graphs: PackedGraphs, norms: Sequence[str], grid: Grid, share: float = 1, **of: Any) -> str:
    """Train a study, or the first share of its trials, and give its name."""
    plan = make_plan(graphs, grid, norms=norms, folds=3, **of)
    study = store.add_study(plan.name, plan.spec, plan.trials, [range(len(plan.trials))])
    trials = plan.trials[: round(share * len(plan.trials))]
    store.save(store.begin_session(study, "local"), FakeTraining()(graphs, trials, make_splits(graphs, trials)))
    return plan.name


def names(sources: Sequence[Source]) -> list[list[str]]:
    return [[norm.name for norm in source.norms] for source in sources]


def test_seeds_of_two_studies_are_one_family_of_tests(split: PackedGraphs, tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        first = enter(store, split, ["graph", "batch"], ONE, protocol="ogb", seeds=5)
        second = enter(store, split, ["none"], ONE, protocol="ogb", seeds=3)
        (source,) = read_studies(store, store.studies())
    assert names([source]) == [["none", "batch", "graph"]]
    assert source.config["study"] == [first, second]
    assert source.scope == "One configuration; seeds: 3 (none), 5 (batch and graph); trained on fake."
    assert "numbers of seeds differ: the fewer there are, the less can be told from chance" in source.notes
    assert "p: Welch's test of unpaired seeds, corrected for the number of pairs; * below 0.05" in source.notes
    scores = {norm.name: norm.scores for norm in source.norms}
    pairs = [("graph", "none"), ("graph", "batch"), ("batch", "none")]
    raw = [stats.ttest_ind(scores[a], scores[b], equal_var=False).pvalue for a, b in pairs]
    tests = {norm.name: norm.against_best for norm in source.norms}
    for (_, other), p in zip(pairs[:2], holm(raw), strict=False):
        test = tests[other]
        assert test is not None
        assert (test.first, test.paired) == ("graph", False)
        assert test.p_adjusted == pytest.approx(p, rel=1e-3)


def test_of_one_normalization_twice_the_larger_study_counts(split: PackedGraphs, tmp_path: Path) -> None:
    with Store(tmp_path / "a.db") as store:
        enter(store, split, ["graph"], ONE, protocol="ogb", seeds=2)
        enter(store, split, ["graph", "none"], ONE, protocol="ogb", seeds=4)
        (source,) = read_studies(store, store.studies())
    assert [len(norm.scores) for norm in source.norms] == [4, 4]
    assert source.environment["trials"] == 8  # two of them are in both


@pytest.mark.parametrize(
    "other", [{"grid": TWO}, {"model": "gcn"}, {"protocol": "fair"}, {"hidden": 8}, {"self_loops": True}], ids=str
)
def test_other_questions_stay_apart(other: dict[str, Any], tmp_path: Path) -> None:
    trees = load("synthetic:trees")
    with Store(tmp_path / "a.db") as store:
        enter(store, trees, ["graph"], ONE)
        enter(store, trees, ["batch"], **{"grid": ONE} | other)
        assert names(read_studies(store, store.studies(), fold=True)) == [["graph"], ["batch"]]


def test_a_part_of_a_larger_study_is_a_line_of_it(tmp_path: Path) -> None:
    trees = load("synthetic:trees")
    with Store(tmp_path / "a.db") as store:
        part = enter(store, trees, ["graph", "batch"], ONE)
        enter(store, trees, ["none", "graph", "batch"], TWO)
        (source,) = read_studies(store, store.studies(), fold=True)
        assert names(read_studies(store, store.studies())) == [["graph", "batch"], ["none", "graph", "batch"]]
    scores = {norm.name: norm.mean for norm in source.norms}
    assert len(scores) == 3
    said = f"graph {scores['graph']:.1f}, batch {scores['batch']:.1f}"  # the learning rate changes nothing here
    assert f"{part} is a part of this, one configuration: {said}" in source.notes


def test_a_part_is_kept_where_the_larger_study_has_no_result(tmp_path: Path) -> None:
    trees = load("synthetic:trees")
    with Store(tmp_path / "a.db") as store:
        enter(store, trees, ["graph"], ONE)
        enter(store, trees, ["graph"], Grid("two", {"epochs": (3,), "lr": (1e-2, 1e-3)}), seeds=2, share=0)
        assert names(read_studies(store, store.studies(), fold=True)) == [["graph"], ["graph"]]


def test_one_normalization_with_a_larger_grid_is_a_row_beside(tmp_path: Path) -> None:
    trees = load("synthetic:trees")
    with Store(tmp_path / "a.db") as store:
        enter(store, trees, ["graph"], TWO)
        enter(store, trees, ["graph", "batch"], ONE)
        (source,) = read_studies(store, store.studies(), fold=True)
    assert names([source]) == [["graph", "batch"]]
    (beside,) = source.beside
    assert (beside.name, beside.against_best) == ("graph, 2 configurations", None)
    assert source.verdict.startswith("graph has the highest accuracy")
    assert "graph, 2 configurations: another number of configurations to choose from" in source.notes[-1]
    pytest.importorskip("plotly")
    assert '<tr class="baseline"><th scope="row" class="stays">graph, 2 configurations</th>' in build_page([source])


def test_a_study_under_way_says_how_much_of_it_is_trained(tmp_path: Path) -> None:
    trees = load("synthetic:trees")
    with Store(tmp_path / "a.db") as store:
        enter(store, trees, ["graph", "batch"], TWO, share=0.75)
        (source,) = read_studies(store, store.studies())
    start = "2 configurations (lr 0.001, 0.01), of these trained: 2 (graph), 1 (batch); 3 folds;"
    assert source.scope.startswith(start)
    assert "9 of 12 trials are trained; the rest is missing or failed" in source.notes


def test_configurations_of_the_paper() -> None:
    paper = [one | {"readout": "sum", "self_loops": True, "hidden": 64} for one in GRIDS["paper"].configurations()]
    assert configurations_in_words(paper, "MUTAG", "gin") == "all 60 configurations of the paper's grid"
    assert configurations_in_words(paper[:12], "MUTAG", "gin") == "12 of the 60 configurations of the paper's grid"
    assert configurations_in_words(paper, "mine", "gin") == "60 configurations"
    assert configurations_in_words([one | {"hidden": 8} for one in paper], "MUTAG", "gin") == "60 configurations"
    molhiv = {"epochs": 25, "batch_size": 128, "dropout": 0.5, "weight_decay": 0.0, "lr": 1e-4}
    molhiv |= {"readout": "mean", "self_loops": False, "hidden": 300}
    said = configurations_in_words([molhiv], "ogbg-molhiv", "molhiv-gin")
    assert said == "one configuration, that of the paper's training curves"
