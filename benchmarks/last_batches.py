"""What a small last batch of each epoch does to training: ``python -m benchmarks.last_batches``.

Graphs are rarely a multiple of the batch size, and the last step of an epoch is made on what is left over. The gradient
of a few graphs is noisy, and Adam weighs it like any other. Here the same GIN is trained on the same graphs but for a
few, so that 0 (all batches are full), 1, 8 or 64 graphs are left over. Writes ``benchmarks/results/last-batches.csv``,
whose rows are means over folds after the last epoch.
"""

from __future__ import annotations

import argparse
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.facts import RESULTS, announce, write_table
from graphnorm.data import load
from graphnorm.study.protocol import make_splits
from graphnorm.training import Outcome, Split, Trial, train
from graphnorm.training.fleet import Progress

NORMS = ("none", "layer", "batch", "instance", "graph")
LEFT_OVER = (0, 1, 8, 64)


@dataclass(frozen=True)
class Case:
    """One training on a cut training set."""

    trial: Trial
    split: Split
    left_over: int

    @property
    def question(self) -> tuple[str, int]:
        """What folds are averaged of."""
        return self.trial.norm, self.left_over


def cut(split: Split, batch_size: int, left_over: int) -> Split:
    """As many full batches of the training graphs as all the numbers of left-over graphs allow, and that many more."""
    full = (len(split.train) - max(LEFT_OVER)) // batch_size
    return split._replace(train=split.train[: full * batch_size + left_over])


def cases_of(dataset: str, folds: int, epochs: int, norms: Iterable[str]) -> list[Case]:
    """Every normalization with every number of left-over graphs, on the same folds."""
    trials = [
        Trial(dataset=dataset, norm=norm, self_loops=True, fold=fold, epochs=epochs)
        for norm in norms
        for fold in range(folds)
    ]
    splits = make_splits(load(dataset), trials)
    return [
        Case(trial, cut(split, trial.batch_size, left_over), left_over)
        for trial, split in zip(trials, splits, strict=True)
        for left_over in LEFT_OVER
    ]


def rows_of(cases: list[Case]) -> list[dict[str, Any]]:
    """Train, and average over folds."""
    trial = cases[0].trial

    def report(progress: Progress) -> None:
        if progress.epoch % 10 == 0:
            print(f"{progress.trials[0].norm}: epoch {progress.epoch} of {trial.epochs}", flush=True)

    outcomes = train(
        load(trial.dataset), [case.trial for case in cases], [case.split for case in cases], on_epoch=report
    )
    found: dict[tuple[str, int], list[Outcome]] = {}
    for case, outcome in zip(cases, outcomes, strict=True):
        found.setdefault(case.question, []).append(outcome)
    return [
        {
            "dataset": trial.dataset,
            "norm": norm,
            "left_over": left_over,
            "full_batches": len(cases[0].split.train) // trial.batch_size,
            "batch_size": trial.batch_size,
            "epochs": trial.epochs,
            "folds": len(outcomes),
            **{
                name: f"{np.mean([outcome.curves[name][-1] for outcome in outcomes]):.3f}" for name in ("loss", "train")
            },
        }
        for (norm, left_over), outcomes in found.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["PROTEINS", "NCI1"], help="default: PROTEINS NCI1")
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "last-batches.csv")
    options = parser.parse_args()
    made = announce(torch.device("cpu"))
    rows = []
    for dataset in options.datasets:
        print(dataset, flush=True)
        rows += rows_of(cases_of(dataset, options.folds, options.epochs, NORMS))
    write_table("last-batches", rows, made, options.out)


if __name__ == "__main__":
    main()
