"""``graphnorm reproduce``: what it trains, writes and refuses."""

from __future__ import annotations

import errno
import json
import os
import re
import signal
import subprocess
import sys
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO, Any

import pytest

import graphnorm
from fakes import FakeFleet, scattered
from graphnorm.cli import main
from graphnorm.data import synthetic
from graphnorm.paper import figures
from graphnorm.paper.item import CURVES, QUICK, AlphaRuns, ImageRuns, Item, NoiseRuns, Trainings, is_quick
from graphnorm.paper.items import ITEMS
from graphnorm.paper.output import QUICK_NOTE
from graphnorm.paper.reproduce import Reproduction
from graphnorm.study.store import Store

Run = Callable[..., tuple[int, str, str]]
TREES = "synthetic:trees"
SMALL = Trainings(datasets=(TREES,), norms=("batch", "graph"), hidden=8, folds=2, grid=CURVES.fixed(epochs=2))
HERE = ("--device", "cpu", "--workers", "1")


@pytest.fixture
def items(monkeypatch: pytest.MonkeyPatch, tmp_path: Path, fleets: type[FakeFleet]) -> dict[str, Item]:
    """Every item is small and trained in no time, and nothing is written but here."""
    noise = NoiseRuns(datasets=(TREES,), batch_sizes=(8, 16), epochs=2, seeds=1)
    small: dict[type, Any] = {NoiseRuns: noise, AlphaRuns: AlphaRuns((TREES,), 2)}
    for name, item in ITEMS.items():
        changes: dict[str, Any] = {"parts": (SMALL,), "make": figures.curves, "graphs": ()}
        if not item.trained:
            parts = tuple(small[type(part)] for part in item.parts if not isinstance(part, ImageRuns))
            changes = {"parts": parts, "graphs": item.graphs and (TREES,)}
        monkeypatch.setitem(ITEMS, name, replace(item, caption=name, claims=(), **changes))
    monkeypatch.chdir(tmp_path)
    return ITEMS


@pytest.fixture
def reproduce(run: Run, items: dict[str, Item]) -> Run:
    """The command, with small items."""
    return lambda *arguments: run("reproduce", *arguments)


def read(path: str | Path) -> Any:
    return json.loads(Path(path).read_text(encoding="utf-8"))


def test_the_help_names_the_items(capsys: pytest.CaptureFixture[str]) -> None:
    """With what they are, in their order."""
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    listed = capsys.readouterr().out.partition("or all:\n\n")[2].split("\n\n")[0].splitlines()
    names, about = zip(*(re.split(r"\s{2,}", line.strip()) for line in listed), strict=True)
    assert list(names) == list(ITEMS)
    assert all(about)


OWN_NORM = "import torch\n\n\nclass Gain(torch.nn.LayerNorm):\n    pass\n"


def test_your_own_normalization_is_added(reproduce: Run, fleets: type[FakeFleet], tmp_path: Path) -> None:
    """To every comparison of the item; an item with it is not replaced by one without."""
    fleets.values = staticmethod(scattered)
    (tmp_path / "own.py").write_text(OWN_NORM)
    own = ("--norm-module", "mine=own.py:Gain")
    fig2 = ("fig2", *HERE, "--out", "all", "--json")
    assert reproduce(*fig2)[0] == 0
    assert reproduce(*fig2, *own)[::2] == (0, "")
    made = read("all/fig2.json")
    assert {curve["norm"] for curve in made["convergence"]} == {"batch", "graph", "mine"}
    assert (made["title"], made["narrowed"]) == ("fig2. Here: with mine added", {"more_norms": ["mine"]})
    code, _, err = reproduce(*fig2)
    assert code == 2
    assert "with other parts of it (with mine added); the item without these would take its place" in err
    (tmp_path / "own.py").write_text(f"{OWN_NORM}    eps = 1e-3\n")
    code, out, _ = reproduce(
        "fig2", *own, "--norms", "mine,graph", "--dry-run", "--json", "--store", "all/graphnorm.db"
    )
    assert (code, [row["to train"] for row in json.loads(out)]) == (0, [2])  # edited code is trained again
    code, _, err = reproduce("fig3", *own)
    assert code == 2
    assert "--norm-module does not apply to fig3" in err


