"""Selection: from the curves of trained members to the epoch, the configuration and the number that are reported.

A protocol's choices read the curve ``valid`` alone. ``test``, where there is one, is read at the chosen place and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.training.trial import Outcome

__all__ = ["Choice", "Selection", "average_best", "best_of", "evaluate", "mean_and_std", "select"]

DIGITS = 7
"""Averages are rounded to so many digits before they are compared, so that ties are ties."""

Curve = npt.NDArray[np.float32]
NONE: Curve = np.empty(0, np.float32)


class Choice(NamedTuple):
    """What was chosen for one member (a fold and a seed), and what it scored."""

    fold: int
    seed: int
    configuration: int
    """Its place among the candidates."""
    epoch: int | None
    """Counted from 1; None for a member that diverged."""
    score: float
    """The reported metric at that epoch, between 0 and 1; NaN for a member that diverged."""
    ties: int = 1
    """Pairs of configuration and epoch that the choosing graphs cannot tell apart; the score is their average."""


@dataclass(frozen=True)
class Selection:
    """What a protocol reports of one normalization."""

    protocol: Protocol
    choices: tuple[Choice, ...]
    """In the order of folds and seeds."""

    @property
    def scores(self) -> dict[int, float]:
        """The metric of every unit (fold, or seed under ``ogb``); NaN where all its members diverged.

        A fold with several seeds counts once, with their average: they share its graphs.
        """
        units: dict[int, list[float]] = {}
        for choice in self.choices:
            units.setdefault(getattr(choice, self.protocol.unit), []).append(choice.score)
        return {unit: _average(values) for unit, values in sorted(units.items())}

    @property
    def mean(self) -> float:
        """The average over units; NaN where every member diverged."""
        return mean_and_std(list(self.scores.values()))[0]

    @property
    def std(self) -> float:
        """The sample standard deviation (n − 1) over units; NaN where fewer than two are left."""
        return mean_and_std(list(self.scores.values()))[1]

    @property
    def epoch(self) -> int | None:
        """The epoch that all members share, or None where they do not."""
        epochs = {choice.epoch for choice in self.choices if choice.epoch is not None}
        return epochs.pop() if len(epochs) == 1 else None

    @property
    def diverged(self) -> int:
        """How many members have no score."""
        return sum(choice.epoch is None for choice in self.choices)


def select(candidates: Sequence[Sequence[Outcome]]) -> Selection:
    """Choose configuration and epoch as the protocol says.

    candidates: for each configuration its outcomes, one for every fold and seed, the same ones for all.

    Ties go to the first configuration and to the earliest epoch. Under a nested protocol, where the few graphs that
    choose in a fold leave many pairs of configuration and epoch equal, the score is the average over all of these: what
    a tie broken by chance has on average, whatever the order of the grid. Members that diverged are left out of
    averages; a configuration with fewer of them is preferred whatever the rest of it scores.
    """
    grids = [{(o.trial.fold, o.trial.seed): o for o in outcomes} for outcomes in candidates]
    if not grids or not grids[0]:
        raise ValueError("there is no outcome to choose from")
    if any(grid.keys() != grids[0].keys() for grid in grids):
        raise ValueError("the configurations were not trained on the same folds and seeds")
    names = {outcome.trial.protocol for grid in grids for outcome in grid.values()}
    if len(names) != 1:
        raise ValueError(f"outcomes of several protocols cannot be mixed: {', '.join(sorted(names))}")
    protocol = find_protocol(names.pop())
    members = sorted(grids[0])
    groups = [[m for m in members if m[0] == fold] for fold in sorted({fold for fold, _ in members})]
    choices = []
    for group in groups if protocol.nested else [members]:
        options = [evaluate([_valid(grid[m]) for m in group], protocol) for grid in grids]
        ranks = [(option.diverged, -option.validation) for option in options]
        best = ranks.index(min(ranks))
        equal = [grid for grid, rank in zip(grids, ranks, strict=True) if rank == ranks[best]]
        for (fold, seed), epoch in zip(group, options[best].epochs, strict=True):
            if protocol.nested:
                scores = np.concatenate([_at_ties(grid[fold, seed], protocol.reported) for grid in equal])
            else:
                scores = _at(grids[best][fold, seed], protocol.reported, epoch)
            choices.append(Choice(fold, seed, best, epoch, _average(scores.tolist()), max(1, len(scores))))
    return Selection(protocol, tuple(choices))


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Average and sample standard deviation of the values that are numbers; NaN where too few are.

    >>> mean_and_std([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951)
    """
    known = np.array([value for value in values if np.isfinite(value)])
    return (
        float(known.mean()) if len(known) else float("nan"),
        float(known.std(ddof=1)) if len(known) > 1 else float("nan"),
    )


class Option(NamedTuple):
    """How a configuration does on a group of members."""

    diverged: int
    validation: float
    epochs: list[int | None]
    """For each member, counted from 1; None for one that diverged."""


def evaluate(curves: Sequence[Curve | None], protocol: Protocol) -> Option:
    """Give what a configuration's validation curves, None for a member that diverged, come to."""
    alive = [curve for curve in curves if curve is not None]
    diverged = len(curves) - len(alive)
    if not alive:
        return Option(diverged, -np.inf, [None] * len(curves))
    chosen_by = _chosen_by(np.stack(alive))
    if protocol.one_epoch:
        average = chosen_by.mean(axis=0).round(DIGITS)
        epochs = iter([int(average.argmax()) + 1] * len(alive))
        validation = float(average.max())
    else:
        epochs = iter((chosen_by.argmax(axis=1) + 1).tolist())
        validation = float(average_best(chosen_by.max(axis=1), np.ones(len(alive), bool)))
    return Option(diverged, validation, [None if curve is None else next(epochs) for curve in curves])


def best_of(curve: Curve) -> float:
    """The largest value of a validation curve, as it is compared.

    Of several curves, no epoch's average is above the average of these.

    >>> best_of(np.array([0.5, np.nan, 2 / 3], np.float32))
    0.6666667
    """
    return float(_chosen_by(curve).max(initial=-np.inf))


def average_best(bests: npt.NDArray[np.float64], alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """The average of what :func:`best_of` gives of members, (…, members), over those alive; −∞ where none is."""
    count = alive.sum(axis=-1)
    averages = np.where(alive, bests, 0.0).sum(axis=-1) / np.maximum(count, 1)
    return np.where(count, averages.round(DIGITS), -np.inf)


def _chosen_by(curves: Curve) -> npt.NDArray[np.float64]:
    """What is compared: an epoch without a number is never chosen."""
    rounded = curves.astype(np.float64).round(DIGITS)
    return np.where(np.isfinite(rounded), rounded, -np.inf)


def _valid(outcome: Outcome) -> Curve | None:
    return None if outcome.status == "diverged" else outcome.curves["valid"]


def _at(outcome: Outcome, curve: str, epoch: int | None) -> Curve:
    """The value at an epoch; none of a member that diverged."""
    return NONE if epoch is None else outcome.curves[curve][epoch - 1 : epoch]


def _at_ties(outcome: Outcome, curve: str) -> Curve:
    """The values at all epochs whose validation is the best; none of a member that diverged."""
    valid = _valid(outcome)
    if valid is None:
        return NONE
    chosen_by = _chosen_by(valid)
    at: Curve = outcome.curves[curve][chosen_by == chosen_by.max()]
    return at


def _average(values: Sequence[float]) -> float:
    return mean_and_std(values)[0]
