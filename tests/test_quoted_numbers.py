"""Numbers that the pages quote are those of the committed results."""

from __future__ import annotations

import csv
import json
import re
from pathlib import Path
from statistics import mean, stdev
from typing import Any

import pytest

from graphnorm.analysis.track_record import read_cases, track_record
from graphnorm.study import Store, read
from graphnorm.study.paper_numbers import reported
from graphnorm.study.significance import compare_all, paired_test

ROOT = Path(__file__).parents[1]
REPRODUCTION = "docs/explanation/reproduction.md"
ANALYSIS = "docs/explanation/analysis.md"
NORMS = ("none", "layer", "batch", "instance", "graph")


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


def test_that_nothing_trains_faster_than_graphnorm() -> None:
    said = "trained significantly faster on any of the eight datasets"
    assert said in text("README.md")
    assert said in text("docs/which.md")
    speed = [claim for claim in facts("claims")["claims"] if "the fastest convergence on all tasks" in claim["claim"]]
    assert [(claim["item"], claim["cases"], claim["disagree"]) for claim in speed] == [("fig2", 8, 0), ("fig6", 8, 0)]


def test_that_no_normalization_is_best_everywhere() -> None:
    assert "No norm was best on all eight datasets" in text("README.md")
    assert "No normalization was best on all eight datasets" in text("docs/which.md")
    scores = gin_scores("table1", "paper") | gin_scores("table2", "given")
    best = {max(norms, key=lambda norm, of=norms: mean(of[norm].values())) for norms in scores.values()}
    assert len(scores) == 8
    assert len(best) > 1


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
    (molecules,) = gin_scores("table2", "given").values()
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


def test_how_good_the_advice_is() -> None:
    page, record = text(ANALYSIS), track_record()
    for case in read_cases():
        numbers = " | ".join(f"{case.scores[norm]:.1f}" for norm in NORMS)
        assert f"| {case.dataset} | {numbers} | {case.best} | {', '.join(case.behind) or '–'} |" in page
    assert set(record.constant) == {"instance"}
    for counts in ((record.best, record.not_behind), (record.constant_best, record.constant_not_behind)):
        assert f"| {counts[0]} of {record.datasets} | {counts[1]} of {record.datasets} |" in page


def test_batch_noise_after_training() -> None:
    page = text(ANALYSIS)

    def spread(values: list[float]) -> str:
        return f"{mean(values):.3f}" + (f" ± {stdev(values):.3f}" if len(values) > 1 else "")

    layers = facts("fig4")["relative_deviation"]
    for words, part in (
        ("whole", "relative_deviation"),
        ("of the mean", "of_mean"),
        ("of the standard deviation", "of_std"),
    ):
        assert f"| {words} | {' | '.join(spread(layer[part]) for layer in layers)} |" in page
    last = {entry["what"]: entry["relative_deviation"] for entry in facts("fig8")["relative_deviation"]}
    order = [f"{dataset}, GIN" for dataset in ("IMDB-BINARY", "PTC", "MUTAG", "NCI1")]
    assert f"| relative deviation | {' | '.join(spread(last[what]) for what in order)} |" in page
    seeds = sorted(f"{value:.2f}" for value in layers[1]["relative_deviation"])
    assert f"have {seeds[0]}, {seeds[1]} and {seeds[2]}" in page


def test_where_nine_of_ten_alphas_lie() -> None:
    page = text(ANALYSIS)
    for sentence in facts("alpha")["sentences"]:
        dataset, low, high, share = re.search(  # type: ignore[union-attr]
            r"(.+?): after .* lie from ([\d.]+) to ([\d.]+); (\d+)% are", sentence
        ).groups()
        assert f"| {dataset} | {low} to {high} | {share} % |" in page


