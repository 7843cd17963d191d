"""Selection: from the curves of trained members to the reported epoch, configuration and score.

Protocols select by the curve ``valid`` alone. The curve ``test`` is read only at the selected epochs.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import TYPE_CHECKING, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.study.grouping import by_key
from graphnorm.study.plan import Plan
from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.training.trial import Outcome, metric_of

if TYPE_CHECKING:
    from graphnorm.study.store import Record, Store

__all__ = ["TARGETS", "Choice", "Chosen", "best_of", "choose", "mean_and_std", "select"]

SAME = 2e-7
"""Values within this share of the best tie with it. Curves are float32; real differences of accuracies are larger."""
TARGETS = "targets"
"""The name of :attr:`Outcome.targets` among the curves of a store, which has them epoch by epoch."""
AT_ONCE = 32
"""Configurations whose curves are read together."""
DONE, DIVERGED, OPEN = range(3)

Curve = npt.NDArray[np.float32]
Integers = npt.NDArray[np.int64]
Member = tuple[int, int]
"""A fold and a seed."""
NONE: Curve = np.empty(0, np.float32)


class Choice(NamedTuple):
    """The selected configuration and epoch of one member, a fold and a seed, and its score."""

    fold: int
    seed: int
    configuration: int
    """Index among the candidates."""
    epoch: int | None
    """Counted from 1; None for a member that diverged."""
    score: float
    """The reported metric at that epoch; NaN for a member that diverged."""
    ties: int = 1
    """Number of pairs of configuration and epoch that tie for best; the score is their average."""
    targets: tuple[float, ...] = ()
    """Of several targets, the metric of each, at the same epochs; NaN where it is not defined."""


def select(candidates: Sequence[Sequence[Outcome]]) -> tuple[Choice, ...]:
    """Select configuration and epoch by the protocol.

    candidates: for each configuration its outcomes, one for every fold and seed.

    Curves are averaged over members, then compared. Ties go to the first configuration and the earliest epoch. Under a
    nested protocol the validation part of a fold is so small that many pairs of configuration and epoch tie; the score
    is the average over all of them, which does not depend on the order of the grid. Averages leave out members that
    diverged. A configuration with fewer of those is preferred, whatever its score.
    """
    trial = candidates[0][0].trial
    protocol, sign = find_protocol(trial.protocol), metric_of(trial).sign
    trained = [{(o.trial.fold, o.trial.seed): o for o in outcomes} for outcomes in candidates]
    choices = []
    for unit in _units(sorted(trained[0]), protocol):
        options = [_evaluate([_valid(outcomes[member]) for member in unit], protocol, sign) for outcomes in trained]
        fewest = min(option.diverged for option in options)
        ties = _ties(np.array([o.validation if o.diverged == fewest else -np.inf for o in options]))
        best = int(ties.argmax())
        equal = [outcomes for outcomes, tied in zip(trained, ties, strict=True) if tied]
        for member, epoch in zip(unit, options[best].epochs, strict=True):
            if protocol.nested:
                read = [(outcomes[member], _tied_epochs(outcomes[member], sign)) for outcomes in equal]
            else:
                read = [(trained[best][member], [] if epoch is None else [epoch - 1])]
            read = [(outcome, epochs) for outcome, epochs in read if epochs]
            scores = np.concatenate([NONE, *(outcome.curves[protocol.reported][epochs] for outcome, epochs in read)])
            score, tied = mean_and_std(scores.tolist())[0], max(1, len(scores))
            choices.append(Choice(*member, best, epoch, score, tied, _by_target(read)))
    return tuple(choices)


def _units(members: Iterable[Member], protocol: Protocol) -> list[list[Member]]:
    """The members that select together: those of a fold under a nested protocol, otherwise all."""
    return list(by_key(members, lambda member: member[0] if protocol.nested else 0).values())


def mean_and_std(values: Sequence[float]) -> tuple[float, float]:
    """Mean and sample standard deviation of the finite values; NaN if there are too few.

    >>> mean_and_std([1.0, 3.0, float("nan")])
    (2.0, 1.4142135623730951)
    """
    known = np.array([value for value in values if np.isfinite(value)])
    return (
        float(known.mean()) if len(known) else float("nan"),
        float(known.std(ddof=1)) if len(known) > 1 else float("nan"),
    )


class _Option(NamedTuple):
    """A configuration on a group of members."""

    diverged: int
    validation: float
    """Higher is better: the negative of an error."""
    epochs: list[int | None]
    """Counted from 1; None for a member that diverged."""


def _evaluate(curves: Sequence[Curve | None], protocol: Protocol, sign: int) -> _Option:
    """Evaluate a configuration by its validation curves; None stands for a member that diverged."""
    alive = [curve for curve in curves if curve is not None]
    diverged = len(curves) - len(alive)
    if not alive:
        return _Option(diverged, -np.inf, [None] * len(curves))
    chosen_by = _chosen_by(np.stack(alive), sign)
    if protocol.one_epoch:
        average = chosen_by.mean(axis=0)
        epochs = iter([int(_ties(average).argmax()) + 1] * len(alive))
        validation = float(average.max())
    else:
        epochs = iter([int(_ties(curve).argmax()) + 1 for curve in chosen_by])
        validation = float(_average_best(chosen_by.max(axis=1), np.ones(len(alive), bool)))
    return _Option(diverged, validation, [None if curve is None else next(epochs) for curve in curves])


def best_of(curve: Curve, sign: int = 1) -> float:
    """The best value of a validation curve; infinite if it has none.

    The average of several curves at one epoch is at most as good as the average of these.

    sign: :attr:`Metric.sign`.

    >>> curve = np.array([0.5, np.nan, 0.75], np.float32)
    >>> best_of(curve), best_of(curve, sign=-1)
    (0.75, 0.5)
    """
    return sign * float(_chosen_by(curve, sign).max(initial=-np.inf))


def _average_best(bests: npt.NDArray[np.float64], alive: npt.NDArray[np.bool_]) -> npt.NDArray[np.float64]:
    """Average :func:`best_of` over the members that did not diverge (last axis); −∞ if all did."""
    count = alive.sum(axis=-1)
    averages = np.where(alive, bests, 0.0).sum(axis=-1) / np.maximum(count, 1)
    return np.where(count, averages, -np.inf)


def _chosen_by(curves: Curve, sign: int) -> npt.NDArray[np.float64]:
    """Curves in which higher is better. Epochs with NaN become −∞, so they are never chosen."""
    values = sign * curves.astype(np.float64)
    return np.where(np.isfinite(values), values, -np.inf)


def _ties(values: npt.NDArray[np.float64]) -> npt.NDArray[np.bool_]:
    """Which values tie for the best."""
    tied: npt.NDArray[np.bool_] = values >= _floor(float(values.max()))
    return tied


def _floor(best: float) -> float:
    """The smallest value that ties with the best."""
    return best - SAME * abs(best)


def _valid(outcome: Outcome) -> Curve | None:
    return None if outcome.status == "diverged" else outcome.curves["valid"]


def _tied_epochs(outcome: Outcome, sign: int) -> list[int]:
    """All epochs that tie for the best validation, counted from 0; none for a member that diverged."""
    valid = _valid(outcome)
    return [] if valid is None else np.flatnonzero(_ties(_chosen_by(valid, sign))).tolist()


def _by_target(read: Sequence[tuple[Outcome, list[int]]]) -> tuple[float, ...]:
    """The metric of each target, averaged over epochs of outcomes; nothing if an outcome does not have it."""
    if not read or not all(outcome.targets.size for outcome, _ in read):
        return ()
    rows = np.concatenate([outcome.targets[epochs] for outcome, epochs in read])
    return tuple(mean_and_std(column.tolist())[0] for column in rows.T)


# From a store


class Chosen(NamedTuple):
    """The selection for one normalization; see the fields of the same names of :class:`~.score.Score`."""

    choices: tuple[Choice, ...] = ()
    compared: int = 0
    took_part: tuple[int, ...] = ()


def choose(
    store: Store, plan: Plan, groups: Sequence[Sequence[int]], records: dict[int, Record], *, partial: bool = False
) -> Chosen:
    """Select among configurations by the plan's protocol, reading as few curves as possible.

    A configuration takes part once it is finished on all folds and seeds. Under a nested protocol each fold selects for
    itself, among the configurations that are finished there. No choices if nothing can be selected.

    groups: for each configuration, the places of its trials in the plan.
    records: the records of these trials, by place.
    partial: use only the folds and seeds of the configuration that is finished on the most.
    """
    candidates = _Candidates(store, plan, groups, records)
    used = candidates.members
    if partial:
        there = candidates.status != OPEN
        used = [used[column] for column in np.flatnonzero(there[there.sum(axis=1).argmax()])]
    if not used:
        return Chosen()
    choices: list[Choice] = []
    fewest = len(groups)
    for unit in _units(used, candidates.protocol):
        finished = candidates.finished(unit)
        if not len(finished):
            return Chosen()
        fewest = min(fewest, len(finished))
        best = candidates.best(finished, unit)
        outcomes = [candidates.outcomes(configuration, unit) for configuration in best]
        choices += [choice._replace(configuration=best[0]) for choice in select(outcomes)]
    return Chosen(tuple(choices), fewest, tuple(candidates.finished(used).tolist()))


class _Candidates:
    """Places and statuses of trials, as arrays: a row for each configuration, a column for each member."""

    def __init__(
        self,
        store: Store,
        plan: Plan,
        groups: Sequence[Sequence[int]],
        records: dict[int, Record],
    ) -> None:
        self._store, self._plan = store, plan
        first = plan.trials[groups[0][0]]
        self.protocol, self._sign = find_protocol(first.protocol), metric_of(first).sign
        member_of = {place: (plan.trials[place].fold, plan.trials[place].seed) for group in groups for place in group}
        self.members: list[Member] = list(dict.fromkeys(member_of.values()))
        self._column = {member: k for k, member in enumerate(self.members)}
        shape = (len(groups), len(self.members))
        self._places = np.full(shape, -1)
        self.status = np.full(shape, OPEN)
        self._best = np.full(shape, -np.inf)
        for row, group in enumerate(groups):
            for place in group:
                at = row, self._column[member_of[place]]
                self._places[at] = place
                if (record := records.get(place)) is not None:
                    self.status[at] = {"done": DONE, "diverged": DIVERGED}.get(record.status, OPEN)
                    self._best[at] = -np.inf if record.best is None else self._sign * record.best

    def _columns(self, members: Sequence[Member]) -> list[int]:
        return [self._column[member] for member in members]

    def finished(self, unit: Sequence[Member]) -> Integers:
        """The configurations that are trained on all these members."""
        return np.flatnonzero((self.status[:, self._columns(unit)] != OPEN).all(axis=1))

    def best(self, finished: Integers, unit: Sequence[Member]) -> list[int]:
        """The configuration that :func:`select` would choose among all, and under a nested protocol those that tie.

        If each member has its own epoch, the average of the members' best values decides. If they share one epoch, that
        average is an upper bound: curves are read from the highest bound down, until no other configuration can win.
        """
        columns = self._columns(unit)
        alive = self.status[finished][:, columns] == DONE
        count = alive.sum(axis=1)
        finished, alive = finished[count == count.max()], alive[count == count.max()]
        bounds = _average_best(self._best[finished][:, columns], alive)
        order = np.argsort(-bounds, kind="stable")
        if not self.protocol.one_epoch:
            equals: list[int] = finished[_ties(bounds)].tolist()
            return equals if self.protocol.nested else equals[:1]
        found: dict[int, float] = {}
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            part = part[bounds[part] >= _floor(max(found.values(), default=-np.inf))]
            if not len(part):
                break
            found |= self._validations(finished[part].tolist(), columns)
        best = _floor(max(found.values()))
        return [min(configuration for configuration, value in found.items() if value >= best)]

    def _validations(self, configurations: list[int], columns: list[int]) -> dict[int, float]:
        alive = self.status[configurations][:, columns] == DONE
        places = np.where(alive, self._places[configurations][:, columns], -1).tolist()
        read = [place for row in places for place in row if place >= 0]
        records = self._store.records(self._plan, curves=["valid"], places=read)
        valid = {record.place: record.curves["valid"] for record in records}
        return {
            configuration: _evaluate([valid.get(place) for place in row], self.protocol, self._sign).validation
            for configuration, row in zip(configurations, places, strict=True)
        }

    def outcomes(self, configuration: int, unit: Sequence[Member]) -> list[Outcome]:
        """The outcomes of a configuration, with the curves that select and report."""
        names = sorted({"valid", self.protocol.reported, TARGETS})
        places = self._places[configuration, self._columns(unit)].tolist()
        records = self._store.records(self._plan, curves=names, places=places)
        return [record.outcome for record in records]
