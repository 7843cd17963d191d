"""Tables of scores: what each cell says of itself, and the paper's shape; nothing is trained."""

from __future__ import annotations

import csv
import io
import json
from pathlib import Path
from statistics import mean
from typing import Any

import pytest
from fake_store import brought_home
from fake_training import FakeTraining
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.products import Product
from graphnorm.paper.recipe import CURVES, Beside, Recipe, Trainings
from graphnorm.paper.recipes import RECIPES
from graphnorm.paper.reported import Reported
from graphnorm.study.grid import Grid

from graphnorm.paper import cells, reported, wide
from graphnorm.paper.tables import Score
from graphnorm.training import Outcome, Split, Trial

TREES = "synthetic:trees"
SLOW, FAST = 1e-3, 1e-2


class BetterWhenFast(FakeTraining):
    """The larger learning rate is better by 5 points, on every fold and under every protocol."""

    def _outcome(self, trial: Trial, split: Split) -> Outcome:
        outcome = super()._outcome(trial, split)
        for curve in outcome.curves.values():
            curve += 0.05 * (trial.lr == FAST)
        return outcome


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)
    return Laboratory(tmp_path / "a.db", device="cpu", workers=1, progress=False)


def recipe(**changes: Any) -> Recipe:
    beside = changes.pop("beside", None)
    given: dict[str, Any] = {"datasets": (TREES,), "norms": ("none", "batch", "graph"), "folds": 4, "hidden": 8}
    given["grid"] = Grid("two", {**CURVES.axes, "epochs": (3,), "lr": (SLOW, FAST)})
    return Recipe(item="table", caption="Table", maker="scores", trained=(Trainings(**given | changes),), beside=beside)


def made(laboratory: Laboratory, wanted: Recipe, kept: Any = lambda trial: True) -> Product:
    brought_home(laboratory, wanted, kept, BetterWhenFast())
    return laboratory.make(wanted, train=False)


def by_norm(product: Product) -> dict[str, dict[str, Any]]:
    found = json.loads(json.dumps(product.facts["cells"]))  # as it is written
    return {cell["norm"]: cell for cell in found}


def rows(product: Product) -> list[dict[str, Any]]:
    assert product.table is not None
    return [dict(zip(product.table.columns, row, strict=True)) for row in product.table.rows]


def test_a_cell_says_how_it_was_chosen(laboratory: Laboratory, tmp_path: Path) -> None:
    product = made(laboratory, recipe())
    cell = by_norm(product)["graph"]
    assert [cell[name] for name in ("compared", "planned", "members", "members_planned")] == [2, 2, 4, 4]
    assert mean(cell["scores"]) == pytest.approx(cell["mean"])
    assert len(cell["scores"]) == 4
    assert cell["chosen"] == {
        "configuration": {"lr": FAST, "batch_size": 128, "dropout": 0.5, "weight_decay": 0.0},
        "epoch": 3,
    }
    assert (cell["device"], cell["protocol"], cell["repeats"], cell["common"]) == (["fake"], "paper", False, None)
    row = rows(product)[-1]
    assert (row["configurations"], row["folds"], row["chosen"], row["epoch"]) == ("2 of 2", "4 of 4", "lr 1e-2", "3")
    files = {file.name: file.read_text() for file in product.write(tmp_path / "out")}
    assert set(files) == {"table.md", "table.tex", "table-wide.md", "table-wide.tex", "table.csv", "table.json"}
    line = csv.DictReader(io.StringIO(files["table.csv"])).__next__()
    shown = ("norm", "protocol", "device", "configurations", "configurations_planned", "folds", "lr", "epoch")
    assert [line[name] for name in shown] == ["none", "paper", "fake", "2", "2", "4", "0.01", "3"]
    assert f"Protocol paper; made on {product.facts['made'][:10]} with graphnorm" in files["table.md"]
    assert f"Made on {product.facts['made'][:10]} with graphnorm" in files["table-wide.md"]


def test_scores_by_fold_keep_their_places(laboratory: Laboratory) -> None:
    cell = by_norm(made(laboratory, recipe(), lambda trial: trial.fold in (1, 3)))["batch"]
    assert [score is None for score in cell["scores"]] == [True, False, True, False]
    assert (cell["members"], cell["members_planned"]) == (2, 4)


