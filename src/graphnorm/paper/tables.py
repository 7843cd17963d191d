"""The paper's tables: scores beside the reported ones, in rows and in the paper's own layout; datasets; theory."""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from operator import attrgetter
from statistics import mean
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphnorm.analysis import affordable, conditions, interlacing, spectra
from graphnorm.analysis.parts import Subject, theory_part
from graphnorm.data.catalog import find
from graphnorm.files import plain
from graphnorm.layers import make_norm
from graphnorm.models import MODELS
from graphnorm.paper.figures import AUTHORS_Q
from graphnorm.paper.output import Output, Sheet
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import NOTHING, Table, TwoLines, list_some, listing, short, signed
from graphnorm.study.reported import (
    MOLHIV,
    REPETITIONS,
    Reported,
    dataset_table,
    reported,
    reported_baseline,
)
from graphnorm.study.result import Score, read
from graphnorm.training import Trial

if TYPE_CHECKING:
    from graphnorm.paper.items import Trainings
    from graphnorm.paper.reproduce import Measured, Work

__all__ = ["Cell", "dataset_statistics", "find_cells", "scores", "theory"]

BASELINE = "baseline"
"""What stands in the place of the normalization."""
FULL_SHIFT = "graph, α = 1"
"""GraphNorm as the authors' code has it for ogbg-molhiv, without α: what is called ``instance`` here."""
FAIR = "fair"
"""The protocol that stands beside the paper's."""
SETTINGS = ("lr", "batch_size", "dropout", "weight_decay")
"""Of a configuration, in the order in which they are shown; others follow."""
SHORT_NAMES = {"batch_size": "batch", "weight_decay": "wd"}
WORK_OF_A_QUICK_PASS = 2e9


# Cells


@dataclass(frozen=True, kw_only=True)
class Cell:
    """A measured score beside the paper's, and what it is made of."""

    dataset: str
    model: str
    norm: str
    """As it is shown."""
    protocol: str
    score: Score | None
    """None where there is nothing of it."""
    reported: Reported | None
    planned: int
    """Configurations of the item's own grid, also where the study has a part of it."""
    members_planned: int
    units: int = 0
    """Folds, or seeds, as planned."""
    configuration: Mapping[str, Any] | None = None
    """The settings that were chosen; None where folds chose different ones or several, and of a baseline."""
    varied: tuple[str, ...] = ()
    """Those of which the grid has several values."""
    is_of_own_grid: bool = True
    """Whether all configurations are some of the item's own grid."""
    common: Restricted | None = None
    """Among those configurations that all normalizations have; None where that is the same choice."""
    repeats: bool = False
    """Whether it shows the measurement of another cell a second time."""
    fair: Cell | None = None
    """The same cell under that protocol."""
    among_fair: Restricted | None = None
    """The score when the choice is among those configurations alone that ``fair`` chose from, where all are there."""

    @property
    def mean(self) -> float | None:
        """In percent; None where there is no score."""
        return None if self.score is None else _known(self.score.mean)

    @property
    def std(self) -> float | None:
        """In percent."""
        return None if self.score is None else _known(self.score.std)

    @property
    def shown(self) -> str:
        """Mean and standard deviation."""
        return _mean_and_std(self.mean, self.std)

    @property
    def scores(self) -> list[float | None]:
        """By fold or seed, in order; None for one that is not trained, or diverged."""
        return _by_unit(self.score, self.units)

    @property
    def compared(self) -> int:
        """Configurations that the chosen one was compared with, itself included."""
        return self.score.compared if self.score else 0

    @property
    def members(self) -> int:
        """Folds times seeds that are trained."""
        return len(self.score.choices) if self.score else 0

    @property
    def devices(self) -> tuple[str, ...]:
        """Where the chosen trainings ran."""
        return self.score.devices if self.score else ()

    @property
    def epochs(self) -> tuple[int, ...]:
        """The chosen epochs; none where scores are averages over several that are as good."""
        if self.score is None or any(choice.ties > 1 for choice in self.score.choices):
            return ()
        return tuple(self.score.epochs)

    @property
    def epoch(self) -> int | None:
        """The epoch that all members share, or None where they do not."""
        return self.epochs[0] if len(set(self.epochs)) == 1 else None

    @property
    def difference(self) -> float | None:
        """Measured − reported, in percentage points."""
        return None if self.mean is None or self.reported is None else self.mean - self.reported.mean

    @property
    def within_std(self) -> bool | None:
        """Whether that is at most one reported standard deviation."""
        return self._is_at_most(self.reported and self.reported.std)

    @property
    def within_error(self) -> bool | None:
        """Whether it is at most one standard error of the reported mean."""
        return self._is_at_most(self.reported and self.reported.error)

    def _is_at_most(self, yardstick: float | None) -> bool | None:
        return None if self.difference is None or yardstick is None else abs(self.difference) <= yardstick

    @property
    def optimism(self) -> float | None:
        """In points, what choosing by the folds that are reported adds to ``fair``, with the same configurations."""
        higher, lower = self.among_fair, self.fair
        if higher is None or lower is None or higher.mean is None or lower.mean is None:
            return None
        return higher.mean - lower.mean

    @property
    def is_baseline(self) -> bool:
        """Whether it is of a method beside the normalized models."""
        return self.norm == BASELINE

    @property
    def chosen(self) -> str | None:
        """What was chosen of the settings that vary, for people."""
        if self.configuration is None:
            return "by fold" if self.compared > 1 and not self.is_baseline else None
        settings = [(name, self.configuration[name]) for name in self.varied if name in self.configuration]
        return ", ".join(f"{SHORT_NAMES.get(name, name)} {short(value)}" for name, value in settings) or None

    @property
    def extent(self) -> str:
        """From how much of the grid it was chosen, in words; nothing where there is no choice."""
        if self.planned == 1:
            return ""
        if self.compared == 1:
            return "with one configuration"
        return "with the whole grid" if self.compared == self.planned else "with a part of the grid"

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
        said = self.reported
        return {
            "dataset": self.dataset,
            "model": self.model,
            "norm": self.norm,
            "protocol": self.protocol,
            "compared": self.compared,
            "planned": self.planned,
            "members": self.members,
            "members_planned": self.members_planned,
            "mean": self.mean,
            "std": self.std,
            "difference": self.difference,
            "within_one_sd": self.within_std,
            "within_one_se": self.within_error,
            "reported": None if said is None else {"mean": said.mean, "std": said.std},
            "scores": self.scores,
            "chosen": None
            if self.configuration is None
            else {"configuration": dict(self.configuration), "epoch": self.epoch},
            "common": self.common and self.common._asdict(),
            "device": list(self.devices),
            "repeats": self.repeats,
            "fair": self.fair and self.fair.to_dict(),
            "among_fair": self.among_fair and self.among_fair._asdict(),
        }


