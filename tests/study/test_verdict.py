"""Verdicts and notes: no sentence says more than the tests do."""

from __future__ import annotations

import math
from dataclasses import replace

import pytest
import torch

from fakes import LEVEL, FakeFleet, compare, rising
from graphnorm.data import load
from graphnorm.study.notes import ABOUT_BASELINES, note_on_last_batch

TREES = load("synthetic:trees")

pytestmark = pytest.mark.usefixtures("fleets")


@pytest.mark.parametrize(
    ("norms", "begin", "end"),
    [
        (
            "none,layer,batch,instance,graph",
            "graph has the highest",
            "every other one: instance, batch, layer and none are 8.7 to 20.0 points lower.",
        ),
        (
            "none,graph",
            "graph has the highest",
            "every other one: none is 20.0 points lower (95 % interval 17.2 to 22.8).",
        ),
        (
            "layer,batch,instance",
            "No clear winner: instance has the highest",
            "instance and batch are within 1.5 points, which 10 folds cannot settle; "
            "layer is 9.5 points lower (95 % interval 7.6 to 11.4), significantly.",
        ),
        (
            "batch,instance",
            "No clear winner: instance has the highest accuracy",
            "80.1 ± 1.1 %; instance and batch are within 1.5 points, which 10 folds cannot settle.",
        ),
        ("graph", "Only graph has a result", "nothing to compare it with."),
    ],
)
def test_a_winner_is_named_where_it_beats_every_other(norms: str, begin: str, end: str) -> None:
    verdict = compare(norms=norms).verdict
    assert verdict.startswith(begin)
    assert verdict.endswith(end)


def test_the_smallest_error_wins() -> None:
    """The levels are those of accuracies, so as errors they are ranked the other way round."""
    bare = {"labels": torch.zeros_like(TREES.labels), "classes": ("unknown",)}
    targets = {"task": "values", "targets": TREES.sizes[:, None].float(), "target_names": ("logS",)}
    result = compare(replace(TREES, **bare, **targets), norms="none,layer,batch,instance,graph")
    assert result.groups == (("none", "layer"), ("batch", "instance", "graph"))
    assert result.ranking == ["none", "layer", "batch", "instance", "graph"]
    assert result.verdict.startswith("No clear winner: none has the lowest RMSE")
    assert result.verdict.endswith("batch, instance and graph are 0.018 to 0.040 higher, significantly.")
    assert noted("RMSE is in the unit of logS", result.notes)
    assert result.convergence.slowest == "graph"
    assert "%" not in "".join(result.table.columns).replace("[95 %]", "")
    (avoid,) = [found.text for found in result.findings if found.kind == "AVOID"]
    assert "graph (0.0396 more)" in avoid


def test_what_is_lower_but_not_proven_to_be() -> None:
    result = compare(norms="none,layer,batch,instance", folds=3)
    assert len(result.groups) == 1
    assert "layer and none are 11.0 to 11.3 points lower, which 3 folds cannot settle" in result.verdict
    (tied,) = [found.text for found in result.findings if found.kind == "TIED"]
    assert "instance and batch lead; layer and none are" in tied
    assert tied.endswith("3 folds cannot settle it")


def test_more_seeds_are_suggested_by_the_effect(fleets: type[FakeFleet]) -> None:
    fleets.values = staticmethod(lambda trial, epoch: rising(trial, trial.epochs))  # best at once
    parts = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
    graphs = replace(TREES, splits=parts)
    result = compare(graphs, norms="batch,instance", seeds=3, protocol="given", model="gin")
    effect = result.pair("instance", "batch").effect
    assert effect is not None
    (found,) = [found.options for found in result.findings if found.kind == "NEXT"]
    assert found == ("--seeds", str(max(5, math.ceil(2 * (2.8 / effect) ** 2))))


def test_a_rare_class_is_told_by_its_ranking() -> None:
    graphs = replace(TREES, labels=(torch.arange(400) % 20 == 0).long())
    result = compare(graphs, norms="none,graph")
    assert result.metric.name == "ROC-AUC"
    assert noted("only 5 % of the graphs are in the smaller class", result.notes)
    assert not noted("smaller class", compare(graphs, norms="none,graph", metric="f1").notes)


def test_equal_means_are_shared(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(LEVEL, "size", LEVEL["none"])  # names of equal length have equal noise
    assert "size and none share" in compare(norms="size,none").verdict


def test_one_fold_left_says_little(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset((norm, fold) for norm in ("batch", "graph") for fold in range(9))
    result = compare(norms=["batch", "graph"])
    assert result.verdict.startswith("No clear winner: graph")
    assert "too few scores" in result.verdict
    assert any("graph: 9 of 10" in note for note in result.notes)


def test_what_is_no_better_than_chance_is_no_victory(monkeypatch: pytest.MonkeyPatch) -> None:
    largest = 100 * float(torch.bincount(TREES.labels.long()).max()) / TREES.num_graphs
    monkeypatch.setitem(LEVEL, "none", largest / 100 - 0.2)
    result = compare(norms="none,graph")
    assert result.chance == pytest.approx(largest)
    assert any(note.startswith("none: no better than chance") for note in result.notes)
    assert result.verdict.startswith("graph has the highest")
    monkeypatch.setitem(LEVEL, "graph", largest / 100 - 0.02)
    neither = compare(norms="none,graph")
    assert neither.pair("graph", "none").significant
    assert neither.verdict.startswith("Nothing can be concluded")


def test_everything_diverged(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset((norm, fold) for norm in ("none", "graph") for fold in range(10))
    result = compare(norms="none,graph")
    assert result.verdict.startswith("Nothing can be concluded")
    assert result.to_dict()["convergence"]["target"] is None
    assert "diverged" in result._repr_html_()


def noted(word: str, notes: list[str]) -> bool:
    return any(word in note for note in notes)


def test_what_a_reader_must_know() -> None:
    paper, fair = compare(norms="none,graph").notes, compare(norms="none,graph", protocol="fair").notes
    assert noted("optimistic", paper)
    assert not noted("optimistic", fair)
    assert noted("paired over folds, corrected for overlapping", paper)
    parts = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
    with_split = replace(TREES, splits=parts)
    official = compare(with_split, norms="batch,graph", seeds=3).notes
    assert noted("is for runs without --protocol", compare(with_split, norms="graph", protocol="fair").notes)
    assert not noted("is for runs without --protocol", [*official, *fair])
    assert noted("Welch's test of unpaired seeds, corrected for the number", official)
    assert noted("seeds on one split", official)
    assert ABOUT_BASELINES in compare(norms="graph", folds=3, baselines="wl").notes


def test_a_small_last_batch_is_noted() -> None:
    small, full = (compare(norms="graph", batch_size=size).notes for size in (119, 120))  # of 360 graphs
    assert set(small) - set(full) == set(note_on_last_batch([360], 119))
    (note,) = note_on_last_batch([360], 119)
    assert "has 3 graphs (others 119)" in note
    assert note.endswith("--last-batch even makes all about equal")
    assert note_on_last_batch([360], 360) == note_on_last_batch([], 7) == []
