"""What in the models of ogbg-molhiv could explain that Table 2 is not met: ``python -m benchmarks.suspects``.

GIN as in Table 2, with the learning rate that its validation molecules choose, and one thing changed at a time: a ReLU
after the last convolution, too, or five convolutions as in OGB's models where the paper's text has four. Each seed
counts at its best validation ROC-AUC. Results go to ``benchmarks/results/suspects-DEVICE.csv``, a row as soon as it
is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from unittest.mock import patch

import torch

from benchmarks.facts import announce, write_table
from graphnorm.data import PackedGraphs, load
from graphnorm.models import MolecularGIN
from graphnorm.norms import make_norm
from graphnorm.study.protocol import make_splits
from graphnorm.study.selection import mean_and_std, select
from graphnorm.training import Outcome, Progress, Trial, setup, train
from graphnorm.training.fleet import default_device

SETTING: dict[str, Any] = {
    "dataset": "ogbg-molhiv",
    "model": "molecular-gin",
    "readout": "mean",
    "hidden": 300,
    "batch_size": 128,
    "epochs": 25,
    "protocol": "ogb",
    "folds": 1,
    "lr": 1e-3,
}
RELU, FIVE = "a ReLU after the last convolution", "five convolutions"
CHANGES: dict[str, dict[str, Any]] = {RELU: {}, FIVE: {"layers": 6}}
NORMS = ("graph", "instance", "batch")


class ReluToTheEnd(MolecularGIN):
    """GIN for molecules whose last convolution ends with a ReLU like the others."""

    def extend(self, hidden: int, convolutions: int, *, norm: str, dropout: float) -> None:
        """The same modules, but for the last activation."""
        super().extend(hidden, convolutions, norm=norm, dropout=dropout)
        last: Any = self.convolutions[-1]
        last.norms[-1] = make_norm(norm, hidden, act="relu")


def outcomes(graphs: PackedGraphs, change: str, norm: str, options: argparse.Namespace) -> list[Outcome]:
    """Train a model of each seed, in this process: others would not know what was changed."""
    fixed = SETTING | CHANGES[change] | {"epochs": options.epochs, "norm": norm, "fingerprint": graphs.fingerprint}
    trials = [Trial(**fixed, seed=seed) for seed in range(options.seeds)]

    def say(now: Progress) -> None:
        valid = float(now.metrics["valid"].mean())
        print(f"{change}, {norm}: epoch {now.epoch} of {options.epochs}, {100 * valid:.1f}", end="\r", flush=True)

    models = {"molecular-gin": ReluToTheEnd} if change == RELU else {}
    with patch.dict(setup._MOLECULAR, models):
        return train(graphs, trials, make_splits(graphs, trials), device=options.device, on_epoch=say, workers=1)


def rows(graphs: PackedGraphs, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every change with every normalization, those in doubt first."""
    for norm in NORMS:
        for change in CHANGES:
            began = time.perf_counter()
            found = outcomes(graphs, change, norm, options)
            chosen = select([found])
            fitted, _ = mean_and_std([float(outcome.curves["train"][-1]) for outcome in found])
            yield {
                "change": change,
                "norm": norm,
                "seeds": len(found),
                "epochs": options.epochs,
                "lr": SETTING["lr"],
                "test_mean": f"{100 * chosen.mean:.2f}",
                "test_std": f"{100 * chosen.std:.2f}",
                "train_at_the_end": f"{100 * fitted:.2f}",
                "seconds": round(time.perf_counter() - began),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=SETTING["epochs"])
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--device", type=default_device, default=default_device())
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    made = announce(torch.device(options.device))
    graphs = load(SETTING["dataset"])
    table = []
    for row in rows(graphs, options):
        table.append(row)
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        write_table("suspects", table, made, options.out)


if __name__ == "__main__":
    main()
