"""The paper's tables: our scores with the reported ones, in rows and in the paper's own layout; datasets; theory."""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import replace
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
from graphnorm.analysis.parts import describe_theory
from graphnorm.data.catalog import find
from graphnorm.errors import listing
from graphnorm.files import plain
from graphnorm.models import MODELS
from graphnorm.paper.cells import (
    BASELINE,
    FAIR,
    FULL_SHIFT,
    SETTINGS,
    Cell,
    find_cells,
    leading_protocol,
    reported_cell,
)
from graphnorm.paper.figures import AUTHORS_Q, NAMES
from graphnorm.paper.item import Baselines
from graphnorm.paper.output import Output, Sheet
from graphnorm.study.grouping import by_key
from graphnorm.study.paper_numbers import MOLHIV, REPETITIONS, Reported, dataset_table
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import NOTHING, Table, TwoLines, by_value, list_some, signed, span
from graphnorm.study.score import Score
from graphnorm.study.significance import compare_all

if TYPE_CHECKING:
    from graphnorm.paper.item import Item
    from graphnorm.paper.reproduce import Work

__all__ = ["dataset_statistics", "pairs", "scores", "theory"]

WORK_OF_A_QUICK_PASS = 2e9
XI = (0.0, 0.1, -0.5)
"""The values with which Proposition 2 is checked."""
ROUNDING = 1e-9


# Tables 1 and 2


def scores(work: Work) -> Output:
    """A table of scores, with the paper's."""
    cells = find_cells(work)
    tested = pairs(cells)
    kinds = {result.protocol.unit for _, result in work.studies}
    several = any(result.spec["seeds"] > 1 for _, result in work.studies)
    units = "seeds" if kinds == {"seed"} else "folds and seeds" if several or len(kinds) > 1 else "folds"
    output = work.output(
        table=_for_people(cells, units),
        data=_for_programs(cells, units.replace(" ", "_")),
        sentences=(*_sentences(work.item, cells, tested, units), *work.remarks),
        facts={"cells": plain(cells), "pairs": tested, "missing": list(work.absent)},
    )
    return replace(output, sheets=_sheets(work.item, cells, units, output.facts))


def _shown(score: Score) -> str:
    return NOTHING if math.isnan(score.mean) else score.shown


def pairs(cells: Sequence[Cell]) -> list[dict[str, Any]]:
    """Which normalization is significantly ahead of which, by protocol, dataset and model.

    Scores are chosen among the configurations that all normalizations have: a larger choice is an advantage.
    """
    judged = [one for cell in cells for one in (cell, cell.fair) if one and not (one.repeats or one.is_baseline)]
    groups = by_key((one for one in judged if one.mean is not None), lambda one: (one.protocol, one.dataset, one.model))
    found = []
    for (name, dataset, model), members in groups.items():
        protocol = find_protocol(name)
        equal = {cell.norm: (cell.common or cell.score).scores for cell in members}
        tests = compare_all(equal, overlap=protocol.overlap(members[0].units), paired=protocol.paired)
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


def _for_people(cells: Sequence[Cell], units: str) -> Table:
    measured = f"measured, {FAIR}" if {cell.protocol for cell in cells} == {FAIR} else "measured"
    rows = []
    for cell in cells:
        under_fair = None
        if (fair := cell.fair) is not None:
            part = "" if fair.compared == fair.planned else f" ({fair.compared} of {fair.planned})"
            under_fair = f"{_shown(fair.score)}{part}"
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
            "chosen": cell.chosen,
            "epoch": span(cell.epochs, "–") if cell.epochs and not cell.is_baseline else None,
            f"under {FAIR}": under_fair,
        }
        rows.append(row)
    needless = [name for name in ("chosen", f"under {FAIR}") if all(row[name] is None for row in rows)]
    return Table.of(rows, without=needless)


def _for_programs(cells: Sequence[Cell], units: str) -> Table:
    """The same with a number in each column."""
    rows = []
    for cell in cells:
        written, chosen = cell.to_dict(), cell.configuration or {}
        row = {
            **{name: written[name] for name in ("dataset", "model", "norm", "protocol")},
            **_extent(written, units),
            **{name: written[name] for name in ("mean", "std")},
            **_mean_and_std(written, "reported"),
            **{name: written[name] for name in ("difference", "within_one_sd", "within_one_se")},
            **{name: chosen.get(name) for name in SETTINGS},
            "epoch": None if cell.is_baseline else cell.epoch,
            **_mean_and_std(written, "common"),
            "common_configurations": written["common"] and written["common"]["configurations"],
            "repeats": cell.repeats,
            **_mean_and_std(written, "fair"),
            **_mean_and_std(written, "among_fair"),
            **{f"fair_{name}": value for name, value in _extent(written["fair"], units).items()},
        }
        rows.append(row)
    return Table.of(rows)


