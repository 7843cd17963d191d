"""The runner: trains the trials of a plan that a store lacks, and survives failures and kills.

The driver hands the fleets of a study to the workers of an engine and saves their answers. It alone writes the store
and the checkpoints. When a worker fails, its fleet restarts from the last checkpoint. A fleet that fails three times at
the same checkpoint is recorded as failed, and the study goes on. When the driver is killed, the next one finds the
finished trials in the store, and next to it the checkpoints of the others.
"""

from __future__ import annotations

import math
import signal
import threading
import time
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from types import FrameType
from typing import Any

from graphnorm.data import PackedGraphs
from graphnorm.errors import StudyError
from graphnorm.layers import try_norm
from graphnorm.settings import Running, options_of
from graphnorm.study.checkpoints import Checkpoint, CheckpointFolder, unpack_checkpoint
from graphnorm.study.fleets import group_trials, make_fleet
from graphnorm.study.folds import make_splits
from graphnorm.study.grouping import by_key
from graphnorm.study.halving import losers
from graphnorm.study.local_engine import local_engine
from graphnorm.study.plan import Plan
from graphnorm.study.progress import Callback, Callbacks, TensorBoard
from graphnorm.study.ray_engine import RayEngine
from graphnorm.study.reading import read
from graphnorm.study.result import Result
from graphnorm.study.store import FINAL, Store, Study, work_folder
from graphnorm.study.worker import (
    Advance,
    Answer,
    Begin,
    Engine,
    Failure,
    Question,
    Step,
    pack_code,
)
from graphnorm.training import Outcome, Progress, Split, Trial, default_device
from graphnorm.training.own_model_check import try_model

__all__ = [
    "Driver",
    "Stopped",
    "make_running",
    "run",
    "train_missing",
    "try_code",
]

ATTEMPTS = 3
STEP_SECONDS = 1.0
"""Time between two answers of a worker."""
SAME_SIGNAL_SECONDS = 0.5


class Stopped(KeyboardInterrupt):
    """Ctrl-C or SIGTERM stopped the study; finished trials are in the store."""

    def __init__(self, result: Result, number: int) -> None:
        self.result, self.signal = result, number
        super().__init__("stopped; the same command goes on from here")


def run(
    plan: Plan,
    data: Any,
    store: Store,
    running: Running | None = None,
    *,
    callbacks: Sequence[Callback] = (),
    keep_state: bool = False,
) -> Result:
    """Train the trials of a plan that the store lacks, and return the result of the whole plan.

    The first Ctrl-C or SIGTERM lets fleets finish their epoch and write checkpoints; a second one ends at once.

    data: the graphs; for a plan with its own ``make_fleet``, the data that it takes.
    keep_state: whether the outcomes passed to callbacks hold the trained weights.

    Raises:
        Stopped: at a signal, with the result so far.
    """
    running = running or Running()
    try_code(plan, data, running)
    return train_missing(plan, data, store, running, callbacks=callbacks, keep_state=keep_state)


def train_missing(
    plan: Plan,
    data: Any,
    store: Store,
    running: Running,
    *,
    callbacks: Sequence[Callback] = (),
    keep_state: bool = False,
) -> Result:
    """:func:`run`, for a caller that has tried the user's code before it opened the store."""
    if running.tensorboard:
        callbacks = [*callbacks, TensorBoard(running.tensorboard)]
    study = store.add(plan, group_trials(data, plan.trials, running))
    stopped_by = None
    with store.lock(study, wait=running.wait):
        driver = Driver(store, study, plan, data, running, callbacks=callbacks, keep_state=keep_state)
        if driver.unfinished_fleets:
            make_engine = RayEngine if running.engine == "ray" else local_engine
            engine = make_engine(data, running, driver.unfinished_fleets, pack_code(plan.trials))
            try:
                with _stopping_on_signals(driver.stop) as received:
                    finished = driver.run(engine)
                stopped_by = received[0] if received and not finished else None
            finally:
                engine.close()
    result = read(store, plan)
    if stopped_by is not None:
        raise Stopped(result, stopped_by)
    return result


