"""A fleet that trains nothing and takes no time: the curves of a trial come from its key and the epoch."""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch

from graphnorm.training import Outcome, Progress, Split, Trial


def value(trial: Trial, epoch: int) -> float:
    """A count of 50 that depends on the trial and, through its state, on every epoch before."""
    return int(hashlib.sha256(f"{trial.key} {epoch}".encode()).hexdigest(), 16) % 51 / 50


class FakeFleet:
    """What the study needs of a Fleet; ``trouble`` is called before every epoch."""

    trouble: Callable[[FakeFleet], None] = staticmethod(lambda fleet: None)
    made: list[FakeFleet] = []  # noqa: RUF012 - shared on purpose

    def __init__(self, graphs: Any, trials: Sequence[Trial], splits: Sequence[Split], *, device: Any = None) -> None:
        assert len({trial.shape for trial in trials}) == 1
        assert len(trials) == len(splits)
        self.trials, self.epoch, self.seconds = tuple(trials), 0, 0.0
        self.history = np.zeros((0, len(trials)), np.float32)
        FakeFleet.made.append(self)

    def advance(self, epochs: int | None = None, on_epoch: Callable[[Progress], None] | None = None) -> None:
        end = self.trials[0].epochs if epochs is None else min(self.epoch + epochs, self.trials[0].epochs)
        while self.epoch < end:
            FakeFleet.trouble(self)
            self.epoch, self.seconds = self.epoch + 1, self.seconds + 0.5
            row = np.array([value(trial, self.epoch) for trial in self.trials], np.float32)
            self.history = np.concatenate([self.history, row[None]])
            if on_epoch is not None:
                on_epoch(Progress(self.trials, self.epoch, {"loss": 1 - row, "valid": row}, self.seconds))

    def outcomes(self) -> list[Outcome]:
        return [
            Outcome(trial, self.curves(trial, curve), seconds=self.seconds, device="fake")
            for trial, curve in zip(self.trials, self.history.T.copy(), strict=True)
        ]

    @staticmethod
    def curves(trial: Trial, curve: Any) -> dict[str, Any]:
        test = {"test": curve[::-1].copy()} if trial.protocol == "fair" else {}
        return {"loss": 1 - curve, "train": curve, "valid": curve} | test

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "seconds": self.seconds, "history": torch.from_numpy(self.history.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.seconds, self.history = state["epoch"], state["seconds"], state["history"].numpy()
        assert self.history.shape[1] == len(self.trials)

    def keep(self, members: Sequence[int]) -> FakeFleet:
        smaller = FakeFleet(None, [self.trials[k] for k in members], [None] * len(members))  # type: ignore[list-item]
        smaller.load_state_dict(self.state_dict() | {"history": torch.from_numpy(self.history[:, list(members)])})
        return smaller
