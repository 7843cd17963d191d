"""The setting of the paper's training curves: GIN, 10 folds, 400 epochs, five normalizations, as fleets.

``python -m benchmarks.figure2 [DATASET …] [--minutes 9] [--out FOLDER]``. For each dataset and normalization it writes
the mean and standard deviation over the folds of every epoch's training and validation accuracy, and one line of
summary with the seconds it took. What is in the folder already is not trained again, so it goes on where it stopped.
"""

from __future__ import annotations

import argparse
import csv
import dataclasses
import json
import time
from datetime import date
from pathlib import Path
from typing import Any

import numpy as np

import graphnorm
from benchmarks.fleet import setting
from graphnorm.training import Fleet
from graphnorm.training.fleet import default_device, device_name

DATASETS = ("MUTAG", "PTC", "IMDB-BINARY", "PROTEINS", "NCI1", "REDDIT-BINARY", "COLLAB")
NORMS = ("graph", "instance", "batch", "layer", "none")


def train_one(dataset: str, norm: str, epochs: int, device: str | None) -> tuple[dict[str, Any], dict[str, Any]]:
    """A summary, and the curves: name -> (epochs, folds)."""
    graphs, trials, splits = setting(dataset, 10, epochs)
    trials = [dataclasses.replace(trial, norm=norm, self_loops=True) for trial in trials]
    began = time.perf_counter()
    fleet = Fleet(graphs, trials, splits, device=device)
    fleet.advance()
    seconds = time.perf_counter() - began
    outcomes = fleet.outcomes()
    curves = {name: np.stack([outcome.curves[name] for outcome in outcomes], axis=1) for name in ("train", "valid")}
    return summary(dataset, norm, curves, seconds, device_name(fleet.device)), curves


def summary(dataset: str, norm: str, curves: dict[str, Any], seconds: float, device: str) -> dict[str, Any]:
    """Protocol ``paper``: the epoch with the best mean validation accuracy, and the folds' scores there."""
    train, valid = curves["train"], curves["valid"]
    chosen = int(np.nanargmax(valid.mean(1)))
    return {
        "dataset": dataset,
        "norm": norm,
        "epochs": len(train),
        "train_at_50": 100 * float(train.mean(1)[min(49, len(train) - 1)]),
        "train_at_100": 100 * float(train.mean(1)[min(99, len(train) - 1)]),
        "train_at_end": 100 * float(train.mean(1)[-1]),
        "valid_mean": 100 * float(valid[chosen].mean()),
        "valid_std": 100 * float(valid[chosen].std(ddof=1)),
        "chosen_epoch": chosen + 1,
        "seconds": seconds,
        "device": device,
        "date": str(date.today()),
        "graphnorm": graphnorm.__version__,
    }


def write(folder: Path, facts: dict[str, Any], curves: dict[str, Any]) -> None:
    """One CSV of curves, and the list of summaries with a line more."""
    folder.mkdir(parents=True, exist_ok=True)
    columns = [curves[name] for name in ("train", "valid")]
    rows = np.stack([part for values in columns for part in (values.mean(1), values.std(1, ddof=1))], axis=1)
    with (folder / f"{facts['dataset']}-{facts['norm']}.csv").open("w", newline="") as file:
        writer = csv.writer(file)
        writer.writerow(["epoch", "train_mean", "train_std", "valid_mean", "valid_std"])
        writer.writerows([k + 1, *(f"{value:.4f}" for value in row)] for k, row in enumerate(rows))
    path = folder / "summary.json"
    lines = json.loads(path.read_text()) if path.exists() else []
    path.write_text(json.dumps([*lines, facts], indent=1) + "\n", encoding="utf-8")


def draw(folder: Path, to: Path) -> None:
    """The mean training accuracy of every dataset in the folder, one panel each."""
    import matplotlib.pyplot as plt

    names = [name for name in DATASETS if (folder / f"{name}-{NORMS[0]}.csv").exists()]
    figure, axes = plt.subplots(1, len(names), figsize=(2.6 * len(names), 2.6), sharey=True, layout="constrained")
    for axis, name in zip(np.atleast_1d(axes), names, strict=True):
        for colour, norm in zip(("C3", "C1", "C0", "C2", "0.5"), NORMS, strict=True):
            rows = np.genfromtxt(folder / f"{name}-{norm}.csv", delimiter=",", names=True)
            axis.plot(rows["epoch"], 100 * rows["train_mean"], color=colour, label=norm, linewidth=1.3)
        axis.set(title=name, xlabel="epoch", ylim=(50, 101))
        axis.grid(alpha=0.25)
    np.atleast_1d(axes)[0].set_ylabel("training accuracy, %")
    np.atleast_1d(axes)[-1].legend(loc="lower right", fontsize=8)
    figure.savefig(to, dpi=110)


def main() -> None:
    """Train what is missing, as long as there is time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=DATASETS)
    parser.add_argument("--minutes", type=float, default=9.0, help="begin nothing new after these (default: 9)")
    parser.add_argument("--epochs", type=int, default=400)
    parser.add_argument("--device")
    parser.add_argument("--plot", type=Path, metavar="FILE", help="train nothing; draw what the folder holds")
    parser.add_argument("--out", type=Path, default=Path("benchmarks/results/figure2-gin"))
    options = parser.parse_args()
    if options.plot:
        draw(options.out, options.plot)
        return
    print(f"on {device_name(default_device(options.device))}", flush=True)
    began = time.perf_counter()
    for dataset in options.datasets:
        for norm in NORMS:
            if (options.out / f"{dataset}-{norm}.csv").exists():
                continue
            if time.perf_counter() - began > 60 * options.minutes:
                print("out of time; run it again to go on")
                return
            facts, curves = train_one(dataset, norm, options.epochs, options.device)
            write(options.out, facts, curves)
            print(json.dumps(facts), flush=True)


if __name__ == "__main__":
    main()
