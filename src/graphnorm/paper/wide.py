"""Tables of scores in the paper's shape: datasets, or for ogbg-molhiv models, as columns."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import product
from operator import attrgetter
from typing import Any, NamedTuple

from graphnorm.layers import make_norm
from graphnorm.paper.cells import BASELINE, FAIR, FULL_SHIFT, Cell
from graphnorm.paper.material import Material
from graphnorm.paper.products import NOTHING, Sheet, Stacked, Table
from graphnorm.paper.recipe import MOLHIV
from graphnorm.paper.reported import BASELINE_NAMES, Reported, reported, reported_baseline
from graphnorm.paper.tables import Score

__all__ = ["sheets"]

ONE, SOME, FEWER = "†", "‡", "§"
"""A score from one configuration, from a part of the grid, and from a part of the folds or seeds."""


class _Place(NamedTuple):
    """Where a score stands."""

    model: str
    norm: str
    column: str
    is_baseline: bool = False


def sheets(material: Material, cells: Sequence[Cell], units: str, facts: Mapping[str, Any]) -> dict[str, Sheet]:
    """The paper's table, and the same under ``fair`` where that stands beside another protocol.

    facts: of the product.
    """
    below = "what the paper reports" if any(cell.score.reported for cell in cells) else ""
    wide = Sheet(_wide(material, cells), _notes(cells, units, below, facts))
    pairs = [(cell, fair) for cell in cells if (fair := cell.fair) is not None and fair.score.mean is not None]
    if not pairs:
        return {"-wide": wide}
    notes = _notes([fair for _, fair in pairs], units, f"the same configurations under {pairs[0][0].protocol}", facts)
    return {"-wide": wide, f"-{FAIR}": Sheet(_fair(pairs, wide.table), notes, addition=f", under {FAIR}")}


def _wide(material: Material, cells: Sequence[Cell]) -> Table:
    """Measured, with what the paper reports below it, of all that is planned."""
    shown: dict[_Place, Stacked] = {}
    for dataset, model, norm, said in _planned(material):
        shown[_place(dataset, model, norm)] = _stacked(NOTHING, said)
    for cell in cells:
        shown[_place(cell.dataset, cell.model, cell.norm)] = _stacked(f"{cell.score}{_mark(cell)}", cell.score.reported)
    return _arranged(shown, [place.column for place in sorted(shown, key=attrgetter("is_baseline"))])


def _fair(pairs: Sequence[tuple[Cell, Cell]], wide: Table) -> Table:
    """Measured under ``fair``, with what the same configurations have under the other protocol below it.

    pairs: each cell, and the same under ``fair``. Columns are in the order of ``wide``.
    """
    shown = {}
    for cell, fair in sorted(pairs, key=lambda pair: not pair[0].is_baseline):
        same = cell.among_fair
        other = cell.score if cell.is_baseline else None if same is None else Score(same.mean, same.std)
        shown[_place(cell.dataset, cell.model, cell.norm)] = _stacked(f"{fair.score}{_mark(fair)}", other)
    there = {place.column for place in shown}
    return _arranged(shown, [column for column in wide.columns if column in there])


def _arranged(shown: Mapping[_Place, Stacked], wanted: Sequence[str]) -> Table:
    """Rows of which there is nothing are left out."""
    empty = Stacked(NOTHING)
    columns = list(dict.fromkeys(wanted))
    found: dict[tuple[str, str], dict[str, Stacked]] = {}
    for place, stacked in shown.items():
        found.setdefault((place.model, place.norm), {})[place.column] = stacked
    filled = {row: [values.get(column, empty) for column in columns] for row, values in found.items()}
    kept = {row: values for row, values in filled.items() if any(value != empty for value in values)}
    with_model = any(model for model, _ in kept)
    heads = ("model", "norm") if with_model else ("norm",)
    return Table((*heads, *columns), [[*(row if with_model else row[1:]), *values] for row, values in kept.items()])


def _planned(material: Material) -> Iterator[tuple[str, str, str, Reported | None]]:
    """Dataset, model, normalization and the paper's number of every place, trained or not, in the order of rows."""
    recipe = material.recipe
    if recipe.beside:
        protocol = _leading(recipe.beside.protocols)
        for name, dataset in product(recipe.beside.baselines, recipe.beside.datasets):
            yield dataset, name, BASELINE, reported_baseline(dataset, name, protocol)
    for part in recipe.trained:
        protocol = _leading(part.protocols)
        for model, norm, dataset in product(part.models, part.norms, part.datasets):
            yield dataset, model, norm, reported(dataset, model, norm, protocol)
            if dataset == MOLHIV and norm == "instance":
                yield dataset, model, FULL_SHIFT, reported(dataset, model, "graph", protocol)


def _leading(protocols: Sequence[str]) -> str:
    return next((name for name in protocols if name != FAIR), FAIR)


def _place(dataset: str, model: str, norm: str) -> _Place:
    if dataset == MOLHIV:
        kind = next((part for part in model.split("-") if part in ("gin", "gcn")), model)
        ogb = "OGB's own, virtual node" if "virtual" in model else "OGB's own"
        return _Place("", ogb if norm == BASELINE else _in_full(norm), kind.upper(), norm == BASELINE)
    if norm == BASELINE:
        return _Place(BASELINE_NAMES.get(model, model.upper()), NOTHING, dataset, True)
    return _Place(model.upper(), _in_full(norm), dataset)


def _in_full(norm: str) -> str:
    """The name of a normalization's layer.

    >>> _in_full("graph"), _in_full("graph, α = 1"), _in_full("none")
    ('GraphNorm', 'GraphNorm, α = 1', 'none')
    """
    name, comma, rest = norm.partition(",")
    return norm if norm == "none" else f"{type(make_norm(name, 1)).__name__}{comma}{rest}"


def _stacked(measured: str, other: Reported | Score | None) -> Stacked:
    return Stacked(measured, None if other is None else str(other))


def _mark(cell: Cell) -> str:
    if cell.score.mean is None:
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
        notes.append(f"{ONE} From one of {_counts(marked[ONE], _planned_configurations)} configurations.")
    if some := marked[SOME]:
        planned = _counts(some, _planned_configurations)
        notes.append(
            f"{SOME} From a part of {planned} configurations: {_by_cell(some, lambda cell: cell.compared, cells)}."
        )
    if fewer := marked[FEWER]:
        planned = _counts(fewer, lambda cell: cell.members_planned)
        notes.append(f"{FEWER} From fewer than {planned} {units}: {_by_cell(fewer, lambda cell: cell.members, cells)}.")
    made = f"Made on {facts['made'][:10]} with graphnorm {facts['graphnorm']}; trained on {devices}."
    return (*notes, made)


def _planned_configurations(cell: Cell) -> int:
    return cell.planned


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
