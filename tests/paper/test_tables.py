"""Tables of scores: what each cell is made of, and the paper's layout; datasets; theory. Nothing is trained."""

from __future__ import annotations

import csv
import json
from collections.abc import Callable
from dataclasses import replace
from functools import partial
from pathlib import Path
from statistics import mean
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphnorm.analysis import theory
from graphnorm.data import synthetic
from graphnorm.paper import cells, tables
from graphnorm.paper.cells import Cell, untrained
from graphnorm.paper.item import CURVES, Baselines, Item, Trainings
from graphnorm.paper.output import Output
from graphnorm.paper.reproduce import Reproduction
from graphnorm.paper.tables import pairs
from graphnorm.settings import Grid
from graphnorm.study import paper_numbers
from graphnorm.study.paper_numbers import MOLHIV, Reported
from graphnorm.study.selection import Choice
from graphnorm.training import Trial

TREES, REGULAR = "synthetic:trees", "synthetic:regular"
SLOW, FAST = 1e-3, 1e-2
TWO = Grid("two", {**CURVES.axes, "epochs": (3,), "lr": (SLOW, FAST)})
BOTH = ("paper", "fair")
Made = Callable[..., Output]
Cells = dict[str, dict[str, Any]]


def item(**changes: Any) -> Item:
    baselines = changes.pop("baselines", ())
    given: dict[str, Any] = {"datasets": (TREES,), "norms": ("none", "batch", "graph"), "folds": 4, "hidden": 8}
    parts = (Trainings(**given | {"grid": TWO} | changes), *baselines)
    return Item(name="table", caption="Table", make=tables.scores, parts=parts)


def by_norm(output: Output) -> Cells:
    cells = json.loads(json.dumps(output.facts["cells"]))  # as they are written
    return {cell["norm"]: cell for cell in cells}


def rows(output: Output) -> list[dict[str, Any]]:
    assert output.table is not None
    return [dict(zip(output.table.columns, row, strict=True)) for row in output.table.rows]


def sentence(output: Output, start: str) -> str:
    """The one sentence that begins so, or nothing."""
    (*found,) = [text for text in output.sentences if text.startswith(start)]
    assert len(found) < 2
    return "".join(found)


def wide(output: Output, suffix: str = "-wide") -> dict[tuple[str, ...], list[Any]]:
    """The cells of a sheet, by the names of its rows."""
    table = output.sheets[suffix].table
    heads = 2 if table.columns[0] == "model" else 1
    return {tuple(map(str, row[:heads])): list(row[heads:]) for row in table.rows}


@pytest.fixture
def as_printed(monkeypatch: pytest.MonkeyPatch) -> Callable[..., None]:
    """Let the paper have numbers, with a standard deviation of 2, for synthetic graphs."""

    def say(dataset: str = TREES, std: float | None = 2.0, **means: float) -> None:
        for norm, value in means.items():
            monkeypatch.setitem(paper_numbers.GIN[norm], dataset, Reported(value, std, 1))

    return say


# What a cell is made of


def test_a_cell_says_how_it_was_chosen(made: Made, tmp_path: Path) -> None:
    output = made(item())
    cell = by_norm(output)["graph"]
    assert [cell[name] for name in ("compared", "planned", "members", "members_planned")] == [2, 2, 4, 4]
    assert len(cell["scores"]) == 4
    assert mean(cell["scores"]) == pytest.approx(cell["mean"])
    settings = {"lr": FAST, "batch_size": 128, "dropout": 0.5, "weight_decay": 0.0}
    assert cell["chosen"] == {"configuration": settings, "epoch": 3}
    assert (cell["device"], cell["protocol"], cell["repeats"], cell["common"]) == (["fake"], "paper", False, None)
    row = rows(output)[-1]
    assert [row[name] for name in ("configurations", "folds", "chosen", "epoch")] == [
        "2 of 2", "4 of 4", "lr 1e-2", "3",
    ]  # fmt: skip
    files = {file.name for file in output.write(tmp_path)}
    assert files == {"table.md", "table.tex", "table-wide.md", "table-wide.tex", "table.csv", "table.json"}
    with (tmp_path / "table.csv").open() as opened:
        line = next(csv.DictReader(opened))
    shown = ("norm", "protocol", "device", "configurations", "configurations_planned", "folds", "lr", "epoch")
    assert [line[name] for name in shown] == ["none", "paper", "fake", "2", "2", "4", "0.01", "3"]


