"""Bad disks, kills and rivals during a whole ``compare``: a clear message, and the same command comes to the end."""

from __future__ import annotations

import contextlib
import errno
import io
import itertools
import json
import multiprocessing
import os
import resource
import shutil
import signal
import sqlite3
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fakes import FakeFleet
from graphnorm import cli
from graphnorm.data import load
from graphnorm.errors import GraphnormError, StoreError
from graphnorm.settings import Running
from graphnorm.study import Result, Store, api, schema
from graphnorm.study.api import STORE, train
from graphnorm.study.result import WRITTEN
from graphnorm.study.store import locked, work_folder
from graphnorm.training import Trial
from graphnorm.training.model_file import load_model

Run = Callable[..., tuple[int, str, str]]
TREES = load("synthetic:trees")


class Blank:
    """A figure that is written at once."""

    def savefig(self, path: Path, dpi: int) -> None:
        path.write_bytes(b"a figure")


@pytest.fixture(autouse=True)
def _quick(fleets: type[FakeFleet], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(Result, "plot", lambda result: Blank())
    monkeypatch.setattr(api, "as_graphs", lambda *_, **__: TREES)


def command(out: Path, *more: str) -> list[str]:
    small = ("--norms", "graph", "--folds", "2", "--epochs", "2", "--workers", "1", "--device", "cpu")
    return ["compare", "trees", *small, "--checkpoint", "0", "--out", str(out), *more]


@pytest.fixture
def calm(tmp_path: Path) -> Any:
    """What an undisturbed comparison comes to."""
    assert cli.main(command(tmp_path / "calm")) == 0
    return content(tmp_path / "calm")


def content(out: Path) -> Any:
    assert {path.name for path in out.iterdir()} == {*WRITTEN, STORE, f"{STORE}-work"}  # nothing half-written
    with Store(out / STORE, writable=False) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
    return json.loads((out / "result.json").read_text())


def steps(happens: Callable[[int], None], monkeypatch: pytest.MonkeyPatch) -> None:
    """Let something happen before every fsync and every renaming, given its number."""
    number = itertools.count()

    def stepping(true: Callable[..., Any]) -> Callable[..., Any]:
        def step(*arguments: Any) -> Any:
            happens(next(number))
            return true(*arguments)

        return step

    for name in ("fsync", "replace"):
        monkeypatch.setattr(os, name, stepping(getattr(os, name)))


def compare_and_die(out: Path, at: int) -> None:
    def die(number: int) -> None:
        if number == at:
            os.kill(os.getpid(), signal.SIGKILL)

    with pytest.MonkeyPatch.context() as patch:
        steps(die, patch)
        os._exit(cli.main(command(out)))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_killed_before_any_sync_or_renaming(tmp_path: Path, calm: Any) -> None:
    for at in itertools.count():
        child = multiprocessing.get_context("fork").Process(target=compare_and_die, args=(tmp_path / "out", at))
        child.start()
        child.join(60)
        if child.exitcode == 0:
            break
        assert child.exitcode == -signal.SIGKILL
        assert cli.main(command(tmp_path / "out")) == 0
        assert content(tmp_path / "out") == calm
        shutil.rmtree(tmp_path / "out")
    assert at > 2 * len(WRITTEN)


def test_no_room_at_any_sync_or_renaming(run: Run, tmp_path: Path, calm: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    out = tmp_path / "out"
    for at in itertools.count():

        def refuse(number: int, at: int = at) -> None:
            if number == at:
                raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))

        with monkeypatch.context() as patch:
            steps(refuse, patch)
            code, _, err = run(*command(out))
        if code == 0:
            if "on device" not in err and at > 2 * len(WRITTEN):
                break
            continue  # a folder that cannot be synced is no reason to fail
        assert code == 2
        message = err.splitlines()[-1]
        assert message.startswith(f"graphnorm: {out}")
        assert "no space left on device" in message.lower()
        assert "Remedy: make room" in message
        assert run(*command(out))[0] == 0
        assert content(out) == calm
        shutil.rmtree(out)


