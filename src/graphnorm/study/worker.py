"""What a worker does: begin a fleet, go on with it for about so long, say where it stands.

An engine carries these messages to wherever the worker is. The driver asks and the worker answers, so a worker never
does anything that the driver does not know of, and one that dies has lost nothing but the time since its last
checkpoint.
"""

from __future__ import annotations

import hashlib
import io
import pickle
import sys
import time
import traceback
from collections.abc import Callable, Iterable, Sequence
from typing import Any, NamedTuple, Protocol

import numpy as np
import numpy.typing as npt
import torch

from graphnorm._version import __version__
from graphnorm.errors import need
from graphnorm.layers.graph import BUILT_IN, REGISTRY
from graphnorm.layers.registry import register_norm
from graphnorm.training import Outcome, Progress, Split, Trial

__all__ = [
    "Advance",
    "Answer",
    "Begin",
    "Checkpoint",
    "Engine",
    "Failure",
    "Question",
    "Step",
    "Worker",
    "pack_custom_norms",
    "register_custom_norms",
    "unpack_checkpoint",
]

MAGIC = b"graphnorm-fleet-2\n"
CODE = f"graphnorm {__version__}, torch {torch.__version__}"
"""Other versions may train differently: their checkpoints are not used."""


class Begin(NamedTuple):
    """Take up a fleet, from its checkpoint where there is one."""

    trials: tuple[Trial, ...]
    splits: tuple[Split, ...]
    wanted: frozenset[str]
    """Keys of the members that are to be trained; others are left out, or dropped from the checkpoint."""
    make_fleet: Callable[..., Any]
    checkpoint: bytes | None = None
    probe: Any = None
    """Looks at every member's model after some epochs."""
    keep_state: bool = False
    """Whether outcomes are to hold the trained weights."""


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
    """Training time since the fleet's beginning."""
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


class Engine(Protocol):
    """Where the workers of a study are, and how questions and answers reach them.

    An engine has so many ``slots``, each with one worker. It carries one question at a time to a slot, and hands back
    the answers as they come. A worker that is lost is an answer too (:class:`Failure` with ``worker_lost``), and the
    engine has a new one in its place by then.
    """

    name: str
    slots: int

    def ask(self, slot: int, question: Question) -> None:
        """Send a question to a slot that has answered its last one."""

    def answers(self, timeout: float) -> Iterable[tuple[int, Answer]]:
        """Give the answers that have come; wait up to ``timeout`` seconds for the first."""

    def close(self) -> None:
        """End the workers, whatever they do."""


class Worker:
    """Trains one fleet at a time.

    data: the graphs, or what else the fleets are made of; it has ``to(device)``.
    """

    def __init__(self, data: Any, device: str | None = None) -> None:
        self.device = torch.device(device or ("cuda" if torch.cuda.is_available() else "cpu"))
        self._data = data.to(self.device)
        self._fleet: Any = None
        self._task: Begin | None = None
        self._seen: dict[str, dict[str, list[npt.NDArray[Any]]]] = {}
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
        self._fleet, self._task, self._seen = None, task, {}  # the memory of the last one is needed
        found = None if task.checkpoint is None else unpack_checkpoint(task.checkpoint)
        members = dict(
            zip((trial.key for trial in task.trials), zip(task.trials, task.splits, strict=True), strict=True)
        )
        if found is not None and task.wanted <= set(found.keys) <= members.keys():
            fleet = self._make_fleet([members[key] for key in found.keys])
            fleet.load_state_dict(found.state)
            wanted = [place for place, key in enumerate(found.keys) if key in task.wanted]
            self._fleet = fleet if len(wanted) == len(found.keys) else fleet.keep(wanted)
            for place in wanted:
                seen = found.outcomes[place].get("seen", {})
                self._seen[found.keys[place]] = {name: list(values) for name, values in seen.items()}
        else:
            self._fleet = self._make_fleet([members[key] for key in members if key in task.wanted])
            self._look()
        self._seconds_per_epoch = 0.0
        return self._where([])

    def _make_fleet(self, members: list[tuple[Trial, Split]]) -> Any:
        assert self._task is not None
        trials, splits = zip(*members, strict=True)
        return self._task.make_fleet(self._data, trials, splits, self.device)

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
            fleet.advance(min(epochs, self._next_stop(question.until) - start), trained.append)
            self._seconds_per_epoch = (time.perf_counter() - began) / (fleet.epoch - start)
            self._look()
        return self._where(trained, question)

    def _next_stop(self, until: int) -> int:
        """The next epoch after which the probe looks, or ``until``."""
        probe = self._task and self._task.probe
        looks = [] if probe is None else [epoch for epoch in probe.at if epoch > self._fleet.epoch]
        return int(min([*looks, until]))

    def _look(self) -> None:
        probe = self._task and self._task.probe
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

    def _where(self, trained: list[Progress], question: Advance | None = None) -> Step:
        fleet, names = self._fleet, trained[0].metrics if trained else ()
        step = Step(
            fleet.epoch,
            tuple(trial.key for trial in fleet.trials),
            {name: np.stack([progress.metrics[name] for progress in trained]) for name in names},
            fleet.seconds,
        )
        if fleet.epoch == fleet.trials[0].epochs:
            outcomes = self._outcomes(self._task is not None and self._task.keep_state)
            self._fleet = None
            return step._replace(outcomes=outcomes)
        if question is not None and (question.checkpoint or fleet.epoch >= question.until):
            packed = pack_checkpoint(step.keys, fleet.epoch, self._outcomes(False), fleet.state_dict())
            return step._replace(checkpoint=packed)
        return step


