"""The paper's tables: our scores with the reported ones, in rows and in the paper's own layout; datasets; theory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from statistics import mean
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.analysis import (
    Aggregation,
    affordable,
    conditions,
    interlacing,
    left_on_complete_graphs,
    left_on_regular_graphs,
    shared_values,
    spectra,
)
from graphnorm.analysis.parts import Subject, theory_part
from graphnorm.data.catalog import find
from graphnorm.files import plain
from graphnorm.layers import make_norm
from graphnorm.models import MODELS
from graphnorm.paper.figures import AUTHORS_Q
from graphnorm.paper.output import Output, Sheet
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reading import read
from graphnorm.study.render import NOTHING, Table, TwoLines, by_value, list_some, listing, short, signed, span
from graphnorm.study.reported import (
    MOLHIV,
    REPETITIONS,
    Reported,
    dataset_table,
    reported,
    reported_baseline,
)
from graphnorm.study.score import Score
from graphnorm.study.significance import compare_all
from graphnorm.training import Trial, find_metric

if TYPE_CHECKING:
    from graphnorm.paper.reproduce import Measured, Work

__all__ = ["Cell", "dataset_statistics", "find_cells", "pairs", "scores", "theory"]

BASELINE = "baseline"
"""In place of the normalization."""
FULL_SHIFT = "graph, α = 1"
"""GraphNorm in the authors' code for ogbg-molhiv, which has no α: the same as our ``instance``."""
FAIR = "fair"
SETTINGS = ("lr", "batch_size", "dropout", "weight_decay")
"""The order in which settings are shown; others follow."""
SHORT_NAMES = {"batch_size": "batch", "weight_decay": "wd"}
WORK_OF_A_QUICK_PASS = 2e9
XI = (0.0, 0.1, -0.5)
"""The values with which Proposition 2 is checked."""
ROUNDING = 1e-9


# Cells


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
    def protocol(self) -> str:
        return self.score.protocol.name

    @property
    def mean(self) -> float | None:
        """In percent; None if there is no score."""
        return _known(self.score.mean)

    @property
    def std(self) -> float | None:
        return _known(self.score.std)

    @property
    def compared(self) -> int:
        """How many configurations were chosen from."""
        return self.score.compared

    @property
    def members(self) -> int:
        """Trained folds times seeds."""
        return len(self.score.choices)

    @property
    def devices(self) -> str:
        return " and ".join(self.score.devices)

    @property
    def epochs(self) -> list[int]:
        """The chosen epochs; empty if a score is the average over several that tie."""
        return _epochs(self.score)

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
        if self.among_fair is None or self.fair is None:
            return None
        return _known(self.among_fair.mean - self.fair.score.mean)

    @property
    def is_baseline(self) -> bool:
        return self.norm == BASELINE

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
            "reported": self.reported and {"mean": self.reported.mean, "std": self.reported.std},
            "scores": self._by_unit(self.score),
            "chosen": chosen,
            "common": self._restricted(self.common),
            "device": list(self.score.devices),
            "repeats": self.repeats,
            "fair": self.fair and self.fair.to_dict(),
            "among_fair": self._restricted(self.among_fair),
        }

    def _restricted(self, score: Score | None) -> dict[str, Any] | None:
        """A choice among fewer configurations, for JSON."""
        if score is None:
            return None
        numbers = {"mean": _known(score.mean), "std": _known(score.std), "configurations": len(score.configurations)}
        return numbers | {"scores": self._by_unit(score)}

    def _by_unit(self, score: Score) -> list[float | None]:
        """The score of each fold or seed; None if it is not trained, or diverged."""
        return [_known(score.scores.get(unit)) for unit in range(self.units)]


def _known(value: float | None) -> float | None:
    return None if value is None or math.isnan(value) else value


def _shown(score: Score) -> str:
    return NOTHING if math.isnan(score.mean) else score.shown


def _epochs(score: Score) -> list[int]:
    return [] if any(choice.ties > 1 for choice in score.choices) else score.epochs


def _untrained(norm: str, protocol: str) -> Score:
    return Score(norm, find_protocol(protocol), find_metric(protocol), trials=0, finished=0, configurations=())


