"""The command line: parse, call, print.

A command is a function that adds its parser to the subparsers it is given and sets ``run`` on it; ``run``
takes the parsed arguments and prints. List it in :data:`COMMANDS`. A user's mistake is a ``GraphnormError``:
its message is printed, and the exit code is 2.
"""

from __future__ import annotations

import argparse
import json
import sys
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm._version import __version__
from graphnorm.commands import analyze
from graphnorm.commands.options import Subparsers, common, loading_keywords, own_graphs
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from graphnorm.data import Entry, PackedGraphs

__all__ = ["COMMANDS", "main"]


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the command line and give its exit code."""
    parser = argparse.ArgumentParser(prog="graphnorm", description="Normalization for graph neural networks.")
    parser.add_argument("--version", action="version", version=f"graphnorm {__version__}")
    subparsers = parser.add_subparsers(metavar="COMMAND", required=True)
    for add in COMMANDS:
        add(subparsers)
    options = parser.parse_args(arguments)
    try:
        options.run(options)
    except (GraphnormError, OSError) as error:
        print(f"graphnorm: {error}", file=sys.stderr)
        return 2
    except ModuleNotFoundError as error:
        print(f"graphnorm: {error}. Remedy: pip install 'graphnorm[all]'.", file=sys.stderr)
        return 2
    except KeyboardInterrupt:
        return 130
    return 0


def _add_datasets(subparsers: Subparsers) -> None:
    help_ = "list datasets with their statistics, fetch them, draw them"
    datasets = subparsers.add_parser(
        "datasets", help=help_, description=help_.capitalize(), parents=[common(data_root=None, json=False)]
    )
    datasets.set_defaults(run=_list)
    actions = datasets.add_subparsers(metavar="ACTION")
    get = actions.add_parser("get", help="fetch a dataset and check it", parents=[common()])
    get.add_argument("name", metavar="NAME")
    get.set_defaults(run=_get)
    graphs = argparse.ArgumentParser(add_help=False, parents=[common(), own_graphs()])
    graphs.add_argument("name", metavar="NAME_OR_PATH", help="a dataset's name, or your own graphs")
    show = actions.add_parser("show", help="check your own graphs, or any dataset", parents=[graphs])
    show.set_defaults(run=_show)
    draw = actions.add_parser("draw", help="draw sampled graphs", parents=[graphs])
    draw.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png, .pdf or .svg file")
    draw.add_argument("--per-class", type=int, default=4, metavar="N", help="graphs of each class (default: 4)")
    draw.add_argument("--seed", type=int, default=0, help="which graphs are drawn (default: 0)")
    draw.set_defaults(run=_draw)


COMMANDS: tuple[Callable[[Subparsers], None], ...] = (_add_datasets, analyze.add)
"""Every command of the command line, in the order of the help text."""


def _list(options: argparse.Namespace) -> None:
    from graphnorm.data import CATALOG, data_root

    data_root(options.data_root)  # a wrong folder is one error, not one for every dataset
    rows = [_describe(entry, options.data_root) for entry in CATALOG.values()]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    columns = ("dataset", "graphs", "classes", "nodes", "edges", "degree", "features", "readout", "where")
    _print_table(columns, [_cells(row) for row in rows])
    print("nodes, edges and degree are averages; measured here, then (as the paper's table reports them);")
    print("edges count both directions and one self-loop on every node, as the paper does.")
    for row in rows:
        if row["note"]:
            print(f"  {row['name']}: {row['note']}")


def _describe(entry: Entry, root: str | None) -> dict[str, Any]:
    """Everything the listing says of a dataset; it is measured where it is on this machine."""
    from graphnorm.data import load, locate

    built_in = entry.format in ("molecules", "synthetic")
    path = None if built_in else locate(entry, root)
    row: dict[str, Any] = {
        "name": entry.name,
        "about": entry.about,
        "where": "built in" if built_in else None if path is None else str(path),
        "source": entry.url,
        "features": entry.features,
        "readout": entry.readout,
        "reported": None if entry.paper is None else entry.paper._asdict(),
        "measured": None,
        "note": entry.note,
    }
    if entry.format != "images" and (built_in or path is not None):
        try:
            row["measured"] = _measure(load(entry.name, root, download=False))
        except GraphnormError as error:
            row["note"] = str(error)
    return row


def _measure(graphs: PackedGraphs) -> dict[str, Any]:
    statistics = graphs.statistics()
    averages = ("avg_nodes", "avg_edges", "avg_undirected_edges", "avg_degree")
    return vars(statistics) | {name: round(getattr(statistics, name), 2) for name in averages}


def _cells(row: dict[str, Any]) -> list[str]:
    measured, reported = row["measured"] or {}, row["reported"] or {}

    def both(key: str, digits: str) -> str:
        here = f"{measured[key]:{digits}}" if key in measured else "–"
        return here + (f" ({reported[key]:{digits}})" if key in reported else "")

    counts = [both(key, ",") for key in ("num_graphs", "num_classes")]
    averages = [both(key, ",.1f") for key in ("avg_nodes", "avg_edges", "avg_degree")]
    width = str(measured.get("num_features", "–"))
    return [row["name"], *counts, *averages, width, row["readout"], row["where"] or "not on disk"]


def _get(options: argparse.Namespace) -> None:
    from graphnorm.data import find, load, load_cifar10, obtain
    from graphnorm.data.download import sha256_of

    entry = find(options.name)
    result: dict[str, Any] = {"name": entry.name, "where": "built in"}
    if entry.files:
        path = obtain(entry, options.data_root)
        result["where"] = str(path)
        if path.is_file():
            result["sha256"] = sha256_of(path)
            result["known_file"] = result["sha256"] in (entry.sha256, entry.copy_sha256)
    if entry.format == "images":
        images = load_cifar10(options.data_root)
        result |= {"num_images": len(images.train_labels) + len(images.test_labels), "lossy": images.lossy}
    else:
        result |= _measure(load(entry.name, options.data_root))
    if entry.note:
        result["note"] = entry.note
    _print_facts(result, options.json)


def _load(options: argparse.Namespace) -> PackedGraphs:
    from graphnorm.data import load

    return load(options.name, options.data_root, **loading_keywords(options))


def _show(options: argparse.Namespace) -> None:
    graphs = _load(options)
    facts = {"name": graphs.name, "where": graphs.source, "classes": graphs.classes}
    _print_facts(facts | _measure(graphs), options.json)


def _draw(options: argparse.Namespace) -> None:
    from graphnorm.data import draw, save_drawing

    figure = draw(_load(options), per_class=options.per_class, seed=options.seed)
    save_drawing(figure, options.out)
    _print_facts({"drawing": str(options.out)}, options.json)


def _print_facts(facts: dict[str, Any], as_json: bool) -> None:
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else value
        print(f"{name.replace('_', ' '):{width}}  {text}")


def _print_table(columns: Sequence[str], rows: Sequence[Sequence[str]]) -> None:
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (
            f"{cell:<{width}}" if column in ("dataset", "readout", "where") else f"{cell:>{width}}"
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())


if __name__ == "__main__":
    sys.exit(main())
