"""The cells of the paper's tables of scores: our score, the paper's number for it, and how ours was chosen.

A score is chosen among the configurations that a normalization has trained. Scores that are compared with each other
are read again, chosen only among configurations that all of them have.
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import TYPE_CHECKING, Any

from graphnorm.files import plain
from graphnorm.study.grouping import by_key
from graphnorm.study.paper_numbers import MOLHIV, Reported, reported
from graphnorm.study.plan import Plan
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reading import read
from graphnorm.study.render import short
from graphnorm.study.result import Result
from graphnorm.study.score import Score
from graphnorm.training import Trial, find_metric

if TYPE_CHECKING:
    from graphnorm.paper.reproduce import Work

__all__ = ["BASELINE", "FAIR", "FULL_SHIFT", "SETTINGS", "Cell", "find_cells", "leading_protocol", "reported_cell"]
__all__ += ["untrained"]

BASELINE = "baseline"
"""In place of the normalization."""
FULL_SHIFT = "graph, α = 1"
"""GraphNorm in the authors' code for ogbg-molhiv, which has no α: the same as our ``instance``."""
FAIR = "fair"
SETTINGS = ("lr", "batch_size", "dropout", "weight_decay")
"""The order in which settings are shown; others follow."""
SHORT_NAMES = {"batch_size": "batch", "weight_decay": "wd"}

Configurations = frozenset[frozenset[tuple[str, Any]]]
"""Each as the names and values of its settings."""


@dataclass(frozen=True, kw_only=True)
class Cell:
    """One score of ours, the paper's number for it, and how ours was chosen."""

    dataset: str
    model: str
    norm: str
    """As it is shown; :data:`BASELINE` for other methods."""
    score: Score
    """Without choices if nothing is trained."""
    planned: int
    """Configurations of the item's own grid, even if the study has only a part of it."""
    members_planned: int
    units: int
    """Folds, or seeds, as planned."""
    reported: Reported | None
    configuration: Mapping[str, Any] | None = None
    """The chosen settings; None if folds chose different ones, and for a baseline."""
    chosen: str | None = None
    """The chosen values of the settings that vary, for people."""
    is_of_own_grid: bool = True
    """Whether all configurations belong to the item's own grid."""
    repeats: bool = False
    """Whether it shows the measurement of another cell a second time."""
    common: Score | None = None
    """Chosen only among the configurations that all normalizations have; None if that is the same choice."""
    fair: Cell | None = None
    """The same cell under the protocol ``fair``."""
    among_fair: Score | None = None
    """Chosen only among the configurations that ``fair`` chose from; None if some of them are not trained."""

    @property
    def is_baseline(self) -> bool:
        return self.norm == BASELINE

    @property
    def protocol(self) -> str:
        return self.score.protocol.name

    @property
    def mean(self) -> float | None:
        """In percent; None if there is no score."""
        return None if math.isnan(self.score.mean) else self.score.mean

    @property
    def compared(self) -> int:
        """How many configurations were chosen from."""
        return self.score.compared

    @property
    def members(self) -> int:
        """Trained folds times seeds."""
        return len(self.score.choices)

    @property
    def epochs(self) -> list[int]:
        """The chosen epochs; empty if a score is the average over several that tie."""
        return [] if any(choice.ties > 1 for choice in self.score.choices) else self.score.epochs

    @property
    def epoch(self) -> int | None:
        """The epoch that all members share, or None."""
        return self.epochs[0] if len(set(self.epochs)) == 1 else None

    @property
    def difference(self) -> float | None:
        """Ours minus the reported mean, in percentage points."""
        return None if self.mean is None or self.reported is None else self.mean - self.reported.mean

    @property
    def within_std(self) -> bool | None:
        """Whether the difference is at most one reported standard deviation."""
        return self._is_at_most(self.reported and self.reported.std)

    @property
    def within_error(self) -> bool | None:
        """Whether the difference is at most one standard error of the reported mean."""
        return self._is_at_most(self.reported and self.reported.error)

    def _is_at_most(self, yardstick: float | None) -> bool | None:
        return None if self.difference is None or yardstick is None else abs(self.difference) <= yardstick

    @property
    def optimism(self) -> float | None:
        """By how many points choosing on the reported folds exceeds ``fair``, with the same configurations."""
        if self.among_fair is None or self.fair is None or self.fair.mean is None:
            return None
        return None if math.isnan(self.among_fair.mean) else self.among_fair.mean - self.fair.mean

    @property
    def extent(self) -> str:
        """How much of the grid it was chosen from; empty if the grid has one configuration."""
        if self.planned == 1:
            return ""
        if self.compared == 1:
            return "with one configuration"
        return "with the whole grid" if self.compared == self.planned else "with a part of the grid"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        chosen = None
        if self.configuration is not None:
            chosen = {"configuration": dict(self.configuration), "epoch": self.epoch}
        values = {
            "dataset": self.dataset,
            "model": self.model,
            "norm": self.norm,
            "protocol": self.protocol,
            "compared": self.compared,
            "planned": self.planned,
            "members": self.members,
            "members_planned": self.members_planned,
            "mean": self.mean,
            "std": self.score.std,
            "difference": self.difference,
            "within_one_sd": self.within_std,
            "within_one_se": self.within_error,
            "reported": self.reported and {"mean": self.reported.mean, "std": self.reported.std},
            "scores": self._by_unit(self.score),
            "chosen": chosen,
            "common": self._restricted(self.common),
            "device": self.score.devices,
            "repeats": self.repeats,
            "fair": self.fair,
            "among_fair": self._restricted(self.among_fair),
        }
        return {name: plain(value) for name, value in values.items()}

    def _restricted(self, score: Score | None) -> dict[str, Any] | None:
        """A choice among fewer configurations, for JSON."""
        if score is None:
            return None
        numbers = {"mean": score.mean, "std": score.std, "configurations": len(score.configurations)}
        return numbers | {"scores": self._by_unit(score)}

    def _by_unit(self, score: Score) -> list[float | None]:
        """The score of each fold or seed; None if it is not trained."""
        return [score.scores.get(unit) for unit in range(self.units)]


