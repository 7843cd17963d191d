"""graphnorm search and graphnorm runs: what they print, and what a mistake is told."""

from __future__ import annotations

import csv
import json
from pathlib import Path

import numpy as np
import pytest
import torch
from graphnorm.study.callbacks import TensorBoard

from fakes import FakeFleet
from graphnorm import cli
from graphnorm.data import save_packed, synthetic
from graphnorm.training import Outcome, Trial


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    save_packed(synthetic.regular(num_graphs=30, seed=0), tmp_path / "graphs.safetensors")
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr("graphnorm.study.work.Fleet", FakeFleet)
    monkeypatch.setattr("graphnorm.study.estimate.Fleet", FakeFleet)
    return tmp_path


def run(capsys: pytest.CaptureFixture[str], *arguments: str) -> tuple[int, str, str]:
    code = cli.main(list(arguments))
    captured = capsys.readouterr()
    return code, captured.out, captured.err


SEARCH = (
    *("search", "graphs.safetensors", "--grid", "quick", "--norms", "graph,batch", "--folds", "3"),
    *("--epochs", "16", "--device", "cpu", "--workers", "1"),
)


def test_a_search_and_its_store(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, *SEARCH)
    assert code == 0, err
    lines = out.splitlines()
    assert lines[0].split() == ["norm", "score", "%", "epoch", "trials", "configuration"]
    assert [line.split()[0] for line in lines[1:3]] == ["graph", "batch"]
    assert "12 of 12" in lines[1]
    assert "lr=" in lines[1]
    assert "dropout=" in lines[1]
    assert "24 trials" in err
    again = run(capsys, *SEARCH, "--json")
    assert again[2] == ""  # nothing was trained
    result = json.loads(again[1])
    assert result["counts"] == {"done": 24}
    assert len(result["norms"][0]["choices"]) == 3
    assert f"{100 * result['norms'][0]['mean']:.1f} ± {100 * result['norms'][0]['std']:.1f}" in lines[1]

    name = result["study"]
    code, out, _ = run(capsys, "runs", "--json", "--norm", "batch", "--dataset", "SYNTHETIC:regular")
    assert code == 0
    assert [(s["name"], s["missing"]) for s in json.loads(out)] == [(name, 0)]
    assert json.loads(run(capsys, "runs", "--json", "--model", "gcn")[1]) == []
    code, out, _ = run(capsys, "runs", "show", name[:20])
    assert code == 0
    assert out.splitlines()[:3] == lines[:3]
    code, out, _ = run(capsys, "runs", "export", "trials.csv", name)
    assert code == 0
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert {row["status"] for row in rows} == {"done"}
    assert all(0 <= float(row["best_valid"]) <= 1 and 1 <= int(row["best_epoch"]) <= 16 for row in rows)
    code, out, _ = run(capsys, "runs", "export", "curves.parquet", "--curves", "--json")
    assert json.loads(out)["rows"] == 24 * 16
    parquet = pytest.importorskip("pyarrow.parquet")
    assert parquet.read_table(folder / "curves.parquet").num_rows == 24 * 16
    code, out, _ = run(capsys, "runs", "delete", name)
    assert code == 0
    assert json.loads(run(capsys, "runs", "--json")[1]) == []


