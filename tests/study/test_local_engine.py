"""The engine local, and studies as real processes: however one is ended, the same command comes to the same table."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import sqlite3
import subprocess
import sys
import time
from collections.abc import Callable, Sequence
from contextlib import closing
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

import fakes
import graphnorm
from graphnorm import cli
from graphnorm.data import PackedGraphs, save_packed, synthetic
from graphnorm.settings import Grid, Running, Settings
from graphnorm.study import Callback, Store, local_engine, make_plan, read, run
from graphnorm.study.fleets import AT_ONCE_ON_GPU
from graphnorm.study.local_engine import InProcess, WorkerProcesses, WorkerThreads
from graphnorm.study.runner import Driver
from graphnorm.study.schema import PAGE
from graphnorm.study.worker import Advance, Engine, Failure
from graphnorm.training import Progress, Trial

EPOCHS = 40
Table = dict[tuple[str, str], tuple[Any, ...]]


class Bench:
    """A folder with a small dataset, and the command that searches it."""

    def __init__(self, folder: Path, graphs: PackedGraphs | None = None) -> None:
        self.folder = folder
        save_packed(graphs or synthetic.regular(num_graphs=16, seed=0), folder / "graphs.safetensors")
        (folder / "grid.toml").write_text(f"lr = [1e-3, 1e-2]\nhidden = 4\nlayers = 2\nepochs = {EPOCHS}\n")

    def command(self, store: str, *more: str) -> list[str]:
        grid = ("--grid", "grid.toml", "--norms", "graph,batch", "--folds", "2")
        where = ("--device", "cpu", "--workers", "1", "--store", store)
        return [sys.executable, "-m", "graphnorm.cli", "search", "graphs.safetensors", *grid, *where, *more]

    def start(self, store: str, *more: str, **options: Any) -> subprocess.Popen[str]:
        """The command as a process of its own."""
        env = os.environ | {"OMP_NUM_THREADS": "1", "PYTHONPATH": str(Path(graphnorm.__file__).parent.parent)}
        options = {"env": env, "stderr": subprocess.PIPE} | options
        command = self.command(store, "--checkpoint", "1", *more)
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

    def result(self, store: str) -> dict[str, Any]:
        """The scores of the only study, without times."""
        with Store(self.folder / store, writable=False) as opened:
            (study,) = opened.studies()
            content = read(opened, opened.plan(study)).to_dict()
        for norm in content["norms"].values():
            del norm["seconds"]
        return {name: content[name] for name in ("norms", "significance", "verdict", "counts", "ranking")}

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


@pytest.mark.parametrize(("number", "code"), [(signal.SIGKILL, -9), (signal.SIGTERM, 143), (signal.SIGINT, 130)])
def test_ended_by_a_signal(
    bench: Bench, calm: Table, slow_epochs: dict[str, str], number: signal.Signals, code: int
) -> None:
    store = f"{number.name}.db"
    process = bench.start(store, env=slow_epochs)
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


def test_a_second_writer_is_told_and_a_reader_goes_on(
    bench: Bench, slow_epochs: dict[str, str], capsys: pytest.CaptureFixture[str]
) -> None:
    process = bench.start("two.db", env=slow_epochs)
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


def test_a_damaged_store(bench: Bench, calm: Table, capsys: pytest.CaptureFixture[str]) -> None:
    content = (bench.folder / "calm.db").read_bytes()
    (bench.folder / "damaged.db").write_bytes(b"\0" * PAGE + content[PAGE:])
    assert bench.run("damaged.db") == 2
    assert "graphnorm runs recover damaged.db NEW.db" in capsys.readouterr().err
    with contextlib.chdir(bench.folder):
        assert cli.main(["runs", "recover", "damaged.db", "new.db"]) == 0
    assert bench.table("new.db") == calm


def workers(pid: int) -> list[int]:
    """The worker processes of a driver."""
    found = [int(word) for word in Path(f"/proc/{pid}/task/{pid}/children").read_text().split()]
    return [child for child in found if b"graphnorm.study.local_engine" in Path(f"/proc/{child}/cmdline").read_bytes()]


def alive(pid: int) -> bool:
    try:
        return "\nState:\tZ" not in Path(f"/proc/{pid}/status").read_text()
    except FileNotFoundError:
        return False


def test_worker_processes_come_to_the_same_table_also_when_one_is_killed(bench: Bench, calm: Table) -> None:
    process = bench.start("workers.db", "--workers", "2")
    wait_until(lambda: bool(workers(process.pid)), process)
    child = workers(process.pid)[0]
    assert os.getsid(child) != os.getsid(process.pid)  # what Ctrl-C means is the driver's decision
    os.kill(child, signal.SIGKILL)
    _, err = process.communicate(timeout=120)
    assert process.returncode == 0, err
    assert "was ended by SIGKILL" in err
    assert bench.table("workers.db") == calm


def test_worker_processes_import_nothing_of_the_current_folder(hostile_folder: Path) -> None:
    with contextlib.chdir(hostile_folder):
        engine = WorkerProcesses(GRAPHS, ["cpu", "cpu"])
        try:
            engine.ask(0, Advance(1.0, until=1))
            ((_, answer),) = engine.answers(timeout=60)
        finally:
            engine.close()
    assert isinstance(answer, Failure)
    assert "no fleet" in answer.error
    assert not (hostile_folder / "imported").exists()


def test_worker_processes_end_with_their_driver(bench: Bench, calm: Table, slow_epochs: dict[str, str]) -> None:
    process = bench.start("orphans.db", "--workers", "2", env=slow_epochs)
    wait_until(lambda: bool(bench.checkpoints("orphans.db")), process)
    children = workers(process.pid)
    assert len(children) == 2
    process.kill()
    process.communicate(timeout=60)
    stop = time.monotonic() + 20
    while any(alive(child) for child in children):
        assert time.monotonic() < stop
        time.sleep(0.02)
    assert bench.run("orphans.db") == 0
    assert bench.table("orphans.db") == calm


# Within Python

GRAPHS = synthetic.regular(num_graphs=40, seed=0)
GRID = Grid("test", {"epochs": (6,), "lr": (0.01, 0.001), "dropout": (0.5,), "batch_size": (16,), "hidden": (8,)})
GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def curves(path: Path, engine: Engine) -> dict[str, dict[str, np.ndarray]]:
    plan = make_plan(GRAPHS, Settings(norms=("graph", "instance", "batch", "layer", "none"), folds=2), GRID)
    with Store(path) as store:
        study = store.add(plan, [range(start, start + 4) for start in range(0, len(plan.trials), 4)])
        try:
            assert Driver(store, study, plan, GRAPHS).run(engine)
        finally:
            engine.close()
        return {record.trial.key: dict(record.curves) for record in store.records(plan, curves=["loss", "valid"])}


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_threads_train_what_one_worker_trains(device: str, tmp_path: Path) -> None:
    """Several workers share a GPU as threads; on a CPU they work as well."""
    alone = curves(tmp_path / "alone.db", InProcess(GRAPHS, device))
    together = curves(tmp_path / "together.db", WorkerThreads(GRAPHS, device, 3))
    assert alone.keys() == together.keys()
    for key, expected in alone.items():
        for name, values in expected.items():
            np.testing.assert_array_equal(together[key][name], values)


def test_the_same_trial_gives_the_same_result_with_any_number_of_workers_and_threads(tmp_path: Path) -> None:
    graphs = synthetic.trees(num_graphs=160, seed=0)
    plan = make_plan(graphs, Settings(norms=("graph", "batch"), folds=2, epochs=2, hidden=16, layers=3))

    def trained(name: str, fleets: Sequence[range], make: Callable[[], Engine]) -> dict[tuple[int, str], bytes]:
        with Store(tmp_path / name) as store:
            study, engine = store.add(plan, fleets), make()
            try:
                assert Driver(store, study, plan, graphs).run(engine)
            finally:
                engine.close()
            records = store.records(plan, curves=["loss", "train", "valid"])
            return {(r.place, name): curve.tobytes() for r in records for name, curve in r.curves.items()}

    whole, halves = [range(2), range(2, 4)], [range(k, k + 1) for k in range(4)]
    before = torch.get_num_threads()
    try:
        torch.set_num_threads(1)
        expected = trained("one.db", whole, lambda: InProcess(graphs, "cpu"))
        torch.set_num_threads(2)
        assert trained("threads.db", whole, lambda: WorkerThreads(graphs, "cpu", 1)) == expected
    finally:
        torch.set_num_threads(before)
    assert trained("workers.db", halves, lambda: WorkerProcesses(graphs, ["cpu", "cpu"])) == expected


def test_a_worker_in_this_process_has_one_thread_and_gives_the_others_back(fleets: type[fakes.FakeFleet]) -> None:
    seen: list[int] = []
    fleets.trouble = staticmethod(lambda fleet: seen.append(torch.get_num_threads()))
    before = torch.get_num_threads()
    torch.set_num_threads(2)
    try:
        graphnorm.compare(GRAPHS, norms="graph", folds=2, epochs=2, hidden=8, device="cpu", workers=1, progress=False)
        assert (set(seen), torch.get_num_threads()) == ({1}, 2)
    finally:
        torch.set_num_threads(before)


def test_an_error_in_a_thread_is_an_answer(tmp_path: Path) -> None:
    def broken(*arguments: object) -> None:
        raise RuntimeError("no such luck")

    plan = replace(make_plan(GRAPHS, Settings(norms=("graph", "batch"), folds=2), GRID), make_fleet=broken)
    with Store(tmp_path / "study.db") as store:
        study = store.add(plan, [range(4), range(4, 8)])
        engine = WorkerThreads(GRAPHS, "cpu", 2)
        assert Driver(store, study, plan, GRAPHS).run(engine)
        engine.close()
        assert store.study(plan.name).counts == {"failed": 8}


def test_a_worker_that_dies_idle_is_replaced_and_nobody_is_told() -> None:
    engine = WorkerProcesses(GRAPHS, ["cpu", "cpu"])
    try:
        first = engine._processes[1]
        first.kill()
        first.wait()
        assert not list(engine.answers(timeout=10))
        assert engine._processes[1] is not first
        engine.ask(1, Advance(1.0, until=1))
        engine._processes[1].kill()  # it owes an answer now
        ((slot, answer),) = engine.answers(timeout=10)
        assert slot == 1
        assert isinstance(answer, Failure)
        assert "was ended by SIGKILL" in answer.error
        engine.ask(1, Advance(1.0, until=1))
        ((slot, answer),) = engine.answers(timeout=30)
        assert isinstance(answer, Failure)
        assert "no fleet" in answer.error
    finally:
        engine.close()


@pytest.mark.parametrize(
    ("device", "fleets", "workers", "made"),
    [
        ("cuda:0", 1, None, ("InProcess", "cuda:0")),
        ("cuda:0", 2, None, ("WorkerThreads", "cuda:0", 2)),
        ("cuda:0", 9, None, ("WorkerThreads", "cuda:0", AT_ONCE_ON_GPU)),
        ("cuda:0", 9, 1, ("InProcess", "cuda:0")),
        ("cuda:0", 9, 3, ("WorkerThreads", "cuda:0", 3)),
        ("cpu", 9, 1, ("InProcess", "cpu")),
        ("cpu", 1, 4, ("InProcess", "cpu")),
        ("cpu", 2, 4, ("WorkerProcesses", ["cpu", "cpu"], b"")),
    ],
)
def test_the_engine_for_so_many_fleets(
    device: str, fleets: int, workers: int | None, made: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[object, ...]] = []
    for name in ("InProcess", "WorkerThreads", "WorkerProcesses"):
        monkeypatch.setattr(local_engine, name, lambda *args, name=name: found.append((name, *args[1:])))
    local_engine.local_engine(GRAPHS, Running(device=device, workers=workers), fleets)
    assert found == [made]


class KillOnce(Callback):
    """Kills one of this process's workers when a fleet has three epochs behind it."""

    def __init__(self) -> None:
        self.begun, self.failures = list[int](), list[str]()

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        self.begun.append(epoch)

    def on_epoch(self, progress: Progress) -> None:
        if progress.epoch == 3 and not self.failures:
            for pid in workers(os.getpid()):
                os.kill(pid, signal.SIGKILL)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        assert not final
        self.failures.append(error)