def find_cells(work: Work) -> list[Cell]:
    """The cells of a table of scores; those under ``fair`` belong to those of the item's other protocol.

    If the item has no other protocol, they stand alone. If the other one is not trained, its score is empty.
    """
    other = _leading(_protocols(work))
    groups: dict[tuple[str, str], dict[bool, Measured]] = {}
    for measured in work.studies:
        result = measured.result
        leads_table = other == FAIR or result.protocol.name != FAIR
        groups.setdefault((result.dataset, result.model), {})[leads_table] = measured
    found: list[Cell] = []
    for studies in groups.values():
        leads, follows = studies.get(True), studies.get(False)
        fair = {cell.norm: cell for cell in _cells(work, follows)} if follows else {}
        if leads is None:
            found += [
                Cell(
                    dataset=cell.dataset,
                    model=cell.model,
                    norm=norm,
                    score=_untrained(norm, other),
                    planned=cell.planned,
                    members_planned=cell.members_planned,
                    units=0,
                    reported=_reported(cell.dataset, cell.model, norm, other),
                    fair=cell,
                )
                for norm, cell in fair.items()
            ]
            continue
        among = _among_those_of(work, leads, follows) if follows and not leads.is_baseline else {}
        found += [
            replace(cell, fair=fair.get(cell.norm), among_fair=among.get(cell.norm)) for cell in _cells(work, leads)
        ]
    return found


def _protocols(work: Work) -> list[str]:
    parts = (*work.item.trained, *((work.item.baselines,) if work.item.baselines else ()))
    return [protocol for part in parts for protocol in part.protocols]


def _leading(protocols: Sequence[str]) -> str:
    """The protocol of a table: ``fair`` only if there is no other."""
    return next((name for name in protocols if name != FAIR), FAIR)


def _reported(dataset: str, model: str, norm: str, protocol: str) -> Reported | None:
    if norm == BASELINE:
        return reported_baseline(dataset, model, protocol)
    return reported(dataset, model, "graph" if norm == FULL_SHIFT else norm, protocol)


def _cells(work: Work, measured: Measured) -> Iterator[Cell]:
    result, axes, part = measured.result, measured.axes, work.own_part(measured)
    protocol, own = result.protocol.name, part.grid.axes if part else {}
    common = _among_common(work, measured)
    for score in measured.scores:
        norm = BASELINE if part is None else score.name
        configuration, chosen = (None, None) if part is None else _choice(axes, own, score)
        cell = Cell(
            dataset=result.dataset,
            model=result.model,
            norm=norm,
            score=score,
            planned=max(len(score.configurations), len(part.grid) if part else 0),
            members_planned=max(score.members, part.members(protocol) if part else 0),
            units=measured.units,
            reported=_reported(result.dataset, result.model, norm, protocol),
            configuration=configuration,
            chosen=chosen,
            is_of_own_grid=all(set(axes.get(name, ())) <= set(values) for name, values in own.items()),
            common=common.get(score.name),
        )
        yield cell
        if result.dataset == MOLHIV and norm == "instance":
            said = _reported(MOLHIV, result.model, FULL_SHIFT, protocol)
            yield replace(cell, norm=FULL_SHIFT, reported=said, repeats=True)


def _choice(
    axes: Mapping[str, Sequence[Any]], own: Mapping[str, Sequence[Any]], score: Score
) -> tuple[dict[str, Any] | None, str | None]:
    """The chosen settings, and for people those that vary in the study's grid or in the item's own."""
    if score.chosen is None or (score.compared > 1 and not _epochs(score)):
        return None, "by fold" if score.compared > 1 else None
    names = [*(name for name in SETTINGS if name in axes), *(name for name in axes if name not in SETTINGS)]
    settings = _settings(axes, score.chosen)
    configuration = {name: settings[name] for name in names if name != "epochs"}
    varied = [name for name in configuration if len(axes[name]) > 1 or len(own.get(name, ())) > 1]
    shown = ", ".join(f"{SHORT_NAMES.get(name, name)} {short(settings[name])}" for name in varied)
    return configuration, shown or None