class Restricted(NamedTuple):
    """A cell's score when the choice is among some of its configurations alone."""

    mean: float | None
    std: float | None
    configurations: int
    scores: list[float | None]
    """By fold or seed, as those of a cell."""


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _mean_and_std(mean_: float | None, std: float | None) -> str:
    if mean_ is None:
        return NOTHING
    return f"{mean_:.1f}" if std is None else f"{mean_:.1f} ± {std:.1f}"


def _by_unit(score: Score | None, units: int) -> list[float | None]:
    found = score.scores if score else {}
    return [_known(found.get(unit)) for unit in range(units)]


def find_cells(work: Work) -> list[Cell]:
    """The cells of a table of scores, those under ``fair`` beside those of the other protocol.

    Where the item has no other protocol, they stand alone. Where there is nothing of the other, its score is None.
    """
    groups: dict[tuple[str, str], dict[bool, Measured]] = {}
    alone = _is_fair_alone(work)
    for measured in work.studies:
        groups.setdefault((measured.dataset, measured.model), {})[alone or measured.protocol != FAIR] = measured
    found: list[Cell] = []
    for parts in groups.values():
        leads, follows = parts.get(True), parts.get(False)
        beside = {cell.norm: cell for cell in _cells(work, follows)} if follows else {}
        if leads is None:
            other = next(name for name in _protocols(work) if name != FAIR)
            found += [replace(_unmeasured(cell, other), fair=cell) for cell in beside.values()]
            continue
        same = _among_those_of(work, leads, follows) if follows and not leads.is_baseline else {}
        found += [
            replace(cell, fair=beside.get(cell.norm), among_fair=same.get(cell.norm)) for cell in _cells(work, leads)
        ]
    return found


def _protocols(work: Work) -> list[str]:
    parts = (*work.item.trained, *((work.item.baselines,) if work.item.baselines else ()))
    return [protocol for part in parts for protocol in part.protocols]


def _is_fair_alone(work: Work) -> bool:
    return set(_protocols(work)) == {FAIR}


def _unmeasured(cell: Cell, protocol: str) -> Cell:
    """The same cell under another protocol, of which there is nothing."""
    return Cell(
        dataset=cell.dataset,
        model=cell.model,
        norm=cell.norm,
        protocol=protocol,
        score=None,
        reported=_reported(cell.dataset, cell.model, cell.norm, protocol),
        planned=cell.planned,
        members_planned=cell.members_planned,
    )


