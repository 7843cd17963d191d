"""The effect of a small last batch of each epoch on training: ``python -m benchmarks.last_batches``.

Graphs are rarely a multiple of the batch size, and the last step of an epoch is made on what is left over. Here the
same GIN is trained on the same graphs but for a few, so that 0 (all batches are full), 1, 8 or 64 graphs are left over.
Writes ``benchmarks/results/last-batches.csv``, whose rows are means over folds after the last epoch.
``last-batches-400-epochs.csv`` is of ``NCI1 --norms batch graph --left-over 0 1 --epochs 400``.
"""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from benchmarks.facts import RESULTS, announce, write_table
from graphnorm.data import load
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.study.folds import make_splits
from graphnorm.training import Fleet, Outcome, Progress, Split, Trial

LEFT_OVER = (0, 1, 8, 64)
CPU = torch.device("cpu")


@dataclass(frozen=True)
class Case:
    """One training on a cut training set."""

    trial: Trial
    split: Split
    left_over: int

    @property
    def group(self) -> tuple[str, int]:
        """The settings that its folds share."""
        return self.trial.norm, self.left_over


def cut(split: Split, batch_size: int, left_over: int, most: int) -> Split:
    """The training graphs but for a few: full batches, as many as leave ``most`` over, and ``left_over`` graphs."""
    full = (len(split.train) - most) // batch_size
    return split._replace(train=split.train[: full * batch_size + left_over])


def cases_of(
    dataset: str, folds: int, epochs: int, norms: Sequence[str] = DEFAULT_NORMS, left_over: Sequence[int] = LEFT_OVER
) -> list[Case]:
    """Every normalization with every number of left-over graphs, on the same folds."""
    trials = [
        Trial(dataset=dataset, norm=norm, self_loops=True, fold=fold, epochs=epochs)
        for norm in norms
        for fold in range(folds)
    ]
    splits = make_splits(load(dataset), trials)
    return [
        Case(trial, cut(split, trial.batch_size, count, max(left_over)), count)
        for trial, split in zip(trials, splits, strict=True)
        for count in left_over
    ]


def rows_of(cases: Sequence[Case]) -> list[dict[str, Any]]:
    """Train, and average over folds."""
    trial = cases[0].trial

    def report(progress: Progress) -> None:
        if progress.epoch % 10 == 0:
            print(f"{progress.trials[0].norm}: epoch {progress.epoch} of {trial.epochs}", flush=True)

    groups: dict[tuple[str, int], list[Outcome]] = {}
    for norm in dict.fromkeys(case.trial.norm for case in cases):
        own = [case for case in cases if case.trial.norm == norm]
        fleet = Fleet(load(trial.dataset), [c.trial for c in own], [c.split for c in own], device=CPU)
        fleet.advance(on_epoch=report)
        for case, outcome in zip(own, fleet.outcomes(), strict=True):
            groups.setdefault(case.group, []).append(outcome)
    return [
        {
            "dataset": trial.dataset,
            "norm": norm,
            "left_over": left_over,
            "full_batches": len(cases[0].split.train) // trial.batch_size,
            "batch_size": trial.batch_size,
            "epochs": trial.epochs,
            "folds": len(folds),
            **{curve: f"{np.mean([fold.curves[curve][-1] for fold in folds]):.3f}" for curve in ("loss", "train")},
        }
        for (norm, left_over), folds in groups.items()
    ]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["PROTEINS", "NCI1"], help="default: PROTEINS NCI1")
    parser.add_argument("--norms", nargs="+", default=DEFAULT_NORMS, metavar="NORM")
    parser.add_argument("--left-over", nargs="+", type=int, default=LEFT_OVER, metavar="GRAPHS")
    parser.add_argument("--folds", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--out", type=Path, default=RESULTS / "last-batches.csv")
    options = parser.parse_args()
    made = announce(CPU)
    rows = []
    for dataset in options.datasets:
        print(dataset, flush=True)
        rows += rows_of(cases_of(dataset, options.folds, options.epochs, options.norms, options.left_over))
    write_table("last-batches", rows, made, options.out)


if __name__ == "__main__":
    main()
