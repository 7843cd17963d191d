"""Theorem 1 on every graph of the paper's seven TU datasets, for GIN and GCN.

    GRAPHNORM_DATA=folder python -m benchmarks.spectra [NAME ...]

For every dataset and aggregation: on how many graphs the singular values of Q and QN interlace within the
tolerance, condition numbers and their improvement, and the time for all spectra. Up to 200 graphs of each
dataset of up to 400 nodes are also computed the plain way, LAPACK's singular values of the full Q and QN, and
the largest difference is given as a multiple of the tolerance. Datasets that are not named keep their results.
Results go to ``benchmarks/results/spectra-cpu.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import time
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import numpy as np

from graphnorm.analysis import Aggregation, Spectra, conditions, dense_q, interlacing, spectra, tolerance
from graphnorm.data import PackedGraphs, load
from graphnorm.files import plain

RESULTS = Path(__file__).parent / "results" / "spectra-cpu.json"
DATASETS = ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-BINARY", "COLLAB", "REDDIT-BINARY")
AGGREGATIONS = (
    Aggregation("gin"),
    Aggregation("gin", xi=0.1),
    Aggregation("gin", self_loop=True),
    Aggregation("gcn"),
)


def measure(graphs: PackedGraphs, aggregation: Aggregation) -> dict[str, Any]:
    start = time.perf_counter()
    result = spectra(graphs, None, aggregation, progress=True)
    seconds = time.perf_counter() - start
    condition = conditions(result)
    return {
        "seconds": round(seconds, 2),
        "theorem_1": interlacing(result).summary(),
        "closest_to_tolerance": closest_to_tolerance(result),
        "condition": condition.summary(),
        "improvement_quantiles_5_25_50_75_95": np.nanquantile(condition.improvement, [0.05, 0.25, 0.5, 0.75, 0.95]),
        "plain_lapack": compare(graphs, result, aggregation),
    }


def closest_to_tolerance(result: Spectra) -> dict[str, float | None]:
    """The largest value below the tolerance and the smallest above it, as multiples of the tolerance."""
    zero = tolerance(result.sizes, result.largest)
    over = np.concatenate(
        (result.q / np.repeat(zero, result.sizes), result.shifted / np.repeat(zero, result.sizes - 1))
    )
    below, above = over[over <= 1], over[over > 1]
    return {"below": float(below.max()) if len(below) else None, "above": float(above.min()) if len(above) else None}


def compare(graphs: PackedGraphs, result: Spectra, aggregation: Aggregation) -> dict[str, Any]:
    """The same singular values from the full matrices, without merging twins."""
    small = np.flatnonzero(result.sizes <= 400)
    chosen = np.random.default_rng(0).permutation(small)[:200]
    worst = 0.0
    for k in chosen:
        q = dense_q(graphs.batch([int(result.ids[k])]), aggregation)
        shifted = q - q.mean(axis=1, keepdims=True)
        pairs = zip(result.of(k), (q, shifted), (0, 1), strict=True)
        difference = max(
            np.abs(values - np.sort(np.linalg.svd(matrix, compute_uv=False))[skip:]).max(initial=0)
            for values, matrix, skip in pairs
        )
        worst = max(worst, difference / tolerance(result.sizes[k], result.largest[k]))
    return {"graphs": len(chosen), "largest_difference_over_tolerance": worst}


def main() -> None:
    parser = argparse.ArgumentParser(description="Theorem 1 on every graph of the TU datasets.")
    parser.add_argument("names", nargs="*", default=DATASETS, metavar="NAME", help="datasets (default: all seven)")
    names = parser.parse_args().names
    results = json.loads(RESULTS.read_text(encoding="utf-8")) if RESULTS.exists() else {"datasets": {}}
    results |= {
        "date": datetime.now(UTC).date().isoformat(),
        "python": platform.python_version(),
        "numpy": version("numpy"),
        "threads": os.environ.get("OMP_NUM_THREADS", f"{os.cpu_count()} cores"),
        "tolerance": "4 n eps largest singular value",
    }
    for name in names:
        graphs = load(name)
        for aggregation in AGGREGATIONS:
            row = measure(graphs, aggregation)
            print(name, aggregation.label, json.dumps(plain(row)), flush=True)
            results["datasets"].setdefault(name, {})[aggregation.label] = plain(row)
            RESULTS.parent.mkdir(exist_ok=True)
            RESULTS.write_text(json.dumps(results, indent=2, ensure_ascii=False) + "\n", encoding="utf-8")


if __name__ == "__main__":
    main()
