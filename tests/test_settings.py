"""Options: declared once; the parsers, the signatures, the help and grid files follow."""

from __future__ import annotations

import argparse
import inspect
import re
from collections import Counter
from pathlib import Path
from typing import Any

import pytest

import graphnorm
from graphnorm import cli
from graphnorm.commands.train import EPOCHS
from graphnorm.errors import GraphnormError, StudyError
from graphnorm.models import BASELINES, NORMALIZED
from graphnorm.settings import (
    DEFAULT_NORMS,
    GRIDS,
    QUICK_EPOCHS,
    Hyperparameters,
    Loading,
    Running,
    Settings,
    find_grid,
    options_of,
)
from graphnorm.study import PROTOCOLS

OPTIONS = options_of(Settings, Running, Loading)


def flags(command: str) -> dict[str, argparse.Action]:
    """The options of a command, by the names that they have as keywords."""
    parser = cli.make_parser(command)
    (subparsers,) = [action for action in parser._actions if isinstance(action, argparse._SubParsersAction)]
    return {action.dest: action for action in subparsers.choices[command]._actions}


@pytest.mark.parametrize("name", OPTIONS)
def test_every_option_is_everywhere(name: str) -> None:
    for command in ("compare", "search"):
        action = flags(command)[name]
        assert action.option_strings == ["--" + name.replace("_", "-")]
        assert action.help == OPTIONS[name].help
        assert action.default is None  # the default may depend on the data
        function = getattr(graphnorm, command)
        assert name in inspect.signature(function).parameters
        assert f"{name}: {OPTIONS[name].help}." in function.__doc__


@pytest.mark.parametrize("name", OPTIONS)
def test_every_default_passes_its_own_check(name: str) -> None:
    about = OPTIONS[name]
    if about.default is not None:
        assert about.check(name, about.default) == about.default


def test_the_help_tells_the_defaults() -> None:
    shares = {"cpus_per_worker": 1.0, "gpus_per_worker": 0.0}  # None, so that the engine local can refuse them
    told = {name: float(n) for name, about in OPTIONS.items() for n in re.findall(r"default: ([\d.]+)\b", about.help)}
    assert len(told) > 10
    assert told == {name: OPTIONS[name].default for name in told} | shares
    assert f"compare {QUICK_EPOCHS}, train {EPOCHS}" in OPTIONS["epochs"].help
    assert f"default: {','.join(DEFAULT_NORMS)}" in OPTIONS["norms"].help


def test_the_help_names_what_there_is() -> None:
    def words(text: str) -> set[str]:
        return set(re.findall(r"[A-Za-z]+(?:[-:][A-Za-z]+)*", text))

    assert set(NORMALIZED) <= words(OPTIONS["model"].help)
    named = OPTIONS["baselines"].help.partition(":")[2]
    assert words(named) <= set(BASELINES)
    assert set(PROTOCOLS) <= words(OPTIONS["protocol"].help)
    grids = re.findall(r"(\w+) \((\d+)", flags("search")["grid"].help or "")
    assert {name: int(size) for name, size in grids} == {name: len(grid) for name, grid in GRIDS.items()}
    for name in ("engine", "readout"):
        assert set(OPTIONS[name].choices) <= words(OPTIONS[name].help)


@pytest.mark.parametrize(
    ("name", "given", "value"),
    [
        ("epochs", 4.0, 4),
        ("lr", 1, 1.0),
        ("self_loops", True, True),
        ("norms", "batch, graph,batch", ("batch", "graph")),
        ("norms", ["batch", "graph"], ("batch", "graph")),
        ("tensorboard", Path("runs"), "runs"),
        ("checkpoint", "5m", 300.0),
        ("checkpoint", 5, 5.0),
    ],
)
def test_values_take_the_type_of_the_option(name: str, given: Any, value: Any) -> None:
    found = OPTIONS[name].check(name, given)
    assert found == value
    assert type(found) is type(value)


