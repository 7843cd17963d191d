"""Tables 1 and 2: scores beside the paper's."""

from __future__ import annotations

from typing import Any

from graphnorm.paper.laboratory import Material, Measured
from graphnorm.paper.products import Product, Table, list_some
from graphnorm.paper.remarks import about_absent, about_quick
from graphnorm.paper.reported import reported, reported_baseline
from graphnorm.paper.tables import Score, agreement, score_table

__all__ = ["scores"]

BASELINE = "baseline"
"""What stands in the place of the normalization."""
CELL = ("dataset", "model", "norm", "configurations", "members")
"""What names a cell of a table of scores, and how much of it is trained: configurations, and folds or seeds of each."""
NUMBERS = (
    *CELL[:3],
    *("configurations", "configurations_planned", "members", "members_planned"),
    *("mean", "std", "reported_mean", "reported_std", "difference", "within_one_sd", "fair_mean", "fair_std"),
)
"""The same for programs: a number in each column."""


def scores(material: Material) -> Product:
    """A table of scores beside the paper's."""
    fair = {
        (measured.dataset, measured.model, result.norm): _score(measured, result.norm)
        for measured in material.studies
        if measured.protocol == "fair"
        for result in measured.results
    }
    rows: list[tuple[list[str | int | None], Score, Score | None]] = []
    numbers: list[list[str | int | float | bool | None]] = []
    for measured in material.studies:
        if measured.protocol == "fair":
            continue
        for result in measured.results:
            configurations = (result.compared, len(result.configurations))
            members = (0 if result.selection is None else len(result.selection.choices), result.members)
            counts = [f"{done} of {planned}" for done, planned in (configurations, members)]
            shown = BASELINE if measured.is_baseline else result.norm
            cell = (measured.dataset, measured.model, result.norm)
            cells = [(shown, _score(measured, result.norm), fair.get(cell))]
            if measured.dataset == "ogbg-molhiv" and result.norm == "instance":
                # The authors' code for this dataset has no α: its GraphNorm is what is called instance here.
                score = _score(measured, "instance")
                score.reported = reported(measured.dataset, measured.model, "graph", measured.protocol)
                cells.append(("graph, α = 1", score, None))
            for norm, score, other in cells:
                rows.append(([measured.dataset, measured.model, norm, *counts], score, other))
                numbers.append([measured.dataset, measured.model, norm, *configurations, *members])
                numbers[-1] += [*score.numbers(), *(other or Score(None)).numbers()[:2]]
    table = score_table(rows, CELL)
    normalized = [score for key, score, _ in rows if key[2] != BASELINE]
    baselines = [score for key, score, _ in rows if key[2] == BASELINE]
    return material.product(
        table=table,
        data=Table(NUMBERS, numbers),
        sentences=(
            agreement(normalized),
            *_about_fair(material),
            *_about_baselines(baselines),
            *about_absent(material),
            *about_quick(material),
        ),
        facts={"cells": [_cell(keys, score, other) for keys, score, other in rows], "missing": list(material.absent)},
    )


def _score(measured: Measured, norm: str) -> Score:
    selection = next(result.selection for result in measured.results if result.norm == norm)
    if measured.is_baseline:
        said = reported_baseline(measured.dataset, measured.model, measured.protocol)
    else:
        said = reported(measured.dataset, measured.model, norm, measured.protocol)
    if selection is None:
        return Score(None, reported=said)
    return Score(100 * selection.mean, 100 * selection.std, said)


def _cell(keys: list[str | int | None], score: Score, fair: Score | None) -> dict[str, Any]:
    said = score.reported
    return dict(zip(CELL, keys, strict=True)) | {
        "mean": score.mean,
        "std": score.std,
        "reported": None if said is None else {"mean": said.mean, "std": said.std},
        "difference": score.difference,
        "within_one_sd": score.within,
        "fair": None if fair is None else {"mean": fair.mean, "std": fair.std},
    }


def _about_fair(material: Material) -> tuple[str, ...]:
    """From how much of the grid the numbers under fair were chosen, where that is less than all of it."""
    parts = []
    for measured in material.studies:
        fewest = min(result.compared for result in measured.results)
        planned = len(measured.results[0].configurations)
        if measured.protocol == "fair" and fewest < planned:
            parts.append(f"{measured.dataset}, {measured.model} ({fewest} of {planned})")
    return (f"Under fair, of a part of the configurations: {list_some(parts)}.",) if parts else ()


def _about_baselines(scores: list[Score]) -> tuple[str, ...]:
    if not scores:
        return ()
    words = "Baselines have the same folds, and settings of their own: they are not tuned over the grid."
    return (words, "Of the baselines: " + agreement(scores)) if any(s.within is not None for s in scores) else (words,)
