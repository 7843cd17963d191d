"""What all kinds of fleets share: they advance epoch by epoch, keep their curves, and tell how far they are."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple, Self

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.training.trial import Trial

__all__ = ["BaseFleet", "OnEpoch", "Progress"]


class Progress(NamedTuple):
    """The state of a fleet after an epoch."""

    trials: tuple[Trial, ...]
    epoch: int
    """Epochs finished, from 1."""
    metrics: dict[str, npt.NDArray[np.float32]]
    """``loss``, ``train``, ``valid`` and, if the protocol has a test part, ``test`` of this epoch: (members,)."""
    seconds: float
    """Training time of the fleet so far."""


OnEpoch = Callable[[Progress], None]


class BaseFleet:
    """Members that are trained together, their curves, and how far they are.

    A kind of fleet writes :meth:`_train`, :meth:`_like` and ``outcomes``, and adds its own state to ``state_dict``.

    Args:
        trials: the members.
        names: the names of the curves.
        columns: how many numbers a member has after each epoch: its curves, and others behind them.
    """

    def __init__(self, trials: Sequence[Trial], names: tuple[str, ...], columns: int | None = None) -> None:
        self.trials, self.names = tuple(trials), names
        self.epoch, self.seconds = 0, 0.0
        shape = (trials[0].epochs, len(trials), columns or len(names))
        self._history = np.full(shape, np.nan, dtype=np.float32)

    def advance(self, epochs: int | None = None, on_epoch: OnEpoch | None = None) -> None:
        """Train for this many more epochs, or to the end."""
        last = len(self._history)
        end = last if epochs is None else min(self.epoch + epochs, last)
        if self.epoch >= end:
            return
        self._prepare()
        began = time.perf_counter()
        for row in self._train(end):
            self.seconds += time.perf_counter() - began
            self._history[self.epoch] = row
            self.epoch += 1
            if on_epoch is not None:
                on_epoch(Progress(self.trials, self.epoch, dict(zip(self.names, row.T, strict=False)), self.seconds))
            began = time.perf_counter()

    def _prepare(self) -> None:
        """Called before training goes on; its time does not count."""

    def _train(self, end: int) -> Iterator[npt.NDArray[np.float32]]:
        """Train until the epoch ``end`` or later; yield what each epoch gave, shape (members, columns)."""
        raise NotImplementedError

    def curves(self, member: int) -> dict[str, npt.NDArray[np.float32]]:
        """A member's curves so far."""
        return dict(zip(self.names, self._history[: self.epoch, member].T.copy(), strict=False))

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint. Training resumes from it exactly."""
        history = torch.from_numpy(self._history[: self.epoch].copy())
        return {"epoch": self.epoch, "seconds": self.seconds, "history": history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a checkpoint of the same members."""
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])
        self._history[:] = np.nan
        self._history[: self.epoch] = np.asarray(state["history"])

    def keep(self, members: Sequence[int]) -> Self:
        """A fleet of some of the members, in their present state."""
        chosen = list(members)
        smaller = self._like(chosen)
        smaller.load_state_dict(self._state_of(chosen))
        return smaller

    def _like(self, members: list[int]) -> Self:
        """A new fleet of some of the members."""
        raise NotImplementedError

    def _state_of(self, members: list[int]) -> dict[str, Any]:
        """The checkpoint of some members: their history, and their share of the time."""
        state, share = self.state_dict(), self.seconds * len(members) / len(self.trials)
        return state | {"history": state["history"][:, members], "seconds": share}
