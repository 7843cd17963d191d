"""``graphnorm compare``: what it prints, how it stops, and that mistakes are one message and exit code 2."""

from __future__ import annotations

import json
import re
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from fake_training import FakeTraining
from graphnorm import cli
from graphnorm.comparison.settings import DEFAULT_NORMS, FIGURE_2

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def engine(monkeypatch: pytest.MonkeyPatch) -> FakeTraining:
    engine = FakeTraining()
    monkeypatch.setattr("graphnorm.training.train", engine)
    return engine


def test_what_it_prints(run: Run, engine: FakeTraining) -> None:
    code, out, err = run("compare", "trees", "--epochs", "12", "--norms", "none,graph")
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "synthetic:trees (400 graphs), gin, protocol paper, 10 folds, 12 epochs"
    assert lines[-1].startswith("graph has the highest accuracy")
    assert err.splitlines()[0].startswith("none: ")
    assert err.splitlines()[-1].startswith("graph: ")


def test_the_default_data(run: Run, engine: FakeTraining) -> None:
    pytest.importorskip("rdkit")
    code, out, _ = run("compare", "--epochs", "5", "--norms", "graph")
    assert code == 0
    assert out.startswith("molecules (1,017 graphs), gin, protocol paper, 10 folds, 5 epochs")


def test_options_reach_the_trials(run: Run, engine: FakeTraining) -> None:
    code, out, _ = run(
        "compare", "trees", "--json", "--norms", "graph", "--model", "gcn", "--protocol", "fair", "--folds", "4",
        "--seeds", "2", "--epochs", "6", "--batch-size", "32", "--lr", "0.003", "--weight-decay", "0.1", "--dropout",
        "0.2", "--hidden", "16", "--layers", "3", "--self-loops", "--readout", "sum", "--device", "cpu", "--workers",
        "1",
    )  # fmt: skip
    assert code == 0
    content = json.loads(out)
    assert content["config"] == {
        "model": "gcn", "norms": ["graph"], "protocol": "fair", "folds": 4, "seeds": 2, "epochs": 6, "batch_size": 32,
        "lr": 0.003, "weight_decay": 0.1, "dropout": 0.2, "hidden": 16, "layers": 3, "self_loops": True,
        "readout": "sum", "baselines": [],
    }  # fmt: skip
    assert engine.keywords == {"device": torch.device("cpu"), "workers": 1}


def test_the_help_tells_the_default(capsys: pytest.CaptureFixture[str]) -> None:
    with pytest.raises(SystemExit):
        cli.main(["compare", "--help"])
    text = " ".join(capsys.readouterr().out.split())
    assert f"(default: {FIGURE_2['epochs']};" in text
    for name, option in (("batch_size", "graphs of one step"), ("hidden", "WIDTH"), ("layers", "the linear head")):
        assert re.search(rf"{option}[^)]*default: {FIGURE_2[name]}\b", text), name
    assert ",".join(DEFAULT_NORMS) in text


def test_own_graphs(run: Run, engine: FakeTraining, table: Path) -> None:
    pytest.importorskip("rdkit")
    code, out, _ = run("compare", table, "--label", "label", "--smiles", "smiles", "--folds", "4", "--norms", "none")
    assert code == 0
    assert out.startswith("mine (24 graphs)")


def test_out_stop_and_resume(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    monkeypatch.setattr("graphnorm.training.train", FakeTraining(stop_at=("graph", 4)))
    arguments = ("compare", "trees", "--epochs", "8", "--norms", "none,graph", "--out", tmp_path / "out")
    code, out, err = run(*arguments)
    assert code == 130
    assert "not trained: graph" in out
    assert re.search(r"graphnorm: stopped; finished: none; kept in .*out; the same command with --resume", err)
    assert (tmp_path / "out" / "comparison.json").exists()
    monkeypatch.setattr("graphnorm.training.train", engine := FakeTraining())
    code, out, err = run(*arguments, "--resume")
    assert code == 0
    assert set(engine.trained) == {"graph"}
    assert "none: " in err
    assert "(from an earlier run)" in err
    assert f"written to {tmp_path / 'out'}" in out


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["trees", "--norms", "graph,grpah"], "unknown normalization 'grpah'; did you mean 'graph'"),
        (["trees", "--model", "gat"], r"unknown model 'gat'\. Remedy: choose from gin, gcn"),
        (["trees", "--protocol", "x"], "known: paper, fair, ogb"),
        (["trees", "--folds", "201"], "use --folds 200 or fewer"),
        (["trees", "--epochs", "0"], "epochs is 0"),
        (["trees", "--device", "gpu"], "no device 'gpu'"),
        (["trees", "--resume"], "name it with --out"),
        (["trees", "--out", "mine.csv"], "a file, not a folder"),
        (["trees", "--smiles", "s"], "smiles cannot be used with synthetic:trees"),
        (["treez"], "did you mean synthetic:trees"),
        (["mine.csv", "--folds", "13"], "'alcohol' has 12 graphs, too few for 13 folds"),
        (["mine.csv", "--label", "nothing"], "no column 'nothing'"),
        (["mine.csv", "--protocol", "fair", "--folds", "2"], "no tenth of that"),
    ],
)
def test_mistakes(
    run: Run, engine: FakeTraining, table: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], message: str
) -> None:
    monkeypatch.chdir(table.parent)
    if "mine.csv" in arguments[0]:
        pytest.importorskip("rdkit")
    code, out, err = run("compare", *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("graphnorm: ")
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert not engine.trained
    assert sorted(p.name for p in table.parent.iterdir()) == ["mine.csv"]


def test_measurements_without_a_threshold(run: Run, engine: FakeTraining, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "measured.csv"
    table.write_text("smiles,label\n" + "".join(f"{'C' * n},{6 + n / 10}\n" for n in range(1, 13)))
    code, _, err = run("compare", table, "--folds", "2")
    assert code == 2
    assert "'6.1' has 1 graph, too few for 2 folds. Remedy: split measurements" in err
    assert "--threshold median" in err
    assert not engine.trained
    assert run("compare", table, "--folds", "2", "--threshold", "median", "--norms", "none")[0] == 0
