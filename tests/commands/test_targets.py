"""Real values and several binary targets with missing labels, through every command."""

from __future__ import annotations

import contextlib
import csv
import io
import json
import sqlite3
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import graphnorm
from fakes import with_targets
from graphnorm import cli
from graphnorm.data import DataError, PackedGraphs, load, save_packed, synthetic
from graphnorm.errors import DataWarning
from graphnorm.report import read_studies
from graphnorm.study import Result, Store, load_result
from graphnorm.training.model_file import load_model

safe_open = pytest.importorskip("safetensors").safe_open
safetensors = pytest.importorskip("safetensors.torch")
metrics = pytest.importorskip("sklearn.metrics")

Run = Callable[..., tuple[int, str, str]]
QUICK = ("--epochs", "6", "--hidden", "8", "--layers", "3", "--batch-size", "16", "--lr", "0.02", "--device", "cpu")
SETTINGS: dict[str, Any] = {"epochs": 3, "hidden": 8, "layers": 3, "folds": 3, "device": "cpu", "progress": False}


@pytest.fixture(params=[("values", 1), ("values", 2), ("binary", 1), ("binary", 3)], ids=lambda p: f"{p[1]} {p[0]}")
def graphs(request: pytest.FixtureRequest) -> PackedGraphs:
    return with_targets(*request.param)


@pytest.fixture
def data(graphs: PackedGraphs, tmp_path: Path) -> Path:
    path = tmp_path / f"{graphs.name}.safetensors"
    save_packed(graphs, path)
    return path


def test_compare_and_its_json(run: Run, graphs: PackedGraphs, data: Path, tmp_path: Path) -> None:
    quick = ("--norms", "none,graph,batch", "--folds", "3", *QUICK)
    code, _, err = run("compare", data, "--out", tmp_path / "out", *quick)
    assert code == 0, err
    result = load_result(tmp_path / "out")
    content = result.to_dict()
    name, higher = ("RMSE", False) if graphs.task == "values" else ("ROC-AUC", True)
    assert (content["metric"], content["higher_is_better"]) == (name, higher)
    assert Result.from_dict(json.loads(json.dumps(content))).to_dict() == content
    means = [result.norms[norm].mean for norm in result.ranking]
    assert means == sorted(means, reverse=higher)
    assert result.convergence.target is not None
    if graphs.task == "values":
        assert graphs.targets is not None
        assert result.chance == pytest.approx(np.nanstd(graphs.targets.numpy(), axis=0).mean(), rel=1e-3)
        assert "%" not in result.table.columns[1]
        several = any("--metric r2 weighs them alike" in note for note in result.notes)
        assert several is (graphs.targets.shape[1] > 1)
    else:
        assert result.chance == 50
    assert {"result.json", "curves.png"} <= {path.name for path in (tmp_path / "out").iterdir()}
    several = len(graphs.target_names) > 1
    with (tmp_path / "out" / "scores.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert [name for name in rows[0] if name.startswith("score ")] == [
        f"score {k}" for k in graphs.target_names
    ] * several
    for row in rows if several else ():
        by_target = [float(value) for name, value in row.items() if name.startswith("score ")]
        assert np.mean(by_target) == pytest.approx(float(row["score"]), rel=1e-4)
    assert list(result.targets) == list(graphs.target_names) * several
    assert (f"{result.metric.title} of each of" in str(result)) is several
    for score in content["norms"].values():
        assert list(score.get("targets", ())) == list(graphs.target_names) * several
        if several:
            assert np.mean([each["mean"] for each in score["targets"].values()]) == pytest.approx(score["mean"])
            member = score["members"][0]
            assert np.mean(member["targets"]) == pytest.approx(member["score"], rel=1e-5)
    again = run("compare", data, "--out", tmp_path / "out", *quick)
    assert again[0] == 0
    assert load_result(tmp_path / "out").to_dict()["norms"] == content["norms"]


def test_the_metric_selects_and_is_part_of_the_trial(graphs: PackedGraphs) -> None:
    other = "mae" if graphs.task == "values" else "average-precision"
    usual, by_other = (graphnorm.compare(graphs, norms="none", metric=m, **SETTINGS) for m in (None, other))
    assert by_other.metric.key == other
    assert usual.norms["none"].mean != by_other.norms["none"].mean
    assert usual.norms["none"].curves["loss"][0].tolist() == by_other.norms["none"].curves["loss"][0].tolist()
    assert usual.study != by_other.study