def _extent(written: Mapping[str, Any] | None, units: str) -> dict[str, Any]:
    """The devices of a cell, and its shares of the grid and of folds or seeds; all None if there is no cell."""
    names = ("configurations", "configurations_planned", units, f"{units}_planned")
    counts = ("compared", "planned", "members", "members_planned")
    device = written and (" and ".join(written["device"]) or None)
    return {"device": device} | {name: written and written[count] for name, count in zip(names, counts, strict=True)}


def _mean_and_std(written: Mapping[str, Any], name: str) -> dict[str, Any]:
    score = written[name]
    return {f"{name}_{number}": score and score[number] for number in ("mean", "std")}


# Sentences under them


def _sentences(item: Item, cells: Sequence[Cell], tested: Sequence[Mapping[str, Any]], units: str) -> Iterator[str]:
    judged = [cell for cell in cells if not (cell.is_baseline or cell.repeats)]
    yield from _about_agreement(judged, units)
    for name in dict.fromkeys(cell.norm for cell in cells if cell.repeats):
        yield f"Rows {name} show the measurement of instance with the paper's GraphNorm, and are not counted."
    yield from _about_pairs(tested)
    if leading_protocol(item.protocols) == FAIR:
        yield f"Under {FAIR} a fold has no part in any choice; the paper has no such numbers."
    else:
        yield from _about_fair([cell.fair for cell in judged if cell.fair is not None])
    yield from _about_optimism(cells)
    if baselines := [cell for cell in cells if cell.is_baseline]:
        yield "Baselines have the same folds, and settings of their own: they are not tuned over the grid."
        if any(cell.within_std is not None for cell in baselines):
            yield "Of the baselines: " + agreement({"": baselines})
    if others := dict.fromkeys(f"{cell.dataset}, {cell.model}" for cell in cells if not cell.is_of_own_grid):
        yield f"Of another grid than the item's own: {list_some(list(others))}."
    yield from _about_devices([*cells, *(cell.fair for cell in cells if cell.fair is not None)])


def _about_agreement(cells: Sequence[Cell], units: str) -> Iterator[str]:
    """How many scores are near the paper's, by how much of the grid they were chosen from."""
    compared = [cell for cell in cells if cell.within_std is not None]
    yield agreement(by_key(sorted(compared, key=lambda cell: -cell.compared / cell.planned), lambda cell: cell.extent))
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


def _about_pairs(tested: Sequence[Mapping[str, Any]]) -> Iterator[str]:
    """tested: see :func:`pairs`."""
    for protocol, found in by_key(tested, lambda one: one["protocol"]).items():
        differ = []
        for one in found:
            if one["significant"]:
                leads = ", ".join(f"{ahead} > {behind}" for ahead, behind in one["significant"])
                differ.append(f"{one['dataset']}, {one['model']} ({leads})")
        count, tests = sum(len(one["significant"]) for one in found), sum(one["pairs"] for one in found)
        yield (
            f"{find_protocol(protocol).under.capitalize()} {count} of {tests} pairs of normalizations differ "
            f"significantly, among configurations that all have{': ' if differ else ''}{'; '.join(differ)}."
        )


def _about_fair(cells: Sequence[Cell]) -> Iterator[str]:
    """Where the choice under that protocol is among a part of the grid."""
    if all(cell.compared == cell.planned for cell in cells):
        return
    texts: dict[str, str] = {}
    for dataset, of_dataset in by_key(cells, lambda cell: cell.dataset).items():
        models = by_key(of_dataset, lambda cell: cell.model)
        counts = {model: {cell.compared for cell in of_model} for model, of_model in models.items()}
        same = all(found == counts[of_dataset[0].model] for found in counts.values())
        texts |= {dataset if same else f"{dataset} with {model}": span(found) for model, found in counts.items()}
    yield f"Under {FAIR}, a part of the {max(cell.planned for cell in cells)} configurations: {by_value(texts)}."


def _about_optimism(cells: Sequence[Cell]) -> Iterator[str]:
    """How much of the scores is due to the protocol, by dataset."""
    words = []
    known = [cell for cell in cells if cell.optimism is not None]
    for dataset, of_dataset in by_key(known, lambda cell: cell.dataset).items():
        points = [cell.optimism for cell in of_dataset if cell.optimism is not None]
        range_of = f"{signed(min(points))} to {signed(max(points))}"
        words.append(f"{dataset} {signed(mean(points))} ({len(points)} cells, {range_of})")
    if known:
        head = f"Scores under {known[0].protocol} minus those under {FAIR}, chosen among the same configurations"
        yield f"{head}, on average: {list_some(words)}."


