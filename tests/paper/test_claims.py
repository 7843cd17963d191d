"""Claims: who is ahead and whether beyond noise, judged only where there are numbers, with what is unfinished."""

from __future__ import annotations

import json
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from scipy.stats import ttest_ind

from fakes import outcome, paper_source
from graphnorm.paper.claims import Claimed, Judged, claims_markdown, converges_within, judge_claims, scores_best, trains
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.item import CURVES
from graphnorm.paper.items import ITEMS
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.study.significance import paired_test
from graphnorm.study.store import Store
from graphnorm.training import Trial

RESULTS = Path(__file__).parents[2] / "results"
WIGGLE = (0.3, -0.2, 0.1, -0.4, 0.2, 0.0, -0.1, 0.4, -0.3, 0.0)
"""What folds differ by; it adds up to nothing."""
NORMS = ("graph", "batch", "batch-alpha", "batch-running", "batch-detached", "instance", "layer", "none", "baseline")


def folds(norm: str, average: float, spread: float) -> list[float]:
    """Ten values, each normalization's in an order of its own."""
    turn = NORMS.index(norm)
    return [average + spread * wiggle for wiggle in (*WIGGLE[turn:], *WIGGLE[:turn])]


def curve(norm: str, average: float | None, panel: str = "A", spread: float = 0.1, **more: Any) -> dict[str, Any]:
    known = {"panel": panel, "norm": norm, "variant": "", "train_average": average, "unit": "fold"}
    return known | {"train_averages": None if average is None else folds(norm, average, spread)} | more


def curves(panel: str = "A", **averages: float) -> list[dict[str, Any]]:
    return [curve(name.replace("_", "-"), value, panel) for name, value in averages.items()]


def compared(found: Sequence[dict[str, Any]], norm: str, claimed: Claimed, *others: str) -> Judged:
    judged = trains(norm, claimed, others)({"convergence": found})
    assert judged is not None
    return judged


# Training curves


def test_sides_and_noise() -> None:
    found = [curve("graph", 90.0, "clear"), curve("batch", 80.0, "clear")]
    found += [curve("graph", 90.0, "close", 5.0), curve("batch", 89.9, "close", 5.0)]
    found += [curve("graph", 89.9, "behind, close", 5.0), curve("batch", 90.0, "behind, close", 5.0)]
    found += [curve("graph", 80.0, "behind"), curve("batch", 90.0, "behind")]
    found += [curve("graph", 80.0, "level", 5.0), curve("batch", 80.001, "level", 5.0)]
    judged = compared(found, "graph", "ahead", "batch")
    assert [row[-1] for row in judged.rows] == ["ahead", "tied", "tied", "behind", "tied"]
    assert (judged.agree, judged.disagree, judged.cases) == (1, 1, 5)
    assert judged.rows[1][:4] == ("close", "90.00", "89.90", "+0.10")
    assert (judged.verdict(), judged.tally) == ("in part", "ahead on 1, tied on 3, behind on 1")
    assert compared(found[:2], "graph", "ahead", "batch").verdict() == "holds"


@pytest.mark.parametrize(
    ("agree", "disagree", "verdict", "of_most"),
    [
        (8, 0, "holds", "holds"),
        (5, 0, "holds", "holds"),
        (4, 0, "in part", "in part"),
        (5, 1, "in part", "holds"),
        (0, 0, "undecided", "undecided"),
        (0, 4, "undecided", "undecided"),
        (2, 5, "does not hold here", "does not hold here"),
    ],
)
def test_the_rule(agree: int, disagree: int, verdict: str, of_most: str) -> None:
    """Of eight cases."""
    judged = Judged(agree, disagree, 8, "")
    assert (judged.verdict(), judged.verdict(of_most=True)) == (verdict, of_most)