def test_fair_reports_graphs_that_select_nothing(graphs: PackedGraphs) -> None:
    result = graphnorm.compare(graphs, norms="none,graph", protocol="fair", **SETTINGS)
    assert len(result.ranking) == 2
    assert result.to_frame().loc[result.ranking[1], "behind_best"] > 0
    assert {"train", "valid", "test"} <= result.norms["graph"].curves.keys()


def test_train_and_predict(run: Run, graphs: PackedGraphs, data: Path, tmp_path: Path) -> None:
    model = tmp_path / "model.safetensors"
    code, out, err = run("train", data, "--all", "--out", model, "--json", *QUICK, "--epochs", "30")
    assert code == 0, err
    trained = json.loads(out)
    code, out, err = run("predict", model, data, "--json")
    assert code == 0, err
    facts = json.loads(out)
    rows = facts["predictions"]
    assert len(rows) == 90
    targets = graphs.targets
    assert targets is not None
    scores = []
    for k, name in enumerate(graphs.target_names):
        there = ~targets[:, k].isnan().numpy()
        column = name if graphs.task == "values" else f"P({name})"
        predicted, given = (np.array([row[c] for row in rows], dtype=float) for c in (column, f"{name} (given)"))
        np.testing.assert_allclose(given, targets[:, k], rtol=1e-5)
        score = metrics.root_mean_squared_error if graphs.task == "values" else metrics.roc_auc_score
        scores.append(score(given[there], predicted[there]) * (1 if graphs.task == "values" else 100))
    metric = "RMSE" if graphs.task == "values" else "ROC-AUC"
    assert facts[metric] == pytest.approx(np.mean(scores), rel=1e-3)
    assert facts[metric] == pytest.approx(trained["trained on"], rel=1e-2)
    if len(scores) > 1:
        assert list(facts[f"{metric} by target"].values()) == pytest.approx(scores, rel=1e-3)
    code, out, err = run("predict", model, data)
    assert code == 0
    assert len(list(csv.DictReader(io.StringIO(out)))) == 90
    assert f"{metric}: " in err


def test_two_classes_have_the_probability_of_both(run: Run, tmp_path: Path) -> None:
    path, model = tmp_path / "trees.safetensors", tmp_path / "model.safetensors"
    save_packed(synthetic.trees(num_graphs=90, seed=0), path)
    assert run("train", path, "--out", model, "--metric", "roc-auc", *QUICK)[0] == 0
    code, out, err = run("predict", model, path, "--json")
    assert code == 0, err
    facts = json.loads(out)
    assert {"ROC-AUC", "accuracy"} <= facts.keys()
    for row in facts["predictions"]:
        both = [value for name, value in row.items() if name.startswith("P(")]
        assert sum(both) == pytest.approx(1, abs=1e-5)
        assert max(both) == row["probability"]


def test_a_metric_that_does_not_fit_names_those_that_do(run: Run, data: Path, graphs: PackedGraphs) -> None:
    wrong, right = ("f1", "rmse, mae, r2") if graphs.task == "values" else ("r2", "roc-auc, average-precision")
    code, _, err = run("compare", data, "--metric", wrong, *QUICK)
    assert code == 2
    assert right in err
    code, _, err = run("compare", data, "--baselines", "wl", *QUICK)
    assert code == 2
    assert "kernels are for one label" in err


def test_weights_of_nan_are_warned_about(tmp_path: Path) -> None:
    graphs = with_targets("values", 1)
    path = tmp_path / "graphs.safetensors"
    save_packed(graphs, path)

    model = tmp_path / "model.safetensors"
    assert cli.main(["train", str(path), "--all", "--out", str(model), *QUICK]) == 0
    with safe_open(model, "pt") as file:
        weights, about = {name: file.get_tensor(name) for name in file.keys()}, file.metadata()  # noqa: SIM118
    name = next(name for name in weights if name.endswith("weight"))
    weights[name] = torch.full_like(weights[name], torch.nan)
    safetensors.save_file(weights, model, about)
    with pytest.warns(DataWarning, match="NaN or infinite"):
        saved = load_model(model)
    with pytest.warns(DataWarning, match="90 of 90 graphs are NaN"):
        assert np.isnan(saved.predict(graphs)).all()


