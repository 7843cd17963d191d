"""Studies as real processes: however one is ended, the same command goes on and comes to the same table."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest

import graphnorm
from graphnorm import cli
from graphnorm.data import save_packed, synthetic

EPOCHS = 40
Table = dict[tuple[str, str], tuple[Any, ...]]


class Bench:
    """A folder with a small dataset, and the command that searches it."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        save_packed(synthetic.regular(num_graphs=16, seed=0), folder / "graphs.safetensors")
        (folder / "grid.toml").write_text(f"lr = [1e-3, 1e-2]\nhidden = 4\nlayers = 2\nepochs = {EPOCHS}\n")

    def command(self, store: str, *more: str) -> list[str]:
        words = ["search", "graphs.safetensors", "--grid", "grid.toml", "--norms", "graph,batch", "--folds", "2"]
        return [
            sys.executable,
            "-m",
            "graphnorm.cli",
            *words,
            "--device",
            "cpu",
            "--workers",
            "1",
            "--store",
            store,
            *more,
        ]

    def environment(self) -> dict[str, str]:
        return os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(graphnorm.__file__).parent.parent)}

    def start(self, store: str, *more: str, **options: Any) -> subprocess.Popen[str]:
        """The command as a process of its own."""
        options = {"env": self.environment(), "stderr": subprocess.PIPE} | options
        command = self.command(store, "--checkpoint", "1s", *more)
        return subprocess.Popen(command, cwd=self.folder, stdout=subprocess.DEVNULL, text=True, **options)

    def run(self, store: str, *more: str) -> int:
        """The command in this process, which has imported everything already."""
        with contextlib.chdir(self.folder):
            return cli.main(self.command(store, *more)[3:])

    def table(self, store: str) -> Table:
        with closing(sqlite3.connect(self.folder / store)) as connection:
            assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
            rows = connection.execute(
                "SELECT t.key, c.name, o.status, o.epochs, c.data FROM outcomes o JOIN trials t ON t.id = o.trial "
                "JOIN curves c ON c.trial = o.trial"
            ).fetchall()
        assert len({row[:2] for row in rows}) == len(rows)
        return {row[:2]: row[2:] for row in rows}

    def checkpoints(self, store: str) -> list[Path]:
        return sorted((self.folder / f"{store}-work").rglob("*.checkpoint"))


@pytest.fixture(scope="module")
def bench(tmp_path_factory: pytest.TempPathFactory) -> Bench:
    return Bench(tmp_path_factory.mktemp("bench"))


@pytest.fixture(scope="module")
def calm(bench: Bench) -> Table:
    """What an undisturbed run comes to."""
    assert bench.run("calm.db") == 0
    table = bench.table("calm.db")
    assert len(table) == 8 * 3
    return table


def wait_until(condition: Callable[[], bool], process: subprocess.Popen[str], seconds: float = 60) -> None:
    stop = time.monotonic() + seconds
    while not condition():
        assert process.poll() is None, process.communicate()
        assert time.monotonic() < stop
        time.sleep(0.02)