def test_without_a_sure_case_nothing_is_decided() -> None:
    close = [curve("graph", 90.0, spread=5.0), curve("batch", 89.9, spread=5.0)]
    judged = compared(close, "graph", "ahead", "batch")
    assert (judged.agree, judged.cases, judged.verdict(), judged.tally) == (0, 1, "undecided", "tied on 1")
    one_fold = [entry | {"train_averages": [entry["train_average"], *[None] * 9]} for entry in close]
    judged = compared(one_fold, "graph", "ahead", "batch")
    assert (judged.verdict(), judged.tally, judged.rows[0][-2:]) == ("not tested", "1 not tested", ("–", "not tested"))


def test_p_is_adjusted_for_the_number_of_rivals_and_of_the_one_least_surely_beaten() -> None:
    ours = curve("graph", 90.0)
    close, far = curve("batch", 89.95), curve("batch-alpha", 80.0)
    averages = [dict(enumerate(entry["train_averages"])) for entry in (ours, close)]
    alone = paired_test(*averages, overlap=1 / 9).p
    assert alone is not None
    assert 1e-3 < alone < 0.05
    judged = compared([ours, close, far], "graph", "ahead", "batch", "batch-alpha")
    assert judged.rows[0][2:5] == ("89.95 (batch)", "+0.05", f"{alone:.3f}")
    assert (judged.agree, judged.disagree) == (1, 0)
    # Behind both: twice the p of the one that is surer, since it could have been either.
    both = [ours, curve("batch", 90.05), curve("batch-alpha", 90.02, spread=5.0)]
    judged = compared(both, "graph", "ahead", "batch", "batch-alpha")
    assert judged.rows[0][2:] == ("90.05 (batch)", "−0.05", f"{2 * alone:.3f}", "tied")
    assert compared(both, "graph", "ahead", "batch").rows[0][-2:] == (f"{alone:.3f}", "behind")


def test_seeds_are_not_paired() -> None:
    """Seeds that go up and down together differ surely as pairs, and not as what they are."""
    ours, theirs = [70.0, 80.0, 90.0, 85.0], [69.0, 79.1, 88.9, 84.0]
    found = [curve("graph", 81.25, train_averages=ours), curve("batch", 80.25, train_averages=[*theirs, None])]
    assert compared(found, "graph", "ahead", "batch").rows[0][-1] == "ahead"
    judged = compared([entry | {"unit": "seed"} for entry in found], "graph", "ahead", "batch")
    p = ttest_ind(ours, theirs, equal_var=False).pvalue
    assert judged.rows[0][-2:] == (f"{p:.3f}", "tied")


def test_claims_that_one_is_worse() -> None:
    found = curves(batch=80.0, batch_alpha=90.0, batch_running=70.0)
    worse = compared(found, "batch-running", "behind", "batch", "batch-alpha")
    assert (worse.verdict(), worse.tally, worse.columns[2]) == ("holds", "behind on 1", "lowest other")
    assert worse.rows[0][2:4] == ("80.00 (batch)", "−10.00")
    between = compared(found, "batch", "behind", "batch-running", "batch-alpha")
    assert (between.verdict(), between.tally) == ("does not hold here", "ahead on 1")


def test_panels_without_all_rivals_are_not_judged() -> None:
    """A run with fewer normalizations does not show that one is ahead of all."""
    whole = [curve(norm, 60.0 + k) for k, norm in enumerate(DEFAULT_NORMS)]
    fewer = [curve("graph", 90.0, "B"), curve("batch", 80.0, "B"), curve("instance", None, "B")]
    assert [row[0] for row in compared([*whole, *fewer], "graph", "ahead", *DEFAULT_NORMS).rows] == ["A"]
    assert trains("graph", "ahead", DEFAULT_NORMS)({"convergence": fewer}) is None
    assert trains("graph", "ahead", ("instance",), panel="IMDB")({"convergence": whole}) is None