def test_seeds_are_named_as_what_they_are(laboratory: Laboratory) -> None:
    product = made(laboratory, recipe(folds=2, seeds=3), lambda trial: trial.seed < 2)
    assert {row["folds and seeds"] for row in rows(product)} == {"4 of 6"}
    assert len(by_norm(product)["graph"]["scores"]) == 2  # a fold counts once


def test_a_part_of_the_grid_is_counted_against_the_whole(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also where the study itself was of that part, and not of one's own grid."""
    monkeypatch.setitem(RECIPES, "table", recipe())
    slow = recipe().trained[0].grid.fixed(lr=SLOW)
    product = made(laboratory, recipe().narrowed(grid=slow))
    assert {(cell["compared"], cell["planned"]) for cell in product.facts["cells"]} == {(1, 2)}
    assert rows(product)[0]["configurations"] == "1 of 2"
    assert rows(product)[0]["chosen"] == "lr 1e-3"
    assert not any("another grid" in sentence for sentence in product.sentences)
    other = made(laboratory, recipe().narrowed(grid=slow.fixed(lr=0.5)))
    assert f"Of another grid than the item's own: {TREES}, gin." in other.sentences


def test_a_grid_of_one_configuration(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    """There is nothing to choose: no column for it, and no parts of the count."""
    monkeypatch.setitem(reported.GIN["graph"], TREES, Reported(90.0, 50.0, 1))
    product = made(laboratory, recipe(grid=recipe().trained[0].grid.fixed(lr=FAST)))
    assert product.table is not None
    assert "chosen" not in product.table.columns
    assert "1 of 1 cells lie within one reported standard deviation of the paper (100 %)." in product.sentences


@pytest.mark.parametrize(
    ("compared", "planned", "words"),
    [
        (60, 60, "with the whole grid"),
        (12, 60, "with a part of the grid"),
        (1, 60, "with one configuration"),
        (1, 1, ""),
    ],
)
def test_how_much_of_the_grid(compared: int, planned: int, words: str) -> None:
    """A grid of one configuration is no search: there is nothing to say."""
    cell = cells.Cell(
        dataset=TREES, model="gin", norm="graph", protocol="paper", score=Score(90.0), compared=compared,
        planned=planned, members_planned=10,
    )  # fmt: skip
    assert cell.extent == words


def test_agreement_by_parts_of_the_grid(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    for norm, said in (("batch", 84.0), ("graph", 50.0)):
        monkeypatch.setitem(reported.GIN[norm], TREES, Reported(said, 2.0, 1))
    product = made(laboratory, recipe(), lambda trial: trial.norm == "batch" or trial.lr == FAST)
    assert product.sentences[:2] == (
        "1 of 2 cells lie within one reported standard deviation of the paper (50 %): "
        "1 of 1 with the whole grid, 0 of 1 with one configuration.",
        "One standard deviation over folds is a wide yardstick: within one standard error of the reported mean "
        "(its standard deviation / √10) lie 1 of 2.",
    )


def test_what_all_normalizations_could_choose(laboratory: Laboratory) -> None:
    found = by_norm(made(laboratory, recipe(), lambda trial: trial.norm != "none" or trial.lr == SLOW))
    assert found["none"]["common"] is None
    for norm in ("batch", "graph"):
        common = found[norm]["common"]
        assert common["mean"] == pytest.approx(found[norm]["mean"] - 5)
        assert common["std"] == pytest.approx(found[norm]["std"], abs=1e-3)
        assert common["configurations"] == 1
        assert common["scores"] == pytest.approx([score - 5 for score in found[norm]["scores"]])


def test_nothing_that_all_could_choose(laboratory: Laboratory) -> None:
    product = made(laboratory, recipe(), lambda trial: (trial.norm == "none") is (trial.lr == SLOW))
    for cell in by_norm(product).values():
        assert cell["common"] == {"mean": None, "std": None, "configurations": 0, "scores": [None] * 4}


def test_fair_alone(laboratory: Laboratory) -> None:
    both = recipe(protocols=("paper", "fair"))
    brought_home(laboratory, both, lambda trial: True, BetterWhenFast())
    product = laboratory.make(both.narrowed(protocols=("fair",)), train=False)
    assert product.caption == "Table. Narrowed to protocols fair"
    beside = laboratory.make(both, train=False)
    assert [row["measured, fair"] for row in rows(product)] == [row["under fair"] for row in rows(beside)]
    assert {cell["protocol"] for cell in product.facts["cells"]} == {"fair"}
    assert {cell["fair"]["mean"] for cell in beside.facts["cells"]} == {c["mean"] for c in product.facts["cells"]}


def test_folds_that_cannot_tell_configurations_apart(laboratory: Laboratory) -> None:
    """Under fair a score can be the average over several that are as good: none of them was chosen."""
    fair = recipe(protocols=("fair",))
    brought_home(laboratory, fair, lambda trial: True)  # learning rates make no difference
    row, cell = rows(laboratory.make(fair, train=False))[0], laboratory.make(fair, train=False).facts["cells"][0]
    assert (row["chosen"], row["epoch"], cell["chosen"]) == ("by fold", None, None)


def test_what_the_protocol_adds_is_measured_with_the_same_configurations(laboratory: Laboratory) -> None:
    """Under fair ``graph`` has the slow half alone; the same half under paper is 5 points below the whole."""
    product = made(
        laboratory,
        recipe(protocols=("paper", "fair")),
        lambda trial: trial.protocol == "paper" or trial.norm != "graph" or trial.lr == SLOW,
    )
    found = by_norm(product)
    for norm, configurations, lower in (("none", 2, 0), ("batch", 2, 0), ("graph", 1, 5)):
        same = found[norm]["among_fair"]
        assert same["configurations"] == configurations
        assert same["mean"] == pytest.approx(found[norm]["mean"] - lower)
        assert mean(same["scores"]) == pytest.approx(same["mean"])
    added = [cell["among_fair"]["mean"] - cell["fair"]["mean"] for cell in found.values()]
    (sentence,) = [text for text in product.sentences if text.startswith("Scores under paper less those under fair")]
    assert f"{TREES} {mean(added):+.1f} (3 cells, {min(added):+.1f} to {max(added):+.1f})".replace("-", "−") in sentence
    data = dict(zip(product.data.columns, zip(*product.data.rows, strict=True), strict=True))
    assert list(data["among_fair_mean"]) == [cell["among_fair"]["mean"] for cell in found.values()]


def test_fair_in_the_shape_of_the_paper(laboratory: Laboratory) -> None:
    """The same configurations under paper stand below; a dataset of which there is nothing has no column."""
    other = "synthetic:regular"
    wanted = recipe(datasets=(other, TREES), protocols=("paper", "fair"), models=("gcn", "gin"))
    product = made(
        laboratory,
        wanted,
        lambda trial: (
            trial.protocol == "paper" or (trial.dataset == TREES and trial.model == "gin" and trial.lr == SLOW)
        ),
    )
    table, notes, addition = product.sheets["-fair"]
    assert (table.columns, addition) == (("model", "norm", TREES), ", under fair")
    graph = next(cell for cell in product.facts["cells"] if cell["fair"] is not None and cell["norm"] == "graph")
    fair, same = graph["fair"], graph["among_fair"]
    expected = f"{fair['mean']:.1f} ± {fair['std']:.1f} †", f"{same['mean']:.1f} ± {same['std']:.1f}"
    assert [row[:2] for row in table.rows] == [["GIN", "none"], ["GIN", "BatchNorm"], ["GIN", "GraphNorm"]]
    assert table.rows[-1][2] == expected
    assert notes[0].endswith("over folds; below it, smaller, the same configurations under paper.")
    assert notes[1] == "† From one of 2 configurations."


def test_what_the_protocol_adds_is_open_where_configurations_are_missing(laboratory: Laboratory) -> None:
    product = made(
        laboratory,
        recipe(protocols=("paper", "fair")),
        lambda trial: trial.protocol == "fair" or trial.lr == SLOW,
    )
    assert {cell["among_fair"] for cell in by_norm(product).values()} == {None}
    assert not [text for text in product.sentences if text.startswith("Scores under paper less")]


def test_fair_where_there_is_nothing_else(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(reported.GIN["graph"], TREES, Reported(90.0, 1.0, 1))
    product = made(laboratory, recipe(protocols=("paper", "fair")), lambda trial: trial.protocol == "fair")
    for row in rows(product):
        assert (row["measured"], row["configurations"]) == ("–", "0 of 2")
        assert row["under fair"] != "–"
    assert rows(product)[-1]["reported"] == "90.0 ± 1.0"


@pytest.fixture
def as_molhiv(monkeypatch: pytest.MonkeyPatch) -> None:
    """The synthetic trees take the place of ogbg-molhiv, and have numbers in the paper."""
    for module in (cells, wide):
        monkeypatch.setattr(module, "MOLHIV", TREES)
    for norm, said in (("batch", 79.0), ("instance", 86.0), ("graph", 89.0)):
        monkeypatch.setitem(reported.GIN[norm], TREES, Reported(said, 2.0, 1))


@pytest.mark.usefixtures("as_molhiv")
def test_graphnorm_as_in_the_authors_code(laboratory: Laboratory) -> None:
    """Without α it is InstanceNorm: its measurement stands beside the paper's GraphNorm, too, and is counted once."""
    product = made(laboratory, recipe(norms=("batch", "instance", "graph")))
    found = by_norm(product)
    assert [norm for norm, cell in found.items() if cell["repeats"]] == ["graph, α = 1"]
    again, instance = found["graph, α = 1"], found["instance"]
    assert (again["mean"], again["reported"]["mean"]) == (instance["mean"], 89.0)
    assert [norm for norm, cell in found.items() if cell["within_one_sd"]] == ["instance"]
    assert product.sentences[0].startswith("1 of 3 cells")
    table, _, _ = product.sheets["-wide"]
    assert table.columns == ("norm", "GIN")
    assert [row[0] for row in table.rows] == ["BatchNorm", "InstanceNorm", "GraphNorm, α = 1", "GraphNorm"]


def test_how_much_of_the_grid_stands_beside(laboratory: Laboratory) -> None:
    other, protocols = "synthetic:regular", ("paper", "fair")
    wanted = recipe(
        datasets=(TREES, other),
        models=("gin", "gcn"),
        protocols=protocols,
        beside=Beside(baselines=("mlp",), datasets=(TREES,), folds=4, protocols=protocols),
    )

    def kept(trial: Trial) -> bool:
        whole = trial.protocol == "paper" or trial.model == "mlp"
        return whole or trial.lr == FAST or (trial.dataset == other and (trial.model == "gin" or trial.norm == "none"))

    product = made(laboratory, wanted, kept)
    assert any(cell["norm"] == "baseline" and cell["fair"] for cell in product.facts["cells"])
    said = [sentence for sentence in product.sentences if "of a part of" in sentence]
    assert said == [f"Under fair, of a part of the 2 configurations: 1 on {TREES}; 1 to 2 on {other} with gcn."]


def test_the_shape_of_the_paper(laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch) -> None:
    other = "synthetic:regular"
    monkeypatch.setitem(reported.GIN["graph"], other, Reported(90.0, 1.0, 1))
    monkeypatch.setitem(reported.BASELINES["WL subtree"], other, Reported(80.0, 1.0, 1))
    wanted = recipe(
        datasets=(TREES, other),
        models=("gin", "gcn"),
        grid=Grid("four", {**CURVES.axes, "epochs": (3,), "lr": (SLOW, FAST), "dropout": (0.0, 0.5)}),
        beside=Beside(baselines=("wl", "mlp"), datasets=(TREES, other), folds=4),
    )

    def kept(trial: Trial) -> bool:
        if trial.dataset != TREES or trial.model != "gin" or trial.norm == "none":
            return False
        return trial.lr == FAST and (trial.norm == "batch" or trial.dropout == 0.5) and trial.fold < 3

    product = made(laboratory, wanted, kept)
    found = by_norm(product)
    assert set(product.sheets) == {"-wide"}
    table, notes, _ = product.sheets["-wide"]
    assert table.columns == ("model", "norm", TREES, other)
    texts = {(row[0], row[1]): row[2:] for row in table.rows}
    assert texts["WL subtree", "–"] == [("–", None), ("–", "80.0 ± 1.0")]
    assert texts["GIN", "BatchNorm"][0] == (f"{found['batch']['mean']:.1f} ± {found['batch']['std']:.1f} ‡§", None)
    assert texts["GIN", "GraphNorm"][0].above.endswith(" †§")  # type: ignore[union-attr]
    assert texts["GIN", "GraphNorm"][1] == ("–", "90.0 ± 1.0")
    assert list(texts) == [("WL subtree", "–"), ("GIN", "BatchNorm"), ("GIN", "GraphNorm")]  # no rows of dashes alone
    assert notes[1:4] == (
        "† From one of 4 configurations.",
        f"‡ From a part of 4 configurations: {TREES}, gin: 2 (batch).",
        f"§ From fewer than 4 folds: {TREES}, gin: 3 (batch, graph).",
    )
    assert product.sentences[0] == "No cell can be compared with the paper's numbers."