# Plans


def test_a_dry_run_trains_nothing(reproduce: Run, tmp_path: Path) -> None:
    """And says what items share, and what is trained for none."""
    names = ("FIG2", "table1", "fig7", "fig10", "alpha")
    code, out, err = reproduce(*names, "--dry-run", "--json")
    assert (code, err) == (0, "")
    rows = [tuple(row.values()) for row in json.loads(out)]
    of_curves, of_noise = (TREES, "gin", "paper", 4, 4), (TREES, "gin", "all", 1, 1)
    assert rows == [
        ("fig2", *of_curves),
        ("table1", *of_curves),
        ("fig10", *of_noise),
        ("fig10", *of_noise),
        ("alpha", TREES, "gin", "all", 3, 3),
    ]
    code, out, _ = reproduce(*names, "--dry-run")
    table = [tuple(line.split()) for line in out.splitlines()]
    assert table[1:6] == [tuple(map(str, row)) for row in rows]
    assert table[6][-1] == "fig7"  # for which nothing is trained
    assert "9" in table[7]  # different trials
    assert list(tmp_path.iterdir()) == []


def test_what_is_left_of_items(reproduce: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ITEMS, "fig7", replace(ITEMS["fig7"], graphs=("synthetic:regular",)))
    code, out, err = reproduce("fig2", "fig7", "--datasets", TREES, "--dry-run", "--json")
    assert (code, {row["item"] for row in json.loads(out)}, err) == (0, {"fig2"}, "nothing is left of fig7\n")


def test_a_grid_is_not_for_molhiv(reproduce: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = replace(SMALL, protocols=("given",))
    for name in ("table2", "fig6"):
        monkeypatch.setitem(ITEMS, name, replace(ITEMS[name], parts=(*([SMALL] if name == "fig6" else ()), fixed)))
    monkeypatch.setattr(Reproduction, "plans", lambda *_, **__: ())
    code, _, err = reproduce("fig2", "table2", "fig6", "--grid", "quick", "--dry-run")
    assert (code, err.split()[-2:]) == (0, ["table2,", "fig6"])
    assert reproduce("fig2", "--grid", "quick", "--dry-run")[2] == ""


@pytest.mark.parametrize("quick", [True, False])
def test_studies_of_a_quick_pass_can_be_told_whatever_their_grid(
    reproduce: Run, monkeypatch: pytest.MonkeyPatch, quick: bool
) -> None:
    monkeypatch.setattr("graphnorm.paper.item.QUICK", replace(QUICK, datasets=(TREES,)))
    code, _, err = reproduce("fig2", "--grid", "curves", "--train-only", "--store", "a.db", *HERE, *["--quick"] * quick)
    assert code == 0, err
    with Store("a.db", writable=False) as store:
        (study,) = store.studies()
    assert is_quick(study.spec) is quick


# Items


def test_items_are_written(reproduce: Run, tmp_path: Path, fleets: type[FakeFleet]) -> None:
    """Items share what is trained."""
    code, out, err = reproduce("fig2", "table1", *HERE)
    assert code == 0
    assert out.splitlines()[0] == "fig2"
    assert "4 of 4 trials are done" in err
    assert (
        out.splitlines()[-1]
        == "written to reproduction: fig2.png, table1.png and claims.md to look at; the data beside them"
    )
    assert len(fleets.made) == 2  # one for each normalization
    names = {path.name for path in (tmp_path / "reproduction").iterdir()}
    assert names >= {"fig2.png", "fig2.svg", "fig2.csv", "fig2.json", "claims.md", "claims.json", "graphnorm.db"}
    code, out, err = reproduce("fig2", "--out", "again", "--store", "reproduction/graphnorm.db", "--json", *HERE)
    assert (code, err, len(fleets.made)) == (0, "", 2)
    written = {path for paths in json.loads(out).values() for path in paths}
    assert written == {str(path.relative_to(tmp_path)) for path in (tmp_path / "again").iterdir()}


def test_stopped_and_going_on(reproduce: Run, fleets: type[FakeFleet]) -> None:
    """The same command again has the same result as if nothing had happened, and trains no epoch twice."""
    assert reproduce("fig2", "--out", "whole", *HERE)[0] == 0
    epochs: list[int] = []

    def stop(fleet: FakeFleet) -> None:
        epochs.append(fleet.epoch)
        if len(epochs) == 3:
            signal.raise_signal(signal.SIGTERM)

    fleets.trouble = staticmethod(stop)
    command = ("fig2", "--out", "stopped", *HERE)
    code, out, err = reproduce(*command)
    assert (code, out) == (128 + signal.SIGTERM, "")
    assert "the same command goes on" in err
    assert not Path("stopped/fig2.json").exists()
    assert reproduce(*command)[0] == 0
    assert epochs == [0, 1, 0, 1]
    assert read("stopped/fig2.json")["convergence"] == read("whole/fig2.json")["convergence"]
    assert Path("stopped/fig2.csv").read_bytes() == Path("whole/fig2.csv").read_bytes()


@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("file", "file: this is a file, not a folder"),
        ("file/inside", "file: this is a file, not a folder"),
        ("closed", "closed: this cannot be written"),
        ("closed/new/inside", "closed: this cannot be written"),
    ],
)
def test_an_output_folder_is_tried_before_training(
    reproduce: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, fleets: type[FakeFleet], out: str, words: str
) -> None:
    def refuse(**where: Path) -> IO[bytes]:  # root may write anywhere
        if where["dir"].name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(where["dir"] / "tmp"))
        return TemporaryFile(**where)

    (tmp_path / "closed").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr("graphnorm.files.TemporaryFile", refuse)
    for more in (("--out", out, "--store", "a.db"), ("--train-only", "--store", f"{out}/a.db")):
        code, printed, err = reproduce("fig2", *more)
        assert (code, printed) == (2, "")
        assert words in err
    assert fleets.made == []
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "file"]