def make_running(**given: Any) -> Running:
    """Check the options of running; refuse combinations and devices that cannot work."""
    options = options_of(Running)
    running = Running(**{name: options[name].check(name, value) for name, value in given.items() if value is not None})
    if running.engine == "ray":
        return running
    for name in ("address", "cpus_per_worker", "gpus_per_worker"):
        if getattr(running, name) is not None:
            option = "--" + name.replace("_", "-")
            raise StudyError(f"{option} does not apply to the engine local", remedy="add --engine ray")
    default_device(running.device)
    return running


def try_code(plan: Plan, data: Any, running: Running) -> None:
    """Call the user's own normalizations and model once, and refuse those that fail."""
    device = default_device(running.device)
    for trial in {(trial.norm, trial.model): trial for trial in plan.trials}.values():
        try_norm(trial.norm, trial.hidden, device)
        try_model(trial, data, device)


@contextmanager
def _stopping_on_signals(stop: Callable[[], None]) -> Iterator[list[int]]:
    """Call ``stop`` at the first SIGINT or SIGTERM, and interrupt at a later one; yield the list of signals received.

    The program ``timeout`` sends its signal twice at once, to the process and to its group: that counts as one.
    """
    received: list[int] = []
    first = math.inf
    if threading.current_thread() is not threading.main_thread():
        yield received  # Python delivers signals to the main thread only
        return

    def handle(number: int, frame: FrameType | None) -> None:
        nonlocal first
        received.append(number)
        first = min(first, time.monotonic())
        if time.monotonic() - first > SAME_SIGNAL_SECONDS:
            raise KeyboardInterrupt
        stop()

    before = {number: signal.signal(number, handle) for number in (signal.SIGINT, signal.SIGTERM)}
    try:
        yield received
    finally:
        for number, handler in before.items():
            signal.signal(number, handler)


@dataclass
class _Fleet:
    """The driver's view of a fleet."""

    number: int
    trials: list[Trial]
    wanted: dict[str, Trial]
    """The trials that are still to be trained, by key."""
    epoch: int = 0
    """The epoch of the last checkpoint."""
    failures: int = 0
    """Failures since that checkpoint."""
    failed_after: int = -1
    """The epoch of the checkpoint from which the last failed attempt started."""
    begun: bool = False
    saved_at: float = 0.0

    @property
    def norm(self) -> str:
        return self.trials[0].norm

    @property
    def epochs(self) -> int:
        return self.trials[0].epochs