def _settings(axes: Mapping[str, Sequence[Any]], chosen: Mapping[str, Any]) -> dict[str, Any]:
    """A configuration with the settings that have one value in the whole study."""
    return {name: chosen.get(name, values[0]) for name, values in axes.items()}


# Choices among fewer configurations

Configuration = frozenset[tuple[str, Any]]


def _among_common(work: Work, measured: Measured) -> dict[str, Score]:
    """Choices among the configurations that all normalizations have, where the choice was among others."""
    sets = {score.name: _took_part(measured, score) for score in measured.scores if score.choices}
    shared = frozenset.intersection(*sets.values()) if sets else frozenset()
    others = [
        score.name
        for score in measured.scores
        if score.choices and (sets[score.name], score.compared) != (shared, len(shared))
    ]
    return _read_among(work, measured, shared, others)


def _among_those_of(work: Work, measured: Measured, other: Measured) -> dict[str, Score]:
    """Choices among the configurations that another study chose from, where all of them are trained."""
    own = {score.name: _took_part(measured, score) for score in measured.scores}
    wanted = {score.name: _took_part(other, score) for score in other.scores}
    found: dict[str, Score] = {}
    for few in set(wanted.values()):
        norms = [norm for norm, of in wanted.items() if of == few and few and few <= own.get(norm, frozenset())]
        found |= _read_among(work, measured, few, norms)
    return found


def _took_part(measured: Measured, score: Score) -> frozenset[Configuration]:
    """The configurations that every fold chose from."""
    chosen = [score.configurations[place] for place in score.took_part]
    return frozenset(frozenset(_settings(measured.axes, one).items()) for one in chosen)


def _read_among(
    work: Work, measured: Measured, configurations: frozenset[Configuration], norms: Sequence[str]
) -> dict[str, Score]:
    if not norms:
        return {}

    def is_one_of_them(trial: Trial) -> bool:
        return any(all(getattr(trial, name) == value for name, value in one) for one in configurations)

    found = read(work.store, measured.plan, partial=True, among=is_one_of_them).norms
    return {norm: found.get(norm) or _untrained(norm, measured.result.protocol.name) for norm in norms}


# Tables 1 and 2


def scores(work: Work) -> Output:
    """A table of scores, with the paper's."""
    cells = find_cells(work)
    units = _units(work)
    output = work.output(
        table=_for_people(cells, units),
        data=_for_programs(cells, units.replace(" ", "_")),
        sentences=(*_sentences(work, cells, units), *work.remarks),
        facts={"cells": [cell.to_dict() for cell in cells], "pairs": pairs(cells), "missing": list(work.absent)},
    )
    return replace(output, sheets=_sheets(work, cells, units, output.facts))


