"""Numbers that the pages quote are those of the committed results."""

from __future__ import annotations

import csv
import json
import re
from itertools import product
from pathlib import Path
from statistics import mean
from typing import Any

import pytest

from graphnorm.study import Store, read
from graphnorm.study.significance import compare_all

ROOT = Path(__file__).parents[1]
REPRODUCTION = "docs/explanation/reproduction.md"
ANALYSIS = "docs/explanation/analysis.md"


def facts(item: str) -> dict[str, Any]:
    found: dict[str, Any] = json.loads((ROOT / "results" / f"{item}.json").read_text(encoding="utf-8"))
    return found


def text(page: str) -> str:
    return " ".join((ROOT / page).read_text(encoding="utf-8").split())


def within(item: str) -> list[bool]:
    """Whether the cells of a table are within one reported standard deviation."""
    return [
        cell["within_one_sd"]
        for cell in facts(item)["cells"]
        if cell["within_one_sd"] is not None and cell["norm"] != "baseline" and not cell["repeats"]
    ]


def gin_scores(item: str, protocol: str) -> dict[str, dict[str, dict[int, float]]]:
    """By dataset and normalization, the scores of GIN."""
    scores: dict[str, dict[str, dict[int, float]]] = {}
    for cell in facts(item)["cells"]:
        if cell["model"] in ("gin", "molhiv-gin") and cell["protocol"] == protocol and not cell["repeats"]:
            scores.setdefault(cell["dataset"], {})[cell["norm"]] = dict(enumerate(cell["scores"]))
    return scores


def test_how_many_numbers_of_the_tables_come_out() -> None:
    said = re.search(
        r"(\d+) of (\d+) in Table 1 come out within one reported standard deviation. In Table 2 it is (\d+) of (\d+)",
        text("README.md"),
    )
    assert said is not None
    first, second = within("table1"), within("table2")
    assert tuple(map(int, said.groups())) == (sum(first), len(first), sum(second), len(second))


def test_how_many_claims_are_checked() -> None:
    assert f"[{len(facts('claims')['claims'])} claims checked]" in text("README.md")


def test_where_the_shift_trains_faster() -> None:
    """By five points of the average training accuracy, at least."""
    average: dict[str, dict[str, float]] = {}
    for curve in facts("fig2")["convergence"]:
        average.setdefault(curve["panel"], {})[curve["norm"]] = curve["train_average"]
    faster = [
        panel
        for panel, norms in average.items()
        if min(norms["instance"], norms["graph"]) > max(norms["batch"], norms["layer"]) + 5
    ]
    assert (len(faster), len(average)) == (5, 8)
    assert "much faster than BatchNorm and LayerNorm on five of eight datasets" in text("README.md")


def test_where_graphnorm_scores_best() -> None:
    page = text("README.md")
    assert "With GIN, GraphNorm is nowhere significantly ahead of the best alternative" in page
    assert "on ogbg-molhiv it is significantly behind" in page
    ahead = significant_pairs("paper")
    scores = gin_scores("table1", "paper")
    assert len(scores) == 7
    for dataset, norms in scores.items():
        best = max((norm for norm in norms if norm != "graph"), key=lambda norm: mean(norms[norm].values()))
        assert ("graph", best) not in ahead.get((dataset, "gin"), set())
    (molecules,) = gin_scores("table2", "ogb").values()
    tests = {(t.first, t.second): t for t in compare_all(molecules, overlap=0, paired=False)}
    best = max(molecules, key=lambda norm: mean(molecules[norm].values()))
    test = tests[best, "graph"] if (best, "graph") in tests else tests["graph", best]
    assert best != "graph"
    assert test.significant


def test_where_the_learned_shift_trains_faster() -> None:
    assert "There GraphNorm trains significantly faster than InstanceNorm (IMDB-BINARY)" in text("README.md")
    averages = {
        curve["norm"]: dict(enumerate(curve["train_averages"]))
        for curve in facts("fig2")["convergence"]
        if curve["panel"] == "IMDB-BINARY"
    }
    (test,) = compare_all({norm: averages[norm] for norm in ("graph", "instance")}, overlap=1 / 9, paired=True)
    assert test.significant
    assert test.difference is not None
    assert test.difference > 0


@pytest.mark.parametrize("dataset", ["IMDB-BINARY", "NCI1"])
def test_accuracies_beside_the_advice(dataset: str) -> None:
    """The best mean validation accuracy is what the protocol reports."""
    said = re.search(rf"\| {dataset} \|((?: [\d.]+ ± [\d.]+ \|){{5}})", text(ANALYSIS))
    assert said is not None
    best = {curve["norm"]: curve["valid_best"] for curve in facts("fig2")["convergence"] if curve["panel"] == dataset}
    expected = [round(best[norm], 1) for norm in ("none", "layer", "batch", "instance", "graph")]
    assert [float(number) for number in re.findall(r"([\d.]+) ±", said[1])] == expected


