"""The TU text format: the benchmark archives, and any folder of the same files.

A dataset ``DS`` is ``DS_A.txt`` (one directed edge ``i, j`` a line; nodes count from 1 through all graphs),
``DS_graph_indicator.txt`` (line i: the graph of node i, from 1), ``DS_graph_labels.txt`` (line g: its class),
and optionally ``DS_node_labels.txt``, ``DS_node_attributes.txt``, ``DS_edge_labels.txt``,
``DS_edge_attributes.txt``.
"""

from __future__ import annotations

from collections.abc import Callable
from pathlib import PurePosixPath
from typing import Any, TypeVar

import numpy as np
import numpy.typing as npt

from graphnorm.data.build import FeatureRule, Place, RawGraphs, Repairs, pack
from graphnorm.data.files import Members
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.text import Readable, read_floats, read_integers
from graphnorm.errors import DataError

__all__ = ["is_tu", "read_tu"]

REQUIRED = ("A", "graph_indicator", "graph_labels")
T = TypeVar("T")


def is_tu(members: Members) -> bool:
    """Whether these files look like a dataset in TU format."""
    return any(members.ending(f"_{part}.txt") for part in REQUIRED)


def read_tu(
    members: Members,
    *,
    name: str | None = None,
    features: FeatureRule = "auto",
    repairs: Repairs | None = None,
) -> PackedGraphs:
    """Read a dataset in TU format.

    Self-loops are taken out and counted, as PyTorch Geometric's ``TUDataset`` does, and the degree that
    serves as a feature is counted without them. Graph labels become 0..C-1 and node labels 0..L-1 in their
    sorted order.
    """
    files = _Files(members)
    indicator = files.read("graph_indicator", lambda f, w: read_integers(f, w, 1))[:, 0]
    labels = files.read("graph_labels", lambda f, w: read_integers(f, w, 1))[:, 0]
    sizes = _sizes(files, indicator, len(labels))
    edges = files.read("A", lambda f, w: read_integers(f, w, 2))
    row, col = (np.ascontiguousarray(ends) for ends in edges.T)
    del edges  # COLLAB has 24 million: the pair of columns is enough
    row -= 1
    col -= 1

    def optional(part: str, reader: Callable[[Readable, str], npt.NDArray[Any]], lines: int, of: str) -> Any:
        if not files.has(part) or (features != "auto" and part != "node_labels"):
            return None
        table = files.read(part, reader)
        if len(table) != lines:
            raise DataError(
                f"the file has {len(table)} lines for {lines} {of}",
                where=files.where(part),
                line=min(len(table), lines) + 1,
                remedy=f"give one line for each of the {of}",
            )
        return table

    nodes, directed = (len(indicator), "nodes"), (len(row), "edges")
    raw = RawGraphs(
        name=name or files.prefix,
        origin=files,
        sizes=sizes,
        row=row,
        col=col,
        labels=labels,
        tags=optional("node_labels", read_integers, *nodes),
        x=optional("node_attributes", read_floats, *nodes),
        edge_tags=optional("edge_labels", read_integers, *directed),
        edge_x=optional("edge_attributes", read_floats, *directed),
        source=str(members.path),
    )
    return pack(raw, features=features, repairs=repairs)


class _Files:
    """The parts of one dataset, and where each thing in them is written down."""

    def __init__(self, members: Members) -> None:
        self.members = members
        found = {PurePosixPath(n) for part in REQUIRED for n in members.ending(f"_{part}.txt")}
        stems = {
            (p.parent, p.name.removesuffix(f"_{part}.txt"))
            for p in found
            for part in REQUIRED
            if p.name.endswith(f"_{part}.txt")
        }
        if len(stems) != 1:
            names = ", ".join(sorted(f"{stem}_A.txt" for _, stem in stems)) or "no file that ends in _A.txt"
            raise DataError(
                f"a folder in TU format holds one dataset; here: {names}",
                where=members.path,
                remedy="give a folder with NAME_A.txt, NAME_graph_indicator.txt, NAME_graph_labels.txt",
            )
        self.folder, self.prefix = stems.pop()
        missing = [self._name(part) for part in REQUIRED if not self.has(part)]
        if missing:
            raise DataError(
                f"missing: {', '.join(missing)}",
                where=members.path,
                remedy="add the file; the TU format needs it",
            )

    def _name(self, part: str) -> str:
        return (self.folder / f"{self.prefix}_{part}.txt").as_posix()

    def has(self, part: str) -> bool:
        return self._name(part) in self.members.names

    def where(self, part: str) -> str:
        return self.members.where(self._name(part))

    def read(self, part: str, reader: Callable[[Readable, str], T]) -> T:
        with self.members.open(self._name(part)) as file:
            return reader(file, self.where(part))

    def edge(self, k: int) -> Place:
        return {"where": self.where("A"), "line": k + 1}

    def edge_features(self, k: int) -> Place:
        return {"where": self.where("edge_attributes"), "line": k + 1}

    def node(self, i: int) -> Place:
        part = next((p for p in ("node_attributes", "node_labels") if self.has(p)), "graph_indicator")
        return {"where": self.where(part), "line": i + 1}

    def graph(self, g: int) -> Place:
        return {"where": self.where("graph_labels"), "line": g + 1}

    def name(self, i: int) -> str:
        return str(i + 1)


def _sizes(files: _Files, indicator: npt.NDArray[Any], num_graphs: int) -> npt.NDArray[np.int64]:
    outside = np.flatnonzero((indicator < 1) | (indicator > num_graphs))
    if outside.size:
        raise DataError(
            f"a node is in graph {indicator[outside[0]]}, but the graphs are 1 to {num_graphs}",
            where=files.where("graph_indicator"),
            line=int(outside[0]) + 1,
            remedy="graph ids count from 1; correct the id or add the graph's label",
        )
    back = np.flatnonzero(indicator[1:] < indicator[:-1]) + 1
    if back.size:
        raise DataError(
            f"a node of graph {indicator[back[0]]} comes after one of graph {indicator[back[0] - 1]}",
            where=files.where("graph_indicator"),
            line=int(back[0]) + 1,
            remedy="number the nodes so that those of a graph follow each other, graph by graph",
        )
    return np.bincount(indicator - 1, minlength=num_graphs)
