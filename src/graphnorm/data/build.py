"""From edge lists to :class:`PackedGraphs`: all readers give their edges, labels and features to :func:`pack`."""

from __future__ import annotations

import hashlib
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data.archive import Integers, Place
from graphnorm.data.catalog import FeatureRule
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.targets import Targets
from graphnorm.errors import DataError, require

__all__ = ["Locate", "RawGraphs", "by_graph", "join_edges", "pack"]


Locate = Callable[[Literal["graph", "node", "edge", "edge features"], int], Place]
"""Gives the place in the source of a graph, a node, an edge or its features, by its index in the raw arrays."""


def by_graph(place: Callable[[int], Place], sizes: Integers, row: Integers) -> Locate:
    """Locate a node or an edge by its graph, for graphs that come one by one."""

    def locate(part: str, index: int) -> Place:
        if part == "graph":
            return place(index)
        node = index if part == "node" else row[index]
        return place(int(np.searchsorted(np.cumsum(sizes), node, side="right")))

    return locate


def join_edges(edges: Sequence[Integers], sizes: Integers) -> Integers:
    """(E, 2): the edges of all graphs, from (edges, 2) of each graph, with nodes numbered through all graphs."""
    first = np.cumsum(sizes) - sizes
    return np.concatenate([np.empty((0, 2), np.int64), *(own + start for own, start in zip(edges, first, strict=True))])


@dataclass(frozen=True, kw_only=True)
class RawGraphs:
    """G graphs as a reader finds them. Nodes are numbered through all graphs from 0; edges may be in any order."""

    name: str
    sizes: Integers
    """(G,) number of nodes of each graph."""
    row: Integers
    """(E,) one end of each edge: a node."""
    col: Integers
    """(E,) the other end: a node of the same graph."""
    targets: Targets
    tags: Integers | None = None
    """(N, K) categorical node features, already 0..cardinality-1 if ``cardinalities`` are given."""
    tag_names: tuple[str, ...] = ()
    """The values that the only column of ``tags`` numbers, if they are not integers."""
    cardinalities: tuple[int, ...] | None = None
    x: npt.NDArray[np.floating[Any]] | None = None
    """(N, F) continuous node features."""
    edge_tags: Integers | None = None
    """(E, L)."""
    edge_tag_names: tuple[str, ...] = ()
    edge_cardinalities: tuple[int, ...] | None = None
    edge_x: npt.NDArray[np.floating[Any]] | None = None
    """(E, D)."""
    groups: Integers | None = None
    """(G,) graphs that belong on one side of every split have the same number."""
    splits: Mapping[str, Integers] = field(default_factory=dict)
    notes: tuple[str, ...] = ()
    source: str = ""
    locate: Locate = lambda part, index: {}
    global_ids: bool = False
    """The source numbers nodes from 1 through all graphs, rather than from 0 within each graph."""

    def node_name(self, i: int) -> str:
        """The number of node i in the source."""
        ends = np.cumsum(self.sizes)
        return str(i + 1 if self.global_ids else i - np.append(0, ends)[np.searchsorted(ends, i, side="right")])

    def edge_name(self, k: int) -> str:
        return f"the edge from node {self.node_name(self.row[k])} to node {self.node_name(self.col[k])}"