def test_where_nine_of_ten_alphas_lie() -> None:
    page = text(ANALYSIS)
    for sentence in facts("alpha")["sentences"]:
        dataset, low, high, share = re.search(  # type: ignore[union-attr]
            r"(.+?): after .* lie from ([\d.]+) to ([\d.]+); (\d+)% are", sentence
        ).groups()
        assert f"| {dataset} | {low} to {high} | {share} % |" in page


def test_what_the_protocol_adds() -> None:
    said = re.findall(
        r"(−?[\d.]+)(?: points)?(?: more)? on ([A-Z1-]+) \([\d,]+(?: graphs)?\)",
        text(REPRODUCTION),
    )
    added: dict[str, list[float]] = {}
    for cell in facts("table1")["cells"]:
        if cell["among_fair"] is not None:
            added.setdefault(cell["dataset"], []).append(cell["among_fair"]["mean"] - cell["fair"]["mean"])
    expected = {dataset: f"{mean(points):.1f}".replace("-", "−") for dataset, points in added.items()}
    assert {dataset: number for number, dataset in said} == expected
    assert len(said) == 7


def training_accuracies(file: str) -> dict[tuple[str, str, str], float]:
    """By dataset, number of graphs left over and normalization."""
    with (ROOT / "benchmarks" / "results" / file).open(encoding="utf-8") as opened:
        rows = list(csv.DictReader(opened))
    return {(row["dataset"], row["left_over"], row["norm"]): 100 * float(row["train"]) for row in rows}


def test_what_a_small_last_batch_does() -> None:
    page = text(REPRODUCTION)
    short, long = map(training_accuracies, ("last-batches.csv", "last-batches-400-epochs.csv"))
    norms = ("none", "layer", "batch", "instance", "graph")
    for left_over in ("0", "1", "8", "64"):
        numbers = " | ".join(f"{short['NCI1', left_over, norm]:.1f}" for norm in norms)
        assert f"| {left_over} | {numbers} |" in page
    *others, instance, graph = [f"{short['NCI1', '0', norm] - short['NCI1', '1', norm]:.0f}" for norm in norms]
    assert f"GraphNorm {graph} points and InstanceNorm {instance}, the others {min(others)} to {max(others)}" in page
    falls = " to ".join(f"{short['PROTEINS', left_over, 'graph']:.1f}" for left_over in ("0", "1"))
    assert f"GraphNorm falls from {falls}" in page
    ends = [f"to {long['NCI1', '1', norm]:.1f} %, not {long['NCI1', '0', norm]:.1f}" for norm in ("graph", "batch")]
    assert f"the first comes {ends[0]}, the second {ends[1]}" in page


def test_how_far_both_protocols_train() -> None:
    page = text(REPRODUCTION)
    ends: dict[tuple[str, str, str], str] = {}
    with Store(ROOT / "results" / "graphnorm.db", writable=False) as store:
        for study in store.studies():
            dataset, model, norms = (study.spec[name] for name in ("dataset", "model", "norms"))
            grid = study.spec.get("grid", {}).get("name")
            if (grid, model) == ("curves", "gin") and dataset in ("NCI1", "REDDIT-BINARY"):
                assert len(norms) == 5
                for norm, score in read(store, store.plan(study)).norms.items():
                    ends[dataset, norm, study.spec["protocol"]] = f"{score.curves['train'][0][-1]:.0f}"

    def both(dataset: str, norm: str) -> tuple[str, str]:
        return ends[dataset, norm, "paper"], ends[dataset, norm, "fair"]

    batch, graph, threads = both("NCI1", "batch"), both("NCI1", "graph"), both("REDDIT-BINARY", "batch")
    assert f"training accuracy of {batch[0]} % under `paper` and {batch[1]} % under `fair`" in page
    assert (
        f"with GraphNorm to {graph[0]} and {graph[1]} %; on REDDIT-BINARY BatchNorm to {' and '.join(threads)} %"
        in page
    )


def significant_pairs(protocol: str) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """By dataset and model, who is significantly ahead of whom in Table 1."""
    scores: dict[tuple[str, str], dict[str, dict[int, float]]] = {}
    for cell in facts("table1")["cells"]:
        if cell["norm"] != "baseline":
            found = cell if cell["protocol"] == protocol else cell["fair"]
            scores.setdefault((cell["dataset"], cell["model"]), {})[cell["norm"]] = dict(enumerate(found["scores"]))
    assert len(scores) == 14
    assert all(len(norms) == 5 for norms in scores.values())
    tests = {where: compare_all(norms, overlap=1 / 9, paired=True) for where, norms in scores.items()}
    pairs = {
        where: {(t.first, t.second) if t.difference > 0 else (t.second, t.first) for t in found if t.significant}
        for where, found in tests.items()
    }
    return {where: found for where, found in pairs.items() if found}