def test_a_part_does_not_take_the_place_of_more(reproduce: Run, fleets: type[FakeFleet]) -> None:
    fig2 = ("fig2", *HERE, "--store", "a.db")
    narrow = (*fig2, "--norms", "graph")

    def held() -> tuple[Any, ...]:
        return tuple(read("part/fig2.json")[name] for name in ("title", "narrowed"))

    part = ("fig2. Here: norms graph", {"norms": ["graph"]})
    for _ in range(2):  # and the same again
        assert reproduce(*narrow, "--out", "part")[0] == 0
        assert held() == part
    count = len(fleets.made)
    code, out, err = reproduce(*fig2, "--norms", "batch", "--out", "part")
    assert (code, out) == (2, "")
    assert "with other parts of it (norms graph)" in err
    assert len(fleets.made) == count  # refused before anything is trained
    assert held() == part
    assert reproduce(*fig2, "--out", "part")[0] == 0
    assert held() == ("fig2", None)
    for more in ((), ("--no-train",)):
        code, out, err = reproduce(*narrow, "--out", "part", *more)
        assert (code, out) == (2, "")
        assert "with all of it; a part (norms graph)" in err
        assert "--out DIR --store a.db" in err
    assert held() == ("fig2", None)
    assert reproduce(*narrow, "--out", "other")[0] == 0


def test_parts_are_trained_into_one_store(reproduce: Run, tmp_path: Path) -> None:
    """However they are narrowed, parts are no items, so none stands in another's way."""
    common = ("--train-only", "--store", "a.db", *HERE)
    code, out, err = reproduce("fig2", "table3", "--norms", "graph", *common)
    assert code == 0
    assert "nothing is trained for table3" in err
    assert out.splitlines()[-1] == "  graphnorm reproduce fig2 --no-train --store a.db"
    code, out, _ = reproduce("fig2", "--norms", "batch", *common, "--json")
    assert (code, json.loads(out)) == (0, {"items": ["fig2"], "store": "a.db"})
    assert {path.name for path in tmp_path.iterdir()} - {"a.db-shm", "a.db-wal"} == {"a.db", "a.db-work"}  # no items
    (row,) = json.loads(reproduce("fig2", "--store", "a.db", "--dry-run", "--json")[1])
    assert (row["trials"], row["to train"]) == (4, 0)
    code, _, err = reproduce("table3", *common)
    assert (code, "leave out --train-only" in err) == (2, True)
    assert reproduce("fig2", *common, "--no-train")[0] == 2


