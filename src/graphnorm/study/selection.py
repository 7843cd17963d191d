"""Selection: from the curves of trained members to the epoch, the configuration and the number that are reported.

A protocol's choices read the curve ``valid`` alone. ``test``, where there is one, is read at the chosen place and
nowhere else.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.training.trial import Outcome

if TYPE_CHECKING:
    from graphnorm.study.plan import Plan
    from graphnorm.study.store import Record, Store

__all__ = ["Choice", "Chosen", "best_of", "choose", "mean_and_std", "select"]

DIGITS = 7
"""Averages are rounded to so many digits before they are compared, so that ties are ties."""
SLACK = 10.0**-DIGITS
"""For the rounding of averages."""
AT_ONCE = 32
"""Configurations whose curves are read in one go."""
DONE, DIVERGED, OPEN = range(3)

Curve = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
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
    """The reported metric at that epoch; NaN for a member that diverged."""
    ties: int = 1
    """Pairs of configuration and epoch that the choosing graphs cannot tell apart; the score is their average."""


def select(candidates: Sequence[Sequence[Outcome]]) -> tuple[Choice, ...]:
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
        options = [_evaluate([_valid(grid[m]) for m in group], protocol) for grid in grids]
        ranks = [(option.diverged, -option.validation) for option in options]
        best = ranks.index(min(ranks))
        equal = [grid for grid, rank in zip(grids, ranks, strict=True) if rank == ranks[best]]
        for (fold, seed), epoch in zip(group, options[best].epochs, strict=True):
            if protocol.nested:
                scores = np.concatenate([_at_ties(grid[fold, seed], protocol.reported) for grid in equal])
            else:
                scores = _at(grids[best][fold, seed], protocol.reported, epoch)
            choices.append(Choice(fold, seed, best, epoch, _average(scores.tolist()), max(1, len(scores))))
    return tuple(choices)


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


class _Option(NamedTuple):
    """How a configuration does on a group of members."""

    diverged: int
    validation: float
    epochs: list[int | None]
    """For each member, counted from 1; None for one that diverged."""


def _evaluate(curves: Sequence[Curve | None], protocol: Protocol) -> _Option:
    """How a configuration does, by its validation curves; None stands for a member that diverged."""
    alive = [curve for curve in curves if curve is not None]
    diverged = len(curves) - len(alive)
    if not alive:
        return _Option(diverged, -np.inf, [None] * len(curves))
    chosen_by = _chosen_by(np.stack(alive))
    if protocol.one_epoch:
        average = chosen_by.mean(axis=0).round(DIGITS)
        epochs = iter([int(average.argmax()) + 1] * len(alive))
        validation = float(average.max())
    else:
        epochs = iter((chosen_by.argmax(axis=1) + 1).tolist())
        validation = float(_average_best(chosen_by.max(axis=1), np.ones(len(alive), bool)))
    return _Option(diverged, validation, [None if curve is None else next(epochs) for curve in curves])


def best_of(curve: Curve) -> float:
    """The largest value of a validation curve, as it is compared.

    Of several curves, no epoch's average is above the average of these.

    >>> best_of(np.array([0.5, np.nan, 2 / 3], np.float32))
    0.6666667
    """
    return float(_chosen_by(curve).max(initial=-np.inf))


def _average_best(bests: npt.NDArray[np.float64], alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
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


# From a store


class Chosen(NamedTuple):
    """What the protocol chose for one normalization."""

    choices: tuple[Choice, ...]
    """In the order of folds and seeds."""
    compared: int
    """Configurations that took part, in the fold with the fewest."""
    took_part: tuple[int, ...]
    """The places of those that did in every fold."""


def choose(
    store: Store, plan: Plan, groups: Sequence[Sequence[int]], records: dict[int, Record], *, partial: bool = False
) -> Chosen | None:
    """Choose between configurations by the plan's protocol, reading no more curves than it takes.

    A configuration takes part once it is finished on all its folds and seeds; under a nested protocol, where each fold
    chooses for itself, it takes part in a fold once it is finished there. None where nothing can be chosen.

    groups: for each configuration the places of its trials in the plan.
    records: what the store has of these trials, by place.
    partial: where no configuration is finished on all members, those of the one that has most count, and no others.
    """
    protocol = find_protocol(plan.trials[groups[0][0]].protocol)
    members = list(dict.fromkeys((plan.trials[p].fold, plan.trials[p].seed) for group in groups for p in group))
    table = _Table(store, plan, protocol, groups, members, records)
    used = list(range(len(members)))
    if partial:
        there = table.status != OPEN
        used = np.flatnonzero(there[there.sum(axis=1).argmax()]).tolist()
    if not used:
        return None
    folds = {member: members[member][0] for member in used}
    units = [[k for k in used if folds[k] == fold] for fold in dict.fromkeys(folds.values())]
    choices: list[Choice] = []
    fewest = len(groups)
    for unit in units if protocol.nested else [used]:
        finished = np.flatnonzero((table.status[:, unit] != OPEN).all(axis=1))
        if not len(finished):
            return None
        fewest = min(fewest, len(finished))
        best = table.best(finished, unit)
        outcomes = [table.outcomes(configuration, unit) for configuration in best]
        choices += [choice._replace(configuration=best[0]) for choice in select(outcomes)]
    everywhere = np.flatnonzero((table.status[:, used] != OPEN).all(axis=1))
    return Chosen(tuple(choices), fewest, tuple(everywhere.tolist()))


class _Table:
    """Where trials stand, as arrays of shape (configurations, members)."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        protocol: Protocol,
        groups: Sequence[Sequence[int]],
        members: Sequence[tuple[int, int]],
        records: dict[int, Record],
    ) -> None:
        self._store, self._plan, self._protocol = store, plan, protocol
        column = {member: k for k, member in enumerate(members)}
        shape = (len(groups), len(members))
        self.places = np.full(shape, -1)
        self.status = np.full(shape, OPEN)
        self._best = np.full(shape, -np.inf)
        for row, group in enumerate(groups):
            for place in group:
                at = row, column[plan.trials[place].fold, plan.trials[place].seed]
                self.places[at] = place
                if (record := records.get(place)) is not None:
                    self.status[at] = {"done": DONE, "diverged": DIVERGED}.get(record.status, OPEN)
                    self._best[at] = -np.inf if record.best is None else record.best

    def best(self, finished: Integers, unit: list[int]) -> list[int]:
        """The configuration that :func:`select` would choose among all, and under a nested protocol its equals.

        The average of the members' best decides where each has its own epoch. Where they share one, no epoch's average
        is above it: the curves are read from the most promising configuration on, until no other can be better.
        """
        alive = self.status[finished][:, unit] == DONE
        count = alive.sum(axis=1)
        finished, alive = finished[count == count.max()], alive[count == count.max()]
        bounds = _average_best(self._best[finished][:, unit], alive)
        order = np.argsort(-bounds, kind="stable")
        if not self._protocol.one_epoch:
            equals: list[int] = finished[bounds == bounds[order[0]]].tolist()
            return equals if self._protocol.nested else equals[:1]
        found: dict[int, float] = {}
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            part = part[bounds[part] + SLACK >= max(found.values(), default=-np.inf)]
            if not len(part):
                break
            found |= self._validations(finished[part].tolist(), unit)
        return [min(found, key=lambda configuration: (-found[configuration], configuration))]

    def _validations(self, configurations: list[int], unit: list[int]) -> dict[int, float]:
        alive = self.status[configurations][:, unit] == DONE
        places = np.where(alive, self.places[configurations][:, unit], -1).tolist()
        curves = self._curves([place for row in places for place in row if place >= 0], ["valid"])
        return {
            configuration: _evaluate(
                [curves[p]["valid"] if p in curves else None for p in row], self._protocol
            ).validation
            for configuration, row in zip(configurations, places, strict=True)
        }

    def outcomes(self, configuration: int, unit: list[int]) -> list[Outcome]:
        """The members of a configuration, with the curves that choices and scores are made of."""
        names = sorted({"valid", self._protocol.reported})
        records = self._store.records(self._plan, curves=names, places=self.places[configuration, unit].tolist())
        return [record.outcome for record in records]

    def _curves(self, places: Iterable[int], names: Sequence[str]) -> dict[int, dict[str, Curve]]:
        records = self._store.records(self._plan, curves=names, places=places)
        return {record.place: dict(record.curves) for record in records}