def test_which_scores_differ_significantly() -> None:
    """As the page says it in words."""
    page = text(REPRODUCTION)
    paper, fair = significant_pairs("paper"), significant_pairs("fair")
    assert paper == {
        ("REDDIT-BINARY", "gin"): {("graph", "batch")},
        ("REDDIT-BINARY", "gcn"): {("batch", "layer"), ("instance", "layer"), ("graph", "layer")},
        ("COLLAB", "gin"): {("batch", "layer"), ("batch", "instance")},
        ("COLLAB", "gcn"): {(norm, "instance") for norm in ("none", "layer", "batch", "graph")},
    }
    assert "ten differ significantly" in page
    shifted, others = ("instance", "graph"), ("none", "layer", "batch")
    assert fair == {
        ("NCI1", "gin"): set(product(shifted, others)),
        ("REDDIT-BINARY", "gcn"): {*product(shifted, others), ("batch", "layer")},
        ("COLLAB", "gin"): {("batch", "instance")},
        ("COLLAB", "gcn"): {*((norm, "instance") for norm in ("none", "layer", "batch", "graph")), ("batch", "graph")},
    }
    assert f"{sum(map(len, fair.values()))} of the 140 pairs differ significantly under `fair`" in page
    assert sum(map(len, paper.values())) == 10


def test_what_is_said_of_the_molecules() -> None:
    page = text(REPRODUCTION)
    means = {(cell["model"], cell["norm"]): cell["mean"] for cell in facts("table2")["cells"]}
    for model in ("molhiv-gin", "molhiv-gcn"):
        assert f"has {means[model, 'instance']:.1f} with GIN and with GCN" in page
    ends = {
        (item, curve["norm"]): f"{curve['train_end']:.1f}"
        for item in ("fig2", "fig6")
        for curve in facts(item)["convergence"]
        if curve["panel"] == "ogbg-molhiv"
    }
    (graph, graph_gcn), (instance, instance_gcn), (batch, batch_gcn) = (
        (ends["fig2", norm], ends["fig6", norm]) for norm in ("graph", "instance", "batch")
    )
    assert f"is {graph} % (GIN) and {graph_gcn} % (GCN) in the end" in page
    assert f"InstanceNorm's {instance} and {instance_gcn} %, BatchNorm's {batch} and {batch_gcn} %" in page


@pytest.mark.parametrize("model", ["molecular-gin", "molecular-gcn"])
@pytest.mark.parametrize(("said", "lr"), [("10⁻⁴", 1e-4), ("10⁻³", 1e-3)])
def test_what_dropout_after_every_convolution_scores(model: str, said: str, lr: float) -> None:
    with Store(ROOT / "results" / "graphnorm.db", writable=False) as store:
        studies = [study for study in store.studies() if study.spec["model"] == model]
        means = {
            norm: score.mean
            for study in studies
            for norm, score in read(store, store.plan(study), partial=True, among=lambda t: t.lr == lr).norms.items()
            if score.choices
        }
    row = " | ".join(f"{means[norm]:.1f}" for norm in ("batch", "instance", "graph"))
    assert f"| {model} | {said} | {row} |" in text(REPRODUCTION)


def test_what_becomes_of_errors_of_running_averages() -> None:
    with (ROOT / "benchmarks" / "results" / "running-averages.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = text(ANALYSIS)
    regular, molecules = (
        [row for row in rows if row["dataset"] == name] for name in ("synthetic:regular", "molecules")
    )
    assert len(regular) == len(molecules) == 8
    assert all(float(row["live"]) == 1 for row in regular)
    for where, numbers in (
        (regular, "3 of the 8 fall below 60 % in one to seven"),
        (molecules, "6 of 8 do, in one to five"),
    ):
        fallen = [int(row["epochs_at_chance"]) for row in where if row["epochs_at_chance"] != "0"]
        words = {1: "one", 5: "five", 7: "seven"}
        assert numbers in page
        assert numbers.startswith(str(len(fallen)))
        assert numbers.endswith(f"in {words[min(fallen)]} to {words[max(fallen)]}")
    assert sum(float(row["exact"]) == 0.5 for row in regular) == 1
    last = [float(row["error_layer_8"]) for row in regular]
    assert f"to {min(last):.2f} to {max(last):.0f} times the output" in page
    assert max(abs(float(row["exact"]) - float(row["live"])) for row in molecules) < 0.0015  # 0.1 points
