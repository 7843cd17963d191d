"""Workers: each trains one fleet at a time and answers the driver's questions.

An engine carries questions and answers between the driver and its workers, wherever these run. A worker acts only when
asked, so if it dies, only the work since the last checkpoint is lost.
"""

from __future__ import annotations

import time
import traceback
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from graphnorm import own_code
from graphnorm.layers import BUILT_IN, REGISTRY, register_norm
from graphnorm.models.registry import find_model, register_model
from graphnorm.study.checkpoints import pack_checkpoint, unpack_checkpoint
from graphnorm.training import Outcome, Progress, Split, Trial

__all__ = [
    "Advance",
    "Answer",
    "Begin",
    "Engine",
    "Failure",
    "Question",
    "Step",
    "Worker",
    "one_thread",
    "pack_code",
    "register_code",
]


class Begin(NamedTuple):
    """Start a fleet, or continue it from its checkpoint."""

    trials: tuple[Trial, ...]
    splits: tuple[Split, ...]
    wanted: frozenset[str]
    """Keys of the members to train; the others are left out, or dropped from the checkpoint."""
    make_fleet: Callable[..., Any]
    """From data, trials, splits and device to what has the methods of :class:`~graphnorm.training.Fleet`."""
    checkpoint: bytes | None = None
    probe: Any = None
    """Measures every member's model after some epochs."""
    keep_state: bool = False
    """Whether outcomes hold the trained weights."""


class Advance(NamedTuple):
    """Train for about ``seconds``, at most up to the epoch ``until``."""

    seconds: float
    """Unless it is 0, at least one epoch is trained."""
    until: int
    checkpoint: bool = False
    """Whether the answer holds a checkpoint. At ``until`` it always does, except at the end of the training."""


class Step(NamedTuple):
    """The state of the fleet after a question."""

    epoch: int
    keys: tuple[str, ...]
    """Keys of the members, in order."""
    metrics: dict[str, npt.NDArray[np.float32]]
    """Shape (epochs trained now, members)."""
    seconds: float
    """Training time since the fleet started."""
    checkpoint: bytes | None = None
    outcomes: list[Outcome] | None = None
    """Set at the end of the training."""


class Failure(NamedTuple):
    """The fleet raised an error, or its worker died."""

    error: str
    """With the line of the user's own model, if that raised it."""
    details: str = ""
    out_of_memory: bool = False


Question = Begin | Advance
Answer = Step | Failure


class Engine(Protocol):
    """Starts workers and carries questions and answers.

    An engine has ``slots``, each with one worker that gets one question at a time. If a worker dies, the answer is a
    :class:`Failure`, and the engine has already replaced the worker.
    """

    name: str
    slots: int

    def ask(self, slot: int, question: Question) -> None:
        """Send a question to a slot that has answered its last one."""

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Return the answers that have arrived; wait up to ``timeout`` seconds for the first."""

    def close(self) -> None:
        """End the workers, whatever they are doing."""


@contextmanager
def one_thread() -> Iterator[None]:
    """Compute with one of torch's threads, as workers on a CPU do."""
    before = torch.get_num_threads()
    torch.set_num_threads(1)
    try:
        yield
    finally:
        torch.set_num_threads(before)


