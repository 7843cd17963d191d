"""``graphnorm compare``: options reach the trials, and a mistake is one message and exit code 2."""

from __future__ import annotations

import json
import re
import shlex
import signal
from collections.abc import Callable
from pathlib import Path

import pytest

from fakes import FakeFleet
from graphnorm import cli

Run = Callable[..., tuple[int, str, str]]
HERE = ("--workers", "1", "--device", "cpu")


def test_what_it_prints(run: Run, fleets: type[FakeFleet]) -> None:
    code, out, err = run("compare", "trees", "--epochs", "12", "--norms", "none,graph", *HERE)
    assert code == 0
    lines = out.splitlines()
    assert lines[0] == "synthetic:trees (400 graphs), gin, protocol paper, 10 folds, 12 epochs"
    assert [line.split()[0] for line in lines[2:7]] == ["norm", "best", "graph", "significantly", "none"]
    assert lines[-2].startswith("NEXT ")
    assert "graphnorm compare trees --norms none,graph --workers 1" in " ".join(out.split())
    assert err.splitlines()[-1].endswith("20 of 20 trials are done")


def test_the_default_data(run: Run, fleets: type[FakeFleet]) -> None:
    pytest.importorskip("rdkit")
    code, out, _ = run("compare", "--epochs", "5", "--norms", "graph", *HERE, "--json")
    assert (code, json.loads(out)["dataset"]) == (0, "molecules")


def test_options_reach_the_trials(run: Run, fleets: type[FakeFleet]) -> None:
    settings = {
        "model": "gcn", "protocol": "fair", "folds": 4, "seeds": 2, "epochs": 6, "batch_size": 32, "lr": 0.003,
        "weight_decay": 0.1, "dropout": 0.2, "hidden": 16, "layers": 3, "readout": "sum",
    }  # fmt: skip
    options = [text for name, value in settings.items() for text in (f"--{name.replace('_', '-')}", value)]
    code, out, _ = run("compare", "trees", "--json", "--norms", "graph", "--self-loops", *options, *HERE)
    assert code == 0
    spec = json.loads(out)["spec"]
    given = settings | {"norms": ["graph"], "baselines": [], "self_loops": True}
    assert {name: spec[name] for name in given} == given
    for fleet in fleets.made:
        for trial in fleet.trials:
            assert {name: getattr(trial, name) for name in settings if name != "seeds"} == {
                name: value for name, value in settings.items() if name != "seeds"
            }


def test_own_graphs(run: Run, fleets: type[FakeFleet], table: Path) -> None:
    pytest.importorskip("rdkit")
    code, out, _ = run("compare", table, "--target", "label", "--smiles", "smiles", "--folds", "4", "--json", *HERE)
    assert code == 0
    spec = json.loads(out)["spec"]
    assert (spec["dataset"], spec["graphs"], spec["classes"]) == ("mine", 24, ["alcohol", "hydrocarbon"])


