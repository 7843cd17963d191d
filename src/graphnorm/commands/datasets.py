"""``graphnorm datasets``: list datasets with their statistics, fetch them, draw them."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import add_options, fitted, load_graphs, whole_number, width
from graphnorm.errors import GraphnormError
from graphnorm.settings import Loading, options_of

if TYPE_CHECKING:
    from graphnorm.data import Entry, PackedGraphs

TASKS = {
    "classes": "One class of each graph",
    "binary": "Several targets of 0 and 1",
    "values": "Real numbers",
}
DESCRIPTION = """\
List datasets with their statistics, fetch them, draw them.
"""


def add(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, data_root=None, json=False)
    parser.set_defaults(action=_list)
    actions = parser.add_subparsers(metavar="ACTION")
    get = actions.add_parser("get", help="fetch a dataset and check it")
    get.add_argument("name", metavar="NAME")
    get.set_defaults(action=_get)
    show = actions.add_parser("show", help="check your own graphs, or any dataset")
    show.set_defaults(action=_show)
    draw = actions.add_parser("draw", help="draw sampled graphs")
    draw.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .png, .pdf or .svg file")
    draw.add_argument(
        "--per-class", type=whole_number, default=4, metavar="N", help="graphs of each class (default: 4)"
    )
    draw.add_argument("--seed", type=whole_number, default=0, help="which graphs are drawn (default: 0)")
    draw.set_defaults(action=_draw)
    for action in (get, show, draw):
        _add_common(action)
    for action in (show, draw):
        action.add_argument("data", metavar="DATA", help="a dataset's name, or the path of your own graphs")
        add_options(action, "your own graphs", Loading, leave_out=("data_root",))


def _add_common(parser: argparse.ArgumentParser, **defaults: object) -> None:
    """Options that may stand before or after the action; only the outer parser has defaults."""
    about = options_of(Loading)["data_root"]
    parser.add_argument("--data-root", metavar=about.metavar, default=argparse.SUPPRESS, help=about.help)
    parser.add_argument("--json", action="store_const", const=True, default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(**defaults)


def run(options: argparse.Namespace) -> None:
    options.action(options)


def _list(options: argparse.Namespace) -> None:
    from graphnorm.data import CATALOG, data_root
    from graphnorm.study.render import Table

    data_root(options.data_root)  # a wrong folder is reported once, not for every dataset
    order = [entry for task in TASKS for entry in CATALOG.values() if entry.task == task]
    rows = [_describe(entry, options.data_root) for entry in order]
    if options.json:
        print(json.dumps(rows, indent=2))
        return
    for task, title in TASKS.items():
        print(f"{title}\n")
        columns = ("dataset", "graphs", "targets", "nodes", "edges", "degree", "features", "split", "metric", "where")
        table = Table(columns, [_cells(row) for row in rows if row["task"] == task])
        left, spare = ("dataset", "split", "metric", "where"), ("where", "degree", "features", "edges")
        print(table.to_text(left=left, width=width(), spare=spare), end="\n\n")
    about = (
        "targets: classes, or columns. nodes, edges and degree are averages; measured here, then (as the paper's table "
        "reports them); edges count both directions and one self-loop on every node, as the paper does."
    )
    print(fitted(about))
    for row in rows:
        if row["note"]:
            print(fitted(f"  {row['name']}: {row['note']}"))


def _describe(entry: Entry, root: str | None) -> dict[str, Any]:
    """A row of the list; datasets on this machine are measured, except molecules, which take minutes to read."""
    from graphnorm.data import load, locate

    built_in = entry.format in ("molecules", "synthetic")
    path = None if built_in else locate(entry, root)
    row: dict[str, Any] = {
        "name": entry.name,
        "about": entry.about,
        "task": entry.task,
        "metric": entry.metric,
        "split": entry.split,
        "where": "built in" if built_in else None if path is None else str(path),
        "source": entry.url,
        "features": entry.features,
        "readout": entry.readout,
        "reported": None if entry.paper is None else entry.paper._asdict(),
        "measured": None,
        "note": entry.note,
    }
    if entry.table is not None:
        targets = 2 if entry.task == "classes" else entry.table.num_targets
        row["reported"] = {"num_graphs": entry.table.rows, "num_targets": targets}
    elif entry.format != "images" and (built_in or path is not None):
        try:
            row["measured"] = _measure(load(entry.name, root, download=False), as_paper=True)
        except GraphnormError as error:
            row["note"] = str(error)
    return row


def _measure(graphs: PackedGraphs, *, as_paper: bool = False) -> dict[str, Any]:
    """The statistics of a dataset; its edges and degrees as they are, or as the paper counts them."""
    statistics = graphs.statistics()
    names = ("avg_nodes", "avg_undirected_edges", *(("avg_edges", "avg_degree") if as_paper else ()))
    found = vars(statistics) | {name: round(getattr(statistics, name), 2) for name in names}
    if not as_paper:
        found["avg_degree"] = round(statistics.num_edges / statistics.num_nodes, 2)
    if graphs.targets is None:
        return found
    for name in ("num_classes", "class_sizes"):
        del found[name]
    missing = round(float(graphs.targets.isnan().double().mean()), 4)
    return found | {"num_targets": len(graphs.target_names), "missing_targets": missing}


def _cells(row: dict[str, Any]) -> list[str]:
    measured, reported = row["measured"] or {}, row["reported"] or {}

    def both(key: str, digits: str) -> str:
        here = f"{measured[key]:{digits}}" if key in measured else "–"
        return here + (f" ({reported[key]:{digits}})" if key in reported else "")

    known = row["measured"] is None and "num_targets" in reported
    counts = (
        [f"{reported[key]:,}" for key in ("num_graphs", "num_targets")]
        if known
        else [both(key, ",") for key in ("num_graphs", "num_classes")]
    )
    averages = [both(key, ",.1f") for key in ("avg_nodes", "avg_edges", "avg_degree")]
    width = str(measured.get("num_features", "–"))
    where = row["where"] or "not on disk"
    return [row["name"], *counts, *averages, width, row["split"] or "–", row["metric"] or "–", where]


def _get(options: argparse.Namespace) -> None:
    from graphnorm.data import find, load, load_cifar10, obtain, sha256_of
    from graphnorm.study.render import facts

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
    print(facts(result, as_json=options.json))


def _show(options: argparse.Namespace) -> None:
    from graphnorm.study.render import facts

    graphs = load_graphs(options)
    found: dict[str, Any] = {"name": graphs.name, "where": graphs.source, "task": graphs.task}
    found |= {"classes": graphs.classes} if graphs.targets is None else {"targets": graphs.target_names}
    if graphs.targets is not None and graphs.task == "values":
        found["values"] = (
            _ranges(graphs)
            if options.json
            else ", ".join(f"{name} {low:g} to {high:g}" for name, (low, high) in _ranges(graphs).items())
        )
    if graphs.splits:
        sizes = {name: len(graphs.splits[name]) for name in ("train", "valid", "test") if name in graphs.splits}
        found["split"] = sizes if options.json else ", ".join(f"{name} {size:,}" for name, size in sizes.items())
    print(facts(found | _measure(graphs), as_json=options.json))


def _ranges(graphs: PackedGraphs) -> dict[str, tuple[float, float]]:
    """The smallest and the largest value of every target."""
    assert graphs.targets is not None
    return {
        name: (float(known.min()), float(known.max()))
        for name, column in zip(graphs.target_names, graphs.targets.T, strict=True)
        if len(known := column[~column.isnan()])
    }


def _draw(options: argparse.Namespace) -> None:
    from graphnorm.data import draw, save_drawing
    from graphnorm.study.render import facts

    figure = draw(load_graphs(options), per_class=options.per_class, seed=options.seed)
    save_drawing(figure, options.out)
    print(facts({"drawing": str(options.out)}, as_json=options.json))