@pytest.mark.parametrize(
    ("changes", "trained", "compared", "members", "scores"),
    [
        ({}, lambda trial: trial.fold in (1, 3), 2, (2, 4), [False, True, False, True]),
        ({}, lambda trial: trial.lr == SLOW, 1, (4, 4), [True] * 4),
        # the configuration with most folds; the other has not all of these
        ({}, lambda trial: trial.fold < (3 if trial.lr == FAST else 2), 1, (3, 4), [True, True, True, False]),
        ({}, lambda trial: trial.lr == FAST or trial.fold < 2, 1, (4, 4), [True] * 4),
        ({}, lambda trial: trial.norm == "none", 0, (0, 4), [False] * 4),
        ({"seeds": 5, "folds": 2}, lambda trial: trial.seed < 2, 2, (4, 10), [True] * 2),  # a fold counts once
    ],
)
def test_parts_of_the_grid_and_of_the_folds(
    made: Made, changes: Any, trained: Any, compared: int, members: tuple[int, int], scores: list[bool]
) -> None:
    output = made(item(**changes), trained)
    cell, row = by_norm(output)["batch"], rows(output)[1]
    assert (cell["compared"], cell["planned"]) == (compared, 2)
    assert (cell["members"], cell["members_planned"]) == members
    assert [score is not None for score in cell["scores"]] == scores
    assert (cell["mean"] is not None) is (row["measured"] != "–") is any(scores)
    assert row["configurations"] == f"{compared} of 2"
    assert row["folds and seeds" if "seeds" in changes else "folds"] == "{} of {}".format(*members)


def test_a_part_of_the_grid_is_counted_against_the_whole(made: Made) -> None:
    """Also where the study itself was of that part, and not of one's own grid."""
    output = made(item().narrowed(grid=TWO.fixed(lr=SLOW)))
    assert {(cell["compared"], cell["planned"]) for cell in output.facts["cells"]} == {(1, 2)}
    assert rows(output)[0]["chosen"] == "lr 1e-3"
    assert not sentence(output, "Of another grid")
    other = made(item().narrowed(grid=TWO.fixed(lr=0.5)))
    assert sentence(other, "Of another grid").endswith(f": {TREES}, gin.")


def test_a_grid_of_one_configuration(made: Made, as_printed: Callable[..., None]) -> None:
    """There is nothing to choose: no column for it, and no parts of the count."""
    as_printed(graph=94.0)
    output = made(item(grid=TWO.fixed(lr=FAST)))
    assert "chosen" not in rows(output)[0]
    assert output.sentences[0].startswith("1 of 1 cells")
    assert output.sentences[0].endswith("(100 %).")


def test_measured_beside_reported(made: Made, reproduction: Reproduction, as_printed: Callable[..., None]) -> None:
    """Counted by how much of the grid was searched; 6.5 / √10 is 2.06."""
    rates = {"layer": (SLOW,), "batch": (SLOW, FAST)}
    grid = Grid("three", {**TWO.axes, "lr": (SLOW, FAST, 0.1)})
    wanted = item(grid=grid, norms=("none", "layer", "batch", "instance", "graph"))
    output = made(wanted, lambda trial: trial.norm != "none" and trial.lr in rates.get(trial.norm, grid.axes["lr"]))
    assert output.sentences[0].startswith("No cell")
    means = {norm: cell["mean"] for norm, cell in by_norm(output).items()}
    as_printed(std=6.5, layer=means["layer"] + 0.6, batch=means["batch"] + 2.6, instance=means["instance"] + 11.6)
    as_printed(std=None, graph=means["graph"] + 1)
    output = reproduction.make(wanted, train=False)
    numbers = ("difference", "within_one_sd", "within_one_se")
    found = {norm: [cell[name] for name in numbers] for norm, cell in by_norm(output).items()}
    assert found == {
        "none": [None, None, None],
        "layer": [pytest.approx(-0.6), True, True],
        "batch": [pytest.approx(-2.6), True, False],
        "instance": [pytest.approx(-11.6), False, False],
        "graph": [pytest.approx(-1), None, None],
    }
    by_deviation, by_error = output.sentences[:2]
    assert by_deviation.startswith("2 of 3 cells")
    *_, parts = by_deviation.split(": ")
    assert parts == "0 of 1 with the whole grid, 1 of 1 with a part of the grid, 1 of 1 with one configuration."
    assert by_error.endswith("/ √10) lie 1 of 3.")


