"""Grids and plans: which trials a search has, and what a wrong file is told."""

from __future__ import annotations

from collections import Counter
from pathlib import Path

import pytest
import torch

from graphnorm.data import load
from graphnorm.errors import StudyError
from graphnorm.study.grid import GRIDS, find_grid
from graphnorm.study.plan import group_candidates, make_plan
from graphnorm.study.search import pack


def test_the_paper_s_grid() -> None:
    configurations = GRIDS["paper"].configurations()
    assert len(configurations) == len(GRIDS["paper"]) == 60
    assert {c["lr"] for c in configurations} == {1e-4, 1e-3, 1e-2}
    assert {c["weight_decay"] for c in configurations} == {0, 5e-5, 5e-4, 5e-3, 5e-2}
    assert Counter(c["batch_size"] for c in configurations) == {64: 30, 128: 30}
    assert Counter(c["dropout"] for c in configurations) == {0.0: 30, 0.5: 30}
    assert {c["epochs"] for c in configurations} == {400}


def test_a_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('lr = [1e-3, 1]\nepochs = 7\nreadout = ["sum", "mean"]\nself_loops = true\n')
    grid = find_grid(str(path))
    assert grid.name == "mine"
    assert grid.configurations()[0] == {"lr": 1e-3, "epochs": 7, "readout": "sum", "self_loops": True}
    assert len(grid) == 4
    assert isinstance(grid.axes["lr"][1], float)  # the same trial as 1.0
    assert grid.fixed(epochs=3).configurations()[3]["epochs"] == 3


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("lr = [1e-3\nlr", "this is not TOML: .*line 2"),
        ("learning_rate = 1", "'learning_rate' is no setting"),
        ("droupout = 0.5", "did you mean dropout"),
        ("lr = []", "lr has no value"),
        ("lr = [0.1, 0.1]", "a value twice"),
        ("lr = 'high'", "lr = 'high' is not a positive number"),
        ("lr = -1", "not a positive number"),
        ("lr = nan", "not a positive number"),
        ("batch_size = 64.5", "not a whole number"),
        ("batch_size = true", "not a whole number"),
        ("dropout = 1", "from 0 to below 1"),
        ("readout = 'max'", "'sum' or 'mean'"),
        ("fold = [1, 2]", "'fold' is no setting"),
        ("[lr]\na = 1", "not a positive number"),
        ("", "the grid is empty"),
    ],
)
def test_wrong_files(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=message) as caught:
        find_grid(path)
    assert str(caught.value).startswith(f"{path}: ")
    assert "Remedy: " in str(caught.value)


def test_no_file(tmp_path: Path) -> None:
    with pytest.raises(StudyError, match="known: paper, curves, quick"):
        find_grid("papper")
    with pytest.raises(StudyError, match="there is no such file"):
        find_grid(tmp_path / "absent.toml")


def test_a_plan_is_named_by_its_trials() -> None:
    graphs = load("synthetic:trees")
    plan = make_plan(graphs, GRIDS["quick"], norms=["graph", "batch"], folds=5, seeds=2)
    assert len(plan.trials) == len({trial.key for trial in plan.trials}) == 2 * 4 * 5 * 2
    assert plan.epochs == 80 * 100
    assert {trial.fingerprint for trial in plan.trials} == {graphs.fingerprint}
    assert plan == make_plan(graphs, GRIDS["quick"], norms=["graph", "batch"], folds=5, seeds=2)
    assert plan.name != make_plan(graphs, GRIDS["quick"], norms=["graph", "batch"], folds=5).name
    groups = group_candidates(plan.trials)
    assert list(groups) == ["graph", "batch"]
    assert [len(places) for places in groups["graph"]] == [10] * 4
    assert sorted(place for group in groups.values() for places in group for place in places) == list(range(80))


def test_under_ogb_only_seeds_are_repeated() -> None:
    plan = make_plan(load("synthetic:trees"), GRIDS["quick"], norms=["graph"], protocol="ogb", seeds=3, folds=10)
    assert [(t.fold, t.seed) for t in plan.trials[:3]] == [(0, 0), (0, 1), (0, 2)]
    assert len(plan.trials) == 12


@pytest.mark.skipif(torch.cuda.is_available(), reason="here the memory of a GPU is known")
def test_fleets_for_gpus_that_are_elsewhere() -> None:
    graphs = load("synthetic:trees")
    trials = make_plan(graphs, GRIDS["paper"], norms=["graph", "batch"]).trials
    fleets = pack(graphs, trials, "cuda", slots=1)
    assert [len(fleet) for fleet in fleets] == [300] * 4  # two batch sizes, two normalizations
    assert all(len({trials[place].shape for place in fleet}) == 1 for fleet in fleets)
    fleets = pack(graphs, trials, "cuda", slots=64)
    assert len(fleets) == 64
    assert sorted(place for fleet in fleets for place in fleet) == list(range(len(trials)))
