"""Choices that the tables show beside a cell's own: by the same protocol, among fewer of the same trainings."""

from __future__ import annotations

import math
from collections.abc import Collection, Iterator
from typing import Any, NamedTuple

from graphnorm.paper.material import Measured
from graphnorm.paper.reported import Reported
from graphnorm.paper.tables import Score
from graphnorm.study.protocol import find_protocol
from graphnorm.study.results import NormResult, study_results
from graphnorm.study.selection import Selection
from graphnorm.study.store import Store
from graphnorm.training import Trial

__all__ = ["AmongFewer", "among_common", "among_those_of", "by_unit", "score_of"]

Settings = tuple[tuple[str, Any], ...]
"""Names and values, in the order of names."""


class AmongFewer(NamedTuple):
    """A cell's score when the choice is among some of its configurations alone."""

    mean: float | None
    std: float | None
    configurations: int
    scores: tuple[float | None, ...]
    """By fold or seed, as those of a cell."""


def score_of(selection: Selection | None, said: Reported | None) -> Score:
    """In percent, beside what was reported."""
    return Score(None, reported=said) if selection is None else Score(100 * selection.mean, 100 * selection.std, said)


def by_unit(measured: Measured, selection: Selection | None) -> tuple[float | None, ...]:
    """The scores in percent, by fold or seed in order; None for one that is not trained, or diverged."""
    count = measured.study.spec[f"{find_protocol(measured.protocol).unit}s"]
    found = {} if selection is None else selection.scores
    values = [found.get(unit, math.nan) for unit in range(count)]
    return tuple(None if math.isnan(value) else 100 * value for value in values)


def among_common(measured: Measured) -> dict[str, AmongFewer]:
    """By normalization, for those that chose among others than the configurations that all with a score have."""
    there = [result for result in measured.results if result.selection is not None]
    sets = {result.norm: set(_took_part(measured, result)) for result in there}
    shared = set.intersection(*sets.values()) if sets else set()
    other = [result.norm for result in there if (sets[result.norm], result.compared) != (shared, len(shared))]
    chosen = _chosen_among(measured, frozenset(shared)) if other else {}
    return {norm: _among_fewer(measured, chosen.get(norm), len(shared)) for norm in other}


def among_those_of(measured: Measured, other: Measured) -> dict[str, AmongFewer]:
    """What ``measured`` chooses among the configurations of another study of it, by normalization, where it has all."""
    own = {result.norm: set(_took_part(measured, result)) for result in measured.results}
    wanted = {result.norm: frozenset(_took_part(other, result)) for result in other.results}
    shared = {norm: few for norm, few in wanted.items() if few and few <= own.get(norm, set())}
    chosen = {few: _chosen_among(measured, few) for few in set(shared.values())}
    return {norm: _among_fewer(measured, chosen[few].get(norm), len(few)) for norm, few in shared.items()}


def _took_part(measured: Measured, result: NormResult) -> Iterator[Settings]:
    """The configurations that all folds chose from, with the settings of which the study has but one value."""
    axes = {name: values for name, values in measured.study.spec["grid"].items() if name != "name"}
    fixed = {name: values[0] for name, values in axes.items() if len(values) == 1}
    for place in result.took_part:
        yield tuple(sorted((fixed | result.configurations[place]).items()))


def _among_fewer(measured: Measured, selection: Selection | None, configurations: int) -> AmongFewer:
    score = score_of(selection, None)
    return AmongFewer(score.mean, score.std, configurations, by_unit(measured, selection))


def _chosen_among(measured: Measured, configurations: Collection[Settings]) -> dict[str, Selection | None]:
    """What is chosen among these alone, by normalization."""

    def is_one_of_them(trial: Trial) -> bool:
        return any(all(getattr(trial, name) == value for name, value in one) for one in configurations)

    with Store(measured.store, writable=False) as store:
        results = study_results(store, measured.study, partial=True, among=is_one_of_them)
    return {result.norm: result.selection for result in results}
