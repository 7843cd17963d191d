"""A study on Ray: a grid over normalizations, on a cluster, with a store that can be stopped and gone on with.

Run it with ``python examples/study_on_ray.py``, or with ``--address auto`` on a machine of a cluster; it needs
``pip install '.[ray]'``.
"""

from __future__ import annotations

import argparse
from pathlib import Path

import graphnorm
from graphnorm.settings import Grid


def main() -> None:
    """Train a small grid on two workers, and show what was chosen."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--address", help="of a Ray cluster; without it, one is started on this machine")
    parser.add_argument("--workers", type=int, default=2)
    parser.add_argument("--epochs", type=int, default=10)
    parser.add_argument("--store", type=Path, default=Path("ray-example.db"))
    options = parser.parse_args()
    result = graphnorm.search(
        "synthetic:trees",
        Grid("example", {"lr": (1e-3, 1e-2)}),
        norms=["batch", "graph"],
        folds=3,
        epochs=options.epochs,
        hidden=16,
        layers=3,
        store=options.store,
        engine="ray",
        address=options.address,
        workers=options.workers,
    )
    print(result)
    print(f"kept in {options.store}; see it with: graphnorm report --store {options.store} --open")


if __name__ == "__main__":
    main()