def test_a_normalization_that_diverged_has_no_score(made: Made, fill: Callable[..., None], as_printed: Any) -> None:
    as_printed(graph=90.0)
    fill(item(), lambda trial: trial.norm == "graph", status="diverged")
    output = made(item(), lambda trial: trial.norm == "batch")
    cell, row = by_norm(output)["graph"], rows(output)[-1]
    assert (cell["members"], cell["scores"]) == (4, [None] * 4)
    assert [cell[name] for name in ("mean", "difference", "within_one_sd", "within_one_se")] == [None] * 4
    assert (row["measured"], row["epoch"]) == ("–", None)
    assert wide(output)["GIN", "GraphNorm"] == [("–", "90.0 ± 2.0")]


def test_where_cells_were_trained(made: Made, fill: Callable[..., None]) -> None:
    wanted = item(protocols=BOTH, datasets=(TREES, REGULAR))
    fill(wanted, lambda trial: trial.protocol == "fair" and trial.dataset == TREES, device="cpu")
    output = made(wanted, lambda trial: trial.protocol == "paper" or trial.dataset == REGULAR)
    assert [one["fair"]["device"] for one in output.facts["cells"]] == [["cpu"]] * 3 + [["fake"]] * 3
    assert sentence(output, "Trained on").endswith(f"on cpu: {TREES}, gin under fair; the rest on fake.")
    assert output.facts["trained_on"] == ["cpu", "fake"]


# Choices among fewer configurations


def test_what_all_normalizations_could_choose(made: Made) -> None:
    found = by_norm(made(item(), lambda trial: trial.norm != "none" or trial.lr == SLOW))
    assert found["none"]["common"] is None
    for norm in ("batch", "graph"):
        common = found[norm]["common"]
        assert common["mean"] == pytest.approx(found[norm]["mean"] - 5)
        assert common["std"] == pytest.approx(found[norm]["std"], abs=1e-3)
        assert common["configurations"] == 1
        assert common["scores"] == pytest.approx([score - 5 for score in found[norm]["scores"]])


def test_nothing_that_all_could_choose(made: Made) -> None:
    output = made(item(), lambda trial: (trial.norm == "none") is (trial.lr == SLOW))
    for one in by_norm(output).values():
        assert one["common"] == {"mean": None, "std": None, "configurations": 0, "scores": [None] * 4}


# Under fair


def test_fair_alone(made: Made, reproduction: Reproduction) -> None:
    beside = made(item(protocols=BOTH))
    alone = reproduction.make(item(protocols=BOTH).narrowed(protocols=("fair",)), train=False)
    assert alone.facts["narrowed"] == {"protocols": ["fair"]}
    assert [row["measured, fair"] for row in rows(alone)] == [row["under fair"] for row in rows(beside)]
    assert {one["protocol"] for one in alone.facts["cells"]} == {"fair"}
    assert [one["fair"]["mean"] for one in beside.facts["cells"]] == [one["mean"] for one in alone.facts["cells"]]
    assert sentence(alone, "Under fair a fold")


def test_folds_that_cannot_tell_configurations_apart(made: Made) -> None:
    """Under fair a score can be the average over several that are as good: none of them was chosen."""
    output = made(item(protocols=("fair",)), values=lambda trial, epoch: dict.fromkeys(("valid", "test"), 0.5))
    row, one = rows(output)[0], output.facts["cells"][0]
    assert (row["chosen"], row["epoch"], one["chosen"]) == ("by fold", None, None)


