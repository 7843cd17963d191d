"""The command line: what it prints, and that a user's mistake is one message and exit code 2."""

from __future__ import annotations

import errno
import json
import os
import re
import subprocess
import sys
import warnings
from pathlib import Path

import pytest

import graphnorm
from graphnorm import cli

DATA = os.environ.get("GRAPHNORM_DATA", "")


@pytest.fixture(autouse=True)
def _own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "cache"))
    monkeypatch.delenv("GRAPHNORM_DATA", raising=False)


@pytest.fixture
def table(tmp_path: Path) -> Path:
    path = tmp_path / "mine.csv"
    path.write_text("smiles,y\nCCO,1.5\nCC,2.5\nC1CC1,9\nnot one,3\n")
    path.with_suffix(".txt").write_text("graphs")
    return path


def run(capsys: pytest.CaptureFixture[str], *arguments: str | Path) -> tuple[int, str, str]:
    code = cli.main([str(argument) for argument in arguments])
    captured = capsys.readouterr()
    return code, captured.out, captured.err


def test_the_list_without_any_data(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, err = run(capsys, "datasets")
    assert (code, err) == (0, "")
    lines = {line.split()[0]: line for line in out.splitlines() if line[:1] not in (" ", "")}
    assert "(188)" in lines["MUTAG"]
    assert lines["MUTAG"].endswith("not on disk")
    assert "(57.5)" in lines["MUTAG"]
    assert lines["molecules"].split()[1] == "1,017"
    assert lines["synthetic:regular"].endswith("built in")
    assert "PTC_MR: NOT the PTC of the paper" in out


def test_the_list_with_data(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    (folder / "NCI1.zip").write_bytes(b"damaged")
    code, out, _ = run(capsys, "datasets", "--data-root", folder, "--json")
    assert code == 0
    rows = {row["name"]: row for row in json.loads(out)}
    assert rows["NCI1"]["where"] == str(folder / "NCI1.zip")
    assert rows["NCI1"]["measured"] is None
    assert "cannot be read" in rows["NCI1"]["note"]
    assert rows["MUTAG"]["where"] is None
    assert rows["MUTAG"]["reported"]["avg_edges"] == 57.5
    assert rows["molecules"]["measured"]["class_sizes"] == [509, 508]


def test_get_and_show(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    code, out, _ = run(capsys, "datasets", "get", "trees", "--json")
    assert code == 0
    assert json.loads(out)["num_graphs"] == 400
    code, out, _ = run(capsys, "datasets", "show", "synthetic:cliques")
    assert code == 0
    assert "few large, many small" in out
    code, out, err = run(
        capsys, "datasets", "--json", "show", table, "--threshold", "median", "--skip-invalid", "--label", "y"
    )
    assert code == 0
    assert json.loads(out)["class_sizes"] == [2, 1]
    assert err == f"graphnorm: {table}: 1 of 4 SMILES cannot be read, the first at 5 ('not one'); left out\n"


def test_other_warnings_are_shown_as_ever(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("graphnorm.data.load", lambda *_, **__: warnings.warn("of another kind", stacklevel=1))
    with pytest.warns(UserWarning, match="of another kind"), pytest.raises(AttributeError):
        run(capsys, "datasets", "show", "trees")
    assert "of another kind" not in capsys.readouterr().err


@pytest.mark.skipif(not DATA, reason="GRAPHNORM_DATA names no folder with the benchmark archives")
def test_get_says_which_file_it_is(capsys: pytest.CaptureFixture[str]) -> None:
    code, out, _ = run(capsys, "datasets", "get", "ptc_mr", "--data-root", DATA, "--json")
    assert code == 0
    facts = json.loads(out)
    assert facts["known_file"] is True
    assert facts["num_nodes"] == 4915
    assert "NOT the PTC" in facts["note"]


def test_draw(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    target = tmp_path / "out" / "graphs.png"
    code, out, _ = run(capsys, "datasets", "draw", "regular", "--out", target, "--per-class", "2")
    assert code == 0
    assert str(target) in out
    assert target.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (["datasets", "get", "MUTAK"], "did you mean MUTAG"),
        (["datasets", "get", "PTC"], "ANOTHER dataset"),
        (["datasets", "show", "absent/folder"], "no such file or folder"),
        (["datasets", "show", "mine.csv"], "1 of 4 SMILES cannot be read"),
        (
            ["datasets", "show", "mine.txt"],
            r"files of this kind\. Remedy: name a folder or \.zip .*\.csv, \.tsv, \.parquet",
        ),
        (["datasets", "draw", "trees", "--out", "x.doc"], "cannot be written as 'doc'"),
        (["datasets", "draw", "trees", "--out", "mine.csv/x.png"], "mine.csv"),
        (["datasets", "draw", "trees", "--out", "x.png", "--per-class", "0"], "one or more"),
        (["datasets", "--data-root", "absent"], "the data folder does not exist"),
        (["datasets", "--data-root", "absent", "get", "MUTAG"], "the data folder does not exist"),
    ],
)
def test_mistakes(
    capsys: pytest.CaptureFixture[str],
    table: Path,
    monkeypatch: pytest.MonkeyPatch,
    arguments: list[str],
    message: str,
) -> None:
    monkeypatch.chdir(table.parent)
    before = sorted(p.name for p in table.parent.iterdir())
    code, out, err = run(capsys, *arguments)
    assert (code, out) == (2, "")
    assert err.startswith("graphnorm: ")
    assert len(err.splitlines()) == 1
    assert re.search(message, err)
    assert sorted(p.name for p in table.parent.iterdir() if p.name != "cache") == [n for n in before if n != "cache"]


@pytest.mark.parametrize("arguments", [[], ["nonsense"], ["datasets", "draw", "trees"], ["datasets", "get"]])
def test_wrong_usage(capsys: pytest.CaptureFixture[str], arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(arguments)
    assert stop.value.code == 2
    assert "usage: graphnorm" in capsys.readouterr().err


def test_a_threshold_that_is_none(capsys: pytest.CaptureFixture[str], table: Path) -> None:
    with pytest.raises(SystemExit) as stop:
        cli.main(["datasets", "show", str(table), "--threshold", "high"])
    assert stop.value.code == 2
    assert "neither a number nor 'median'" in capsys.readouterr().err


def test_a_bare_installation(capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "graphnorm.data", None)
    code, _, err = run(capsys, "datasets")
    assert code == 2
    assert err.endswith("Remedy: pip install 'graphnorm[all]'.\n")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["datasets", "show", "trees"], "stopped; what was not finished is not saved"),
        (["train", "trees", "--out", "model.safetensors"], "stopped; nothing was saved"),
        (["compare", "trees"], "stopped before anything was trained; nothing was saved"),
    ],
)
def test_interrupted(
    capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch, arguments: list[str], words: str
) -> None:
    def interrupt(*_: object, **__: object) -> None:
        raise KeyboardInterrupt

    for module in ("graphnorm.comparison.job", "graphnorm.data"):
        monkeypatch.setattr(f"{module}.load", interrupt)
    assert run(capsys, *arguments) == (130, "", f"graphnorm: {words}\n")


@pytest.mark.parametrize(
    ("name", "words"),
    [
        ("p.png", "p.png: this cannot be written: permission denied. Remedy: name another place"),
        ("new/p.png", "new/p.png: this cannot be written: permission denied. Remedy: name another place"),
        ("mine.csv/p.png", "mine.csv: this cannot be written: file exists. Remedy: there is something of this name"),
    ],
)
def test_places_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], table: Path, monkeypatch: pytest.MonkeyPatch, name: str, words: str
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.chdir(table.parent)
    monkeypatch.setattr(Path, "touch", refuse)
    monkeypatch.setattr(Path, "unlink", refuse)
    code, out, err = run(capsys, "datasets", "draw", "trees", "--out", name)
    assert (code, out) == (2, "")
    assert err.startswith(f"graphnorm: {words}")


