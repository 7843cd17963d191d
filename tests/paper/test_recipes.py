"""Recipes: what is shared, what a quick pass keeps, and what can be left out."""

from __future__ import annotations

from argparse import Namespace
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.narrowing import covers
from graphnorm.paper.recipe import CURVES, FIVE, QUICK, TU, Recipe, is_quick
from graphnorm.paper.recipes import RECIPES, find_recipes
from graphnorm.study.grid import GRIDS

from graphnorm.commands import reproduce
from graphnorm.data import load
from graphnorm.errors import StudyError
from graphnorm.paper import makers
from graphnorm.study.plan import make_plan


def keys(item: str, *, quick: bool) -> set[str]:
    """The trials of an item, as if each dataset were the same small one."""
    graphs = load("synthetic:trees")
    recipe = RECIPES[item].quick() if quick else RECIPES[item]
    return {
        trial.key
        for part in recipe.trained
        for dataset in part.datasets
        for model in part.models
        for protocol in part.protocols
        if protocol != "ogb"
        for trial in make_plan(
            graphs,
            part.grid,
            norms=part.norms,
            model=model,
            protocol=protocol,
            folds=part.folds,
            **part.settings(dataset, model),
        ).trials
    }


def test_every_recipe_has_its_maker() -> None:
    assert {recipe.maker for recipe in RECIPES.values()} <= set(makers.__all__)


@pytest.mark.parametrize("quick", [False, True])
@pytest.mark.parametrize("figure", ["fig2", "fig5", "fig6"])
def test_tables_and_figures_share_trials(figure: str, quick: bool) -> None:
    assert keys(figure, quick=quick) <= keys("table1", quick=quick)


@pytest.mark.parametrize("quick", [False, True])
def test_figure_5_is_of_the_trials_of_figures_2_and_6(quick: bool) -> None:
    both = keys("fig2", quick=quick), keys("fig6", quick=quick)
    found = keys("fig5", quick=quick)
    assert found <= set.union(*both)
    assert all(found & other for other in both)


def test_the_curves_are_one_configuration_of_the_grid() -> None:
    assert CURVES.configurations()[0] in GRIDS["paper"].configurations()


def test_reproductions_have_the_self_loops_of_the_authors() -> None:
    part = RECIPES["fig2"].trained[0]
    assert part.settings("MUTAG", "gin") == {"readout": "sum", "self_loops": True, "hidden": 64}
    assert not part.settings("IMDB-BINARY", "gcn")["self_loops"]  # its Q has them anyway


def test_a_quick_pass_is_small_and_never_mistaken_for_the_real_one() -> None:
    for recipe in RECIPES.values():
        assert set(recipe.quick().datasets) <= set(QUICK.datasets)
        for part in recipe.quick().trained:
            assert len(part.grid) <= 2
            assert part.grid.axes["epochs"] == (QUICK.epochs,)
    assert not keys("fig2", quick=True) & keys("fig2", quick=False)
    assert RECIPES["fig11"].quick().trained[0].grid.axes["batch_size"] == QUICK.batch_sizes
    assert not RECIPES["table2"].quick().datasets


def specs(recipe: Recipe, monkeypatch: pytest.MonkeyPatch) -> list[dict[str, Any]]:
    """What a store is told of the studies of an item, as if each dataset were the same small one."""
    graphs = load("synthetic:trees")
    monkeypatch.setattr(Laboratory, "graphs", lambda self, name: replace(graphs, name=name))
    return [planned.plan.spec for planned in Laboratory(Path("none.db"), progress=False).plans(recipe)]


@pytest.mark.parametrize("item", ["fig2", "fig11", "table1"])
def test_studies_of_a_quick_pass_can_be_told(item: str, monkeypatch: pytest.MonkeyPatch) -> None:
    quick, full = specs(RECIPES[item].quick(), monkeypatch), specs(RECIPES[item].narrowed(seeds=1), monkeypatch)
    assert quick
    assert full
    assert all(map(is_quick, quick))
    assert not any(map(is_quick, full))