def _reported(dataset: str, model: str, norm: str, protocol: str) -> Reported | None:
    if norm == BASELINE:
        return reported_baseline(dataset, model, protocol)
    return reported(dataset, model, norm, protocol)


def _cells(work: Work, measured: Measured) -> Iterator[Cell]:
    common = _among_common(work, measured)
    part = None if measured.is_baseline else _own_part(work, measured)
    grid = measured.plan.spec["grid"]
    for score in measured.scores:
        norm = BASELINE if measured.is_baseline else score.name
        cell = Cell(
            dataset=measured.dataset,
            model=measured.model,
            norm=norm,
            protocol=measured.protocol,
            score=score,
            reported=_reported(measured.dataset, measured.model, norm, measured.protocol),
            planned=max(len(score.configurations), 0 if part is None else len(part.grid)),
            members_planned=max(score.members, 0 if part is None else part.members(measured.protocol)),
            units=measured.units,
            varied=() if part is None else _varied(grid, part),
            is_of_own_grid=part is None or _is_part_of(grid, part),
            common=common.get(score.name),
        )
        cell = replace(cell, configuration=None if measured.is_baseline else _configuration(grid, cell))
        yield cell
        if measured.dataset == MOLHIV and norm == "instance":
            said = _reported(MOLHIV, measured.model, "graph", measured.protocol)
            yield replace(cell, norm=FULL_SHIFT, reported=said, repeats=True)


def _configuration(grid: Mapping[str, Any], cell: Cell) -> dict[str, Any] | None:
    """What all folds chose, and nothing as good besides; of settings that have one value in the whole study, that."""
    chosen = cell.score.chosen if cell.score else None
    if chosen is None or (cell.compared > 1 and not cell.epochs):
        return None
    axes = {name: values for name, values in grid.items() if name not in ("name", "epochs")}
    return {name: chosen.get(name, axes[name][0]) for name in sorted(axes, key=_place)}


def _place(setting: str) -> int:
    return SETTINGS.index(setting) if setting in SETTINGS else len(SETTINGS)


def _varied(grid: Mapping[str, Any], part: Trainings) -> tuple[str, ...]:
    """Settings of which the item's own grid, or the study's, has several values."""
    axes = {name: values for name, values in grid.items() if name != "name"}
    several = {name for one in (part.grid.axes, axes) for name in one if len(one[name]) > 1}
    return tuple(name for name in sorted({**part.grid.axes, **axes}, key=_place) if name in several)


def _is_part_of(grid: Mapping[str, Any], part: Trainings) -> bool:
    return all(set(grid.get(axis, ())) <= set(values) for axis, values in part.grid.axes.items())


def _own_part(work: Work, measured: Measured) -> Trainings:
    """What the item itself, not a part of it that was asked for, trains there."""
    return next(
        part
        for part in work.whole_item.trained
        if measured.dataset in part.datasets and measured.model in part.models and measured.protocol in part.protocols
    )


# Choices among fewer configurations

Settings = tuple[tuple[str, Any], ...]
"""Names and values of a configuration, in the order of names."""


def _among_common(work: Work, measured: Measured) -> dict[str, Restricted]:
    """By normalization, for those that chose among others than the configurations that all with a score have."""
    there = [score for score in measured.scores if score.choices]
    sets = {score.name: set(_took_part(measured, score)) for score in there}
    shared = set.intersection(*sets.values()) if sets else set()
    other = [score.name for score in there if (sets[score.name], score.compared) != (shared, len(shared))]
    return _restricted(work, measured, frozenset(shared), other)


def _among_those_of(work: Work, measured: Measured, other: Measured) -> dict[str, Restricted]:
    """What ``measured`` chooses among the configurations of another study of it, by normalization, where it has all."""
    own = {score.name: set(_took_part(measured, score)) for score in measured.scores}
    wanted = {score.name: frozenset(_took_part(other, score)) for score in other.scores}
    shared = {norm: few for norm, few in wanted.items() if few and few <= own.get(norm, set())}
    found: dict[str, Restricted] = {}
    for few in set(shared.values()):
        found |= _restricted(work, measured, few, [norm for norm, own_few in shared.items() if own_few == few])
    return found


def _took_part(measured: Measured, score: Score) -> Iterator[Settings]:
    """The configurations that all folds chose from, with the settings of which the study has but one value."""
    axes = {name: values for name, values in measured.plan.spec["grid"].items() if name != "name"}
    fixed = {name: values[0] for name, values in axes.items() if len(values) == 1}
    for place in score.took_part:
        yield tuple(sorted((fixed | score.configurations[place]).items()))