@pytest.mark.parametrize("killed", [False, True])
def test_a_probe_looks_in_worker_processes(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, killed: bool) -> None:
    """And what it saw before its worker was killed is in the checkpoint."""
    monkeypatch.setenv("PYTHONPATH", str(Path(fakes.__file__).parent), prepend=os.pathsep)
    monkeypatch.setattr("graphnorm.study.runner.STEP_SECONDS", 1e-9)
    settings = Settings(norms=("graph", "batch"), folds=2, epochs=6, hidden=4, layers=2)
    plan = replace(make_plan(GRAPHS, settings), probe=fakes.Weights())
    killer = KillOnce()
    seen = []
    for name, running in (
        ("alone", Running(device="cpu", workers=1)),
        ("workers", Running(device="cpu", workers=2, checkpoint=0.0)),
    ):
        with Store(tmp_path / f"{name}.db") as store:
            run(plan, GRAPHS, store, running, callbacks=[killer] if killed and name == "workers" else [])
            seen.append([store.seen(trial) for trial in plan.trials])
    assert bool(killer.failures) == killed
    assert not killed or max(killer.begun) >= 2  # from a checkpoint
    for mine, theirs in zip(*seen, strict=True):
        assert mine["epochs"].tolist() == theirs["epochs"].tolist() == [0, 2, 6]
        np.testing.assert_allclose(mine["first"], theirs["first"], rtol=1e-4)


