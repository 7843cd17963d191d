"""Results: what a study chose for each normalization, and what that scored."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from operator import attrgetter
from typing import Any

from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.study.selection import DIGITS, Choice, Selection, average_best, evaluate, select
from graphnorm.study.standings import Standing, read_standings
from graphnorm.study.store import FINAL, SETTINGS, Store, Study
from graphnorm.training import Outcome

__all__ = ["NormResult", "study_results"]

Members = list[Standing]
"""Of one configuration, its folds and seeds."""
AT_ONCE = 32
"""Configurations whose curves are read in one go."""
SLACK = 10.0**-DIGITS
"""For the rounding of averages."""
NOTHING = float("-inf")


@dataclass(frozen=True)
class NormResult:
    """What a study says of one normalization."""

    norm: str
    trials: int
    finished: int
    configurations: tuple[dict[str, Any], ...]
    """The settings that differ between configurations, for each of them."""
    selection: Selection | None
    """None while no configuration is finished on every fold."""

    @property
    def chosen(self) -> dict[str, Any] | None:
        """The settings that all folds chose, or None where they differ."""
        if self.selection is None:
            return None
        places = {choice.configuration for choice in self.selection.choices}
        return self.configurations[places.pop()] if len(places) == 1 else None

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        found: dict[str, Any] = {"norm": self.norm, "trials": self.trials, "finished": self.finished}
        if self.selection is not None:
            found |= {
                "mean": self.selection.mean,
                "std": self.selection.std,
                "epoch": self.selection.epoch,
                "choices": [
                    choice._asdict() | {"configuration": self.configurations[choice.configuration]}
                    for choice in self.selection.choices
                ],
            }
        return found


def study_results(store: Store, study: Study) -> list[NormResult]:
    """Select by the study's protocol, for each normalization, from what is finished.

    A configuration takes part once it is finished on all its folds and seeds; under a nested protocol, where each fold
    chooses for itself, it takes part in a fold once it is finished there.
    """
    configurations, standings = read_standings(store, study)
    protocol = find_protocol(configurations[0].protocol)
    candidates: dict[str, dict[int, Members]] = {}
    for configuration, trial in enumerate(configurations):
        candidates.setdefault(trial.norm, {})[configuration] = []
    members = {number: rows for groups in candidates.values() for number, rows in groups.items()}
    for standing in standings:
        members[standing.configuration].append(standing)
    results = []
    for norm, groups in candidates.items():
        folds = [row.fold for row in next(iter(groups.values()))]
        units = [[k for k, f in enumerate(folds) if f == fold] for fold in dict.fromkeys(folds)]
        chooser = _Chooser(store, study, protocol)
        choices = chooser.choose(list(groups.values()), units if protocol.nested else [list(range(len(folds)))])
        settings = [
            dict(zip(SETTINGS, attrgetter(*SETTINGS)(configurations[number]), strict=True)) for number in groups
        ]
        varied = [name for name in SETTINGS if any(s[name] != settings[0][name] for s in settings)]
        results.append(
            NormResult(
                norm,
                trials=sum(len(rows) for rows in groups.values()),
                finished=sum(row.status in FINAL for rows in groups.values() for row in rows),
                configurations=tuple({name: values[name] for name in varied} for values in settings),
                selection=None if choices is None else Selection(protocol, tuple(choices)),
            )
        )
    return results


@dataclass(frozen=True)
class _Chooser:
    """Chooses between configurations, reading no more curves than it takes."""

    store: Store
    study: Study
    protocol: Protocol

    def choose(self, candidates: Sequence[Members], units: Sequence[Sequence[int]]) -> list[Choice] | None:
        """What each unit chooses among the configurations that are finished on it; None where one has none."""
        choices: list[Choice] = []
        members = [(row.fold, row.seed) for row in candidates[0]]
        if any([(row.fold, row.seed) for row in group] != members for group in candidates):
            raise ValueError("the configurations were not trained on the same folds and seeds")
        for unit in units:
            finished: dict[int, Members] = {}
            for number, group in enumerate(candidates):
                rows = [group[k] for k in unit]
                if all(row.status in FINAL for row in rows):
                    finished[number] = rows
            if not finished:
                return None
            best = self._best(finished)
            chosen = select([self._outcomes(finished[best])]).choices
            choices += [choice._replace(configuration=best) for choice in chosen]
        return choices

    def _best(self, finished: dict[int, Members]) -> int:
        """The configuration that :func:`select` would choose among all.

        The average of the members' best is what decides where each has its own epoch. Where they share one, no epoch's
        average is above it: the curves are read from the most promising configuration on, until no other can be better.
        """
        fewest = min(_diverged(rows) for rows in finished.values())
        bounds = {number: _bound(rows) for number, rows in finished.items() if _diverged(rows) == fewest}
        order = sorted(bounds, key=lambda number: (-bounds[number], number))
        if not self.protocol.one_epoch:
            return order[0]
        found: dict[int, float] = {}
        for start in range(0, len(order), AT_ONCE):
            promising = [
                k for k in order[start : start + AT_ONCE] if bounds[k] + SLACK >= max(found.values(), default=NOTHING)
            ]
            if not promising:
                break
            found |= self._validations({number: finished[number] for number in promising})
        return min(found, key=lambda number: (-found[number], number))

    def _validations(self, configurations: dict[int, Members]) -> dict[int, float]:
        places = [row.place for rows in configurations.values() for row in rows if row.status != "diverged"]
        curves = self.store.curves(self.study, "valid", places)
        return {
            number: evaluate([curves.get(row.place) for row in rows], self.protocol).validation
            for number, rows in configurations.items()
        }

    def _outcomes(self, rows: Members) -> list[Outcome]:
        names = sorted({"valid", self.protocol.reported})
        records = self.store.records(self.study, curves=names, places=[row.place for row in rows])
        return [Outcome(r.trial, dict(r.curves), "diverged" if r.status == "diverged" else "done") for r in records]


def _diverged(rows: Members) -> int:
    return sum(row.status == "diverged" for row in rows)


def _bound(rows: Members) -> float:
    alive = [row.best for row in rows if row.status != "diverged"]
    return average_best(alive) if alive else NOTHING
