"""Items: what they share, what a quick pass keeps, and what is left of a part."""

from __future__ import annotations

from functools import cache
from typing import Any

import pytest

from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.item import (
    CURVES,
    QUICK,
    Baselines,
    Item,
    NothingLeftError,
    covers,
    describe_narrow,
    is_quick,
)
from graphnorm.paper.items import ITEMS, find_items
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import DEFAULT_NORMS, GRIDS, find_grid
from graphnorm.study.paper_numbers import TU
from graphnorm.study.plan import Plan

BASELINES = ("wl", "awl", "dcnn", "dgcnn", "mlp")


def plans(item: Item) -> list[Plan]:
    """The studies of an item, with graphs of which only the names are known."""
    return list(Reproduction("there is none.db", progress=False).plans(item, train=False))


def baselines_of(item: Item) -> list[Baselines]:
    return [part for part in item.parts if isinstance(part, Baselines)]


@cache
def keys(name: str, *, quick: bool) -> set[str]:
    item = ITEMS[name].quick() if quick else ITEMS[name]
    return {trial.key for plan in plans(item) for trial in plan.trials}


@pytest.mark.parametrize("quick", [False, True])
def test_tables_and_figures_share_trials(quick: bool) -> None:
    """Also the curves of ogbg-molhiv, with Table 2; Figure 5 has those of Figures 2 and 6."""
    table1, table2, gin, gcn, both = (keys(name, quick=quick) for name in ("table1", "table2", "fig2", "fig6", "fig5"))
    assert gin | gcn <= table1 | table2
    assert both <= gin | gcn
    assert both & gin
    assert both & gcn


@pytest.mark.parametrize("item", ITEMS.values(), ids=lambda item: item.name)
def test_planned_trials_are_those_of_all_plans(item: Item) -> None:
    for one in (item, item.quick(), item.quick().narrowed(seeds=2)):
        assert one.planned == sum(len(plan.trials) for plan in plans(one) if plan.probe is None)


def test_reproductions_have_the_self_loops_of_the_authors() -> None:
    (part, _) = ITEMS["fig2"].trained
    settings = part.settings("MUTAG", "gin")
    assert (settings.readout, settings.self_loops, settings.hidden) == ("sum", True, 64)
    assert not part.settings("IMDB-BINARY", "gcn").self_loops  # its Q has them anyway


def test_a_quick_pass_is_small_and_never_mistaken_for_the_real_one() -> None:
    for item in ITEMS.values():
        quick = item.quick()
        assert set(quick.datasets) <= set(QUICK.datasets)
        for part in quick.trained:
            assert len(part.grid) <= 2
            assert part.grid.axes["epochs"] == (QUICK.epochs,)
    assert not keys("fig2", quick=True) & keys("fig2", quick=False)
    assert ITEMS["fig11"].quick().trained[0].grid.axes["batch_size"] == QUICK.batch_sizes
    assert not ITEMS["table2"].quick().datasets
    (baselines,) = baselines_of(ITEMS["table1"].quick())
    assert (baselines.baselines, baselines.datasets, baselines.folds) == (("wl",), ("MUTAG",), QUICK.folds)


@pytest.mark.parametrize("name", ["fig2", "fig11", "table1"])
def test_studies_of_a_quick_pass_can_be_told(name: str) -> None:
    for item, expected in ((ITEMS[name].quick(), True), (ITEMS[name], False)):
        assert {is_quick(plan.spec) for plan in plans(item)} == {expected}