def equal_scores(protocol: str) -> dict[tuple[str, str], dict[str, dict[str, Any]]]:
    """Cells of Table 1 among the configurations that all normalizations have, by dataset and model."""
    found: dict[tuple[str, str], dict[str, dict[str, Any]]] = {}
    for cell in facts("table1")["cells"]:
        if cell["norm"] in NORMS:
            under = cell if cell["protocol"] == protocol else cell["fair"]
            common = under["common"] or {"configurations": under["compared"], **under}
            found.setdefault((cell["dataset"], cell["model"]), {})[cell["norm"]] = common
    assert len(found) == 14
    assert all(len(norms) == 5 for norms in found.values())
    return found


def test_how_near_the_paper_table_1_is() -> None:
    page = text(REPRODUCTION)
    cells = [cell for cell in facts("table1")["cells"] if cell["norm"] in NORMS and cell["within_one_sd"] is not None]
    for words, fewest, most in (("all 60", 60, 60), ("12", 12, 59), ("1 or 2", 1, 11), ("together", 1, 60)):
        some = [cell for cell in cells if fewest <= cell["compared"] <= most]
        counts = (len(some), *(sum(cell[within] for cell in some) for within in ("within_one_sd", "within_one_se")))
        assert re.search(rf"\| {words}[^|]* \| {' . '.join(map(str, counts))} \|".replace(" . ", r" \| "), page), words
    outside = {(cell["dataset"], cell["norm"]) for cell in cells if not cell["within_one_sd"]}
    assert outside == {("MUTAG", "layer"), ("NCI1", "layer"), ("COLLAB", "batch")}
    assert all(cell["difference"] > 0 for cell in cells if not cell["within_one_sd"])


def test_best_and_lowest_of_each_dataset() -> None:
    page, cells = text(REPRODUCTION), equal_scores("paper")
    for dataset in dict.fromkeys(dataset for dataset, _ in cells):
        parts = [str(cells[dataset, "gin"]["graph"]["configurations"])]
        for model in ("gin", "gcn"):
            means = {norm: cell["mean"] for norm, cell in cells[dataset, model].items()}
            best, lowest = (choose(means, key=means.__getitem__) for choose in (max, min))
            parts += [f"{best} {means[best]:.1f}", f"{means['graph']:.1f}", f"{lowest} {means[lowest]:.1f}"]
        assert f"| {dataset} | {' | '.join(parts)} |" in page


def test_what_the_protocol_adds() -> None:
    added: dict[str, list[float]] = {}
    for cell in facts("table1")["cells"]:
        if cell["among_fair"] is not None:
            added.setdefault(cell["dataset"], []).append(cell["among_fair"]["mean"] - cell["fair"]["mean"])
    numbers = [f"{mean(points):.1f}".replace("-", "−") for points in added.values()]
    assert f"| | {' | '.join(added)} |" in text(REPRODUCTION)
    assert f"| points | {' | '.join(numbers)} |" in text(REPRODUCTION)
    assert len(added) == 7


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
    for norm, name in (("batch", "BatchNorm"), ("graph", "GraphNorm")):
        assert f"| {name} | {long['NCI1', '0', norm]:.1f} | {long['NCI1', '1', norm]:.1f} |" in page


def significant_pairs(protocol: str) -> dict[tuple[str, str], set[tuple[str, str]]]:
    """By dataset and model, who is significantly ahead of whom in Table 1."""
    tests = {
        where: compare_all(
            {norm: dict(enumerate(c["scores"])) for norm, c in cells.items()}, overlap=1 / 9, paired=True
        )
        for where, cells in equal_scores(protocol).items()
    }
    pairs = {
        where: {(t.first, t.second) if t.difference > 0 else (t.second, t.first) for t in found if t.significant}
        for where, found in tests.items()
    }
    return {where: found for where, found in pairs.items() if found}


