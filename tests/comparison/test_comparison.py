"""From options to a verdict, with a fake engine."""

from __future__ import annotations

import json
import math
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest
import torch

import graphnorm
from fake_training import FakeTraining
from graphnorm.comparison import Comparison, ComparisonInterrupted, compare
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError

Fake = Callable[..., FakeTraining]


def run(data: PackedGraphs, **options: object) -> Comparison:
    return compare(data, progress=False, **{"epochs": 20, **options})  # type: ignore[arg-type]


def test_the_result(fake: Fake, trees: PackedGraphs) -> None:
    engine = fake()
    result = run(trees, device="cpu", workers=2)
    assert list(result.norms) == ["none", "layer", "batch", "instance", "graph"]
    assert engine.trained == [name for name in result.norms for _ in range(10)]
    assert engine.keywords == {"device": torch.device("cpu"), "workers": 2}
    assert result.ranking[0] == "graph"
    graph = result.norms["graph"]
    assert graph.mean == pytest.approx(100 * np.mean([o.curves["valid"][-1] for o in graph.outcomes]), abs=1e-4)
    assert graph.selection.epoch == 20
    assert graph.seconds == 5.0
    assert result.pair("graph", "none").significant
    assert result.pair("none", "graph").difference == pytest.approx(-result.pair("graph", "none").difference)
    assert not result.pair("batch", "instance").significant
    assert result.verdict == (
        "graph has the highest accuracy on synthetic:trees with gin and these settings, "
        f"{graph.mean:.1f} ± {graph.std:.1f} %, "
        "significantly better than every other one (instance, batch, layer and none)."
    )
    assert any("optimistic" in note for note in result.notes)


