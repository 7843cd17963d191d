"""The TU text format, of the benchmark archives and of any folder with the same files.

A dataset ``DS`` has the files ``DS_A.txt`` (a directed edge ``i, j`` on each line; nodes are numbered from 1 in all
graphs together), ``DS_graph_indicator.txt`` (line i: the graph of node i, from 1), ``DS_graph_labels.txt`` (line g: its
class) or ``DS_graph_attributes.txt`` (line g: its numbers, which are predicted), and optionally
``DS_node_labels.txt``, ``DS_node_attributes.txt``, ``DS_edge_labels.txt``, ``DS_edge_attributes.txt``.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial
from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from graphnorm.data.archive import Archive, Files, Integers, Place
from graphnorm.data.build import RawGraphs
from graphnorm.data.catalog import FeatureRule
from graphnorm.data.targets import EXACT, as_columns, find_targets
from graphnorm.errors import DataError
from graphnorm.settings import TaskName

__all__ = ["is_tu", "read_tu"]

REQUIRED = ("A", "graph_indicator")
OF_GRAPHS = ("graph_labels", "graph_attributes")
"""One of them is required."""
NOTE_ON_ATTRIBUTES = (
    "the graph labels are predicted, not the graph attributes; task='values' (--task values) predicts those"
)


def is_tu(archive: Archive) -> bool:
    return any(archive.ending(f"_{part}.txt") for part in (*REQUIRED, *OF_GRAPHS))


def read_tu(archive: Archive, name: str | None, task: TaskName | None, features: FeatureRule) -> RawGraphs:
    """Read a dataset in TU format.

    task: what is predicted. By default it is the class, or the graph attributes if there are no classes; they may have
        several columns, and missing values.
    features: features that it does not use are not read.

    Like PyTorch Geometric's ``TUDataset`` it removes self-loops, and counts them. Degrees that serve as features do not
    include them. Graph labels become 0..C-1 and node labels 0..L-1, in sorted order.
    """
    files, own_name = _find_files(archive)
    present = [part for part in OF_GRAPHS if part in files]
    of_graphs = present[-1 if task in ("binary", "values") else 0]
    of_nodes = next(part for part in ("node_attributes", "node_labels", "graph_indicator") if part in files)

    def locate(part: str, index: int) -> Place:
        of = {"graph": of_graphs, "node": of_nodes, "edge": "A", "edge features": "edge_attributes"}
        return files.at(of[part], index)

    indicator = files.integers("graph_indicator", 1)[:, 0]
    table: npt.NDArray[Any] = files.targets(of_graphs, 1 if of_graphs == "graph_labels" else None)
    if of_graphs == "graph_labels" and bool((table == np.round(table)).all()) and np.abs(table).max(initial=0) < EXACT:
        table = table.astype(np.int64)  # whole numbers are classes, however many there are
    _check_indicator(files, indicator, len(table))
    row, col = (np.ascontiguousarray(ends - 1) for ends in files.integers("A", 2).T)
    _check_edges(files, row, col, indicator)

    def optional(part: str, read: Callable[[str], npt.NDArray[Any]], lines: int, of: str) -> Any:
        if part not in files or (features != "auto" and part != "node_labels"):
            return None
        table = read(part)
        if len(table) != lines:
            raise DataError(
                f"the file has {len(table)} lines for {lines} {of}",
                **files.at(part, min(len(table), lines)),
                remedy=f"give one line for each of the {of}",
            )
        return table

    if not len(table):
        raise DataError("there are no graphs", **files.at(of_graphs, 0), remedy="give at least two graphs")
    columns, found = as_columns(table)
    targets = find_targets(columns, partial(files.at, of_graphs), task=task or found)
    return RawGraphs(
        name=name or own_name,
        locate=locate,
        sizes=np.bincount(indicator - 1, minlength=len(table)),
        row=row,
        col=col,
        targets=targets,
        tags=optional("node_labels", files.integers, len(indicator), "nodes"),
        x=optional("node_attributes", files.floats, len(indicator), "nodes"),
        edge_tags=optional("edge_labels", files.integers, len(row), "edges"),
        edge_x=optional("edge_attributes", files.floats, len(row), "edges"),
        source=str(archive.path),
        global_ids=True,
        notes=(NOTE_ON_ATTRIBUTES,) if len(present) == 2 and task is None else (),
    )


def _find_files(archive: Archive) -> tuple[Files, str]:
    """The files of the only dataset, and its name, with which their names begin."""
    parts = (*REQUIRED, *OF_GRAPHS)
    prefixes = {name.removesuffix(f"_{part}.txt") for part in parts for name in archive.ending(f"_{part}.txt")}
    if len(prefixes) != 1:
        raise DataError(
            f"a folder in TU format holds one dataset, not {', '.join(sorted(prefixes))}",
            where=archive.path,
            remedy="give a folder with NAME_A.txt, NAME_graph_indicator.txt, NAME_graph_labels.txt",
        )
    prefix = prefixes.pop()
    files = Files(archive, f"{prefix}_", ".txt")
    missing = [files.name(part) for part in REQUIRED if part not in files]
    if not any(part in files for part in OF_GRAPHS):
        missing.append(files.name(OF_GRAPHS[0]))
    if missing:
        raise DataError(
            f"missing: {', '.join(missing)}", where=archive.path, remedy="add the file; the TU format needs it"
        )
    return files, PurePosixPath(prefix).name


def _check_indicator(files: Files, indicator: Integers, num_graphs: int) -> None:
    outside = np.flatnonzero((indicator < 1) | (indicator > num_graphs))
    if outside.size:
        raise DataError(
            f"the node is in graph {indicator[outside[0]]}, but the graphs are 1 to {num_graphs}",
            **files.at("graph_indicator", int(outside[0])),
            remedy="graph ids start at 1; correct the id or add the graph's label",
        )
    back = np.flatnonzero(indicator[1:] < indicator[:-1]) + 1
    if back.size:
        raise DataError(
            f"the node of graph {indicator[back[0]]} comes after a node of graph {indicator[back[0] - 1]}",
            **files.at("graph_indicator", int(back[0])),
            remedy="number the nodes graph by graph",
        )


def _check_edges(files: Files, row: Integers, col: Integers, indicator: Integers) -> None:
    num_nodes = len(indicator)
    if row.size and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= num_nodes):
        ends = np.stack((row, col), axis=1)
        k, end = (int(i[0]) for i in np.nonzero((ends < 0) | (ends >= num_nodes)))
        raise DataError(
            f"the edge has the node {int(ends[k, end]) + 1}, but the nodes are 1 to {num_nodes}",
            **files.at("A", k),
            remedy="node ids start at 1 and go through all graphs; check the edge and the list of nodes",
        )
    crossing = np.flatnonzero(indicator[row] != indicator[col])
    if crossing.size:
        k = int(crossing[0])
        raise DataError(
            f"the edge joins graph {indicator[row[k]]} and graph {indicator[col[k]]}",
            **files.at("A", k),
            remedy="both ends of an edge must be in one graph; check the edge and the nodes' graphs",
        )
