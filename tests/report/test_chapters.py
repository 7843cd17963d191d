"""Chapters: studies are joined by the question they ask, before they are judged."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import pytest
import torch
from scipy import stats

from fakes import fill
from graphnorm.data import PackedGraphs, load
from graphnorm.report import Chapter, join_baselines, read_studies, tell_apart
from graphnorm.settings import GRIDS, Grid
from graphnorm.study import Result, Store
from graphnorm.study.plan_from_settings import baseline_plan
from graphnorm.study.significance import holm
from pages import ONE, TWO, enter


@pytest.fixture(scope="module")
def split() -> PackedGraphs:
    """Trees with an official split."""
    parts = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
    return replace(load("synthetic:trees"), splits=parts)


def norms(chapters: Sequence[Chapter]) -> list[list[str]]:
    return [list(chapter.result.norms) for chapter in chapters]


# Joining


def test_seeds_of_two_studies_are_one_family_of_tests(store: Store, split: PackedGraphs) -> None:
    first = enter(store, ["graph", "batch"], graphs=split, protocol="given", seeds=5)
    second = enter(store, ["none"], graphs=split, protocol="given", seeds=3)
    (chapter,) = read_studies(store, store.studies())
    assert norms([chapter]) == [["none", "batch", "graph"]]
    assert chapter.studies == (first, second)
    assert chapter.title == "synthetic:trees, gin, given split"
    assert chapter.result.title.endswith("(400 graphs), gin, given split, 5 seeds, 3 epochs")
    assert (chapter.result.trials, chapter.result.counts, chapter.result.spec["seeds"]) == (13, {"done": 13}, 5)
    assert chapter.scope == "1 configuration; seeds: 3 (none), 5 (batch and graph); trained on fake."
    assert any(note.startswith("numbers of seeds differ") for note in chapter.notes)
    scores = {name: list(score.scores.values()) for name, score in chapter.result.norms.items()}
    pairs = [("graph", "none"), ("graph", "batch"), ("batch", "none")]
    raw = [stats.ttest_ind(scores[a], scores[b], equal_var=False).pvalue for a, b in pairs]
    for (best, other), p in zip(pairs, holm(raw), strict=True):
        assert chapter.result.pair(best, other).p_adjusted == pytest.approx(p, rel=1e-3)


@pytest.mark.parametrize(("share", "seeds"), [(1, 4), (0, 2)])
def test_of_one_normalization_twice_the_larger_study_counts(
    store: Store, split: PackedGraphs, share: float, seeds: int
) -> None:
    """As far as it is trained; two trials are in both."""
    enter(store, ["graph"], graphs=split, protocol="given", seeds=2)
    enter(store, ["graph", "none"], graphs=split, protocol="given", seeds=4, share=share)
    (chapter,) = read_studies(store, store.studies())
    assert len(chapter.result.norms["graph"].scores) == seeds
    assert chapter.result.trials == len(chapter.trials) == 8
    assert chapter.result.counts == {"done": 8 if share else 2}


def test_a_name_or_spec_of_another_kind_is_the_same_question(store: Store) -> None:
    """What counts is what is trained."""
    enter(store, ["graph"], Grid("one", {"lr": (1e-2,)}), epochs=3)
    enter(store, ["batch"], Grid("other", {"epochs": (3,)}), lr=1e-2)
    assert norms(read_studies(store, store.studies())) == [["batch", "graph"]]


@pytest.mark.parametrize(
    "other",
    [{"grid": TWO}, {"model": "gcn"}, {"protocol": "fair"}, {"folds": 4}, {"hidden": 8}, {"self_loops": True}],
    ids=str,
)
def test_other_questions_stay_apart(store: Store, other: dict[str, Any]) -> None:
    enter(store, ["graph"])
    enter(store, ["batch"], **other)
    assert norms(read_studies(store, store.studies(), fold=True)) == [["graph"], ["batch"]]


# Chapters inside others


def test_a_part_of_a_larger_study_is_a_note_of_it(store: Store) -> None:
    part = enter(store, ["graph", "batch"], ONE)
    enter(store, ["none", "graph", "batch"], TWO)
    (chapter,) = read_studies(store, store.studies(), fold=True)
    assert norms(read_studies(store, store.studies())) == [["graph", "batch"], ["none", "graph", "batch"]]
    means = {name: score.mean for name, score in chapter.result.norms.items()}
    said = f"graph {means['graph']:.1f}, batch {means['batch']:.1f}"  # the learning rate changes nothing here
    assert chapter.notes == (f"{part} is a part of this, 1 configuration: {said}",)


def test_one_more_configuration_is_a_note_of_a_larger_study(store: Store) -> None:
    other = enter(store, ["graph", "batch"], Grid("other", {"lr": (0.5,)}))
    authors = enter(store, ["graph", "batch"], ONE, as_authors=True)
    enter(store, ["none", "graph", "batch"], TWO)
    wider = enter(store, ["graph", "batch"], ONE, hidden=8)
    chapters = read_studies(store, store.studies(), fold=True)
    assert [chapter.studies for chapter in chapters][1:] == [(wider,)]
    first, second = chapters[0].notes
    assert first.startswith(f"{other} has one configuration, with epochs 400 and lr 0.5: ")
    assert second.startswith(f"{authors} has one configuration, with the authors' choices: ")


def test_a_part_is_kept_where_the_larger_study_has_no_result(store: Store) -> None:
    enter(store, ["graph"], ONE)
    enter(store, ["graph"], TWO, seeds=2, share=0)
    assert norms(read_studies(store, store.studies(), fold=True)) == [["graph"], ["graph"]]


def test_one_normalization_with_another_grid_is_a_row_beside(store: Store) -> None:
    enter(store, ["graph"], TWO)
    enter(store, ["graph", "batch"], ONE)
    (chapter,) = read_studies(store, store.studies(), fold=True)
    assert norms([chapter]) == [["graph", "batch"]]
    assert list(chapter.unranked) == ["graph, 2 configurations"]
    assert len(chapter.result.tests) == 1
    assert chapter.notes[-1].startswith("graph, 2 configurations: another number of configurations")


# Baselines


def test_baselines_of_the_same_folds_are_rows(store: Store) -> None:
    enter(store, ["batch", "graph"], protocol="paper", folds=4)
    enter(store, ["batch", "graph"], protocol="fair", folds=4)
    for name, folds in (("wl", 4), ("mlp", 4), ("dcnn", 5)):
        fill(store, baseline_plan(load("synthetic:trees"), name, protocol="paper", folds=folds))
    paper, fair, alone = join_baselines(read_studies(store, store.studies(), fold=True))
    assert list(paper.result.baselines) == ["wl", "mlp"]
    assert any("neither ranked nor tested" in note for note in paper.result.notes)
    assert not fair.result.baselines  # another protocol
    assert (alone.title, norms([alone])) == ("synthetic:trees, dcnn, paper", [[]])  # other folds
    assert alone.result.verdict.startswith("dcnn is a baseline")
    assert alone.scope == "1 configuration; 5 folds; trained on fake."


# Scope


@pytest.mark.parametrize(
    ("study", "said"),
    [
        ({"seeds": 2}, "1 configuration; 3 folds; 2 seeds"),
        (
            {"grid": TWO, "share": 0.75},
            "2 configurations (lr 0.001, 0.01), of these trained: 2 (graph), 1 (batch); 3 folds",
        ),
    ],
)
def test_the_scope_says_how_much_is_trained(store: Store, study: dict[str, Any], said: str) -> None:
    enter(store, ["graph", "batch"], **study)
    (chapter,) = read_studies(store, store.studies())
    assert chapter.scope == f"{said}; trained on fake."


PAPER = {option: list(values) for option, values in GRIDS["paper"].axes.items()}
LESS = PAPER | {"lr": [1e-2]}
OF_MUTAG = {"readout": "sum", "self_loops": True, "hidden": 64}
CURVES = {option: list(values) for option, values in GRIDS["curves"].axes.items()}
OF_MOLHIV = CURVES | {"epochs": [25], "lr": [1e-4], "readout": "mean", "self_loops": False, "hidden": 300}


@pytest.mark.parametrize(
    ("dataset", "model", "settings", "said"),
    [
        ("MUTAG", "gin", {"grid": PAPER} | OF_MUTAG, "All 60 configurations of the paper's grid"),
        ("MUTAG", "gin", {"grid": LESS} | OF_MUTAG, "20 of the 60 configurations of the paper's grid"),
        ("MUTAG", "gin", {"grid": PAPER, "hidden": 8}, "60 configurations"),
        ("MUTAG", "gin", {"grid": PAPER, "catalogued": False} | OF_MUTAG, "60 configurations"),
        ("mine", "gin", {"grid": PAPER} | OF_MUTAG, "60 configurations"),
        ("MUTAG", "gin", {"grid": CURVES} | OF_MUTAG, "1 configuration, that of the paper's training curves"),
        ("MUTAG", "gin", CURVES | {"batch_size": [8, 128]} | OF_MUTAG, "2 configurations (batch size 8, 128)"),
        ("ogbg-molhiv", "molhiv-gin", OF_MOLHIV, "1 configuration, that of the paper's training curves"),
    ],
)
def test_configurations_of_the_paper(dataset: str, model: str, settings: dict[str, Any], said: str) -> None:
    grid = settings.pop("grid", {option: settings.pop(option) for option in CURVES if option in settings})
    about = {"dataset": dataset, "model": model, "protocol": "paper", "folds": 10, "seeds": 1}
    assert Chapter(Result("study", about | settings | {"grid": grid}, {})).scope == f"{said}; 10 folds."


# Titles


@pytest.mark.parametrize(
    ("studies", "told_apart"),
    [
        ([((1e-2,), "graph"), ((1e-3,), "batch")], ["graph", "batch"]),
        ([((1e-2,), "graph"), ((1e-3, 1e-4), "graph")], ["1 configuration", "2 configurations"]),
        (
            [((1e-2,), "graph"), ((1e-3,), "batch"), ((1e-4, 1e-5), "graph")],
            ["graph; 1 configuration", "batch", "2 configurations"],
        ),
        ([((1e-2,), "graph"), ((1e-3,), "graph")], ["study 0", "study 1"]),
    ],
    ids=["norms", "configurations", "both", "names"],
)
def test_titles_that_would_be_the_same(
    store: Store, studies: list[tuple[tuple[float, ...], str]], told_apart: list[str]
) -> None:
    for number, (rates, norm) in enumerate(studies):
        enter(store, [norm], Grid("rates", {"epochs": (2,), "lr": rates}), name=f"study {number}")
    enter(store, ["graph"], protocol="fair")
    *same, other = tell_apart(read_studies(store, store.studies()))
    assert [chapter.told_apart for chapter in same] == told_apart
    assert same[0].title == f"synthetic:trees, gin, paper: {told_apart[0]}"
    assert other.title == "synthetic:trees, gin, fair"
