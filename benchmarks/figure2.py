"""How long the setting of the paper's training curves takes: GIN, 10 folds, 400 epochs, five normalizations.

``python -m benchmarks.figure2 [DATASET …] [--epochs 400]``. Each dataset's five normalizations are one study, trained
as ``graphnorm reproduce fig2`` does: fleets side by side on a GPU. A first study of two epochs takes what a dataset
costs once (kernels are compiled, steps recorded); with fewer than 400 epochs the time of all of them follows from the
difference. Results go to ``benchmarks/results/figure2-DEVICE.csv``.
"""

from __future__ import annotations

import argparse
import tempfile
import time
from pathlib import Path
from typing import Any

from benchmarks.facts import announce, write_table
from graphnorm.data import PackedGraphs, find, load
from graphnorm.settings import GRIDS, Running, Settings
from graphnorm.study import Store, make_plan, run
from graphnorm.study.paper_numbers import TU
from graphnorm.training import default_device

FEW, ALL = 2, 400


def seconds(graphs: PackedGraphs, epochs: int, device: str) -> float:
    """The time to train all five normalizations, up to the last result in the store."""
    settings = Settings(readout=find(graphs.name).readout, self_loops=True)
    plan = make_plan(graphs, settings, GRIDS["curves"].fixed(epochs=epochs))
    began = time.perf_counter()
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
        run(plan, graphs, store, Running(device=device))
    return time.perf_counter() - began


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=TU)
    parser.add_argument("--epochs", type=int, default=ALL, help=f"more than {FEW}; default: {ALL}")
    parser.add_argument("--device")
    parser.add_argument("--out", type=Path)
    options = parser.parse_args()
    device = default_device(options.device)
    made = announce(device)
    rows: list[dict[str, Any]] = []
    for name in options.datasets:
        graphs = load(name)
        once, some = (seconds(graphs, epochs, str(device)) for epochs in (FEW, options.epochs))
        an_epoch = (some - once) / (options.epochs - FEW)
        rows.append(
            {
                "dataset": name,
                "epochs": options.epochs,
                "seconds_of_2_epochs": round(once, 2),
                "seconds": round(some, 2),
                "seconds_of_400_epochs": round(once + (ALL - FEW) * an_epoch, 1),
            }
        )
        print(" ".join(f"{key} {value}" for key, value in rows[-1].items()), flush=True)
    write_table("figure2", rows, made, options.out)


if __name__ == "__main__":
    main()