@pytest.mark.parametrize(
    ("name", "choice", "narrow"),
    [
        ("table1", {}, None),
        (
            "table1",
            {"grid": GRIDS["paper"], "seeds": 1, "norms": DEFAULT_NORMS, "baselines": BASELINES},
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
        ("fig4", {"norms": ("graph",), "seeds": 2}, {"seeds": 2}),
        ("fig4", {"datasets": ("PROTEINS",), "models": ("gin",)}, {"datasets": ["PROTEINS"], "models": ["gin"]}),
        ("fig9", {"datasets": ("cifar10",)}, {"datasets": [IMAGES]}),
        ("fig8", {"datasets": ("PTC",)}, {"datasets": ["PTC"]}),
        ("fig2", {"as_authors": True}, {"as_authors": True}),
        ("alpha", {"datasets": ("NCI1",)}, {"datasets": ["NCI1"]}),
        ("fig2", {"datasets": TU}, {"datasets": [*TU]}),
        (
            "fig2",
            {"grid": CURVES.fixed(epochs=9), "models": ("gin",)},
            {"models": ["gin"], "grid": CURVES.fixed(epochs=9).to_dict()},
        ),
    ],
)
def test_what_is_left_of_an_item(name: str, choice: dict[str, Any], narrow: dict[str, Any] | None) -> None:
    item = ITEMS[name].narrowed(**choice)
    assert item.narrow == narrow
    assert (item.title == item.caption) is (narrow is None)


def test_a_part_trains_what_was_chosen() -> None:
    item = ITEMS["table1"].narrowed(datasets=("imdb-b", "PTC"), protocols=("paper",), grid=find_grid("quick"))
    (part,) = item.trained
    assert (part.datasets, part.protocols, part.models) == (("PTC", "IMDB-BINARY"), ("paper",), ("gin", "gcn"))
    assert part.grid is GRIDS["quick"]
    (molhiv,) = ITEMS["table2"].narrowed(models=("molhiv-gcn",), seeds=3, grid=GRIDS["quick"]).trained
    assert (molhiv.seeds, molhiv.grid) == (3, ITEMS["fig6"].trained[1].grid)
    assert (molhiv.grid.axes["epochs"], molhiv.grid.axes["lr"]) == ((50,), (1e-4,))  # those of the authors


@pytest.mark.parametrize("choice", [{"datasets": ("PROTEINS",)}, {"models": ("gin",)}])
def test_images_are_left_out_where_they_are_not_named(choice: dict[str, Any]) -> None:
    assert {plan.spec["dataset"] for plan in plans(ITEMS["fig4"].narrowed(**choice))} == {"PROTEINS"}
    assert {plan.spec["dataset"] for plan in plans(ITEMS["fig4"])} == {"PROTEINS", IMAGES}


@pytest.mark.parametrize("name", ["fig4", "fig8", "alpha", "fig2"])
def test_a_model_that_an_item_does_not_train_leaves_nothing_of_it(name: str) -> None:
    with pytest.raises(NothingLeftError):
        ITEMS[name].narrowed(models=("gcn",))


def test_a_part_takes_the_place_of_what_it_has_all_of() -> None:
    both = {"datasets": ["MUTAG", "PTC"], "grid": {"name": "twelve", "lr": [0.1]}}
    assert covers(both, both | {"datasets": ["PTC"]})
    assert not covers(both | {"datasets": ["PTC"]}, both)
    assert not covers(both, both | {"grid": {"name": "twelve", "lr": [0.2]}})
    assert not covers(both, {"datasets": ["PTC"]})  # with the item's own grid
    assert covers({"datasets": ["PTC"]}, both | {"datasets": ["PTC"]})


def test_a_choice_of_baselines() -> None:
    table = ITEMS["table1"]
    (kept,) = baselines_of(table.narrowed(baselines=("mlp", "wl"), datasets=("PTC",), protocols=("paper",)))
    assert (kept.baselines, kept.datasets, kept.protocols) == (("wl", "mlp"), ("PTC",), ("paper",))
    assert not baselines_of(table.narrowed(baselines=("none",)))
    assert not baselines_of(table.narrowed(models=("gin",)))
    only = table.narrowed(models=("none",), baselines=("wl",), datasets=("MUTAG",))
    assert (only.trained, only.datasets) == ((), ("MUTAG",))
    assert [part.seeds for part in baselines_of(ITEMS["table2"].narrowed(seeds=2))] == [2]
    assert not baselines_of(ITEMS["fig2"].narrowed(baselines=("wl",)))


def test_names() -> None:
    assert [item.name for item in find_items(["all", "fig2"])] == list(ITEMS)
    assert [item.name for item in find_items(["FIG4", "fig2"])] == ["fig4", "fig2"]


def test_as_authors_is_another_training_of_everything_normalized() -> None:
    item = ITEMS["table1"].narrowed(datasets=("PTC",), as_authors=True, grid=CURVES)
    theirs, ours = (
        {trial.key for plan in plans(one) for trial in plan.trials if trial.norm != "none"}
        for one in (item, ITEMS["table1"].narrowed(datasets=("PTC",), grid=CURVES))
    )
    assert len(theirs) == len(ours)
    assert not theirs & ours
    assert describe_narrow({"as_authors": True}) == "as in the authors' code"
