"""What a worker does: begin a fleet, go on with it for about so long, say where it stands.

An engine carries these messages to wherever the worker is. The driver asks and the worker answers, so a worker never
does anything that the driver does not know of, and one that dies has lost nothing but the time since its last
checkpoint.
"""

from __future__ import annotations

import time
import traceback
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data import PackedGraphs
from graphnorm.study.checkpoint import Checkpoint, pack_checkpoint, unpack_checkpoint
from graphnorm.study.kernels import KERNELS, KernelFleet
from graphnorm.training import Fleet, Outcome, Progress, Split, Trial

__all__ = ["Advance", "Answer", "Begin", "Failure", "Question", "Step", "Worker"]


class Begin(NamedTuple):
    """Take up a fleet, from its checkpoint where there is one."""

    trials: tuple[Trial, ...]
    splits: tuple[Split, ...]
    wanted: frozenset[str]
    """Keys of the members that are to be trained; others are left out, or dropped from the checkpoint."""
    checkpoint: bytes | None = None


class Advance(NamedTuple):
    """Go on for about so many seconds, but no further than ``until``."""

    seconds: float
    """Unless it is 0, at least one epoch is trained."""
    until: int
    checkpoint: bool = False
    """Whether the answer is to hold a checkpoint; at ``until`` it always does, the end of the training excepted."""


class Step(NamedTuple):
    """Where the fleet stands."""

    epoch: int
    keys: tuple[str, ...]
    """Of the members, in their order."""
    metrics: dict[str, npt.NDArray[np.float32]]
    """(epochs trained now, members)."""
    seconds: float
    """Of training, from the fleet's beginning."""
    checkpoint: bytes | None = None
    outcomes: list[Outcome] | None = None
    """At the end of the training."""


class Failure(NamedTuple):
    """The fleet raised an error, or its worker is gone."""

    error: str
    details: str = ""
    worker_lost: bool = False
    out_of_memory: bool = False


Question = Begin | Advance
Answer = Step | Failure


class Worker:
    """Trains one fleet at a time."""

    def __init__(self, graphs: PackedGraphs, device: str | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._graphs = graphs.to(self.device)
        self._fleet: Fleet | KernelFleet | None = None
        self._seconds_per_epoch = 0.0

    def answer(self, question: Question) -> Answer:
        """Do what is asked; an error of the training is an answer too."""
        try:
            return self._begin(question) if isinstance(question, Begin) else self._advance(question)
        except Exception as error:
            self._fleet = None
            too_large = isinstance(error, (torch.OutOfMemoryError, MemoryError))
            return Failure(f"{type(error).__name__}: {error}", traceback.format_exc(), out_of_memory=too_large)

    def _begin(self, task: Begin) -> Step:
        self._fleet = None  # its memory is needed
        found = None if task.checkpoint is None else unpack_checkpoint(task.checkpoint)
        members = {t.key: (t, split) for t, split in zip(task.trials, task.splits, strict=True)}
        if found is not None and task.wanted <= set(found.keys) <= members.keys():
            fleet = self._make_fleet([members[key] for key in found.keys])
            fleet.load_state_dict(found.state)
            wanted = [place for place, key in enumerate(found.keys) if key in task.wanted]
            self._fleet = fleet if len(wanted) == len(found.keys) else fleet.keep(wanted)
        else:
            self._fleet = self._make_fleet([members[key] for key in members if key in task.wanted])
        self._seconds_per_epoch = 0.0
        return self._where(self._fleet, [])

    def _make_fleet(self, members: list[tuple[Trial, Split]]) -> Fleet | KernelFleet:
        trials, splits = zip(*members, strict=True)
        if trials[0].model in KERNELS:
            return KernelFleet(self._graphs, trials, splits)
        return Fleet(self._graphs, trials, splits, device=self.device)

    def _advance(self, question: Advance) -> Step:
        if self._fleet is None:
            raise RuntimeError("there is no fleet to go on with")
        fleet, trained = self._fleet, list[Progress]()
        stop = time.perf_counter() + question.seconds
        while fleet.epoch < question.until and question.seconds:
            left = stop - time.perf_counter()
            if left <= 0 and trained:
                break
            epochs = max(1, int(left / self._seconds_per_epoch)) if self._seconds_per_epoch else 1
            began, start = time.perf_counter(), fleet.epoch
            fleet.advance(min(epochs, question.until - start), trained.append)
            self._seconds_per_epoch = (time.perf_counter() - began) / (fleet.epoch - start)
        return self._where(fleet, trained, question)

    def _where(self, fleet: Fleet | KernelFleet, trained: list[Progress], question: Advance | None = None) -> Step:
        names = trained[0].metrics if trained else ()
        step = Step(
            fleet.epoch,
            tuple(trial.key for trial in fleet.trials),
            {name: np.stack([progress.metrics[name] for progress in trained]) for name in names},
            fleet.seconds,
        )
        if fleet.epoch == fleet.trials[0].epochs:
            self._fleet = None
            return step._replace(outcomes=fleet.outcomes())
        if question is not None and (question.checkpoint or fleet.epoch >= question.until):
            return step._replace(checkpoint=self._checkpoint(fleet, step))
        return step

    def _checkpoint(self, fleet: Fleet | KernelFleet, step: Step) -> bytes:
        outcomes = [
            {"curves": o.curves, "status": o.status, "seconds": o.seconds, "device": o.device} for o in fleet.outcomes()
        ]
        return pack_checkpoint(Checkpoint(step.keys, fleet.epoch, outcomes, fleet.state_dict()))
