"""Claims: judged by the numbers, and only where there are some."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest

from graphnorm.errors import GraphnormError
from graphnorm.paper.claims import CLAIMS, claims_page, read_items
from graphnorm.paper.recipes import RECIPES

ABOUT = {"quick": False, "graphnorm": "1", "torch": "2", "made": "2026-01-02T03", "trained_on": [], "studies": []}


def curve(panel: str, norm: str, average: float | None, variant: str = "") -> dict[str, Any]:
    return {"panel": panel, "norm": norm, "variant": variant, "train_average": average}


def cell(norm: str, mean: float | None, within: bool | None, dataset: str = "MUTAG") -> dict[str, Any]:
    known = {"dataset": dataset, "model": "gin", "norm": norm, "mean": mean, "within_one_sd": within}
    return known | {"difference": None if within is None else 1.0}


def verdicts(item: str, **facts: Any) -> list[str]:
    page = claims_page({item: ABOUT | {"item": item} | facts})
    rows = [line for line in page.splitlines() if line.startswith("| ") and not line.startswith("| claim")]
    return [" ".join(row.split("|")[2:4]).strip() for row in rows]


def test_every_claim_belongs_to_an_item() -> None:
    assert {claim.item for claim in CLAIMS} <= set(RECIPES)


def test_curves() -> None:
    curves = [curve("A", "graph", 90.0), curve("A", "batch", 80.0), curve("A", "instance", 85.0)]
    curves += [curve("B", "graph", 70.0), curve("B", "batch", 75.0), curve("B", "instance", None)]
    assert verdicts("fig2", convergence=curves) == ["does not hold here   1 of 2", "holds   1 of 1"]
    more = [curve(panel, norm, 60.0 + k) for k, norm in enumerate(("batch", "instance")) for panel in "CD"]
    more += [curve("E", "instance", 60.0), curve("E", "batch", 61.0)]
    assert verdicts("fig2", convergence=more) == ["holds   2 of 3"]  # it says: in most tasks
    assert verdicts("fig6", convergence=curves[:3]) == ["holds   1 of 1"]
    assert verdicts("fig5", convergence=curves) == []  # nothing of IMDB-BINARY
    sizes = [
        curve("A", n, v, f"batch size {s}") for s in (8, 64, 32) for n, v in (("graph", 50.0 + s), ("batch", 60.0))
    ]
    assert verdicts("fig11", convergence=sizes) == ["holds in part   2 of 3"]


def test_panels_without_all_rivals_are_not_judged() -> None:
    curves = [curve("A", "graph", 90.0), curve("A", "batch", 80.0), curve("A", "batch-alpha", 95.0)]
    curves += [curve("B", "graph", 90.0), curve("B", "batch", 80.0)]
    norms = ["batch", "batch-alpha", "graph"]
    studies = [{"name": panel, "trials": 30, "finished": 30, "spec": {"norms": norms}} for panel in "AB"]
    assert verdicts("fig12", convergence=curves, studies=studies) == ["does not hold here   0 of 1"]


def test_cells() -> None:
    cells = [cell("graph", 91.0, True), cell("batch", 90.0, False), cell("none", None, None)]
    cells.append(cell("baseline", 87.0, False) | {"model": "wl"})  # its number is not the paper's own
    assert verdicts("table1", cells=cells) == ["holds   1 of 1", "does not hold here   1 of 2"]
    assert verdicts("table1", cells=[cell("graph", None, None), cell("batch", 90.0, None)]) == []


def words(item: str, **facts: Any) -> str:
    return claims_page({item: ABOUT | {"item": item} | facts}).partition("## ")[2]


def test_cases_are_told_apart() -> None:
    curves = [curve("A", "graph", 90.04), curve("A", "batch", 90.01), curve("B", "graph", 70.0)]
    curves += [curve("B", "batch", 75.0), curve("C", "graph", 70.0), curve("C", "batch", 70.0)]
    said = words("fig12", convergence=curves)
    assert "curve, it holds for A: 90.04 against 90.01 (batch); C: 70.0, as has the best other (batch). It" in said
    assert "It does not for B: 70.0 against 75.0 (batch)." in said


def test_more_configurations_prove_nothing() -> None:
    """A higher score of more configurations is not counted; one of as many, or of fewer, is."""

    def group(dataset: str, ours: tuple[float, int], *others: tuple[float, int]) -> list[dict[str, Any]]:
        named = zip(("graph", "batch", "layer"), (ours, *others), strict=False)
        return [cell(n, mean, None, dataset) | {"configurations": f"{k} of 60"} for n, (mean, k) in named]

    cells = group("A", (92.0, 60), (90.0, 60)) + group("B", (92.0, 60), (90.0, 60), (89.0, 1))
    cells += group("C", (89.0, 60), (90.0, 1)) + group("D", (89.0, 1), (90.0, 60))
    cells += group("E", (92.0, 1), (90.0, 60))
    assert verdicts("table1", cells=cells) == ["holds in part   2 of 3"]
    assert "different numbers of configurations: B, gin; D, gin." in words("table1", cells=cells)


def test_cells_outside_are_named() -> None:
    cells = [cell("graph", 91.0, True) | {"configurations": "60 of 60"}, cell("batch", 90.0, False)]
    cells[1] |= {"configurations": "1 of 60", "difference": -3.04}
    assert "1 of 2 cells (50%), 1 of 1 with the whole grid. Outside: MUTAG, gin, batch (−3.0)." in words(
        "table1", cells=cells
    )


def noises(*values: tuple[str, float]) -> list[dict[str, Any]]:
    return [{"what": what, "layer": "norm", "at_the_end": value} for what, value in values]


def test_noise_and_theory() -> None:
    noise = noises(("PROTEINS", 0.2), ("PROTEINS", 0.04), ("CIFAR-10", 0.05), ("CIFAR-10", 0.06))
    assert verdicts("fig4", relative_deviation=noise) == ["does not hold here   1 of 2"]
    assert verdicts("fig4", relative_deviation=noise[:2]) == []
    more = noises(("PTC", 0.2), ("PTC", 0.3), ("NCI1", 0.04), ("NCI1", 0.3))
    assert verdicts("fig8", relative_deviation=more) == []  # no images to compare with
    items = {name: ABOUT | {"relative_deviation": found} for name, found in (("fig4", noise), ("fig8", more))}
    page = claims_page(items)
    assert "four more datasets. | holds in part | 3 of 4 |" in page
    assert "Claims about theory, table3, fig2, fig6, fig9, fig10, fig5, fig11, fig12, table1, table2 are not" in page
    linear = {"shift_faster": 36, "runs": 36, "median_speedup": 1.3}
    found = verdicts("theory", theorem_1={"holds": 9, "checked": 10}, summary={"linear_gnn": linear})
    assert found == ["holds in part   9 of 10", "holds   36 of 36"]


def test_noise_by_depth_and_batch_size() -> None:
    noise = [{"what": w, "layer": "", "at_the_end": v} for w, v in (("A", 0.2), ("A", 0.3), ("CIFAR-10", 0.1))]
    noise.append({"what": "CIFAR-10", "layer": "", "at_the_end": 0.4})
    assert verdicts("fig9", relative_deviation=noise) == ["does not hold here   1 of 2"]
    assert verdicts("fig9", relative_deviation=noise[:2]) == []
    assert "A, : 0.200 against 0.100. It does not for A, : 0.300 against 0.400." in words(
        "fig9", relative_deviation=noise
    )
    sizes = [
        {"what": "A", "layer": layer, "batch_size": size, "at_the_end": value}
        for layer, values in (("first", (0.3, 0.2, 0.1)), ("last", (0.5, 0.1, 0.2)))
        for size, value in zip((8, 16, 32), values, strict=True)
    ]
    assert verdicts("fig10", relative_deviation=sizes) == ["holds in part   3 of 4"]
    assert verdicts("fig10", relative_deviation=sizes[:1]) == []


def test_what_is_missing_is_said() -> None:
    cells = [cell("graph", 91.0, True), cell("batch", 90.0, False)]
    page = claims_page({"table1": ABOUT | {"item": "table1", "cells": cells, "missing": ["PTC, gin", "NCI1, gin"]}})
    assert page.count("Missing: PTC, gin; NCI1, gin.") == 2


def test_quick_passes_are_kept_apart(tmp_path: Path) -> None:
    facts = ABOUT | {"item": "table3", "as_printed": {"equal": 5, "statistics": 5}}
    (tmp_path / "table3.json").write_text(json.dumps(facts))
    (tmp_path / "other.json").write_text("[1]")
    assert set(read_items(tmp_path)) == {"table3"}
    with pytest.raises(GraphnormError, match="no item in it"):
        read_items(tmp_path, quick=True)
    (tmp_path / "table3-quick.json").write_text(json.dumps(facts | {"quick": True}))
    assert "QUICK PASS" in claims_page(read_items(tmp_path, quick=True))
    assert "QUICK PASS" not in claims_page(read_items(tmp_path))
