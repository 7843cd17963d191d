"""Measure the baselines beside the numbers that the paper quotes for them: ``python -m benchmarks.baselines``.

Every baseline is run on every dataset under the protocol ``paper``, on the folds that the normalizations are compared
on, and its mean and standard deviation over the folds are put beside the quoted ones, with their difference in quoted
standard deviations. Results are added to ``benchmarks/results/baselines.csv``, one row for each baseline and dataset;
rows that are there already are kept, so that a run can be stopped and go on. Networks are trained with one setting, not
tuned over a grid.
"""

from __future__ import annotations

import argparse
import csv
import sys
from pathlib import Path
from typing import Any

from graphnorm.data import load
from graphnorm.paper.reported import reported_baseline
from graphnorm.study.baselines import BASELINES, baseline_trials, train_baseline
from graphnorm.study.kernels import KERNELS, candidates
from graphnorm.study.protocol import make_splits
from graphnorm.study.selection import select
from graphnorm.training import Progress

RESULTS = Path(__file__).parent / "results" / "baselines.csv"
DATASETS = ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-BINARY", "REDDIT-BINARY", "COLLAB")
NETWORKS: dict[str, Any] = {"epochs": 100, "batch_size": 50, "lr": 1e-2, "dropout": 0.5}
COLUMNS = ("baseline", "dataset", "mean", "std", "quoted_mean", "quoted_std", "deviation", "chosen")


def measure(name: str, dataset: str, device: str | None, workers: int | None) -> dict[str, object]:
    graphs = load(dataset)
    trials = baseline_trials(graphs, name, folds=10, protocol="paper", **NETWORKS)

    def show(progress: Progress) -> None:
        valid = float(progress.metrics["valid"].mean())
        print(f"\r{name} {dataset}: {progress.epoch} of {trials[0].epochs}, {valid:.3f}", end="", file=sys.stderr)

    splits = make_splits(graphs, trials)
    outcomes = train_baseline(graphs, trials, splits, device=device, workers=workers, on_epoch=show)
    print(file=sys.stderr)
    chosen = select([outcomes])
    assert chosen.epoch is not None
    setting = candidates(name)[chosen.epoch - 1] if name in KERNELS else {"epoch": chosen.epoch}
    row: dict[str, object] = {"baseline": name, "dataset": dataset}
    row |= {"mean": f"{100 * chosen.mean:.1f}", "std": f"{100 * chosen.std:.1f}"}
    row["chosen"] = " ".join(f"{key}={value:g}" for key, value in setting.items())
    quoted = reported_baseline(dataset, name, "paper")
    if quoted is not None:
        row |= {"quoted_mean": quoted.mean, "quoted_std": quoted.std}
        spread = quoted.std if quoted.std is not None else 100 * chosen.std
        row["deviation"] = f"{(100 * chosen.mean - quoted.mean) / spread:+.1f}"
    return row


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--baselines", default="wl,awl,mlp,dcnn,dgcnn", help=f"of {', '.join(BASELINES)}")
    parser.add_argument("--datasets", default=",".join(DATASETS))
    parser.add_argument("--device")
    parser.add_argument("--workers", type=int)
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    rows: list[dict[str, object]] = []
    if options.out.exists():
        with options.out.open(newline="", encoding="utf-8") as stream:
            rows = list(csv.DictReader(stream))
    there = {(row["baseline"], row["dataset"]) for row in rows}
    for dataset in options.datasets.split(","):
        for name in options.baselines.split(","):
            if (name, dataset) in there:
                continue
            rows.append(measure(name, dataset, options.device, options.workers))
            print({key: rows[-1].get(key) for key in COLUMNS}, flush=True)
            with options.out.open("w", newline="", encoding="utf-8") as stream:
                writer = csv.DictWriter(stream, COLUMNS, lineterminator="\n")
                writer.writeheader()
                writer.writerows(rows)


if __name__ == "__main__":
    main()
