"""Fleets: trials of one shape, no larger than memory allows."""

from __future__ import annotations

from dataclasses import replace

import pytest
import torch

from graphnorm.data import load
from graphnorm.models.build import bytes_per_member
from graphnorm.settings import GRIDS, Running, Settings
from graphnorm.study import make_plan
from graphnorm.study.fleets import group_trials
from graphnorm.training import Trial

TREES = load("synthetic:trees")
ONE_WORKER = Running(device="cpu", workers=1)
SMALL = Trial(dataset="trees", hidden=8)
MIXED = [replace(SMALL, seed=seed, norm=norm) for seed, norm in enumerate(["graph", "none", "graph", "none"])]


def test_trials_of_one_shape_make_a_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    assert group_trials(TREES, MIXED, ONE_WORKER) == [[0, 2], [1, 3]]
    assert group_trials(TREES, MIXED, Running(device="cpu", workers=4)) == [[0], [2], [1], [3]]
    monkeypatch.setattr("graphnorm.study.fleets.MOST_ON_CPU", 4)
    assert [len(fleet) for fleet in group_trials(TREES, [SMALL] * 9, ONE_WORKER)] == [3, 3, 3]  # shared out evenly


def test_a_fleet_is_no_larger_than_the_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    room = {"SC_PAGE_SIZE": 4096, "SC_AVPHYS_PAGES": 3 * bytes_per_member(SMALL, TREES) // 4096}
    monkeypatch.setattr("os.sysconf", room.get)
    assert [len(fleet) for fleet in group_trials(TREES, [SMALL] * 6, ONE_WORKER)] == [2, 2, 2]


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the memory of a GPU is known")
def test_fleets_for_gpus_that_are_elsewhere() -> None:
    trials = make_plan(TREES, Settings(norms=("graph", "batch")), GRIDS["paper"]).trials
    elsewhere = Running(engine="ray", gpus_per_worker=1.0)
    fleets = group_trials(TREES, trials, replace(elsewhere, workers=1))
    assert [len(fleet) for fleet in fleets] == [300] * 4  # two batch sizes, two normalizations
    assert all(len({trials[place].shape for place in fleet}) == 1 for fleet in fleets)
    fleets = group_trials(TREES, trials, replace(elsewhere, workers=64))
    assert len(fleets) == 64
    assert sorted(place for fleet in fleets for place in fleet) == list(range(len(trials)))
