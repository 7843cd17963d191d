"""Measure the baselines beside the numbers that the paper quotes for them: ``python -m benchmarks.baselines``.

Every baseline is run on every dataset under the protocol ``paper``, on the folds that the normalizations are compared
on, and its mean and standard deviation over the folds are put beside the quoted ones, with their difference in quoted
standard deviations. Results are added to ``benchmarks/results/baselines.csv``, one row for each baseline and dataset,
the cheapest first; rows that are there already are kept, so that a run can be stopped and go on. Networks are trained
with one setting, not tuned over a grid.
"""

from __future__ import annotations

import argparse
import csv
import datetime
import itertools
import os
import platform
import sys
import tempfile
import time
from collections.abc import Iterable, Sequence
from pathlib import Path

import torch

from graphnorm._version import exact_version
from graphnorm.data import find, load
from graphnorm.models import MODELS
from graphnorm.settings import Running
from graphnorm.study import Store, run
from graphnorm.study.planning import BASELINE_SETTING, baseline_plan
from graphnorm.study.progress import Display
from graphnorm.study.reported import TU, reported_baseline

RESULTS = Path(__file__).parent / "results" / "baselines.csv"
BASELINES = ("wl", "awl", "mlp", "dcnn", "dgcnn")
DATASETS = TU
EPOCHS: int = BASELINE_SETTING["epochs"]
SHORTER = {("dgcnn", "REDDIT-BINARY"): 50, ("dgcnn", "COLLAB"): 50}
"""Epochs where one takes seconds."""
COLUMNS = ("baseline", "dataset", "mean", "std", "quoted_mean", "quoted_std", "deviation", "chosen",
           "epochs", "seconds", "workers", "device", "date", "graphnorm", "torch", "python")  # fmt: skip

Row = dict[str, object]


def core_seconds(name: str, dataset: str) -> float:
    """About what a row takes of one core: support vector machines by pairs of graphs, networks by what they step over.

    >>> core_seconds("wl", "MUTAG") < core_seconds("mlp", "NCI1") < core_seconds("dgcnn", "COLLAB")
    True
    """
    counts = find(dataset).counts
    assert counts is not None
    graphs, nodes, edges = counts
    if (kernel := MODELS[name].kernel) is not None:
        return 5e-7 * len(kernel.candidates) * graphs**2
    step = 3e-5 * graphs  # in fleets of ten
    if name == "dgcnn":
        step += 6e-6 * nodes + 1.2e-7 * edges
    return 10 * SHORTER.get((name, dataset), EPOCHS) * step


def measure(name: str, dataset: str, device: str | None, workers: int | None, epochs: int | None) -> Row:
    """Run one baseline on one dataset."""
    began = time.perf_counter()
    graphs = load(dataset)
    epochs = epochs or SHORTER.get((name, dataset), EPOCHS)
    plan = baseline_plan(graphs, name, protocol="paper", epochs=epochs)
    shown = [Display()] if sys.stderr.isatty() else []
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
        result = run(plan, graphs, store, Running(device=device, workers=workers), callbacks=shown)
    score = result.baselines[name]
    assert score.epoch is not None
    kernel = MODELS[name].kernel
    setting = {"epoch": score.epoch} if kernel is None else kernel.candidates[score.epoch - 1]
    row: Row = {"baseline": name, "dataset": dataset, "mean": f"{score.mean:.1f}", "std": f"{score.std:.1f}"}
    row["chosen"] = " ".join(f"{key}={value:g}" for key, value in setting.items())
    quoted = reported_baseline(dataset, name, "paper")
    if quoted is not None:
        row |= {"quoted_mean": quoted.mean, "quoted_std": quoted.std}
        spread = quoted.std if quoted.std is not None else score.std
        row["deviation"] = f"{(score.mean - quoted.mean) / spread:+.1f}"
    row |= {"epochs": epochs if kernel is None else None, "seconds": f"{time.perf_counter() - began:.0f}"}
    row |= {"workers": workers or os.cpu_count(), "device": device_name(score.devices[0])}
    row |= {"date": datetime.date.today().isoformat(), "graphnorm": exact_version()}
    return row | {"torch": torch.__version__, "python": platform.python_version()}


def device_name(device: str) -> str:
    """An outcome's device, a CPU by its model where the system says it."""
    if device != "cpu" or not Path("/proc/cpuinfo").exists():
        return device
    lines = Path("/proc/cpuinfo").read_text(encoding="utf-8").splitlines()
    return next((line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), device)


def read(path: Path) -> list[Row]:
    """The rows of a file; none where it is not there yet."""
    if not path.exists():
        return []
    with path.open(newline="", encoding="utf-8") as stream:
        return list(csv.DictReader(stream))


def write(path: Path, rows: Iterable[Row]) -> None:
    """All rows, in the order of baselines and datasets; a reader finds the old file or the new one."""
    places = list(itertools.product(BASELINES, DATASETS))
    fresh = path.with_suffix(".part")
    with fresh.open("w", newline="", encoding="utf-8") as stream:
        writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
        writer.writeheader()
        writer.writerows(sorted(rows, key=lambda row: places.index((str(row["baseline"]), str(row["dataset"])))))
    fresh.replace(path)


def merge(files: Sequence[Path]) -> list[Row]:
    """One row for each baseline and dataset; later files count more."""
    rows = {(row["baseline"], row["dataset"]): row for path in files for row in read(path)}
    return list(rows.values())


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baselines", default=",".join(BASELINES))
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int, help="processes, or for kernels threads; default: the cores")
    parser.add_argument("--epochs", type=int, help=f"of networks; default: {EPOCHS}, fewer where one takes seconds")
    parser.add_argument("--minutes", type=float, default=float("inf"), help="begin no row after so many")
    parser.add_argument("--merge", type=Path, nargs="+", default=[], metavar="FILE", help="add the rows of these files")
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    began = time.monotonic()
    if options.merge:
        write(options.out, merge([options.out, *options.merge]))
        return
    there = {(row["baseline"], row["dataset"]) for row in read(options.out)}
    wanted = itertools.product(options.baselines.split(","), options.datasets.split(","))
    for name, dataset in sorted(set(wanted) - there, key=lambda pair: core_seconds(*pair)):
        if time.monotonic() - began > 60 * options.minutes:
            print(f"left out after {options.minutes:g} minutes: {name} {dataset}", flush=True)
            continue
        row = measure(name, dataset, options.device, options.workers, options.epochs)
        print(" ".join(str(row.get(key)) for key in COLUMNS[:10]), flush=True)
        write(options.out, [*read(options.out), row])


if __name__ == "__main__":
    main()
