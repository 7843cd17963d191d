"""Under ``fair`` a search never sees the outer fold: scrambling its labels changes no choice, in halving either."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
import torch

from graphnorm.data import PackedGraphs, synthetic
from graphnorm.study.driver import Driver
from graphnorm.study.engines.local import InProcess
from graphnorm.study.grid import Grid
from graphnorm.study.halving import Rung
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.results import NormResult, study_results
from graphnorm.study.search import pack
from graphnorm.study.store import Store

GRID = Grid("test", {"epochs": (8,), "lr": (1e-3, 1e-2, 3e-2, 1e-1), "hidden": (8,), "layers": (2,)})


def search(path: Path, graphs: PackedGraphs, rungs: list[Rung]) -> NormResult:
    plan = make_plan(graphs, GRID, norms=["batch"], protocol="fair", folds=3, readout="sum")
    with Store(path) as store:
        study = store.add_study("study", {}, plan.trials, pack(graphs, plan.trials, "cpu", 1))
        assert Driver(store, study, graphs, InProcess(graphs, "cpu"), rungs=rungs).run()
        (result,) = study_results(store, store.study("study"))
    return result


@pytest.mark.parametrize("rungs", [[], [Rung(2, 2), Rung(4, 1)]], ids=["full", "halving"])
def test_scrambled_labels_of_the_outer_fold_change_no_choice_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, rungs: list[Rung]
) -> None:
    graphs = synthetic.trees(num_graphs=90, seed=0)
    example = make_plan(graphs, GRID, norms=["batch"], protocol="fair", folds=3).trials[:3]
    splits = dict(zip((trial.fold for trial in example), make_splits(graphs, example), strict=True))
    # The folds themselves depend on the labels, so they are held.
    monkeypatch.setattr("graphnorm.study.driver.make_splits", lambda _, trials: [splits[t.fold] for t in trials])
    straight = search(tmp_path / "straight.db", graphs, rungs)
    assert straight.selection is not None
    for fold in range(3):
        labels = graphs.labels.clone()
        outer = torch.from_numpy(splits[fold].test)
        labels[outer] = 1 - labels[outer]
        scrambled = search(tmp_path / f"{fold}.db", replace(graphs, labels=labels), rungs)
        assert scrambled.selection is not None
        before, after = straight.selection.choices[fold], scrambled.selection.choices[fold]
        assert (after.configuration, after.epoch) == (before.configuration, before.epoch)
        assert after.score == pytest.approx(1 - before.score)  # the labels did reach the report
