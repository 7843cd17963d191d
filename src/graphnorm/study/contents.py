"""What a store holds, as plain values: studies, records of trials, sessions."""

from __future__ import annotations

import datetime
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from graphnorm.study.curves import Curve
from graphnorm.training import Trial

__all__ = ["FINAL", "Record", "Session", "Status", "Study"]

Status = Literal["done", "diverged", "dropped", "failed"]
FINAL = ("done", "diverged")
"""What is never trained again."""


@dataclass(frozen=True)
class Study:
    """One line of the list of studies."""

    id: int
    name: str
    spec: Mapping[str, Any]
    """What was asked for, as plain values."""
    created: str
    trials: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many trials ended how; those in none of them are missing."""
    seconds: float = 0.0
    """Of training, over all its trials."""

    @property
    def finished(self) -> int:
        """Trials that are trained to the end, diverged ones included."""
        return sum(self.counts.get(status, 0) for status in FINAL)

    @property
    def missing(self) -> int:
        """Trials that are not trained yet."""
        return self.trials - sum(self.counts.values())


@dataclass(frozen=True, eq=False)
class Record:
    """What the store holds of one trial of a study."""

    trial: Trial
    status: Status
    epochs: int
    seconds: float
    device: str
    finished: str
    code: str
    """Versions that it was trained with."""
    fleet: int
    place: int
    """Among the trials of the study."""
    error: str | None = None
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    """Those that were asked for."""


class Session(NamedTuple):
    """One run of the program over a study: who writes, or wrote."""

    id: int
    host: str
    pid: int
    engine: str
    started: str
    ended: str | None = None
    """None while it runs, and for one that was killed."""
    ending: str | None = None
    """``finished`` or ``interrupted``."""

    @property
    def seconds(self) -> float | None:
        """From its beginning to its end, to the second."""
        if self.ended is None:
            return None
        begin, end = (datetime.datetime.fromisoformat(text) for text in (self.started, self.ended))
        return (end - begin).total_seconds()
