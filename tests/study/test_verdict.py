"""Verdicts and notes: no sentence says more than the tests do."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from fakes import LEVEL, FakeFleet, compare
from graphnorm.data import load
from graphnorm.study.verdict import ABOUT_BASELINES, note_on_last_batch

TREES = load("synthetic:trees")

pytestmark = pytest.mark.usefixtures("fleets")


@pytest.mark.parametrize(
    ("norms", "begin", "end"),
    [
        (
            "none,layer,batch,instance,graph",
            "graph has the highest",
            "every other one (instance, batch, layer and none).",
        ),
        ("none,graph", "graph has the highest", "the only other one (none)."),
        ("layer,batch,instance", "No clear winner: instance has", "better than layer, but not than batch."),
        ("batch,instance", "No clear winner: instance has", "not significantly better than batch."),
        ("graph", "Only graph has a result", "nothing to compare it with."),
    ],
)
def test_a_winner_is_named_where_it_beats_every_other(norms: str, begin: str, end: str) -> None:
    verdict = compare(norms=norms).verdict
    assert verdict.startswith(begin)
    assert verdict.endswith(end)


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
    official = compare(replace(TREES, splits=parts), norms="batch,graph", seeds=3).notes
    assert noted("Welch's test of unpaired seeds, corrected for the number", official)
    assert noted("seeds on one split", official)
    assert ABOUT_BASELINES in compare(norms="graph", folds=3, baselines="wl").notes


def test_a_small_last_batch_is_noted() -> None:
    small, full = (compare(norms="graph", batch_size=size).notes for size in (119, 120))  # of 360 graphs
    assert set(small) - set(full) == set(note_on_last_batch([360], 119))
    (note,) = note_on_last_batch([360], 119)
    assert "has 3 graphs (others 119)" in note
    assert note.endswith("--batch-size 120 leaves 120")
    assert note_on_last_batch([360], 360) == note_on_last_batch([], 7) == []
