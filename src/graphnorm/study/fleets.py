"""Where fleets train, and which trials each has: those of equal shape together, as many as memory allows."""

from __future__ import annotations

import itertools
import os
from collections.abc import Sequence
from typing import Any

import torch

from graphnorm.data import PackedGraphs
from graphnorm.models import find_model
from graphnorm.models.build import bytes_per_member
from graphnorm.settings import Running
from graphnorm.study.grouping import by_key
from graphnorm.training import Fleet, KernelFleet, Split, Trial, default_device

__all__ = ["AT_ONCE_ON_GPU", "choose_devices", "device_of", "group_trials", "make_fleet", "members_that_fit", "slots"]

MOST_ON_CPU = 10
"""Members of a fleet on a CPU: more of them save no overhead, and their arrays do not fit into the caches."""
MOST_ON_GPU = 600
AT_ONCE_ON_GPU = 5
"""Fleets that are trained at a time on a GPU, and share its memory."""
MEMORY_SHARE = 0.7
"""Share of the free memory that a fleet may use; the estimate of its size is rough."""
BYTES_OF_A_TARGET = 48
"""Bytes that the evaluation of one member needs for each graph and target."""
NEARLY = 1.05
"""Times that are longer than the shortest by less than this factor count as equal."""


def make_fleet(
    graphs: PackedGraphs, trials: Sequence[Trial], splits: Sequence[Split], device: torch.device
) -> Fleet | KernelFleet:
    if find_model(trials[0].model).kernel is not None:
        return KernelFleet(graphs, trials, splits)
    return Fleet(graphs, trials, splits, device=device)


def choose_devices(device: str | None, workers: int | None) -> list[str]:
    """The device of each worker: one worker on every GPU; without GPUs, one on every CPU core."""
    if device is None:
        device = "cuda" if torch.cuda.is_available() else "cpu"
    if device == "cpu":
        cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
        return ["cpu"] * (workers or cores)
    gpus = [f"cuda:{k}" for k in range(torch.cuda.device_count())] if device == "cuda" else [device]
    return list(itertools.islice(itertools.cycle(gpus or [device]), workers or max(len(gpus), 1)))


def slots(running: Running) -> int:
    """Number of fleets trained at a time, as far as it is known before the engine starts."""
    if running.engine == "ray":
        return int(running.workers or 1)
    return len(choose_devices(running.device, running.workers))


def device_of(running: Running) -> str | None:
    """The device that fleets train on; of Ray, the kind of device."""
    if running.engine == "ray":
        return "cuda" if running.gpus_per_worker else "cpu"
    return running.device


def group_trials(data: Any, trials: Sequence[Trial], running: Running) -> list[list[int]]:
    """Group trials of equal shape into fleets, as large as memory allows but enough of them to fill all slots.

    Returns the places of the trials of each fleet. For a GPU of another machine, whose memory is unknown, fleets have
    the largest size; the runner splits those that do not fit. Trials on other data than graphs are trained alone.
    """
    if not isinstance(data, PackedGraphs):
        return [[place] for place in range(len(trials))]
    groups = by_key(range(len(trials)), lambda place: trials[place].shape)
    share = _fleets_of_a_shape(len(groups), slots(running))
    fleets = []
    for places in groups.values():
        most = members_that_fit(data, trials[places[0]], device_of(running))
        count = min(len(places), max(-(-len(places) // most), share))
        fleets += [places[k * len(places) // count : (k + 1) * len(places) // count] for k in range(count)]
    return fleets


def members_that_fit(graphs: PackedGraphs, trial: Trial, device: str | None) -> int:
    """The largest number of members of a trial's shape in a fleet."""
    if device == "cuda" and not torch.cuda.is_available():
        return MOST_ON_GPU
    chosen = default_device(device)
    if chosen.type == "cuda":
        free, most = torch.cuda.mem_get_info(chosen)[0] // AT_ONCE_ON_GPU, MOST_ON_GPU
    else:
        free, most = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_AVPHYS_PAGES"), MOST_ON_CPU
    needed = bytes_per_member(trial, graphs)
    needed += BYTES_OF_A_TARGET * graphs.num_graphs * len(graphs.target_names)
    return max(1, min(most, int(MEMORY_SHARE * free) // needed))


def _fleets_of_a_shape(shapes: int, slots: int) -> int:
    """The number of fleets for the trials of a shape, so that no slot is idle for long.

    The total time is the number of rounds times that of a fleet; a fleet of fewer members is faster. Among nearly equal
    times, fewer fleets are preferred, because the members of a small fleet cost more.

    >>> [_fleets_of_a_shape(10, slots) for slots in (1, 8, 10, 64)]
    [1, 4, 1, 6]
    """
    shapes = max(shapes, 1)
    times = {cuts: -(-shapes * cuts // slots) / cuts for cuts in range(1, max(4, -(-2 * slots // shapes)) + 1)}
    return next(cuts for cuts, time in times.items() if time <= NEARLY * min(times.values()))