def test_a_comparisons_folder_that_cannot_be_written(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(path: Path, *_: object, **__: object) -> None:
        raise PermissionError(errno.EACCES, "Permission denied", str(path))

    monkeypatch.setattr(Path, "mkdir", refuse)
    code, _, err = run(capsys, "compare", "trees", "--out", tmp_path / "ro")
    assert code == 2
    assert err.startswith(f"graphnorm: {tmp_path / 'ro'}: this cannot be written: permission denied. Remedy: ")


def test_a_file_that_is_gone(
    capsys: pytest.CaptureFixture[str], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("graphnorm.data.load", lambda *_, **__: (tmp_path / "gone").read_text())
    code, _, err = run(capsys, "datasets", "show", "trees")
    assert code == 2
    place = tmp_path / "gone"
    assert err == f"graphnorm: {place}: this cannot be found: no such file or directory. Remedy: check the path.\n"


def test_as_a_program() -> None:
    result = subprocess.run(
        [sys.executable, "-m", "graphnorm.cli", "--version"], capture_output=True, text=True, check=False
    )
    assert result.returncode == 0
    assert result.stdout.startswith("graphnorm ")


def test_runs_as_a_module() -> None:
    done = subprocess.run([sys.executable, "-m", "graphnorm", "--version"], capture_output=True, text=True, check=True)
    assert done.stdout.strip() == f"graphnorm {graphnorm.__version__}"


def test_a_reader_who_has_seen_enough() -> None:
    """As in ``graphnorm runs | head``: no message, and nothing else goes on."""
    command = [sys.executable, "-m", "graphnorm", "datasets", "--json"]
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        assert process.stderr is not None
        process.stdout.close()
        assert process.stderr.read() == ""
        assert process.wait(60) == 141
