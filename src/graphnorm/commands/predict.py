"""``graphnorm predict``: what a saved model says of graphs."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import Subparsers, common, loading_keywords, own_graphs
from graphnorm.commands.printing import print_facts

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.saved import SavedModel

__all__ = ["add"]

DESCRIPTION = """\
Print the class that a model of `graphnorm train` gives each graph, with its probability, as CSV; and how many are
right, where the data has labels. A table of SMILES needs no column of labels.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "predict",
        help="what a saved model says of graphs",
        description=DESCRIPTION,
        parents=[common(data_root=None, json=False), own_graphs()],
    )
    parser.add_argument("model", metavar="MODEL", help="a file that `graphnorm train` wrote")
    parser.add_argument("data", metavar="DATA", help="a dataset's name, or your own graphs")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the CSV to a file")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from graphnorm.data import load
    from graphnorm.data.cache import replacing
    from graphnorm.saved import load_model

    saved = load_model(options.model, options.device)
    graphs = load(options.data, options.data_root, **loading_keywords(options), unlabelled=True)
    columns, rows, facts = _predict(saved, graphs)
    if options.json:
        print(json.dumps(facts | {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}, indent=1))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if options.out is None:
        print(text.getvalue(), end="")
        print("; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()), file=sys.stderr)
        return
    with replacing(options.out) as fresh:
        fresh.write_text(text.getvalue(), encoding="utf-8")
    print_facts({"predictions": str(options.out)} | facts, as_json=False)


def _predict(saved: SavedModel, graphs: PackedGraphs) -> tuple[list[str], list[list[Any]], dict[str, Any]]:
    """Columns, a row for each graph, and what can be said of all of them."""
    probabilities = saved.predict(graphs)
    chosen = probabilities.argmax(axis=1)
    columns = ["graph", "class", "probability"]
    rows: list[list[Any]] = [
        [graph, saved.classes[k], round(float(probabilities[graph, k]), 6)] for graph, k in enumerate(chosen)
    ]
    facts: dict[str, Any] = {"graphs": len(rows)}
    labels = saved.labels(graphs)
    if labels is None:
        facts["note"] = "no accuracy: the data has no labels, or classes that the model does not know"
        return columns, rows, facts
    columns.append("label")
    for row, label in zip(rows, labels, strict=True):
        row.append(saved.classes[label])
    facts["accuracy"] = round(100 * float((chosen == labels).mean()), 2)
    if graphs.fingerprint == saved.trial.fingerprint:
        facts["note"] = "these are the graphs that the model was trained on: on others it will be less accurate"
    return columns, rows, facts
