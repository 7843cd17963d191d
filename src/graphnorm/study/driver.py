"""The driver: hands a study's fleets to an engine's workers, and keeps what comes back.

It alone writes the store and the checkpoints. Whatever happens to a worker, its fleet is begun again from the last
checkpoint; a fleet that fails three times at one place is recorded as failed and the study goes on. Whatever happens to
the driver, the next one finds in the store what is finished, and beside it the checkpoints of what was under way.
"""

from __future__ import annotations

import time
from collections import deque
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

from graphnorm.data import PackedGraphs
from graphnorm.study.callbacks import Callback, Callbacks
from graphnorm.study.checkpoint import Checkpoint, CheckpointFolder, unpack_checkpoint
from graphnorm.study.engines import Engine
from graphnorm.study.halving import Rung, losers
from graphnorm.study.lock import work_folder
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import FINAL, Store, Study
from graphnorm.study.work import Advance, Answer, Begin, Failure, Step
from graphnorm.training import Outcome, Progress, Split, Trial

__all__ = ["Driver"]

ATTEMPTS = 3
STEP_SECONDS = 1.0
CHECKPOINT_SECONDS = 50.0
"""A kill costs at most a minute of work, or an epoch where that takes longer."""


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

    @property
    def contest(self) -> tuple[Any, ...]:
        """What it has in common with the fleets of other normalizations that it is compared with."""
        return replace(self.trials[0], norm="").shape


def _rivals_together(fleets: Sequence[_Fleet]) -> list[_Fleet]:
    """In an order of training in which a study that is stopped half-way has normalizations to compare."""
    contests = list(dict.fromkeys(fleet.contest for fleet in fleets))
    return sorted(fleets, key=lambda fleet: contests.index(fleet.contest))


class Driver:
    """Runs one study to its end.

    Args:
        store: where the study is, and where results go.
        study: which one.
        graphs: its dataset.
        engine: where its fleets are trained.
        rungs: where weaker configurations are given up, for an adaptive search.
        callbacks: what else learns of the progress.
        retry_failed: whether trials that failed before are tried again.
        checkpoint_seconds: how much work a kill may cost, at most, besides one epoch.
    """

    def __init__(
        self,
        store: Store,
        study: Study,
        graphs: PackedGraphs,
        engine: Engine,
        *,
        rungs: Sequence[Rung] = (),
        callbacks: Sequence[Callback] = (),
        retry_failed: bool = False,
        checkpoint_seconds: float = CHECKPOINT_SECONDS,
    ) -> None:
        self._store, self._study, self._graphs, self._engine = store, study, graphs, engine
        self._callbacks = Callbacks(callbacks)
        self._checkpoint_seconds = checkpoint_seconds
        self._checkpoints = CheckpointFolder(work_folder(store, study))
        self._rungs = tuple(rungs)
        self._fleets = self._load_fleets(retry_failed)
        self._decided = self._load_decisions()
        self._splits = self._load_splits()
        self._queue: deque[_Fleet] = deque()
        self._running: dict[int, _Fleet] = {}
        self._stopping = False
        self._session = -1

    def stop(self) -> None:
        """Let the fleets under way reach the end of their epoch, keep a checkpoint of each, and return from run."""
        self._stopping = True

    def run(self) -> bool:
        """Train what is missing; say whether all of it was."""
        missing = [trial for fleet in self._fleets for trial in fleet.wanted.values()]
        self._session = self._store.begin_session(self._study, self._engine.name)
        self._callbacks.tell(lambda callback: callback.on_begin(self._study, missing))
        finished = False
        try:
            self._queue.extend(fleet for fleet in _rivals_together(self._fleets) if self._is_short(fleet))
            for norm in dict.fromkeys(fleet.norm for fleet in self._fleets):
                self._decide_if_all_are_there(norm)
            while self._running or (self._queue and not self._stopping):
                self._ask_idle_slots()
                for slot, answer in self._engine.answers(timeout=0.5):
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
            wanted = {trial.key: trial for trial in trials if statuses.get(trial.key) not in over}
            fleets.append(_Fleet(number, trials, wanted))
        return fleets

    def _load_decisions(self) -> dict[str, int]:
        """The epoch of the last decision about each normalization; 0 before the first."""
        dropped = self._store.dropped_epochs(self._study)
        decided: dict[str, int] = {}
        for fleet in self._fleets:
            last = max((dropped.get(trial.key, 0) for trial in fleet.trials), default=0)
            decided[fleet.norm] = max(decided.get(fleet.norm, 0), last)
        return decided

    def _load_splits(self) -> dict[tuple[str, int, int], Split]:
        trials = {(t.protocol, t.folds, t.fold): t for fleet in self._fleets for t in fleet.trials if fleet.wanted}
        return dict(zip(trials, make_splits(self._graphs, list(trials.values())), strict=True))

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
                splits = tuple(self._splits[t.protocol, t.folds, t.fold] for t in fleet.trials)
                checkpoint = self._checkpoints.read(fleet.number)
                self._engine.ask(slot, Begin(tuple(fleet.trials), splits, frozenset(fleet.wanted), checkpoint))

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
