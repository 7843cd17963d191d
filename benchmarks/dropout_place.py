"""What it is worth in Table 2 that dropout acts on the scores alone: ``python -m benchmarks.dropout_place``.

In the authors' code for ogbg-molhiv a score, one number for each molecule, is dropped with probability ½, and nothing
else; Table 2 is measured with dropout after every convolution, as in OGB's models. Here the models are as in the
authors' code, with the settings of Table 2 and the authors' learning rate. Each seed counts at its best validation
ROC-AUC. Results go to ``benchmarks/results/dropout-place-DEVICE.csv``, a row as soon as it is there.
"""

from __future__ import annotations

import argparse
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import announce, write_table
from graphnorm.data import PackedGraphs, load
from graphnorm.paper.reported import reported
from graphnorm.study.protocol import make_splits
from graphnorm.study.selection import mean_and_std, select
from graphnorm.training import Outcome, Progress, Trial, train
from graphnorm.training.fleet import default_device

DATASET = "ogbg-molhiv"
MODELS = {"molhiv-gin": {"epochs": 25, "batch_size": 128}, "molhiv-gcn": {"epochs": 50, "batch_size": 64}}


def outcomes(graphs: PackedGraphs, model: str, norm: str, options: argparse.Namespace) -> list[Outcome]:
    """Train a model of each seed."""
    fixed: dict[str, Any] = {"dataset": DATASET, "fingerprint": graphs.fingerprint, "readout": "mean", "hidden": 300}
    fixed |= MODELS[model] | {"protocol": "ogb", "folds": 1, "lr": 1e-4, "model": model, "norm": norm}
    fixed |= {"epochs": options.epochs} if options.epochs else {}
    trials = [Trial(**fixed, seed=seed) for seed in range(options.seeds)]

    def say(now: Progress) -> None:
        done = f"epoch {now.epoch} of {fixed['epochs']}, {now.seconds:.0f} s"
        print(f"{model}, {norm}: {done}, validation {100 * float(now.metrics['valid'].mean()):.1f}", flush=True)

    return train(graphs, trials, make_splits(graphs, trials), device=options.device, on_epoch=say)


def rows(graphs: PackedGraphs, options: argparse.Namespace) -> Iterator[dict[str, Any]]:
    """Every model with every normalization."""
    for model in options.models.split(","):
        for norm in options.norms.split(","):
            began = time.perf_counter()
            found = outcomes(graphs, model, norm, options)
            chosen, said = select([found]), reported(DATASET, model.replace("molhiv", "molecular"), norm, "ogb")
            fitted, _ = mean_and_std([float(outcome.curves["train"][-1]) for outcome in found])
            yield {
                "model": model,
                "norm": norm,
                "seeds": len(found),
                "epochs": found[0].trial.epochs,
                "test_mean": f"{100 * chosen.mean:.2f}",
                "test_std": f"{100 * chosen.std:.2f}",
                "reported": said or "",
                "train_at_the_end": f"{100 * fitted:.2f}",
                "seconds": round(time.perf_counter() - began),
            }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--models", default=",".join(MODELS), metavar="A,B")
    parser.add_argument("--norms", default="graph,instance,batch", metavar="A,B")
    parser.add_argument("--seeds", type=int, default=4)
    parser.add_argument("--epochs", type=int, help="for a trial run: other than the paper's")
    parser.add_argument("--device", type=default_device, default=default_device())
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    made = announce(torch.device(options.device))
    graphs = load(DATASET)
    table = []
    for row in rows(graphs, options):
        table.append(row)
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
        write_table("dropout-place", table, made, options.out)


if __name__ == "__main__":
    main()
