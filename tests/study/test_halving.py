"""Successive halving: what it costs, which configurations begin, and which go on."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
import torch

from fakes import scattered
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import StudyError
from graphnorm.settings import GRIDS, Grid, Running, Settings
from graphnorm.study import Result, Store, make_plan, make_splits, run
from graphnorm.study.forecast import estimate_seconds
from graphnorm.study.halving import Ladder, adapt, losers, make_ladder
from graphnorm.study.plan import Rung
from graphnorm.training import Trial

GRAPHS = synthetic.trees(num_graphs=90, seed=0)


def test_ladders() -> None:
    assert make_ladder(4, 16, 64) == Ladder(4, ())
    assert make_ladder(4, 16, 63) == Ladder(4, (Rung(8, 2),))
    assert make_ladder(4, 16, 32) == Ladder(4, (Rung(4, 2), Rung(8, 1)))
    assert make_ladder(4, 16, 16) == Ladder(1, ())
    for budget in range(400, 24000, 100):
        ladder = make_ladder(60, 400, budget)
        assert ladder.cost(400) <= budget
        assert all(rung.epoch >= 4 for rung in ladder.rungs)
    assert make_ladder(60, 400, 2000).configurations == 60
    with pytest.raises(StudyError, match="at least one is needed"):
        make_ladder(60, 400, 399)


def test_a_plan_within_a_budget() -> None:
    plan = make_plan(GRAPHS, Settings(norms=("graph", "batch"), folds=3), GRIDS["paper"])
    whole = adapt(plan, len(plan.trials))
    assert (whole.trials, whole.rungs) == (plan.trials, ())
    some = adapt(plan, len(plan.trials) / 12)
    assert some.trials == plan.trials
    assert Ladder(60, some.rungs).cost(400) * 6 <= 400 * len(plan.trials) / 12
    few = adapt(plan, 12)  # twice the least
    assert few.spec["configurations"] < 60
    kept = [trial for trial in plan.trials if trial in set(few.trials)]
    assert list(few.trials) == kept
    assert len(kept) == 6 * few.spec["configurations"]
    with pytest.raises(StudyError, match="different length"):
        adapt(make_plan(GRAPHS, Settings(norms=("graph",), baselines=("wl",))), 100)
    with pytest.raises(StudyError, match="baselines have one configuration"):
        adapt(make_plan(GRAPHS, Settings(norms=("graph",), baselines=("mlp",)), GRIDS["paper"]), 100)


def test_under_a_nested_protocol_each_fold_decides_for_itself() -> None:
    grid = Grid("test", {"epochs": (16,), "lr": (0.1, 0.2, 0.3, 0.4)})
    trials = make_plan(GRAPHS, Settings(norms=("graph",), protocol="fair", folds=2), grid).trials
    valid = {t.key: np.array([scattered(t, epoch)["valid"] for epoch in (1, 2)], np.float32) for t in trials}
    lost = losers(trials, valid, keep=1)
    for fold in (0, 1):
        mine = [t for t in trials if t.fold == fold]
        (kept,) = [t for t in mine if t not in lost]
        assert valid[kept.key].max() == max(valid[t.key].max() for t in mine)
    # What happens in one fold has no part in what is decided in the other.
    changed = {t.key: 1 - valid[t.key] if t.fold else valid[t.key] for t in trials}
    assert [t for t in losers(trials, changed, keep=1) if t.fold == 0] == [t for t in lost if t.fold == 0]


@pytest.mark.parametrize(
    ("task", "curves", "winner"), [("", ([0.9], [0.1]), 0), ("values", ([7.0, 3e-9], [7.0, 2e-9]), 1)]
)
def test_the_lower_score_loses_the_larger_error_and_what_diverged(
    task: str, curves: tuple[list[float], list[float]], winner: int
) -> None:
    trials = [Trial(dataset="x", task=task, lr=lr, fold=fold) for lr in (0.1, 0.2) for fold in range(2)]
    configurations = trials[:2], trials[2:]
    valid = {t.key: np.array(curves[t.lr == 0.2], np.float32) for t in trials}
    assert losers(trials, valid, keep=1) == configurations[1 - winner]
    valid[configurations[winner][0].key][-1] = np.nan
    assert losers(trials, valid, keep=1) == configurations[winner]


def test_the_time_is_estimated_from_a_fleet_of_each_shape(monkeypatch: pytest.MonkeyPatch) -> None:
    plan = make_plan(GRAPHS, Settings(norms=("graph", "batch"), folds=3, epochs=50, hidden=8, baselines=("wl",)))
    fleets = [plan.trials[start : start + 3] for start in range(0, 9, 3)]
    threads = torch.get_num_threads()
    whole = estimate_seconds(GRAPHS, fleets, device="cpu")
    assert torch.get_num_threads() == threads
    assert 0 < whole < 60
    assert estimate_seconds(GRAPHS, fleets[2:], device="cpu") == 0  # kernels are not counted
    monkeypatch.setattr("graphnorm.study.forecast.CALIBRATION_SECONDS", 0)
    assert estimate_seconds(GRAPHS, fleets, device="cpu") > 0  # the first stands for all


NESTED = Grid("test", {"epochs": (8,), "lr": (1e-3, 1e-2, 3e-2, 1e-1), "hidden": (8,), "layers": (2,)})


@pytest.mark.parametrize("rungs", [[], [Rung(2, 2), Rung(4, 1)]], ids=["full", "halving"])
def test_scrambled_labels_of_the_reported_fold_change_no_choice_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rungs: list[Rung]
) -> None:
    """Under ``fair`` a reported graph has no part in any choice, with real training."""

    def search(graphs: PackedGraphs, name: str) -> Result:
        plan = make_plan(graphs, Settings(norms=("batch",), protocol="fair", folds=3), NESTED)
        with Store(tmp_path / name) as store:
            plan = replace(plan, spec={**plan.spec, "rungs": rungs})
            return run(plan, graphs, store, Running(device="cpu", workers=1))

    folds = make_plan(GRAPHS, Settings(norms=("batch",), protocol="fair", folds=3)).trials
    splits = dict(zip(range(3), make_splits(GRAPHS, folds), strict=True))
    # The folds themselves depend on the labels, so they are held.
    monkeypatch.setattr("graphnorm.study.runner.make_splits", lambda _, trials: [splits[t.fold] for t in trials])
    straight = search(GRAPHS, "straight.db").norms["batch"].choices
    for fold in range(3):
        labels = GRAPHS.labels.clone()
        reported = torch.from_numpy(splits[fold].test)
        labels[reported] = 1 - labels[reported]
        before, after = (
            straight[fold],
            search(replace(GRAPHS, labels=labels), f"{fold}.db").norms["batch"].choices[fold],
        )
        assert (after.configuration, after.epoch) == (before.configuration, before.epoch)
        assert after.score == pytest.approx(1 - before.score)  # the labels did reach the report