@pytest.mark.parametrize(
    ("graph", "batch", "right"), [(150, None, 2), (158, 330, 1), (151, 345, 2), (260, 345, 1), (None, None, 1)]
)
def test_iterations_until_convergence(graph: int | None, batch: int | None, right: int) -> None:
    """An epoch of NCI1 has 29 iterations: 5,000 are 172 epochs, half as many again 258, and 10,000 are 344."""
    found = [curve("graph", 90.0, "NCI1", epochs_to_converge=graph)]
    found.append(curve("batch", 80.0, "NCI1", epochs_to_converge=batch))
    spec = {"dataset": "NCI1", "folds": 10, "grid": {"batch_size": [128], "epochs": [400]}}
    facts = {"convergence": found, "studies": [{"spec": spec}]}
    judged = converges_within({"NCI1": 5000, "PTC": 500})(facts)
    assert judged is not None
    assert (judged.agree, judged.disagree, judged.cases) == (right, 2 - right, 2)
    assert judged.rows[0][3] == ("not in 11,600" if graph is None else f"{29 * graph:,}")
    assert converges_within({"PTC": 500})(facts) is None


# Scores


def cell(norm: str, mean: float | None, dataset: str = "MUTAG", spread: float = 0.1, **more: Any) -> dict[str, Any]:
    known = {"dataset": dataset, "model": "gin", "norm": norm, "mean": mean, "within_one_sd": None}
    known |= {"protocol": "paper", "scores": [None] * 10 if mean is None else folds(norm, mean, spread)}
    known |= {"compared": 60, "planned": 60, "common": None, "members": 10, "members_planned": 10, "repeats": False}
    return known | more


def table(ours: float, *others: float, dataset: str = "MUTAG", **more: Any) -> list[dict[str, Any]]:
    named = zip(("graph", "layer", "batch", "instance", "none"), (ours, *others), strict=False)
    return [cell(norm, mean, dataset, **more) for norm, mean in named]


def scored(cells: Sequence[dict[str, Any]], model: str = "gin", protocol: str = "paper") -> Judged | None:
    return scores_best(model, protocol)({"cells": cells})


def test_the_highest_score_among_normalizations() -> None:
    cells = table(92.0, 88.0, 89.0, 91.0, 99.0) + table(75.0, 76.0, 70.0, 70.0, dataset="PTC")
    cells.append(cell("baseline", 99.0) | {"model": "wl"})
    judged = scored(cells)
    assert judged is not None
    assert judged.rows == (
        ("MUTAG", "92.00", "91.00 (instance)", "+1.00", "< 0.001", "ahead", "60 of 60", "99.00"),
        ("PTC", "75.00", "76.00 (layer)", "−1.00", "< 0.001", "behind", "60 of 60", "–"),
    )
    assert (judged.agree, judged.disagree, judged.cases) == (1, 1, 2)
    assert scored(table(92.0, 88.0, 89.0)) is None  # no instance
    assert scored(cells, model="gcn") is None
    assert scored([entry | {"protocol": "fair"} for entry in cells]) is None


def test_scores_are_compared_on_equal_terms() -> None:
    """Of 60 configurations GraphNorm is ahead of others with 12; of the 12 that all have, it is not."""
    common = {"mean": 89.0, "std": 1.0, "configurations": 12, "scores": folds("graph", 89.0, 0.1)}
    ours = cell("graph", 92.0, common=common)
    others = [cell(norm, 90.0, compared=12) for norm in ("layer", "batch", "instance")]
    judged = scored([ours, *others])
    assert judged is not None
    assert judged.rows[0][1:4] == ("89.00", "90.00 (layer)", "−1.00")
    assert judged.rows[0][-3:] == ("behind", "12 of 60", "–")
    nothing_common = ours | {"common": {"mean": None, "std": None, "configurations": 0, "scores": [None] * 10}}
    assert scored([nothing_common, *others]) is None


def test_a_second_look_at_one_measurement_and_missing_seeds() -> None:
    of_molhiv = {"model": "molhiv-gin", "protocol": "given"}
    cells = [entry | of_molhiv for entry in table(75.0, 74.0, 76.0, 73.0)]
    cells[1] |= {"members": 3, "scores": cells[1]["scores"][:3]}
    cells.append(cell("graph", 99.0, **of_molhiv, repeats=True))
    judged = scored(cells, "molhiv-gin", "given")
    assert judged is not None
    assert judged.rows[0][1] == "75.00"
    assert judged.words.endswith("trained in part: MUTAG, layer (3 of 10)")


