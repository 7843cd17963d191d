"""Claims: judged by the numbers, only where there are some, with what is unfinished beside them."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.recipe import Beside, Recipe, Trainings
from graphnorm.paper.recipes import RECIPES

from graphnorm.errors import GraphnormError
from graphnorm.paper.claims import CLAIMS, _planned, claims_page, read_items

ABOUT: dict[str, Any] = {"quick": False, "graphnorm": "1", "torch": "2", "made": "2026-01-02T03"}
ABOUT |= {"trained_on": [], "studies": [], "sentences": []}


def page(item: str, **facts: Any) -> str:
    return claims_page({item: ABOUT | {"item": item} | facts})


def verdicts(item: str, **facts: Any) -> list[str]:
    table = page(item, **facts).partition("| claim |")[2].partition("\n## ")[0]
    rows = [line for line in table.splitlines() if line.startswith("| ")]
    return [" / ".join(cell.strip() for cell in row.split("|")[2:5]) for row in rows]


def test_every_claim_belongs_to_an_item() -> None:
    assert {claim.item for claim in CLAIMS} <= set(RECIPES)
    items = [claim.item for claim in CLAIMS]
    assert [item for k, item in enumerate(items) if item in items[:k] and items[k - 1] != item] == []  # in one place


def curves(**averages: float) -> list[dict[str, Any]]:
    """On ten folds, on all of which the differences are the same."""
    known = {"panel": "PTC", "variant": "", "unit": "fold"}
    return [
        known | {"norm": name.replace("_", "-"), "train_average": value, "train_averages": [value - 1, value + 1] * 5}
        for name, value in averages.items()
    ]


def test_variants_of_batchnorm_are_compared_with_batchnorm() -> None:
    found = curves(batch=80.0, batch_alpha=80.0, batch_running=70.0, batch_detached=85.0, graph=90.0)
    assert verdicts("fig12", convergence=found) == [
        "holds / 1 of 1 / 0 for, 0 against",
        "holds / 1 of 1 / 1 for, 0 against",
        "does not hold here / 0 of 1 / 0 for, 1 against",
        "holds / 1 of 1 / 1 for, 0 against",
    ]
    narrowed = [curve for curve in found if curve["norm"] in ("batch", "graph")]
    assert verdicts("fig12", convergence=narrowed) == []


def test_most_tasks_are_enough_where_the_paper_says_so() -> None:
    found = []
    for panel, instance in (("A", 90.0), ("B", 90.0), ("C", 60.0)):
        averages = {"none": 70.0, "layer": 70.0, "batch": 80.0, "instance": instance, "graph": 85.0}
        found += [curve | {"panel": panel} for curve in curves(**averages)]
    assert verdicts("fig2", convergence=found) == [
        "does not hold here / 1 of 3 / 1 for, 2 against",
        "holds / 2 of 3 / 2 for, 1 against",
        "holds / 3 of 3 / 0 for, 0 against",
    ]
    assert "Not judged, since there are no numbers of them or of all their rivals: 4 of `theory`, " in page(
        "fig2", convergence=found
    )


def cell(norm: str, within: bool | None, **more: Any) -> dict[str, Any]:
    known = {"dataset": "MUTAG", "model": "gin", "norm": norm, "mean": 90.0, "within_one_sd": within}
    return known | {"difference": -3.04, "reported": {"mean": 93.04, "std": 1.0}} | more


def test_cells_within_a_deviation() -> None:
    whole, part = {"compared": 60, "planned": 60}, {"compared": 1, "planned": 60}
    cells = [cell("graph", True, **whole), cell("batch", False, **part), cell("none", None)]
    cells.append(cell("baseline", False, model="wl"))  # its number is not the paper's own
    cells.append(cell("graph, α = 1", False, repeats=True))  # InstanceNorm's measurement again
    assert verdicts("table1", cells=cells) == ["does not hold here / 1 of 2 / –"]
    text = page("table1", cells=cells)
    assert "1 of 2 cells (50%), 1 of the 1 with the whole grid." in text
    assert "| MUTAG | gin | batch | 90.00 | 93.04 ± 1.00 | −3.04 | 1 of 60 |" in text
    assert "| MUTAG | gin | graph" not in text
    assert verdicts("table1", cells=[cell("none", None)]) == []


def noise(*values: tuple[str, float, float]) -> list[dict[str, Any]]:
    return [
        {"what": what, "layer": "convolutions.0.first_norm", "of_mean": mean, "of_std": std}
        for what, mean, std in values
    ]


def test_mean_and_deviation_are_compared_with_those_of_images() -> None:
    found = noise(("PROTEINS", 0.2, 0.3), ("PROTEINS", 0.04, 0.3), ("CIFAR-10", 0.05, 0.05), ("CIFAR-10", 0.06, 0.4))
    assert verdicts("fig4", relative_deviation=found) == ["does not hold here / 2 of 4 / –"]
    text = page("fig4", relative_deviation=found)
    assert "| PROTEINS | convolution 0, first norm | 0.200 (0.050) | 0.300 (0.050) | mean, standard deviation |" in text
    assert "| PROTEINS | convolution 0, first norm | 0.040 (0.060) | 0.300 (0.400) | neither |" in text
    assert "graphs are noisier in 1 of 2 means and in 1 of 2 standard deviations" in text
    assert "the standard deviation of graphs is the noisier one in 2 of 2 layers" in text
    assert verdicts("fig4", relative_deviation=found[:2]) == []
    before = [{"what": entry["what"], "layer": "", "at_the_end": 0.1} for entry in found]
    assert verdicts("fig4", relative_deviation=before) == []


def test_images_of_another_item_bring_their_remarks() -> None:
    images = noise(("CIFAR-10", 0.05, 0.05), ("CIFAR-10", 0.06, 0.06))
    lossy = ["The images of CIFAR-10 went through JPEG.", "PROTEINS is of no matter here."]
    sizes = noise(*((f"PROTEINS, batches of {size}", 0.1, 0.01) for size in (8, 16) for _ in range(2)))
    assert verdicts("fig10", relative_deviation=sizes) == []  # no images to compare with
    items = {
        "fig4": ABOUT | {"item": "fig4", "relative_deviation": images, "remarks": lossy},
        "fig10": ABOUT | {"item": "fig10", "relative_deviation": sizes, "remarks": ["Not measured: 32."]},
    }
    text = claims_page(items)
    assert "8, 16, 32 and 64. | does not hold here \\* | 4 of 8 | – |" in text
    assert text.endswith("Notes:\n\n- Not measured: 32.\n- The images of CIFAR-10 went through JPEG.\n")


THEORY = {
    "linear_gnn": {"shift_faster": 36, "runs": 36, "median_speedup": 1.3},
    "gradient": {"fixed_scale": 4e-16, "without_norm": 1e-17, "part_through_scale": 2.65},
    "fact_1_distance": {"0.0": 0.62, "0.9": 0.12, "1.0": 8e-17},
}


def test_theory() -> None:
    found = verdicts("theory", theorem_1={"holds": 9, "checked": 10}, summary=THEORY)
    assert found == [
        "holds in part / 9 of 10 / –",
        "holds / 36 of 36 / –",
        "holds / 2 of 2 / –",
        "holds in part / 2 of 3 / –",
    ]
    no_longer = THEORY | {"fact_1_distance": {"0.0": 1e-16, "0.9": 0.1, "1.0": 0.0}}
    assert "does not hold here / 1 of 2 / –" in verdicts(
        "theory", theorem_1={"holds": 9, "checked": 9}, summary=no_longer
    )


def test_what_is_unfinished_is_said_once_for_an_item() -> None:
    cells = [cell(norm, True) for norm in ("graph", "layer", "batch", "instance")]
    studies = [{"finished": 1234, "trials": 4000}]
    notes = ["4 of 4 cells lie within.", "Not trained: PTC, gin."]
    text = page("table1", cells=cells, studies=studies, sentences=notes)
    assert text.count("- Not trained: PTC, gin.") == 1  # of two claims
    assert "4 of 4 cells lie within." not in text
    assert "1,234 of 84,700 trials are trained." in text  # of the whole recipe, not of the studies that are there
    assert "| holds \\* |" in text
    assert "\\*" not in page("table1", cells=cells, studies=studies, sentences=notes[:1])
    said = ["1 of 2 are as printed.", "COLLAB has three classes."]
    assert "- COLLAB has three classes." in page("table3", as_printed={"equal": 1, "statistics": 2}, sentences=said)


def test_quick_passes_are_kept_apart(tmp_path: Path) -> None:
    facts = ABOUT | {"item": "table3", "as_printed": {"equal": 5, "statistics": 5}, "sentences": ["5 of 5."]}
    (tmp_path / "table3.json").write_text(json.dumps(facts))
    (tmp_path / "other.json").write_text("[1]")
    assert set(read_items(tmp_path)) == {"table3"}
    with pytest.raises(GraphnormError, match="no item in it"):
        read_items(tmp_path, quick=True)
    (tmp_path / "table3-quick.json").write_text(json.dumps(facts | {"quick": True}))
    assert "QUICK PASS" in claims_page(read_items(tmp_path, quick=True))
    assert "QUICK PASS" not in claims_page(read_items(tmp_path))


def test_planned_trials_are_those_of_all_plans(tmp_path: Path) -> None:
    trees = ("synthetic:trees",)
    part = Trainings(datasets=trees, models=("gin", "gcn"), protocols=("paper", "fair"), folds=3, seeds=2)
    beside = Beside(baselines=("wl",), datasets=trees, protocols=("paper",), folds=3)
    recipe = Recipe(
        item="small", caption="", maker="scores", trained=(part, replace(part, models=("gin",))), beside=beside
    )
    laboratory = Laboratory(tmp_path / "a.db", device="cpu", progress=False)
    assert _planned(recipe) == sum(len(planned.plan.trials) for planned in laboratory.plans(recipe)) == 2 * 90 + 3
    assert _planned(RECIPES["table2"]) == 2 * 5 * 10 + 4 * 10  # seeds alone
