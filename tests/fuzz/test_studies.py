"""Stores, results, grids, options and models: damaged, edited by hand, or made up."""

from __future__ import annotations

import contextlib
import copy
import io
import json
import shutil
import sqlite3
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from safetensors import safe_open
from safetensors.torch import save_file
from tests.fakes import fill
from tests.fuzz.promises import answer_or_refusal, damaged

from graphnorm import cli
from graphnorm.commands.options import study_keywords
from graphnorm.data import load
from graphnorm.errors import CONTROL, GraphnormError
from graphnorm.settings import Grid, Loading, Running, Settings, find_grid, options_of
from graphnorm.study import Result, Store, load_result, make_plan, read, settle
from graphnorm.study.folds import make_splits
from graphnorm.study.runner import make_running
from graphnorm.training import Fleet, Trial
from graphnorm.training.model_file import SavedModel, load_model, save_model

TREES = load("synthetic:trees")
GRID = b'lr = [1e-3, 1e-2]\nepochs = 200\nreadout = ["sum", "mean"]\nself_loops = true\nbatch_size = [64, 128]\n'
SMALL = Grid("small", {"epochs": (4,), "lr": (0.1, 0.01)})

json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5) | st.just("graph"),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=6,
)


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder that all examples write to."""
    return tmp_path_factory.mktemp("studies")


@pytest.fixture(scope="module")
def store(place: Path) -> Path:
    """Two studies: a normal one, and a nested one that is not finished."""
    with Store(place / "whole.db") as store:
        for protocol, share in (("paper", 1.0), ("fair", 0.5)):
            settings = Settings(norms=("batch", "graph"), protocol=protocol, folds=2, seeds=2)
            plan = make_plan(TREES, settings, SMALL)
            fill(store, plan, lambda trial, share=share: trial.fold < 2 * share)
    return place / "whole.db"


READING = (
    ["runs"],
    ["runs", "--json"],
    ["runs", "show", "synthetic:trees-gin-small-fair"],
    ["runs", "show", "--json", "synthetic:trees-gin-small-paper"],
    ["runs", "export", "--curves"],
)


def a_command_answers(data: st.DataObject, path: Path) -> None:
    """Any command that reads a store prints something, or one message and exits with 2."""
    command = data.draw(st.sampled_from(READING))
    table = [str(path.parent / "table.csv")] if "export" in command else []
    code, err = ask([*command, *table, "--store", str(path)])
    assert code == 0 or (code == 2 and err.startswith("graphnorm: ") and len(err.splitlines()) == 1), err


def ask(arguments: list[str]) -> tuple[int, str]:
    """The exit code and the messages of a command; these hold nothing that a terminal would obey."""
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        code = answer_or_refusal(cli.main, arguments)
    assert isinstance(code, int)
    assert not CONTROL.search(err.getvalue().replace("\n", "")), err.getvalue()
    return code, err.getvalue()


@given(data=st.data())
def test_damaged_stores(store: Path, data: st.DataObject) -> None:
    path = store.with_name("damaged.db")
    path.write_bytes(data.draw(damaged(store.read_bytes())))
    a_command_answers(data, path)
    target = store.with_name("recovered.db")
    target.unlink(missing_ok=True)
    code, err = ask(["runs", "recover", str(path), str(target)])
    assert code == 0 or "nothing of a store can be read" in err, err
    assert target.exists() == (code == 0)
    if code == 0:
        a_command_answers(data, target)


EDITS = (
    ("studies", "spec"), ("studies", "name"), ("studies", "created"), ("configurations", "settings"),
    ("trials", "key"), ("trials", "fold"), ("trials", "seed"), ("trials", "configuration"), ("members", "fleet"),
    ("members", "dropped"), ("sessions", "code"), ("outcomes", "status"), ("outcomes", "epochs"),
    ("outcomes", "seconds"), ("outcomes", "device"), ("outcomes", "finished"), ("outcomes", "error"),
    ("outcomes", "best"), ("curves", "name"), ("curves", "data"),
)  # fmt: skip
sql_values = (
    st.none()
    | st.integers(-(2**63), 2**63 - 1)
    | st.floats(allow_nan=False)
    | st.text(max_size=6)
    | st.binary(max_size=40)
    | json_values.map(json.dumps)
)


@given(data=st.data())
def test_edited_stores(store: Path, data: st.DataObject) -> None:
    table, column = data.draw(st.sampled_from(EDITS))
    value, places = data.draw(sql_values), data.draw(st.sampled_from(("1", "trial % 3 = 0", "id = 1")))
    path = store.with_name("edited.db")
    shutil.copyfile(store, path)
    with closing(sqlite3.connect(path)) as connection, contextlib.suppress(sqlite3.Error, OverflowError):
        connection.execute("PRAGMA ignore_check_constraints = ON")
        connection.execute(f"UPDATE OR IGNORE {table} SET {column} = ? WHERE {places}", (value,))
        connection.commit()
    a_command_answers(data, path)
    if table == "studies" and column == "name" and CONTROL.search(str(value)) and places == "1":
        assert ask(["runs", "--store", str(path)])[0] == 2
    code, err = ask(["runs", "prune", "synthetic:trees-gin-small-paper", "--store", str(path)])
    assert code == 0 or (code == 2 and err.startswith("graphnorm: ")), err


@given(data=st.data())
def test_edited_specs(store: Path, data: st.DataObject) -> None:
    path = store.with_name("spec.db")
    shutil.copyfile(store, path)
    table, column = data.draw(st.sampled_from((("studies", "spec"), ("configurations", "settings"))))
    with closing(sqlite3.connect(path)) as connection:
        (text,) = connection.execute(f"SELECT {column} FROM {table} LIMIT 1").fetchone()
        connection.execute(f"UPDATE {table} SET {column} = ?", (json.dumps(edited(data, json.loads(text))),))
        connection.commit()
    a_command_answers(data, path)


def edited(data: st.DataObject, content: Any) -> Any:
    """The content with one value, anywhere in it, replaced or removed."""
    content = copy.deepcopy(content)
    parts = [(content, key) for key in content]
    for part, key in parts:
        inner = part[key]
        keys: Any = inner if isinstance(inner, dict) else range(len(inner)) if isinstance(inner, list) else ()
        parts += [(inner, k) for k in keys]
    part, key = data.draw(st.sampled_from(parts))
    if data.draw(st.booleans()):
        del part[key]
    else:
        part[key] = data.draw(json_values)
    return content


@pytest.fixture(scope="module")
def results(store: Path) -> list[Any]:
    with Store(store, writable=False) as opened:
        return [json.loads(json.dumps(read(opened, opened.plan(s)).to_dict())) for s in opened.studies()]


@given(data=st.data())
def test_edited_results(place: Path, results: list[Any], data: st.DataObject) -> None:
    content = edited(data, data.draw(st.sampled_from(results)))
    (place / "result.json").write_text(json.dumps(content))
    found = answer_or_refusal(load_result, place)
    if isinstance(found, Result):
        assert str(found)
        json.dumps(found.to_dict())
        found.to_frame()


@pytest.fixture(scope="module")
def model(place: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The description of a model, and its weights."""
    trial = Trial(dataset=TREES.name, hidden=4, layers=3, epochs=1, folds=2, fingerprint=TREES.fingerprint)
    fleet = Fleet(TREES, [trial], make_splits(TREES, [trial]), device="cpu")
    fleet.advance()
    save_model(fleet.outcomes(keep_state=True)[0], TREES, place / "model.safetensors")
    with safe_open(place / "model.safetensors", "pt") as file:
        return json.loads(file.metadata()["graphnorm"]), {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118


@given(data=st.data())
@pytest.mark.filterwarnings("ignore::graphnorm.data.DataWarning")
def test_edited_models(place: Path, model: tuple[dict[str, Any], dict[str, torch.Tensor]], data: st.DataObject) -> None:
    """Whatever a description says, no more memory is taken than its weights need."""
    about, weights = copy.deepcopy(model[0]), dict(model[1])
    if data.draw(st.booleans()):
        about = edited(data, about)
    else:
        part, sizes = data.draw(st.sampled_from((about, about["trial"]))), st.sampled_from((0, -1, 2**12, 2**31, 2**62))
        part[data.draw(st.sampled_from(sorted(part)))] = data.draw(sizes | st.lists(sizes, max_size=3))
    if data.draw(st.booleans()):
        name = data.draw(st.sampled_from(sorted(weights)))
        kind = data.draw(st.sampled_from((torch.float64, torch.int64, torch.complex64, None)))
        weights[name] = weights[name].reshape(-1)[:-1] if kind is None else weights[name].to(kind)
    path = place / "edited.safetensors"
    save_file(weights, path, {"graphnorm": json.dumps(about)})
    found = answer_or_refusal(load_model, path)
    if isinstance(found, SavedModel) and not isinstance(answer_or_refusal(found.check, TREES), GraphnormError):
        assert found.predict(TREES).shape == (TREES.num_graphs, len(found.classes))


@given(damaged(b'{"format": "graphnorm-result-1", "spec": {"protocol": "paper"}, "norms": {"graph": {}}}'))
def test_other_text_as_a_result(place: Path, content: bytes) -> None:
    (place / "result.json").write_bytes(content)
    assert isinstance(answer_or_refusal(load_result, place), GraphnormError)


@given(damaged(GRID) | st.text(max_size=60).map(str.encode))
def test_grids(place: Path, content: bytes) -> None:
    path = place / "grid.toml"
    path.write_bytes(content)
    grid = answer_or_refusal(find_grid, path)
    if isinstance(grid, Grid):
        assert grid.configurations()


words = st.sampled_from(
    (
        "",
        "0",
        "1",
        "-1",
        "1.5",
        "nan",
        "inf",
        "1e400",
        "9" * 20,
        "9" * 5000,
        "graph",
        "fair",
        "gcn",
        "5m",
        "a,b",
        ",",
        "é\0",
    )
)


@given(name=st.sampled_from(sorted(options_of(Settings, Running, Loading))), word=words | st.text(max_size=8))
def test_options(name: str, word: str) -> None:
    def settled() -> Settings:
        options = cli.make_parser("compare").parse_args(["compare", f"--{name.replace('_', '-')}={word}"])
        keywords = study_keywords(options)
        make_running(**{key: value for key, value in keywords.items() if key in options_of(Running)})
        return settle(TREES, **{key: value for key, value in keywords.items() if key in options_of(Settings)})

    answer_or_refusal(settled)