# The claims of items

ABOUT: dict[str, Any] = {"quick": False, "graphnorm": "1", "torch": "2", "made": "2026-01-02T03"}
ABOUT |= {"title": "Title", "trained_on": [], "studies": [], "sentences": []}


def judge(**facts: dict[str, Any]) -> list[dict[str, Any]]:
    """The claims that can be judged by the facts of some items."""
    found: list[dict[str, Any]] = judge_claims(ITEMS, {item: ABOUT | own for item, own in facts.items()})["claims"]
    return found


def rows_of_numbers(page: str) -> list[list[str]]:
    """The rows of all tables, without the names at their left."""
    lines = [line for line in page.splitlines() if re.match(r"\| .*\d", line)]
    return sorted([cell.strip() for cell in line.strip("|").split("|")][1:] for line in lines)


def test_the_committed_results_are_judged_as_their_page_says() -> None:
    files = [RESULTS / f"{name}.json" for name in ITEMS]
    judged = judge_claims(ITEMS, {file.stem: json.loads(file.read_text(encoding="utf-8")) for file in files})
    assert (judged["unjudged"], judged["quick"]) == ({}, False)
    expected = rows_of_numbers((RESULTS / "claims.md").read_text(encoding="utf-8"))
    assert len(expected) > 100
    assert rows_of_numbers(claims_markdown(json.loads(json.dumps(judged)))) == expected


def test_most_cases_are_enough_where_the_paper_says_so() -> None:
    found = []
    for panel, instance in (("A", 90.0), ("B", 90.0), ("C", 60.0)):
        found += curves(panel, none=70.0, layer=70.0, batch=80.0, instance=instance, graph=85.0)
    keys = ("verdict", "agree", "disagree")
    assert [tuple(one[key] for key in keys) for one in judge(fig2={"convergence": found})] == [
        ("does not hold here", 1, 2),
        ("holds", 2, 1),
        ("undecided", 0, 0),
    ]


def test_what_a_quick_pass_trained_decides_nothing() -> None:
    about = {"quick": True, "trained_on": ["cpu"], "convergence": curves(graph=85.0, none=70, layer=70, batch=80)}
    assert {one["verdict"] for one in judge(fig2=about)} == {"not tested"}
    facts = {"quick": True, "as_printed": {"equal": 5, "statistics": 5}}  # nothing is trained for these
    assert [one["verdict"] for one in judge(table3=facts)] == ["holds"]


def test_cells_within_a_deviation() -> None:
    about: dict[str, Any] = {"mean": 90.0, "difference": -3.04, "reported": {"mean": 93.04, "std": 1.0}}
    cells = [
        cell("graph", within_one_sd=True, **about),
        cell("batch", within_one_sd=False, compared=1, **about),
        cell("none", None),
        cell("baseline", within_one_sd=False, model="wl", **about),  # its number is not the paper's own
        cell("graph", within_one_sd=False, repeats=True, **about),  # InstanceNorm's measurement again
    ]
    (found,) = judge(table1={"cells": cells})
    assert (found["verdict"], found["tally"]) == ("in part", "1 of 2")
    assert found["rows"] == [["MUTAG", "gin", "batch", "90.00", "93.04 ± 1.00", "−3.04", "1 of 60"]]
    assert judge(table1={"cells": [cell("none", None)]}) == []


def noise(
    what: str, of_mean: Sequence[float | None], of_std: Sequence[float | None], size: int = 128
) -> dict[str, Any]:
    return {"what": what, "layer": "stem_norm", "batch_size": size, "of_mean": of_mean, "of_std": of_std}


