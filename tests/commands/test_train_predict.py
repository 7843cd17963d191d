"""``graphnorm train`` and ``graphnorm predict``: a model is kept, used again, and refused where it does not fit."""

from __future__ import annotations

import csv
import io
import json
import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphnorm import cli
from graphnorm.data import load, save_packed
from graphnorm.layers import REGISTRY
from graphnorm.training.model_file import load_model

pytest.importorskip("rdkit")
safetensors = pytest.importorskip("safetensors.torch")

Run = Callable[..., tuple[int, str, str]]
FAST = (
    *("--epochs", "80", "--hidden", "16", "--layers", "3", "--batch-size", "24", "--lr", "0.03"),
    *("--dropout", "0", "--device", "cpu"),
)
QUICK = (*FAST, "--epochs", "1")


@pytest.fixture(scope="module")
def model(table: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A model that tells alcohols from hydrocarbons."""
    path = tmp_path_factory.mktemp("model") / "model.safetensors"
    assert cli.main(["train", str(table), "--all", "--out", str(path), *FAST]) == 0
    return path


def predict(run: Run, model: Path, data: object, *more: str) -> dict[str, Any]:
    code, out, err = run("predict", model, data, "--json", *more)
    assert code == 0, err
    return json.loads(out)


def test_the_column_of_smiles_is_that_of_the_training(run: Run, table: Path, tmp_path: Path) -> None:
    text = table.read_text().replace("smiles", "structure", 1)
    (tmp_path / "mine.csv").write_text(text)
    (tmp_path / "new.csv").write_text("id,structure\n7,CCO\n")
    model = tmp_path / "m.safetensors"
    assert run("train", tmp_path / "mine.csv", "--smiles", "structure", "--all", "--out", model, *QUICK)[0] == 0
    assert [row["smiles"] for row in predict(run, model, tmp_path / "new.csv")["predictions"]] == ["CCO"]
    assert load_model(model).predict(tmp_path / "new.csv", smiles="structure").shape == (1, 2)


def test_an_index_without_a_name_is_no_column_of_the_training(run: Run, table: Path, tmp_path: Path) -> None:
    """A model that was not trained on a table has no names of columns."""
    save_packed(replace(load(table), smiles_column="", label_column=""), tmp_path / "packed.safetensors")
    (tmp_path / "new.csv").write_text(",smiles\n7,CCO\n")
    model = tmp_path / "m.safetensors"
    assert run("train", tmp_path / "packed.safetensors", "--all", "--out", model, *QUICK)[0] == 0
    assert [row["smiles"] for row in predict(run, model, tmp_path / "new.csv")["predictions"]] == ["CCO"]


def test_train_says_how_good_it_is(run: Run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "deep" / "m.safetensors"
    code, text, _ = run(
        "train", table, "--norm", "batch", "--folds", "4", "--fold", "1", "--out", out, "--json", *QUICK
    )
    assert code == 0
    facts = json.loads(text)
    assert (facts["norm"], facts["metric"]) == ("batch", "accuracy")
    assert 0 <= facts["trained on"] <= 100
    assert 0 <= facts["held out"] <= 100
    assert [path.name for path in out.parent.iterdir()] == ["m.safetensors"]
    code, text, _ = run("train", table, "--folds", "4", "--out", out, *QUICK)
    assert code == 0
    assert re.search(r"held out +6 graphs, accuracy \d+\.\d %", text)


def test_a_killed_training_goes_on(table: Path, tmp_path: Path, run: Run, slow_epochs: dict[str, str]) -> None:
    """The weights are those of an undisturbed one, to the bit."""
    command = ("train", str(table), "--all", *FAST, "--epochs", "20", "--checkpoint", "0")
    assert run(*command, "--out", tmp_path / "calm.safetensors")[0] == 0
    killed = tmp_path / "killed.safetensors"
    with subprocess.Popen(
        [sys.executable, "-m", "graphnorm", *command, "--out", killed],
        env=slow_epochs,
        stdout=subprocess.DEVNULL,
        stderr=subprocess.DEVNULL,
    ) as process:
        while not list(tmp_path.rglob("*.checkpoint")):
            assert process.poll() is None
            time.sleep(0.01)
        process.kill()
    assert not killed.exists()
    code, _, err = run(*command, "--out", killed)
    assert code == 0, err
    files = [safetensors.load_file(path) for path in (tmp_path / "calm.safetensors", killed)]
    assert all(torch.equal(files[0][name], files[1][name]) for name in files[0])
    assert {path.name for path in tmp_path.iterdir()} == {"calm.safetensors", "killed.safetensors"}


def test_predict_own_training_data(run: Run, model: Path, table: Path, tmp_path: Path) -> None:
    code, text, err = run("predict", model, table)
    assert code == 0
    rows = list(csv.DictReader(io.StringIO(text)))
    assert len(rows) == 24
    assert list(rows[0]) == ["graph", "smiles", "class", "probability", "P(alcohol)", "P(hydrocarbon)", "label"]
    right = sum(row["class"] == row["label"] for row in rows)
    assert right >= 22  # it was trained on them
    assert all(0.5 <= float(row["probability"]) <= 1 for row in rows)
    assert re.search(rf"accuracy: {100 * right / 24:.4g}[\d.]* %", err)
    assert "was trained on these graphs" in err
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
    assert re.search("no accuracy: the data has no labels$", err)
    content = predict(run, model, new)
    assert content["graphs"] == 2
    assert content["predictions"][1]["class"] == "hydrocarbon"


def test_predict_with_labels(run: Run, model: Path, tmp_path: Path) -> None:
    """Labels are matched by name: here they would be numbered the other way round."""
    new = tmp_path / "new.csv"
    new.write_text("smiles,label\nCCCCCCCCCCCCCC,hydrocarbon\nCCCCCCCCCCCCCCC,hydrocarbon\nCCCCCCCCCCCCCCO,alcohol\n")
    assert predict(run, model, new)["accuracy"] == 100
    new.write_text("smiles,label\nCCCCCCCCCCCCCC,alkane\nCCCCCCCCCCCCCCO,alcohol\n")
    code, _, err = run("predict", model, new)
    assert code == 0
    assert "no accuracy" in err
    assert "'alkane'" in err
    new.write_text("smiles,label\nCCCCCCCCCCCCCCO,alcohol\nCCCCCCCCCCCCCCCO,alcohol\n")  # of one class only
    assert predict(run, model, new)["accuracy"] == 100
    new.write_text("smiles,label\nCCCCCCCCCCCCCCO,alcohol\nCCCCCCCCCCCCCCCO,\n")
    content = predict(run, model, new)
    assert content["accuracy"] == 100  # of those that have a label
    assert [row["label"] for row in content["predictions"]] == ["alcohol", None]
    assert [row["class"] for row in content["predictions"]] == ["alcohol", "alcohol"]


@pytest.mark.parametrize("labels", [("", ""), (",label", ",alcohol", ",hydrocarbon")])
def test_predictions_name_the_rows_of_the_table(run: Run, model: Path, tmp_path: Path, labels: tuple[str, ...]) -> None:
    """Rows count from 0, whether or not some of them cannot be read."""
    title, *values = labels
    lines = [f"{text}{values[g % len(values)]}" for g, text in enumerate(["CCCCCCO", "CCCCCC", "CCCCCCCCO", "CCC"])]
    path = tmp_path / "t.csv"
    path.write_text("\n".join([f"smiles{title}", *lines]))
    whole = list(csv.DictReader(io.StringIO(run("predict", model, path)[1])))
    assert [row["graph"] for row in whole] == ["0", "1", "2", "3"]
    lines[1] = f"C({values[1 % len(values)]}"
    path.write_text("\n".join([f"smiles{title}", *lines]))
    assert "1 of 4 SMILES cannot be read" in run("predict", model, path, "--skip-invalid")[2]
    rows = predict(run, model, path, "--skip-invalid")["predictions"]
    assert [(row["graph"], row["smiles"]) for row in rows] == [(0, "CCCCCCO"), (2, "CCCCCCCCO"), (3, "CCC")]
    assert [row["class"] for row in rows] == [whole[g]["class"] for g in (0, 2, 3)]


def test_graphs_that_are_no_molecules_have_no_smiles(run: Run, tmp_path: Path) -> None:
    model = tmp_path / "m.safetensors"
    assert run("train", "synthetic:trees", "--all", "--out", model, *QUICK)[0] == 0
    predictions = predict(run, model, "synthetic:trees")["predictions"]
    assert list(predictions[0]) == ["graph", "class", "probability", "P(even)", "P(hubs)", "label"]
    assert [row["graph"] for row in predictions] == list(range(400))


def test_labels_are_read_as_in_training(run: Run, tmp_path: Path) -> None:
    """The column and the threshold are the model's, where the command does not name others."""
    mine, model = tmp_path / "mine.csv", tmp_path / "m.safetensors"
    mine.write_text("smiles,solubility\n" + "".join(f"{'C' * n}O,{n + 0.123456789}\n" for n in range(1, 25)))
    trained = json.loads(run("train", mine, "--threshold", "median", "--out", model, *QUICK, "--json")[1])
    facts = predict(run, model, mine)
    assert {row["label"] for row in facts["predictions"]} == {"not above 12.6235", "above 12.6235"}
    assert f"fold 0 of 10, which was held out, it has accuracy {trained['held out']:.1f} %" in facts["note"]
    others = tmp_path / "others.csv"
    others.write_text("smiles,kind,solubility\nCO,a,12.6234\nCCO,b,12.6236\nCCCO,a,50\n")
    predictions = predict(run, model, others)["predictions"]
    assert [row["label"] for row in predictions] == ["not above 12.6235", "above 12.6235", "above 12.6235"]
    _, _, err = run("predict", model, others, "--threshold", "median")
    assert "'not above 12.6236', 'above 12.6236'" in err
    others.write_text("smiles,kind\nCO,a\nCCO,b\n")
    assert re.search("no accuracy: the data has no labels$", run("predict", model, others)[2])


def test_numbers_are_the_same_class_however_written(run: Run, tmp_path: Path) -> None:
    mine, model = tmp_path / "mine.csv", tmp_path / "m.safetensors"
    mine.write_text("smiles,hit\n" + "".join(f"{'C' * n}O,1\n{'C' * n},0\n" for n in range(1, 13)))
    assert run("train", mine, "--all", "--out", model, *QUICK)[0] == 0
    mine.write_text(mine.read_text().replace(",1", ",1.0").replace(",0", ",0.0"))
    facts = predict(run, model, mine)
    assert [row["label"] for row in facts["predictions"]] == ["1", "0"] * 12
    assert "accuracy" in facts


def test_a_model_that_cannot_be_written_is_not_trained(
    run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphnorm.study.api.train_missing", lambda *_, **__: pytest.fail("it was trained"))
    folder = tmp_path / "folder.safetensors"
    folder.mkdir()
    places = [(folder, folder), (table / "m.safetensors", table)]
    if sys.platform == "linux":  # where nobody may write
        places.append((Path("/proc/m.safetensors"), Path("/proc")))
    for place, named in places:
        code, _, err = run("train", table, "--out", place)
        assert code == 2
        assert err.startswith(f"graphnorm: {named}: this ")
        assert "Remedy: " in err


def test_training_that_diverges_saves_nothing(run: Run, table: Path, tmp_path: Path) -> None:
    out = tmp_path / "m.safetensors"
    code, _, err = run("train", table, "--norm", "none", "--all", "--out", out, *FAST, "--lr", "1e6", "--epochs", "3")
    assert code == 2
    assert "a smaller --lr" in err
    assert not list(tmp_path.iterdir())


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
        (["predict", ".", "mine.csv"], "this is a folder.*make it with `graphnorm train`"),
        (["predict", "absent.safetensors", "mine.csv"], "absent.safetensors: there is no such file"),
        (["train", "one.csv", "--out", "m.safetensors"], "'b' has 1 graph, too few"),
        (["train", "mine.csv", "--out", "m.safetensors", "--seed", "-1"], "the seed is -1"),
        (["train", "mine.csv", "--out", "m.safetensors", "--seed", str(2**63)], "the seed is 9223372036854775808"),
        (["predict", "mine.csv", "mine.csv"], "mine.csv: this is not a model file"),
        (["predict", "packed.safetensors", "mine.csv"], "a file that `graphnorm train` wrote"),
        (["predict", "model.safetensors", "absent.csv"], "no such file"),
        (["predict", "model.safetensors", "synthetic:trees"], "features do not fit"),
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
    Path("one.csv").write_text("smiles,label\nCO,a\nCCO,a\nCC,b\n")
    before = sorted(p.name for p in tmp_path.iterdir())
    code, out, err = run(*arguments)
    assert (code, out) == (2, "")
    assert err.startswith("graphnorm: ")
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert sorted(p.name for p in tmp_path.iterdir()) == before


MY_NORMS = """
import torch

class Gain(torch.nn.Module):
    def __init__(self, channels):
        super().__init__()
        self.gain = torch.nn.Parameter(torch.ones(channels))

    def forward(self, x):
        return x * self.gain

class Failing(Gain):
    def forward(self, x):
        raise RuntimeError("not today")
"""


@pytest.fixture
def my_norms(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Iterator[None]:
    """A module of normalizations in the current folder, of which nothing is left afterwards."""
    (tmp_path / "my_norms.py").write_text(MY_NORMS)
    monkeypatch.chdir(tmp_path)
    yield
    sys.modules.pop("my_norms", None)


def test_a_normalization_of_ones_own(run: Run, table: Path, my_norms: None) -> None:
    mine = ("--norm-module", "mine=my_norms.py:Gain")
    code, out, _ = run("train", table, "--all", *mine, "--out", "m.safetensors", "--json", *FAST)
    assert code == 0
    assert json.loads(out)["norm"] == "mine"
    del REGISTRY["mine"]  # as in a new process
    code, out, err = run("predict", "m.safetensors", table)
    assert (code, out) == (2, "")
    assert len(err.splitlines()) == 1
    assert "--norm-module mine=my_norms.py:Gain" in err
    code, _, err = run("predict", "m.safetensors", table, "--norm-module", "mine=torch.nn:LayerNorm")
    assert code == 2
    assert "the weights are not those" in err
    code, out, err = run("predict", "m.safetensors", table, *mine)
    assert code == 0
    right = sum(row["class"] == row["label"] for row in csv.DictReader(io.StringIO(out)))
    assert right >= 22  # it was trained on them


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["--norm", "batch", "--norm-module", "mine=my_norms.py:Gain"], "one normalization, not mine and batch"),
        (["--norm-module", "mine=my_norms.py:Failing"], "raised RuntimeError: not today"),
        (["--norm-module", "mine=my_norms"], "write NAME=FILE.py:FACTORY"),
    ],
)
def test_normalizations_of_ones_own_that_are_refused(
    run: Run, table: Path, my_norms: None, arguments: list[str], message: str
) -> None:
    code, out, err = run("train", table, *arguments, "--out", "m.safetensors", *FAST)
    assert (code, out) == (2, "")
    assert message in err
    assert not Path("m.safetensors").exists()