def pack(
    raw: RawGraphs, *, features: FeatureRule = "auto", symmetrise: bool = False, merge_duplicates: bool = False
) -> PackedGraphs:
    """Check raw graphs, sort their edges, and store their features in small types.

    symmetrise: add the missing direction of one-directional edges. Without it they are an error.
    merge_duplicates: keep the first of several equal edges. Without it they are an error.
    """
    require("name", raw.name, str, "a text")
    if len(raw.sizes) == 0:
        raise DataError("there are no graphs", **raw.locate("graph", 0), remedy="give at least two graphs")
    empty = np.flatnonzero(raw.sizes == 0)
    if empty.size:
        raise DataError(
            f"the graph has no nodes ({empty.size} of {len(raw.sizes)} graphs have none)",
            **raw.locate("graph", int(empty[0])),
            remedy="remove the graph and its label, or give it a node",
        )
    row, col, edges = _sort_edges(raw, symmetrise, merge_duplicates)
    node_ptr = np.concatenate(([0], np.cumsum(raw.sizes, dtype=np.int64)))
    degree = np.bincount(row, minlength=int(node_ptr[-1]))
    first = np.repeat(node_ptr[:-1].astype(col.dtype), raw.sizes)  # (N,) the first node of each node's graph
    tags, cardinalities, vocabulary, x = _node_features(raw, features, degree)
    edge_tags, edge_cardinalities, edge_vocabulary = _encode(raw.edge_tags, raw.edge_cardinalities, raw.edge_tag_names)
    if raw.edge_x is not None:
        _refuse_infinite(raw, raw.edge_x, "edge features")

    def tensor(array: npt.NDArray[Any] | None, dtype: type | None = None) -> torch.Tensor | None:
        return None if array is None else torch.from_numpy(np.ascontiguousarray(array, dtype))

    return PackedGraphs(
        name=_readable(raw.name),
        node_ptr=torch.from_numpy(node_ptr),
        rowptr=torch.from_numpy(np.concatenate(([0], np.cumsum(degree, dtype=np.int64)))),
        col=torch.from_numpy((col - np.repeat(first, degree)).astype(np.int32, copy=False)),
        labels=torch.from_numpy(raw.targets.labels),
        classes=raw.targets.classes,
        task=raw.targets.task,
        targets=tensor(raw.targets.targets),
        target_names=raw.targets.names,
        tags=tensor(tags),
        cardinalities=cardinalities,
        x=tensor(x, np.float32),
        edge_tags=tensor(None if edge_tags is None else edge_tags[edges]),
        edge_cardinalities=edge_cardinalities,
        vocabulary=vocabulary,
        edge_vocabulary=edge_vocabulary,
        edge_x=tensor(None if raw.edge_x is None else raw.edge_x[edges], np.float32),
        groups=tensor(raw.groups, np.int64),
        splits={name: torch.from_numpy(np.array(ids, dtype=np.int64)) for name, ids in raw.splits.items()},
        removed_self_loops=int(np.count_nonzero(raw.row == raw.col)),
        source=_readable(raw.source),
        threshold=raw.targets.threshold,
        notes=(*raw.targets.notes, *raw.notes),
    )


def _readable(path: str) -> str:
    """A path as text that can be stored: bytes that are no UTF-8 are replaced."""
    return path.encode("utf-8", "surrogateescape").decode("utf-8", "replace")


def _sort_edges(raw: RawGraphs, symmetrise: bool, merge_duplicates: bool) -> tuple[Integers, Integers, Integers | None]:
    """(row, col, edges), sorted by (row, col), without self-loops and duplicates.

    ``edges`` are the indices of the raw edges; None if they have no features. Memory counts here: COLLAB has 24 million
    edges.
    """
    num_nodes = int(raw.sizes.sum())
    has_features = raw.edge_tags is not None or raw.edge_x is not None
    row, col, edges = raw.row, raw.col, np.arange(len(raw.row)) if has_features else None

    def select(kept: Integers, *arrays: Any) -> list[Any]:
        return [None if array is None else array[kept] for array in arrays]

    def as_integers(row: Integers, col: Integers) -> npt.NDArray[np.int64]:
        """Each edge as one integer. Sorting these is much faster than sorting pairs."""
        keys = np.multiply(row, num_nodes, dtype=np.int64)
        keys += col
        return keys

    loops = row == col
    if loops.any():
        row, col, edges = select(~loops, row, col, edges)
    keys = as_integers(row, col)
    if (keys[1:] < keys[:-1]).any():
        keys, row, col, edges = select(np.argsort(keys, kind="stable"), keys, row, col, edges)
    duplicate = np.append(False, keys[1:] == keys[:-1])
    if duplicate.any():
        if not merge_duplicates:
            k = int(np.flatnonzero(as_integers(raw.row, raw.col) == keys[duplicate][0])[1])
            raise DataError(
                f"{raw.edge_name(k)} is a duplicate ({np.count_nonzero(duplicate)} duplicate edges in total)",
                **raw.locate("edge", k),
                remedy="remove it, or load with merge_duplicates=True (--merge-duplicates) to keep the first",
            )
        keys, row, col, edges = select(~duplicate, keys, row, col, edges)
    reverse = as_integers(col, row)
    reverse.sort()
    if not np.array_equal(reverse, keys):
        reverse = as_integers(col, row)
        lonely = ~np.isin(reverse, keys)
        if not symmetrise:
            k = int(np.flatnonzero(as_integers(raw.row, raw.col) == keys[lonely][0])[0])
            raise DataError(
                f"{raw.edge_name(k)} has no edge back "
                f"({np.count_nonzero(lonely)} of {len(keys)} edges are one-directional)",
                **raw.locate("edge", k),
                remedy="give both directions, or load with symmetrise=True (--symmetrise) to add them",
            )
        both = np.concatenate((keys, reverse[lonely]))
        row, col = np.concatenate((row, col[lonely])), np.concatenate((col, row[lonely]))
        edges = None if edges is None else np.concatenate((edges, edges[lonely]))
        row, col, edges = select(np.argsort(both), row, col, edges)
    return row, col, edges


