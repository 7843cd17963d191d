"""Results: what a study chose for each normalization, and what that scored."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from operator import attrgetter
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.study.selection import DIGITS, Choice, Selection, average_best, evaluate, select
from graphnorm.study.standings import DONE, OPEN, Standings, read_standings
from graphnorm.study.store import SETTINGS, Store, Study
from graphnorm.training import Outcome, Trial

__all__ = ["NormResult", "study_results"]

Numbers = npt.NDArray[np.int64]
"""Of configurations, in their order."""
AT_ONCE = 32
"""Configurations whose curves are read in one go."""
SLACK = 10.0**-DIGITS
"""For the rounding of averages."""


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
    compared: int = 0
    """Configurations that took part in it, in the fold with the fewest."""
    took_part: tuple[int, ...] = ()
    """The places of those that did in every fold."""

    @property
    def members(self) -> int:
        """Folds and seeds of a configuration, as planned."""
        return self.trials // len(self.configurations)

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


def study_results(
    store: Store, study: Study, *, partial: bool = False, among: Callable[[Trial], bool] | None = None
) -> list[NormResult]:
    """Select by the study's protocol, for each normalization, from what is finished.

    A configuration takes part once it is finished on all its folds and seeds; under a nested protocol, where each fold
    chooses for itself, it takes part in a fold once it is finished there.

    partial: where none is finished on all, the folds and seeds of the one that has most count, and no others.

    among: of which configurations there may be a choice, where not of all, by any trial of each; a normalization that
    is left none has no result.
    """
    standings = read_standings(store, study)
    chooser = _Chooser(store, study, standings, find_protocol(standings.configurations[0].protocol))
    groups: dict[str, list[int]] = {}
    for number, trial in enumerate(standings.configurations):
        if among is None or among(trial):
            groups.setdefault(trial.norm, []).append(number)
    results = []
    for norm, numbers in groups.items():
        chosen = chooser.choose(np.array(numbers), partial)
        values = attrgetter(*SETTINGS)
        settings = [dict(zip(SETTINGS, values(standings.configurations[k]), strict=True)) for k in numbers]
        varied = [name for name in SETTINGS if any(s[name] != settings[0][name] for s in settings)]
        results.append(
            NormResult(
                norm,
                trials=int((standings.places[numbers] >= 0).sum()),
                finished=int((standings.status[numbers] != OPEN).sum()),
                configurations=tuple({name: values[name] for name in varied} for values in settings),
                selection=None if chosen is None else Selection(chooser.protocol, chosen.choices),
                compared=0 if chosen is None else chosen.fewest,
                took_part=() if chosen is None else chosen.everywhere,
            )
        )
    return results


class _Chosen(NamedTuple):
    """What units chose, from how few configurations, and the places of those that were there for each of them."""

    choices: tuple[Choice, ...]
    fewest: int
    everywhere: tuple[int, ...]


@dataclass(frozen=True)
class _Chooser:
    """Chooses between configurations, reading no more curves than it takes."""

    store: Store
    study: Study
    standings: Standings
    protocol: Protocol

    def choose(self, numbers: Numbers, partial: bool) -> _Chosen | None:
        """What each unit chooses among the configurations that are finished on it.

        None where one has none, and where there is no unit. Where ``partial``, only the members count on which the
        configuration that has most of them is finished.
        """
        used = np.flatnonzero((self.standings.places[numbers] >= 0).any(axis=0)).tolist()
        if partial:
            there = self.standings.status[numbers][:, used] != OPEN
            most = there[there.sum(axis=1).argmax()]
            used = [member for member, finished in zip(used, most, strict=True) if finished]
        if not used:
            return None
        folds = {k: self.standings.members[k][0] for k in used}
        units = [[k for k in used if folds[k] == fold] for fold in dict.fromkeys(folds.values())]
        choices: list[Choice] = []
        fewest = len(numbers)
        for unit in units if self.protocol.nested else [used]:
            finished = numbers[(self.standings.status[numbers][:, unit] != OPEN).all(axis=1)]
            if not len(finished):
                return None
            fewest = min(fewest, len(finished))
            best = self._best(finished, unit)
            place = int(np.flatnonzero(numbers == best[0])[0])
            chosen = select([self._outcomes(number, unit) for number in best])
            choices += [choice._replace(configuration=place) for choice in chosen.choices]
        everywhere = np.flatnonzero((self.standings.status[numbers][:, used] != OPEN).all(axis=1))
        return _Chosen(tuple(choices), fewest, tuple(everywhere.tolist()))

    def _best(self, finished: Numbers, unit: list[int]) -> list[int]:
        """The configuration that :func:`select` would choose among all, and under a nested protocol its equals.

        The average of the members' best is what decides where each has its own epoch. Where they share one, no epoch's
        average is above it: the curves are read from the most promising configuration on, until no other can be better.
        """
        alive = self.standings.status[finished][:, unit] == DONE
        count = alive.sum(axis=1)
        finished, alive = finished[count == count.max()], alive[count == count.max()]
        bounds = average_best(self.standings.best[finished][:, unit], alive)
        order = np.argsort(-bounds, kind="stable")
        if not self.protocol.one_epoch:
            equals: list[int] = finished[bounds == bounds[order[0]]].tolist()
            return equals if self.protocol.nested else equals[:1]
        found: dict[int, float] = {}
        for start in range(0, len(order), AT_ONCE):
            part = order[start : start + AT_ONCE]
            part = part[bounds[part] + SLACK >= max(found.values(), default=-np.inf)]
            if not len(part):
                break
            found |= self._validations(finished[part].tolist(), unit)
        return [min(found, key=lambda number: (-found[number], number))]

    def _validations(self, numbers: list[int], unit: list[int]) -> dict[int, float]:
        alive = self.standings.status[numbers][:, unit] == DONE
        places = np.where(alive, self.standings.places[numbers][:, unit], -1).tolist()
        curves = self.store.curves(self.study, "valid", [place for row in places for place in row])
        return {
            number: evaluate([curves.get(place) for place in row], self.protocol).validation
            for number, row in zip(numbers, places, strict=True)
        }

    def _outcomes(self, number: int, unit: list[int]) -> list[Outcome]:
        names = sorted({"valid", self.protocol.reported})
        records = self.store.records(self.study, curves=names, places=self.standings.places[number, unit].tolist())
        return [Outcome(r.trial, dict(r.curves), "diverged" if r.status == "diverged" else "done") for r in records]