def test_what_the_protocol_adds_is_measured_with_the_same_configurations(made: Made) -> None:
    """Under fair ``graph`` has the slow half alone; the same half under paper is 5 points below the whole."""
    output = made(
        item(protocols=BOTH), lambda trial: trial.protocol == "paper" or trial.norm != "graph" or trial.lr == SLOW
    )
    found = by_norm(output)
    for norm, configurations, lower in (("none", 2, 0), ("batch", 2, 0), ("graph", 1, 5)):
        same = found[norm]["among_fair"]
        assert same["configurations"] == configurations
        assert same["mean"] == pytest.approx(found[norm]["mean"] - lower)
        assert mean(same["scores"]) == pytest.approx(same["mean"])
    added = [one["among_fair"]["mean"] - one["fair"]["mean"] for one in found.values()]
    assert f"{TREES} {mean(added):+.1f} (3 cells" in sentence(output, "Scores under paper minus").replace("−", "-")
    assert output.data is not None
    data = dict(zip(output.data.columns, zip(*output.data.rows, strict=True), strict=True))
    assert list(data["among_fair_mean"]) == [one["among_fair"]["mean"] for one in found.values()]


def test_what_the_protocol_adds_is_open_where_configurations_are_missing(made: Made) -> None:
    output = made(item(protocols=BOTH), lambda trial: trial.protocol == "fair" or trial.lr == SLOW)
    assert {one["among_fair"] for one in output.facts["cells"]} == {None}
    assert not sentence(output, "Scores under paper minus")


def test_fair_where_there_is_nothing_else(made: Made, as_printed: Callable[..., None]) -> None:
    as_printed(graph=90.0)
    output = made(item(protocols=BOTH), lambda trial: trial.protocol == "fair")
    for row in rows(output):
        assert (row["measured"], row["configurations"]) == ("–", "0 of 2")
        assert row["under fair"] != "–"
    assert rows(output)[-1]["reported"] == "90.0 ± 2.0"


@pytest.mark.parametrize("whole", [False, True])
def test_a_part_of_the_grid_and_of_the_folds_under_fair(made: Made, whole: bool) -> None:
    output = made(
        item(protocols=BOTH), lambda trial: whole or trial.protocol == "paper" or (trial.lr == FAST and trial.fold < 2)
    )
    counts = ("compared", "planned", "members", "members_planned")
    assert {tuple(one["fair"][name] for name in counts) for one in output.facts["cells"]} == {
        (2, 2, 4, 4) if whole else (1, 2, 2, 4)
    }
    assert bool(sentence(output, "Under fair, a part")) is not whole
    assert all(row["under fair"].endswith("(1 of 2)") is not whole for row in rows(output))
    assert output.data is not None
    columns = [output.data.columns.index(f"fair_configurations{end}") for end in ("", "_planned")]
    assert {tuple(row[k] for k in columns) for row in output.data.rows} == {(1 + whole, 2)}


def test_where_fair_has_a_part_of_the_grid(made: Made) -> None:
    """Datasets are named with their models where these differ; baselines do not count."""
    baselines = Baselines(baselines=("mlp",), datasets=(TREES,), folds=4, protocols=BOTH)
    wanted = item(datasets=(TREES, REGULAR), models=("gin", "gcn"), protocols=BOTH, baselines=[baselines])

    def trained(trial: Trial) -> bool:
        whole = trial.protocol == "paper" or trial.model == "mlp"
        of_regular = trial.dataset == REGULAR and (trial.model == "gin" or trial.norm == "none")
        return whole or of_regular or trial.lr == FAST

    output = made(wanted, trained)
    assert any(one["norm"] == "baseline" and one["fair"] for one in output.facts["cells"])
    *_, parts = sentence(output, "Under fair, a part").partition(": ")
    assert parts == f"1 ({TREES}), 2 ({REGULAR} with gin), 1 to 2 ({REGULAR} with gcn)."


# The paper's layout


