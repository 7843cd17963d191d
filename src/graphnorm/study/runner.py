"""The runner: trains what a store lacks of a plan, whatever happens to workers or to itself.

The driver hands a study's fleets to an engine's workers, and keeps what comes back. It alone writes the store and the
checkpoints. Whatever happens to a worker, its fleet is begun again from the last checkpoint; a fleet that fails three
times at one place is recorded as failed and the study goes on. Whatever happens to the driver, the next one finds in
the store what is finished, and beside it the checkpoints of what was under way.
"""

from __future__ import annotations

import os
import signal
import threading
import time
import uuid
from collections import deque
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, replace
from pathlib import Path
from types import FrameType
from typing import Any

from graphnorm.data import PackedGraphs
from graphnorm.errors import StoreError, StudyError
from graphnorm.layers import try_norm
from graphnorm.settings import Running, options_of
from graphnorm.study.halving import losers
from graphnorm.study.plan import Plan, pack
from graphnorm.study.progress import Callback, Callbacks, TensorBoard
from graphnorm.study.protocol import make_splits
from graphnorm.study.result import Result, read
from graphnorm.study.store import FINAL, Store, Study
from graphnorm.study.worker import (
    Advance,
    Answer,
    Begin,
    Checkpoint,
    Engine,
    Failure,
    Step,
    pack_custom_norms,
    unpack_checkpoint,
)
from graphnorm.training import Outcome, Progress, Split, Trial, default_device

__all__ = [
    "CHECKPOINT_SECONDS",
    "CheckpointFolder",
    "Driver",
    "Stopped",
    "make_running",
    "packing_device",
    "run",
    "slots",
    "try_norms",
]

ATTEMPTS = 3
STEP_SECONDS = 1.0
CHECKPOINT_SECONDS = Running.checkpoint
"""A kill costs at most a minute of work, or an epoch where that takes longer."""


class Stopped(KeyboardInterrupt):
    """A study that was stopped by Ctrl-C or SIGTERM; what it had finished is in the store."""

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
    """Train what a store lacks of a plan, and give the result of all of it.

    The first Ctrl-C or SIGTERM lets fleets finish their epoch and keeps checkpoints; a second Ctrl-C ends at once.

    data: the graphs; for a plan with fleets of its own, what these are made of.
    keep_state: whether the outcomes that callbacks get hold the trained weights.

    Raises:
        Stopped: at a signal, with the result so far.
    """
    running = running or Running()
    try_norms(plan, running)
    if running.tensorboard:
        callbacks = [*callbacks, TensorBoard(running.tensorboard)]
    fleets = (
        pack(data, plan.trials, packing_device(running), slots(running))
        if isinstance(data, PackedGraphs)
        else [[place] for place in range(len(plan.trials))]
    )
    study = store.add(plan, fleets)
    stopped_by = None
    with store.lock(study, wait=running.wait):
        driver = Driver(
            store,
            study,
            plan,
            data,
            callbacks=callbacks,
            retry_failed=running.retry_failed,
            checkpoint_seconds=running.checkpoint,
            keep_state=keep_state,
        )
        if driver.missing:
            engine = _make_engine(plan, data, running, len(store.fleets(study)))
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
    """Where and how trainings run; what does not fit together, or is not on this machine, is refused."""
    options = options_of(Running)
    running = Running(**{name: options[name].check(name, value) for name, value in given.items() if value is not None})
    if running.engine == "ray":
        return running
    for name in ("address", "cpus_per_worker", "gpus_per_worker"):
        if getattr(running, name) is not None:
            option = "--" + name.replace("_", "-")
            raise StudyError(f"{option} has no meaning for the engine local", remedy="add --engine ray")
    default_device(running.device)
    return running


def try_norms(plan: Plan, running: Running) -> None:
    """Call each normalization of the user's own once, and refuse one that fails."""
    for trial in {trial.norm: trial for trial in plan.trials}.values():
        try_norm(trial.norm, trial.hidden, default_device(running.device))


def slots(running: Running) -> int:
    """How many fleets are trained at a time, as far as that is known before the engine is there."""
    from graphnorm.study.local import choose_devices

    if running.engine == "ray":
        return int(running.workers or 1)
    return len(choose_devices(running.device, running.workers))


def packing_device(running: Running) -> str | None:
    """Fleets are packed for the device they will be on."""
    if running.engine == "ray":
        return "cuda" if running.gpus_per_worker else "cpu"
    return running.device


def _make_engine(plan: Plan, data: Any, running: Running, fleets: int) -> Engine:
    custom_norms = pack_custom_norms(plan.trials)
    if running.engine == "local":
        from graphnorm.study.local import local_engine

        device = str(default_device(running.device)) if running.device else None
        return local_engine(data, device=device, workers=running.workers, fleets=fleets, custom_norms=custom_norms)
    from graphnorm.study.ray_engine import RayEngine

    return RayEngine(
        data,
        address=running.address,
        workers=running.workers,
        cpus_per_worker=1.0 if running.cpus_per_worker is None else running.cpus_per_worker,
        gpus_per_worker=running.gpus_per_worker or 0.0,
        fleets=fleets,
        custom_norms=custom_norms,
    )


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


