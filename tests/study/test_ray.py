"""The engine ray on a real local cluster of two workers: the same table as the engine local, also when one dies."""

from __future__ import annotations

import os
import signal
import sqlite3
from collections.abc import Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any

import pytest
from graphnorm.study.callbacks import Callback
from graphnorm.study.driver import Driver
from graphnorm.study.engines.local import InProcess
from graphnorm.study.grid import Grid
from graphnorm.study.search import pack

from graphnorm import cli
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import StudyError
from graphnorm.study.plan import Plan, make_plan
from graphnorm.study.store import Store
from graphnorm.training import Trial

ray = pytest.importorskip("ray", reason="Ray is not installed")

from graphnorm.study.engines.ray import RayEngine  # noqa: E402

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
    return make_plan(graphs, GRID, norms=["graph", "batch"], folds=2)


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
            os.kill(ray.get(self.engine._actors[0].pid.remote()), signal.SIGKILL)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        assert not final
        self.failures.append(error)


@pytest.fixture(scope="module")
def engine(graphs: PackedGraphs) -> Iterator[RayEngine]:
    made = RayEngine(graphs, workers=2, fleets=4)
    yield made
    made.close()
    assert not ray.is_initialized()


def test_a_killed_worker_s_fleet_goes_on_in_another(
    tmp_path: Path, graphs: PackedGraphs, plan: Plan, engine: RayEngine
) -> None:
    fleets = pack(graphs, plan.trials, "cpu", 2)
    assert len(fleets) == 4
    with Store(tmp_path / "local.db") as store:
        study = store.add_study("study", {}, plan.trials, fleets)
        assert Driver(store, study, graphs, InProcess(graphs, "cpu")).run()
    killer = KillOnce(engine)
    with Store(tmp_path / "ray.db") as store:
        study = store.add_study("study", {}, plan.trials, fleets)
        assert Driver(store, study, graphs, engine, callbacks=[killer]).run()
        assert store.study("study").counts == {"done": len(plan.trials)}
    assert len(killer.failures) == 1
    assert "a Ray worker was lost" in killer.failures[0]
    assert table(tmp_path / "ray.db") == table(tmp_path / "local.db")


def test_more_workers_than_there_is_room_for(graphs: PackedGraphs, engine: RayEngine) -> None:
    with pytest.raises(StudyError, match="has room for 2 workers of 1 cores and 0 GPUs, not for 5"):
        RayEngine(graphs, workers=5, fleets=9)
    with pytest.raises(StudyError, match="has room for 0 workers of 1 cores and 1 GPUs"):
        RayEngine(graphs, workers=1, gpus_per_worker=1, fleets=9)
    assert ray.is_initialized()  # a cluster that was there before stays


def test_options_of_the_other_engine(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    arguments = ["search", "synthetic:trees", "--address", "here:1", "--store", str(tmp_path / "s.db")]
    assert cli.main(arguments) == 2
    assert "--address has no meaning for the engine local" in capsys.readouterr().err