def test_the_layout_of_the_paper(made: Made, as_printed: Callable[..., None], monkeypatch: pytest.MonkeyPatch) -> None:
    as_printed(REGULAR, graph=90.0)
    monkeypatch.setitem(paper_numbers.BASELINES["WL subtree"], REGULAR, Reported(80.0, 1.0, 1))
    wanted = item(
        datasets=(TREES, REGULAR),
        models=("gin", "gcn"),
        grid=Grid("four", {**TWO.axes, "dropout": (0.0, 0.5)}),
        baselines=[Baselines(baselines=("wl", "mlp"), datasets=(TREES, REGULAR), folds=4)],
    )

    def trained(trial: Trial) -> bool:
        if trial.dataset != TREES or trial.model != "gin" or trial.norm == "none":
            return False
        return trial.lr == FAST and (trial.norm == "batch" or trial.dropout == 0.5) and trial.fold < 3

    output = made(wanted, trained)
    batch = by_norm(output)["batch"]
    assert set(output.sheets) == {"-wide"}
    assert output.sheets["-wide"].table.columns == ("model", "norm", TREES, REGULAR)
    cells = wide(output)
    assert list(cells) == [("WL subtree", "–"), ("GIN", "BatchNorm"), ("GIN", "GraphNorm")]  # no rows of dashes alone
    assert cells["WL subtree", "–"] == [("–", None), ("–", "80.0 ± 1.0")]
    assert cells["GIN", "BatchNorm"][0] == (f"{batch['mean']:.1f} ± {batch['std']:.1f} ‡§", None)
    assert cells["GIN", "GraphNorm"][0].above.endswith(" †§")
    assert cells["GIN", "GraphNorm"][1] == ("–", "90.0 ± 2.0")
    one, some, fewer = output.sheets["-wide"].notes[1:4]
    assert one == "† From one of 4 configurations."
    assert (some[0], some.partition(": ")[2]) == ("‡", f"{TREES}, gin: 2.")
    assert (fewer[0], fewer.partition(": ")[2]) == ("§", f"{TREES}, gin: 3.")


def test_fair_in_the_layout_of_the_paper(made: Made) -> None:
    """The same configurations under paper stand below; a dataset of which there is nothing has no column."""
    wanted = item(datasets=(REGULAR, TREES), protocols=BOTH, models=("gcn", "gin"))

    def trained(trial: Trial) -> bool:
        return trial.protocol == "paper" or (trial.dataset == TREES and trial.model == "gin" and trial.lr == SLOW)

    output = made(wanted, trained)
    table, notes, addition = output.sheets["-fair"]
    assert (table.columns, addition) == (("model", "norm", TREES), ", under fair")
    graph = next(one for one in output.facts["cells"] if one["fair"] is not None and one["norm"] == "graph")
    fair, same = graph["fair"], graph["among_fair"]
    expected = f"{fair['mean']:.1f} ± {fair['std']:.1f} †", f"{same['mean']:.1f} ± {same['std']:.1f}"
    cells = wide(output, "-fair")
    assert list(cells) == [("GIN", "none"), ("GIN", "BatchNorm"), ("GIN", "GraphNorm")]
    assert cells["GIN", "GraphNorm"] == [expected]
    assert notes[0].endswith("the same configurations under paper.")