class Driver:
    """Runs one study to its end.

    Args:
        store: the store that holds the study.
        study: the study of the plan.
        plan: the trials.
        data: the graphs.
        running: its options ``checkpoint`` and ``retry_failed``.
        callbacks: informed of the progress.
        keep_state: whether outcomes hold the trained weights.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        plan: Plan,
        data: Any,
        running: Running | None = None,
        *,
        callbacks: Sequence[Callback] = (),
        keep_state: bool = False,
    ) -> None:
        self._store, self._study, self._plan, self._data = store, study, plan, data
        self._running = running or Running()
        self._callbacks = Callbacks(callbacks)
        self._keep_state = keep_state
        self._checkpoints = CheckpointFolder(work_folder(store.path) / str(study.id))
        self._rungs = plan.rungs
        self._fleets = self._load_fleets()
        self._decided = self._load_decisions()
        self._splits = self._load_splits()
        self._queue: deque[_Fleet] = deque()
        """Fleets that wait for a slot; those that wait for a decision are not here."""
        self._asked: dict[int, _Fleet] = {}
        """By slot, the fleet that its worker trains."""
        self._stopping = False
        self._session = -1
        self._engine: Engine

    @property
    def unfinished_fleets(self) -> int:
        """Number of fleets with trials to train."""
        return sum(bool(fleet.wanted) for fleet in self._fleets)

    def stop(self) -> None:
        """Let running fleets finish their epoch, write a checkpoint of each, and return from :meth:`run`."""
        if not self._stopping:
            self._stopping = True
            self._callbacks.tell(Callback.on_stop)

    def run(self, engine: Engine) -> bool:
        """Train the missing trials; return whether all of them are trained."""
        self._engine = engine
        missing = [trial for fleet in self._fleets for trial in fleet.wanted.values()]
        self._session = self._store.begin_session(self._study, engine.name)
        self._callbacks.tell(Callback.on_begin, self._study, self._plan.trials, missing)
        finished = False
        try:
            self._queue.extend(fleet for fleet in _norms_together(self._fleets) if self._has_work(fleet))
            for norm in dict.fromkeys(fleet.norm for fleet in self._fleets):
                self._decide_rung(norm)
            while self._asked or (self._queue and not self._stopping):
                self._start_fleets()
                for slot, answer in engine.answers(timeout=0.5):
                    self._receive(slot, answer)
            finished = not self.unfinished_fleets
            if finished:
                self._checkpoints.clear()
            self._store.end_session(self._session, "finished" if finished else "interrupted")
        finally:
            self._callbacks.tell(Callback.on_end, finished)
        return finished

    # Start

    def _load_fleets(self) -> list[_Fleet]:
        statuses = self._store.statuses(self._study)

        def is_missing(trial: Trial) -> bool:
            status = statuses.get(trial.key)
            if status in FINAL:  # a probe needs a training of its own
                return self._plan.probe is not None and not self._store.seen(trial)
            return status is None or (status == "failed" and self._running.retry_failed)

        return [
            _Fleet(number, trials, {trial.key: trial for trial in trials if is_missing(trial)})
            for number, trials in self._store.fleets(self._study).items()
        ]

    def _load_decisions(self) -> dict[str, int]:
        """The epoch of the last rung that was decided for each normalization; 0 before the first."""
        dropped = self._store.dropped_epochs(self._study)
        decided: dict[str, int] = {}
        for fleet in self._fleets:
            last = max((dropped.get(trial.key, 0) for trial in fleet.trials), default=0)
            decided[fleet.norm] = max(decided.get(fleet.norm, 0), last)
        return decided

    def _load_splits(self) -> dict[tuple[str, int, int], Split | None]:
        trials = {(t.protocol, t.folds, t.fold): t for fleet in self._fleets for t in fleet.trials if fleet.wanted}
        if not isinstance(self._data, PackedGraphs):
            return dict.fromkeys(trials)
        return dict(zip(trials, make_splits(self._data, list(trials.values())), strict=True))

    def _has_work(self, fleet: _Fleet) -> bool:
        """Whether the fleet has epochs to train before the next rung."""
        if not fleet.wanted:
            return False
        if self._rungs and (found := self._open_checkpoint(fleet)) is not None:
            fleet.epoch = found.epoch
        return fleet.epoch < self._target(fleet)

    def _open_checkpoint(self, fleet: _Fleet) -> Checkpoint | None:
        data = self._checkpoints.read(fleet.number)
        found = None if data is None else unpack_checkpoint(data)
        return found if found is not None and fleet.wanted.keys() <= set(found.keys) else None

    def _target(self, fleet: _Fleet) -> int:
        """The epoch of the next rung for the fleet's normalization, or the end of the training."""
        return next((epoch for epoch, _ in self._rungs if epoch > self._decided[fleet.norm]), fleet.epochs)

    # Questions and answers

    def _start_fleets(self) -> None:
        """Give the next fleets to idle slots."""
        for slot in range(self._engine.slots):
            if slot not in self._asked and self._queue and not self._stopping:
                fleet = self._queue.popleft()
                fleet.begun, fleet.saved_at = False, time.monotonic()
                splits: Any = tuple(self._splits[t.protocol, t.folds, t.fold] for t in fleet.trials)
                begin = Begin(
                    tuple(fleet.trials),
                    splits,
                    frozenset(fleet.wanted),
                    self._plan.make_fleet or make_fleet,
                    self._checkpoints.read(fleet.number),
                    self._plan.probe,
                    self._keep_state,
                )
                self._ask(slot, fleet, begin)

    def _ask(self, slot: int, fleet: _Fleet, question: Question) -> None:
        self._asked[slot] = fleet
        self._engine.ask(slot, question)

    def _receive(self, slot: int, answer: Answer) -> None:
        """Save what an answer holds, and let its fleet go on unless it has reached its end or a rung."""
        fleet = self._asked.pop(slot)
        if isinstance(answer, Failure):
            self._handle_failure(fleet, answer)
            return
        self._report_progress(fleet, answer)
        if answer.outcomes is not None:
            self._store.save(self._session, answer.outcomes)
            self._finish(fleet)
            self._callbacks.tell(Callback.on_outcomes, answer.outcomes)
            return
        if answer.checkpoint is not None:
            self._checkpoints.write(fleet.number, answer.checkpoint)
            fleet.epoch, fleet.saved_at = answer.epoch, time.monotonic()
        target = self._target(fleet)
        if answer.epoch >= target:
            self._decide_rung(fleet.norm)
        elif not self._stopping:
            due = time.monotonic() - fleet.saved_at + STEP_SECONDS >= self._running.checkpoint
            self._ask(slot, fleet, Advance(STEP_SECONDS, target, checkpoint=due))
        elif answer.checkpoint is None and answer.metrics:  # it trained since its last checkpoint
            self._ask(slot, fleet, Advance(0.0, target, checkpoint=True))

    def _report_progress(self, fleet: _Fleet, step: Step) -> None:
        trials = tuple(fleet.wanted[key] for key in step.keys)
        if not fleet.begun:
            fleet.begun, fleet.epoch = True, step.epoch
            self._callbacks.tell(Callback.on_fleet, trials, step.epoch)
        trained = len(next(iter(step.metrics.values()), ()))
        for place in range(trained):
            row = {name: values[place] for name, values in step.metrics.items()}
            progress = Progress(trials, step.epoch - trained + place + 1, row, step.seconds)
            self._callbacks.tell(Callback.on_epoch, progress)

    def _finish(self, fleet: _Fleet) -> None:
        fleet.wanted.clear()
        self._checkpoints.remove(fleet.number)

    # Failures

    def _handle_failure(self, fleet: _Fleet, failure: Failure) -> None:
        trials = list(fleet.wanted.values())
        if failure.out_of_memory and len(trials) > 1:
            self._split(fleet)
            self._callbacks.tell(Callback.on_failure, trials, failure.error, False)
            return
        fleet.failures = 1 if fleet.epoch > fleet.failed_after else fleet.failures + 1
        fleet.failed_after = fleet.epoch
        final = fleet.failures >= ATTEMPTS
        if final:
            self._store.save_failed(self._session, trials, f"{failure.error}\n{failure.details}".strip())
            self._finish(fleet)
        elif not self._stopping:
            self._queue.append(fleet)
        self._callbacks.tell(Callback.on_failure, trials, failure.error, final)
        self._decide_rung(fleet.norm)

    def _split(self, fleet: _Fleet) -> None:
        """Replace a fleet that is too large by two of half its size."""
        self._checkpoints.remove(fleet.number)
        wanted = list(fleet.wanted.values())
        for half in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
            number = self._store.move_to_fleet(self._study, half)
            smaller = _Fleet(number, half, {trial.key: trial for trial in half})
            self._fleets.append(smaller)
            self._queue.append(smaller)
        fleet.wanted.clear()

    # Decisions of an adaptive search

    def _decide_rung(self, norm: str) -> None:
        """Once every fleet of a normalization waits at a rung, drop its weaker configurations."""
        busy = {fleet.number for fleet in (*self._queue, *self._asked.values())}
        fleets = [fleet for fleet in self._fleets if fleet.norm == norm and fleet.wanted]
        if not self._rungs or not fleets or any(fleet.number in busy for fleet in fleets) or self._stopping:
            return
        rung = next(rung for rung in self._rungs if rung.epoch == self._target(fleets[0]))
        outcomes: dict[str, Outcome] = {}
        for fleet in fleets:
            found = self._open_checkpoint(fleet)
            assert found is not None, "a fleet that waits has a checkpoint"
            parts = dict(zip(found.keys, found.outcomes, strict=True))
            outcomes |= {key: Outcome(trial=trial, **parts[key]) for key, trial in fleet.wanted.items()}
        valid = {key: outcome.curves["valid"] for key, outcome in outcomes.items()}
        lost = losers([outcome.trial for outcome in outcomes.values()], valid, rung.keep)
        self._store.save_dropped(self._study, self._session, [outcomes[trial.key] for trial in lost], rung.epoch)
        self._decided[norm] = rung.epoch
        self._callbacks.tell(Callback.on_dropped, lost, rung.epoch)
        for fleet in fleets:
            fleet.wanted = {key: t for key, t in fleet.wanted.items() if t not in lost}
            if fleet.wanted:
                self._queue.append(fleet)
            else:
                self._finish(fleet)


def _norms_together(fleets: Sequence[_Fleet]) -> list[_Fleet]:
    """Train all normalizations of a setting one after another, so that a stopped study can compare them."""
    groups = by_key(fleets, lambda fleet: replace(fleet.trials[0], norm="").shape)
    return [fleet for group in groups.values() for fleet in group]
