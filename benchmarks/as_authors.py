"""The effect of the authors' ξ, ε and first weights on small datasets: with and without ``--as-authors``, on a CPU.

python -m benchmarks.as_authors MUTAG PTC      writes benchmarks/results/as-authors.csv
"""

from __future__ import annotations

import argparse
import csv
from pathlib import Path
from typing import Any

from graphnorm import search
from graphnorm.settings import GRIDS
from graphnorm.study.significance import paired_test

FILE = Path(__file__).parent / "results" / "as-authors.csv"
NORMS = ("batch", "instance", "graph")


def rows(dataset: str, model: str, **where: Any) -> list[dict[str, Any]]:
    grid = GRIDS["curves"].fixed(epochs=100)
    results = [
        search(dataset, grid, model=model, norms=NORMS, self_loops=model == "gin", as_authors=theirs, **where)
        for theirs in (False, True)
    ]
    found = []
    for norm in NORMS:
        ours, theirs = (result.norms[norm] for result in results)
        test = paired_test(theirs.scores, ours.scores, overlap=1 / 9)
        about: dict[str, Any] = {"dataset": dataset, "model": model, "norm": norm}
        for name, score in (("ours", ours), ("as_authors", theirs)):
            about |= {name: round(score.mean, 2), f"{name}_training": round(score.curves["train"][0].mean(), 2)}
        found.append(about | {"p": None if test.p is None else round(test.p, 3)})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("datasets", nargs="*", default=["MUTAG", "PTC"])
    parser.add_argument("--store", default="build/as-authors.db")
    options = parser.parse_args()
    found = []
    for dataset in options.datasets:
        for model in ("gin", "gcn"):
            found += rows(dataset, model, store=options.store, device="cpu", workers=1)
    with FILE.open("w", newline="", encoding="utf-8") as opened:
        writer = csv.DictWriter(opened, list(found[0]), lineterminator="\n")
        writer.writeheader()
        writer.writerows(found)


if __name__ == "__main__":
    main()