def test_images_of_another_item_bring_their_remarks() -> None:
    sizes = {"relative_deviation": [noise("PROTEINS", [0.1], [0.1])], "remarks": ["Not measured: 32."]}
    assert judge(fig10=sizes) == []  # no images to compare with
    lossy = f"The images of {IMAGES} went through JPEG."
    images = {"relative_deviation": [noise(IMAGES, [0.05], [0.2])]}
    images["remarks"] = [lossy, "PROTEINS is of no matter here."]
    (found,) = judge(fig4=images, fig10=sizes)
    assert (found["item"], found["agree"], found["disagree"], found["verdict"]) == ("fig10", 0, 0, "not tested")
    assert found["tally"] == "noisier in 1 of 2, one training each"
    assert [row[2:] for row in found["rows"]] == [["10.0 (5.0)", "above", "10.0 (20.0)", "below"]]
    assert found["notes"] == [*sizes["remarks"], lossy]


def test_noise_is_compared_over_seeds_and_at_equal_batch_sizes() -> None:
    """Batches of 32 images are noisier than those of 128, by the root of 4."""
    graphs = [noise("PROTEINS", [0.100, 0.101, 0.102], [0.100, 0.3, 0.6], 32)]
    images = [noise(IMAGES, [0.05, 0.02, 0.03], [0.1, 0.11, 0.12])]
    (found,) = judge(fig4={"relative_deviation": images, "remarks": []}, fig10={"relative_deviation": graphs})
    assert found["rows"][0][2:] == ["10.1 ± 0.1 (6.7 ± 3.1)", "tied", "33.3 ± 25.2 (22.0 ± 2.0)", "tied"]
    one = {"relative_deviation": [noise(IMAGES, [0.05], [0.1])], "remarks": []}
    diverged = {"relative_deviation": [noise(IMAGES, [0.05, None], [None, 0.1])], "remarks": []}
    for images_of in (one, diverged):
        (found,) = judge(fig4=images_of, fig10={"relative_deviation": graphs})
        assert (found["verdict"], found["tally"]) == ("not tested", "noisier in 2 of 2, one training of the images")
    none = {"relative_deviation": [noise(IMAGES, [None], [None])], "remarks": []}
    assert [one["verdict"] for one in judge(fig4=none, fig10={"relative_deviation": graphs})] == ["not tested"]
    images = [noise(IMAGES, [0.03, 0.031, 0.032], [0.1, 0.11, 0.12])]
    (found,) = judge(fig4={"relative_deviation": images, "remarks": []}, fig10={"relative_deviation": graphs})
    assert (found["rows"][0][2:], found["tally"]) == (
        ["10.1 ± 0.1 (6.2 ± 0.2)", "ahead", "33.3 ± 25.2 (22.0 ± 2.0)", "tied"],
        "ahead on 1, tied on 1",
    )


def test_fact_1_needs_a_distance() -> None:
    summary = {
        "linear_gnn": {"shift_faster": 36, "runs": 36, "median_speedup": 1.3},
        "gradient": {"fixed_scale": 4e-16, "without_norm": 1e-17, "part_through_scale": 2.65},
        "fact_1_distance": {"0.0": 1e-16, "0.9": 0.1, "1.0": 0.0},
    }
    found = judge(theory={"theorem_1": {"holds": 9, "checked": 10}, "summary": summary})
    assert [one["tally"] for one in found] == ["9 of 10", "36 of 36", "1 of 2", "2 of 3"]


def test_what_is_said_of_the_graphs() -> None:
    """Theorem 1's equality, Propositions 1 and 2, condition numbers."""
    rows = [("A", "GIN", 9, 0, 1), ("A", "GCN", 3, 1, 6), ("B", "GIN", 5, 0, 5)]
    names = ("dataset", "aggregation", "better", "equal", "worse")
    about = {"graphs": 3, "right": 2, "largest": 1.0, "of": "Graphs"}
    summary = {"linear_gnn": {"shift_faster": 1, "runs": 1, "median_speedup": 1.3}, "fact_1_distance": {"0.0": 1.0}}
    summary["gradient"] = {"fixed_scale": 0.0, "without_norm": 0.0, "part_through_scale": 0.0}
    theory: dict[str, Any] = {"theorem_1": {"holds": 1, "checked": 1}, "summary": summary}
    theory["equality"] = {"shared": 5, "orthogonal": 4}
    theory["condition"] = [dict(zip(names, row, strict=True)) | {"median_improvement": 1.5} for row in rows]
    found = judge(theory=theory | {"proposition_1": about, "proposition_2": about | {"graphs": 0}})
    assert [one["tally"] for one in found[1:4]] == ["4 of 5", "1 of 3", "2 of 3"]
    assert [row[5] for row in found[2]["rows"]] == ["10%", "60%", "50%"]
    assert len(found) == 7  # no complete graphs: Proposition 2 is not judged


