"""A store with 20,000 trials: its size, and the time to list, show, export and write: ``python -m benchmarks.store``.

The trials are those of the paper's grid (60 configurations, 10 folds, 5 normalizations, 2 models) on several datasets,
a study for each dataset and model, and one study that has them all. Curves have 400 epochs and look like those of NCI1.
Writes ``benchmarks/results/store.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np

from benchmarks.facts import RESULTS, facts
from graphnorm.data import load
from graphnorm.settings import GRIDS, Settings
from graphnorm.study import Plan, Store, make_plan, read
from graphnorm.training import Outcome, Trial

FLEET = 300


def outcome(trial: Trial, random: np.random.Generator) -> Outcome:
    """An outcome with curves that rise and jitter like real ones."""
    time_ = np.arange(trial.epochs) / random.uniform(20, 80)
    best, noise = random.uniform(0.7, 0.83), random.uniform(0.004, 0.02)

    def accuracy(total: int, gain: float) -> np.ndarray[Any, np.dtype[np.float32]]:
        curve = 0.5 + (best + gain - 0.5) * (1 - np.exp(-time_)) + random.normal(0, noise, trial.epochs)
        return (np.rint(np.clip(curve, 0, 1) * total) / total).astype(np.float32)

    loss = 0.7 * np.exp(-time_) + 0.1 + random.normal(0, 0.01, trial.epochs)
    curves = {"loss": loss.astype(np.float32), "train": accuracy(3699, 0.1), "valid": accuracy(411, 0.0)}
    return Outcome(trial, curves, seconds=1.0, device="NVIDIA H200")


def timed(work: Callable[[], Any], repeat: int = 3, clock: Callable[[], float] = time.perf_counter) -> float:
    """The shortest time of a few calls."""
    times = []
    for _ in range(repeat):
        began = clock()
        work()
        times.append(clock() - began)
    return min(times)


def cpu_seconds(*arguments: object) -> float:
    """The CPU time of a command in a process of its own, the shortest of three."""

    def children() -> float:
        times = os.times()
        return times.children_user + times.children_system

    command = [sys.executable, "-m", "graphnorm", *map(str, arguments)]
    return timed(lambda: subprocess.run(command, check=True, stdout=subprocess.DEVNULL), clock=children)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--trials", type=int, default=20_000)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    graphs, random = load("synthetic:trees"), np.random.default_rng(0)
    trials: list[Trial] = []
    number = 0
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
        writing = []
        while len(trials) < options.trials:
            settings = Settings(model=("gin", "gcn")[number % 2], hidden=64 + number // 2)
            plan = make_plan(graphs, settings, GRIDS["paper"])
            chosen = plan.trials[: options.trials - len(trials)]
            study = store.add(Plan(f"study-{number}", plan.spec, chosen), [range(len(chosen))])
            session = store.begin_session(study, "local")
            for start in range(0, len(chosen), FLEET):
                outcomes = [outcome(trial, random) for trial in chosen[start : start + FLEET]]
                writing.append(timed(lambda made=outcomes, of=session: store.save(of, made), 1) / len(outcomes))  # type: ignore[misc]
            trials += chosen
            number += 1
        one = store.add(Plan("all", plan.spec, tuple(trials)), [range(len(trials))])
        first = store.study("study-0")

        def show(name: str) -> None:
            """Show a study as a fresh command does, without anything cached."""
            with Store(store.path, writable=False) as fresh:
                read(fresh, fresh.plan(fresh.study(name)))

        size = store._connection.execute("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
        (bytes_,) = size.fetchone()
        result = facts() | {
            "trials": len(trials),
            "studies": number + 1,
            "bytes_per_trial": round(bytes_ / len(trials)),
            "seconds_to_list_studies": round(timed(store.studies), 3),
            f"seconds_for_the_table_of_a_study_of_{first.trials}": round(timed(lambda: show(first.name)), 3),
            f"seconds_for_the_table_of_a_study_of_{one.trials}": round(timed(lambda: show(one.name)), 3),
            "the_same_in_CPU_seconds": round(timed(lambda: show(one.name), clock=time.process_time), 3),
            "CPU_seconds_of_commands": {
                name: round(cpu_seconds("runs", *arguments, "--store", store.path), 2)
                for name, arguments in {
                    "runs": (),
                    "runs show": ("show", one.name),
                    "runs export to CSV": ("export", Path(folder) / "trials.csv", one.name),
                    "runs export to Parquet": ("export", Path(folder) / "trials.parquet", one.name),
                }.items()
            },
            "milliseconds_to_save_a_trial_in_a_fleet_of_300": round(1e3 * float(np.median(writing)), 3),
            "sqlite": sqlite3.sqlite_version,
            "machine": platform.machine(),
            "load_of_the_machine": round(os.getloadavg()[0], 1),
        }
    print(json.dumps(result, indent=1))
    (options.out / "store.json").write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
