"""``graphnorm datasets``: the list, one dataset, the user's own graphs, and drawings."""

from __future__ import annotations

import json
import os
import re
from collections.abc import Callable
from pathlib import Path

import pytest

Run = Callable[..., tuple[int, str, str]]
DATA = os.environ.get("GRAPHNORM_DATA", "")


@pytest.fixture
def mine(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A table with a row that is no molecule, and a file of another kind, in the current folder."""
    path = tmp_path / "mine.csv"
    path.write_text("smiles,y\nCCO,1.5\nCC,2.5\nC1CC1,9\nnot one,3\n")
    path.with_suffix(".txt").write_text("graphs")
    monkeypatch.chdir(tmp_path)
    return path


def test_the_list_without_any_data(run: Run) -> None:
    pytest.importorskip("rdkit")
    code, out, err = run("datasets")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1] not in (" ", "")}
    assert "(188)" in lines["MUTAG"]
    assert "(57.5)" in lines["MUTAG"]
    assert lines["MUTAG"].endswith("not on disk")
    assert lines["molecules"].split()[1] == "1,017"
    assert lines["synthetic:regular"].endswith("built in")
    assert "PTC_MR: NOT the PTC of the paper" in out


def test_the_list_with_data(run: Run, tmp_path: Path) -> None:
    pytest.importorskip("rdkit")
    (tmp_path / "NCI1.zip").write_bytes(b"damaged")
    code, out, _ = run("datasets", "--data-root", tmp_path, "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["NCI1"]["where"] == str(tmp_path / "NCI1.zip")
    assert rows["NCI1"]["measured"] is None
    assert "cannot be read" in rows["NCI1"]["note"]
    assert rows["MUTAG"]["where"] is None
    assert rows["MUTAG"]["reported"]["avg_edges"] == 57.5
    assert rows["molecules"]["measured"]["class_sizes"] == [509, 508]


def test_get_and_show(run: Run, mine: Path) -> None:
    pytest.importorskip("rdkit")
    assert json.loads(run("datasets", "get", "trees", "--json")[1])["num_graphs"] == 400
    assert "few large, many small" in run("datasets", "show", "synthetic:cliques")[1]
    own = ("--threshold", "median", "--skip-invalid", "--target", "y")
    code, out, err = run("datasets", "--json", "show", mine, *own)
    assert code == 0
    facts = json.loads(out)
    assert (facts["class_sizes"], facts["task"]) == ([2, 1], "classes")
    assert (facts["avg_undirected_edges"], facts["avg_degree"]) == (2.0, 1.5)  # no self-loops are counted
    assert "avg_edges" not in facts
    assert re.fullmatch(r"graphnorm: .*1 of 4 SMILES cannot be read.*\n", err)
    out = run("datasets", "show", mine, "--skip-invalid", "--task", "values")[1]
    assert re.search(r"^values +y 1\.5 to 9$", out, re.M)


@pytest.mark.skipif(not DATA, reason="GRAPHNORM_DATA names no folder with the benchmark archives")
def test_the_list_by_task(run: Run) -> None:
    code, out, _ = run("datasets", "--data-root", Path(DATA) / "moleculenet", "--json")
    rows = {row["name"]: row for row in json.loads(out)}
    assert code == 0
    assert [row["task"] for row in rows.values()] == sorted(
        (row["task"] for row in rows.values()), key=("classes", "binary", "values").index
    )
    assert rows["tox21"]["reported"] == {"num_graphs": 7831, "num_targets": 12}
    assert (rows["esol"]["metric"], rows["esol"]["split"]) == ("rmse", "scaffold")
    assert rows["esol"]["where"].endswith("moleculenet/delaney.csv.gz")


@pytest.mark.skipif(not DATA, reason="GRAPHNORM_DATA names no folder with the benchmark archives")
def test_get_says_which_file_it_is(run: Run) -> None:
    code, out, _ = run("datasets", "get", "ptc_mr", "--data-root", DATA, "--json")
    facts = json.loads(out)
    assert (code, facts["known_file"], facts["num_nodes"]) == (0, True, 4915)
    assert "NOT the PTC" in facts["note"]


def test_draw(run: Run, tmp_path: Path) -> None:
    target = tmp_path / "out" / "graphs.png"
    code, out, _ = run("datasets", "draw", "regular", "--out", target, "--per-class", "2", "--json")
    assert (code, json.loads(out)) == (0, {"drawing": str(target)})
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["get", "MUTAK"], "did you mean MUTAG"),
        (["get", "PTC"], "ANOTHER dataset"),
        (["show", "absent/folder"], "no such file or folder"),
        (["show", "mine.csv"], "1 of 4 SMILES cannot be read"),
        (["show", "mine.csv", "--threshold", "high"], "give a number or 'median'"),
        (["show", "mine.txt"], r"files of this kind.*\.csv, \.tsv, \.parquet"),
        (["draw", "trees", "--out", "x.doc"], "cannot be written as 'doc'"),
        (["draw", "trees", "--out", "mine.csv/x.png"], "mine.csv"),
        (["draw", "trees", "--out", "x.png", "--per-class", "0"], "one or more"),
        (["draw", "trees", "--out", "x.png", "--seed", "-1"], "the seed is -1"),
        (["--data-root", "absent"], "the data folder does not exist"),
        (["--data-root", "absent", "get", "MUTAG"], "the data folder does not exist"),
    ],
)
def test_mistakes(run: Run, mine: Path, arguments: list[str], words: str) -> None:
    before = sorted(path.name for path in mine.parent.iterdir())
    code, out, err = run("datasets", *arguments)
    assert (code, out) == (2, "")
    assert re.fullmatch(rf"graphnorm: .*{words}.*\n", err)
    assert sorted(path.name for path in mine.parent.iterdir()) == before
