"""Contests between normalizations: who is ahead, whether beyond noise, and who is not judged."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import pytest
from graphnorm.paper.contests import Claimed, converges_within, scores_best, trains
from graphnorm.paper.judging import Judged
from scipy.stats import ttest_ind

from graphnorm.study.significance import paired_test

WIGGLE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4, -0.3, 0.0)
"""What folds differ by; it adds up to nothing."""
NORMS = ("graph", "batch", "batch-alpha", "batch-running", "instance", "layer", "none", "baseline")


def folds(norm: str, average: float, spread: float) -> list[float]:
    """Ten values, each normalization's in an order of its own."""
    turn = NORMS.index(norm)
    return [average + spread * wiggle for wiggle in (*WIGGLE[turn:], *WIGGLE[:turn])]


def curve(norm: str, average: float | None, panel: str = "A", spread: float = 0.1, **more: Any) -> dict[str, Any]:
    known = {"panel": panel, "norm": norm, "variant": "", "train_average": average, "unit": "fold"}
    return known | {"train_averages": None if average is None else folds(norm, average, spread)} | more


def judged(item: str, curves: Sequence[dict[str, Any]], norm: str, claimed: Claimed, *others: str) -> Judged:
    found = trains(norm, claimed, others or None)({"item": item, "convergence": curves, "studies": []})
    assert found is not None
    return found


def test_sides_and_noise() -> None:
    curves = [curve("graph", 90.0, "clear"), curve("batch", 80.0, "clear")]
    curves += [curve("graph", 90.0, "close", 5.0), curve("batch", 89.9, "close", 5.0)]
    curves += [curve("graph", 89.9, "behind, close", 5.0), curve("batch", 90.0, "behind, close", 5.0)]
    curves += [curve("graph", 80.0, "behind"), curve("batch", 90.0, "behind")]
    curves += [curve("graph", 80.0, "level", 5.0), curve("batch", 80.001, "level", 5.0)]
    found = judged("fig11", curves, "graph", "ahead")
    assert [row[-1] for row in found.rows] == [
        "ahead", "ahead, within noise", "behind, within noise", "behind", "level, within noise",
    ]  # fmt: skip
    assert (found.right, found.cases, found.beyond) == (3, 5, (1, 1))
    assert found.words == (
        "`graph` against batch: of 5 cases, ahead in 2 (1 beyond noise), level in 1 (0 beyond noise), "
        "behind in 2 (1 beyond noise)"
    )
    assert found.rows[1][:4] == ("close", "90.00", "89.90", "+0.10")
    assert found.verdict() == "holds in part"
    assert judged("fig11", curves[:2], "graph", "ahead").verdict() == "holds"


def test_without_a_sure_case_nothing_is_decided() -> None:
    curves = [curve("graph", 90.0, spread=5.0), curve("batch", 89.9, spread=5.0)]
    found = judged("fig11", curves, "graph", "ahead")
    assert (found.right, found.cases, found.verdict()) == (1, 1, "undecided")
    untested = [entry | {"train_averages": None} for entry in curves]
    found = judged("fig11", untested, "graph", "ahead")
    assert (found.beyond, found.verdict(), found.rows[0][-2:]) == (None, "holds", ("–", "ahead, not tested"))


def test_p_is_adjusted_for_the_number_of_rivals_and_of_the_one_least_surely_beaten() -> None:
    ours = curve("graph", 90.0)
    close, far = curve("batch", 89.95), curve("batch-alpha", 80.0)
    averages = [dict(enumerate(entry["train_averages"])) for entry in (ours, close)]
    alone = paired_test(*averages, overlap=1 / 9).p
    assert alone is not None
    assert 1e-3 < alone < 0.05
    found = judged("fig12", [ours, close, far], "graph", "ahead", "batch", "batch-alpha")
    assert found.rows[0][2:5] == ("89.95 (batch)", "+0.05", f"{alone:.3f}")
    assert found.beyond == (1, 0)
    # Behind both: twice the p of the one that is surer, since it could have been either.
    both = [ours, curve("batch", 90.05), curve("batch-alpha", 90.02, spread=5.0)]
    found = judged("fig12", both, "graph", "ahead", "batch", "batch-alpha")
    assert found.rows[0][2:] == ("90.05 (batch)", "−0.05", f"{2 * alone:.3f}", "behind, within noise")
    alone_behind = judged("fig12", both, "graph", "ahead", "batch")
    assert alone_behind.rows[0][-2:] == (f"{alone:.3f}", "behind")


def test_seeds_are_not_paired() -> None:
    """Seeds that go up and down together differ surely as pairs, and not as what they are."""
    ours, theirs = [70.0, 80.0, 90.0, 85.0], [69.0, 79.1, 88.9, 84.0]
    curves = [curve("graph", 81.25, train_averages=ours), curve("batch", 80.25, train_averages=[*theirs, None])]
    assert judged("fig11", curves, "graph", "ahead").rows[0][-1] == "ahead"
    found = judged("fig11", [entry | {"unit": "seed"} for entry in curves], "graph", "ahead")
    assert found.rows[0][-1] == "ahead, within noise"
    assert found.rows[0][-2] == f"{ttest_ind(ours, theirs, equal_var=False).pvalue:.3f}"