def test_a_model_of_ones_own(run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("torch_geometric", exc_type=ImportError)
    monkeypatch.chdir(tmp_path)
    source = (Path(__file__).parents[1] / "training" / "own_model.py").read_text()
    Path("net.py").write_text(source)
    fast = ("--epochs", "4", "--hidden", "8", "--device", "cpu")
    code, out, err = run("train", table, "--all", "--model", "net.py:OwnGIN", "--out", "m.safetensors", "--json", *fast)
    assert (code, json.loads(out)["dataset"]) == (0, "mine"), err
    code, out, whole = run("predict", "m.safetensors", table, "--model", "net.py:OwnGIN")
    assert (code, len(out.splitlines())) == (0, 25)
    Path("net.py").write_text(source + "# edited\n")
    code, again, err = run("predict", "m.safetensors", table, "--model", "net.py:OwnGIN")
    assert (code, again) == (0, out)
    assert "was trained with net.py:OwnGIN@" in err
    assert "its weights fit and are used all the same" in err
    Path("renamed.py").write_text(source)
    assert run("predict", "m.safetensors", table, "--model", "renamed.py:OwnGIN") == (0, out, whole)
    assert "was trained with" not in whole
    Path("net.py").write_text(
        source.replace("widths = [in_features, hidden, hidden]", "widths = [in_features, hidden]")
    )
    code, _, err = run("predict", "m.safetensors", table, "--model", "net.py:OwnGIN")
    assert (code, "the weights are not those of the model" in err) == (2, True)
    assert "used all the same" not in err
    code, _, err = run("predict", "m.safetensors", table, "--model", "gin")
    assert code == 2
    assert "the weights are not those of the model gin: the file was trained with net.py:OwnGIN" in err
    assert "Remedy: give its code: --model FILE.py:OwnGIN" in err


def test_a_model_of_ones_own_that_ends_python_has_not_predicted(
    run: Run, table: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(f"ENDS = False\n{ENDS}")
    fast = ("--epochs", "1", "--device", "cpu")
    assert run("train", table, "--all", "--model", "net.py:Net", "--out", "m.safetensors", *fast)[0] == 0
    Path("net.py").write_text(f"ENDS = True\n{ENDS}")
    code, out, err = run("predict", "m.safetensors", table, "--model", "net.py:Net")
    assert (code, out) == (2, "")
    assert "your own code ended Python (SystemExit: 0)" in err


ENDS = """
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__()
        self.norm, self.head = norm(in_features), nn.Linear(in_features, num_outputs)

    def forward(self, x, edge_index, batch, batch_size):
        x = self.norm(x, batch, batch_size)
        if ENDS:
            raise SystemExit(0)
        return self.head(x.new_zeros(batch_size, x.shape[1]).index_add(0, batch, x))
"""

FAILING = """
from torch import nn

class Net(nn.Module):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__()
        self.head = nn.Linear(in_features + 1, num_outputs)

    def forward(self, x, edge_index, batch):
        return self.head(x)
"""


def test_a_model_that_fails_leaves_nothing(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    Path("net.py").write_text(FAILING)
    code, out, err = run("compare", "synthetic:trees", "--model", "net.py:Net", "--out", "there")
    assert (code, out) == (2, "")
    assert re.match(
        r"graphnorm: .*net.py:10: the model net.py:Net@\w{8} fails on two graphs .* RuntimeError: mat1", err
    )
    assert len(err.splitlines()) == 1
    assert not Path("there").exists()