def test_a_folder_holds_one_metric_and_a_page_does_not_join_two(run: Run, tmp_path: Path) -> None:
    path, out = tmp_path / "g.safetensors", tmp_path / "out"
    save_packed(with_targets("values", 1), path)
    quick = (*QUICK, "--norms", "none", "--folds", "2", "--epochs", "1")
    assert run("compare", path, "--out", out, *quick)[0] == 0
    code, _, err = run("compare", path, "--out", out, "--metric", "mae", *quick)
    assert code == 2
    assert "its metric is rmse, not mae" in err
    for metric in ("rmse", "mae"):
        assert run("search", path, "--grid", "curves", "--metric", metric, "--out", tmp_path, *quick)[0] == 0
    with Store(tmp_path / "graphnorm.db", writable=False) as store:
        chapters = read_studies(store, store.studies())
    assert sorted(chapter.result.metric.key for chapter in chapters) == ["mae", "rmse"]


def test_many_targets_are_not_printed_but_written(tmp_path: Path) -> None:
    graphs = with_targets("binary", 30)
    result = graphnorm.compare(graphs, norms="none,graph", **SETTINGS)
    text = result.to_text()
    assert "t29" not in text
    assert "ROC-AUC % of each of 30 targets: in the JSON" in text
    assert len(result.target_table.rows) == 30
    assert "t29" in result._repr_html_()


def test_a_narrow_terminal_shows_the_targets_of_the_best() -> None:
    result = graphnorm.compare(with_targets("binary", 3), norms="none,graph,batch,layer,instance", **SETTINGS)
    wide, narrow = (result.to_text(width).split("of each of 3 targets\n")[1].splitlines()[0] for width in (80, 30))
    labels = [label for label, _ in sorted(result.norms.items(), key=lambda item: -item[1].mean)]
    assert set(wide.split()) == {"target", *labels}
    assert narrow.split()[:2] == wide.split()[:2]
    assert 2 <= len(narrow.split()) < 6


def test_a_store_without_metrics_by_target_still_reads(tmp_path: Path) -> None:
    """Trainings that an earlier version stored have none."""
    out = tmp_path / "out"
    first = graphnorm.compare(with_targets("values", 2), norms="none,graph", out=out, **SETTINGS)
    assert first.targets
    with contextlib.closing(sqlite3.connect(out / "graphnorm.db", isolation_level=None)) as connection:
        assert connection.execute("DELETE FROM curves WHERE name = 'targets'").rowcount == 6
    again = graphnorm.compare(with_targets("values", 2), norms="none,graph", out=out, **SETTINGS)
    assert again.targets == {}
    assert again.norms["graph"].scores == first.norms["graph"].scores
    assert again.ranking == first.ranking


def test_train_reports_each_target(run: Run, tmp_path: Path) -> None:
    path, model = tmp_path / "g.safetensors", tmp_path / "model.safetensors"
    save_packed(with_targets("binary", 3), path)
    code, out, err = run("train", path, "--out", model, "--json", *QUICK)
    assert code == 0, err
    facts = json.loads(out)
    assert np.mean(list(facts["held out, by target"].values())) == pytest.approx(facts["held out"], rel=1e-3)
    assert run("train", path, "--all", "--out", model, *QUICK)[1].count("by target") == 0


def test_search_has_the_verdict_of_compare(tmp_path: Path) -> None:
    graphs = with_targets("values", 1)
    keywords: dict[str, Any] = {**SETTINGS, "norms": "none,graph", "lr": 0.01, "batch_size": 128, "dropout": 0.5}
    compared = graphnorm.compare(graphs, **keywords)
    searched = graphnorm.search(graphs, "curves", store=tmp_path / "s.db", **keywords)
    assert searched.verdict == compared.verdict
    assert searched.findings[:-1] == compared.findings[:-1]


