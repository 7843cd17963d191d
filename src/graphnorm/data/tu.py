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

from graphnorm.data.archive import Archive, Place
from graphnorm.data.build import RawGraphs, pack
from graphnorm.data.catalog import FeatureRule
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.targets import as_columns, find_targets
from graphnorm.errors import DataError
from graphnorm.settings import TaskName

__all__ = ["is_tu", "read_tu"]

REQUIRED = ("A", "graph_indicator")
OF_GRAPHS = ("graph_labels", "graph_attributes")
"""One of them is required."""


def is_tu(archive: Archive) -> bool:
    return any(archive.ending(f"_{part}.txt") for part in (*REQUIRED, *OF_GRAPHS))


def read_tu(
    archive: Archive,
    *,
    name: str | None = None,
    features: FeatureRule = "auto",
    symmetrise: bool = False,
    merge_duplicates: bool = False,
    task: TaskName | None = None,
) -> PackedGraphs:
    """Read a dataset in TU format; the options are those of :func:`~graphnorm.data.build.pack`.

    task: what is predicted. By default it is the class, or the graph attributes if there are no classes; they may have
        several columns, and missing values.

    Like PyTorch Geometric's ``TUDataset`` it removes self-loops, and counts them. Degrees that serve as features do not
    include them. Graph labels become 0..C-1 and node labels 0..L-1, in sorted order.
    """
    prefix = _find_prefix(archive)

    def file(part: str) -> str:
        return f"{prefix}_{part}.txt"

    def at(part: str, index: int) -> Place:
        return archive.line(file(part), index)

    def locate(part: str, index: int) -> Place:
        if part == "node":
            of_nodes = ("node_attributes", "node_labels", "graph_indicator")
            return at(next(p for p in of_nodes if file(p) in archive.names), index)
        return at({"graph": of_graphs, "edge": "A", "edge features": "edge_attributes"}[part], index)

    indicator = archive.read_integers(file("graph_indicator"), 1)[:, 0]
    present = [part for part in OF_GRAPHS if file(part) in archive.names]
    of_graphs = present[-1 if task in ("binary", "values") else 0]
    if of_graphs == "graph_labels":
        table: npt.NDArray[Any] = archive.read_integers(file(of_graphs), 1)
    else:
        table = archive.read_targets(file(of_graphs))
    _check_indicator(indicator, len(table), at)
    row, col = (np.ascontiguousarray(ends - 1) for ends in archive.read_integers(file("A"), 2).T)
    _check_edges(row, col, indicator, at)

    def optional(part: str, read: Callable[[str], npt.NDArray[Any]], lines: int, of: str) -> Any:
        if file(part) not in archive.names or (features != "auto" and part != "node_labels"):
            return None
        table = read(file(part))
        if len(table) != lines:
            raise DataError(
                f"the file has {len(table)} lines for {lines} {of}",
                **at(part, min(len(table), lines)),
                remedy=f"give one line for each of the {of}",
            )
        return table

    if not len(table):
        raise DataError("there are no graphs", **at(of_graphs, 0), remedy="give at least two graphs")
    columns, found = as_columns(table)
    targets = find_targets(columns, partial(at, of_graphs), task=task or found)
    raw = RawGraphs(
        name=name or PurePosixPath(prefix).name,
        locate=locate,
        sizes=np.bincount(indicator - 1, minlength=len(table)),
        row=row,
        col=col,
        targets=targets,
        tags=optional("node_labels", archive.read_integers, len(indicator), "nodes"),
        x=optional("node_attributes", archive.read_floats, len(indicator), "nodes"),
        edge_tags=optional("edge_labels", archive.read_integers, len(row), "edges"),
        edge_x=optional("edge_attributes", archive.read_floats, len(row), "edges"),
        source=str(archive.path),
        global_ids=True,
    )
    return pack(raw, features=features, symmetrise=symmetrise, merge_duplicates=merge_duplicates)


def _find_prefix(archive: Archive) -> str:
    """The common prefix of the dataset's files, folder included."""
    parts = (*REQUIRED, *OF_GRAPHS)
    prefixes = {name.removesuffix(f"_{part}.txt") for part in parts for name in archive.ending(f"_{part}.txt")}
    if len(prefixes) != 1:
        raise DataError(
            f"a folder in TU format holds one dataset, not {', '.join(sorted(prefixes))}",
            where=archive.path,
            remedy="give a folder with NAME_A.txt, NAME_graph_indicator.txt, NAME_graph_labels.txt",
        )
    prefix = prefixes.pop()
    missing = [f"{prefix}_{part}.txt" for part in REQUIRED if f"{prefix}_{part}.txt" not in archive.names]
    if not any(f"{prefix}_{part}.txt" in archive.names for part in OF_GRAPHS):
        missing.append(f"{prefix}_{OF_GRAPHS[0]}.txt")
    if missing:
        raise DataError(
            f"missing: {', '.join(missing)}", where=archive.path, remedy="add the file; the TU format needs it"
        )
    return prefix


def _check_indicator(indicator: npt.NDArray[Any], num_graphs: int, at: Callable[[str, int], Place]) -> None:
    outside = np.flatnonzero((indicator < 1) | (indicator > num_graphs))
    if outside.size:
        raise DataError(
            f"the node is in graph {indicator[outside[0]]}, but the graphs are 1 to {num_graphs}",
            **at("graph_indicator", int(outside[0])),
            remedy="graph ids start at 1; correct the id or add the graph's label",
        )
    back = np.flatnonzero(indicator[1:] < indicator[:-1]) + 1
    if back.size:
        raise DataError(
            f"the node of graph {indicator[back[0]]} comes after a node of graph {indicator[back[0] - 1]}",
            **at("graph_indicator", int(back[0])),
            remedy="number the nodes graph by graph",
        )


def _check_edges(
    row: npt.NDArray[Any], col: npt.NDArray[Any], indicator: npt.NDArray[Any], at: Callable[[str, int], Place]
) -> None:
    num_nodes = len(indicator)
    if row.size and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= num_nodes):
        ends = np.stack((row, col), axis=1)
        k, end = (int(i[0]) for i in np.nonzero((ends < 0) | (ends >= num_nodes)))
        raise DataError(
            f"the edge has the node {int(ends[k, end]) + 1}, but the nodes are 1 to {num_nodes}",
            **at("A", k),
            remedy="node ids start at 1 and go through all graphs; check the edge and the list of nodes",
        )
    crossing = np.flatnonzero(indicator[row] != indicator[col])
    if crossing.size:
        k = int(crossing[0])
        raise DataError(
            f"the edge joins graph {indicator[row[k]]} and graph {indicator[col[k]]}",
            **at("A", k),
            remedy="both ends of an edge must be in one graph; check the edge and the nodes' graphs",
        )
