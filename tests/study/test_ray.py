"""The engine ray on a real local cluster of two workers: the same table as the engine local, also when one dies."""

from __future__ import annotations

import json
import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import chdir, closing
from pathlib import Path
from typing import Any

import pytest

from fakes import with_targets
from graphnorm import cli
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import StudyError
from graphnorm.settings import Grid, Running, Settings
from graphnorm.study import Callback, Store, make_plan, settle
from graphnorm.study.fleets import group_trials
from graphnorm.study.local_engine import InProcess
from graphnorm.study.plan import Plan
from graphnorm.study.runner import Driver
from graphnorm.study.worker import pack_code
from graphnorm.training import Trial

OWN_MODEL = Path(__file__).parents[1] / "training" / "own_model.py"
ray = pytest.importorskip("ray", reason="Ray is not installed")

from graphnorm.study.ray_engine import RayEngine  # noqa: E402

pytestmark = [
    pytest.mark.slow,
    pytest.mark.filterwarnings("ignore::ResourceWarning"),  # of Ray's own sockets and files
    pytest.mark.filterwarnings("ignore::pytest.PytestUnraisableExceptionWarning"),
    pytest.mark.filterwarnings("ignore::FutureWarning"),
    pytest.mark.filterwarnings("ignore::DeprecationWarning"),
]

GRID = Grid("test", {"epochs": (30,), "lr": (1e-3, 1e-2), "batch_size": (8, 16), "hidden": (4,), "layers": (2,)})


@pytest.fixture(scope="module")
def graphs() -> PackedGraphs:
    return synthetic.regular(num_graphs=16, seed=0)


@pytest.fixture(scope="module")
def plan(graphs: PackedGraphs) -> Plan:
    return make_plan(graphs, Settings(norms=("graph", "batch"), folds=2), GRID)


def table(path: Path) -> dict[tuple[str, str], tuple[Any, ...]]:
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT t.key, c.name, o.status, o.epochs, c.data FROM outcomes o JOIN trials t ON t.id = o.trial "
            "JOIN curves c ON c.trial = o.trial"
        ).fetchall()
    return {row[:2]: row[2:] for row in rows}


class KillOnce(Callback):
    """Kills the worker of the first fleet that is under way."""

    def __init__(self, engine: RayEngine) -> None:
        self.engine, self.killed, self.failures = engine, False, list[str]()

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        if not self.killed:
            self.killed = True
            os.kill(self.engine.worker_pids()[0], signal.SIGKILL)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        assert not final
        self.failures.append(error)


@pytest.fixture(scope="module")
def engine(graphs: PackedGraphs, hostile_folder: Path) -> Iterator[RayEngine]:
    with chdir(hostile_folder):
        made = RayEngine(graphs, Running(workers=2), fleets=4)
    yield made
    made.close()
    assert not ray.is_initialized()


def test_a_killed_worker_s_fleet_goes_on_in_another(
    tmp_path: Path, graphs: PackedGraphs, plan: Plan, engine: RayEngine
) -> None:
    fleets = group_trials(graphs, plan.trials, Running(device="cpu", workers=2))
    assert len(fleets) == 4
    with Store(tmp_path / "local.db") as store:
        study = store.add(plan, fleets)
        assert Driver(store, study, plan, graphs).run(InProcess(graphs, "cpu"))
    killer = KillOnce(engine)
    with Store(tmp_path / "ray.db") as store:
        study = store.add(plan, fleets)
        assert Driver(store, study, plan, graphs, callbacks=[killer]).run(engine)
        assert store.study(plan.name).counts == {"done": len(plan.trials)}
    assert len(killer.failures) == 1
    assert "a Ray worker was lost" in killer.failures[0]
    assert table(tmp_path / "ray.db") == table(tmp_path / "local.db")


@pytest.mark.parametrize(("task", "columns", "own"), [("values", 1, False), ("binary", 3, False), ("values", 2, True)])
def test_every_task_goes_on_after_a_worker_was_killed(
    tmp_path: Path, engine: RayEngine, task: str, columns: int, own: bool
) -> None:
    """Real values; several binary targets of which some are missing; a user's own model of several real values."""
    assert len(engine.worker_pids()) == 2  # its cluster is used
    graphs = with_targets(task, columns)
    model = {"model": f"{OWN_MODEL}:OwnGIN"} if own else {}
    plan = make_plan(graphs, settle(graphs, norms="graph,batch", folds=2, epochs=8, hidden=4, batch_size=32, **model))
    fleets = group_trials(graphs, plan.trials, Running(device="cpu", workers=1))
    with Store(tmp_path / "local.db") as store:
        assert Driver(store, store.add(plan, fleets), plan, graphs).run(InProcess(graphs, "cpu"))
    running = Running(workers=1, cpus_per_worker=0)  # the cores are taken by the engine above
    other = RayEngine(graphs, running, len(fleets), pack_code(plan.trials))
    killer = KillOnce(other)
    try:
        with Store(tmp_path / "ray.db") as store:
            study = store.add(plan, fleets)
            assert Driver(store, study, plan, graphs, callbacks=[killer]).run(other)
    finally:
        other.close()
    assert len(killer.failures) == 1
    trained = table(tmp_path / "ray.db")
    assert trained == table(tmp_path / "local.db")
    assert len(trained) == 4 * (3 + (columns > 1))


def test_workers_import_nothing_of_the_current_folder(engine: RayEngine, hostile_folder: Path) -> None:
    assert len(engine.worker_pids()) == 2
    assert not (hostile_folder / "imported").exists()


def test_more_workers_than_there_is_room_for(graphs: PackedGraphs, engine: RayEngine) -> None:
    for options, room in (({"workers": 5}, "room for 2 workers"), ({"gpus_per_worker": 1}, "room for 0 workers")):
        with pytest.raises(StudyError, match=room):
            RayEngine(graphs, Running(**options), fleets=9)
    assert ray.is_initialized()  # a cluster that was there before stays


def test_own_code_and_the_command_line(
    engine: RayEngine, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    """Files that no worker could import travel with the work."""
    (tmp_path / "ray_model.py").write_text(OWN_MODEL.read_text())
    (tmp_path / "ray_norms.py").write_text(
        "import torch\n\nclass Half(torch.nn.Module):\n    def __init__(self, channels):\n"
        "        super().__init__()\n\n    def forward(self, x):\n        return x / 2\n"
    )
    monkeypatch.chdir(tmp_path)
    shape = ("--folds", "2", "--epochs", "2", "--hidden", "4", "--model", "ray_model.py:OwnGIN")
    own = ("--norms", "graph", "--norm-module", "half=ray_norms.py:Half")
    where = ("--engine", "ray", "--workers", "1", "--cpus-per-worker", "0")  # the cores are taken by the engine above
    code = cli.main(["compare", "trees", *shape, *own, *where, "--json"])
    content = json.loads(capsys.readouterr().out)
    assert (code, content["counts"], content["errors"]) == (0, {"done": 4}, [])
    assert list(content["norms"]) == ["graph", "half"]


def test_an_address_where_there_is_no_cluster(graphs: PackedGraphs, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(ray, "is_initialized", lambda: False)

    def refuse(**options: Any) -> None:
        raise ConnectionError("nobody answers\nat all")

    monkeypatch.setattr(ray, "init", refuse)
    with pytest.raises(StudyError, match="no Ray cluster at here:1") as caught:
        RayEngine(graphs, Running(address="here:1"), fleets=1)
    assert caught.value.remedy
