"""How long trials will take, from an epoch of each shape that is trained and timed."""

from __future__ import annotations

import time
from collections.abc import Container, Sequence
from typing import NamedTuple

import torch

from graphnorm.data import PackedGraphs
from graphnorm.models import find_model
from graphnorm.settings import Running
from graphnorm.study.fleets import device_of, group_trials, slots
from graphnorm.study.folds import make_splits
from graphnorm.study.halving import Ladder
from graphnorm.study.plan import Plan
from graphnorm.study.worker import one_thread
from graphnorm.training import Fleet, Trial

__all__ = ["Forecast", "estimate_seconds", "forecast"]

CALIBRATION_SECONDS = 20.0


class Forecast(NamedTuple):
    """How trials would be trained."""

    fleets: list[list[Trial]]
    at_once: int
    """Number of fleets trained at a time."""
    seconds: float | None
    """Estimated time; None for a GPU of another machine."""


def forecast(graphs: PackedGraphs, plan: Plan, running: Running, done: Container[str] = ()) -> Forecast:
    """Group the trials whose keys are not ``done`` into fleets, and estimate the time by training a few epochs."""
    trials = plan.trials
    left = [[trials[k] for k in fleet if trials[k].key not in done] for fleet in group_trials(graphs, trials, running)]
    fleets = [fleet for fleet in left if fleet]
    device, at_once = device_of(running), min(slots(running), max(len(fleets), 1))
    if device == "cuda" and not torch.cuda.is_available():
        return Forecast(fleets, at_once, None)
    seconds = estimate_seconds(graphs, fleets, device=device) / at_once
    if plan.rungs:
        epochs, number = trials[0].epochs, plan.spec["configurations"]
        seconds *= Ladder(number, plan.rungs).cost(epochs) / (number * epochs)
    return Forecast(fleets, at_once, seconds)


def estimate_seconds(
    graphs: PackedGraphs,
    fleets: Sequence[Sequence[Trial]],
    *,
    device: str | None = None,
) -> float:
    """Estimate the time of fleets one after another, from one timed epoch of each shape after a warm-up epoch.

    After :data:`CALIBRATION_SECONDS`, shapes that are not measured yet get the average of the others. Kernels are not
    counted.
    """
    fleets = [fleet for fleet in fleets if find_model(fleet[0].model).kernel is None]
    examples: dict[tuple[object, ...], Sequence[Trial]] = {}
    for fleet in fleets:
        examples.setdefault(fleet[0].shape, fleet)
    measured: dict[tuple[object, ...], float] = {}
    stop = time.monotonic() + CALIBRATION_SECONDS
    with one_thread():
        for shape, trials in examples.items():
            if not measured or time.monotonic() < stop:
                measured[shape] = _seconds_per_step(graphs, trials, device)
    average = sum(measured.values()) / max(len(measured), 1)
    return sum(measured.get(fleet[0].shape, average) * _steps(graphs, fleet) for fleet in fleets)


def _seconds_per_step(graphs: PackedGraphs, trials: Sequence[Trial], device: str | None) -> float:
    fleet = Fleet(graphs, trials, make_splits(graphs, trials), device=device)
    fleet.advance(1)
    began = time.perf_counter()
    fleet.advance(1)  # waits for the device
    return (time.perf_counter() - began) * trials[0].epochs / _steps(graphs, trials)


def _steps(graphs: PackedGraphs, trials: Sequence[Trial]) -> float:
    """Approximate number of steps of all members over all epochs."""
    return len(trials) * trials[0].epochs * -(-graphs.num_graphs // trials[0].batch_size)