def compare_in_small_files(out: Path, size: int, ending: Any) -> None:
    """Compare where no file may grow beyond a size: SQLite's own writes fail, too."""
    resource.setrlimit(resource.RLIMIT_FSIZE, (size, size))
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()) as err:
        ending.send((cli.main(command(out)), err.getvalue()))


@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
@pytest.mark.parametrize("size", [0, 99, 5_000, 20_000, 50_000, 80_000, 110_000, 140_000, 10_000_000])
def test_files_that_cannot_grow(tmp_path: Path, calm: Any, size: int) -> None:
    here, there = multiprocessing.Pipe()
    arguments = (tmp_path / "out", size, there)
    child = multiprocessing.get_context("fork").Process(target=compare_in_small_files, args=arguments)
    child.start()
    code, err = here.recv()
    child.join()
    assert code == (0 if size == 10_000_000 else 2)
    if code:
        message = err.splitlines()[-1]
        assert message.startswith(f"graphnorm: {tmp_path / 'out'}")
        assert "Remedy: make room" in message or "Remedy: allow larger files" in message
    assert cli.main(command(tmp_path / "out")) == 0
    assert content(tmp_path / "out") == calm


@pytest.mark.parametrize("pages", [0, 1, 3, 40])
def test_no_room_for_the_store(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, pages: int) -> None:
    def small(path: Path, *, writable: bool, true: Any = schema.connect) -> sqlite3.Connection:
        connection: sqlite3.Connection = true(path, writable=writable)
        if writable:
            (held,) = connection.execute("PRAGMA page_count").fetchone()
            connection.execute(f"PRAGMA max_page_count = {held + pages}")
        return connection

    long = ("--epochs", "900", "--checkpoint", "1000")
    with monkeypatch.context() as patch:
        patch.setattr("graphnorm.study.store.connect", small)
        code, _, err = run(*command(tmp_path / "out", *long))
    assert code == (0 if pages == 40 else 2)
    if code:
        assert "the disk is full" in err.splitlines()[-1]
        assert "Remedy: make room" in err.splitlines()[-1]
    for out in ("out", "other"):
        assert run(*command(tmp_path / out, *long))[0] == 0
    assert content(tmp_path / "out") == content(tmp_path / "other")


def test_too_little_room_to_begin(run: Run, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    usage = shutil.disk_usage(tmp_path)._replace(free=1 << 20)
    monkeypatch.setattr(shutil, "disk_usage", lambda path: usage)
    for arguments in (command(tmp_path / "out"), ["train", "trees", "--out", str(tmp_path / "m.safetensors")]):
        code, out, err = run(*arguments)
        assert (code, out) == (2, "")
        assert "only 1,024 KiB are free there. Remedy: make room" in err
    assert list(tmp_path.iterdir()) == []


def test_a_model_that_cannot_be_written_is_kept(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.undo()  # a true fleet
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path / "temporary"))
    (tmp_path / "temporary").mkdir()
    true = api.save_model

    def full(outcome: Any, graphs: Any, path: Path) -> None:
        if path.parent == tmp_path:
            raise OSError(errno.ENOSPC, "No space left on device", str(path))
        true(outcome, graphs, path)

    monkeypatch.setattr(api, "save_model", full)
    trial = Trial(dataset=TREES.name, epochs=1, hidden=4, layers=2, folds=2, fingerprint=TREES.fingerprint)
    with pytest.raises(GraphnormError, match=r"it is saved as (.*)\. Remedy: move it") as caught:
        train(TREES, trial, tmp_path / "m.safetensors", Running(device="cpu", workers=1))
    (kept,) = (tmp_path / "temporary").rglob("m.safetensors")
    assert str(kept) in str(caught.value)
    assert load_model(kept).trial == trial


@pytest.fixture
def rival(tmp_path: Path) -> Iterator[Path]:
    """A folder to which another comparison is being written."""
    out = tmp_path / "out"
    with locked(work_folder(out / STORE) / "lock", lambda: StoreError("it is held")):
        yield out


@pytest.mark.parametrize("more", [(), ("--overwrite",), ("--norms", "batch")])
def test_two_comparisons_in_one_folder(run: Run, rival: Path, more: tuple[str, ...]) -> None:
    code, out, err = run(*command(rival, *more))
    assert (code, out) == (2, "")
    assert "another comparison is being written to this folder. Remedy: wait for it (--wait)" in err
    assert [path.name for path in rival.iterdir()] == [f"{STORE}-work"]