def pairs(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Which normalization is significantly ahead of which, by protocol, dataset and model.

    Scores are chosen among the configurations that all normalizations have: a larger choice is an advantage.
    """
    groups: dict[tuple[str, str, str], dict[str, Cell]] = {}
    for one in cells:
        for cell in (one, one.fair):
            if cell is not None and cell.mean is not None and not (cell.repeats or cell.is_baseline):
                groups.setdefault((cell.protocol, cell.dataset, cell.model), {})[cell.norm] = cell
    found = []
    for (name, dataset, model), members in groups.items():
        protocol, units = find_protocol(name), next(iter(members.values())).units
        equal = {norm: (cell.common or cell.score).scores for norm, cell in members.items()}
        tests = compare_all(equal, overlap=protocol.overlap(units), paired=protocol.paired)
        ahead = [test if (test.difference or 0) > 0 else test.seen_from(test.second) for test in tests]
        found.append(
            {
                "protocol": name,
                "dataset": dataset,
                "model": model,
                "pairs": len(tests),
                "significant": [[test.first, test.second] for test in ahead if test.significant],
            }
        )
    return found


def _about_pairs(cells: Sequence[Cell]) -> Iterator[str]:
    found = pairs(cells)
    for protocol in dict.fromkeys(one["protocol"] for one in found):
        of_it = [one for one in found if one["protocol"] == protocol]
        where = {
            f"{one['dataset']}, {one['model']}": ", ".join(
                f"{ahead} > {behind}" for ahead, behind in one["significant"]
            )
            for one in of_it
            if one["significant"]
        }
        count = sum(len(one["significant"]) for one in of_it)
        detail = f": {'; '.join(f'{name} ({text})' for name, text in where.items())}" if where else ""
        yield (
            f"Under {protocol} {count} of {sum(one['pairs'] for one in of_it)} pairs of normalizations differ "
            f"significantly, among configurations that all have{detail}."
        )


def _units(work: Work) -> str:
    """The units that scores are averaged over."""
    kinds = {measured.result.protocol.unit for measured in work.studies}
    several = any(measured.plan.spec["seeds"] > 1 for measured in work.studies)
    if kinds == {"seed"}:
        return "seeds"
    return "folds and seeds" if several or len(kinds) > 1 else "folds"


def _for_people(cells: Sequence[Cell], units: str) -> Table:
    rows = []
    with_choice = any(cell.chosen is not None for cell in cells)
    with_fair = any(cell.fair is not None for cell in cells)
    measured = f"measured, {FAIR}" if {cell.protocol for cell in cells} == {FAIR} else "measured"
    for cell in cells:
        row: dict[str, Any] = {
            "dataset": cell.dataset,
            "model": cell.model,
            "norm": cell.norm,
            "configurations": f"{cell.compared} of {cell.planned}",
            units: f"{cell.members} of {cell.members_planned}",
            measured: _shown(cell.score),
            "reported": cell.reported and str(cell.reported),
            "difference": None if cell.difference is None else signed(cell.difference),
            "within one sd": cell.within_std,
        }
        if with_choice:
            row["chosen"] = cell.chosen
        row["epoch"] = None
        if cell.epochs and not cell.is_baseline:
            row["epoch"] = span(cell.epochs, "–")
        if with_fair:
            row[f"under {FAIR}"] = None
            if (fair := cell.fair) is not None:
                part = "" if fair.compared == fair.planned else f" ({fair.compared} of {fair.planned})"
                row[f"under {FAIR}"] = f"{_shown(fair.score)}{part}"
        rows.append(row)
    return _table(rows)


def _for_programs(cells: Sequence[Cell], units: str) -> Table:
    """The same with a number in each column."""

    def origin(cell: Cell) -> dict[str, Any]:
        return {
            "device": cell.devices or None,
            "configurations": cell.compared,
            "configurations_planned": cell.planned,
            units: cell.members,
            f"{units}_planned": cell.members_planned,
        }

    def mean_and_std(name: str, score: Score | None) -> dict[str, Any]:
        return {f"{name}_mean": score and _known(score.mean), f"{name}_std": score and _known(score.std)}

    rows = []
    for cell in cells:
        chosen, fair = cell.configuration or {}, cell.fair
        rows.append(
            {
                "dataset": cell.dataset,
                "model": cell.model,
                "norm": cell.norm,
                "protocol": cell.protocol,
                **origin(cell),
                "mean": cell.mean,
                "std": cell.std,
                "reported_mean": cell.reported and cell.reported.mean,
                "reported_std": cell.reported and cell.reported.std,
                "difference": cell.difference,
                "within_one_sd": cell.within_std,
                "within_one_se": cell.within_error,
                **{name: chosen.get(name) for name in SETTINGS},
                "epoch": None if cell.is_baseline else cell.epoch,
                **mean_and_std("common", cell.common),
                "common_configurations": cell.common and len(cell.common.configurations),
                "repeats": cell.repeats,
                **mean_and_std("fair", None if fair is None else fair.score),
                **mean_and_std("among_fair", cell.among_fair),
                **{f"fair_{name}": fair and value for name, value in origin(fair or cell).items()},
            }
        )
    return _table(rows)


def _table(rows: Sequence[Mapping[str, Any]]) -> Table:
    return Table(tuple(rows[0]) if rows else (), [list(row.values()) for row in rows])


# Sentences under them


def _sentences(work: Work, cells: Sequence[Cell], units: str) -> Iterator[str]:
    judged = [cell for cell in cells if not (cell.is_baseline or cell.repeats)]
    yield from _about_agreement(judged, units)
    for name in dict.fromkeys(cell.norm for cell in cells if cell.repeats):
        yield f"Rows {name} show the measurement of instance with the paper's GraphNorm, and are not counted."
    yield from _about_pairs(cells)
    yield from _about_fair(work, judged)
    yield from _about_optimism(cells)
    if baselines := [cell for cell in cells if cell.is_baseline]:
        yield "Baselines have the same folds, and settings of their own: they are not tuned over the grid."
        if any(cell.within_std is not None for cell in baselines):
            yield "Of the baselines: " + agreement({"": baselines})
    if others := dict.fromkeys(f"{cell.dataset}, {cell.model}" for cell in cells if not cell.is_of_own_grid):
        yield f"Of another grid than the item's own: {list_some(list(others))}."
    yield from _about_devices(cells)


def _about_agreement(cells: Sequence[Cell], units: str) -> Iterator[str]:
    """How many scores are near the paper's, by how much of the grid they were chosen from."""
    extents = {cell.extent: cell.compared / cell.planned for cell in cells if cell.within_std is not None}
    ordered = sorted(extents, key=lambda extent: -extents[extent])
    yield agreement({extent: [cell for cell in cells if cell.extent == extent] for extent in ordered})
    near = [cell.within_error for cell in cells if cell.within_error is not None]
    if near:
        count = max(REPETITIONS[cell.reported.table] for cell in cells if cell.reported is not None)
        yield (
            f"One standard deviation over {units} is a wide yardstick: within one standard error of the reported mean "
            f"(its standard deviation / √{count}) lie {sum(near)} of {len(near)}."
        )


def agreement(parts: Mapping[str, Sequence[Cell]]) -> str:
    """How many cells are within one reported standard deviation, in all and for each part."""
    judged = {name: [cell.within_std for cell in cells if cell.within_std is not None] for name, cells in parts.items()}
    together = [within for known in judged.values() for within in known]
    if not together:
        return "No cell can be compared with the paper's numbers."
    share = round(100 * sum(together) / len(together))
    by_parts = ", ".join(f"{sum(known)} of {len(known)} {name}" for name, known in judged.items() if name and known)
    text = f"{sum(together)} of {len(together)} cells lie within one reported standard deviation of the paper"
    return f"{text} ({share} %){f': {by_parts}' if by_parts else ''}."


def _about_fair(work: Work, cells: Sequence[Cell]) -> Iterator[str]:
    """Where the choice under that protocol is among a part of the grid, and that the paper has no such numbers."""
    if _leading(_protocols(work)) == FAIR:
        yield f"Under {FAIR} a fold has no part in any choice; the paper has no such numbers."
        return
    under_fair = [cell.fair for cell in cells if cell.fair is not None]
    if any(fair.compared < fair.planned for fair in under_fair):
        counts: dict[str, dict[str, set[int]]] = {}
        for fair in under_fair:
            counts.setdefault(fair.dataset, {}).setdefault(fair.model, set()).add(fair.compared)
        texts = {}
        for dataset, models in counts.items():
            for model, found in models.items():
                same = all(found == other for other in models.values())
                texts[dataset if same else f"{dataset} with {model}"] = span(found)
        planned = max(fair.planned for fair in under_fair)
        yield f"Under {FAIR}, a part of the {planned} configurations: {by_value(texts)}."


def _about_optimism(cells: Sequence[Cell]) -> Iterator[str]:
    """How much of the scores is due to the protocol, by dataset."""
    added: dict[str, list[float]] = {}
    for cell in cells:
        if cell.optimism is not None:
            added.setdefault(cell.dataset, []).append(cell.optimism)
    if added:
        protocol = next(cell.protocol for cell in cells if cell.optimism is not None)
        words = [
            f"{dataset} {signed(mean(points))} ({len(points)} cells, {signed(min(points))} to {signed(max(points))})"
            for dataset, points in added.items()
        ]
        head = f"Scores under {protocol} less those under {FAIR}, chosen among the same configurations, on average:"
        yield f"{head} {list_some(words)}."


def _about_devices(cells: Sequence[Cell]) -> Iterator[str]:
    """Which cells were trained where, if not all on the same device."""
    places: dict[str, dict[str, None]] = {}
    for cell in [*cells, *(cell.fair for cell in cells if cell.fair is not None)]:
        if not cell.devices:
            continue
        under = f" under {FAIR}" if cell.protocol == FAIR else ""
        name = "baselines" if cell.is_baseline else f"{cell.dataset}, {cell.model}{under}"
        places.setdefault(cell.devices, {})[name] = None
    if len(places) > 1:
        most = max(places, key=lambda devices: len(places[devices]))
        others = [f"{devices}: {list_some(list(where))}" for devices, where in places.items() if devices != most]
        yield f"Trained on {'; on '.join(others)}; the rest on {most}."


# The paper's layout: datasets, or for ogbg-molhiv models, as columns

ONE, SOME, FEWER = "†", "‡", "§"
"""A score from one configuration, from a part of the grid, and from a part of the folds or seeds."""
Place = tuple[str, str, str]
"""Dataset, model and normalization."""


def _sheets(work: Work, cells: Sequence[Cell], units: str, facts: Mapping[str, Any]) -> dict[str, Sheet]:
    """The paper's table, with its numbers below ours; and the same under ``fair``, if that is not the only protocol."""
    shown = {place: TwoLines(NOTHING, said and str(said)) for place, said in _planned(work)}
    for cell in cells:
        below = cell.reported and str(cell.reported)
        shown[cell.dataset, cell.model, cell.norm] = TwoLines(f"{_shown(cell.score)}{_mark(cell)}", below)
    below = "what the paper reports" if any(cell.reported for cell in cells) else ""
    sheets = {"-wide": Sheet(_in_papers_layout(work, shown), _notes(cells, units, below, facts))}
    pairs = [(cell, fair) for cell in cells if (fair := cell.fair) is not None and fair.mean is not None]
    if pairs:
        shown = {}
        for cell, fair in pairs:
            same = cell.score if cell.is_baseline else cell.among_fair
            lines = TwoLines(f"{_shown(fair.score)}{_mark(fair)}", None if same is None else _shown(same))
            shown[cell.dataset, cell.model, cell.norm] = lines
        below = f"the same configurations under {pairs[0][0].protocol}"
        notes = _notes([fair for _, fair in pairs], units, below, facts)
        sheets[f"-{FAIR}"] = Sheet(_in_papers_layout(work, shown), notes, addition=f", under {FAIR}")
    return sheets


def _planned(work: Work) -> Iterator[tuple[Place, Reported | None]]:
    """Every cell of the item with the paper's number, trained or not, in the order of rows: baselines come first."""
    others = work.item.baselines
    for name, dataset in product(others.baselines, others.datasets):
        yield (dataset, name, BASELINE), _reported(dataset, name, BASELINE, _leading(others.protocols))
    for part in work.item.trained:
        protocol = _leading(part.protocols)
        for model, norm, dataset in product(part.models, part.norms, part.datasets):
            for shown in (norm, FULL_SHIFT) if dataset == MOLHIV and norm == "instance" else (norm,):
                yield (dataset, model, shown), _reported(dataset, model, shown, protocol)


def _in_papers_layout(work: Work, shown: Mapping[Place, TwoLines]) -> Table:
    """Rows without any number are left out."""
    rows: dict[tuple[str, str], dict[str, TwoLines]] = {}
    columns: dict[bool, list[str]] = {False: [], True: []}
    for place, _ in _planned(work):
        if place in shown:
            row, column = _row_and_column(*place)
            rows.setdefault(row, {})[column] = shown[place]
            columns[place[2] == BASELINE].append(column)
    names = list(dict.fromkeys([*columns[False], *columns[True]]))
    empty = TwoLines(NOTHING)
    kept = {row: cells for row, cells in rows.items() if any(cell != empty for cell in cells.values())}
    heads = ("model", "norm") if any(model for model, _ in kept) else ("norm",)
    return Table(
        (*heads, *names),
        [[*row[-len(heads) :], *(cells.get(name, empty) for name in names)] for row, cells in kept.items()],
    )


def _row_and_column(dataset: str, model: str, norm: str) -> tuple[tuple[str, str], str]:
    """The model and the layer that name a row, and its column.

    >>> _row_and_column("PTC", "gcn", "graph"), _row_and_column("ogbg-molhiv", "molhiv-gin", "graph, α = 1")
    ((('GCN', 'GraphNorm'), 'PTC'), (('', 'GraphNorm, α = 1'), 'GIN'))
    """
    family = MODELS[model].family
    name, comma, rest = norm.partition(",")
    layer = norm if norm in ("none", BASELINE) else f"{type(make_norm(name, 1)).__name__}{comma}{rest}"
    if dataset == MOLHIV:
        ogb = "OGB's own, virtual node" if "virtual" in model else "OGB's own"
        return ("", ogb if norm == BASELINE else layer), family
    return (family, NOTHING if norm == BASELINE else layer), dataset


def _mark(cell: Cell) -> str:
    if cell.mean is None:
        return ""
    marks = (ONE if cell.compared == 1 else SOME) if cell.compared < cell.planned else ""
    marks += FEWER if cell.members < cell.members_planned else ""
    return f" {marks}" if marks else ""


def _notes(cells: Sequence[Cell], units: str, below: str, facts: Mapping[str, Any]) -> tuple[str, ...]:
    """The meaning of the numbers and their marks, and where they come from.

    below: the meaning of the second line of a cell.
    """
    protocols = " and ".join(dict.fromkeys(cell.protocol for cell in cells))
    devices = " and ".join(sorted({device for cell in cells for device in cell.score.devices}))
    below = f"; below it, smaller, {below}" if below else ""
    notes = [f"Measured under protocol {protocols}, mean ± standard deviation over {units}{below}."]
    one, some, fewer = ([cell for cell in cells if mark in _mark(cell)] for mark in (ONE, SOME, FEWER))
    if one:
        notes.append(f"{ONE} From one of {_counts(one, 'planned')} configurations.")
    if some:
        notes.append(f"{SOME} From a part of {_counts(some, 'planned')} configurations: {_by_cell(some, 'compared')}.")
    if fewer:
        notes.append(
            f"{FEWER} From fewer than {_counts(fewer, 'members_planned')} {units}: {_by_cell(fewer, 'members')}."
        )
    return (*notes, f"Made on {facts['made'][:10]} with graphnorm {facts['graphnorm']}; trained on {devices}.")


def _counts(cells: Sequence[Cell], name: str) -> str:
    return listing([str(number) for number in sorted({getattr(cell, name) for cell in cells})], "or")


def _by_cell(cells: Sequence[Cell], name: str) -> str:
    """A number of each cell by dataset and model: ``PROTEINS, gin: 12; NCI1, gin: 12 (none and layer), 7 (batch)``."""
    groups: dict[str, dict[str, int]] = {}
    for cell in cells:
        groups.setdefault(f"{cell.dataset}, {cell.model}", {})[cell.norm] = getattr(cell, name)
    return "; ".join(f"{where}: {by_value(numbers)}" for where, numbers in groups.items())


# The dataset table


def dataset_statistics(work: Work) -> Output:
    """The dataset table, counted and as printed."""
    labels = ("graphs", "classes", "nodes per graph", "edges per graph", "degree")
    rows: list[list[str | float | bool]] = []
    for name in work.item.graphs:
        found, printed = work.graphs(name).statistics(), dataset_table()[name]
        edges, degree = found.avg_edges, found.avg_degree
        if name == MOLHIV:  # the paper's one column without self-loops, and undirected
            edges, degree = found.avg_undirected_edges, 2 * found.avg_undirected_edges / found.avg_nodes
        counted = (found.num_graphs, found.num_classes, found.avg_nodes, edges, degree)
        for label, ours, theirs in zip(labels, counted, printed, strict=True):
            rows.append([name, label, round(ours, 2), theirs, _is_as_printed(ours, theirs)])
    equal = sum(bool(row[-1]) for row in rows)
    notes = [f"{name}: {find(name).note}" for name in work.item.graphs if find(name).note]
    return work.output(
        table=Table(("dataset", "statistic", "counted", "printed", "equal"), rows),
        sentences=(f"{equal} of {len(rows)} statistics are as printed.", *notes, *work.remarks),
        facts={"as_printed": {"equal": equal, "statistics": len(rows)}},
    )


def _is_as_printed(counted: float, printed: float) -> bool:
    """Whether a count is equal, or an average when it is rounded or cut off to one digit: the paper has both.

    >>> _is_as_printed(25.56, 25.5), _is_as_printed(25.46, 25.5), _is_as_printed(25.61, 25.5)
    (True, True, False)
    """
    rounded, cut = f"{counted:.1f}", f"{math.floor(10 * counted) / 10:.1f}"
    return f"{printed:.1f}" in (rounded, cut) if isinstance(printed, float) else counted == printed


# Theory


def theory(work: Work) -> Output:
    """Theorem 1, Propositions 1 and 2 and condition numbers on the graphs of all datasets, and the other statements."""
    rows: list[list[str | int | float]] = []
    condition: list[dict[str, Any]] = []
    regular, complete, shared, orthogonal = [], [], 0, 0
    for name in work.item.graphs:
        graphs = work.graphs(name)
        order = np.random.default_rng(0).permutation(graphs.num_graphs)
        ids = np.sort(affordable(graphs, order, WORK_OF_A_QUICK_PASS) if work.quick else affordable(graphs, order))
        result = spectra(graphs, ids, AUTHORS_Q, progress=work.progress)
        holds, numbers = interlacing(result).summary(), conditions(result).summary()
        medians = [numbers[f"median_{key}"] for key in ("condition_q", "condition_shifted", "improvement")]
        rows.append([name, graphs.num_graphs, holds["graphs"], holds["holds"], *medians])
        for aggregation in (AUTHORS_Q, Aggregation("gcn")):
            of_q = numbers if aggregation == AUTHORS_Q else conditions(spectra(graphs, ids, aggregation)).summary()
            kept = ("better", "equal", "worse", "median_improvement")
            condition.append({"dataset": name, "aggregation": aggregation.label} | {key: of_q[key] for key in kept})
        equal = shared_values(graphs, ids, AUTHORS_Q)
        shared, orthogonal = shared + int(equal.shared.sum()), orthogonal + int(equal.orthogonal.sum())
        regular.append(left_on_regular_graphs(graphs))
        complete += [left_on_complete_graphs(graphs, xi) for xi in XI]
    finding = theory_part(Subject(work.graphs(work.item.graphs[-1]), progress=work.progress))
    columns = ("dataset", "graphs", "checked", "Theorem 1 holds", "condition of Q", "condition of QN", "quotient")
    checked, held = sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows)
    return work.output(
        figures={f"-{name}": figure for name, figure in finding.figures.items()},
        table=Table(columns, rows),
        sentences=(f"Theorem 1 holds on {held:,} of {checked:,} graphs.", *finding.text, *work.remarks),
        facts={
            "theorem_1": {"checked": checked, "holds": held},
            "equality": {"shared": shared, "orthogonal": orthogonal},
            "condition": plain(condition),
            "proposition_1": _nothing_left(regular, "Regular graphs of the datasets, one-hot degrees as features"),
            "proposition_2": _nothing_left(
                complete, f"Complete graphs of the datasets, ξ = {listing([f'{xi:g}' for xi in XI])}"
            ),
            "summary": plain(finding.summary),
            "aggregation": AUTHORS_Q.label,
        },
    )


def _nothing_left(parts: Sequence[npt.NDArray[np.float64]], of: str) -> dict[str, Any]:
    """How many graphs are as a proposition says; ``parts`` are the relative errors."""
    errors = np.concatenate(parts)
    largest = float(errors.max(initial=0.0))
    return {"of": of, "graphs": len(errors), "right": int((errors < ROUNDING).sum()), "largest": largest}