# Of what is there


def test_items_of_what_is_there(reproduce: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = reproduce("fig2", "--no-train")
    assert code == 2
    assert "no results for fig2" in err
    assert list(tmp_path.iterdir()) == []
    assert reproduce("fig2", "--store", "gpu.db", *HERE)[0] == 0
    before = (tmp_path / "gpu.db").read_bytes()
    monkeypatch.setitem(ITEMS, "fig6", replace(ITEMS["fig6"], parts=(replace(SMALL, models=("gcn",)),)))
    monkeypatch.setattr("graphnorm.study.runner.local_engine", None)
    options = ("--store", "gpu.db", "--no-train", "--out", "results")
    code, _, err = reproduce("fig6", "fig10", "fig2", *options)
    assert code == 0
    for name in ("fig6", "fig10"):
        assert f"{name}: left out" in err
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"fig2.png", "claims.md", "claims.json"} <= names
    assert not {name for name in names if name.startswith(("fig6", "fig10"))}
    assert reproduce("fig6", *options)[0] == 2
    assert (tmp_path / "gpu.db").read_bytes() == before


def test_items_of_a_store_without_the_data(reproduce: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(ITEMS, "fig2", replace(ITEMS["fig2"], parts=(replace(SMALL, datasets=("PTC",)),)))
    monkeypatch.setitem(ITEMS, "fig3", replace(ITEMS["fig3"], graphs=("PTC", "MUTAG")))
    with monkeypatch.context() as patch:
        patch.setattr("graphnorm.paper.reproduce.load", lambda name, _: replace(synthetic.trees(), name=name))
        assert reproduce("fig2", "--store", "a.db", *HERE)[0] == 0
    made = read("reproduction/fig2.json")
    options = ("--store", "a.db", "--no-train")
    code, _, err = reproduce("fig3", "fig2", *options, "--out", "b")
    assert code == 0
    assert "fig3: left out" in err
    assert "not on this machine: PTC, MUTAG" in err
    again = read("b/fig2.json")
    assert all(again[name] == made[name] for name in made.keys() - {"made"})
    code, _, err = reproduce("fig3", *options, "--out", "c")
    assert (code, "with --data-root" in err) == (2, True)
    (row,) = json.loads(reproduce("fig2", *options, "--dry-run", "--json")[1])
    assert row["to train"] == 0


def test_claims_are_those_of_all_items_of_a_folder(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of those that were made before, too; quick passes are kept apart, and files of others are left alone."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(Reproduction, "graphs", lambda *_: synthetic.trees(20))
    for name in ("table3", "fig3"):
        monkeypatch.setitem(ITEMS, name, replace(ITEMS[name], graphs=("MUTAG",)))
    assert run("reproduce", "table3", "--out", "out")[0] == 0
    for name, text in (("other", "[1]"), ("broken", "{"), ("result", '{"quick": false}')):
        Path(f"out/{name}.json").write_text(text)
    Path("out/latin.json").write_bytes(b'{"quick": "\xe9"}')
    assert run("reproduce", "fig3", "--out", "out")[0] == 0
    judged = read("out/claims.json")
    assert [one["item"] for one in judged["claims"]] == ["table3"]
    assert judged["claims"][0]["cases"] == 5
    assert not judged["quick"]
    assert run("reproduce", "fig3", "--quick", "--out", "out")[0] == 0
    assert read("out/claims-quick.json")["claims"] == []
    code, _, err = run("reproduce", "table2", "table3", "--quick", "--out", "out")
    assert (code, err.splitlines()[0]) == (0, "no quick pass: table2")
    quick = read("out/claims-quick.json")
    assert (quick["quick"], len(quick["claims"])) == (True, 1)
    assert QUICK_NOTE in Path("out/claims-quick.md").read_text()
    assert QUICK_NOTE not in Path("out/claims.md").read_text()
    assert read("out/claims.json") == judged
    assert list(Path("out").glob("*.db*")) == []  # nothing was trained


# Mistakes


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig1"], "unknown item 'fig1'; did you mean"),
        (["table2", "--quick"], "no quick pass of table2"),
        (["fig2", "--norms", "graph,wrong"], "there is no norm 'wrong'.*; known: none, layer"),
        (["table1", "--models", "gat"], "there is no model 'gat'"),
        (["table1", "--protocols", "papers"], "there is no protocol 'papers'"),
        (["table1", "--baselines", "wll"], "unknown baseline 'wll'"),
        (["fig2", "--norms", "batch-alpha"], "nothing is left of fig2"),
        (["fig2", "--seeds", "0"], "--seeds is 0"),
        (["fig2", "--workers", "0"], "workers is 0"),
        (["all", "--no-train", "--store", "gone.db"], "gone.db: there is no such store"),
        (["fig2", "--datasets", "MUTAGG"], "did you mean MUTAG"),
        (["table1", "--grid", "nothing"], "there is no grid 'nothing'"),
        (["table2", "--grid", "quick"], "table2: --grid does not apply.*leave out --grid"),
        (["fig2", "--datasets", "ogbg-molhiv", "--grid", "quick", "--dry-run"], "fig2: --grid does not apply"),
        (["fig2", "--datasets", "PTC"], "PTC is not on this machine.*others than PTC"),
    ],
)
def test_mistakes(
    run: Run, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.chdir(tmp_path)
    code, out, err = run("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


def test_the_command_needs_nothing_that_a_gpu_machine_lacks(tmp_path: Path) -> None:
    """Really trained, with the packages of the study extra alone."""
    code = """
import importlib.abc, sys
class Block(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path=None, target=None):
        if name.split(".")[0] in {"tyro", "plotly", "pydantic", "ogb", "rdkit", "ray", "duckdb"}:
            raise ModuleNotFoundError(f"{name} is blocked")
sys.meta_path.insert(0, Block())
from dataclasses import replace
from graphnorm.paper.item import CURVES, QUICK, AlphaRuns, NoiseRuns, Trainings
from graphnorm.paper.items import ITEMS
trees = ("synthetic:trees",)
small = Trainings(datasets=trees, norms=("graph",), hidden=8, folds=2, grid=CURVES.fixed(epochs=1))
ITEMS["fig2"] = replace(ITEMS["fig2"], parts=(small,))
ITEMS["fig4"] = replace(ITEMS["fig4"], parts=(NoiseRuns(datasets=trees, epochs=1),))
ITEMS["alpha"] = replace(ITEMS["alpha"], parts=(AlphaRuns(trees, 1),))
from graphnorm.cli import main
options = ["--store", "a.db", "--device", "cpu", "--workers", "1", "--json"]
assert main(["reproduce", "fig2", "fig4", "alpha", *options, "--out", "first"]) == 0
assert main(["reproduce", "fig2", "fig4", "alpha", *options, "--out", "again", "--no-train"]) == 0
assert main(["reproduce", "fig2", *options, "--dry-run"]) == 0
"""
    done = subprocess.run(
        [sys.executable, "-c", code],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
        env=os.environ | {"PYTHONPATH": str(Path(graphnorm.__file__).parents[1]), "OMP_NUM_THREADS": "1"},
    )
    assert done.returncode == 0, done.stderr
    assert '"to train": 0' in done.stdout
    first, again = ({path.name: path for path in (tmp_path / name).iterdir()} for name in ("first", "again"))
    assert {"fig2.svg", "fig4.png", "alpha-synthetic-trees.png"} <= first.keys() == again.keys()
    for name in ("fig2.csv", "fig4.csv", "alpha.csv"):  # of the store as of the training
        assert first[name].read_bytes() == again[name].read_bytes()
    assert read(first["fig2.json"])["trained_on"] == ["cpu"]
