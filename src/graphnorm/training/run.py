"""Train any number of trials over one dataset: packed into fleets, in this process or in workers."""

from __future__ import annotations

import os
from collections.abc import Callable, Sequence

import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.layers import BUILT_IN
from graphnorm.training.fleet import Fleet, OnEpoch, default_device
from graphnorm.training.packing import plan_fleets
from graphnorm.training.trial import Outcome, Split, Trial
from graphnorm.training.workers import Job, train_in_workers

__all__ = ["OnOutcomes", "available_cores", "train"]

OnOutcomes = Callable[[list[Outcome]], None]


def train(
    graphs: PackedGraphs,
    trials: Sequence[Trial],
    splits: Sequence[Split],
    *,
    device: torch.device | str | None = None,
    on_epoch: OnEpoch | None = None,
    on_outcomes: OnOutcomes | None = None,
    keep_state: bool = False,
    workers: int | None = None,
) -> list[Outcome]:
    """Train all trials, of any mixture of shapes, and give their outcomes in the order of the trials.

    On a GPU fleets run one after another in this process, as large as the memory allows; one that runs out of memory
    is halved. On a CPU they run in worker processes with one thread each, which uses the cores better than threads
    inside one small model do.

    Args:
        graphs: the dataset.
        trials: what to train.
        splits: each trial's training, validation and test graphs.
        device: where to train; a GPU where there is one.
        on_epoch: called after every epoch of every fleet. What it raises ends the training and passes through.
        on_outcomes: called with the outcomes of a fleet when it is done, likewise.
        keep_state: whether outcomes hold the trained models' ``state_dict``.
        workers: processes on a CPU; the number of cores if left out, 1 for none but this one.
    """
    chosen = default_device(device)
    if len(splits) != len(trials):
        raise ValueError(f"{len(trials)} trials need as many splits, got {len(splits)}")
    outcomes: dict[int, Outcome] = {}

    def done(fleet: list[int], found: list[Outcome]) -> None:
        outcomes.update(zip(fleet, found, strict=True))
        if on_outcomes is not None:
            on_outcomes(found)

    crew = _workers(len(trials), chosen, workers)
    abroad, here = _divide(trials, crew)
    if abroad:
        fleets = [
            [abroad[k] for k in fleet] for fleet in plan_fleets(graphs, [trials[k] for k in abroad], chosen, crew)
        ]
        jobs = [Job([trials[k] for k in fleet], [splits[k] for k in fleet], keep_state) for fleet in fleets]
        train_in_workers(graphs.to("cpu"), jobs, crew, on_epoch, lambda job, found: done(fleets[job], found))
    for fleet in plan_fleets(graphs, [trials[k] for k in here], chosen):
        members = [here[k] for k in fleet]
        parts = [trials[k] for k in members], [splits[k] for k in members]
        done(members, _train_one(graphs, *parts, chosen, on_epoch, keep_state))
    return [outcomes[k] for k in range(len(trials))]


def _workers(trials: int, device: torch.device, asked: int | None) -> int:
    if asked is not None and asked < 1:
        raise ValueError(f"workers is {asked}; at least one process does the work")
    if device.type != "cpu":
        return 1
    return min(trials, available_cores() if asked is None else asked)


def available_cores() -> int:
    """Of this machine, those that this process may use."""
    return len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1


def _divide(trials: Sequence[Trial], workers: int) -> tuple[list[int], list[int]]:
    """Trials for the workers, and those for this process: all of them without workers, else those whose normalization
    was registered here and is unknown to workers."""
    abroad = [k for k, trial in enumerate(trials) if workers > 1 and trial.norm in BUILT_IN]
    return abroad, sorted(set(range(len(trials))) - set(abroad))


def _train_one(
    graphs: PackedGraphs,
    trials: Sequence[Trial],
    splits: Sequence[Split],
    device: torch.device,
    on_epoch: OnEpoch | None,
    keep_state: bool,
) -> list[Outcome]:
    """A fleet, in halves where it does not fit the device's memory after all."""
    try:
        fleet = Fleet(graphs, trials, splits, device=device)
        fleet.advance(on_epoch=on_epoch)
        return fleet.outcomes(keep_state)
    except torch.OutOfMemoryError:
        if len(trials) == 1:
            raise
    torch.cuda.empty_cache()
    half = len(trials) // 2
    return [
        outcome
        for part in (slice(half), slice(half, None))
        for outcome in _train_one(graphs, trials[part], splits[part], device, on_epoch, keep_state)
    ]