class Worker:
    """Trains one fleet at a time.

    data: the graphs, or other data of the fleets that has ``to(device)``.
    """

    def __init__(self, data: Any, device: str) -> None:
        self.device = torch.device(device)
        self._data = data.to(self.device)
        self._fleet: Any = None
        self._begin: Begin
        """How the fleet was started."""
        self._files = frozenset[Path]()
        """Those of the user's own models that it trains."""
        self._seen: dict[str, dict[str, list[npt.NDArray[Any]]]] = {}
        """By trial, what the probe measured so far."""
        self._seconds_per_epoch = 0.0

    def answer(self, question: Question) -> Answer:
        """Answer a question; an error in training is an answer, too."""
        try:
            return self._start(question) if isinstance(question, Begin) else self._advance(question)
        except (Exception, SystemExit) as error:  # a user's model may call sys.exit
            self._fleet = None
            too_large = isinstance(error, (torch.OutOfMemoryError, MemoryError))
            file, line = own_code.line_of(error, self._files)
            where = f"{Path(file).name}:{line}: " if file else ""
            return Failure(f"{where}{type(error).__name__}: {error}", traceback.format_exc(), out_of_memory=too_large)

    def _start(self, begin: Begin) -> Step:
        self._fleet, self._begin, self._seen = None, begin, {}  # frees the memory of the last fleet
        codes = (find_model(trial.model).code for trial in begin.trials)
        self._files = frozenset[Path]().union(*(code.files for code in codes if code))
        found = None if begin.checkpoint is None else unpack_checkpoint(begin.checkpoint)
        members = {trial.key: (trial, split) for trial, split in zip(begin.trials, begin.splits, strict=True)}
        if found is not None and begin.wanted <= set(found.keys) <= members.keys():
            fleet = self._make_fleet([members[key] for key in found.keys])
            fleet.load_state_dict(found.state)
            wanted = [place for place, key in enumerate(found.keys) if key in begin.wanted]
            self._fleet = fleet if len(wanted) == len(found.keys) else fleet.keep(wanted)
            for place in wanted:
                seen = found.outcomes[place].get("seen", {})
                self._seen[found.keys[place]] = {name: list(values) for name, values in seen.items()}
        else:
            self._fleet = self._make_fleet([member for key, member in members.items() if key in begin.wanted])
            self._measure()
        self._seconds_per_epoch = 0.0
        return self._step([])

    def _make_fleet(self, members: list[tuple[Trial, Split]]) -> Any:
        trials, splits = zip(*members, strict=True)
        return self._begin.make_fleet(self._data, trials, splits, self.device)

    def _advance(self, question: Advance) -> Step:
        if self._fleet is None:
            raise RuntimeError("there is no fleet to train")
        fleet, trained = self._fleet, list[Progress]()
        stop = time.perf_counter() + question.seconds
        while fleet.epoch < question.until and question.seconds:
            left = stop - time.perf_counter()
            if left <= 0 and trained:
                break
            epochs = max(1, int(left / self._seconds_per_epoch)) if self._seconds_per_epoch else 1
            began, start = time.perf_counter(), fleet.epoch
            fleet.advance(min(epochs, self._next_stop(question.until) - start), trained.append)
            self._seconds_per_epoch = (time.perf_counter() - began) / (fleet.epoch - start)
            self._measure()
        return self._step(trained, question)

    def _next_stop(self, until: int) -> int:
        """The next epoch at which the probe measures, or ``until``."""
        at = () if self._begin.probe is None else self._begin.probe.at
        return int(min([*(epoch for epoch in at if epoch > self._fleet.epoch), until]))

    def _measure(self) -> None:
        """Let the probe look at every member's model, if this is one of its epochs."""
        probe = self._begin.probe
        if probe is None or self._fleet.epoch not in probe.at:
            return
        for member, trial in enumerate(self._fleet.trials):
            seen = self._seen.setdefault(trial.key, {})
            found = probe.look(self._fleet.model(member), self._data)
            for name, values in {"epochs": np.int64(self._fleet.epoch), **found}.items():
                array = np.asarray(values)
                seen.setdefault(name, []).append(array.astype(np.float32) if array.dtype == np.float64 else array)

    def _outcomes(self, keep_state: bool) -> list[Outcome]:
        outcomes: list[Outcome] = self._fleet.outcomes(keep_state)
        for outcome in outcomes:
            seen = self._seen.get(outcome.trial.key, {})
            outcome.seen.update({name: np.stack(values) for name, values in seen.items()})
        return outcomes

    def _step(self, trained: list[Progress], question: Advance | None = None) -> Step:
        """The answer after these epochs: with outcomes at the end, with a checkpoint where one is asked for."""
        fleet, names = self._fleet, trained[0].metrics if trained else ()
        step = Step(
            fleet.epoch,
            tuple(trial.key for trial in fleet.trials),
            {name: np.stack([progress.metrics[name] for progress in trained]) for name in names},
            fleet.seconds,
        )
        if fleet.epoch == fleet.trials[0].epochs:
            outcomes = self._outcomes(self._begin.keep_state)
            self._fleet = None
            return step._replace(outcomes=outcomes)
        if question is not None and (question.checkpoint or fleet.epoch >= question.until):
            packed = pack_checkpoint(step.keys, fleet.epoch, self._outcomes(False), fleet.state_dict())
            return step._replace(checkpoint=packed)
        return step


# The user's own code


def pack_code(trials: Iterable[Trial]) -> bytes:
    """The user's own normalizations and models, for workers in other processes; empty if there are none."""
    norms = {name: REGISTRY[name].args[1] for name in {trial.norm for trial in trials} - BUILT_IN}  # type: ignore[attr-defined]
    models = [code for name in {trial.model for trial in trials} if (code := find_model(name).code) is not None]
    if not norms and not models:
        return b""
    files = frozenset[Path]().union(*map(own_code.files_of, norms.values()), *(code.files for code in models))
    return own_code.pack_code((norms, models), files, "training your own code in worker processes")


def register_code(packed: bytes) -> None:
    """Register what :func:`pack_code` packed."""
    norms, models = own_code.unpack_code(packed) if packed else ({}, [])
    for name, factory in norms.items():
        register_norm(name, factory)
    for code in models:
        register_model(code)
