"""``graphnorm runs``: what a store holds, as JSON, CSV and Parquet."""

from __future__ import annotations

import csv
import json
import os
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

import graphnorm
from fakes import fill
from graphnorm.data import load
from graphnorm.settings import GRIDS, Settings
from graphnorm.study import Store, make_plan
from graphnorm.training import Trial

Run = Callable[..., tuple[int, str, str]]
TREES = load("synthetic:trees")
PLAN = make_plan(TREES, Settings(norms=("graph", "batch"), folds=3), GRIDS["quick"].fixed(epochs=16))
NAME = PLAN.name


@pytest.fixture
def folder(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A finished study, and one of which a part is trained and a part failed."""
    monkeypatch.chdir(tmp_path)
    with Store("graphnorm.db") as store:
        fill(store, PLAN)
        part = make_plan(TREES, Settings(model="gcn", norms=("graph", "layer"), folds=3, epochs=4), name="gcn")
        study = fill(store, part, lambda trial: trial.norm == "graph")
        store.save_failed(store.begin_session(study, "local"), part.trials[3:5], "RuntimeError: gone\nat line 7")
    return tmp_path


def test_the_list_needs_no_torch(folder: Path) -> None:
    code = "import sys; from graphnorm.cli import main; main(['runs']); print('torch' in sys.modules)"
    environment = os.environ | {"PYTHONPATH": str(Path(graphnorm.__file__).parents[1])}
    done = subprocess.run([sys.executable, "-c", code], env=environment, capture_output=True, text=True, check=True)
    assert NAME in done.stdout
    assert done.stdout.endswith("False\n")


def listed(run: Run, *options: object) -> list[str]:
    code, out, _ = run("runs", "--json", *options)
    assert code == 0
    return [study["name"] for study in json.loads(out)]


def test_the_list(folder: Path, run: Run) -> None:
    assert listed(run) == [NAME, "gcn"]
    assert listed(run, "--norm", "batch", "--dataset", "SYNTHETIC:trees") == [NAME]
    assert listed(run, "--model", "gcn") == ["gcn"]
    assert listed(run, "--unfinished") == ["gcn"]
    assert listed(run, "--protocol", "fair") == []
    first, second = json.loads(run("runs", "--json")[1])
    assert (first["missing"], first["counts"], first["spec"]["folds"]) == (0, {"done": 24}, 3)
    assert (second["missing"], second["counts"]) == (1, {"done": 3, "failed": 2})
    lines = run("runs")[1].splitlines()
    assert lines[0].split() == ["study", "trials", "done", "dropped", "failed", "missing", "hours", "begun"]
    assert lines[2].split()[:6] == ["gcn", "6", "3", "0", "2", "1"]


def test_the_list_in_a_narrow_terminal(folder: Path, run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", "70")
    lines = run("runs")[1].splitlines()
    assert max(map(len, lines)) <= 70
    assert "failed" in lines[0]  # there are some
    assert "dropped" not in lines[0]


def test_a_study(folder: Path, run: Run) -> None:
    content = json.loads(run("runs", "show", NAME[:20], "--json")[1])
    assert (content["study"], content["counts"]) == (NAME, {"done": 24})
    code, out, _ = run("runs", "show", "gcn")
    assert code == 0
    assert out.splitlines()[0] == "failed: RuntimeError: gone"
    assert "not trained: layer" in out


def test_options_may_stand_before_the_action(folder: Path, run: Run) -> None:
    merged = run("runs", "--store", "mine.db", "--json", "merge", "graphnorm.db")[1]
    assert json.loads(merged)["written"] == "mine.db"
    for before, after in (
        (("--store", "mine.db", "--json"), ()),
        (("--store", "gone.db"), ("--store", "mine.db", "--json")),
    ):
        assert json.loads(run("runs", *before, "show", NAME, *after)[1])["study"] == NAME
    for norm, rows in (("batch", 24), ("instance", 0)):
        written = run("runs", "--norm", norm, "export", "trials.csv", "--store", "mine.db", "--json")[1]
        assert json.loads(written)["rows"] == rows


def test_exports(folder: Path, run: Run) -> None:
    assert run("runs", "export", "trials.csv", NAME)[0] == 0
    with (folder / "trials.csv").open() as file:
        rows = list(csv.DictReader(file))
    assert len(rows) == 24
    assert {row["status"] for row in rows} == {"done"}
    assert {row["key"] for row in rows} == {trial.key for trial in PLAN.trials}
    for row, trial in zip(rows, PLAN.trials, strict=True):
        identity = trial.to_dict() | {"metric": "accuracy", "task": "classes"}  # not empty, as for the defaults
        assert {name: str(value) for name, value in identity.items()}.items() <= row.items()
        assert 0 <= float(row["best_valid"]) <= 1
        assert 1 <= int(row["best_epoch"]) <= 16
    written = json.loads(run("runs", "export", "curves.parquet", NAME, "--curves", "--json")[1])
    assert written["rows"] == 24 * 16
    parquet = pytest.importorskip("pyarrow.parquet")
    found = parquet.read_table(folder / "curves.parquet")
    assert found.num_rows == 24 * 16
    assert {"epoch", "loss", "train", "valid", *Trial(dataset="d").to_dict()} <= set(found.column_names)


def test_deleting(folder: Path, run: Run) -> None:
    assert run("runs", "delete", NAME)[0] == 0
    assert listed(run) == ["gcn"]


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--store", "absent.db"], "no store here"),
        (["show", "x", "--store", "absent.db"], "no store here"),
        (["delete", "x", "--store", "absent.db"], "no store here"),
        (["show", "gnc"], "no study 'gnc'"),
        (["export", "trials.xls"], "CSV or Parquet"),
        (["recover", "absent.db", "new.db"], "no such file"),
        (["recover", "graphnorm.db", "graphnorm.db"], "exists already"),
        (["prune", "gcn"], "1 trials to train"),
    ],
)
def test_mistakes(folder: Path, run: Run, arguments: list[str], words: str) -> None:
    code, out, err = run("runs", *arguments)
    assert (code, out) == (2, "")
    assert words in err
    assert "Remedy: " in err
    assert {path.name for path in folder.iterdir() if path.suffix == ".db"} == {"graphnorm.db"}


def test_a_store_that_is_missed_is_named(folder: Path, run: Run) -> None:
    for given in (".", "runs.db"):
        code, _, err = run("runs", "--store", given)
        assert code == 2
        assert err.rstrip().endswith("Remedy: --store graphnorm.db.")