def test_predict_on_data_with_a_part_of_the_targets(run: Run, tmp_path: Path) -> None:
    graphs = with_targets("values", 2)
    model, part = tmp_path / "m.safetensors", tmp_path / "part.safetensors"
    save_packed(graphs, tmp_path / "whole.safetensors")
    assert run("train", tmp_path / "whole.safetensors", "--out", model, *QUICK)[0] == 0
    assert graphs.targets is not None
    save_packed(replace(graphs, targets=graphs.targets[:, :1], target_names=("t0",)), part)
    out = tmp_path / "p.csv"
    facts = json.loads(run("predict", model, part, "--json", "--out", out)[1])
    assert facts["predictions"] == str(out)
    assert facts["not in the data"] == "'t1'"
    assert facts["RMSE"] == facts["RMSE by target"]["t0"]
    assert facts["RMSE by target"]["t1"] is None
    assert "RMSE by target: t0 " in (shown := run("predict", model, part)[2])
    assert ", t1 –" in shown
    with out.open() as file:
        assert list(csv.DictReader(file).fieldnames or ()) == ["graph", "t0", "t0 (given)", "t1", "t1 (given)"]


def test_a_split_does_not_hide_what_was_trained_on(run: Run, tmp_path: Path) -> None:
    graphs, model = with_targets("values", 1), tmp_path / "m.safetensors"
    parts = dict(zip(("train", "valid", "test"), torch.arange(90).split([60, 15, 15]), strict=True))
    save_packed(replace(graphs, splits=parts), tmp_path / "split.safetensors")
    save_packed(graphs, tmp_path / "whole.safetensors")
    assert run("train", tmp_path / "split.safetensors", "--out", model, *QUICK)[0] == 0
    facts = json.loads(run("predict", model, tmp_path / "whole.safetensors", "--json")[1])
    assert "was trained on a part of these graphs; on the test part of the split" in facts["note"]


def test_a_target_may_be_named_as_a_column_of_predictions(run: Run, tmp_path: Path) -> None:
    data, model = tmp_path / "whole.safetensors", tmp_path / "m.safetensors"
    save_packed(replace(with_targets("values", 1), target_names=("graph",)), data)
    assert run("train", data, "--out", model, *QUICK)[0] == 0
    rows = json.loads(run("predict", model, data, "--json")[1])["predictions"]
    assert [row["graph"] for row in rows] == list(range(90))
    assert {"graph (predicted)", "graph (given)"} < rows[0].keys()


def test_one_target_that_decides_an_error_is_named() -> None:
    graphs = with_targets("values", 2)
    assert graphs.targets is not None
    graphs = replace(graphs, targets=graphs.targets * torch.tensor([1.0, 100.0]))
    result = graphnorm.compare(graphs, norms="none,graph", **SETTINGS)
    assert any(note.startswith("t1 is 9") and "--metric r2" in note for note in result.notes)
    even = graphnorm.compare(with_targets("values", 2), norms="none,graph", **SETTINGS)
    assert not any("of the mean RMSE" in note for note in even.notes)


def test_targets_that_some_folds_cannot_measure_are_named() -> None:
    graphs = with_targets("binary", 2)
    assert graphs.targets is not None
    graphs.targets[:, 1] = 0
    graphs.targets[::60, 1] = 1  # two graphs, for three folds
    result = graphnorm.compare(graphs, norms="none,graph", **SETTINGS)
    assert any("the same value: without t1 in" in note for note in result.notes)


def test_columns_that_are_no_targets_are_named(tmp_path: Path) -> None:
    path = tmp_path / "t.csv"
    path.write_text("smiles,y,number\n" + "\n".join(f"{'C' * k},{k % 3 / 7},{k}" for k in range(1, 21)))
    with pytest.warns(DataWarning, match="'number' counts the rows"):
        load(path, target=["y", "number"])
    parts = ["train", "test"]
    path.write_text("smiles,y,part\n" + "\n".join(f"{'C' * k},{k % 3 / 7},{parts[k % 2]}" for k in range(1, 21)))
    with pytest.raises(DataError, match=r"'part' names the parts of a split.*--split part"):
        load(path, target=["y", "part"])
    path.write_text("smiles,a,b\n" + "\n".join(f"{'C' * k},{2 * (k % 2) - 1},{k % 2}" for k in range(1, 21)))
    graphs = load(path)
    assert graphs.task == "binary"
    assert graphs.targets is not None
    assert torch.equal(graphs.targets[:, 0], graphs.targets[:, 1])
