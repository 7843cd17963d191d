"""The queue of trainings: every command is one, and the grids are what they say."""

from __future__ import annotations

import subprocess
from pathlib import Path
from typing import Any

import pytest
from benchmarks.trainings.__main__ import FILE, ROOT, Entry, entries, main, show, trials

from fakes import FakeFleet
from graphnorm.cli import main as graphnorm
from graphnorm.cli import make_parser
from graphnorm.commands.options import study_keywords
from graphnorm.commands.reproduce import _items
from graphnorm.settings import GRIDS, find_grid


@pytest.fixture(autouse=True)
def _at_the_root(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(ROOT)


@pytest.mark.parametrize("entry", entries(), ids=lambda entry: entry.name)
def test_every_command_is_one(entry: Entry) -> None:
    arguments = entry.arguments(ROOT / "results" / "graphnorm.db")
    options = make_parser(arguments[0]).parse_args(arguments)
    if arguments[0] == "search":
        assert study_keywords(options)["seeds"] == 10
        find_grid(options.grid)
    else:
        assert _items(options)
        assert options.train_only


def test_entries_have_names_of_their_own_in_the_order_of_their_parts() -> None:
    names = [entry.name for entry in entries()]
    assert len(names) == len(set(names))
    parts = [entry.part for entry in entries()]
    assert parts == sorted(parts)


def test_the_twelve_are_of_the_papers_60_and_hold_what_the_authors_published() -> None:
    def configurations(name: str) -> set[tuple[tuple[str, float], ...]]:
        grid = GRIDS.get(name) or find_grid(FILE.with_name(f"{name}.toml"))
        return {tuple(sorted(one.items())) for one in grid.configurations()}

    twelve = configurations("twelve")
    assert len(twelve) == 12
    assert twelve < configurations("paper")
    assert configurations("curves") | configurations("authors-proteins") | configurations("authors-reddit") < twelve


def test_what_is_done_is_read_from_the_store(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path, capsys: pytest.CaptureFixture[str], fleets: type[FakeFleet]
) -> None:
    others = subprocess.run

    def run(command: list[str], **options: Any) -> subprocess.CompletedProcess[str]:
        if command[1:3] == ["-m", "graphnorm"]:
            return subprocess.CompletedProcess(command, graphnorm(command[3:]))
        return others(command, **options)

    monkeypatch.setattr("subprocess.run", run)
    command = (
        "search synthetic:trees --norms graph --folds 2 --epochs 1 --grid benchmarks/trainings/authors-reddit.toml"
    )
    entry = Entry(1, "trees", "Trees", 1, f"{command} --device cpu --workers 1")
    store = tmp_path / "a.db"
    assert trials(entry, store) == (2, 2)
    monkeypatch.setattr("benchmarks.trainings.__main__.entries", lambda: [entry])
    monkeypatch.setattr("sys.argv", ["trainings", "--store", str(store)])
    main()
    assert trials(entry, store) == (2, 0)
    capsys.readouterr()
    show([entry], store)
    assert "done" in capsys.readouterr().out
    main()  # nothing is left
    assert capsys.readouterr().out == ""
    monkeypatch.setattr("sys.argv", ["trainings", "--only", "tree"])
    with pytest.raises(SystemExit, match="known: trees"):
        main()