@pytest.mark.parametrize("protocol", ["paper", "fair"])
@pytest.mark.parametrize(("task", "columns", "own"), [("values", 1, False), ("binary", 3, False), ("values", 2, True)])
def test_studies_of_every_task_go_on_after_a_kill(
    tmp_path: Path, slow_epochs: dict[str, str], task: str, columns: int, own: bool, protocol: str
) -> None:
    """Real values; several binary targets of which some are missing; a user's own model of several real values."""
    bench = Bench(tmp_path, fakes.with_targets(task, columns))
    options = ["--protocol", protocol, "--grid", "tasks.toml"]
    (tmp_path / "tasks.toml").write_text("lr = [1e-3, 1e-2]\nhidden = 4\nepochs = 12\nbatch_size = 32\n")
    if own:
        pytest.importorskip("torch_geometric", exc_type=ImportError)
        (tmp_path / "own.py").write_text((Path(__file__).parents[1] / "training" / "own_model.py").read_text())
        options += ["--model", "own.py:OwnGIN"]
    assert bench.run("calm.db", *options) == 0
    calm = bench.table("calm.db")
    curves = ["loss", "train", "valid", *["test"] * (protocol == "fair"), *["targets"] * (columns > 1)]
    assert len(calm) == 8 * len(curves)
    assert {name for _, name in calm} == set(curves)
    process = bench.start("killed.db", *options, "--checkpoint", "0", env=slow_epochs)
    wait_until(lambda: bool(bench.checkpoints("killed.db")), process)
    process.kill()
    process.communicate()
    assert len(bench.table("killed.db")) < len(calm)
    assert bench.run("killed.db", *options) == 0
    assert bench.table("killed.db") == calm
    assert bench.result("killed.db") == bench.result("calm.db")