def test_which_scores_differ_significantly() -> None:
    page = text(REPRODUCTION)
    counts = {}
    for protocol in ("paper", "fair"):
        found = significant_pairs(protocol)
        counts[protocol] = sum(map(len, found.values()))
        for (dataset, model), pairs in found.items():
            ahead: dict[str, list[str]] = {}
            for first, second in sorted(pairs, key=lambda pair: (NORMS.index(pair[0]), NORMS.index(pair[1]))):
                ahead.setdefault(first, []).append(second)
            words = "; ".join(f"{norm} > {', '.join(behind)}" for norm, behind in ahead.items())
            assert f"| {protocol} | {dataset}, {model.upper()} | {words} |" in page
            searched = equal_scores(protocol)[dataset, model]["graph"]["configurations"]
            assert searched < 12
    assert f"{counts['paper']} of 140 pairs under `paper` and {counts['fair']} under `fair`" in page


def test_what_is_said_of_the_molecules() -> None:
    page = text(REPRODUCTION)
    cells = {(c["model"], c["norm"]): c for c in facts("table2")["cells"] if not c["repeats"]}
    ends = {
        (item, curve["norm"]): curve["train_end"]
        for item in ("fig2", "fig6")
        for curve in facts(item)["convergence"]
        if curve["panel"] == "ogbg-molhiv"
    }
    for norm in NORMS:
        parts = []
        for model, item in (("molhiv-gin", "fig2"), ("molhiv-gcn", "fig6")):
            cell, end = cells[model, norm], ends[item, norm]
            assert cell["members"] == 10
            said = cell["reported"]
            parts += [f"{cell['mean']:.1f} ± {cell['std']:.1f}"]
            parts += ["–" if said is None else f"{said['mean']:.1f} ± {said['std']:.1f}", f"{end:.1f}"]
        assert f"| {norm} | {' | '.join(parts)} |" in page
    lack = -cells["molhiv-gcn", "instance"]["difference"]
    assert f"InstanceNorm's {lack:.1f} points below the paper with GCN" in page


@pytest.mark.parametrize("model", ["molecular-gin", "molecular-gcn"])
@pytest.mark.parametrize(("said", "lr"), [("10⁻⁴", 1e-4), ("10⁻³", 1e-3)])
def test_what_dropout_after_every_convolution_scores(model: str, said: str, lr: float) -> None:
    with Store(ROOT / "results" / "graphnorm.db", writable=False) as store:
        studies = [study for study in store.studies() if study.spec["model"] == model]
        scores = {
            norm: score
            for study in studies
            for norm, score in read(store, store.plan(study), partial=True, among=lambda t: t.lr == lr).norms.items()
            if score.choices
        }
    row = " | ".join(f"{scores[n].mean:.1f} ± {scores[n].std:.1f} ({len(scores[n].choices)})" for n in NORMS)
    assert f"| {model} | {said} | {row} |" in text(REPRODUCTION)


def test_what_the_authors_choices_change() -> None:
    page, found = text(REPRODUCTION), dict[tuple[str, str], dict[bool, dict[str, Any]]]()
    with Store(ROOT / "results" / "graphnorm.db", writable=False) as store:
        for study in store.studies():
            if study.spec["dataset"] in ("MUTAG", "PTC", "PROTEINS", "IMDB-BINARY") and "-curves-paper" in study.name:
                plan = store.plan(study)
                where = plan.trials[0].dataset, plan.trials[0].model
                one = found.setdefault(where, {}).setdefault(plan.trials[0].as_authors, {})
                one |= read(store, plan).norms
    smallest = 1.0
    for (dataset, model), by_choice in found.items():
        cells = []
        for norm in NORMS:
            ours, theirs = by_choice[False][norm], by_choice[True][norm]
            p = paired_test(theirs.scores, ours.scores, overlap=1 / 9).p
            assert p is not None
            smallest = min(smallest, p)
            cells.append(f"{ours.mean:.1f}, {theirs.mean:.1f} ({p:.2f})")
        assert f"| {dataset}, {model.upper()} | {' | '.join(cells)} |" in page
    assert len(found) == 8
    assert smallest > 0.05


