"""Many trials: packed, trained in this process or in workers, with the same results."""

from __future__ import annotations

import dataclasses
import signal
import time

import numpy as np
import pytest
import torch

from graphnorm.data import synthetic
from graphnorm.training import Split, Trial, plan_fleets, train
from graphnorm.training import run as run_module
from graphnorm.training.fleet import Fleet
from graphnorm.training.workers import Job, _Worker, train_in_workers

GRAPHS = synthetic.regular(num_graphs=40, seed=0)
PART = Split(np.arange(32), np.arange(32, 40))
BASE = Trial(dataset="regular", hidden=8, layers=3, epochs=2, batch_size=16)
MIXED = [
    dataclasses.replace(BASE, seed=seed, norm=norm) for seed, norm in enumerate(["graph", "none", "graph", "none"])
]


def test_trials_of_one_shape_make_a_fleet():
    assert plan_fleets(GRAPHS, MIXED, "cpu") == [[0, 2], [1, 3]]
    assert plan_fleets(GRAPHS, MIXED, "cpu", share=2) == [[0], [2], [1], [3]]


def test_a_large_group_is_shared_out_evenly(monkeypatch):
    monkeypatch.setattr("graphnorm.training.packing.MOST_ON_CPU", 4)
    assert [len(fleet) for fleet in plan_fleets(GRAPHS, [BASE] * 9, "cpu")] == [3, 3, 3]


def test_workers_give_what_this_process_gives():
    seen = []
    here = train(GRAPHS, MIXED, [PART] * 4, device="cpu", workers=1)
    there = train(GRAPHS, MIXED, [PART] * 4, device="cpu", workers=2, on_epoch=seen.append, keep_state=True)
    for mine, theirs in zip(here, there, strict=True):
        assert mine.trial == theirs.trial
        assert theirs.state
        assert not mine.state
        for name, curve in mine.curves.items():
            np.testing.assert_allclose(theirs.curves[name], curve, rtol=1e-4)
    assert len(seen) == 8  # 4 fleets of 1, 2 epochs each
    assert set(seen[0].metrics) == {"loss", "train", "valid"}


@pytest.mark.parametrize("workers", [1, 2])
def test_outcomes_are_handed_over_fleet_by_fleet(workers):
    handed = []
    found = train(GRAPHS, MIXED, [PART] * 4, device="cpu", workers=workers, on_outcomes=handed.append)
    assert sorted(outcome.trial.seed for fleet in handed for outcome in fleet) == [0, 1, 2, 3]
    assert all(len({outcome.trial.shape for outcome in fleet}) == 1 for fleet in handed)
    assert [outcome.trial for outcome in found] == MIXED


def test_what_on_epoch_raises_passes_through_and_ends_the_workers():
    def stop(progress):
        raise KeyboardInterrupt

    with pytest.raises(KeyboardInterrupt):
        train(GRAPHS, MIXED, [PART] * 4, device="cpu", workers=2, on_epoch=stop)


def test_a_failing_worker_is_reported():
    wrong = dataclasses.replace(BASE, model="gim")
    with pytest.raises(RuntimeError, match=r"(?s)training process failed.*unknown model 'gim'"):
        train_in_workers(GRAPHS, [Job([wrong], [PART])], 1)


def test_a_fleet_that_runs_out_of_memory_is_halved(monkeypatch):
    sizes = []

    class Small(Fleet):
        def __init__(self, graphs, trials, splits, **options):
            sizes.append(len(trials))
            if len(trials) > 2:
                raise torch.OutOfMemoryError("too large")
            super().__init__(graphs, trials, splits, **options)

    monkeypatch.setattr(run_module, "Fleet", Small)
    trials = [dataclasses.replace(BASE, seed=seed) for seed in range(5)]
    found = train(GRAPHS, trials, [PART] * 5, device="cpu", workers=1)
    assert sizes == [5, 2, 3, 1, 2]
    assert [outcome.trial for outcome in found] == trials


@pytest.mark.skipif(not hasattr(signal, "pthread_sigmask"), reason="this system cannot hold signals back")
@pytest.mark.parametrize("seconds", [0, 0.05, 0.5])
def test_ctrl_c_while_a_worker_starts_is_not_its_to_answer(seconds: float, capfd: pytest.CaptureFixture[str]) -> None:
    worker = _Worker(synthetic.trees(num_graphs=4, seed=0))
    time.sleep(seconds)
    worker._process.send_signal(signal.SIGINT)
    assert worker._process.stdin is not None
    worker._process.stdin.write(b"\x80\x05\x95")  # the parent ends in the middle of a word
    worker._process.stdin.close()
    assert worker._process.wait(timeout=100) == 0
    worker.stop()
    assert capfd.readouterr().err == ""
    assert signal.SIGINT not in signal.pthread_sigmask(signal.SIG_BLOCK, [])
