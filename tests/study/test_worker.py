"""A worker: questions and answers, checkpoints, and normalizations that travel."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from fakes import FakeFleet
from graphnorm.data import synthetic
from graphnorm.study import make_splits
from graphnorm.study.checkpoints import unpack_checkpoint
from graphnorm.study.fleets import make_fleet
from graphnorm.study.worker import Advance, Begin, Step, Worker
from graphnorm.training import Trial

GRAPHS = synthetic.regular(num_graphs=24, seed=0)
TRIALS = tuple(Trial(dataset="r", folds=3, fold=fold, epochs=6, hidden=4, layers=2, batch_size=8) for fold in range(3))
KEYS = frozenset(trial.key for trial in TRIALS)


def begin(**options: Any) -> Begin:
    given = {"trials": TRIALS, "splits": tuple(make_splits(GRAPHS, TRIALS)), "wanted": KEYS, "make_fleet": make_fleet}
    return Begin(**given | options)


def finished(worker: Worker, task: Begin) -> dict[str, dict[str, np.ndarray]]:
    assert isinstance(worker.answer(task), Step)
    step = worker.answer(Advance(1e9, until=6))
    assert isinstance(step, Step)
    assert step.outcomes is not None
    return {outcome.trial.key: outcome.curves for outcome in step.outcomes}


@pytest.mark.parametrize("wanted", [KEYS, frozenset([TRIALS[2].key, TRIALS[0].key])])
def test_another_worker_goes_on_from_a_checkpoint(wanted: frozenset[str]) -> None:
    calm = finished(Worker(GRAPHS, "cpu"), begin())
    first = Worker(GRAPHS, "cpu")
    first.answer(begin())
    step = first.answer(Advance(1e9, until=3))
    assert isinstance(step, Step)
    assert (step.epoch, step.metrics["valid"].shape) == (3, (3, 3))
    assert step.checkpoint is not None
    checkpoint = unpack_checkpoint(step.checkpoint)
    assert checkpoint is not None
    assert (checkpoint.epoch, set(checkpoint.keys)) == (3, set(KEYS))
    resumed = finished(Worker(GRAPHS, "cpu"), begin(checkpoint=step.checkpoint, wanted=wanted))
    assert resumed.keys() == wanted
    for key, curves in resumed.items():
        for name, curve in curves.items():
            np.testing.assert_allclose(curve, calm[key][name], rtol=0 if wanted == KEYS else 1e-4)


def test_a_worker_trains_for_about_as_long_as_it_is_told(fleets: type[FakeFleet]) -> None:
    worker = Worker(GRAPHS, "cpu")
    assert "no fleet" in worker.answer(Advance(1.0, until=6)).error  # type: ignore[union-attr]
    worker.answer(begin())
    epochs = [worker.answer(Advance(seconds, until=6)).epoch for seconds in (1e-9, 0.0, 1e-9)]  # type: ignore[union-attr]
    assert epochs == [1, 1, 2]  # at least one, unless it is told to train for no time
    step = worker.answer(Advance(0.0, until=6, checkpoint=True))
    assert isinstance(step, Step)
    assert step.checkpoint is not None
    assert worker.answer(Advance(1e9, until=4)).epoch == 4  # type: ignore[union-attr]
