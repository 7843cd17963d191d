"""A search from question to answer: plan, train what is missing, select."""

from __future__ import annotations

import os
import signal
import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

import torch

from graphnorm.data import PackedGraphs
from graphnorm.errors import StudyError
from graphnorm.study.callbacks import Callback
from graphnorm.study.driver import CHECKPOINT_SECONDS, Driver
from graphnorm.study.engines import Engine
from graphnorm.study.halving import Rung, make_ladder
from graphnorm.study.lock import study_lock
from graphnorm.study.plan import Plan, group_candidates
from graphnorm.study.results import NormResult, study_results
from graphnorm.study.store import Store, Study
from graphnorm.training import Trial, plan_fleets
from graphnorm.training.packing import MOST_ON_GPU

__all__ = ["SearchResult", "adapt", "pack", "run_plan"]

NEARLY = 1.05
"""Times up to so many times the shortest count as equal."""


@dataclass(frozen=True)
class SearchResult:
    """What a search came to."""

    study: Study
    norms: tuple[NormResult, ...]
    stopped_by: int | None = None
    """The signal that ended it before its time."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        return {
            "study": self.study.name,
            "spec": dict(self.study.spec),
            "trials": self.study.trials,
            "counts": dict(self.study.counts),
            "seconds": self.study.seconds,
            "norms": [norm.to_dict() for norm in self.norms],
        }


def pack(graphs: PackedGraphs, trials: Sequence[Trial], device: str | None, slots: int) -> list[list[int]]:
    """Pack trials into fleets, by shape and memory, enough of them for every slot where that can be.

    For GPUs of other machines the memory is not known: fleets are as large as they get, and one that does not fit is
    split when that shows.
    """
    share = _fleets_of_a_shape(len({trial.shape for trial in trials}), slots)
    if device == "cuda" and not torch.cuda.is_available():
        return _pack_by_shape(trials, share)
    return plan_fleets(graphs, trials, device, share=share)


def _fleets_of_a_shape(shapes: int, slots: int) -> int:
    """Into how many fleets the trials of a shape are cut, so that slots are idle neither now nor in the last round.

    The time is that of the rounds, each as long as a fleet, which is the shorter the more there are. Fewer fleets are
    preferred where that makes little difference: members of a small one cost more.

    >>> [_fleets_of_a_shape(10, slots) for slots in (1, 8, 10, 64)]
    [1, 4, 1, 6]
    """
    shapes = max(shapes, 1)
    times = {cuts: -(-shapes * cuts // slots) / cuts for cuts in range(1, max(4, -(-2 * slots // shapes)) + 1)}
    return next(cuts for cuts, time in times.items() if time <= NEARLY * min(times.values()))


def _pack_by_shape(trials: Sequence[Trial], share: int) -> list[list[int]]:
    groups: dict[tuple[Any, ...], list[int]] = {}
    for place, trial in enumerate(trials):
        groups.setdefault(trial.shape, []).append(place)
    fleets = []
    for places in groups.values():
        count = min(len(places), max(share, -(-len(places) // MOST_ON_GPU)))
        fleets += [places[k * len(places) // count : (k + 1) * len(places) // count] for k in range(count)]
    return fleets


def adapt(plan: Plan, full_trainings: float) -> Plan:
    """The plan as a search by successive halving that costs about so many full trainings.

    Where the budget is too small for all configurations to begin, evenly spread ones do.
    """
    epochs = {trial.epochs for trial in plan.trials}
    if len(epochs) != 1:
        raise StudyError("trials of different length cannot be halved", remedy="give one number of epochs")
    (length,) = epochs
    groups = group_candidates(plan.trials)
    configurations = {len(group) for group in groups.values()}.pop()
    members = len(plan.trials) / configurations  # normalizations, folds and seeds
    ladder = make_ladder(configurations, length, full_trainings * length / members)
    chosen = {round(k * (configurations - 1) / max(ladder.configurations - 1, 1)) for k in range(ladder.configurations)}
    kept = sorted(place for group in groups.values() for k in chosen for place in group[k])
    spec = plan.spec | {"rungs": [list(rung) for rung in ladder.rungs], "configurations": ladder.configurations}
    return replace(plan, spec=spec, trials=tuple(plan.trials[place] for place in kept))


def run_plan(
    store_path: str | os.PathLike[str],
    plan: Plan,
    graphs: PackedGraphs,
    make_engine: Callable[[int], Engine],
    *,
    fleets: Sequence[Sequence[int]],
    callbacks: Sequence[Callback] = (),
    wait: bool = False,
    retry_failed: bool = False,
    checkpoint_seconds: float = CHECKPOINT_SECONDS,
) -> SearchResult:
    """Train what a store lacks of a plan, and select from all of it.

    The first Ctrl-C or SIGTERM lets fleets finish their epoch and keeps checkpoints; a second Ctrl-C ends at once.

    make_engine: given the number of fleets that are left to train.
    """
    with Store(store_path) as store:
        study = store.add_study(plan.name, plan.spec, plan.trials, fleets)
        with study_lock(store, study, wait=wait):
            study = store.study(plan.name)  # while this process waited, another may have done some of it
            stopped_by = None
            if study.missing or (retry_failed and study.counts.get("failed")):
                engine = make_engine(len(store.fleets(study)))
                try:
                    rungs = [Rung(*rung) for rung in study.spec.get("rungs", ())]
                    driver = Driver(
                        store,
                        study,
                        graphs,
                        engine,
                        rungs=rungs,
                        callbacks=callbacks,
                        retry_failed=retry_failed,
                        checkpoint_seconds=checkpoint_seconds,
                    )
                    with _stopping_on_signals(driver.stop) as received:
                        driver.run()
                    stopped_by = received[0] if received else None
                finally:
                    engine.close()
        study = store.study(plan.name)
        return SearchResult(study, tuple(study_results(store, study)), stopped_by)


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``stop`` at the first SIGINT or SIGTERM, and interrupt at the second; give the list of those received."""
    received: list[int] = []
    if threading.current_thread() is not threading.main_thread():
        yield received  # signals go to the main thread, which decides
        return

    def handle(number: int, frame: FrameType | None) -> None:
        received.append(number)
        if len(received) > 1:
            raise KeyboardInterrupt
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


def default_store(folder: str | os.PathLike[str]) -> Path:
    """Where results go when no store is named."""
    return Path(folder) / "graphnorm.db"