def _restricted(
    work: Work, measured: Measured, configurations: Collection[Settings], norms: Sequence[str]
) -> dict[str, Restricted]:
    """What is chosen among these configurations alone, for some normalizations."""
    if not norms:
        return {}

    def is_one_of_them(trial: Trial) -> bool:
        return any(all(getattr(trial, name) == value for name, value in one) for one in configurations)

    result = read(work.store, measured.plan, partial=True, among=is_one_of_them)
    found = {}
    for norm in norms:
        score = result.norms.get(norm)
        mean_, std = (_known(score.mean), _known(score.std)) if score else (None, None)
        found[norm] = Restricted(mean_, std, len(configurations), _by_unit(score, measured.units))
    return found


# Tables 1 and 2


def scores(work: Work) -> Output:
    """A table of scores beside the paper's."""
    cells = find_cells(work)
    units = _units(work)
    judged = [cell for cell in cells if not (cell.is_baseline or cell.repeats)]
    output = work.output(
        table=_for_people(cells, units),
        data=_for_programs(cells, units),
        sentences=(
            *_about_agreement(judged, units),
            *_about_repeats(cells),
            *_about_fair(work, judged),
            *_about_optimism(cells),
            *_about_baselines([cell for cell in cells if cell.is_baseline]),
            *_about_grids(cells),
            *_about_devices(cells),
            *work.about_absent,
            *work.about_quick,
        ),
        facts={"cells": [cell.to_dict() for cell in cells], "missing": list(work.absent)},
    )
    return replace(output, sheets=_sheets(work, cells, units, output.facts))


def _units(work: Work) -> str:
    """What scores are averages over: the head of the column that counts them."""
    kinds = {find_protocol(measured.protocol).unit for measured in work.studies}
    several = any(measured.plan.spec["seeds"] > 1 for measured in work.studies)
    if kinds == {"seed"}:
        return "seeds"
    return "folds and seeds" if several or len(kinds) > 1 else "folds"


def _for_people(cells: Sequence[Cell], units: str) -> Table:
    """A row for each cell: from how much it was chosen, measured, reported, their difference, and what was chosen."""
    with_fair = any(cell.fair is not None for cell in cells)
    measured = f"measured, {FAIR}" if {cell.protocol for cell in cells} == {FAIR} else "measured"
    columns = ["dataset", "model", "norm", "configurations", units, measured, "reported", "difference", "within one sd"]
    with_choice = any(cell.chosen is not None for cell in cells)
    columns += ["chosen", "epoch"] if with_choice else ["epoch"]
    columns += [f"under {FAIR}"] if with_fair else []
    rows = []
    for cell in cells:
        row: list[Any] = [cell.dataset, cell.model, cell.norm, f"{cell.compared} of {cell.planned}"]
        row += [f"{cell.members} of {cell.members_planned}", cell.shown]
        row += [None if cell.reported is None else str(cell.reported)]
        row += [None if cell.difference is None else signed(cell.difference), cell.within_std]
        row += [cell.chosen] if with_choice else []
        row += [_epochs(cell)]
        row += [None if cell.fair is None else _with_extent(cell.fair)] if with_fair else []
        rows.append(row)
    return Table(tuple(columns), rows)


def _with_extent(cell: Cell) -> str:
    """The score, and of how many configurations where that is not all."""
    return cell.shown if cell.compared == cell.planned else f"{cell.shown} ({cell.compared} of {cell.planned})"


def _epochs(cell: Cell) -> str | None:
    """The epoch, or from the first to the last where members have their own."""
    if not cell.epochs or cell.is_baseline:
        return None
    return f"{min(cell.epochs)}" if cell.epoch is not None else f"{min(cell.epochs)}–{max(cell.epochs)}"


def _for_programs(cells: Sequence[Cell], units: str) -> Table:
    """The same with a number in each column."""
    rows = [_numbers(cell, units.replace(" ", "_")) for cell in cells]
    return Table(tuple(rows[0]) if rows else (), [list(row.values()) for row in rows])