def slowly(bench: Bench) -> dict[str, str]:
    """An environment in which an epoch takes a while, so that there is time to interrupt."""
    site = bench.folder / "slow"
    site.mkdir(exist_ok=True)
    (site / "sitecustomize.py").write_text(
        "import importlib.abc, sys, time\n"
        "class Slow(importlib.abc.MetaPathFinder):\n"
        "    def find_spec(self, name, path, target=None):\n"
        "        if name != 'graphnorm.study.driver':\n"
        "            return None\n"
        "        sys.meta_path.remove(self)\n"
        "        from graphnorm.training import Fleet\n"
        "        advance = Fleet.advance\n"
        "        def slow(self, epochs=None, on_epoch=None):\n"
        "            time.sleep(0.1)\n"
        "            return advance(self, 1, on_epoch)\n"
        "        Fleet.advance = slow\n"
        "        return None\n"
        "sys.meta_path.insert(0, Slow())\n"
    )
    environment = bench.environment()
    return environment | {"PYTHONPATH": f"{site}{os.pathsep}{environment['PYTHONPATH']}"}


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_by_a_signal(bench: Bench, calm: Table, number: signal.Signals, code: int) -> None:
    store = f"{number.name}.db"
    process = bench.start(store, env=slowly(bench))
    wait_until(lambda: bool(bench.checkpoints(store)), process)
    process.send_signal(number)
    _, err = process.communicate(timeout=60)
    assert process.returncode == code, err
    assert "Traceback" not in err
    if number != signal.SIGKILL:
        assert err.endswith("graphnorm: stopped; the same command goes on from here\n")
    assert len(bench.table(store)) < len(calm)
    assert bench.checkpoints(store)
    assert bench.run(store) == 0
    assert bench.table(store) == calm
    assert not bench.checkpoints(store)


def test_a_second_writer_is_told_and_a_reader_goes_on(bench: Bench, capsys: pytest.CaptureFixture[str]) -> None:
    process = bench.start("two.db", env=slowly(bench))
    try:
        wait_until(lambda: bool(bench.checkpoints("two.db")), process)
        assert bench.run("two.db") == 2
        err = capsys.readouterr().err
        assert f"is being written: process {process.pid} on " in err
        assert len(err.splitlines()) == 1
        assert cli.main(["runs", "--store", str(bench.folder / "two.db"), "--unfinished"]) == 0
        assert "synthetic:regular-gin-grid-paper" in capsys.readouterr().out
    finally:
        process.kill()
        process.communicate()


def test_a_full_disk(bench: Bench, calm: Table) -> None:
    """A limit on the size of files stands for the disk: SQLite and the checkpoints meet the same refusal to write."""
    size = (bench.folder / "calm.db").stat().st_size

    def limit() -> None:
        resource.setrlimit(resource.RLIMIT_FSIZE, (size // 2, size // 2))

    process = bench.start("full.db", "--quiet", preexec_fn=limit)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 2
    assert "the disk is full or fails" in err or "cannot be written" in err
    assert "Remedy: make room and give the same command again" in err
    assert len(err.splitlines()) == 1
    assert bench.run("full.db") == 0
    assert bench.table("full.db") == calm


def test_a_newer_store_and_a_damaged_one(bench: Bench, calm: Table, capsys: pytest.CaptureFixture[str]) -> None:
    content = (bench.folder / "calm.db").read_bytes()
    newer = bytearray(content)
    newer[60:64] = (99).to_bytes(4, "big")  # where SQLite keeps user_version
    (bench.folder / "newer.db").write_bytes(newer)
    assert bench.run("newer.db") == 2
    assert "newer version of graphnorm (schema 99" in capsys.readouterr().err
    assert (bench.folder / "newer.db").read_bytes() == bytes(newer)
    (bench.folder / "damaged.db").write_bytes(b"\0" * 4096 + content[4096:])
    assert bench.run("damaged.db") == 2
    err = capsys.readouterr().err
    assert "damaged" in err
    assert "graphnorm runs rescue damaged.db NEW.db" in err
    with contextlib.chdir(bench.folder):
        assert cli.main(["runs", "rescue", "damaged.db", "new.db"]) == 0
    assert bench.table("new.db") == calm


def test_worker_processes_come_to_the_same_table_also_when_one_is_killed(bench: Bench, calm: Table) -> None:
    process = bench.start("workers.db", "--workers", "2")
    wait_until(lambda: bool(children(process.pid)), process)
    os.kill(children(process.pid)[0], signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "was ended by SIGKILL" in err
    assert bench.table("workers.db") == calm


def children(pid: int) -> list[int]:
    text = Path(f"/proc/{pid}/task/{pid}/children").read_text()
    return [int(word) for word in text.split()]
