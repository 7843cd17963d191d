"""Items made of what a store holds, when that is only a part of what they need; nothing is trained."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path

import pytest
from fake_store import brought_home
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.recipe import CURVES, Recipe, Trainings
from graphnorm.study.grid import Grid

from graphnorm.data import synthetic
from graphnorm.errors import StudyError
from graphnorm.training import Trial

TREES = "synthetic:trees"


@pytest.fixture
def laboratory(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Laboratory:
    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)
    return Laboratory(tmp_path / "a.db", device="cpu", workers=1, progress=False)


def scores(**changes: object) -> Recipe:
    given: dict[str, object] = {"datasets": (TREES,), "norms": ("none", "batch", "graph"), "folds": 4, "hidden": 8}
    given["grid"] = Grid("two", {**CURVES.axes, "epochs": (3,), "lr": (1e-3, 1e-2)})
    return Recipe(item="table", caption="Table", maker="scores", trained=(Trainings(**given | changes),))  # type: ignore[arg-type]


def cells(laboratory: Laboratory, recipe: Recipe) -> dict[str, list[object]]:
    """Configurations, members and whether there is a number, by normalization."""
    product = laboratory.make(recipe, train=False)
    assert product.table is not None
    return {str(row[2]): [row[3], row[4], row[5] != "–"] for row in product.table.rows}


def test_a_part_of_the_grid_and_of_the_folds(laboratory: Laboratory) -> None:
    def kept(trial: Trial) -> bool:
        if trial.norm == "graph":
            return trial.lr == 1e-3
        return trial.norm == "batch" and trial.fold < (3 if trial.lr == 1e-2 else 2)

    brought_home(laboratory, scores(), kept)
    laboratory.store.chmod(0o444)
    laboratory.store.parent.chmod(0o555)
    before = laboratory.store.read_bytes()
    assert cells(laboratory, scores()) == {
        "none": ["0 of 2", "0 of 4", False],
        "batch": ["1 of 2", "3 of 4", True],  # the configuration with most folds; the other has not all of these
        "graph": ["1 of 2", "4 of 4", True],
    }
    assert laboratory.store.read_bytes() == before
    laboratory.store.parent.chmod(0o755)


def test_a_whole_configuration_counts_more_than_many_halves(laboratory: Laboratory) -> None:
    brought_home(laboratory, scores(), lambda trial: trial.lr == 1e-2 or trial.fold < 2)
    assert cells(laboratory, scores())["batch"] == ["1 of 2", "4 of 4", True]


def test_folds_that_choose_for_themselves(laboratory: Laboratory) -> None:
    fair = scores(protocols=("paper", "fair"))
    brought_home(laboratory, fair, lambda trial: trial.fold < (2 if trial.protocol == "fair" else 4))
    product = laboratory.make(fair, train=False)
    assert all(cell["members"] == 4 and cell["fair"]["mean"] > 0 for cell in product.facts["cells"])
    assert all(cell["fair"]["members"] == 2 for cell in product.facts["cells"])


@pytest.mark.parametrize("whole", [False, True])
def test_a_part_of_the_grid_under_fair(laboratory: Laboratory, whole: bool) -> None:
    fair = scores(protocols=("paper", "fair"))
    brought_home(laboratory, fair, lambda trial: whole or trial.protocol == "paper" or trial.lr == 1e-2)
    words = f"Under fair, of a part of the 2 configurations: 1 on {TREES}."
    product = laboratory.make(fair, train=False)
    assert (words in product.sentences) is not whole
    assert product.table is not None
    assert product.data is not None
    assert all(str(row[-1]).endswith("(1 of 2)") is not whole for row in product.table.rows)
    counts = [product.data.columns.index(f"fair_configurations{end}") for end in ("", "_planned")]
    assert {tuple(row[k] for k in counts) for row in product.data.rows} == {(2 if whole else 1, 2)}


def test_fewer_seeds(laboratory: Laboratory) -> None:
    recipe = scores(seeds=5, folds=2)
    brought_home(laboratory, recipe, lambda trial: trial.seed < 2)
    assert cells(laboratory, recipe)["graph"] == ["2 of 2", "4 of 10", True]


def test_curves_say_what_they_are_made_of(laboratory: Laboratory) -> None:
    part = Trainings(
        datasets=(TREES, "synthetic:regular"),
        norms=("none", "batch", "graph"),
        grid=Grid("sizes", {**CURVES.axes, "epochs": (3,), "batch_size": (8, 16)}),
        folds=4,
    )
    recipe = Recipe(item="figure", caption="Figure", maker="curves", trained=(part,))

    def kept(trial: Trial) -> bool:
        if trial.dataset != TREES or trial.norm == "none":
            return False
        return trial.norm == "graph" or (trial.batch_size == 8 and trial.fold != 1)

    brought_home(laboratory, recipe, kept)
    product = laboratory.make(recipe, train=False)
    assert product.sentences[0] == (
        f"Trained in part: {TREES}: none (none); {TREES}: batch, batch size 8 (3 of 4); "
        f"{TREES}: batch (1 of 2 without any)."
    )
    assert product.sentences[1] == "Not trained: gin under paper on synthetic:regular."
    assert [(c["norm"], c["variant"], c["members"]) for c in product.facts["convergence"]] == [
        ("batch", "batch size 8", 3),
        ("graph", "batch size 8", 4),
        ("graph", "batch size 16", 4),
    ]
    assert len(product.facts["missing"]) == 4
    assert product.facts["remarks"] == list(product.sentences)
    assert [value is None for value in product.facts["convergence"][0]["train_averages"]] == [False, True, False, False]
    titles = [axis.get_title() for axis in product.figures[""].axes if axis.get_title()]
    assert titles == [f"{TREES}, batch size {size}\n(trained in part)" for size in (8, 16)]


def test_curves_of_several_models_name_them(laboratory: Laboratory) -> None:
    """Also where each dataset has one of them so far."""
    grid = Grid("one", {**CURVES.axes, "epochs": (3,)})
    part = Trainings(datasets=(TREES, "synthetic:regular"), models=("gin", "gcn"), norms=("graph",), grid=grid, folds=2)
    recipe = Recipe(item="figure", caption="Figure", maker="curves", trained=(part,))
    brought_home(laboratory, recipe, lambda trial: (trial.dataset == TREES) == (trial.model == "gin"))
    product = laboratory.make(recipe, train=False)
    titles = [axis.get_title() for axis in product.figures[""].axes if axis.get_title()]
    assert titles == [f"{TREES}, gin", "synthetic:regular, gcn"]


@pytest.fixture
def _no_data(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv("GRAPHNORM_DATA", raising=False)
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))


def as_mutag(laboratory: Laboratory, seed: int = 0) -> None:
    """Let the laboratory hold some graphs by this name."""
    laboratory._held = ("MUTAG", replace(synthetic.trees(num_graphs=40 + seed, seed=seed), name="MUTAG"))


@pytest.mark.usefixtures("_no_data")
def test_of_a_store_without_the_graphs(laboratory: Laboratory) -> None:
    recipe = scores(datasets=("MUTAG", "PTC"), protocols=("paper", "fair"))
    drawn = replace(recipe, maker="learned_shift", looked_at=("MUTAG",))
    as_mutag(laboratory)
    brought_home(laboratory, scores(datasets=("MUTAG",), protocols=("paper", "fair")), lambda _: True)
    laboratory._held = None
    product = laboratory.make(recipe, train=False)
    assert [(cell["dataset"], cell["norm"], cell["members"]) for cell in product.facts["cells"]] == [
        ("MUTAG", norm, 4) for norm in ("none", "batch", "graph")
    ]
    assert all(cell["mean"] > 0 and cell["fair"]["mean"] > 0 for cell in product.facts["cells"])
    assert product.facts["missing"] == ["gin under paper on PTC", "gin under fair on PTC"]
    assert [study["spec"]["guessing"] for study in product.facts["studies"]] == [50.0, 50.0]
    paper = replace(drawn, trained=(replace(drawn.trained[0], datasets=("MUTAG",), protocols=("paper",)),))
    product = laboratory.make(paper, train=False)
    assert set(product.figures) == {""}  # curves, no drawings
    assert product.sentences[-1] == "Without drawings of MUTAG: these graphs are not on this machine."
    assert product.facts["missing"][-1] == "drawings of MUTAG"
    with pytest.raises(StudyError, match=r"made of the graphs themselves, and these are not .*: MUTAG, PTC\."):
        laboratory.make(replace(recipe, maker="spectra", trained=(), looked_at=(TREES, "MUTAG", "PTC")), train=False)


@pytest.mark.usefixtures("_no_data")
@pytest.mark.parametrize("here", [None, 1, 2, 3])
def test_two_versions_of_a_dataset_in_a_store(
    laboratory: Laboratory, monkeypatch: pytest.MonkeyPatch, here: int | None
) -> None:
    """The one on this machine counts, where it is one of them, else the one with most trials."""
    recipe = scores(datasets=("MUTAG",))
    fingerprints = {}
    for seed, folds in ((1, 1), (2, 3), (3, 0)):
        as_mutag(laboratory, seed)
        brought_home(laboratory, recipe, lambda trial, folds=folds: trial.fold < folds)  # type: ignore[misc]
        fingerprints[seed] = laboratory.graphs("MUTAG").fingerprint
    laboratory._held = None
    if here is not None:
        as_mutag(laboratory, here)
        monkeypatch.setattr(Laboratory, "_is_here", lambda *_: True)
    (planned,) = laboratory.plans(recipe, train=False)
    assert planned.plan.spec["fingerprint"] == fingerprints[1 if here == 1 else 2]


def test_nothing_is_there(laboratory: Laboratory) -> None:
    with pytest.raises(StudyError, match="there is nothing of table in it"):
        laboratory.make(scores(), train=False)
    assert not laboratory.store.exists()