def test_graphnorm_as_in_the_authors_code(
    made: Made, as_printed: Callable[..., None], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without α it is InstanceNorm: its measurement is shown with the paper's GraphNorm, too, and counted once."""
    monkeypatch.setattr(tables, "MOLHIV", TREES)
    monkeypatch.setattr(cells, "MOLHIV", TREES)
    as_printed(batch=79.0, instance=86.0, graph=89.0)
    output = made(item(norms=("batch", "instance", "graph")))
    found = by_norm(output)
    assert [norm for norm, one in found.items() if one["repeats"]] == ["graph, α = 1"]
    again, instance = found["graph, α = 1"], found["instance"]
    assert (again["mean"], again["reported"]["mean"]) == (instance["mean"], 89.0)
    assert [norm for norm, one in found.items() if one["within_one_sd"]] == ["instance"]
    assert output.sentences[0].startswith("1 of 3 cells")
    assert output.sheets["-wide"].table.columns == ("norm", "GIN")
    assert [norm for (norm,) in wide(output)] == ["BatchNorm", "InstanceNorm", "GraphNorm, α = 1", "GraphNorm"]


# Datasets and theory


def test_the_dataset_table(reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch) -> None:
    """An average is as printed if it is so rounded or cut off; a digit further it is not, even if by less than 0.1."""
    averages = {"avg_nodes": 17.98, "avg_edges": 57.44, "avg_degree": 9.0, "avg_undirected_edges": 27.5}
    found = SimpleNamespace(num_graphs=188, num_classes=2, **averages)
    monkeypatch.setattr(Reproduction, "graphs", lambda *_: SimpleNamespace(statistics=lambda: found))
    printed = dict.fromkeys(("MUTAG", MOLHIV), (188, 3, 17.9, 57.5, 9.0))
    monkeypatch.setattr(tables, "dataset_table", lambda: printed)
    output = reproduction.make(Item(name="x", caption="x", make=tables.dataset_statistics, graphs=("MUTAG", MOLHIV)))
    assert output.table is not None
    first, others = output.table.rows[:5], output.table.rows[5:]
    assert [row[-1] for row in first] == [True, False, True, False, True]
    assert first[0] == ["MUTAG", "graphs", 188, 188, True]
    assert [row[2] for row in others[3:]] == [27.5, 3.06]  # undirected, and without self-loops
    equal = sum(row[-1] is True for row in output.table.rows)
    assert output.facts["as_printed"] == {"equal": equal, "statistics": 10}
    assert sentence(output, f"{MOLHIV}: ")  # the catalogue's note


def test_theory(
    reproduction: Reproduction, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    short = partial(theory.convergence_rates, noise=(0.1,), samples=(200,), seeds=(0,))
    monkeypatch.setattr(theory, "convergence_rates", short)
    monkeypatch.setattr("graphnorm.paper.reproduce.load", lambda *_: synthetic.trees(20))
    output = reproduction.make(Item(name="x", caption="x", make=tables.theory, graphs=(TREES, REGULAR)), quick=True)
    assert output.table is not None
    assert [row[:4] for row in output.table.rows] == [[name, 20, 20, 20] for name in (TREES, REGULAR)]
    assert output.facts["theorem_1"] == {"checked": 40, "holds": 40}
    assert {"linear_gnn", "gradient", "fact_1_distance"} <= output.facts["summary"].keys()
    assert capsys.readouterr().err == ""  # it was asked to be quiet


# Pairs of normalizations


def scored(norm: str, level: float, **more: Any) -> Cell:
    wiggle = np.random.default_rng(len(norm)).normal(0, 0.002, 10)
    choices = tuple(Choice(fold, 0, 0, 1, level + value) for fold, value in enumerate(wiggle))
    score = replace(untrained(norm, "paper"), configurations=({},), choices=choices)
    about: dict[str, Any] = {"dataset": "PTC", "model": "gin", "norm": norm, "score": score, "reported": None}
    return Cell(**about | {"planned": 1, "members_planned": 10, "units": 10} | more)


def test_pairs_are_tested_among_configurations_that_all_have() -> None:
    """GraphNorm's second configuration is better, and nobody else has it."""
    cells = [scored("graph", 0.9), scored("batch", 0.8), scored("layer", 0.8), scored("baseline", 0.99)]
    (found,) = pairs(cells)
    assert (found["protocol"], found["dataset"], found["model"], found["pairs"]) == ("paper", "PTC", "gin", 3)
    assert found["significant"] == [["graph", "batch"], ["graph", "layer"]]
    common = scored("graph", 0.7).score
    (found,) = pairs([scored("graph", 0.9, common=common), *cells[1:]])
    assert found["significant"] == [["batch", "graph"], ["layer", "graph"]]
    (found,) = pairs([*cells, scored("graph, α = 1", 0.1, repeats=True)])
    assert found["pairs"] == 3