def test_an_overwriting_comparison_keeps_its_lock(run: Run, tmp_path: Path, fleets: type[FakeFleet]) -> None:
    out = tmp_path / "out"
    assert run(*command(out))[0] == 0
    seen = []

    def overwrite(fleet: FakeFleet) -> None:
        if not seen:
            seen.append(cli.main(command(out, "--overwrite")))

    fleets.trouble = staticmethod(overwrite)
    assert run(*command(out, "--overwrite"))[0] == 0
    assert seen == [2]


@pytest.mark.parametrize("arguments", [("compare", "--out"), ("search", "--grid", "curves", "--store")])
def test_nothing_but_failures_is_no_success(
    run: Run, tmp_path: Path, fleets: type[FakeFleet], arguments: tuple[str, ...]
) -> None:
    def fail(fleet: FakeFleet) -> None:
        raise RuntimeError("the device is gone")

    fleets.trouble = staticmethod(fail)
    name, *more = arguments
    small = ("--norms", "none", "--folds", "2", "--epochs", "3", "--workers", "1", "--device", "cpu")
    code, _, err = run(name, "trees", *more, tmp_path / "here", *small)
    assert code == 2
    assert "all 2 trials failed: RuntimeError: the device is gone. Remedy: " in err.splitlines()[-1]


def test_readers_leave_no_files_behind(run: Run, tmp_path: Path) -> None:
    assert run(*command(tmp_path / "out"))[0] == 0
    before = sorted(path.name for path in (tmp_path / "out").iterdir())
    for action in ([], ["show", "synthetic"], ["export", tmp_path / "t.csv"]):
        assert run("runs", *action, "--store", tmp_path / "out" / STORE)[0] == 0
        assert sorted(path.name for path in (tmp_path / "out").iterdir()) == before
    with Store(tmp_path / "out" / STORE, writable=False) as store, pytest.raises(StoreError, match="readonly"):
        store.rows("DELETE FROM outcomes")


@pytest.mark.parametrize("pages", [0, 1])
def test_killed_before_the_store_has_tables(run: Run, tmp_path: Path, pages: int) -> None:
    (tmp_path / "out").mkdir()
    with contextlib.closing(sqlite3.connect(tmp_path / "out" / STORE)) as connection:
        if pages:
            connection.execute("PRAGMA journal_mode = WAL")
    assert run(*command(tmp_path / "out"))[0] == 0
    (tmp_path / "empty.db").touch()
    search = ("search", "trees", "--grid", "quick", "--norms", "graph", "--folds", "2", "--trials", "20", "--dry-run")
    assert run(*search, "--device", "cpu", "--store", tmp_path / "empty.db")[0] == 0


def test_data_are_not_replaced_by_results(run: Run, tmp_path: Path) -> None:
    table = tmp_path / "scores.csv"
    table.write_text("smiles,label\nC,0\nCC,1\n")
    code, _, err = run("compare", table, "--out", tmp_path)
    assert (code, table.read_text()[:6]) == (2, "smiles")
    assert "Remedy: name another place" in err


def test_a_figure_that_cannot_be_replaced(run: Run, tmp_path: Path) -> None:
    (tmp_path / "out" / "curves.png").mkdir(parents=True)
    code, _, err = run(*command(tmp_path / "out"))
    assert code == 2
    assert err.splitlines()[-1].startswith(f"graphnorm: {tmp_path / 'out' / 'curves.png'}: what was trained is saved")
    assert "Remedy: remove what is there" in err


def test_a_file_of_text_is_no_damaged_store(run: Run, tmp_path: Path) -> None:
    for number, text in enumerate((b"notes\n" * 9, b"notes\n" * 9999, b"")):
        (tmp_path / "notes").write_bytes(text)
        code, _, err = run("runs", "recover", tmp_path / "notes", tmp_path / f"new-{number}.db")
        assert code == 2
        assert "nothing of a store can be read from this file. Remedy: " in err
    assert [path.name for path in tmp_path.iterdir()] == ["notes"]