@pytest.mark.parametrize(
    ("name", "wrong", "words"),
    [
        ("epochs", 0, "epochs is 0"),
        ("epochs", 1.5, "epochs is 1.5"),
        ("epochs", float("inf"), "epochs is inf"),
        ("batch_size", -1, "batch_size is -1"),
        ("layers", 1, "layers is 1"),
        ("lr", 0, "lr is 0"),
        ("lr", float("nan"), "lr is nan"),
        ("dropout", 1.0, "dropout is 1"),
        ("weight_decay", -1.0, "weight_decay is -1"),
        ("readout", "max", "unknown readout"),
        ("workers", 0, "workers is 0"),
        ("engine", "rya", "did you mean 'ray'"),
        ("metric", "AUROC", "did you mean 'roc-auc'"),
        ("epochs", 10**20, "epochs is 1000"),
        ("hidden", 10**400, "hidden is 1000"),
        ("lr", 10**400, "lr is 1000"),
        ("model", "", "model is empty"),
        ("readout", "", "readout is empty"),
        ("checkpoint", "-5m", "no time"),
        ("checkpoint", "9" * 30, "no time"),
    ],
)
def test_values_that_do_not_fit(name: str, wrong: Any, words: str) -> None:
    with pytest.raises(GraphnormError, match=words) as caught:
        OPTIONS[name].check(name, wrong)
    assert caught.value.remedy


@pytest.mark.parametrize("name", OPTIONS)
def test_numbers_are_bounded(name: str) -> None:
    about = OPTIONS[name]
    assert about.kind not in (int, float) or about.high < float("inf")


# Grids


def test_the_papers_grid() -> None:
    configurations = GRIDS["paper"].configurations()
    assert len(configurations) == len(GRIDS["paper"]) == 60
    assert {c["lr"] for c in configurations} == {1e-4, 1e-3, 1e-2}
    assert {c["weight_decay"] for c in configurations} == {0, 5e-5, 5e-4, 5e-3, 5e-2}
    assert Counter(c["batch_size"] for c in configurations) == {64: 30, 128: 30}
    assert Counter(c["dropout"] for c in configurations) == {0.0: 30, 0.5: 30}
    assert {c["epochs"] for c in configurations} == {400}


def test_the_setting_of_the_curves_is_the_default() -> None:
    (curves,) = GRIDS["curves"].configurations()
    assert curves == {name: options_of(Hyperparameters)[name].default for name in curves}


def test_a_grid_file(tmp_path: Path) -> None:
    path = tmp_path / "mine.toml"
    path.write_text('lr = [1e-3, 1]\nepochs = 7\nreadout = ["sum", "mean"]\nself_loops = true\n')
    grid = find_grid(str(path))
    assert grid.name == "mine"
    assert grid.configurations()[0] == {"lr": 1e-3, "epochs": 7, "readout": "sum", "self_loops": True}
    assert len(grid) == 4
    assert isinstance(grid.axes["lr"][1], float)
    assert grid.fixed(epochs=3).configurations()[3]["epochs"] == 3
    assert find_grid(grid) is grid


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("lr = [1e-3\nlr", "not TOML: .*line 2"),
        ("learning_rate = 1", "unknown setting"),
        ("droupout = 0.5", "did you mean 'dropout'"),
        ("fold = [1, 2]", "unknown setting"),
        ("lr = []", "lr has no value"),
        ("lr = [0.1, 0.1]", "a value twice"),
        ("lr = [1, 1.0]", "a value twice"),
        ("lr = 'high'", "must be a number"),
        ("lr = -1", "lr is -1"),
        ("lr = nan", "lr is nan"),
        ("batch_size = 64.5", "batch_size is 64.5"),
        ("batch_size = true", "must be a number"),
        ("self_loops = 1", "must be True or False"),
        ("dropout = 1", "dropout is 1"),
        ("readout = 'max'", "unknown readout"),
        ("[lr]\na = 1", "must be a number"),
        ("lr = " + "[" * 10_000, "not TOML"),
        *[("\n".join(f"{name} = {list(range(2, 50))}" for name in ("epochs", "hidden", "layers")), "110,592 conf")],
        ("", "empty"),
    ],
)
def test_wrong_grid_files(tmp_path: Path, text: str, words: str) -> None:
    path = tmp_path / "mine.toml"
    path.write_text(text)
    with pytest.raises(StudyError, match=words) as caught:
        find_grid(path)
    assert caught.value.where == path
    assert caught.value.remedy


def test_a_grid_that_is_not_there(tmp_path: Path) -> None:
    for name, words in (("papper", "name paper, curves, quick"), (tmp_path / "absent.toml", "no such file")):
        with pytest.raises(StudyError, match=words):
            find_grid(name)