def _node_features(
    raw: RawGraphs, rule: FeatureRule, degree: Integers
) -> tuple[Integers | None, tuple[int, ...], str, npt.NDArray[np.floating[Any]] | None]:
    """Tags, their cardinalities and vocabulary, and x."""
    if rule == "labels" and raw.tags is None:
        raise DataError(
            "there are no node labels", **raw.locate("node", 0), remedy='add them, or load with features="degree"'
        )
    if rule == "constant":
        return np.zeros((len(degree), 1), np.uint8), (1,), "", None
    if rule == "degree" or (rule == "auto" and raw.tags is None and raw.x is None):
        return (*_encode(degree[:, None], None), None)
    x = raw.x if rule == "auto" else None
    if x is not None:
        _refuse_infinite(raw, x, "node")
    return (*_encode(raw.tags, raw.cardinalities, raw.tag_names), x)


def _refuse_infinite(raw: RawGraphs, x: npt.NDArray[np.floating[Any]], part: Literal["node", "edge features"]) -> None:
    """Refuse features that are not finite in single precision."""
    with np.errstate(over="ignore"):
        finite = np.isfinite(x.astype(np.float32, copy=False))
    if not finite.all():
        k, feature = (int(i[0]) for i in np.nonzero(~finite))
        name = f"node {raw.node_name(k)}" if part == "node" else raw.edge_name(k)
        large = ", too large for single precision" if np.isfinite(x[k, feature]) else ""
        raise DataError(
            f"feature {feature + 1} of {name} is {x[k, feature]}{large}",
            **raw.locate(part, k),
            remedy="replace values that are missing or not finite",
        )


def _encode(
    values: Integers | None, cardinalities: tuple[int, ...] | None, names: tuple[str, ...] = ()
) -> tuple[Integers | None, tuple[int, ...], str]:
    """Columns of any integers as 0..cardinality-1, in the smallest integer type that torch can index with.

    The last result is a digest of the values that are numbered; empty if they are numbered already.
    """
    if values is None:
        return None, (), ""
    vocabulary = ""
    if cardinalities is None:
        columns = [np.unique(column, return_inverse=True) for column in values.T]
        cardinalities = tuple(len(distinct) for distinct, _ in columns)
        values = np.stack([index.reshape(-1) for _, index in columns], axis=1)
        numbered = [names] if names else [distinct.tolist() for distinct, _ in columns]
        vocabulary = hashlib.sha256(json.dumps(numbered).encode()).hexdigest()[:16]
    largest = max(cardinalities, default=0)
    dtype = np.uint8 if largest <= 2**8 else np.int16 if largest <= 2**15 else np.int32
    return np.ascontiguousarray(values, dtype), cardinalities, vocabulary