def test_what_is_unfinished_is_said_with_every_claim_of_an_item() -> None:
    cells = [cell(norm, 90.0, within_one_sd=True) for norm in ("graph", "layer", "batch", "instance")]
    notes = ["4 of 4 cells lie within.", "Not trained: PTC, gin.", "Trained on cpu: baselines."]
    found = judge(table1={"cells": cells, "studies": [{"finished": 1234, "trials": 4000}], "sentences": notes})
    assert len(found) == 2
    assert {tuple(one["notes"]) for one in found} == {(notes[1],)}  # the first is the claim's own number
    assert found[0]["provenance"].endswith("1,234 of 84,700 trials.")  # of the whole item
    page = claims_markdown(judge_claims(ITEMS, {"table1": ABOUT | {"cells": cells, "sentences": notes}}))
    assert page.count(f"- {notes[1]}") == 1  # once for an item
    assert "1 of `table1`, 3 of `table2`" in page  # not judged


# All items


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> dict[str, Any]:
    """The facts of every item that is trained, made of a store with all its trials; the graphs are not here."""
    folder = tmp_path_factory.mktemp("whole")
    random = np.random.default_rng(0)

    def values(trial: Trial, epoch: int) -> dict[str, float]:
        level = 0.5 + 0.4 * NORMS.index(trial.norm) / len(NORMS) + 0.01 * (trial.fold + trial.seed)
        return {"loss": 0.0, "train": level, "valid": level, "test": level}

    reproduction = Reproduction(folder / "a.db", data_root=folder, progress=False)
    items = {name: item for name, item in ITEMS.items() if item.parts}
    items["table1"] = items["table1"].narrowed(grid=CURVES, baselines=("none",))
    with Store(reproduction.store) as store:
        for item in items.values():
            for plan in reproduction.plans(item, train=False):
                probe, study, seen = plan.probe, store.add(plan, [range(len(plan.trials))]), {}
                there = store.statuses(study)
                if probe is not None:
                    layers = getattr(probe, "layers", ["convolutions.0.first_norm"])
                    shape = (len(probe.at), 8, 5) if hasattr(probe, "layers") else (len(probe.at), 5)
                    seen = {"epochs": np.array(probe.at)} | {layer: random.random(shape) for layer in layers}
                new = [outcome(trial, values, seen=seen) for trial in plan.trials if trial.key not in there]
                store.save(store.begin_session(study, "local"), new)
    with pytest.MonkeyPatch.context() as patch:
        patch.delenv("GRAPHNORM_DATA", raising=False)
        patch.setenv("GRAPHNORM_CACHE", str(folder))
        made = {name: reproduction.make(item, train=False) for name, item in items.items()}
    return {name: json.loads(json.dumps(output.to_dict())) for name, output in made.items()}


def test_claims_are_about_what_their_items_train(whole: dict[str, Any]) -> None:
    """A claim that named a normalization, dataset or layer that its item does not train would not be judged."""
    judged = judge_claims(ITEMS, whole)
    assert set(judged["unjudged"]) == {"table3", "theory"}  # of the graphs themselves
    texts = [claim.text for name in whole for claim in ITEMS[name].claims]
    assert [one["claim"] for one in judged["claims"]] == texts
    assert len(texts) == len(set(texts))


def test_what_claims_quote_is_in_the_paper() -> None:
    paper = " ".join(paper_source().split())
    quoted = [quote for item in ITEMS.values() for claim in item.claims for quote in re.findall("“(.+?)”", claim.text)]
    assert len(quoted) > 10
    assert [quote for quote in quoted if quote not in paper] == []