@dataclass
class _Fleet:
    """What the driver knows of a fleet."""

    number: int
    trials: list[Trial]
    wanted: dict[str, Trial]
    epoch: int = 0
    """Where its last checkpoint is."""
    failures: int = 0
    failed_after: int = -1
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
        store: where the study is, and where results go.
        study: which one.
        plan: what it trains.
        data: its dataset.
        callbacks: what else learns of the progress.
        retry_failed: whether trials that failed before are tried again.
        checkpoint_seconds: how much work a kill may cost, at most, besides one epoch.
        keep_state: whether outcomes hold the trained weights.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        plan: Plan,
        data: Any,
        *,
        callbacks: Sequence[Callback] = (),
        retry_failed: bool = False,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
        keep_state: bool = False,
    ) -> None:
        self._store, self._study, self._plan, self._data = store, study, plan, data
        self._callbacks = Callbacks(callbacks)
        self._checkpoint_seconds, self._keep_state = checkpoint_seconds, keep_state
        self._checkpoints = CheckpointFolder(store.work_folder / str(study.id))
        self._rungs = plan.rungs
        self._fleets = self._load_fleets(retry_failed)
        self._decided = self._load_decisions()
        self._splits = self._load_splits()
        self._queue: deque[_Fleet] = deque()
        self._running: dict[int, _Fleet] = {}
        self._stopping = False
        self._session = -1
        self._engine: Engine

    @property
    def missing(self) -> list[Trial]:
        """What is to be trained."""
        return [trial for fleet in self._fleets for trial in fleet.wanted.values()]

    def stop(self) -> None:
        """Let the fleets under way reach the end of their epoch, keep a checkpoint of each, and return from run."""
        self._stopping = True

    def run(self, engine: Engine) -> bool:
        """Train what is missing; say whether all of it was."""
        self._engine = engine
        missing = self.missing
        self._session = self._store.begin_session(self._study, engine.name)
        self._callbacks.tell(lambda callback: callback.on_begin(self._study, self._plan.trials, missing))
        finished = False
        try:
            self._queue.extend(fleet for fleet in _rivals_together(self._fleets) if self._is_short(fleet))
            for norm in dict.fromkeys(fleet.norm for fleet in self._fleets):
                self._decide_if_all_are_there(norm)
            while self._running or (self._queue and not self._stopping):
                self._ask_idle_slots()
                for slot, answer in engine.answers(timeout=0.5):
                    self._hear(slot, answer)
            finished = not any(fleet.wanted for fleet in self._fleets)
            if finished:
                self._checkpoints.clear()
            self._store.end_session(self._session, "finished" if finished else "interrupted")
        finally:
            self._callbacks.tell(lambda callback: callback.on_end(finished))
        return finished

    # Beginning

    def _load_fleets(self, retry_failed: bool) -> list[_Fleet]:
        statuses = self._store.statuses(self._study)
        over = {*FINAL, "dropped"} | (set() if retry_failed else {"failed"})
        fleets = []
        for number, trials in self._store.fleets(self._study).items():
            wanted = {
                trial.key: trial
                for trial in trials
                if statuses.get(trial.key) not in over or not self._was_seen(trial, statuses.get(trial.key))
            }
            fleets.append(_Fleet(number, trials, wanted))
        return fleets

    def _was_seen(self, trial: Trial, status: str | None) -> bool:
        """Whether the plan's probe, if it has one, has looked at the trial; a training without it is done again."""
        return self._plan.probe is None or status not in FINAL or bool(self._store.seen(trial))

    def _load_decisions(self) -> dict[str, int]:
        """The epoch of the last decision about each normalization; 0 before the first."""
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

    def _is_short(self, fleet: _Fleet) -> bool:
        """Whether there is something to train before the next decision."""
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
        """The epoch of the next decision about the fleet's normalization, or the end."""
        return next((epoch for epoch, _ in self._rungs if epoch > self._decided[fleet.norm]), fleet.epochs)

    # Questions and answers

    def _ask_idle_slots(self) -> None:
        for slot in range(self._engine.slots):
            if slot not in self._running and self._queue and not self._stopping:
                fleet = self._running[slot] = self._queue.popleft()
                fleet.begun, fleet.saved_at = False, time.monotonic()
                splits: Any = tuple(self._splits[t.protocol, t.folds, t.fold] for t in fleet.trials)
                begin = Begin(
                    tuple(fleet.trials),
                    splits,
                    frozenset(fleet.wanted),
                    self._plan.make_fleet,
                    self._checkpoints.read(fleet.number),
                    self._plan.probe,
                    self._keep_state,
                )
                self._engine.ask(slot, begin)

    def _hear(self, slot: int, answer: Answer) -> None:
        fleet = self._running[slot]
        if isinstance(answer, Failure):
            del self._running[slot]
            self._failed(fleet, answer)
            return
        self._tell_progress(fleet, answer)
        if answer.outcomes is not None:
            self._store.save(self._session, answer.outcomes)
            del self._running[slot]
            self._over(fleet)
            outcomes = answer.outcomes
            self._callbacks.tell(lambda callback: callback.on_outcomes(outcomes))
            return
        if answer.checkpoint is not None:
            self._checkpoints.write(fleet.number, answer.checkpoint)
            fleet.epoch, fleet.saved_at = answer.epoch, time.monotonic()
        target = self._target(fleet)
        if answer.epoch >= target:
            del self._running[slot]
            self._decide_if_all_are_there(fleet.norm)
        elif not self._stopping:
            due = time.monotonic() - fleet.saved_at + STEP_SECONDS >= self._checkpoint_seconds
            self._engine.ask(slot, Advance(STEP_SECONDS, target, checkpoint=due))
        elif answer.checkpoint is None and answer.metrics:
            self._engine.ask(slot, Advance(0.0, target, checkpoint=True))
        else:
            del self._running[slot]

    def _tell_progress(self, fleet: _Fleet, step: Step) -> None:
        trials = tuple(fleet.wanted[key] for key in step.keys)
        if not fleet.begun:
            fleet.begun, fleet.epoch = True, step.epoch
            self._callbacks.tell(lambda callback: callback.on_fleet(trials, step.epoch))
        trained = len(next(iter(step.metrics.values()), ()))
        for place in range(trained):
            row = {name: values[place] for name, values in step.metrics.items()}
            progress = Progress(trials, step.epoch - trained + place + 1, row, step.seconds)
            self._callbacks.tell(lambda callback, progress=progress: callback.on_epoch(progress))  # type: ignore[misc]

    def _over(self, fleet: _Fleet) -> None:
        fleet.wanted.clear()
        self._checkpoints.remove(fleet.number)

    # Failures

    def _failed(self, fleet: _Fleet, failure: Failure) -> None:
        trials = list(fleet.wanted.values())
        if failure.out_of_memory and len(trials) > 1:
            self._split(fleet)
            self._callbacks.tell(lambda callback: callback.on_failure(trials, failure.error, False))
            return
        fleet.failures = 1 if fleet.epoch > fleet.failed_after else fleet.failures + 1
        fleet.failed_after = fleet.epoch
        final = fleet.failures >= ATTEMPTS
        if final:
            self._store.save_failed(self._session, trials, f"{failure.error}\n{failure.details}".strip())
            self._over(fleet)
        elif not self._stopping:
            self._queue.append(fleet)
        self._callbacks.tell(lambda callback: callback.on_failure(trials, failure.error, final))
        self._decide_if_all_are_there(fleet.norm)

    def _split(self, fleet: _Fleet) -> None:
        """Two fleets of half the members each take the place of one that is too large."""
        self._checkpoints.remove(fleet.number)
        wanted = list(fleet.wanted.values())
        for half in (wanted[: len(wanted) // 2], wanted[len(wanted) // 2 :]):
            number = self._store.move_to_fleet(self._study, half)
            smaller = _Fleet(number, half, {trial.key: trial for trial in half})
            self._fleets.append(smaller)
            self._queue.append(smaller)
        fleet.wanted.clear()

    # Decisions of an adaptive search

    def _decide_if_all_are_there(self, norm: str) -> None:
        """Once every fleet of a normalization waits at a rung, decide which of its configurations go on."""
        busy = {fleet.number for fleet in (*self._queue, *self._running.values())}
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
        self._callbacks.tell(lambda callback: callback.on_dropped(lost, rung.epoch))
        for fleet in fleets:
            fleet.wanted = {key: t for key, t in fleet.wanted.items() if t not in lost}
            if fleet.wanted:
                self._queue.append(fleet)
            else:
                self._over(fleet)


def _rivals_together(fleets: Sequence[_Fleet]) -> list[_Fleet]:
    """In an order of training in which a study that is stopped half-way has normalizations to compare."""

    def rivals(fleet: _Fleet) -> tuple[Any, ...]:
        return replace(fleet.trials[0], norm="").shape

    order = list(dict.fromkeys(map(rivals, fleets)))
    return sorted(fleets, key=lambda fleet: order.index(rivals(fleet)))


class CheckpointFolder:
    """The files of a study's fleets, by the fleet's number; each is whole or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, fleet: int) -> Path:
        return self.folder / f"fleet-{fleet}.checkpoint"

    def write(self, fleet: int, data: bytes) -> None:
        """Replace a fleet's file at once; on return the disk has it."""
        fresh = self.folder / f".{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path(fleet))
            _sync_folder(self.folder)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise StoreError(
                f"a checkpoint cannot be written ({error.strerror})",
                where=self._path(fleet),
                remedy="make room and give the same command again; everything finished before is kept",
            ) from error

    def read(self, fleet: int) -> bytes | None:
        """A fleet's file, if there is one."""
        try:
            return self._path(fleet).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, fleet: int) -> None:
        """Remove a fleet's file."""
        self._path(fleet).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of all fleets, half-written ones of killed processes included."""
        for pattern in ("fleet-*.checkpoint", ".[0-9a-f]*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk when its folder is."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)