def test_options_of_runs_before_the_action(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    run(capsys, *SEARCH, "--store", "other.db")
    merged = run(capsys, "runs", "--store", "mine.db", "--json", "merge", "other.db")[1]
    assert json.loads(merged)["written"] == "mine.db"
    assert not (folder / "graphnorm.db").exists()
    (study,) = json.loads(run(capsys, "runs", "--store", "mine.db", "--json")[1])
    for before, after in (
        (("--store", "mine.db", "--json"), ()),
        (("--store", "gone.db"), ("--store", "mine.db", "--json")),
    ):
        shown = run(capsys, "runs", *before, "show", study["name"], *after)[1]
        assert json.loads(shown)["study"] == study["name"]
    for norm, rows in (("graph", 24), ("layer", 0)):
        written = run(capsys, "runs", "--norm", norm, "export", "trials.csv", "--store", "mine.db", "--json")[1]
        assert json.loads(written)["rows"] == rows


def test_a_dry_run_trains_and_writes_nothing(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SEARCH, "--dry-run", "--json")
    assert code == 0
    plan = json.loads(out)
    assert (plan["trials"], plan["configurations"], plan["trials_done_before"]) == (24, 4, 0)
    assert plan["fleets"] == 4
    assert plan["estimated_seconds"] >= 0
    assert not (folder / "graphnorm.db").exists()
    run(capsys, *SEARCH)
    plan = json.loads(run(capsys, *SEARCH, "--dry-run", "--json")[1])
    assert (plan["fleets"], plan["trials_done_before"], plan["estimated_seconds"]) == (0, 24, 0.0)


@pytest.mark.skipif(torch.cuda.is_available(), reason="here a GPU can be measured")
def test_a_dry_run_for_gpus_that_are_elsewhere(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, *SEARCH, "--dry-run", "--engine", "ray", "--gpus-per-worker", "1")
    assert code == 0
    assert "not known: there is no GPU here to measure on" in out


def test_an_adaptive_search_costs_what_it_may(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    FakeFleet.made.clear()
    code, out, err = run(capsys, *SEARCH, "--trials", "12", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["counts"] == {"done": 6, "dropped": 18}
    assert result["spec"]["rungs"] == [[4, 2], [8, 1]]
    assert all(norm["finished"] == 3 for norm in result["norms"])
    assert run(capsys, *SEARCH, "--trials", "12", "--json")[1] == out
    code, _, err = run(capsys, *SEARCH, "--trials", "5")
    assert code == 2
    assert "it takes one" in err
    code, out, _ = run(capsys, *SEARCH, "--budget", "1h", "--dry-run")
    assert code == 0
    assert "estimated time" in out


def test_under_fair_each_fold_has_its_own_choice(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    save_packed(synthetic.regular(num_graphs=60, seed=0), folder / "graphs.safetensors")
    code, out, err = run(capsys, *SEARCH, "--protocol", "fair", "--trials", "12", "--json")
    assert code == 0, err
    result = json.loads(out)
    assert result["counts"] == {"done": 6, "dropped": 18}  # one configuration for each fold and normalization
    for norm in result["norms"]:
        assert [choice["fold"] for choice in norm["choices"]] == [0, 1, 2]
        assert norm["mean"] == pytest.approx(np.mean([choice["score"] for choice in norm["choices"]]))
    chosen = {json.dumps(c["configuration"]) for norm in result["norms"] for c in norm["choices"]}
    assert len(chosen) > 1


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--grid", "papper"], "known: paper, curves, quick"),
        (["--norms", "grahp"], "did you mean 'graph'"),
        (["--model", "gim"], "did you mean 'gin'"),
        (["--folds", "100"], "too few for 100 folds"),
        (["--budget", "5m", "--trials", "9"], "give one of them"),
        (["--gpus-per-worker", "1"], "no meaning for the engine local"),
        (["--store", "graphs.safetensors"], "damaged"),
    ],
)
def test_mistakes(folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str) -> None:
    code, out, err = run(capsys, *SEARCH, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert len(err.splitlines()) == 1
    assert not (folder / "graphnorm.db").exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["runs"], "there is no store here"),
        (["runs", "show", "x", "--store", "absent.db"], "there is no store here"),
        (["runs", "export", "trials.xls"], "there is no store here"),
        (["runs", "rescue", "absent.db", "new.db"], "no such file"),
    ],
)
def test_mistakes_with_runs(
    folder: Path, capsys: pytest.CaptureFixture[str], arguments: list[str], message: str
) -> None:
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert message in err
    assert not (folder / "graphnorm.db").exists()


@pytest.mark.parametrize("arguments", [["--budget", "soon"], ["--trials", "0"], ["--workers", "-1"]])
def test_wrong_usage(folder: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main([*SEARCH, *arguments])
    assert stop.value.code == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trial = Trial(dataset="MUTAG", fold=2, epochs=3)
    curve = np.array([0.25, 0.5, 0.75], np.float32)
    TensorBoard(tmp_path).on_outcomes([Outcome(trial, {"loss": 1 - curve, "valid": curve})])
    (run,) = (tmp_path / "MUTAG-gin-graph").iterdir()
    events = EventAccumulator(str(run)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("valid")] == [(1, 0.25), (2, 0.5), (3, 0.75)]
