"""Tables 1 and 2: scores beside the paper's, a row for each, and once more in the paper's own shape."""

from __future__ import annotations

from collections import Counter
from collections.abc import Iterable, Sequence
from dataclasses import replace
from statistics import mean

from graphnorm.paper.cells import FAIR, SETTINGS, Cell, find_cells, is_fair_alone
from graphnorm.paper.material import Material
from graphnorm.paper.products import Product, Table, list_some, signed
from graphnorm.paper.remarks import about_absent, about_quick
from graphnorm.paper.tables import Score, agreement, within_an_error
from graphnorm.paper.wide import sheets
from graphnorm.study.protocol import find_protocol
from graphnorm.wording import listing

__all__ = ["scores"]


def scores(material: Material) -> Product:
    """A table of scores beside the paper's."""
    cells = find_cells(material)
    units = _units(material)
    judged = [cell for cell in cells if not (cell.is_baseline or cell.repeats)]
    product = material.product(
        table=_for_people(cells, units),
        data=_for_programs(cells, units),
        sentences=(
            *_about_agreement(judged, units),
            *_about_repeats(cells),
            *_about_fair(material, judged),
            *_about_optimism(cells),
            *_about_baselines([cell.score for cell in cells if cell.is_baseline]),
            *_about_grids(cells),
            *_about_devices(cells),
            *about_absent(material),
            *about_quick(material),
        ),
        facts={"cells": [cell.to_dict() for cell in cells], "missing": list(material.absent)},
    )
    return replace(product, sheets=sheets(material, cells, units, product.facts))


def _units(material: Material) -> str:
    """What scores are averages over: the head of the column that counts them."""
    kinds = {find_protocol(measured.protocol).unit for measured in material.studies}
    several = any(measured.study.spec["seeds"] > 1 for measured in material.studies)
    if kinds == {"seed"}:
        return "seeds"
    return "folds and seeds" if several or len(kinds) > 1 else "folds"


def _for_people(cells: Sequence[Cell], units: str) -> Table:
    """A row for each cell: from how much it was chosen, measured, reported, their difference, and what was chosen."""
    with_fair = any(cell.fair is not None for cell in cells)
    alone = {cell.protocol for cell in cells} == {FAIR}
    measured = f"measured, {FAIR}" if alone else "measured"
    columns = ["dataset", "model", "norm", "configurations", units, measured, "reported", "difference", "within one sd"]
    with_choice = any(cell.chosen is not None for cell in cells)
    columns += ["chosen", "epoch"] if with_choice else ["epoch"]
    columns += [f"under {FAIR}"] if with_fair else []
    rows = []
    for cell in cells:
        score = cell.score
        row = [cell.dataset, cell.model, cell.norm, f"{cell.compared} of {cell.planned}"]
        row += [f"{cell.members} of {cell.members_planned}", str(score)]
        rows.append(
            [
                *row,
                None if score.reported is None else str(score.reported),
                None if score.difference is None else signed(score.difference),
                score.within,
                *([cell.chosen] if with_choice else []),
                _epochs(cell),
                *([None if cell.fair is None else _with_extent(cell.fair)] if with_fair else []),
            ]
        )
    return Table(tuple(columns), rows)


def _with_extent(cell: Cell) -> str:
    """The score, and of how many configurations where that is not all."""
    return str(cell.score) if cell.compared == cell.planned else f"{cell.score} ({cell.compared} of {cell.planned})"


def _epochs(cell: Cell) -> str | None:
    """The epoch, or from the first to the last where members have their own."""
    if not cell.epochs or cell.is_baseline:
        return None
    return f"{min(cell.epochs)}" if cell.epoch is not None else f"{min(cell.epochs)}–{max(cell.epochs)}"


def _for_programs(cells: Sequence[Cell], units: str) -> Table:
    """The same with a number in each column."""
    rows = [_numbers(cell, units.replace(" ", "_")) for cell in cells]
    return Table(tuple(rows[0]) if rows else (), [list(row.values()) for row in rows])


def _numbers(cell: Cell, units: str) -> dict[str, str | float | None]:
    chosen, score = cell.configuration or {}, cell.score
    said = score.reported
    found: dict[str, str | float | None] = {
        "dataset": cell.dataset,
        "model": cell.model,
        "norm": cell.norm,
        "protocol": cell.protocol,
        **_origin(cell, units),
        "mean": score.mean,
        "std": score.std,
        "reported_mean": None if said is None else said.mean,
        "reported_std": None if said is None else said.std,
        "difference": score.difference,
        "within_one_sd": score.within,
        "within_one_se": score.within_error,
        **{name: chosen.get(name) for name in SETTINGS},
        "epoch": None if cell.is_baseline else cell.epoch,
        **{f"common_{name}": getattr(cell.common, name, None) for name in ("mean", "std", "configurations")},
        "repeats": cell.repeats,
        "fair_mean": None if cell.fair is None else cell.fair.score.mean,
        "fair_std": None if cell.fair is None else cell.fair.score.std,
        "among_fair_mean": None if cell.among_fair is None else cell.among_fair.mean,
        "among_fair_std": None if cell.among_fair is None else cell.among_fair.std,
    }
    beside = _origin(cell.fair or cell, units)
    return found | {f"fair_{name}": None if cell.fair is None else value for name, value in beside.items()}


def _origin(cell: Cell, units: str) -> dict[str, str | float | None]:
    return {
        "device": " and ".join(cell.devices) or None,
        "configurations": cell.compared,
        "configurations_planned": cell.planned,
        units: cell.members,
        f"{units}_planned": cell.members_planned,
    }


def _about_agreement(cells: Sequence[Cell], units: str) -> tuple[str, ...]:
    """How many lie near the paper's, by how much of the grid they were chosen from."""
    parts = {extent: [cell.score for cell in cells if cell.extent == extent] for extent in _extents(cells)}
    return (agreement(parts), *within_an_error([cell.score for cell in cells], units))


def _extents(cells: Sequence[Cell]) -> list[str]:
    """The extents of cells that can be compared with the paper, the largest first."""
    found = {cell.extent: cell.compared / cell.planned for cell in cells if cell.score.within is not None}
    return sorted(found, key=lambda extent: -found[extent])


def _about_repeats(cells: Sequence[Cell]) -> tuple[str, ...]:
    names = dict.fromkeys(cell.norm for cell in cells if cell.repeats)
    return tuple(
        f"Rows {name} are instance's measurement beside the paper's GraphNorm, and not counted." for name in names
    )


def _about_fair(material: Material, cells: Sequence[Cell]) -> tuple[str, ...]:
    """Where folds chose among less than the grid under that protocol, and that the paper has nothing like it."""
    if is_fair_alone(material):
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


def _about_baselines(scores: list[Score]) -> tuple[str, ...]:
    if not scores:
        return ()
    words = "Baselines have the same folds, and settings of their own: they are not tuned over the grid."
    compared = any(score.within is not None for score in scores)
    return (words, "Of the baselines: " + agreement({"": scores})) if compared else (words,)


def _about_grids(cells: Sequence[Cell]) -> tuple[str, ...]:
    """That configurations are none of the recipe's own, where they are not."""
    foreign = dict.fromkeys(f"{cell.dataset}, {cell.model}" for cell in cells if not cell.is_of_own_grid)
    return (f"Of another grid than the item's own: {list_some(list(foreign))}.",) if foreign else ()


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
