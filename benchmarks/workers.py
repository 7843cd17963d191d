"""Two workers against one: how much of twice the throughput is left. ``python -m benchmarks.workers``.

One worker is pinned to one core, with its driver; two have two cores, with theirs. Throughput is counted in epochs of
members from the moment that all workers train, for a fixed time; starting processes is not part of it. The two are
measured in turns and the median of the ratios is reported. Writes ``benchmarks/results/workers-ENGINE.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Sequence
from pathlib import Path

from graphnorm.data import load
from graphnorm.study.callbacks import Callback
from graphnorm.study.driver import Driver
from graphnorm.study.engines import Engine
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.search import pack
from graphnorm.study.store import Store
from graphnorm.training import Progress, Trial

RESULTS = Path(__file__).parent / "results"
GRID = Grid("workers", {"epochs": (100_000,), "lr": (1e-3, 1e-2)})


class Count(Callback):
    """Counts epochs of members once every worker has trained one, and stops the driver when the time is up."""

    def __init__(self, workers: int, seconds: float) -> None:
        self.workers, self.seconds = workers, seconds
        self.training: set[str] = set()
        self.began = self.ended = 0.0
        self.epochs = 0
        self.driver: Driver | None = None

    def on_epoch(self, progress: Progress) -> None:
        """Count."""
        self.training.add(progress.trials[0].key)
        if len(self.training) < self.workers:
            return
        now = time.monotonic()
        if not self.began:
            self.began = now
        elif now - self.began < self.seconds:
            self.epochs += len(progress.trials)
            self.ended = now
        elif self.driver is not None:
            self.driver.stop()

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        """A measurement with failures is none."""
        sys.exit(error)


def measure(engine_name: str, workers: int, seconds: float, dataset: str) -> float:
    """Epochs of members in a second."""
    if hasattr(os, "sched_setaffinity"):
        os.sched_setaffinity(0, set(range(workers)))
    graphs = load(dataset)
    plan = make_plan(graphs, GRID, norms=["graph", "batch"], folds=10, readout="mean")
    fleets = pack(graphs, plan.trials, "cpu", workers)
    count = Count(workers, seconds)
    engine: Engine
    if engine_name == "ray":
        from graphnorm.study.engines.ray import RayEngine

        engine = RayEngine(graphs, workers=workers, fleets=len(fleets))
    else:
        from graphnorm.study.engines.local import WorkerProcesses

        engine = WorkerProcesses(graphs, ["cpu"] * workers)
    try:
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
            study = store.add_study("workers", plan.spec, plan.trials, fleets)
            count.driver = Driver(store, study, graphs, engine, callbacks=[count])
            count.driver.run()
    finally:
        engine.close()
    return count.epochs / (count.ended - count.began)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("local", "ray"), default="ray")
    parser.add_argument("--seconds", type=float, default=30.0)
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--dataset", default="synthetic:trees")
    parser.add_argument("--workers", type=int, help="measure this number alone, in this process")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    if options.workers:
        print(measure(options.engine, options.workers, options.seconds, options.dataset))
        return
    figures: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers, found in figures.items():
            arguments = f"--engine {options.engine} --seconds {options.seconds} --dataset {options.dataset}".split()
            command = [sys.executable, "-m", "benchmarks.workers", *arguments, "--workers", str(workers)]
            environment = os.environ | {"OMP_NUM_THREADS": "1"}
            done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
            found.append(float(done.stdout.split()[-1]))
            print(f"{workers} workers: {found[-1]:.2f} epochs of members in a second", flush=True)
    ratios = [two / (2 * one) for one, two in zip(figures[1], figures[2], strict=True)]
    result = {
        "engine": options.engine,
        "dataset": options.dataset,
        "epochs_per_second_one_worker": figures[1],
        "epochs_per_second_two_workers": figures[2],
        "share_of_twice_one_worker": ratios,
        "median_share": statistics.median(ratios),
        "load_of_the_machine": os.getloadavg()[0],
        "cores": os.cpu_count(),
    }
    print(json.dumps(result, indent=1))
    (options.out / f"workers-{options.engine}.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
