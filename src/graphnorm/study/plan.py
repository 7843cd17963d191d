"""Plans: the trials of a study."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, NamedTuple

from graphnorm.errors import CONTROL, StudyError
from graphnorm.models.registry import find_model
from graphnorm.training.trial import Trial

__all__ = ["Plan", "Rung", "role"]


Role = tuple[Literal["norms", "baselines"], str]


class Rung(NamedTuple):
    """A step of an adaptive search: after ``epoch`` epochs, ``keep`` configurations continue."""

    epoch: int
    keep: int


@dataclass(frozen=True)
class Plan:
    """The trials of a study, with its name."""

    name: str
    spec: Mapping[str, Any]
    """The request as plain values: graphs, model, norms, protocol, folds, seeds, grid and settings."""
    trials: tuple[Trial, ...]
    probe: Any = None
    """Measures the models during training; see :mod:`graphnorm.analysis.along_training`."""
    make_fleet: Callable[..., Any] | None = field(default=None, repr=False)
    """Makes the fleets, in place of :func:`graphnorm.study.fleets.make_fleet`."""

    def __post_init__(self) -> None:
        if CONTROL.search(self.name):
            raise StudyError(f"{self.name!r} cannot name a study", remedy="write it without control characters")

    def configurations(self) -> dict[Role, list[list[int]]]:
        """Of each normalization and baseline, the places of the trials of every configuration."""
        found: dict[Role, dict[Any, list[int]]] = {}
        for place, trial in enumerate(self.trials):
            found.setdefault(role(trial), {}).setdefault(trial.configuration, []).append(place)
        return {role_: list(places.values()) for role_, places in found.items()}

    @property
    def rungs(self) -> tuple[Rung, ...]:
        """The rungs of an adaptive search; empty for a full one."""
        return tuple(Rung(*rung) for rung in self.spec.get("rungs", ()))


def role(trial: Trial) -> Role:
    """The row of a result that a trial belongs to: a normalization or a baseline.

    >>> role(Trial(dataset="MUTAG", norm="batch")), role(Trial(dataset="MUTAG", model="wl"))
    (('norms', 'batch'), ('baselines', 'wl'))
    """
    return ("norms", trial.norm) if find_model(trial.model).normalized else ("baselines", trial.model)
