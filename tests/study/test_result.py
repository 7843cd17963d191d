"""Results: scores, tests, convergence, tables, and the JSON that gives all of them back."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from fakes import FakeFleet, compare, fill, outcome, scattered
from graphnorm.data import CATALOG, load
from graphnorm.data.catalog import Counts
from graphnorm.errors import GraphnormError
from graphnorm.models import MODELS
from graphnorm.settings import GRIDS
from graphnorm.study import Result, Store, make_plan, read, settle
from graphnorm.study.plan import Plan

TREES = load("synthetic:trees")
PARTS = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))

pytestmark = pytest.mark.usefixtures("fleets")


def test_scores_are_averages_over_folds_in_percent() -> None:
    result = compare()
    assert list(result.norms) == ["none", "layer", "batch", "instance", "graph"]
    assert result.ranking == ["graph", "instance", "batch", "layer", "none"]
    assert result.counts == {"done": 50}
    graph = result.norms["graph"]
    ends = [
        100 * outcome(trial).curves["valid"][-1] for trial in make_plan(TREES, settle(TREES, epochs=20)).trials[-10:]
    ]
    assert list(graph.scores.values()) == pytest.approx(ends, abs=1e-4)
    assert graph.mean == pytest.approx(np.mean(ends), abs=1e-4)
    assert graph.std == pytest.approx(np.std(ends, ddof=1), abs=1e-4)
    assert (graph.epoch, graph.seconds, graph.members, graph.devices) == (20, 5.0, 10, ("fake",))
    there, back = result.pair("graph", "none"), result.pair("none", "graph")
    assert there.significant
    assert back.difference == pytest.approx(-there.difference)
    assert not result.pair("batch", "instance").significant
    with pytest.raises(GraphnormError, match="graph and nope"):
        result.pair("graph", "nope")


def test_convergence() -> None:
    result = compare()
    measured = result.convergence
    assert measured.slowest == "none"
    assert measured.target == pytest.approx(result.norms["none"].curves["train"][0][-1])
    assert measured.epochs["none"] == 20
    assert measured.epochs["graph"] < measured.epochs["batch"] < measured.epochs["layer"] < 20
    assert measured.area["graph"] == pytest.approx(result.norms["graph"].curves["train"][0].mean())


def test_fair_reports_the_test_part_and_each_fold_has_its_own_epoch(fleets: type[FakeFleet]) -> None:
    result = compare(protocol="fair", norms="batch,graph", folds=5)
    plan = make_plan(TREES, settle(TREES, protocol="fair", norms="graph", folds=5, epochs=20))
    ends = [100 * outcome(trial).curves["test"][-1] for trial in plan.trials]
    assert result.norms["graph"].mean == pytest.approx(np.mean(ends), abs=1e-4)
    assert result.overlap == pytest.approx(1 / 4)
    fleets.values = staticmethod(scattered)
    graph = compare(protocol="fair", norms="graph", folds=5).norms["graph"]
    assert len(set(graph.epochs)) > 1
    assert graph.epoch is None


def test_an_official_split_is_reported_by_seeds() -> None:
    result = compare(replace(TREES, splits=PARTS), norms="batch,graph", seeds=3)
    assert (result.protocol.name, result.model, result.overlap) == ("given", "gin", 0)
    assert list(result.norms["graph"].scores) == [0, 1, 2]
    assert not result.pair("graph", "batch").paired
    assert "ROC-AUC %" in result.table.columns
    assert result.to_dict()["significance"]["paired_over"] is None


def test_what_diverged_has_no_score(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset([("batch", 3), *(("none", fold) for fold in range(10))])
    result = compare()
    assert result.ranking == ["graph", "instance", "batch", "layer"]
    assert "none" not in result.convergence.epochs
    shown = {row[0]: row[1] for row in result.table.rows}
    assert shown["none"] == "diverged"
    assert shown["batch"].endswith("(1 diverged)")
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["norms"]["none"]["mean"] is None
    assert content["norms"]["none"]["curves"] == {}
    assert content["norms"]["batch"]["scores"][3] is None
    assert content["norms"]["batch"]["members"][3]["status"] == "diverged"
    frame = result.to_frame()
    assert math.isnan(frame.loc["none", "mean"])
    assert frame.loc["batch", "diverged"] == 1


def test_json() -> None:
    content = json.loads(json.dumps(compare(seeds=2, norms="none,graph").to_dict(), allow_nan=False))
    assert {name: content[name] for name in ("dataset", "model", "protocol", "metric", "trials", "ranking")} == {
        "dataset": "synthetic:trees", "model": "gin", "protocol": "paper", "metric": "accuracy", "trials": 40,
        "ranking": ["graph", "none"],
    }  # fmt: skip
    assert (content["spec"]["seeds"], content["spec"]["epochs"]) == (2, 20)
    graph = content["norms"]["graph"]
    assert graph["mean"] == pytest.approx(np.mean(graph["scores"]), abs=1e-5)
    assert graph["std"] == pytest.approx(np.std(graph["scores"], ddof=1), abs=1e-5)
    assert (len(graph["scores"]), len(graph["members"]), len(graph["curves"]["train"]["mean"])) == (10, 20, 20)
    (pair,) = content["significance"]["pairs"]
    assert (pair["first"], pair["second"], pair["significant"]) == ("none", "graph", True)
    assert pair["low"] < pair["difference"] < pair["high"] < 0


# Back from JSON


def partly(tmp_path: Path) -> Result:
    """A search of which a part is trained, a part failed; its JSON does not name the store, a place on this machine."""
    plan = make_plan(TREES, settle(TREES, norms="graph,batch,layer", folds=3), GRIDS["quick"].fixed(epochs=6))
    with Store(tmp_path / "part.db") as store:
        study = fill(store, plan, lambda t: t.norm == "graph" or (t.norm == "batch" and t.lr < 0.01), scattered)
        failed = [trial for trial in plan.trials if trial.norm == "layer"][:2]
        store.save_failed(store.begin_session(study, "local"), failed, "out of memory\nat line 7")
        return replace(read(store, plan), store="")


RESULTS: dict[str, Callable[[Path], Result]] = {
    "paper": lambda _: compare(),
    "fair": lambda _: compare(protocol="fair", seeds=2, folds=4),
    "official": lambda _: compare(replace(TREES, splits=PARTS), norms="batch,graph", seeds=3),
    "one norm": lambda _: compare(norms="graph", folds=2),
    "baselines": lambda _: compare(norms="none,graph", folds=3, baselines="wl"),
    "search": partly,
}


def assert_equal(first: Result, second: Result) -> None:
    """In every number, table and sentence."""
    assert str(first) == str(second)
    assert first._repr_html_() == second._repr_html_()
    assert first.table == second.table
    assert (first.verdict, first.notes, first.ranking) == (second.verdict, second.notes, second.ranking)
    assert (first.counts, first.errors, first.code) == (second.counts, second.errors, second.code)
    for mine, theirs in zip(first.tests, second.tests, strict=True):
        for name, value in vars(mine).items():
            same = pytest.approx(value, rel=1e-4) if isinstance(value, float) else value
            assert getattr(theirs, name) == same
    ours, others = first.to_frame(), second.to_frame()
    assert list(ours.index) == list(others.index)
    np.testing.assert_allclose(ours.astype(float), others.astype(float), rtol=1e-4, atol=1e-5)
    assert [len(axes.lines) for axes in first.plot().axes] == [len(axes.lines) for axes in second.plot().axes]


@pytest.mark.parametrize("kind", RESULTS)
def test_json_gives_the_same_result_back(kind: str, tmp_path: Path) -> None:
    result = RESULTS[kind](tmp_path)
    assert_equal(result, Result.from_dict(json.loads(json.dumps(result.to_dict(), allow_nan=False))))


def test_json_gives_back_what_diverged(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset([("batch", 3), *(("none", fold) for fold in range(10))])
    result = compare()
    assert_equal(result, Result.from_dict(json.loads(json.dumps(result.to_dict()))))


@pytest.mark.parametrize("paper", [{}, [], 0, {"mean": 1.0}])
def test_a_papers_number_that_is_none_is_refused(paper: Any) -> None:
    content = json.loads(json.dumps(compare(epochs=1).to_dict()))
    content["norms"]["graph"]["paper"] = paper
    with pytest.raises(GraphnormError, match="this is no result"):
        Result.from_dict(content)


# From a store


def test_versions_devices_and_errors_are_those_of_the_plan(tmp_path: Path) -> None:
    plan = make_plan(TREES, settle(TREES, norms="graph,batch", folds=2, epochs=5))
    with Store(tmp_path / "graphnorm.db") as store:
        study = fill(store, plan, lambda trial: trial.norm == "graph")
        session = store.begin_session(study, "local")
        store.save_failed(
            session, [trial for trial in plan.trials if trial.norm == "batch"], "out of memory\nat line 7"
        )
        whole, part = read(store, plan), read(store, Plan("part", plan.spec, plan.trials[:1]))
    assert (whole.devices, whole.errors, len(whole.code)) == (("fake",), ("out of memory",), 1)
    assert (part.devices, part.errors, part.counts) == (("fake",), (), {"done": 1})
    assert whole.unfinished == ("batch",)
    assert whole.seconds == 1.0


# For people


def test_table_frame_and_html() -> None:
    result = compare()
    assert [row[0] for row in result.table.rows] == result.ranking
    p_values, differences = ({row[0]: row[place] for row in result.table.rows} for place in (3, 2))
    assert (p_values["graph"], p_values["none"]) == ("best", "<0.001 *")
    test = result.pair("none", "graph")
    ends = [result.metric.signed(value) for value in (test.difference, test.low, test.high)]
    assert differences["none"] == "{} [{}, {}]".format(*ends)
    frame = result.to_frame()
    assert list(frame.index) == list(result.norms)
    assert frame.loc["graph", "behind_best"] == 0
    assert frame.loc["none", "behind_best"] > 15
    assert frame.loc["none", "significantly_worse_than_best"]
    html = result._repr_html_()
    assert html.count("<tr>") == 6
    assert html.count("<td><b>") == len(result.table.columns)
    assert str(result).startswith(result.title)
    assert result.to_dict()["groups"] == [["graph"], ["instance", "batch", "layer", "none"]]
    assert [one["kind"] for one in result.to_dict()["findings"]][:3] == ["BEST", "AVOID", "SPEED"]
    assert "<script>" not in compare(replace(TREES, name="<script>"), norms="none,graph")._repr_html_()


def test_the_papers_number_stands_beside_its_own_graphs(monkeypatch: pytest.MonkeyPatch) -> None:
    mutag = replace(TREES, name="MUTAG")
    assert "paper" not in compare(mutag, norms="graph").table.columns  # named alike, but other graphs
    counts = Counts(TREES.num_graphs, TREES.num_nodes, TREES.num_edges)
    monkeypatch.setitem(CATALOG, "MUTAG", replace(CATALOG["MUTAG"], counts=counts))
    result = compare(mutag, norms="none,graph", baselines="wl")
    assert [row[-1] for row in result.table.rows] == ["91.6 ± 6.5", "–", "90.4 ± 5.7"]
    assert result.to_dict()["norms"]["graph"]["paper"] == {"mean": 91.6, "std": 6.5, "table": 1}
    assert result.to_dict()["norms"]["none"]["paper"] is None
    assert any("these of 10, 20 and 1" in note for note in result.notes)


def test_a_baseline_has_a_row_and_no_rank() -> None:
    result = compare(norms="graph,none", folds=3, baselines="wl")
    kernel = result.baselines["wl"]
    assert len(kernel.scores) == 3
    row = next(row for row in result.table.rows if row[0] == "baseline wl")
    assert row[1] == kernel.shown
    assert row[4] == MODELS["wl"].kernel.describe(kernel.epoch)  # type: ignore[union-attr]
    assert result.ranking == ["graph", "none"]
    assert {(test.first, test.second) for test in result.tests} == {("graph", "none")}
    assert "wl" not in result.verdict
    frame = result.to_frame()
    assert frame.loc["baseline wl", "mean"] == pytest.approx(kernel.mean)
    assert frame.loc["baseline wl"].isna()[["p_adjusted", "epoch", "area"]].all()
    written = result.to_dict()["baselines"]["wl"]
    assert written["candidates"][written["epoch"] - 1].keys() == {"depth", "C"}


def test_the_figure_draws_what_there_is(fleets: type[FakeFleet]) -> None:
    fleets.diverging = frozenset(("none", fold) for fold in range(10))
    panels = compare(norms="none,graph").plot().axes
    assert [[line.get_label() for line in panel.lines][:1] for panel in panels] == [["graph"], ["graph"]]
    assert panels[1].lines[1].get_marker() == "o"  # the chosen epoch
    assert panels[1].lines[1].get_xdata()[0] == 20