def _numbers(cell: Cell, units: str) -> dict[str, Any]:
    chosen, said, fair, same = cell.configuration or {}, cell.reported, cell.fair, cell.among_fair
    return {
        "dataset": cell.dataset,
        "model": cell.model,
        "norm": cell.norm,
        "protocol": cell.protocol,
        **_origin(cell, units),
        "mean": cell.mean,
        "std": cell.std,
        "reported_mean": said and said.mean,
        "reported_std": said and said.std,
        "difference": cell.difference,
        "within_one_sd": cell.within_std,
        "within_one_se": cell.within_error,
        **{name: chosen.get(name) for name in SETTINGS},
        "epoch": None if cell.is_baseline else cell.epoch,
        **{f"common_{name}": getattr(cell.common, name, None) for name in ("mean", "std", "configurations")},
        "repeats": cell.repeats,
        "fair_mean": fair and fair.mean,
        "fair_std": fair and fair.std,
        "among_fair_mean": same and same.mean,
        "among_fair_std": same and same.std,
        **{f"fair_{name}": fair and value for name, value in _origin(fair or cell, units).items()},
    }


def _origin(cell: Cell, units: str) -> dict[str, Any]:
    return {
        "device": " and ".join(cell.devices) or None,
        "configurations": cell.compared,
        "configurations_planned": cell.planned,
        units: cell.members,
        f"{units}_planned": cell.members_planned,
    }


# Sentences under them


def _about_agreement(cells: Sequence[Cell], units: str) -> tuple[str, ...]:
    """How many lie near the paper's, by how much of the grid they were chosen from."""
    extents = {cell.extent: cell.compared / cell.planned for cell in cells if cell.within_std is not None}
    ordered = sorted(extents, key=lambda extent: -extents[extent])
    parts = {extent: [cell for cell in cells if cell.extent == extent] for extent in ordered}
    near = [cell.within_error for cell in cells if cell.within_error is not None]
    if not near:
        return (agreement(parts),)
    count = max(REPETITIONS[cell.reported.table] for cell in cells if cell.reported is not None)
    return (
        agreement(parts),
        f"One standard deviation over {units} is a wide yardstick: within one standard error of the reported mean "
        f"(its standard deviation / √{count}) lie {sum(near)} of {len(near)}.",
    )


def agreement(parts: Mapping[str, Sequence[Cell]]) -> str:
    """How many cells lie within one reported standard deviation, all of them and part by part, in words.

    parts: cells, by what sets them apart.
    """
    judged = {name: [cell.within_std for cell in cells if cell.within_std is not None] for name, cells in parts.items()}
    together = [within for known in judged.values() for within in known]
    if not together:
        return "No cell can be compared with the paper's numbers."
    share = round(100 * sum(together) / len(together))
    by_parts = ", ".join(f"{sum(known)} of {len(known)} {name}" for name, known in judged.items() if name and known)
    text = f"{sum(together)} of {len(together)} cells lie within one reported standard deviation of the paper"
    return f"{text} ({share} %){f': {by_parts}' if by_parts else ''}."


def _about_repeats(cells: Sequence[Cell]) -> tuple[str, ...]:
    names = dict.fromkeys(cell.norm for cell in cells if cell.repeats)
    return tuple(
        f"Rows {name} are instance's measurement beside the paper's GraphNorm, and not counted." for name in names
    )