# Checkpoints


class Checkpoint(NamedTuple):
    """Where a fleet stands."""

    keys: tuple[str, ...]
    """Of its members."""
    epoch: int
    outcomes: list[dict[str, Any]]
    """What there is of each member so far, as keyword arguments of :class:`Outcome`."""
    state: dict[str, Any]
    """The fleet's own ``state_dict``."""


def pack_checkpoint(keys: Sequence[str], epoch: int, outcomes: Sequence[Outcome], state: dict[str, Any]) -> bytes:
    """The bytes of a checkpoint, with their own checksum."""
    parts = [
        {
            "curves": _tensors(outcome.curves),
            "seen": _tensors(outcome.seen),
            "status": outcome.status,
            "seconds": outcome.seconds,
            "device": outcome.device,
        }
        for outcome in outcomes
    ]
    buffer = io.BytesIO()
    torch.save({"code": CODE, "keys": list(keys), "epoch": epoch, "outcomes": parts, "state": state}, buffer)
    content = buffer.getvalue()
    return MAGIC + hashlib.sha256(content).digest() + content


def unpack_checkpoint(data: bytes) -> Checkpoint | None:
    """What :func:`pack_checkpoint` made bytes of; None where they are damaged or of another version."""
    start = len(MAGIC) + hashlib.sha256().digest_size
    content = data[start:]
    if not data.startswith(MAGIC) or data[len(MAGIC) : start] != hashlib.sha256(content).digest():
        return None
    values = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if values["code"] != CODE:
        return None
    outcomes = [
        part | {name: {k: v.numpy() for k, v in part[name].items()} for name in ("curves", "seen")}
        for part in values["outcomes"]
    ]
    return Checkpoint(tuple(values["keys"]), values["epoch"], outcomes, values["state"])


def _tensors(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Tensors are read back without running code that a file names."""
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}


# Custom normalizations


def pack_custom_norms(trials: Iterable[Trial]) -> bytes:
    """The factories of the trials' own normalizations, for workers in other processes; empty where there are none.

    Code that is not installed (a script, a notebook, a module beside it) travels by value.
    """
    factories = {name: REGISTRY[name].args[1] for name in {trial.norm for trial in trials} - BUILT_IN}  # type: ignore[attr-defined]
    if not factories:
        return b""
    cloudpickle = need("cloudpickle", "training your own normalization in worker processes", "study")
    for factory in factories.values():
        module = sys.modules.get(getattr(factory, "__module__", None) or "")
        origin = getattr(module, "__file__", None) or ""
        if module is not None and module.__name__ != "__main__" and "site-packages" not in origin and origin:
            cloudpickle.register_pickle_by_value(module)
    packed: bytes = cloudpickle.dumps(factories)
    return packed


def register_custom_norms(packed: bytes) -> None:
    """Make known what :func:`pack_custom_norms` packed."""
    for name, factory in pickle.loads(packed).items() if packed else ():
        register_norm(name, factory)
