"""Kill a study a hundred times and compare its results with an undisturbed run: ``python -m benchmarks.kills``.

Two studies of the same trials run as real processes, on the CPU. One is left alone. Of the other, at random times, the
driver or one of its workers is ended by SIGKILL; a killed driver is started again with the same command. In the end
both stores must hold the same trials with the same status and the same curves to the bit: nothing twice, nothing
missing, and give the same result. Trials whose worker was killed three times at one place are recorded as failed; the
same command again tries them again. Writes ``benchmarks/results/kills-ENGINE.json``.

Other arguments are given to ``graphnorm search``, for other graphs, tasks and models:
``python -m benchmarks.kills --name tox21 tox21.csv --model mine.py:Net --folds 3``.
"""

from __future__ import annotations

import argparse
import json
import os
import random
import signal
import sqlite3
import subprocess
import sys
import tempfile
import time
from collections import Counter
from contextlib import closing
from pathlib import Path
from typing import Any

import psutil

from benchmarks.facts import RESULTS, facts
from graphnorm.data import save_packed, synthetic
from graphnorm.study import Store

Table = dict[tuple[str, str], tuple[Any, ...]]


def command(folder: Path, store: str, options: argparse.Namespace) -> list[str]:
    study = options.study or f"{folder}/graphs.safetensors --folds 3 --hidden 8 --layers 3".split()
    what = f"--grid {folder}/grid.toml --norms graph,batch --epochs {options.epochs}"
    where = f"--store {folder}/{store} --engine {options.engine} --workers 2 --checkpoint 1"
    device = "" if options.engine == "ray" else "--device cpu"
    how = "--retry-failed --quiet --json"
    return [sys.executable, "-m", "graphnorm.cli", "search", *f"{what} {where} {device} {how}".split(), *study]


def read_result(arguments: list[str]) -> Any:
    """The result of a finished study, without what differs from run to run."""

    def without_times(value: Any) -> Any:
        if isinstance(value, dict):
            return {name: without_times(one) for name, one in value.items() if name != "seconds"}
        return value

    return without_times(json.loads(subprocess.run(arguments, check=True, capture_output=True).stdout))


def read_table(path: Path) -> Table:
    """Every curve of every trial, as stored."""
    with closing(sqlite3.connect(path)) as connection:
        rows = connection.execute(
            "SELECT t.key, c.name, o.status, o.epochs, c.data FROM outcomes o "
            "JOIN trials t ON t.id = o.trial JOIN curves c ON c.trial = o.trial"
        ).fetchall()
        assert connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
    table = {row[:2]: row[2:] for row in rows}
    assert len(table) == len(rows), "a curve is there twice"
    return table


def workers_of(driver: int, engine: str) -> list[psutil.Process]:
    """The processes that train for a driver."""
    mark = "ray::_Actor" if engine == "ray" else "graphnorm.study.local_engine"
    found = []
    try:
        for process in psutil.Process(driver).children(recursive=True):
            try:
                if mark in " ".join(process.cmdline()):
                    found.append(process)
            except psutil.Error:
                continue
    except psutil.Error:
        pass
    return found


def failed_trials(path: Path) -> int:
    with Store(path, writable=False) as store:
        return sum(study.counts.get("failed", 0) for study in store.studies())


def disturb(
    arguments: list[str], store: Path, kills: int, engine: str, seed: int, log: Path
) -> tuple[Counter[str], int]:
    """Run a command to its end and kill it ``kills`` times on the way.

    Returns what was killed, and how often the command ended with failed trials and was repeated.
    """
    chance, killed, again = random.Random(seed), Counter[str](), 0
    while True:
        calm = killed.total() >= kills
        with log.open("ab") as errors:
            driver = subprocess.Popen(arguments, stdout=errors, stderr=errors)
        while driver.poll() is None and killed.total() < kills:
            time.sleep(chance.uniform(0.4, 2.5))
            workers = workers_of(driver.pid, engine)
            if workers and chance.random() < 0.7:
                killed["worker"] += kill(chance.choice(workers))
            elif chance.random() < (0.4 if workers else 0.05):  # most drivers live until their workers do
                driver.send_signal(signal.SIGKILL)
                killed["driver"] += driver.wait() == -signal.SIGKILL
            print(f"{killed.total()} kills", end="\r", flush=True)
        if driver.wait() == -signal.SIGKILL:
            continue
        failed = store.exists() and failed_trials(store)
        if not failed or calm:
            assert driver.returncode == 0, f"the driver ended with code {driver.returncode}: {log.read_text()[-2000:]}"
            return killed, again
        again += 1


def kill(process: psutil.Process) -> bool:
    """Kill a process; return whether it was still running."""
    try:
        process.kill()
    except psutil.NoSuchProcess:
        return False
    return True


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--kills", type=int, default=100)
    parser.add_argument("--engine", choices=("local", "ray"), default="local")
    parser.add_argument("--epochs", type=int, default=3000)
    parser.add_argument("--name", default="", help="the file is kills-ENGINE-NAME.json")
    parser.add_argument("--seed", type=int, default=0)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options, study = parser.parse_known_args()
    options.study = study
    os.environ |= {"OMP_NUM_THREADS": "1", "PYTHONWARNINGS": "ignore"}
    with tempfile.TemporaryDirectory() as temporary:
        folder = Path(temporary)
        save_packed(synthetic.regular(num_graphs=24, seed=0), folder / "graphs.safetensors")
        (folder / "grid.toml").write_text("lr = [1e-3, 1e-2]\ndropout = [0.0, 0.5]\nbatch_size = [8, 16]\n")
        began = time.monotonic()
        undisturbed = command(folder, "calm.db", options)
        subprocess.run(undisturbed, check=True, stdout=subprocess.DEVNULL)
        calm = time.monotonic() - began
        print(f"undisturbed: {calm:.0f} s", flush=True)
        began = time.monotonic()
        arguments = command(folder, "killed.db", options)
        store, log = folder / "killed.db", folder / "log"
        killed, again = disturb(arguments, store, options.kills, options.engine, options.seed, log)
        disturbed = time.monotonic() - began
        expected, found = read_table(folder / "calm.db"), read_table(folder / "killed.db")
        results_equal = read_result(undisturbed) == read_result(arguments)
        left = [path.name for path in (folder / "killed.db-work").rglob("*.checkpoint")]
    result = facts("cpu", *(["ray"] if options.engine == "ray" else [])) | {
        "engine": options.engine,
        "study": " ".join(options.study),
        "kills": dict(killed),
        "ended_with_failed_trials_and_given_again": again,
        "trials": len({key for key, _ in expected}),
        "curves": len(expected),
        "equal_to_the_bit": expected == found,
        "results_equal": results_equal,
        "missing": len(expected.keys() - found.keys()),
        "too_many": len(found.keys() - expected.keys()),
        "checkpoints_left": left,
        "seconds_undisturbed": round(calm, 1),
        "seconds_disturbed": round(disturbed, 1),
    }
    print(json.dumps(result, indent=1))
    options.out.mkdir(parents=True, exist_ok=True)
    name = f"kills-{options.engine}-{options.name}" if options.name else f"kills-{options.engine}"
    (options.out / f"{name}.json").write_text(json.dumps(result, indent=1) + "\n")
    assert expected == found, "the tables differ"
    assert results_equal, "the results differ"
    assert killed.total() >= options.kills, "the study was over before all kills were made; give more --epochs"


if __name__ == "__main__":
    main()