def untrained(norm: str, protocol: str) -> Score:
    return Score(norm, find_protocol(protocol), find_metric(protocol), trials=0, finished=0, configurations=())


def leading_protocol(protocols: Sequence[str]) -> str:
    """The protocol of a table: ``fair`` only if there is no other."""
    return next((name for name in protocols if name != FAIR), FAIR)


def reported_cell(dataset: str, model: str, norm: str, protocol: str) -> Reported | None:
    """The paper's number for a cell."""
    return reported(dataset, model, "graph" if norm == FULL_SHIFT else norm, protocol)


def find_cells(work: Work) -> list[Cell]:
    """The cells of a table of scores; those under ``fair`` belong to those of the item's other protocol.

    If the item has no other protocol, they stand alone. If the other one is not trained, its score is empty.
    """
    leading = leading_protocol(work.item.protocols)
    found: list[Cell] = []
    for (dataset, model), studies in by_key(work.studies, lambda study: (study[1].dataset, study[1].model)).items():
        by_protocol = {result.protocol.name: (plan, result) for plan, result in studies}
        study, beside = by_protocol.get(leading), None if leading == FAIR else by_protocol.get(FAIR)
        fair = {cell.norm: cell for cell in _cells(work, *beside)} if beside else {}
        if study:
            among = _among_those_of(work, *study, beside[1]) if beside else {}
            found += [
                replace(cell, fair=fair.get(cell.norm), among_fair=among.get(cell.norm))
                for cell in _cells(work, *study)
            ]
        else:
            found += [
                Cell(
                    dataset=dataset,
                    model=model,
                    norm=norm,
                    score=untrained(norm, leading),
                    planned=cell.planned,
                    members_planned=cell.members_planned,
                    units=0,
                    reported=reported_cell(dataset, model, norm, leading),
                    fair=cell,
                )
                for norm, cell in fair.items()
            ]
    return found


