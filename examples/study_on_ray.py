"""A study on Ray: a grid over normalizations, on a cluster, with a store that can be stopped and gone on with.

Run it with ``python examples/study_on_ray.py``, or with ``--address auto`` on a machine of a cluster; it needs
``pip install 'graphnorm[ray]'``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

from graphnorm.data import load
from graphnorm.study.display import Display
from graphnorm.study.engines.ray import RayEngine
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.search import pack, run_plan


def main() -> None:
    """Train a small grid on two workers, and show what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="of a Ray cluster; without it, one is started on this machine")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--store", type=Path, default=Path("ray-example.db"))
    options = parser.parse_args()
    graphs = load("synthetic:trees")
    grid = Grid("example", {"epochs": (options.epochs,), "lr": (1e-3, 1e-2)})
    plan = make_plan(graphs, grid, norms=["batch", "graph"], folds=3, hidden=16, layers=3)
    result = run_plan(
        options.store,
        plan,
        graphs,
        lambda fleets: RayEngine(
            graphs,
            address=options.address,
            workers=options.workers,
            cpus_per_worker=1.0,
            gpus_per_worker=0.0,
            fleets=fleets,
        ),
        fleets=pack(graphs, plan.trials, "cpu", slots=options.workers),
        callbacks=[Display()],
    )
    for norm in result.norms:
        assert norm.selection is not None, "everything is trained"
        print(f"{norm.norm}: {100 * norm.selection.mean:.1f} ± {100 * norm.selection.std:.1f} % with {norm.chosen}")
    print(f"kept in {options.store}; see it with: graphnorm report --store {options.store} --open")


if __name__ == "__main__":
    main()
