"""``graphnorm reproduce``: what it says, and what it refuses."""

from __future__ import annotations

import errno
import json
import re
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import IO

import pytest
import torch
from graphnorm.paper.recipe import CURVES, Learning, Recipe, Trainings, Watched
from graphnorm.paper.recipes import RECIPES
from graphnorm.paper.watching import Notebook, watch_graphs

from graphnorm.data import synthetic

Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def _small(monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    """Every item is small, and nothing is written but here."""
    part = Trainings(
        datasets=("synthetic:trees",), norms=("graph",), hidden=8, folds=2, grid=CURVES.fixed(epochs=1)
    )  # fmt: skip
    for item in list(RECIPES):
        monkeypatch.setitem(RECIPES, item, Recipe(item=item, caption=item, maker="curves", trained=(part,)))
    monkeypatch.chdir(tmp_path)


def test_the_help_is_made_of_the_items(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    from graphnorm.cli import main

    monkeypatch.setitem(RECIPES, "fig99", Recipe(item="fig99", caption="Nines", maker="noise", watched=Watched()))
    with pytest.raises(SystemExit):
        main(["reproduce", "--help"])
    out = capsys.readouterr().out
    assert [line.split(maxsplit=1) for line in out.partition("or all:\n\n")[2].split("\n\n")[0].splitlines()] == [
        [item, recipe.caption] for item, recipe in RECIPES.items()
    ]
    assert "What\nfig4, fig8, fig9, fig10, alpha and fig99 train" in out


@pytest.mark.usefixtures("_small")
def test_dry_run_trains_nothing(run: Run, tmp_path: Path) -> None:
    code, out, _ = run("reproduce", "fig2", "table1", "--dry-run", "--json")
    assert code == 0
    assert [row["to train"] for row in json.loads(out)] == [2, 2]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_small")
def test_a_dry_run_says_what_items_share(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    trees = ("synthetic:trees",)
    watched = Watched(datasets=trees, batch_sizes=(8, 16))
    monkeypatch.setitem(RECIPES, "fig10", Recipe(item="fig10", caption="x", maker="noise", watched=watched))
    monkeypatch.setitem(RECIPES, "alpha", Recipe(item="alpha", caption="x", maker="alpha", learned=Learning(trees)))
    monkeypatch.setitem(RECIPES, "theory", Recipe(item="theory", caption="x", maker="theory", looked_at=trees))
    regular = Recipe(item="fig7", caption="x", maker="spectra", looked_at=("synthetic:regular",))
    monkeypatch.setitem(RECIPES, "fig7", regular)
    code, out, err = run(
        "reproduce", "FIG2", "table1", "fig7", "fig10", "alpha", "theory", "--datasets", *trees, "--dry-run"
    )
    assert code == 0
    lines = [" ".join(line.split()) for line in out.splitlines()]
    assert lines[1:] == [
        "fig2 synthetic:trees gin paper 2 2",
        "table1 synthetic:trees gin paper 2 2",
        "fig10 synthetic:trees gin all graphs 1 1",
        "fig10 synthetic:trees gin all graphs 1 1",
        "alpha synthetic:trees gin all graphs 1 1",
        "nothing is trained for theory",
        "items share trials: 2 different ones are to be trained",
    ]
    assert err == "nothing is left of fig7\n"
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_small")
def test_a_training_that_was_cut_short_begins_anew(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """And says so; what there was is kept until then."""
    watched = Watched(datasets=("synthetic:trees",), epochs=2)
    fig4 = Recipe(item="fig4", caption="x", maker="noise", watched=watched)
    for item in ("fig4", "fig9"):
        monkeypatch.setitem(RECIPES, item, replace(fig4, item=item))
    notebook = Notebook(tmp_path / "a.noise.json")
    seen = watch_graphs(synthetic.trees(), watched.trainings[0]._replace(epochs=1), device=torch.device("cpu"))
    notebook.add(replace(seen, watching=watched.trainings[0]))
    words = "synthetic:trees, GIN: 1 of 2 epochs are kept, without weights; training begins anew and takes about"
    options = ("fig4", "--store", "a.db", "--device", "cpu", "--out", "out")
    code, out, _ = run("reproduce", "fig9", *options, "--dry-run")
    assert (code, out.count(words)) == (0, 1)
    rows = json.loads(run("reproduce", "fig9", *options, "--dry-run", "--json")[1])
    assert [(row["to train"], row["note"].startswith(words)) for row in rows] == [(1, True)] * 2
    assert words not in run("reproduce", *options, "--no-train")[2]
    code, _, err = run("reproduce", *options)
    assert (code, err.count(words)) == (0, 1)
    assert [one.trained for one in notebook.watched()] == [2]
    assert words not in "".join(run("reproduce", *options, "--dry-run")[1:])


@pytest.mark.usefixtures("_small")
def test_a_grid_is_not_for_molhiv(run: Run, monkeypatch: pytest.MonkeyPatch) -> None:
    fixed = Trainings(datasets=("synthetic:trees",), protocols=("ogb",), grid=CURVES.fixed(epochs=3))
    for item in ("table2", "fig6"):
        parts = (*RECIPES[item].trained[: item == "fig6"], fixed)
        monkeypatch.setitem(RECIPES, item, Recipe(item=item, caption="x", maker="scores", trained=parts))
    monkeypatch.setattr("graphnorm.paper.laboratory.Laboratory.plans", lambda *_, **__: ())
    code, _, err = run("reproduce", "fig2", "table2", "fig6", "--grid", "quick", "--dry-run")
    assert (code, err) == (0, "--grid is not for ogbg-molhiv, which keeps its settings in table2, fig6\n")
    assert run("reproduce", "fig2", "--grid", "quick", "--dry-run")[2] == ""


@pytest.mark.usefixtures("_small")
def test_items_are_written(run: Run, tmp_path: Path) -> None:
    code, out, err = run("reproduce", "fig2", "--device", "cpu", "--workers", "1")
    assert code == 0
    assert "written to reproduction" in out
    assert "2 of 2 trials are done" in err
    names = {path.name for path in (tmp_path / "reproduction").iterdir()}
    assert {"fig2.png", "fig2.svg", "fig2.pdf", "fig2.csv", "fig2.json", "graphnorm.db"} <= names


@pytest.mark.usefixtures("_small")
@pytest.mark.parametrize(
    ("out", "words"),
    [
        ("file", "file: this is a file, not a folder. Remedy: name a folder."),
        ("file/inside", "file: this is a file, not a folder. Remedy: name a folder."),
        ("closed", "closed: this cannot be written: permission denied. Remedy: name another place"),
        ("closed/new/inside", "closed: this cannot be written: permission denied. Remedy: name another place"),
    ],
)
def test_an_output_folder_is_tried_before_training(
    run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, out: str, words: str
) -> None:
    def refuse(**where: Path) -> IO[bytes]:  # root may write anywhere
        if where["dir"].name == "closed":
            raise PermissionError(errno.EACCES, "Permission denied", str(where["dir"] / "tmp"))
        return TemporaryFile(**where)

    watched = Watched(datasets=("synthetic:trees",))
    monkeypatch.setitem(RECIPES, "fig4", Recipe(item="fig4", caption="x", maker="noise", watched=watched))
    (tmp_path / "closed").mkdir()
    (tmp_path / "file").touch()
    monkeypatch.setattr("graphnorm.commands.reproduce.TemporaryFile", refuse)
    for arguments in (("fig2", "--out", out), ("fig4", "--noise", f"{out}/a.json")):
        code, printed, err = run("reproduce", *arguments, "--store", "a.db")
        assert (code, printed) == (2, "")
        assert words in err
    assert sorted(path.name for path in tmp_path.iterdir()) == ["closed", "file"]


@pytest.mark.usefixtures("_small")
def test_a_part_does_not_take_the_place_of_more(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = replace(RECIPES["fig2"].trained[0], norms=("batch", "graph"))
    monkeypatch.setitem(RECIPES, "fig2", replace(RECIPES["fig2"], trained=(part,)))
    fig2 = ("reproduce", "fig2", "--device", "cpu", "--workers", "1", "--store", "a.db")
    narrow = (*fig2, "--norms", "graph")

    def held(folder: str) -> dict[str, object]:
        found = json.loads((tmp_path / folder / "fig2.json").read_text())
        return {name: found[name] for name in ("title", "narrowed")}

    assert run(*narrow, "--out", "part")[0] == 0
    assert held("part") == {"title": "fig2. Narrowed to norms graph", "narrowed": {"norms": ["graph"]}}
    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)
    assert run(*narrow, "--out", "part")[0] == 0  # the same again
    code, out, err = run(*fig2, "--norms", "batch", "--out", "part")  # refused before anything is trained
    assert (code, out) == (2, "")
    assert "part: fig2 is here already, with other parts of it (norms graph); a part (norms batch) would" in err
    assert held("part")["narrowed"] == {"norms": ["graph"]}
    monkeypatch.undo()
    monkeypatch.chdir(tmp_path)
    monkeypatch.setitem(RECIPES, "fig2", Recipe(item="fig2", caption="fig2", maker="curves", trained=(part,)))
    assert run(*fig2, "--out", "part")[0] == 0
    assert held("part") == {"title": "fig2", "narrowed": None}
    for more in ((), ("--no-train",)):
        code, out, err = run(*narrow, "--out", "part", *more)
        assert (code, out) == (2, "")
        assert "with all of it; a part (norms graph) would take its place. Remedy: name another folder" in err
        assert "--out DIR --store a.db" in err
    assert held("part") == {"title": "fig2", "narrowed": None}
    assert run(*narrow, "--out", "other")[0] == 0


@pytest.mark.usefixtures("_small")
def test_parts_are_trained_into_one_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """However they are narrowed, parts are no items, so none stands in another's way."""
    trees = ("synthetic:trees",)
    part = replace(RECIPES["fig2"].trained[0], norms=("batch", "graph"))
    monkeypatch.setitem(RECIPES, "fig2", replace(RECIPES["fig2"], trained=(part,)))
    monkeypatch.setitem(RECIPES, "table3", Recipe(item="table3", caption="x", maker="x", looked_at=trees))
    watched = Watched(datasets=trees, batch_sizes=(64,), epochs=1, images=False)
    learning = Learning(datasets=trees, epochs=1)
    monkeypatch.setitem(
        RECIPES, "fig4", Recipe(item="fig4", caption="x", maker="noise", watched=watched, learned=learning)
    )
    common = ("--train-only", "--store", "a.db", "--device", "cpu", "--workers", "1")
    code, out, err = run("reproduce", "fig2", "table3", "--norms", "graph", *common)
    assert code == 0
    assert "nothing is trained for table3" in err
    assert out.splitlines()[-1] == "  graphnorm reproduce fig2 --no-train --store a.db"
    assert run("reproduce", "fig2", "--norms", "batch", *common)[0] == 0
    code, out, _ = run("reproduce", "fig4", *common, "--json")
    assert (code, json.loads(out)) == (0, {"items": ["fig4"], "store": "a.db"})
    assert {path.name for path in tmp_path.iterdir()} == {"a.db", "a.db-work", "a.noise.json"}  # and no items
    for item in ("fig2", "fig4"):
        out = run("reproduce", item, "--store", "a.db", "--dry-run", "--json")[1]
        assert {row["to train"] for row in json.loads(out)} == {0}
    code, _, err = run("reproduce", "table3", *common)
    assert (code, "nothing is trained for table3. Remedy: leave out --train-only" in err) == (2, True)
    with pytest.raises(SystemExit):
        run("reproduce", "fig2", *common, "--no-train")


@pytest.mark.usefixtures("_small")
def test_items_of_what_is_there(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    code, _, err = run("reproduce", "fig2", "--no-train")
    assert code == 2
    assert "there is nothing of fig2 in it" in err
    assert list(tmp_path.iterdir()) == []
    assert run("reproduce", "fig2", "--store", "gpu.db", "--device", "cpu", "--workers", "1")[0] == 0
    other = Trainings(datasets=("synthetic:trees",), norms=("batch",), grid=CURVES.fixed(epochs=1))
    monkeypatch.setitem(RECIPES, "fig6", Recipe(item="fig6", caption="x", maker="curves", trained=(other,)))
    monkeypatch.setattr("graphnorm.paper.laboratory.local_engine", None)
    options = ("--store", "gpu.db", "--no-train", "--out", "results")
    code, _, err = run("reproduce", "fig6", "fig2", *options)
    assert code == 0
    assert "fig6: left out, there is nothing of fig6 in it" in err
    names = {path.name for path in (tmp_path / "results").iterdir()}
    assert {"fig2.png", "claims.md"} <= names
    assert not {name for name in names if name.startswith("fig6")}
    assert run("reproduce", "fig6", *options)[0] == 2


@pytest.mark.usefixtures("_small")
def test_items_of_a_store_without_the_data(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    part = replace(RECIPES["fig2"].trained[0], datasets=("PTC",))
    monkeypatch.setitem(RECIPES, "fig2", replace(RECIPES["fig2"], trained=(part,)))
    seen = Recipe(item="fig3", caption="x", maker="spectra", looked_at=("PTC", "MUTAG"))
    monkeypatch.setitem(RECIPES, "fig3", seen)
    with monkeypatch.context() as patch:
        patch.setattr("graphnorm.paper.laboratory.load", lambda name, _: replace(synthetic.trees(), name=name))
        assert run("reproduce", "fig2", "--store", "a.db", "--device", "cpu", "--workers", "1")[0] == 0
    made = json.loads((tmp_path / "reproduction" / "fig2.json").read_text())
    code, _, err = run("reproduce", "fig3", "fig2", "--store", "a.db", "--no-train", "--out", "b")
    assert code == 0
    assert "fig3: left out, fig3 is made of the graphs themselves, and these are not on this machine: PTC, MUTAG" in err
    again = json.loads((tmp_path / "b" / "fig2.json").read_text())
    assert again["convergence"] == made["convergence"]
    assert [study["spec"] for study in again["studies"]] == [study["spec"] for study in made["studies"]]
    code, _, err = run("reproduce", "fig3", "--store", "a.db", "--no-train", "--out", "c")
    assert code == 2
    assert "Remedy: name their folder with --data-root" in err
    code, out, _ = run("reproduce", "fig2", "--store", "a.db", "--no-train", "--dry-run", "--json")
    assert [row["to train"] for row in json.loads(out)] == [0]


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["fig1"], "there is no item 'fig1'; known: table1"),
        (["table2", "--quick"], "no quick pass of table2"),
        (["fig2", "--norms", "graph,wrong"], "there is no norm 'wrong' in the paper's items; known: none, layer"),
        (["table1", "--models", "gat"], "there is no model 'gat'"),
        (["table1", "--protocols", "papers"], "there is no protocol 'papers'"),
        (["fig2", "--norms", "batch-alpha"], "nothing is left of fig2"),
        (["fig2", "--seeds", "0"], "--seeds is 0"),
        (["all", "--no-train", "--store", "gone.db"], "gone.db: there is no such store"),
        (["fig2", "--datasets", "MUTAGG"], "did you mean MUTAG"),
        (["table1", "--grid", "nothing"], "there is no grid 'nothing'"),
        (
            ["table2", "--grid", "quick"],
            "table2: --grid changes nothing of it, its settings are fixed. .*leave out --grid",
        ),
        (["fig2", "--datasets", "ogbg-molhiv", "--grid", "quick", "--dry-run"], "fig2: --grid changes nothing"),
    ],
)
def test_mistakes(
    run: Run, arguments: list[str], message: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    monkeypatch.chdir(tmp_path)
    code, out, err = run("reproduce", *arguments)
    assert (code, out) == (2, "")
    assert re.search(message, err)
    assert len(err.splitlines()) == 1
    assert list(tmp_path.iterdir()) == []


@pytest.mark.usefixtures("_small")
def test_a_dataset_that_is_not_there(run: Run, monkeypatch: pytest.MonkeyPatch, tmp_path: Path) -> None:
    part = Trainings(datasets=("PTC",), norms=("graph",))
    monkeypatch.setitem(RECIPES, "fig2", Recipe(item="fig2", caption="x", maker="curves", trained=(part,)))
    code, _, err = run("reproduce", "fig2")
    assert code == 2
    assert "PTC is not on this machine" in err
    assert "others than PTC" in err
    assert list(tmp_path.iterdir()) == []