@pytest.mark.parametrize("quick", [True, False])
def test_studies_of_a_quick_pass_with_another_grid_can_be_told(quick: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    given = dict.fromkeys(("datasets", "models", "norms", "protocols", "baselines", "seeds"))
    recipe = reproduce._part(Namespace(quick=quick, grid="paper", **given), RECIPES["fig2"])
    assert len(recipe.trained[0].grid) == 60
    assert {is_quick(spec) for spec in specs(recipe, monkeypatch)} == {quick}


def test_a_part_of_an_item() -> None:
    recipe = RECIPES["table1"].narrowed(datasets=("imdb-b", "PTC"), protocols=("paper",), grid=GRIDS["quick"])
    (part,) = recipe.trained
    assert (part.datasets, part.protocols, part.models) == (("PTC", "IMDB-BINARY"), ("paper",), ("gin", "gcn"))
    assert part.grid is GRIDS["quick"]
    molhiv = RECIPES["table2"].narrowed(models=("molhiv-gcn",), seeds=3, grid=GRIDS["quick"])
    assert [part.seeds for part in molhiv.trained] == [3]
    assert molhiv.trained[0].grid.axes["epochs"] == (50,)
    assert molhiv.trained[0].grid.axes["lr"] == (1e-4,)
    assert molhiv.trained[0].grid == RECIPES["fig6"].trained[1].grid
    with pytest.raises(StudyError, match="nothing is left of fig2"):
        RECIPES["fig2"].narrowed(norms=("batch-alpha",))


@pytest.mark.parametrize(
    ("item", "choice", "narrow"),
    [
        ("table1", {}, None),
        (
            "table1",
            {"grid": GRIDS["paper"], "seeds": 1, "norms": FIVE, "baselines": ("wl", "awl", "dcnn", "dgcnn", "mlp")},
            None,
        ),
        (
            "table1",
            {"norms": ("graph",), "datasets": ("mutag",)},
            {"datasets": ["MUTAG"], "norms": ["graph"], "baselines": []},
        ),
        ("table1", {"protocols": ("fair",)}, {"protocols": ["fair"]}),
        ("table1", {"models": ("none",), "baselines": ("wl",)}, {"models": [], "baselines": ["wl"]}),
        ("table2", {"grid": GRIDS["quick"]}, None),
        ("table2", {"seeds": 2}, {"seeds": 2}),
        ("fig4", {"norms": ("graph",), "datasets": ("PROTEINS",), "seeds": 2}, None),
        ("fig8", {"datasets": ("PTC",)}, {"datasets": ["PTC"]}),
        ("fig2", {"datasets": TU}, {"datasets": [*TU]}),
        (
            "fig2",
            {"grid": CURVES.fixed(epochs=9), "models": ("gin",)},
            {
                "models": ["gin"],
                "grid": {
                    "name": "curves",
                    "epochs": [9],
                    "batch_size": [128],
                    "dropout": [0.5],
                    "weight_decay": [0.0],
                    "lr": [0.01],
                },
            },
        ),
    ],
)
def test_what_is_left_of_an_item(item: str, choice: dict[str, Any], narrow: dict[str, Any] | None) -> None:
    recipe = RECIPES[item].narrowed(**choice)
    assert recipe.narrow == narrow
    assert (recipe.title == recipe.caption) is (narrow is None)


def test_a_part_takes_the_place_of_what_it_has_all_of() -> None:
    both = {"datasets": ["MUTAG", "PTC"], "grid": {"name": "twelve", "lr": [0.1]}}
    assert covers(both, both | {"datasets": ["PTC"]})
    assert not covers(both | {"datasets": ["PTC"]}, both)
    assert not covers(both, both | {"grid": {"name": "twelve", "lr": [0.2]}})
    assert not covers(both, {"datasets": ["PTC"]})  # with the item's own grid
    assert covers({"datasets": ["PTC"]}, both | {"datasets": ["PTC"]})


def test_a_choice_of_baselines() -> None:
    table = RECIPES["table1"]
    assert table.beside is not None
    assert set(table.beside.baselines) == {"wl", "awl", "dcnn", "dgcnn", "mlp"}
    kept = table.narrowed(baselines=("mlp", "wl"), datasets=("PTC",), protocols=("paper",)).beside
    assert (kept.baselines, kept.datasets, kept.protocols) == (("wl", "mlp"), ("PTC",), ("paper",))  # type: ignore[union-attr]
    assert not table.narrowed(baselines=("none",)).beside
    assert not table.narrowed(models=("gin",)).beside
    only = table.narrowed(models=("none",), baselines=("wl",), datasets=("MUTAG",))
    assert (only.trained, only.datasets) == ((), ("MUTAG",))
    assert RECIPES["table2"].narrowed(seeds=2).beside.seeds == 2  # type: ignore[union-attr]
    assert RECIPES["fig2"].narrowed(baselines=("wl",)).beside is None
    with pytest.raises(StudyError, match="no baseline 'wll'; known: wl"):
        table.narrowed(baselines=("wll",))


def test_a_quick_pass_has_one_baseline() -> None:
    quick = RECIPES["table1"].quick().beside
    assert quick is not None
    assert (quick.baselines, quick.datasets, quick.folds) == (("wl",), ("MUTAG",), QUICK.folds)


def test_names() -> None:
    assert [recipe.item for recipe in find_recipes(["all", "fig2"])] == list(RECIPES)
    with pytest.raises(StudyError, match="no item 'fig99'; known: table1"):
        find_recipes(["fig2", "fig99"])