def test_own_code_goes_on_after_a_kill_and_in_worker_processes(
    tmp_path: Path, slow_epochs: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A model and a normalization in files that no worker could import."""
    pytest.importorskip("torch_geometric", exc_type=ImportError)
    bench = Bench(tmp_path)
    (tmp_path / "grid.toml").write_text("lr = [1e-2]\nhidden = 4\nepochs = 20\n")
    (tmp_path / "own.py").write_text((Path(__file__).parents[1] / "training" / "own_model.py").read_text())
    (tmp_path / "half.py").write_text((Path(__file__).parent / "own_norm.py").read_text())
    own = ("--model", "own.py:OwnGIN", "--norms", "batch", "--norm-module", "half=half.py:Half")
    assert bench.run("calm.db", *own) == 0
    calm = bench.table("calm.db")
    assert len(calm) == 4 * 3
    process = bench.start("killed.db", *own, "--checkpoint", "0", env=slow_epochs)
    wait_until(lambda: bool(bench.checkpoints("killed.db")), process)
    process.kill()
    process.communicate()
    assert len(bench.table("killed.db")) < len(calm)
    assert bench.run("killed.db", *own) == 0
    assert bench.table("killed.db") == calm
    assert bench.run("workers.db", *own, "--workers", "2") == 0
    assert bench.table("workers.db") == calm
    (tmp_path / "half.py").write_text((tmp_path / "half.py").read_text() + "# edited\n")
    assert bench.run("workers.db", *own) == 0
    assert len(bench.table("workers.db")) == len(calm) + 2 * 3  # those with the edited code are new
