"""Spectra by hand: what subtracting the mean does to the singular values of the aggregation, graph by graph.

Run it with ``python examples/spectra_by_hand.py``, or with ``--data PROTEINS``; it needs
``pip install '.[analysis]'``.
"""

from __future__ import annotations

import argparse

import numpy as np

from graphnorm.analysis import Aggregation, conditions, dense_q, interlacing, spectra
from graphnorm.data import load


def main() -> None:
    """Compute one graph's values with numpy alone, then all graphs' at once."""
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--data", default="synthetic:cliques")
    parser.add_argument("--graph", type=int, default=0)
    options = parser.parse_args()
    graphs = load(options.data)
    gin = Aggregation("gin", xi=0.1)

    q = dense_q(graphs.batch([options.graph]), gin)
    n = len(q)
    shift = np.eye(n) - np.ones((n, n)) / n
    before = np.sort(np.linalg.svd(q, compute_uv=False))
    after = np.sort(np.linalg.svd(q @ shift, compute_uv=False))[1:]  # without the 0 that the shift brings
    print(f"graph {options.graph} of {graphs.name}, {n} nodes")
    print(f"  largest singular values of Q:  {np.round(before[-4:], 3)}")
    print(f"  largest singular values of QN: {np.round(after[-4:], 3)}")
    print(f"  they interlace: {bool((before[:-1] <= after + 1e-9).all() and (after <= before[1:] + 1e-9).all())}")

    everything = spectra(graphs, aggregation=gin)
    theorem, numbers = interlacing(everything).summary(), conditions(everything).summary()
    print(f"all {theorem['graphs']} graphs: Theorem 1 holds on {theorem['holds']}")
    print(
        f"  median condition number: {numbers['median_condition_q']:.3g} before, "
        f"{numbers['median_condition_shifted']:.3g} after the shift"
    )


if __name__ == "__main__":
    main()