def test_convergence(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    result = run(trees)
    measured = result.convergence
    assert measured.slowest == "none"
    assert measured.target == pytest.approx(result.norms["none"].curves["train"][0][-1])
    assert measured.epochs["none"] == 20
    assert measured.epochs["graph"] < measured.epochs["batch"] < measured.epochs["layer"] < 20
    assert measured.area["graph"] == pytest.approx(result.norms["graph"].curves["train"][0].mean())


def test_fair_reports_the_test_part(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    result = run(trees, protocol="fair", norms="batch,graph", folds=5)
    graph = result.norms["graph"]
    assert graph.mean == pytest.approx(100 * np.mean([o.curves["test"][-1] for o in graph.outcomes]), abs=1e-4)
    assert result.overlap == pytest.approx(1 / 4)
    assert not any("optimistic" in note for note in result.notes)


def test_a_small_last_batch_is_noted(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    small, full = (run(trees, norms="graph", batch_size=size).notes for size in (119, 120))  # of 360 graphs
    (note,) = set(small) - set(full)
    assert note.startswith("the last step of an epoch has 3 graphs, others 119")
    assert note.endswith("; 120 with --batch-size 120")


def test_one_fold_left_says_little(fake: Fake, trees: PackedGraphs) -> None:
    fake(diverging=[(norm, fold) for norm in ("batch", "graph") for fold in range(9)])
    result = run(trees, norms=["batch", "graph"])
    assert math.isnan(result.norms["graph"].std)
    assert result.verdict.startswith("No clear winner: graph has the highest accuracy")
    assert "too few scores" in result.verdict
    assert "graph: 9 of 10 trainings diverged and are left out" in result.notes


def test_a_norm_that_diverged(fake: Fake, trees: PackedGraphs) -> None:
    fake(diverging=[("none", fold) for fold in range(10)] + [("batch", 3)])
    result = run(trees)
    assert result.ranking == ["graph", "instance", "batch", "layer"]
    assert "none" not in result.convergence.epochs
    assert "diverged" in result.table().splitlines()[3]
    assert "(1 diverged)" in result.table()
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["norms"]["none"]["mean"] is None
    assert content["norms"]["none"]["curves"] == {}
    assert content["norms"]["batch"]["folds"][3] is None
    assert content["norms"]["batch"]["members"][3]["status"] == "diverged"
    frame = result.to_frame()
    assert math.isnan(frame.loc["none", "mean"])
    assert frame.loc["batch", "diverged"] == 1


def test_everything_diverged(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake(diverging=[(norm, fold) for norm in ("none", "graph") for fold in range(10)])
    result = run(trees, norms="none,graph", out=tmp_path / "out")
    assert result.verdict.startswith("Nothing can be said")
    assert result.to_dict()["convergence"]["target"] is None
    assert "diverged" in result._repr_html_()


def test_verdicts(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    assert run(trees, norms="graph").verdict.startswith("Only graph has a result (accuracy 88.8 ± 2.1 % on")
    some = run(trees, norms="layer,batch,instance").verdict
    assert some.startswith("No clear winner: instance has the highest")
    assert some.endswith("significantly better than layer, but not than batch.")
    few = run(trees, norms="batch,instance").verdict
    assert few.endswith("but not significantly better than batch.")


def test_what_guessing_has_is_no_victory(fake: Fake, trees: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    largest = 100 * float(torch.bincount(trees.labels.long()).max()) / trees.num_graphs
    levels = __import__("fake_training").LEVEL
    monkeypatch.setitem(levels, "none", largest / 100 - 0.2)
    beside = run(trees, norms="none,graph")
    assert beside.guessing == pytest.approx(largest)
    assert f"none: no better than guessing ({largest:.1f} %)" in beside.notes
    assert beside.verdict.startswith("graph has the highest accuracy")
    monkeypatch.setitem(levels, "graph", largest / 100 - 0.02)
    neither = run(trees, norms="none,graph")
    assert neither.pair("graph", "none").significant
    assert neither.verdict.startswith("Nothing can be said")
    assert neither.verdict.endswith(f"guessing has {largest:.1f} %. Train for longer.")
    assert neither.to_dict()["guessing"] == pytest.approx(largest, abs=1e-3)


def test_a_pair_that_is_not_there(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    with pytest.raises(GraphnormError, match=r"no pair of graph and nope.*name two of none, graph"):
        run(trees, norms="none,graph").pair("graph", "nope")


def test_ties(fake: Fake, trees: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    fake()
    monkeypatch.setitem(__import__("fake_training").LEVEL, "size", 0.70)  # "size" and "none": names of equal length
    verdict = run(trees, norms="size,none").verdict
    assert verdict.startswith("No clear winner: size and none share the highest accuracy")


def test_json(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    result = run(trees, seeds=2, norms="none,graph")
    content = json.loads(json.dumps(result.to_dict(), allow_nan=False))
    assert content["dataset"] == "synthetic:trees"
    assert content["model"] == "gin"
    assert content["protocol"] == "paper"
    assert content["config"]["seeds"] == 2
    graph = content["norms"]["graph"]
    assert graph["mean"] == pytest.approx(np.mean(graph["folds"]), abs=1e-3)
    assert graph["std"] == pytest.approx(np.std(graph["folds"], ddof=1), abs=1e-3)
    assert len(graph["folds"]) == 10
    assert len(graph["members"]) == 20
    assert 50 < graph["mean"] < 100
    assert len(graph["curves"]["train"]["mean"]) == 20
    (pair,) = content["significance"]["pairs"]
    assert (pair["first"], pair["second"], pair["significant"]) == ("none", "graph", True)
    assert pair["low"] < pair["difference"] < pair["high"] < 0
    assert content["verdict"] == result.verdict


def test_the_papers_number(fake: Fake, trees: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    from dataclasses import replace

    from graphnorm.data import CATALOG
    from graphnorm.data.catalog import Counts

    fake()
    mutag = replace(trees, name="MUTAG")
    assert "paper" not in run(mutag, norms="graph").table().splitlines()[2]  # named alike, but other graphs
    counts = Counts(trees.num_graphs, trees.num_nodes, trees.num_edges)
    monkeypatch.setitem(CATALOG, "MUTAG", replace(CATALOG["MUTAG"], counts=counts))
    result = run(mutag, norms="none,graph")
    assert "91.6 ± 6.5" in result.table()
    assert (
        "the paper's numbers are of 10 folds, 400 epochs and the best of 60 configurations; these of 10, 20 and 1"
        in result.notes
    )
    assert result.settings.readout == "sum"
    assert result.to_dict()["norms"]["graph"]["paper"] == {"mean": 91.6, "std": 6.5, "table": 1}
    assert result.to_dict()["norms"]["none"]["paper"] is None


def test_table_frame_and_html(fake: Fake, trees: PackedGraphs) -> None:
    fake()
    result = run(trees)
    lines = result.table().splitlines()
    assert lines[0] == "synthetic:trees (400 graphs), gin, protocol paper, 10 folds, 20 epochs"
    assert lines[2].split()[0] == "norm"
    assert [line.split()[0] for line in lines[3:]] == list(result.norms)
    assert lines[-1].rstrip().endswith("best")
    frame = result.to_frame()
    assert list(frame.index) == list(result.norms)
    assert frame.loc["graph", "behind_best"] == 0
    assert frame.loc["none", "behind_best"] > 15
    assert frame.loc["none", "significantly_worse_than_best"]
    html = result._repr_html_()
    assert html.count("<tr>") == 6
    assert result.verdict in html
    assert str(result).endswith(result.verdict)


def test_html_is_escaped(fake: Fake, trees: PackedGraphs) -> None:
    from dataclasses import replace

    fake()
    assert "<script>" not in run(replace(trees, name="<script>"), norms="none,graph")._repr_html_()


def test_files(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake()
    out = tmp_path / "deep" / "out"
    result = run(trees, out=out)
    assert json.loads((out / "comparison.json").read_text()) == json.loads(json.dumps(result.to_dict()))
    assert (out / "curves.png").read_bytes().startswith(b"\x89PNG")
    assert "<svg" in (out / "curves.svg").read_text()
    assert len((out / "comparison.csv").read_text().splitlines()) == 6
    assert len((out / "members.csv").read_text().splitlines()) == 51
    assert len((out / "curves.csv").read_text().splitlines()) == 1 + 5 * 3 * 20
    assert sorted(p.name for p in out.iterdir()) == [
        "comparison.csv", "comparison.json", "curves.csv", "curves.png", "curves.svg", "members.csv", "trained",
    ]  # fmt: skip


def test_a_folder_in_use_is_refused(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    engine = fake()
    run(trees, norms="none,graph", out=tmp_path / "out")
    with pytest.raises(GraphnormError, match=r"--resume.*--overwrite"):
        run(trees, norms="none", out=tmp_path / "out")
    result = run(trees, norms="none", out=tmp_path / "out", overwrite=True)
    assert engine.trained.count("none") == 20
    assert list(result.norms) == ["none"]
    assert [p.name for p in (tmp_path / "out" / "trained").iterdir()] == ["none.safetensors"]


def test_resume(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake(stop_at=("batch", 7))
    with pytest.raises(ComparisonInterrupted, match=r"finished: none, layer; kept in .*--resume") as stop:
        run(trees, out=tmp_path)
    partial = stop.value.partial
    assert partial is not None
    assert partial.unfinished == ("batch", "instance", "graph")
    content = json.loads((tmp_path / "comparison.json").read_text())
    assert content["unfinished"] == ["batch", "instance", "graph"]
    assert "not trained: batch, instance, graph" in content["notes"]
    engine = fake()
    result = run(trees, out=tmp_path, resume=True)
    assert set(engine.trained) == {"batch", "instance", "graph"}
    assert result.resumed == ("none", "layer")
    fresh = run(trees)
    assert json.dumps(result.to_dict()) == json.dumps(fresh.to_dict())


@pytest.mark.parametrize(
    ("change", "difference"),
    [
        ({"lr": 0.1}, "its lr is 0.01, not 0.1"),
        ({"epochs": 21}, "its epochs is 20, not 21"),
        ({"model": "gcn"}, "its model is gin, not gcn"),
        ({"folds": 9}, "its folds is 10, not 9"),
        ({"seeds": 2}, "its seeds is 1, not 2"),
    ],
)
@pytest.mark.parametrize("finished", [True, False])
def test_other_settings_are_not_resumed(
    fake: Fake, trees: PackedGraphs, tmp_path: Path, change: dict[str, object], difference: str, finished: bool
) -> None:
    engine = fake()
    run(trees, norms="none,graph", out=tmp_path)
    if not finished:  # as an end by force leaves it
        (tmp_path / "comparison.json").unlink()
    engine.trained.clear()
    before = {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()}
    with pytest.raises(GraphnormError, match=rf"{difference}\. Remedy: .*--overwrite.*--out"):
        run(trees, norms="none,graph", out=tmp_path, resume=True, **change)
    assert not engine.trained
    assert {path: path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()} == before


def test_resume_with_other_norms(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake()
    run(trees, norms="none,layer,graph", out=tmp_path)
    with pytest.raises(GraphnormError, match="its norms layer, graph are not asked for"):
        run(trees, norms="none", out=tmp_path, resume=True)
    assert list(json.loads((tmp_path / "comparison.json").read_text())["norms"]) == ["none", "layer", "graph"]
    wider = run(trees, norms="graph,batch,layer,none", out=tmp_path, resume=True, workers=2)
    assert wider.resumed == ("graph", "layer", "none")
    assert list(wider.norms) == ["graph", "batch", "layer", "none"]


def test_other_graphs_are_refused_and_damage_is_trained_again(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    from dataclasses import replace

    fake()
    run(trees, norms="none,graph", out=tmp_path)
    (tmp_path / "trained" / "none.safetensors").write_bytes(b"damaged")
    assert run(trees, norms="none,graph", out=tmp_path, resume=True).resumed == ("graph",)
    other = replace(trees, labels=trees.labels.flip(0))
    for _ in ("finished", "ended by force"):
        with pytest.raises(GraphnormError, match=r"its graphs \(synthetic:trees\) are others\. Remedy"):
            run(other, norms="none,graph", out=tmp_path, resume=True)
        (tmp_path / "comparison.json").unlink(missing_ok=True)


def test_an_empty_folder_is_not_in_use(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake()
    (tmp_path / "trained").mkdir()
    assert list(run(trees, norms="none", out=tmp_path).norms) == ["none"]


def test_stopped_before_anything_is_finished(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    fake(stop_at=("none", 3))
    with pytest.raises(ComparisonInterrupted, match="nothing is finished yet; kept in") as stop:
        run(trees, out=tmp_path / "out")
    assert stop.value.partial is None
    assert not (tmp_path / "out" / "comparison.json").exists()
    with pytest.raises(ComparisonInterrupted, match="nothing is kept; with --out DIR"):
        run(trees)


def test_a_failure_while_writing_leaves_the_old_file(
    fake: Fake, trees: PackedGraphs, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    fake()
    run(trees, norms="none", out=tmp_path)
    before = (tmp_path / "comparison.json").read_bytes()
    monkeypatch.setattr("json.dumps", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        run(trees, norms="none", out=tmp_path, resume=True)
    assert (tmp_path / "comparison.json").read_bytes() == before
    assert not list(tmp_path.rglob(".*"))


@pytest.mark.parametrize(
    ("options", "message"),
    [
        (
            {"norms": "graph,grpah"},
            r"unknown normalization 'grpah'; did you mean 'graph'\? Remedy: choose from none, layer",
        ),
        ({"norms": ""}, "unknown normalization ''"),
        ({"norms": []}, "no normalization to train"),
        ({"model": "gni"}, r"unknown model 'gni'; did you mean 'gin'\? Remedy: choose from gin, gcn"),
        ({"protocol": "unfair"}, "no protocol 'unfair'; known: paper, fair, ogb"),
        ({"readout": "max"}, "unknown readout 'max'"),
        ({"epochs": 0}, "epochs is 0. Remedy: give a whole number of 1 or more"),
        ({"batch_size": -1}, "batch_size is -1"),
        ({"layers": 1}, "whole number of 2 or more"),
        ({"folds": 0}, "folds is 0. Remedy: give a whole number of 2 or more"),
        ({"folds": 1}, "folds is 1. Remedy: give a whole number of 2 or more"),
        ({"folds": 300}, "too few for 300 folds. Remedy: use --folds 200 or fewer"),
        ({"lr": float("nan")}, "give a learning rate above 0"),
        ({"dropout": 1.0}, "below 1"),
        ({"weight_decay": -1.0}, "give 0 or more"),
        ({"protocol": "ogb"}, "no official split"),
        ({"protocol": "ogb", "folds": 10}, "one split, not folds"),
        ({"workers": 0}, "workers is 0. Remedy: give 1 or more"),
        ({"device": "gpu"}, "no device 'gpu'. Remedy: name cpu, cuda"),
        ({"device": "cuda:99"}, "this machine has no device cuda:99"),
        ({"device": "meta"}, "trained on cpu or cuda, not meta"),
        ({"resume": True}, "nothing to resume without a folder"),
        ({"resume": True, "overwrite": True, "out": "x"}, "exclude each other. Remedy"),
        ({"data_root": "x"}, "loaded already"),
    ],
)
def test_mistakes(fake: Fake, trees: PackedGraphs, options: dict[str, object], message: str) -> None:
    engine = fake()
    with pytest.raises(GraphnormError, match=message):
        run(trees, **options)
    assert not engine.trained


def test_a_file_in_the_folders_place(fake: Fake, trees: PackedGraphs, tmp_path: Path) -> None:
    engine = fake()
    (tmp_path / "out").write_text("")
    with pytest.raises(GraphnormError, match="a file, not a folder"):
        run(trees, out=tmp_path / "out")
    assert not engine.trained


def test_official_splits_have_settings_of_their_own(fake: Fake, trees: PackedGraphs) -> None:
    from dataclasses import replace

    fake()
    parts = dict(zip(("train", "valid", "test"), torch.arange(400).split([320, 40, 40]), strict=True))
    result = run(replace(trees, splits=parts), norms="batch,graph", seeds=3)
    assert result.settings.protocol == "ogb"
    assert result.settings.model == "molhiv-gin"
    assert (result.settings.hidden, result.settings.lr) == (300, 1e-4)
    assert result.overlap == 0
    assert [o.trial.seed for o in result.norms["graph"].outcomes] == [0, 1, 2]
    assert "ROC-AUC" in result.table()
    assert any("over seeds on one split" in note for note in result.notes)
    assert not result.pair("graph", "batch").paired
    assert "p: Welch's test of unpaired seeds, corrected for the number of pairs; * below 0.05" in result.notes
    assert result.to_dict()["significance"]["paired_over"] is None


def test_from_the_top() -> None:
    assert graphnorm.compare is compare
    assert "compare" in dir(graphnorm)
    with pytest.raises(AttributeError, match="no attribute 'nonsense'"):
        graphnorm.nonsense
