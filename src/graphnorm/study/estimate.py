"""How long a plan takes: a few epochs of each kind of fleet, and the rest by proportion."""

from __future__ import annotations

import time
from collections.abc import Sequence
from typing import NamedTuple

import torch

from graphnorm.data import PackedGraphs
from graphnorm.study.protocol import make_splits
from graphnorm.training import Fleet, Trial

__all__ = ["Estimate", "estimate_seconds"]

CALIBRATION_SECONDS = 20.0


class Estimate(NamedTuple):
    """How long the fleets take one after another."""

    seconds: float
    measured_shapes: int
    """For the other shapes the average of these was taken."""
    shapes: int


def estimate_seconds(
    graphs: PackedGraphs,
    fleets: Sequence[Sequence[Trial]],
    *,
    device: str | None = None,
    threads: int | None = None,
    limit: float = CALIBRATION_SECONDS,
) -> Estimate:
    """Time one epoch of one fleet of each shape, after another to warm up, for ``limit`` seconds at most.

    threads: of a worker on a CPU; as many as now, if left out.
    """
    examples: dict[tuple[object, ...], Sequence[Trial]] = {}
    for fleet in fleets:
        examples.setdefault(fleet[0].shape, fleet)
    measured: dict[tuple[object, ...], float] = {}
    before = torch.get_num_threads()
    torch.set_num_threads(threads or before)
    try:
        stop = time.monotonic() + limit
        for shape, trials in examples.items():
            if not measured or time.monotonic() < stop:
                measured[shape] = _seconds_per_step(graphs, trials, device)
    finally:
        torch.set_num_threads(before)
    average = sum(measured.values()) / len(measured)
    seconds = sum(measured.get(f[0].shape, average) * _steps(graphs, f) for f in fleets)
    return Estimate(seconds, len(measured), len(examples))


def _seconds_per_step(graphs: PackedGraphs, trials: Sequence[Trial], device: str | None) -> float:
    """Of one member."""
    fleet = Fleet(graphs, trials, make_splits(graphs, trials), device=device)
    fleet.advance(1)
    began = time.perf_counter()
    fleet.advance(1)  # ends with a read from the device
    return (time.perf_counter() - began) * trials[0].epochs / _steps(graphs, trials)


def _steps(graphs: PackedGraphs, trials: Sequence[Trial]) -> float:
    """Of all members over all epochs, about."""
    return len(trials) * trials[0].epochs * -(-graphs.num_graphs // trials[0].batch_size)