def test_claims_that_one_is_worse_or_not_better() -> None:
    curves = [curve("batch", 80.0), curve("batch-alpha", 90.0), curve("batch-running", 70.0)]
    worse = judged("fig12", curves, "batch-running", "behind", "batch", "batch-alpha")
    assert (worse.verdict(), worse.beyond, worse.columns[2]) == ("holds", (1, 0), "lowest other")
    assert worse.rows[0][2:4] == ("80.00 (batch)", "−10.00")
    between = judged("fig12", curves, "batch", "behind", "batch-running", "batch-alpha")
    assert (between.verdict(), between.beyond) == ("does not hold here", (0, 1))
    better = judged("fig12", curves, "batch-alpha", "not ahead", "batch")
    assert (better.verdict(), better.beyond) == ("does not hold here", (0, 1))
    same = [curve("batch", 80.0, spread=5.0), curve("batch-alpha", 80.1, spread=5.0)]
    not_better = judged("fig12", same, "batch-alpha", "not ahead", "batch")
    assert (not_better.verdict(), not_better.beyond) == ("holds", (0, 0))


def test_panels_without_all_rivals_of_the_recipe_are_not_judged() -> None:
    """A run with fewer normalizations does not show that one is ahead of all."""
    whole = [curve(norm, 60.0 + k) for k, norm in enumerate(("none", "layer", "batch", "instance", "graph"))]
    fewer = [curve("graph", 90.0, "B"), curve("batch", 80.0, "B"), curve("instance", None, "B")]
    found = judged("fig2", [*whole, *fewer], "graph", "ahead")
    assert [row[0] for row in found.rows] == ["A"]
    assert trains("graph", "ahead")({"item": "fig2", "convergence": fewer, "studies": []}) is None
    assert trains("graph", "ahead", ("instance",), panel="IMDB")({"item": "fig5", "convergence": whole}) is None


def cell(norm: str, mean: float | None, dataset: str = "MUTAG", spread: float = 0.1, **more: Any) -> dict[str, Any]:
    known = {"dataset": dataset, "model": "gin", "norm": norm, "mean": mean, "within_one_sd": None}
    known["scores"] = None if mean is None else folds(norm, mean, spread)
    return known | {"compared": 60, "planned": 60, "common": None, "members": 10, "members_planned": 10} | more


def table(ours: float, *others: float, dataset: str = "MUTAG", **more: Any) -> list[dict[str, Any]]:
    named = zip(("graph", "layer", "batch", "instance", "none"), (ours, *others), strict=False)
    return [cell(norm, mean, dataset, **more) for norm, mean in named]


def scored(cells: Sequence[dict[str, Any]], item: str = "table1", model: str = "gin") -> Judged | None:
    return scores_best(model)({"item": item, "cells": cells})


def test_the_highest_score_among_normalizations() -> None:
    cells = table(92.0, 88.0, 89.0, 91.0, 99.0) + table(75.0, 76.0, 70.0, 70.0, dataset="PTC")
    cells.append(cell("baseline", 99.0) | {"model": "wl"})
    found = scored(cells)
    assert found is not None
    assert found.rows == (
        ("MUTAG", "92.00", "91.00 (instance)", "+1.00", "< 0.001", "ahead", "60 of 60", "99.00"),
        ("PTC", "75.00", "76.00 (layer)", "−1.00", "< 0.001", "behind", "60 of 60", "–"),
    )
    assert (found.right, found.cases, found.beyond) == (1, 2, (1, 1))
    assert scored(table(92.0, 88.0, 89.0)) is None  # no instance
    assert scored(cells, model="gcn") is None
    assert scored([entry | {"protocol": "fair"} for entry in cells]) is None


def test_scores_are_compared_on_equal_terms() -> None:
    """Of 60 configurations GraphNorm is ahead of others with 12; of the 12 that all have, it is not."""
    ours = cell("graph", 92.0, common={"mean": 89.0, "std": 1.0, "configurations": 12})
    others = [cell(norm, 90.0, compared=12) for norm in ("layer", "batch", "instance")]
    found = scored([ours, *others])
    assert found is not None
    assert found.rows[0][1:4] == ("89.00", "90.00 (layer)", "−1.00")
    assert found.rows[0][-3:] == ("behind, not tested", "12 of 60", "–")  # its folds' scores are those of 60
    nothing_common = ours | {"common": {"mean": None, "std": None, "configurations": 0}}
    assert scored([nothing_common, *others]) is None


def test_a_second_look_at_one_measurement_and_missing_seeds() -> None:
    cells = [entry | {"model": "molhiv-gin"} for entry in table(75.0, 74.0, 76.0, 73.0)]
    cells[1] |= {"members": 3, "scores": cells[1]["scores"][:3]}
    cells.append(cell("graph", 99.0, model="molhiv-gin", repeats=True))
    found = scored(cells, "table2", "molhiv-gin")
    assert found is not None
    assert found.rows[0][1] == "75.00"
    assert found.words.endswith("Trained in part: MUTAG, layer (3 of 10)")


@pytest.mark.parametrize(
    ("graph", "batch", "right"), [(150, None, 2), (158, 330, 1), (151, 345, 2), (260, 345, 1), (None, None, 1)]
)
def test_iterations_until_convergence(graph: int | None, batch: int | None, right: int) -> None:
    """An epoch of NCI1 has 29 iterations: 5,000 are 172 epochs, half as many again 258, and 10,000 are 344."""
    curves = [curve("graph", 90.0, "NCI1", epochs_to_converge=graph)]
    curves.append(curve("batch", 80.0, "NCI1", epochs_to_converge=batch))
    spec = {"dataset": "NCI1", "folds": 10, "grid": {"batch_size": [128], "epochs": [400]}}
    facts = {"item": "fig2", "convergence": curves, "studies": [{"spec": spec}]}
    found = converges_within({"NCI1": 5000, "PTC": 500})(facts)
    assert found is not None
    assert (found.right, found.cases) == (right, 2)
    assert found.rows[0][3] == ("not in 11,600" if graph is None else f"{29 * graph:,}")
    assert converges_within({"PTC": 500})(facts) is None
