"""``graphnorm train`` and ``graphnorm predict``: a model is kept, used again, and refused where it does not fit."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from graphnorm import cli
from graphnorm.data import load, save_packed

pytest.importorskip("rdkit")

Run = Callable[..., tuple[int, str, str]]
FAST = (
    "--epochs",
    "80",
    "--hidden",
    "16",
    "--layers",
    "3",
    "--batch-size",
    "24",
    "--lr",
    "0.03",
    "--dropout",
    "0",
    "--device",
    "cpu",
)


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that tells alcohols from hydrocarbons."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    assert cli.main(["train", str(table), "--all", "--out", str(path), *FAST]) == 0
    return path


def test_train_says_how_good_it_is(run: Run, table: Path, tmp_path: Path) -> None:
    code, out, _ = run("train", table, "--norm", "batch", "--folds", "4", "--fold", "1", "--out",
                       tmp_path / "deep" / "m.safetensors", "--json", *FAST, "--epochs", "2")  # fmt: skip
    assert code == 0
    facts = json.loads(out)
    assert facts["norm"] == "batch"
    assert 0 <= facts["trained on"] <= 100
    assert 0 <= facts["held out"] <= 100
    assert (tmp_path / "deep" / "m.safetensors").exists()
    code, out, _ = run("train", table, "--folds", "4", "--out", tmp_path / "m.safetensors", *FAST, "--epochs", "2")
    assert code == 0
    assert re.search(r"held out +\d+\.\d % of 6 graphs", out)


def test_predict_own_training_data(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    code, text, err = run("predict", model, table)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 24
    assert list(rows[0]) == ["graph", "class", "probability", "label"]
    right = sum(row["class"] == row["label"] for row in rows)
    assert right >= 22  # it was trained on them
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert f"accuracy: {100 * right / 24:.4g}" in err
    assert "the graphs that the model was trained on" in err
    code, out, _ = run("predict", model, table, "--out", tmp_path / "p.csv")
    assert code == 0
    assert "accuracy" in out
    assert (tmp_path / "p.csv").read_text() == text


def test_predict_new_molecules(run: Run, model: Path, tmp_path: Path) -> None:
    new = tmp_path / "new.csv"
    new.write_text("smiles\nCCCCCCCCCCCCCCO\nCCCCCCCCCCCCCCC\n")
    code, out, err = run("predict", model, new)
    assert code == 0
    assert [row["class"] for row in csv.DictReader(io.StringIO(out))] == ["alcohol", "hydrocarbon"]
    assert "no accuracy: the data has no labels" in err
    code, out, _ = run("predict", model, new, "--json")
    assert code == 0
    content = json.loads(out)
    assert content["graphs"] == 2
    assert content["predictions"][1]["class"] == "hydrocarbon"


def test_predict_with_labels(run: Run, model: Path, tmp_path: Path) -> None:
    """Labels are matched by name: here they would be numbered the other way round."""
    new = tmp_path / "new.csv"
    new.write_text("smiles,label\nCCCCCCCCCCCCCC,hydrocarbon\nCCCCCCCCCCCCCCC,hydrocarbon\nCCCCCCCCCCCCCCO,alcohol\n")
    _, out, _ = run("predict", model, new, "--json")
    assert json.loads(out)["accuracy"] == 100
    new.write_text("smiles,label\nCCCCCCCCCCCCCC,alkane\nCCCCCCCCCCCCCCO,alcohol\n")
    code, out, err = run("predict", model, new)
    assert code == 0
    assert "classes that the model does not know" in err


def test_training_that_diverges_saves_nothing(run: Run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    code, _, err = run("train", table, "--norm", "none", "--all", "--out", out, *FAST, "--lr", "1e30")
    assert code == 2
    assert "the training diverged; nothing is saved. Remedy: try a smaller --lr" in err
    assert not out.exists()


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["train", "mine.csv", "--out", "m.pt"], "a model is a .safetensors file"),
        (["train", "mine.csv", "--out", "m.safetensors", "--norm", "grpah"], "did you mean 'graph'"),
        (["train", "mine.csv", "--out", "m.safetensors", "--fold", "10"], "no fold 10 of 10"),
        (["train", "mine.csv", "--out", "m.safetensors", "--folds", "13"], "too few for 13 folds"),
        (["train", "mine.csv", "--out", "mine.csv/m.safetensors"], "mine.csv"),
        (["train", "mine.csv", "--out", "m.safetensors", "--device", "gpu"], "no device 'gpu'"),
        (["predict", "model.safetensors", "mine.csv", "--device", "gpu"], "no device 'gpu'"),
        (["predict", "absent.safetensors", "mine.csv"], "absent.safetensors: there is no such file"),
        (["predict", "mine.csv", "mine.csv"], "mine.csv: the file cannot be read"),
        (["predict", "packed.safetensors", "mine.csv"], "a file that `graphnorm train` wrote"),
        (["predict", "model.safetensors", "absent.csv"], "no such file"),
        (["predict", "model.safetensors", "synthetic:trees"], r"features do not fit: trained on mine with categories"),
    ],
)
def test_mistakes(
    run: Run,
    table: Path,
    model: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(tmp_path)
    for file in (table, model):
        shutil.copy(file, file.name)
    save_packed(load("synthetic:regular"), Path("packed.safetensors"))
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("graphnorm: ")
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert sorted(p.name for p in tmp_path.iterdir()) == before