def test_it_goes_on_where_it_stopped(run: Run, fleets: type[FakeFleet], tmp_path: Path) -> None:
    def press(fleet: FakeFleet) -> None:
        if (fleet.trials[0].norm, fleet.epoch) == ("graph", 4):
            fleets.trouble = staticmethod(lambda fleet: None)
            signal.raise_signal(signal.SIGINT)

    fleets.trouble = staticmethod(press)
    arguments = ("compare", "trees", "--epochs", "8", "--norms", "none,graph", *HERE)
    written = tmp_path / "out" / "result.json"
    code, out, err = run(*arguments, "--out", tmp_path / "out")
    assert code == 130
    assert "not trained: graph" in out
    assert "Traceback" not in err
    assert err.endswith("the same command goes on from here\n")
    assert json.loads(written.read_text())["unfinished"] == ["graph"]
    code, out, err = run(*arguments, "--out", tmp_path / "out")
    assert code == 0
    assert [fleet.trials[0].norm for fleet in fleets.made] == ["none", "graph", "graph"]
    assert "10 of them trained before" in err
    assert f"written to {tmp_path / 'out'}" in out
    assert json.loads(written.read_text()) == json.loads(run(*arguments, "--json")[1])  # as if never stopped
    fleets.trouble = staticmethod(lambda fleet: fleet.epoch == 2 and signal.raise_signal(signal.SIGTERM))
    code, _, err = run("compare", "trees", "--norms", "graph", *HERE)
    assert code == 143
    assert "--out DIR" in err


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["trees", "--norms", "graph,grpah"], "did you mean 'graph'"),
        (["trees", "--model", "gat"], "choose from gin, gcn"),
        (["trees", "--protocol", "x"], "known: paper, fair, given"),
        (["trees", "--folds", "201"], "use --folds 200 or fewer"),
        (["trees", "--epochs", "0"], "epochs is 0"),
        (["trees", "--device", "gpu"], "no device 'gpu'"),
        (["trees", "--out", "mine.csv"], "a file, not a folder"),
        (["trees", "--smiles", "s"], "smiles cannot be used"),
        (["treez"], "did you mean synthetic:trees"),
        (["mine.csv", "--folds", "13"], "'alcohol' has 12 graphs"),
        (["mine.csv", "--target", "nothing"], "no column 'nothing'"),
        (["mine.csv", "--threshold", "high"], "give a number or 'median'"),
        (["mine.csv", "--protocol", "fair", "--folds", "2"], "no tenth of that"),
        (
            ["mine.csv", "--protocol", "fair", "--split", "scaffold"],
            "cannot keep to a split that is given. Remedy: name the protocol given",
        ),
        (["trees", "--norm-module", "mine=nowhere:Norm"], "no module 'nowhere'"),
    ],
)
def test_mistakes(
    run: Run, fleets: type[FakeFleet], table: Path, monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    monkeypatch.chdir(table.parent)
    if "mine.csv" in arguments[0]:
        pytest.importorskip("rdkit")
    code, out, err = run("compare", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"graphnorm: .*{words}.*\n", err)
    assert "Remedy: " in err
    assert not fleets.made
    assert sorted(p.name for p in table.parent.iterdir()) == ["mine.csv"]


def test_measurements_with_and_without_a_threshold(run: Run, fleets: type[FakeFleet], tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    table = tmp_path / "measured.csv"
    table.write_text("smiles,label\n" + "".join(f"{'C' * n},{6 + n / 10}\n" for n in range(1, 13)))
    code, _, err = run("compare", table, "--folds", "2", "--norms", "none", *HERE)
    assert code == 0
    assert "12 different numbers in 'label' are taken as measurements" in err
    assert run("compare", table, "--folds", "2", "--threshold", "median", "--norms", "none", *HERE)[0] == 0


def test_several_values_of_a_setting(run: Run) -> None:
    options = ("--norms", "graph", "--folds", "2", "--epochs", "1", "--hidden", "4", "--layers", "2", "--device", "cpu")
    code, out, _ = run("compare", "synthetic:trees", *options, "--lr", "0.01,0.001", "--json")
    assert (code, json.loads(out)["spec"]["grid"]["lr"]) == (0, [0.01, 0.001])
    code, _, err = run("train", "synthetic:trees", "--lr", "0.01,0.001", "--out", "m.safetensors")
    assert (code, "lr has several values" in err) == (2, True)
    code, _, err = run("compare", "synthetic:trees", "--lr", "0.01,x")
    assert (code, "'x' is not a number" in err) == (2, True)


PRINTS = """
import torch
print("imported")
class Model(torch.nn.Module):
    def __init__(self, width, outputs, norm):
        super().__init__()
        self.norm, self.head = norm(width), torch.nn.Linear(width, outputs)
    def forward(self, x, edge_index, batch, batch_size):
        print("called")
        x = self.norm(x, batch, batch_size)
        return self.head(x.new_zeros(batch_size, x.shape[1]).index_add(0, batch, x))
"""


ENDS = (
    PRINTS
    + """
class Ends(Model):
    def forward(self, x, edge_index, batch, batch_size):
        if batch_size > 5:
            raise SystemExit(0)
        return super().forward(x, edge_index, batch, batch_size)
"""
)


@pytest.mark.parametrize("workers", ["1", "2"])
def test_a_model_that_ends_python_has_failed(run: Run, tmp_path: Path, workers: str) -> None:
    (tmp_path / "own.py").write_text(ENDS)
    small = ("--norms", "graph", "--folds", "2", "--epochs", "1", "--device", "cpu", "--workers", workers)
    code, _, err = run("compare", "synthetic:trees", "--model", f"{tmp_path / 'own.py'}:Ends", *small)
    line = 1 + ENDS.splitlines().index("            raise SystemExit(0)")
    assert code == 2
    assert f"all 2 trials failed: own.py:{line}: SystemExit: 0" in err


def test_what_is_advised_after_failures_can_be_done(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("own.py").write_text(ENDS)
    small = ("--norms", "graph,none", "--folds", "2", "--epochs", "1", "--device", "cpu", "--workers", "1")
    arguments = ("compare", "synthetic:trees", "--model", "own.py:Ends", *small)
    code, out, err = run(*arguments)
    assert code == 2
    assert re.search(r"4 trials failed: own.py:\d+: SystemExit: 0\n", out)
    assert "NEXT     correct the cause, and give the same command again\n" in out
    assert "runs show" not in out
    assert "--retry-failed" not in out + err
    code, out, err = run(*arguments, "--out", "with space")
    words = " ".join(out.split())
    command = re.search(r"SystemExit: 0; `graphnorm (runs show .*)` shows all reasons, --retry-failed tries", words)
    assert command is not None
    code, out, _ = run(*shlex.split(command[1]))
    assert (code, out.splitlines()[0].startswith("failed: own.py:")) == (0, True)
    assert "tried again" in run(*arguments, "--out", "with space", "--retry-failed")[2]


@pytest.mark.parametrize("workers", ["1", "2"])
def test_what_a_model_prints_is_no_part_of_the_result(
    capfd: pytest.CaptureFixture[str], tmp_path: Path, workers: str
) -> None:
    (tmp_path / "own.py").write_text(PRINTS)
    small = ["--norms", "graph", "--folds", "2", "--epochs", "1", "--device", "cpu", "--workers", workers, "--json"]
    assert cli.main(["compare", "synthetic:trees", "--model", f"{tmp_path / 'own.py'}:Model", *small]) == 0
    out, err = capfd.readouterr()
    assert json.loads(out)["norms"].keys() == {"graph"}
    assert "imported" in err
    assert "called" in err
