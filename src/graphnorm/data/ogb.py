"""OGB's graph-level datasets on disk: gzipped CSV files under ``raw/``, splits under ``split/SCHEME/``.

``num-node-list`` and ``num-edge-list`` have one line per graph; ``edge``, ``node-feat`` and ``edge-feat``
hold the graphs one after another, node ids counting from 0 within each graph, every undirected edge once.
"""

from __future__ import annotations

from pathlib import PurePosixPath
from typing import Any

import numpy as np
import numpy.typing as npt

from graphnorm.data.build import FeatureRule, Place, RawGraphs, Repairs, pack
from graphnorm.data.files import Members
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.text import read_integers
from graphnorm.data.vocabulary import ATOM_FEATURES, BOND_FEATURES, Vocabulary, cardinalities
from graphnorm.errors import DataError

__all__ = ["is_ogb", "read_ogb"]

EDGES = "raw/edge.csv.gz"
Table = npt.NDArray[np.integer[Any]]


def is_ogb(members: Members) -> bool:
    """Whether these files look like an OGB dataset."""
    return bool(members.ending(EDGES))


def read_ogb(
    members: Members,
    *,
    name: str | None = None,
    features: FeatureRule = "auto",
    repairs: Repairs | None = None,
) -> PackedGraphs:
    """Read a single-task classification dataset in OGB's layout, with its prescribed splits.

    Both directions of every edge are made, with the same features.
    """
    files = _Files(members)
    sizes, edge_sizes = files.read("num-node-list", 1)[:, 0], files.read("num-edge-list", 1)[:, 0]
    labels, edges = files.read("graph-label", None), files.read("edge", 2)
    tags, edge_tags = files.read("node-feat", None), files.read("edge-feat", None)
    _check_lengths(files, sizes, edge_sizes, labels, tags, edges, edge_tags)
    first = np.concatenate(([0], np.cumsum(sizes)[:-1]))
    graph = np.repeat(np.arange(len(sizes)), edge_sizes)
    outside = np.flatnonzero(((edges < 0) | (edges >= sizes[graph][:, None])).any(1))
    if outside.size:
        k = int(outside[0])
        raise DataError(
            f"an edge of graph {graph[k]} names node {edges[k].max()} of {sizes[graph[k]]} nodes",
            **files.at("edge", k),
            remedy="node ids count from 0 within each graph",
        )
    ends = edges + first[graph][:, None]
    splits = files.splits()
    for scheme, ids in splits.items():
        if ids.size and (ids.min() < 0 or ids.max() >= len(sizes)):
            raise DataError(
                f"the split {scheme} names graph {ids.max()} of {len(sizes)}",
                where=members.path,
                remedy="the split belongs to another dataset; fetch it anew",
            )
    raw = RawGraphs(
        name=name or files.folder.name or members.path.stem,
        origin=files,
        sizes=sizes,
        # Edge k of the file is edge k one way and edge k + E the other way.
        row=np.concatenate((ends[:, 0], ends[:, 1])),
        col=np.concatenate((ends[:, 1], ends[:, 0])),
        labels=labels[:, 0],
        tags=tags,
        cardinalities=_known(tags, ATOM_FEATURES),
        edge_tags=np.concatenate((edge_tags, edge_tags)),
        edge_cardinalities=_known(edge_tags, BOND_FEATURES),
        splits=splits,
        source=str(members.path),
    )
    files.first, files.num_edges = first, len(edges)
    return pack(raw, features=features, repairs=repairs)


def _check_lengths(
    files: _Files,
    sizes: Table,
    edge_sizes: Table,
    labels: Table,
    tags: Table,
    edges: Table,
    edge_tags: Table,
) -> None:
    """Refuse tables that do not have as many lines as the counts ask for."""
    if labels.shape[1] != 1:
        raise DataError(
            f"the graphs have {labels.shape[1]} labels each",
            **files.at("graph-label", 0),
            remedy="only single-task classification is supported; keep one label column",
        )
    for counts, part in ((sizes, "num-node-list"), (edge_sizes, "num-edge-list")):
        if counts.size and counts.min() < 0:
            raise DataError("a count is negative", **files.at(part, int(counts.argmin())), remedy="correct the line")
    for part, table, lines in (
        ("num-edge-list", edge_sizes, len(sizes)),
        ("graph-label", labels, len(sizes)),
        ("node-feat", tags, int(sizes.sum())),
        ("edge", edges, int(edge_sizes.sum())),
        ("edge-feat", edge_tags, int(edge_sizes.sum())),
    ):
        if len(table) != lines:
            raise DataError(
                f"the file has {len(table)} lines where the other files ask for {lines}",
                **files.at(part, min(len(table), lines)),
                remedy="the files do not belong together or one is cut off; fetch them anew",
            )


def _known(tags: Table, vocabulary: Vocabulary) -> tuple[int, ...] | None:
    """Cardinalities of the molecules' vocabulary, where the features can be those."""
    sizes = cardinalities(vocabulary)
    fits = tags.shape[1] == len(sizes) and tags.size and tags.min() >= 0 and (tags.max(0) < sizes).all()
    return sizes if fits else None


class _Files:
    """The parts of one dataset, and where each thing in them is written down."""

    def __init__(self, members: Members) -> None:
        self.members = members
        self.first: Table = np.zeros(1, np.int64)
        self.num_edges = 0
        found = members.ending(EDGES)
        if len(found) != 1:
            raise DataError(
                f"a folder in OGB's layout holds one {EDGES}; here: {len(found)}",
                where=members.path,
                remedy="give the folder of one dataset",
            )
        self.folder = PurePosixPath(found[0]).parent.parent

    def _name(self, part: str) -> str:
        return (self.folder / "raw" / f"{part}.csv.gz").as_posix()

    def at(self, part: str, index: int) -> Place:
        return {"where": self.members.where(self._name(part)), "line": index + 1}

    def read(self, part: str, columns: int | None) -> Table:
        name = self._name(part)
        if name not in self.members.names:
            raise DataError(f"missing: {name}", where=self.members.path, remedy="fetch the dataset anew")
        return self._read(name, columns)

    def _read(self, name: str, columns: int | None) -> Table:
        with self.members.open(name) as file:
            return read_integers(file, self.members.where(name), columns)

    def splits(self) -> dict[str, Table]:
        """Ids of each part of the splitting scheme."""
        found = {}
        for name in self.members.names:
            path = PurePosixPath(name)
            if path.is_relative_to(self.folder / "split") and path.name.endswith(".csv.gz"):
                found[path.name.removesuffix(".csv.gz")] = self._read(name, 1)[:, 0]
        return found

    def edge(self, k: int) -> Place:
        return self.at("edge", k % self.num_edges)

    def edge_features(self, k: int) -> Place:
        return self.at("edge-feat", k % self.num_edges)

    def node(self, i: int) -> Place:
        return self.at("node-feat", i)

    def graph(self, g: int) -> Place:
        return self.at("graph-label", g)

    def name(self, i: int) -> str:
        return str(i - self.first[np.searchsorted(self.first, i, side="right") - 1])