def _about_devices(cells: Sequence[Cell]) -> Iterator[str]:
    """Which cells were trained where, if not all on the same device."""

    def name(cell: Cell) -> str:
        under = f" under {FAIR}" if cell.protocol == FAIR else ""
        return "baselines" if cell.is_baseline else f"{cell.dataset}, {cell.model}{under}"

    trained = by_key((cell for cell in cells if cell.score.devices), lambda cell: " and ".join(cell.score.devices))
    places = {devices: list(dict.fromkeys(map(name, trained_there))) for devices, trained_there in trained.items()}
    if len(places) > 1:
        most = max(places, key=lambda devices: len(places[devices]))
        others = [f"{devices}: {list_some(where)}" for devices, where in places.items() if devices != most]
        yield f"Trained on {'; on '.join(others)}; the rest on {most}."


# The paper's layout: datasets, or for ogbg-molhiv models, as columns

ONE, SOME, FEWER = "†", "‡", "§"
"""A score from one configuration, from a part of the grid, and from a part of the folds or seeds."""
Place = tuple[str, str, str]
"""Dataset, model and normalization."""


def _sheets(item: Item, cells: Sequence[Cell], units: str, facts: Mapping[str, Any]) -> dict[str, Sheet]:
    """The paper's table, with its numbers below ours; and the same under ``fair``, if that is not the only protocol."""
    shown = {place: TwoLines(NOTHING, reported and str(reported)) for place, reported in _planned(item)}
    for cell in cells:
        below = cell.reported and str(cell.reported)
        shown[cell.dataset, cell.model, cell.norm] = TwoLines(f"{_shown(cell.score)}{_mark(cell)}", below)
    below = "what the paper reports" if any(cell.reported for cell in cells) else ""
    sheets = {"-wide": Sheet(_in_papers_layout(item, shown), _notes(cells, units, below, facts))}
    pairs = [(cell, fair) for cell in cells if (fair := cell.fair) is not None and fair.mean is not None]
    if pairs:
        shown = {}
        for cell, fair in pairs:
            same = cell.score if cell.is_baseline else cell.among_fair
            lines = TwoLines(f"{_shown(fair.score)}{_mark(fair)}", None if same is None else _shown(same))
            shown[cell.dataset, cell.model, cell.norm] = lines
        below = f"the same configurations under {pairs[0][0].protocol}"
        notes = _notes([fair for _, fair in pairs], units, below, facts)
        sheets[f"-{FAIR}"] = Sheet(_in_papers_layout(item, shown), notes, addition=f", under {FAIR}")
    return sheets


def _planned(item: Item) -> Iterator[tuple[Place, Reported | None]]:
    """Every cell of the item with the paper's number, trained or not, in the order of rows: baselines come first."""
    for others in (part for part in item.parts if isinstance(part, Baselines)):
        for name, dataset in product(others.baselines, others.datasets):
            yield (dataset, name, BASELINE), reported_cell(dataset, name, BASELINE, leading_protocol(others.protocols))
    for part in item.trained:
        protocol = leading_protocol(part.protocols)
        for model, norm, dataset in product(part.models, part.norms, part.datasets):
            for shown in (norm, FULL_SHIFT) if dataset == MOLHIV and norm == "instance" else (norm,):
                yield (dataset, model, shown), reported_cell(dataset, model, shown, protocol)


def _in_papers_layout(item: Item, shown: Mapping[Place, TwoLines]) -> Table:
    """Rows without any number are left out."""
    rows: dict[tuple[str, str], dict[str, TwoLines]] = {}
    columns: dict[bool, list[str]] = {False: [], True: []}
    for place, _ in _planned(item):
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
    >>> _row_and_column("PTC", "gcn", "mine")
    (('GCN', 'mine'), 'PTC')
    """
    family = MODELS[model].family
    name, *rest = norm.split(",")
    layer = ",".join([NAMES.get(name, name), *rest])
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
    groups = by_key(cells, lambda cell: f"{cell.dataset}, {cell.model}")
    texts = (
        f"{where}: {by_value({cell.norm: getattr(cell, name) for cell in of_model})}"
        for where, of_model in groups.items()
    )
    return "; ".join(texts)


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
    finding = describe_theory(progress=work.progress)
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