def _cells(work: Work, plan: Plan, result: Result) -> Iterator[Cell]:
    part, protocol = work.own_part(result), result.protocol.name
    own = part.grid.axes if part else {}
    common = _among_common(work, plan, result)
    for score in result.scores.values():
        norm = BASELINE if part is None else score.name
        cell = Cell(
            dataset=result.dataset,
            model=result.model,
            norm=norm,
            score=score,
            planned=max(len(score.configurations), len(part.grid) if part else 0),
            members_planned=max(score.members, part.members(protocol) if part else 0),
            units=result.units,
            reported=reported_cell(result.dataset, result.model, norm, protocol),
            is_of_own_grid=all(set(result.axes.get(name, ())) <= set(values) for name, values in own.items()),
            common=common.get(score.name),
        )
        if part is not None:
            cell = _with_choice(cell, result.axes, own)
        yield cell
        if result.dataset == MOLHIV and norm == "instance":
            theirs = reported_cell(MOLHIV, result.model, FULL_SHIFT, protocol)
            yield replace(cell, norm=FULL_SHIFT, reported=theirs, repeats=True)


def _with_choice(cell: Cell, axes: Mapping[str, Sequence[Any]], own: Mapping[str, Sequence[Any]]) -> Cell:
    """Add the chosen settings, and for people those that vary in the study's grid or in the item's own."""
    if cell.score.chosen is None or (cell.compared > 1 and not cell.epochs):
        return replace(cell, chosen="by fold" if cell.compared > 1 else None)
    settings = _settings(axes, cell.score.chosen)
    names = [name for name in dict.fromkeys((*SETTINGS, *axes)) if name in axes and name != "epochs"]
    varied = [name for name in names if len(axes[name]) > 1 or len(own.get(name, ())) > 1]
    shown = ", ".join(f"{SHORT_NAMES.get(name, name)} {short(settings[name])}" for name in varied)
    return replace(cell, configuration={name: settings[name] for name in names}, chosen=shown or None)


def _settings(axes: Mapping[str, Sequence[Any]], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the settings that have one value in the whole study."""
    return {name: chosen.get(name, values[0]) for name, values in axes.items()}


# Choices among fewer configurations


def _among_common(work: Work, plan: Plan, result: Result) -> dict[str, Score]:
    """Choices among the configurations that all normalizations have, where the choice was among others."""
    took = {name: tried for name, tried in _took_part(result).items() if result.scores[name].choices}
    shared = frozenset[frozenset[tuple[str, Any]]].intersection(*took.values()) if took else frozenset()
    others = [name for name, tried in took.items() if tried != shared or result.scores[name].compared != len(shared)]
    return _read_among(work, plan, result, dict.fromkeys(others, shared))


def _among_those_of(work: Work, plan: Plan, result: Result, other: Result) -> dict[str, Score]:
    """Choices among the configurations that another study chose from, where all of them are trained."""
    own = _took_part(result)
    wanted = {name: tried for name, tried in _took_part(other).items() if tried and tried <= own.get(name, frozenset())}
    return _read_among(work, plan, result, wanted if result.norms else {})


def _took_part(result: Result) -> dict[str, Configurations]:
    """The configurations that every fold chose from."""
    return {
        label: frozenset(
            frozenset(_settings(result.axes, score.configurations[place]).items()) for place in score.took_part
        )
        for label, score in result.scores.items()
    }


def _read_among(work: Work, plan: Plan, result: Result, wanted: Mapping[str, Configurations]) -> dict[str, Score]:
    """wanted: by normalization, the configurations to choose from."""
    found: dict[str, Score] = {}
    for configurations, norms in by_key(wanted, wanted.__getitem__).items():
        scores = read(work.store, plan, partial=True, among=partial(_is_among, configurations)).norms
        found |= {norm: scores.get(norm) or untrained(norm, result.protocol.name) for norm in norms}
    return found


def _is_among(configurations: Configurations, trial: Trial) -> bool:
    return any(all(getattr(trial, name) == value for name, value in one) for one in configurations)
