"""Two workers against one: how much of twice the throughput is left. ``python -m benchmarks.workers [--engine ray]``.

One worker is pinned to one core; the driver and whatever else the engine runs may use both. Two workers have two cores
and share them with the rest. Every worker has one thread and a fleet of ten of the same shape. Throughput is counted in
epochs of members, from the first answer after all workers have begun to the last in a fixed time: starting processes is
no part of it, answering the driver, its callbacks and checkpoints (three times as many as by default) are. What the
machine itself leaves of twice one core is measured beside it, by the same workers as bare processes without a driver.
All are measured in turns; writes ``benchmarks/results/workers-ENGINE.json``. It takes about five minutes, and times
say something about the engine only on an idle machine: Ray's workers are nicer (15) than others and wait for them.
"""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import psutil
import torch

from benchmarks.facts import RESULTS, facts
from graphnorm.data import synthetic
from graphnorm.settings import Grid, Running, Settings
from graphnorm.study import Callback, Plan, Store, make_plan, make_splits
from graphnorm.study.fleets import make_fleet
from graphnorm.study.local_engine import WorkerProcesses
from graphnorm.study.ray_engine import RayEngine
from graphnorm.study.runner import STEP_SECONDS, Driver
from graphnorm.study.worker import Advance, Begin, Step, Worker
from graphnorm.training import Progress, Trial

GRAPHS = 80
"""Trees of 50 nodes; an epoch of a fleet takes a fraction of a second."""
MEMBERS = 10
EPOCHS = 1_000_000
RUNNING = Running(checkpoint=15.0)
BAR = 0.85


class Count(Callback):
    """Records when each epoch was reached, and stops the driver when the time is up."""

    def __init__(self, workers: int, seconds: float) -> None:
        self.workers, self.seconds = workers, seconds
        self.answers: dict[str, dict[float, tuple[float, int]]] = {}
        """By fleet and answer: when it came and which epoch it reached."""
        self.began = 0.0
        self.driver: Driver | None = None
        self.used: list[dict[int, float]] = []

    def on_epoch(self, progress: Progress) -> None:
        """Record the epoch; all epochs of one answer have the same time."""
        now, fleet = time.monotonic(), progress.trials[0].key
        known = self.answers.setdefault(fleet, {})
        if not self.began and len(self.answers) == self.workers:
            self.began = now
            self.used.append(cpu_seconds())
        if self.began and now - self.began > self.seconds:
            assert self.driver is not None
            self.driver.stop()
            if len(self.used) == 1:
                self.used.append(cpu_seconds())
        elif self.began or progress.seconds in known:
            known[progress.seconds] = now, progress.epoch

    def throughput(self) -> float:
        """Epochs of members per second, over all workers."""
        rates = []
        for answers in self.answers.values():
            if len(answers) < 2:
                sys.exit("a worker gave one answer in all the time; measure for longer")
            (began, first), *_, (ended, last) = answers.values()
            rates.append(MEMBERS * (last - first) / (ended - began))
        return sum(rates)

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        """A failure ends the measurement."""
        sys.exit(error)


def cpu_seconds() -> dict[int, float]:
    """The CPU time of this process and of each process below it."""
    found = {}
    own = psutil.Process()
    for process in (own, *own.children(recursive=True)):
        with contextlib.suppress(psutil.NoSuchProcess):
            times = process.cpu_times()
            found[process.pid] = times.user + times.system
    return found


def pin(process: int, core: int) -> None:
    """Keep all threads of a process on one core."""
    for thread in psutil.Process(process).threads():
        os.sched_setaffinity(thread.id, {core})


def plan_for(workers: int) -> Plan:
    grid = Grid("workers", {"epochs": (EPOCHS,), "lr": tuple(1e-3 * (1 + k) for k in range(workers))})
    settings = Settings(norms=("graph",), folds=MEMBERS, readout="mean")
    return make_plan(synthetic.trees(num_graphs=GRAPHS), settings, grid)


def measure(engine_name: str, workers: int, seconds: float) -> dict[str, Any]:
    """Epochs of members per second, and the CPU time of each part per second."""
    graphs, plan = synthetic.trees(num_graphs=GRAPHS), plan_for(workers)
    fleets = [range(start, start + MEMBERS) for start in range(0, len(plan.trials), MEMBERS)]
    count = Count(workers, seconds)
    engine: RayEngine | WorkerProcesses
    if engine_name == "ray":
        engine = RayEngine(graphs, Running(workers=workers), fleets=len(fleets))
        pids = engine.worker_pids()
    else:
        engine = WorkerProcesses(graphs, ["cpu"] * workers)
        pids = [process.pid for process in engine._processes]
    try:
        if workers == 1:
            pin(pids[0], 0)
        with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
            study = store.add(plan, fleets)
            count.driver = Driver(store, study, plan, graphs, RUNNING, callbacks=[count])
            count.driver.run(engine)
    finally:
        engine.close()
    before, after = count.used
    parts = Counter[str]()
    for process, used in after.items():
        part = "workers" if process in pids else "driver" if process == os.getpid() else "rest"
        parts[part] += used - before.get(process, 0.0)  # type: ignore[assignment]
    answers = sum(len(answers) for answers in count.answers.values())
    return {
        "throughput": count.throughput(),
        "cores_used": {name: used / seconds for name, used in parts.items()},
        "driver_ms_per_answer": 1e3 * parts["driver"] / answers,
    }


