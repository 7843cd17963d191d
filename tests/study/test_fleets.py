"""Fleets: trials of one shape, no larger than memory allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphnorm.data import load
from graphnorm.models.build import bytes_per_member
from graphnorm.settings import GRIDS, Settings
from graphnorm.study import make_plan
from graphnorm.study.fleets import pack
from graphnorm.training import Trial

TREES = load("synthetic:trees")
SMALL = Trial(dataset="trees", hidden=8)
MIXED = [replace(SMALL, seed=seed, norm=norm) for seed, norm in enumerate(["graph", "none", "graph", "none"])]


def test_trials_of_one_shape_make_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pack(TREES, MIXED, "cpu", slots=1) == [[0, 2], [1, 3]]
    assert pack(TREES, MIXED, "cpu", slots=4) == [[0], [2], [1], [3]]
    monkeypatch.setattr("graphnorm.study.fleets.MOST_ON_CPU", 4)
    assert [len(fleet) for fleet in pack(TREES, [SMALL] * 9, "cpu", slots=1)] == [3, 3, 3]  # shared out evenly


def test_a_fleet_is_no_larger_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    room = {"SC_PAGE_SIZE": 4096, "SC_AVPHYS_PAGES": 3 * bytes_per_member(SMALL, TREES) // 4096}
    monkeypatch.setattr("os.sysconf", room.get)
    assert [len(fleet) for fleet in pack(TREES, [SMALL] * 6, "cpu", slots=1)] == [2, 2, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the memory of a GPU is known")
def test_fleets_for_gpus_that_are_elsewhere() -> None:
    trials = make_plan(TREES, Settings(norms=("graph", "batch")), GRIDS["paper"]).trials
    fleets = pack(TREES, trials, "cuda", slots=1)
    assert [len(fleet) for fleet in fleets] == [300] * 4  # two batch sizes, two normalizations
    assert all(len({trials[place].shape for place in fleet}) == 1 for fleet in fleets)
    fleets = pack(TREES, trials, "cuda", slots=64)
    assert len(fleets) == 64
    assert sorted(place for fleet in fleets for place in fleet) == list(range(len(trials)))
