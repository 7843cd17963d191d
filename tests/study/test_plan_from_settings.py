"""Plans: what is filled in and refused, and which trials there are."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import pytest
import torch

from graphnorm.data import CATALOG, PackedGraphs, load
from graphnorm.data.catalog import Counts
from graphnorm.errors import GraphnormError
from graphnorm.layers import REGISTRY, register_norm
from graphnorm.models import BASELINES, MODELS
from graphnorm.settings import GRIDS, QUICK_EPOCHS, Grid, Settings
from graphnorm.study import make_plan, settle
from graphnorm.study.plan import role
from graphnorm.study.plan_from_settings import Dataset, baseline_plan, catalogued

TREES = load("synthetic:trees")
PARTS = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
SPLIT = replace(TREES, splits=PARTS)


def like_mutag(monkeypatch: pytest.MonkeyPatch) -> PackedGraphs:
    """Graphs that the catalogue takes for MUTAG."""
    counts = Counts(TREES.num_graphs, TREES.num_nodes, TREES.num_edges)
    monkeypatch.setitem(CATALOG, "MUTAG", replace(CATALOG["MUTAG"], counts=counts))
    return replace(TREES, name="MUTAG")


# Settings


def test_what_is_not_given_is_filled_in(monkeypatch: pytest.MonkeyPatch) -> None:
    assert settle(replace(TREES, name="mine")) == Settings(epochs=QUICK_EPOCHS)
    own = settle(SPLIT, norms="batch,graph")
    assert (own.protocol, own.model, own.folds, own.seeds, own.epochs) == ("given", "gin", 1, 5, QUICK_EPOCHS)
    bonds = replace(SPLIT, edge_tags=torch.zeros(SPLIT.num_edges, 1, dtype=torch.uint8), edge_cardinalities=(4,))
    assert (settle(bonds).model, settle(bonds).lr) == ("molecular-gin", 0.01)
    counts = Counts(SPLIT.num_graphs, SPLIT.num_nodes, SPLIT.num_edges)
    monkeypatch.setitem(CATALOG, "ogbg-molhiv", replace(CATALOG["ogbg-molhiv"], counts=counts))
    official = settle(replace(bonds, name="ogbg-molhiv"))
    assert (official.model, official.seeds) == ("molhiv-gin", 10)
    assert (official.hidden, official.lr, official.epochs) == (300, 1e-4, 25)
    assert settle(SPLIT, model="molhiv-gcn").batch_size == 64
    assert settle(SPLIT, lr=0.5, seeds=3, epochs=None).lr == 0.5
    assert settle(SPLIT, protocol="fair").model == "gin"


def test_the_readout_is_the_catalogues(monkeypatch: pytest.MonkeyPatch) -> None:
    assert catalogued(replace(TREES, name="PROTEINS")) is None  # named alike, but other graphs
    mutag = like_mutag(monkeypatch)
    monkeypatch.setitem(CATALOG, "MUTAG", replace(CATALOG["MUTAG"], readout="mean"))
    assert settle(mutag).readout == "mean"
    assert settle(mutag, readout="sum").readout == "sum"


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"norms": ""}, "unknown normalization ''"),
        ({"norms": []}, "no normalization"),
        ({"model": "wl"}, "unknown model 'wl'"),
        ({"baselines": "dgcn"}, "unknown baseline 'dgcn'; did you mean 'dgcnn'"),
        ({"folds": 1}, "folds is 1"),
        ({"protocol": "given", "folds": 10}, "one given split"),
        ({"protocol": "given", "baselines": "wl,mlp"}, "wl: kernels"),
    ],
)
def test_what_does_not_fit_is_refused(given: dict[str, Any], words: str) -> None:
    with pytest.raises(GraphnormError, match=words) as caught:
        settle(TREES, **given)
    assert caught.value.remedy


# Trials


def test_a_plan_is_named_by_its_trials() -> None:
    settings = settle(TREES, norms=["graph", "batch"], folds=5, seeds=2)
    plan = make_plan(TREES, settings, GRIDS["quick"])
    assert len(plan.trials) == len({trial.key for trial in plan.trials}) == 2 * 4 * 5 * 2
    assert {trial.fingerprint for trial in plan.trials} == {TREES.fingerprint}
    assert plan == make_plan(TREES, settings, GRIDS["quick"])
    assert plan.name != make_plan(TREES, replace(settings, seeds=1), GRIDS["quick"]).name
    assert make_plan(TREES, settings, name="mine").name == "mine"
    assert make_plan(Dataset(TREES.name, TREES.fingerprint), settings, GRIDS["quick"]).trials == plan.trials


def test_the_spec_says_what_was_asked_for() -> None:
    settings = settle(TREES, norms="graph", folds=5, lr=0.5, baselines="wl")
    spec = make_plan(TREES, settings, Grid("g", {"epochs": (2, 3)}), origin={"data": "x"}).spec
    assert spec["grid"] == {"name": "g", "epochs": [2, 3]}
    assert "epochs" not in {*spec} - {"grid"}
    assert (spec["baselines"], spec["folds"], spec["lr"]) == (["wl"], 5, 0.5)
    assert (spec["graphs"], spec["chance"], spec["train_sizes"], spec["origin"]) == (400, 50.0, [320], {"data": "x"})


def test_the_spec_says_which_split_was_given(monkeypatch: pytest.MonkeyPatch) -> None:
    def name(graphs: PackedGraphs, split: str | None = None, **options: Any) -> Any:
        return make_plan(graphs, settle(graphs, norms="graph", **options), split=split).spec.get("split")

    assert name(SPLIT) == "given split"
    assert name(SPLIT, "part") == "split by part"
    assert name(SPLIT, "folder/parts.json") == "split of parts.json"
    assert name(SPLIT, "scaffold") == "scaffold split"
    assert name(SPLIT, protocol="fair") is None
    for dataset, split in (("ogbg-molhiv", "official split"), ("bace", "scaffold split")):
        found = replace(SPLIT, name=dataset)
        monkeypatch.setitem(CATALOG, dataset, replace(CATALOG[dataset], counts=None))
        assert name(found) == split
        assert name(found, "part") == "split by part"


def test_under_an_official_split_only_seeds_are_repeated() -> None:
    plan = make_plan(SPLIT, settle(SPLIT, norms="graph", seeds=3), GRIDS["quick"])
    assert [(t.fold, t.seed, t.folds) for t in plan.trials[:3]] == [(0, 0, 1), (0, 1, 1), (0, 2, 1)]
    assert len(plan.trials) == 12


def test_baselines_have_the_same_folds_and_their_own_settings() -> None:
    plan = make_plan(TREES, settle(TREES, norms="graph", folds=3, seeds=2, baselines=",".join(BASELINES)))
    for name in BASELINES:
        trials = [trial for trial in plan.trials if role(trial) == ("baselines", name)]
        kernel = MODELS[name].kernel
        assert [(t.fold, t.seed) for t in trials] == [(f, s) for f in range(3) for s in range(1 if kernel else 2)]
        for option, value in MODELS[name].defaults.items():
            assert {getattr(trial, option) for trial in trials} == {value}
        assert {trial.epochs for trial in trials} == {len(kernel.candidates) if kernel else QUICK_EPOCHS}


def test_a_study_of_one_baseline() -> None:
    (network,) = {
        trial.configuration: trial for trial in baseline_plan(TREES, "dgcnn", protocol="paper").trials
    }.values()
    assert (network.epochs, network.batch_size, network.lr, network.hidden) == (100, 50, 1e-3, 32)
    kernel = baseline_plan(TREES, "wl", protocol="fair", seeds=5)
    assert len(kernel.trials) == 10  # it has nothing random


def test_it_is_known_whether_edge_features_are_used() -> None:
    kinds = torch.zeros(TREES.num_edges, 1, dtype=torch.uint8)
    bonds = replace(TREES, edge_tags=kinds, edge_cardinalities=(3,))
    unused = {
        name: make_plan(bonds, Settings(model=name)).spec["unused_edge_features"]
        for name in ("gin", "pyg:GIN", "pyg:GAT")
    }
    assert unused == {"gin": 3, "pyg:GIN": 3, "pyg:GAT": 0}
    assert make_plan(TREES, Settings()).spec["unused_edge_features"] == 0


def test_chance_is_that_of_the_graphs_that_are_reported() -> None:
    targets = torch.linspace(0, 1, 400)[:, None] ** 2
    targets[360:] = 0.5 + torch.arange(40)[:, None] % 2 * 0.01  # the test part hardly varies
    graphs = replace(
        SPLIT, labels=torch.zeros(400, dtype=torch.int64), classes=("unknown",), task="values", targets=targets,
        target_names=("size",),
    )  # fmt: skip
    assert make_plan(graphs, settle(graphs)).spec["chance"] == pytest.approx(0.005, rel=1e-3)
    of_folds = make_plan(graphs, settle(graphs, protocol="fair")).spec["chance"]
    assert of_folds == pytest.approx(float(targets.std(correction=0)), rel=1e-3)


def test_a_normalization_has_not_the_name_of_a_baseline() -> None:
    register_norm("wl", lambda channels: torch.nn.Identity())
    try:
        with pytest.raises(GraphnormError, match="'wl' has the name of a baseline"):
            settle(TREES, norms="wl,graph")
    finally:
        REGISTRY.pop("wl")