def bare(core: int, start: float, seconds: float) -> float:
    """Epochs of members per second of a worker without a driver, from an agreed time on."""
    torch.set_num_threads(1)
    os.sched_setaffinity(0, {core})
    graphs, trials = synthetic.trees(num_graphs=GRAPHS), plan_for(1).trials
    worker = Worker(graphs, "cpu")
    splits = tuple(make_splits(graphs, trials))
    worker.answer(Begin(trials, splits, frozenset(trial.key for trial in trials), make_fleet))
    while time.time() < start:
        worker.answer(Advance(0.2, EPOCHS))
    began, epochs = time.monotonic(), 0
    while time.monotonic() - began < seconds:
        step = worker.answer(Advance(STEP_SECONDS, EPOCHS))
        assert isinstance(step, Step), step
        epochs += len(step.metrics["valid"])
    return MEMBERS * epochs / (time.monotonic() - began)


def share_by_cpu_time(one: dict[str, Any], two: dict[str, Any]) -> float:
    """Epochs per CPU second with two workers, driver included, relative to one worker alone.

    Other load on the machine hardly changes it, but it does not show idle time.
    """
    return float(
        two["throughput"] / sum(two["cores_used"].values()) / (one["throughput"] / one["cores_used"]["workers"])
    )


def start(*arguments: object) -> subprocess.Popen[str]:
    command = [sys.executable, "-m", "benchmarks.workers", *map(str, arguments)]
    return subprocess.Popen(command, env=os.environ | {"OMP_NUM_THREADS": "1"}, stdout=subprocess.PIPE, text=True)


def answer_of(process: subprocess.Popen[str]) -> Any:
    output, _ = process.communicate()
    if process.returncode:
        sys.exit(f"a measurement ended with code {process.returncode}")
    return json.loads(output.splitlines()[-1])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--engine", choices=("local", "ray"), default="ray")
    parser.add_argument("--seconds", type=float, default=20.0, help="of each measurement (default: 20)")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--out", type=Path, default=RESULTS)
    parser.add_argument("--workers", type=int, help=argparse.SUPPRESS)
    parser.add_argument("--bare", nargs=2, type=float, help=argparse.SUPPRESS)
    options = parser.parse_args()
    if options.bare:
        print(json.dumps(bare(int(options.bare[0]), options.bare[1], options.seconds)))
        return
    if options.workers:
        print(json.dumps(measure(options.engine, options.workers, options.seconds)))
        return
    load_before = os.getloadavg()[0]
    found: dict[int, list[dict[str, Any]]] = {1: [], 2: []}
    machine: dict[int, list[float]] = {1: [], 2: []}
    for _ in range(options.rounds):
        for workers in (1, 2):
            arguments = ("--engine", options.engine, "--seconds", options.seconds, "--workers", workers)
            found[workers].append(answer_of(start(*arguments)))
            print(f"{options.engine}, {workers}: {found[workers][-1]}", flush=True)
            when = time.time() + 6.0
            processes = [start("--bare", core, when, "--seconds", options.seconds / 3) for core in range(workers)]
            machine[workers].append(sum(answer_of(process) for process in processes))
            print(f"bare, {workers}: {machine[workers][-1]:.1f}", flush=True)
    one, two = ([round_["throughput"] for round_ in found[workers]] for workers in (1, 2))
    shares = [b / (2 * a) for a, b in zip(one, two, strict=True)]
    limits = [b / (2 * a) for a, b in zip(machine[1], machine[2], strict=True)]
    result = facts("cpu", options.engine) if options.engine == "ray" else facts()
    result |= {
        "engine": options.engine,
        "graphs": GRAPHS,
        "seconds_of_a_measurement": options.seconds,
        "load_of_the_machine_before": round(load_before, 2),
        "one_worker": found[1],
        "two_workers": found[2],
        "bare_processes": {"one": machine[1], "two": machine[2]},
        "share_of_twice_one_worker": shares,
        "median_share": statistics.median(shares),
        "bar": BAR,
        "median_share_of_bare_processes": statistics.median(limits),
        "median_share_by_CPU_time": statistics.median(map(share_by_cpu_time, found[1], found[2])),
    }
    print(json.dumps(result, indent=1))
    options.out.mkdir(parents=True, exist_ok=True)
    (options.out / f"workers-{options.engine}.json").write_text(json.dumps(result, indent=1) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
