"""Test scores of MoleculeNet's tables on their scaffold split, as ``graphnorm compare NAME --epochs 100`` gives them.

    GRAPHNORM_DATA=folder python -m benchmarks.moleculenet [--only esol bace] [--norms none,graph] [--store FILE.db]

All scores of a table go to one CSV file, a row for each seed. With ``--store``, finished trainings are kept there, and
the same call again trains only what is missing. ``--packed`` names a folder of files that
``graphnorm.data.save_packed`` made, for a machine without RDKit.
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import announce, write_table
from graphnorm.data import load
from graphnorm.settings import Running
from graphnorm.study.plan_from_settings import make_plan, settle
from graphnorm.study.runner import run
from graphnorm.study.store import Store

NAMES = ("esol", "freesolv", "lipo", "bace", "bbbp", "clintox", "sider", "tox21")
"""The quick ones first."""


def rows_of(source: str, norms: str, seeds: int | None, epochs: int, store: Store) -> list[dict[str, Any]]:
    """Train a table, print its result, and give the score of each seed."""
    graphs = load(source)
    plan = make_plan(graphs, settle(graphs, norms=norms, seeds=seeds, epochs=epochs))
    result = run(plan, graphs, store, Running())
    print(result, flush=True)
    return [
        {"dataset": graphs.name, "metric": result.metric.name, "norm": norm, "seed": seed, "score": round(value, 6)}
        for norm, score in result.norms.items()
        for seed, value in score.scores.items()
    ]


def main() -> None:
    """Train, and write the scores."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--only", nargs="*", choices=NAMES, default=NAMES)
    parser.add_argument("--norms", default="none,batch,graph")
    parser.add_argument("--seeds", type=int, help="default: 5")
    parser.add_argument("--epochs", type=int, default=100)
    parser.add_argument("--packed", type=Path, help="folder of NAME.safetensors")
    parser.add_argument("--store", type=Path)
    parser.add_argument("--out", type=Path, help="default: benchmarks/results/moleculenet-DEVICE.csv")
    options = parser.parse_args()
    made = announce(torch.device("cuda" if torch.cuda.is_available() else "cpu"))
    rows: list[dict[str, Any]] = []
    with tempfile.TemporaryDirectory() as folder, Store(options.store or Path(folder) / "scores.db") as store:
        for name in options.only:
            source = str(options.packed / f"{name}.safetensors") if options.packed else name
            rows += rows_of(source, options.norms, options.seeds, options.epochs, store)
            write_table("moleculenet", rows, made, options.out)


if __name__ == "__main__":
    main()
