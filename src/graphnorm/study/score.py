"""The score of one normalization: by fold and seed, with its curves and the choices behind it; how fast several train.

Scores, means and curves are in percent, or for the errors of real values in the unit of the targets.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.files import plain
from graphnorm.models import MODELS
from graphnorm.models.registry import Kernel
from graphnorm.study.grouping import by_key
from graphnorm.study.paper_numbers import Reported
from graphnorm.study.protocol import Protocol
from graphnorm.study.render import NOTHING, short
from graphnorm.study.selection import Choice, mean_and_std
from graphnorm.training import Metric

__all__ = ["DIGITS", "Convergence", "Curve", "Score", "Spread"]

DIGITS = 6
"""Decimal places of numbers in JSON; below 0.1 the digits."""

Curve = npt.NDArray[np.float64]


class Spread(NamedTuple):
    """Mean and sample standard deviation; NaN if there are too few values."""

    mean: float
    std: float

    def shown(self, metric: Metric) -> str:
        """As text.

        >>> from graphnorm.training import METRICS
        >>> Spread(75.123, 2.5).shown(METRICS["accuracy"]), Spread(0.5832, math.nan).shown(METRICS["rmse"])
        ('75.1 ± 2.5', '0.583')
        """
        if not math.isfinite(self.mean):
            return NOTHING
        spread = f" ± {metric.text(self.std, like=self.mean)}" if math.isfinite(self.std) else ""
        return metric.text(self.mean) + spread


@dataclass(frozen=True, eq=False)
class Score:
    """The score of one normalization or baseline, with the epochs and configurations that the protocol selected."""

    name: str
    protocol: Protocol
    metric: Metric
    trials: int
    """Number of planned trials."""
    finished: int
    configurations: tuple[dict[str, Any], ...]
    """The settings of each configuration that differ between configurations."""
    choices: tuple[Choice, ...] = ()
    """One for every fold and seed; empty while nothing can be selected."""
    compared: int = 0
    """Number of configurations that the selection compared, in the fold with the fewest."""
    took_part: tuple[int, ...] = ()
    """Indices of the configurations that were compared in every fold."""
    curves: Mapping[str, tuple[Curve, Curve]] = field(default_factory=dict, repr=False)
    """Mean and standard deviation by epoch, over the selected trainings that did not diverge."""
    seconds: float = 0.0
    """Training time of the selected trainings."""
    devices: tuple[str, ...] = ()
    dropped: int = 0
    """Number of trials that successive halving did not train to the end."""
    paper: Reported | None = None
    """The paper's number for the same table cell, if it has one."""

    @cached_property
    def scores(self) -> dict[int, float]:
        """Score by fold, or by seed under a given split; NaN where all trainings diverged.

        The seeds of a fold are averaged first, since they share its graphs.
        """
        units = by_key(self.choices, attrgetter(self.protocol.unit))
        scale = self.metric.scale
        return {unit: mean_and_std([scale * one.score for one in units[unit]])[0] for unit in sorted(units)}

    @cached_property
    def mean(self) -> float:
        """Mean over folds or seeds; NaN without a score."""
        return mean_and_std(list(self.scores.values()))[0]

    @cached_property
    def std(self) -> float:
        """Sample standard deviation (n − 1) over folds or seeds; NaN for fewer than two."""
        return mean_and_std(list(self.scores.values()))[1]

    @cached_property
    def targets(self) -> tuple[Spread, ...]:
        """Of several targets, mean and standard deviation of the metric of each, over folds or seeds as the score.

        Empty for one target, and if a training has no metric by target.
        """
        alive = [choice for choice in self.choices if choice.epoch is not None]
        if not alive or len({len(choice.targets) for choice in alive}) != 1:
            return ()
        units = by_key(alive, lambda choice: getattr(choice, self.protocol.unit)).values()
        rows = [
            [mean_and_std(values)[0] for values in zip(*(choice.targets for choice in unit), strict=True)]
            for unit in units
        ]
        scaled = ([self.metric.scale * value for value in values] for values in zip(*rows, strict=True))
        return tuple(Spread(*mean_and_std(values)) for values in scaled)

    @property
    def epochs(self) -> list[int]:
        """The selected epochs of the trainings that did not diverge."""
        return [choice.epoch for choice in self.choices if choice.epoch is not None]

    @property
    def epoch(self) -> int | None:
        """The epoch, if all trainings share one."""
        return self.epochs[0] if len(set(self.epochs)) == 1 else None

    @property
    def diverged(self) -> int:
        """Number of selected trainings that diverged."""
        return sum(choice.epoch is None for choice in self.choices)

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The configuration, if all folds selected the same."""
        places = {choice.configuration for choice in self.choices}
        return self.configurations[places.pop()] if len(places) == 1 else None

    @property
    def members(self) -> int:
        """Planned folds times seeds."""
        return self.trials // max(len(self.configurations), 1)

    @property
    def shown(self) -> str:
        """Mean ± standard deviation, as text."""
        if not math.isfinite(self.mean):
            return NOTHING if not self.choices else "diverged"
        return Spread(self.mean, self.std).shown(self.metric)

    @property
    def kernel(self) -> Kernel | None:
        """The kernel, if this is the score of one."""
        return MODELS[self.name].kernel if self.name in MODELS else None

    @property
    def chosen_epoch(self) -> str:
        """The selected epoch or range of epochs, as text; a kernel's epochs are its candidate settings."""
        if not self.epochs:
            return NOTHING
        if self.kernel is not None:
            return "varies" if self.epoch is None else self.kernel.describe(self.epoch)
        return str(self.epoch) if self.epoch is not None else f"{min(self.epochs)}–{max(self.epochs)}"

    @property
    def chosen_settings(self) -> str:
        """The selected configuration, as text."""
        if not self.choices:
            return NOTHING
        if self.chosen is None:
            return "varies by fold"
        return ", ".join(f"{name}={short(value)}" for name, value in self.chosen.items()) or "the only one"

    def to_dict(self) -> dict[str, Any]:
        scale = self.metric.scale
        members = []
        for choice in self.choices:
            member = choice._asdict() | {"score": scale * choice.score}
            member |= {"status": "diverged" if choice.epoch is None else "done"}
            member |= {"targets": [scale * value for value in choice.targets]}
            members.append({name: value for name, value in member.items() if name != "targets" or value})
        values = {
            "mean": self.mean,
            "std": self.std,
            "epoch": self.epoch,
            "scores": list(self.scores.values()),
            "trials": self.trials,
            "finished": self.finished,
            "dropped": self.dropped,
            "diverged": self.diverged,
            "configurations": self.configurations,
            "compared": self.compared,
            "took_part": self.took_part,
            "members": members,
            "seconds": self.seconds,
            "devices": self.devices,
            "paper": self.paper and self.paper._asdict(),
            "curves": {name: {"mean": mean, "std": std} for name, (mean, std) in self.curves.items()},
        }
        return {name: plain(value, DIGITS) for name, value in values.items()}

    @classmethod
    def from_dict(cls, name: str, protocol: Protocol, metric: Metric, values: Mapping[str, Any]) -> Score:
        """Undo :meth:`to_dict`; wrong values raise KeyError or TypeError."""
        choices = (
            Choice(*(member[field] for field in Choice._fields if field != "targets"))._replace(
                score=_number(member["score"]) / metric.scale,
                targets=tuple(_number(value) / metric.scale for value in member.get("targets", ())),
            )
            for member in values["members"]
        )
        curves = {
            name: (np.array(both["mean"], np.float64), np.array(both["std"], np.float64))
            for name, both in values["curves"].items()
        }
        return cls(
            name,
            protocol,
            metric,
            trials=int(values["trials"]),
            finished=int(values["finished"]),
            dropped=int(values["dropped"]),
            configurations=tuple(map(dict, values["configurations"])),
            choices=tuple(choices),
            compared=int(values["compared"]),
            took_part=tuple(values["took_part"]),
            curves=curves,
            seconds=_number(values["seconds"]),
            devices=tuple(values["devices"]),
            paper=None if values["paper"] is None else Reported(**values["paper"]),
        )


class Convergence(NamedTuple):
    """How fast normalizations train, by their mean training curves."""

    slowest: str | None = None
    """The normalization with the worst training metric at the end."""
    target: float | None = None
    """That metric; every curve reaches it."""
    epochs: Mapping[str, int] = {}
    """Number of epochs after which each curve reaches the target."""
    area: Mapping[str, float] = {}
    """Mean of each curve over its epochs."""

    @classmethod
    def of(cls, curves: Mapping[str, Curve], sign: int = 1) -> Convergence:
        """Compare training curves.

        sign: :attr:`Metric.sign`.

        >>> dict(Convergence.of({"a": np.array([0.5, 0.8, 0.9]), "b": np.array([0.4, 0.5, 0.7])}).epochs)
        {'a': 2, 'b': 3}
        """
        if not curves:
            return cls()
        slowest = min(curves, key=lambda name: sign * float(curves[name][-1]))
        target = float(curves[slowest][-1])
        epochs = {name: int((sign * curve >= sign * target).argmax()) + 1 for name, curve in curves.items()}
        return cls(slowest, target, epochs, {name: float(curve.mean()) for name, curve in curves.items()})


def _number(value: float | None) -> float:
    return math.nan if value is None else float(value)