def test_the_authors_script_for_proteins() -> None:
    page = text(REPRODUCTION)
    with Store(ROOT / "results" / "graphnorm.db", writable=False) as store:
        studies = [study for study in store.studies() if "authors-proteins" in study.name]
        results = {study.spec["model"]: read(store, store.plan(study)) for study in studies}
        (twelve,) = (study for study in store.studies() if study.name.startswith("PROTEINS-gin-twelve-paper"))
        before = read(store, store.plan(twelve)).norms["graph"]
    assert set(results) == {"gin", "gcn"}
    for model, result in results.items():
        cells = [f"{result.norms[norm].mean:.1f} ± {result.norms[norm].std:.1f}" for norm in NORMS]
        assert f"| {model.upper()} | {' | '.join(cells)} |" in page
        tests = compare_all({norm: score.scores for norm, score in result.norms.items()}, overlap=1 / 9)
        assert not any(test.significant for test in tests)
    scores, told = results["gin"].norms, ["–"]
    for norm in NORMS[1:]:
        paper = reported("PROTEINS", "gin", norm, "paper")
        assert paper is not None
        assert abs(scores[norm].mean - paper.mean) <= paper.std
        told.append(f"{paper.mean:.1f} ± {paper.std:.1f}")
    assert f"| the paper's GIN | {' | '.join(told)} |" in page
    assert scores["graph"].mean > scores["instance"].mean > scores["batch"].mean > scores["layer"].mean
    assert f"GraphNorm gains {scores['graph'].mean - before.mean:.1f} points over the best of the twelve" in page


def test_what_becomes_of_errors_of_running_averages() -> None:
    with (ROOT / "benchmarks" / "results" / "running-averages.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    page = text(ANALYSIS)
    regular, molecules = (
        [row for row in rows if row["dataset"] == name] for name in ("synthetic:regular", "molecules")
    )
    assert len(regular) == len(molecules) == 8
    assert all(float(row["live"]) == 1 for row in regular)
    counts = []
    for where in (regular, molecules):
        fallen = [int(row["epochs_at_chance"]) for row in where if row["epochs_at_chance"] != "0"]
        counts.append(f"{len(fallen)} of 8, in {min(fallen)} to {max(fallen)}")
    assert f"| {' | '.join(counts)} |" in page
    assert sum(float(row["exact"]) == 0.5 for row in regular) == 1
    last = [float(row["error_layer_8"]) for row in regular]
    assert f"| {min(last):.2f} to {max(last):.0f} | 10⁻⁴ |" in page
    assert 0.5e-4 < max(float(row["error_layer_8"]) for row in molecules) < 5e-4
    assert max(abs(float(row["exact"]) - float(row["live"])) for row in molecules) < 0.0015  # 0.1 points


def test_scores_of_molecules_by_name() -> None:
    scores: dict[tuple[str, str], dict[str, list[float]]] = {}
    with (ROOT / "benchmarks/results/moleculenet-NVIDIA-H200.csv").open(encoding="utf-8") as file:
        for row in csv.DictReader(file):
            cells = scores.setdefault((row["dataset"], row["metric"]), {})
            cells.setdefault(row["norm"], []).append(float(row["score"]))
    assert scores
    for (dataset, metric), of_norms in scores.items():
        unit, digits = (" %", 1) if metric == "ROC-AUC" else ("", 2)
        known = {n: f"{mean(own):.{digits}f} ± {stdev(own):.{digits}f}" for n, own in of_norms.items()}
        cells = [known.get(norm, "–") for norm in ("none", "batch", "graph")]
        assert f"| {dataset} | {metric}{unit} | {' | '.join(cells)} |" in text("docs/howto/data.md")


def test_steps_of_other_tasks_and_of_an_own_model() -> None:
    with (ROOT / "benchmarks/results/tasks-NVIDIA-H200.csv").open(encoding="utf-8") as file:
        rows = list(csv.DictReader(file))
    assert {row["case"] for row in rows} == {"tox21", "own"}
    for row in rows:
        peer, ours, gain = float(row["pyg_step_ms"]), float(row["step_ms_per_model"]), float(row["speedup"])
        assert f"| {peer:.1f} ms | {ours:.3f} ms | {gain:.0f}× |" in text("docs/benchmarks.md")
        assert gain >= float(row["bar"])