def _about_fair(work: Work, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Where folds chose among less than the grid under that protocol, and that the paper has nothing like it."""
    if _is_fair_alone(work):
        return (f"Under {FAIR} a fold has no part in any choice; the paper has no such numbers.",)
    beside = [cell.fair for cell in cells if cell.fair is not None]
    compared: dict[tuple[str, str], set[int]] = {}
    for fair in beside:
        compared.setdefault((fair.dataset, fair.model), set()).add(fair.compared)
    planned = max((fair.planned for fair in beside), default=0)
    parts: dict[str, list[tuple[str, str]]] = {}
    for place, found in compared.items():
        if min(found) < planned:
            parts.setdefault(" to ".join(map(str, sorted({min(found), max(found)}))), []).append(place)
    words = [f"{extent} on {_name_places(places, among=compared)}" for extent, places in parts.items()]
    return (f"Under {FAIR}, of a part of the {planned} configurations: {'; '.join(words)}.",) if words else ()


def _name_places(places: Iterable[tuple[str, str]], among: Iterable[tuple[str, str]]) -> str:
    """Datasets, each with its models where these are not all.

    >>> two = [("PTC", "gin"), ("PTC", "gcn")]
    >>> _name_places([*two, ("NCI1", "gcn")], among=[*two, ("NCI1", "gin"), ("NCI1", "gcn")])
    'PTC and NCI1 with gcn'
    """
    all_models = Counter(dataset for dataset, _ in among)
    models: dict[str, list[str]] = {}
    for dataset, model in places:
        models.setdefault(dataset, []).append(model)
    return listing(
        [
            dataset if len(found) == all_models[dataset] else f"{dataset} with {listing(found)}"
            for dataset, found in models.items()
        ]
    )


def _about_optimism(cells: Sequence[Cell]) -> tuple[str, ...]:
    """How much of the scores is due to the protocol, by dataset."""
    added: dict[str, list[float]] = {}
    for cell in cells:
        if cell.optimism is not None:
            added.setdefault(cell.dataset, []).append(cell.optimism)
    if not added:
        return ()
    protocol = next(cell.protocol for cell in cells if cell.optimism is not None)
    words = [
        f"{dataset} {signed(mean(points))} ({len(points)} cells, {signed(min(points))} to {signed(max(points))})"
        for dataset, points in added.items()
    ]
    head = f"Scores under {protocol} less those under {FAIR}, chosen among the same configurations, on average:"
    return (f"{head} {list_some(words)}.",)


def _about_baselines(cells: Sequence[Cell]) -> tuple[str, ...]:
    if not cells:
        return ()
    words = "Baselines have the same folds, and settings of their own: they are not tuned over the grid."
    compared = any(cell.within_std is not None for cell in cells)
    return (words, "Of the baselines: " + agreement({"": cells})) if compared else (words,)


def _about_grids(cells: Sequence[Cell]) -> tuple[str, ...]:
    """That configurations are none of the item's own, where they are not."""
    others = dict.fromkeys(f"{cell.dataset}, {cell.model}" for cell in cells if not cell.is_of_own_grid)
    return (f"Of another grid than the item's own: {list_some(list(others))}.",) if others else ()


def _about_devices(cells: Sequence[Cell]) -> tuple[str, ...]:
    """Which cells were trained where, if not all on the same device."""
    places: dict[tuple[str, ...], dict[str, None]] = {}
    parts = [part for cell in cells for part in (cell, cell.fair) if part is not None and part.devices]
    for cell in parts:
        under = f" under {FAIR}" if cell.protocol == FAIR else ""
        name = "baselines" if cell.is_baseline else f"{cell.dataset}, {cell.model}{under}"
        places.setdefault(cell.devices, {})[name] = None
    if len(places) < 2:
        return ()
    most = max(places, key=lambda devices: len(places[devices]))
    others = [
        f"{' and '.join(devices)}: {list_some(list(where))}" for devices, where in places.items() if devices != most
    ]
    return (f"Trained on {'; on '.join(others)}; the rest on {' and '.join(most)}.",)


# The paper's layout: datasets, or for ogbg-molhiv models, as columns

ONE, SOME, FEWER = "†", "‡", "§"
"""A score from one configuration, from a part of the grid, and from a part of the folds or seeds."""


class _Place(NamedTuple):
    """Where a score stands."""

    model: str
    norm: str
    column: str
    is_baseline: bool = False


def _sheets(work: Work, cells: Sequence[Cell], units: str, facts: Mapping[str, Any]) -> dict[str, Sheet]:
    """The paper's table, and the same under ``fair`` where that stands beside another protocol."""
    below = "what the paper reports" if any(cell.reported for cell in cells) else ""
    wide = Sheet(_wide(work, cells), _notes(cells, units, below, facts))
    pairs = [(cell, fair) for cell in cells if (fair := cell.fair) is not None and fair.mean is not None]
    if not pairs:
        return {"-wide": wide}
    notes = _notes([fair for _, fair in pairs], units, f"the same configurations under {pairs[0][0].protocol}", facts)
    return {"-wide": wide, f"-{FAIR}": Sheet(_fair(pairs, wide.table), notes, addition=f", under {FAIR}")}


def _wide(work: Work, cells: Sequence[Cell]) -> Table:
    """Measured, with what the paper reports below it, of all that is planned."""
    shown: dict[_Place, TwoLines] = {}
    for dataset, model, norm, said in _planned(work):
        shown[_placed(dataset, model, norm)] = TwoLines(NOTHING, None if said is None else str(said))
    for cell in cells:
        below = None if cell.reported is None else str(cell.reported)
        shown[_placed(cell.dataset, cell.model, cell.norm)] = TwoLines(f"{cell.shown}{_mark(cell)}", below)
    return _arranged(shown, [place.column for place in sorted(shown, key=attrgetter("is_baseline"))])


def _fair(pairs: Sequence[tuple[Cell, Cell]], wide: Table) -> Table:
    """Measured under ``fair``, with what the same configurations have under the other protocol below it.

    pairs: each cell, and the same under ``fair``. Columns are in the order of ``wide``.
    """
    shown = {}
    for cell, fair in sorted(pairs, key=lambda pair: not pair[0].is_baseline):
        below = None if cell.among_fair is None else _mean_and_std(cell.among_fair.mean, cell.among_fair.std)
        below = cell.shown if cell.is_baseline else below
        shown[_placed(cell.dataset, cell.model, cell.norm)] = TwoLines(f"{fair.shown}{_mark(fair)}", below)
    there = {place.column for place in shown}
    return _arranged(shown, [column for column in wide.columns if column in there])


def _arranged(shown: Mapping[_Place, TwoLines], wanted: Sequence[str]) -> Table:
    """Rows of which there is nothing are left out."""
    empty = TwoLines(NOTHING)
    columns = list(dict.fromkeys(wanted))
    found: dict[tuple[str, str], dict[str, TwoLines]] = {}
    for place, lines in shown.items():
        found.setdefault((place.model, place.norm), {})[place.column] = lines
    filled = {row: [values.get(column, empty) for column in columns] for row, values in found.items()}
    kept = {row: values for row, values in filled.items() if any(value != empty for value in values)}
    with_model = any(model for model, _ in kept)
    heads = ("model", "norm") if with_model else ("norm",)
    return Table((*heads, *columns), [[*(row if with_model else row[1:]), *values] for row, values in kept.items()])


def _planned(work: Work) -> Iterator[tuple[str, str, str, Reported | None]]:
    """Dataset, model, normalization and the paper's number of every place, trained or not, in the order of rows."""

    def leading(protocols: Sequence[str]) -> str:
        return next((name for name in protocols if name != FAIR), FAIR)

    beside = work.item.baselines
    for name, dataset in product(beside.baselines, beside.datasets) if beside else ():
        yield dataset, name, BASELINE, reported_baseline(dataset, name, leading(beside.protocols))
    for part in work.item.trained:
        protocol = leading(part.protocols)
        for model, norm, dataset in product(part.models, part.norms, part.datasets):
            yield dataset, model, norm, reported(dataset, model, norm, protocol)
            if dataset == MOLHIV and norm == "instance":
                yield dataset, model, FULL_SHIFT, reported(dataset, model, "graph", protocol)


def _placed(dataset: str, model: str, norm: str) -> _Place:
    family = MODELS[model].family
    if dataset == MOLHIV:
        ogb = "OGB's own, virtual node" if "virtual" in model else "OGB's own"
        return _Place("", ogb if norm == BASELINE else _in_full(norm), family, norm == BASELINE)
    if norm == BASELINE:
        return _Place(family, NOTHING, dataset, True)
    return _Place(family, _in_full(norm), dataset)


def _in_full(norm: str) -> str:
    """The name of a normalization's layer.

    >>> _in_full("graph"), _in_full("graph, α = 1"), _in_full("none")
    ('GraphNorm', 'GraphNorm, α = 1', 'none')
    """
    name, comma, rest = norm.partition(",")
    return norm if norm == "none" else f"{type(make_norm(name, 1)).__name__}{comma}{rest}"


def _mark(cell: Cell) -> str:
    if cell.mean is None:
        return ""
    marks = (ONE if cell.compared == 1 else SOME) if cell.compared < cell.planned else ""
    return f" {marks}" if (marks := marks + (FEWER if cell.members < cell.members_planned else "")) else ""


def _notes(cells: Sequence[Cell], units: str, below: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """What the numbers are, what their marks mean (of how many configurations, folds or seeds they are), and whence.

    below: what stands in the second line of a cell.
    """
    protocols = " and ".join(dict.fromkeys(cell.protocol for cell in cells))
    devices = " and ".join(sorted({device for cell in cells for device in cell.devices}))
    below = f"; below it, smaller, {below}" if below else ""
    notes = [f"Measured under protocol {protocols}, mean ± standard deviation over {units}{below}."]
    marked = {mark: [cell for cell in cells if mark in _mark(cell)] for mark in (ONE, SOME, FEWER)}
    if marked[ONE]:
        notes.append(f"{ONE} From one of {_counts(marked[ONE], lambda cell: cell.planned)} configurations.")
    if some := marked[SOME]:
        planned = _counts(some, lambda cell: cell.planned)
        of_cells = _by_cell(some, lambda cell: cell.compared, cells)
        notes.append(f"{SOME} From a part of {planned} configurations: {of_cells}.")
    if fewer := marked[FEWER]:
        planned = _counts(fewer, lambda cell: cell.members_planned)
        notes.append(f"{FEWER} From fewer than {planned} {units}: {_by_cell(fewer, lambda cell: cell.members, cells)}.")
    return (*notes, f"Made on {facts['made'][:10]} with graphnorm {facts['graphnorm']}; trained on {devices}.")


def _counts(cells: Sequence[Cell], count: Callable[[Cell], int]) -> str:
    return " or ".join(str(number) for number in sorted({count(cell) for cell in cells}))


def _by_cell(cells: Sequence[Cell], count: Callable[[Cell], int], among: Sequence[Cell]) -> str:
    """Counts by dataset and model, and whose they are where not all have the same.

    among: all cells, as in ``PROTEINS, gin: 12; NCI1, gin: 12 (none, layer), 7 (batch)``.
    """
    sizes = Counter((cell.dataset, cell.model) for cell in among)
    groups: dict[tuple[str, str], dict[int, list[str]]] = {}
    for cell in cells:
        groups.setdefault((cell.dataset, cell.model), {}).setdefault(count(cell), []).append(cell.norm)
    parts = []
    for where, found in groups.items():
        whose = [f"{n}" if len(norms) == sizes[where] else f"{n} ({', '.join(norms)})" for n, norms in found.items()]
        parts.append(f"{', '.join(where)}: {', '.join(whose)}")
    return "; ".join(parts)


# The dataset table


def dataset_statistics(work: Work) -> Output:
    """The dataset table, counted and as printed."""
    rows: list[list[str | float | bool]] = []
    for name in work.item.graphs:
        found, said = work.graphs(name).statistics(), dataset_table()[name]
        edges, degree = found.avg_edges, found.avg_degree
        if name == MOLHIV:  # the paper's one column without self-loops, and undirected
            edges, degree = found.avg_undirected_edges, 2 * found.avg_undirected_edges / found.avg_nodes
        counted = (found.num_graphs, found.num_classes, found.avg_nodes, edges, degree)
        rows += _dataset_rows(name, counted, said)
    equal = sum(bool(row[-1]) for row in rows)
    notes = [f"{name}: {find(name).note}" for name in work.item.graphs if find(name).note]
    return work.output(
        table=Table(("dataset", "statistic", "counted", "printed", "equal"), rows),
        sentences=(f"{equal} of {len(rows)} statistics are as printed.", *notes, *work.about_quick),
        facts={"as_printed": {"equal": equal, "statistics": len(rows)}},
    )


def _dataset_rows(name: str, measured: Sequence[float], printed: Sequence[float]) -> list[list[str | float | bool]]:
    """Each statistic as counted here and as printed, and whether these are equal.

    An average is, if it comes to what is printed when it is rounded or cut off to one digit: the paper has both.

    >>> [row[-1] for row in _dataset_rows("PTC", (344, 2, 25.56, 25.46, 25.61), (344, 2, 25.5, 25.5, 25.5))]
    [True, True, True, True, False]
    """
    labels = ("graphs", "classes", "nodes per graph", "edges per graph", "degree")

    def equal(found: float, said: float) -> bool:
        digit = (f"{found:.1f}", f"{math.floor(10 * found) / 10:.1f}")
        return f"{said:.1f}" in digit if isinstance(said, float) else found == said

    return [
        [name, label, round(found, 2), said, equal(found, said)]
        for label, found, said in zip(labels, measured, printed, strict=True)
    ]


# Theory


def theory(work: Work) -> Output:
    """Theorem 1 on the graphs of all datasets, and the numbers of the linear example, the gradient and Fact 1."""
    rows: list[list[str | int | float]] = []
    for name in work.item.graphs:
        graphs = work.graphs(name)
        order = np.random.default_rng(0).permutation(graphs.num_graphs)
        ids = np.sort(affordable(graphs, order, WORK_OF_A_QUICK_PASS) if work.quick else affordable(graphs, order))
        result = spectra(graphs, ids, AUTHORS_Q, progress=work.progress)
        holds, numbers = interlacing(result).summary(), conditions(result).summary()
        medians = [numbers[f"median_{key}"] for key in ("condition_q", "condition_shifted", "improvement")]
        rows.append([name, graphs.num_graphs, holds["graphs"], holds["holds"], *medians])
    finding = theory_part(Subject(work.graphs(work.item.graphs[-1]), progress=work.progress))
    columns = ("dataset", "graphs", "checked", "Theorem 1 holds", "condition of Q", "condition of QN", "quotient")
    checked, held = sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows)
    return work.output(
        figures={f"-{name}": figure for name, figure in finding.figures.items()},
        table=Table(columns, rows),
        sentences=(f"Theorem 1 holds on {held:,} of {checked:,} graphs.", *finding.text, *work.about_quick),
        facts={
            "theorem_1": {"checked": checked, "holds": held},
            "summary": plain(finding.summary),
            "aggregation": AUTHORS_Q.label,
        },
    )
