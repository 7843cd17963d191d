"""How far a comparison is: counted from the epochs of its members, whatever order they are trained in."""

from __future__ import annotations

import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Literal

import numpy as np

from graphnorm.training import Progress, Trial

__all__ = ["NormTally", "Tally", "clock"]


@dataclass
class NormTally:
    """How far one normalization is."""

    finished_epochs: dict[str, int]
    """Of every member, by the key of its trial. No key comes later: a display may be reading in its own thread."""
    epochs: int
    state: Literal["waiting", "training", "done", "found"] = "waiting"
    """``found``: trained by an earlier run."""
    summary: str = ""
    """What is reported of it, once it is done."""
    validation: dict[str, float] = field(init=False)
    """The latest validation metric of every member; NaN at the start."""

    def __post_init__(self) -> None:
        self.validation = dict.fromkeys(self.finished_epochs, float("nan"))

    @property
    def work(self) -> int:
        """Epochs of members, in all."""
        return len(self.finished_epochs) * self.epochs

    @property
    def finished(self) -> int:
        """Epochs of members that are behind it."""
        return self.work if self.state in ("done", "found") else sum(self.finished_epochs.values())

    @property
    def epoch(self) -> int:
        """Epochs that every member so far begun has finished."""
        return min((epoch for epoch in self.finished_epochs.values() if epoch), default=0)

    @property
    def accuracy(self) -> float:
        """The members' average validation metric so far, in percent; NaN at the start."""
        values = [value for value in self.validation.values() if np.isfinite(value)]
        return 100 * float(np.mean(values)) if values else float("nan")


class Tally:
    """How far all of them are, and how long the rest will take.

    now: gives the time in seconds.
    """

    def __init__(self, trials: Mapping[str, Sequence[Trial]], now: Callable[[], float] = time.monotonic) -> None:
        self.norms = {
            name: NormTally({trial.key: 0 for trial in some}, some[0].epochs) for name, some in trials.items()
        }
        self._now, self._start = now, now()

    def update(self, progress: Progress, name: str | None = None) -> None:
        """Count an epoch of some members; ``name``: what they are counted for, if not their normalization."""
        for trial, value in zip(progress.trials, progress.metrics["valid"], strict=True):
            norm = self.norms[name or trial.norm]
            norm.state = "training"
            norm.finished_epochs[trial.key] = progress.epoch
            norm.validation[trial.key] = float(value)

    def finish(self, name: str, summary: str, *, found: bool = False) -> None:
        """Count a normalization as trained, now or by an earlier run."""
        self.norms[name].state = "found" if found else "done"
        self.norms[name].summary = summary

    @property
    def elapsed(self) -> float:
        """Seconds since the start."""
        return self._now() - self._start

    @property
    def work(self) -> int:
        """Epochs of members to be trained in this run."""
        return sum(norm.work for norm in self.norms.values() if norm.state != "found")

    @property
    def finished(self) -> int:
        """Those of them that are done."""
        return sum(norm.finished for norm in self.norms.values() if norm.state != "found")

    @property
    def seconds_left(self) -> float | None:
        """As long as the rest takes at the pace so far; None before there is one."""
        return self.elapsed / self.finished * (self.work - self.finished) if self.finished else None


def clock(seconds: float | None) -> str:
    """Minutes and seconds, as people read them.

    >>> clock(75.2), clock(3675), clock(None)
    ('1:15', '1:01:15', '–')
    """
    if seconds is None:
        return "–"
    minutes, rest = divmod(round(seconds), 60)
    hours, minutes = divmod(minutes, 60)
    return f"{hours}:{minutes:02}:{rest:02}" if hours else f"{minutes}:{rest:02}"
