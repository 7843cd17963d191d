"""Workers that share a GPU, as threads: what they train is what one worker trains. On a CPU they work as well."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from graphnorm.study.driver import Driver
from graphnorm.study.engines import Engine
from graphnorm.study.engines.local import InProcess, WorkerThreads, local_engine
from graphnorm.study.grid import Grid
from graphnorm.training.packing import AT_ONCE_ON_GPU

from graphnorm.data import synthetic
from graphnorm.study.plan import make_plan
from graphnorm.study.store import Store

GRAPHS = synthetic.regular(num_graphs=40, seed=0)
NORMS = ("graph", "instance", "batch", "layer", "none")
GRID = Grid("test", {"epochs": (6,), "lr": (0.01, 0.001), "dropout": (0.5,), "batch_size": (16,), "hidden": (8,)})
GPU = pytest.param("cuda", marks=pytest.mark.gpu)


def curves(path: Path, engine: Engine) -> dict[str, dict[str, np.ndarray]]:
    plan = make_plan(GRAPHS, GRID, norms=NORMS, folds=2)
    with Store(path) as store:
        fleets = [range(start, start + 4) for start in range(0, len(plan.trials), 4)]
        study = store.add_study("study", plan.spec, plan.trials, fleets)
        try:
            assert Driver(store, study, GRAPHS, engine).run()
        finally:
            engine.close()
        return {record.trial.key: dict(record.curves) for record in store.records(study, curves=["loss", "valid"])}


@pytest.mark.parametrize("device", ["cpu", GPU])
def test_threads_train_what_one_worker_trains(device: str, tmp_path: Path) -> None:
    alone = curves(tmp_path / "alone.db", InProcess(GRAPHS, device))
    together = curves(tmp_path / "together.db", WorkerThreads(GRAPHS, device, 3))
    assert alone.keys() == together.keys()
    for key, expected in alone.items():
        for name, values in expected.items():
            np.testing.assert_array_equal(together[key][name], values)


def test_an_error_in_a_thread_is_an_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def broken(*args: object, **options: object) -> None:
        raise RuntimeError("no such luck")

    monkeypatch.setattr("graphnorm.study.work.Fleet", broken)
    plan = make_plan(GRAPHS, GRID, norms=["graph", "batch"], folds=2)
    with Store(tmp_path / "study.db") as store:
        study = store.add_study("study", plan.spec, plan.trials, [range(4), range(4, 8)])
        engine = WorkerThreads(GRAPHS, "cpu", 2)
        assert Driver(store, study, GRAPHS, engine).run()
        engine.close()
        assert store.study("study").counts == {"failed": 8}


@pytest.mark.parametrize(
    ("fleets", "workers", "made"),
    [
        (1, None, ("InProcess", "cuda:0")),
        (2, None, ("WorkerThreads", "cuda:0", 2)),
        (9, None, ("WorkerThreads", "cuda:0", AT_ONCE_ON_GPU)),
        (9, 1, ("InProcess", "cuda:0")),
        (9, 3, ("WorkerThreads", "cuda:0", 3)),
    ],
)
def test_fleets_that_share_a_gpu_are_threads(
    fleets: int, workers: int | None, made: tuple[object, ...], monkeypatch: pytest.MonkeyPatch
) -> None:
    found: list[tuple[object, ...]] = []
    for name in ("InProcess", "WorkerThreads", "WorkerProcesses"):
        monkeypatch.setattr(
            f"graphnorm.study.engines.local.{name}", lambda *args, name=name: found.append((name, *args[1:]))
        )
    local_engine(GRAPHS, device="cuda:0", workers=workers, fleets=fleets)
    assert found == [made]
