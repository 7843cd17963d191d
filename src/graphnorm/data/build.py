"""From edge lists to :class:`PackedGraphs`: the one place where what a reader found is checked and packed."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol, TypedDict

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import DataError

__all__ = ["ByGraph", "FeatureRule", "Origin", "Place", "RawGraphs", "Repairs", "pack"]

Integers = npt.NDArray[np.integer[Any]]
FeatureRule = Literal["auto", "labels", "degree", "constant"]
"""Which node features a dataset gets.

``labels``: the categorical node labels of the source. ``degree``: the index of the node's degree among the
sorted distinct degrees of the dataset, counted without self-loops. ``constant``: one feature that is the same
everywhere. ``auto``: all the node features that the source has, or ``degree`` where it has none.
"""


class Place(TypedDict, total=False):
    """Where a mistake is, as :class:`~graphnorm.errors.GraphnormError` takes it."""

    where: str
    line: int


class Origin(Protocol):
    """Says where an edge, a node or a graph of the raw arrays was written down."""

    def edge(self, k: int) -> Place:
        """Give the place of edge k."""

    def edge_features(self, k: int) -> Place:
        """Give the place of edge k's features."""

    def node(self, i: int) -> Place:
        """Give the place of node i's features."""

    def graph(self, g: int) -> Place:
        """Give the place of graph g or its label."""

    def name(self, i: int) -> str:
        """Name node i as the source does."""


class ByGraph:
    """The origin of graphs that stand one by one, as the rows of a table or the items of a list."""

    def __init__(self, places: Callable[[int], Place], sizes: Sequence[int], edges: Sequence[int]) -> None:
        self._places = places
        self._first = np.concatenate(([0], np.cumsum(sizes, dtype=np.int64)))
        self._first_edge = np.concatenate(([0], np.cumsum(edges, dtype=np.int64)))

    def graph(self, g: int) -> Place:
        """Give the place of the graph."""
        return self._places(g)

    def node(self, i: int) -> Place:
        """Give the place of the node's graph."""
        return self._places(int(np.searchsorted(self._first, i, side="right")) - 1)

    def edge(self, k: int) -> Place:
        """Give the place of the edge's graph."""
        return self._places(int(np.searchsorted(self._first_edge, k, side="right")) - 1)

    edge_features = edge

    def name(self, i: int) -> str:
        """Count the node within its graph, from 0."""
        return str(i - self._first[np.searchsorted(self._first, i, side="right") - 1])


@dataclass(frozen=True)
class Repairs:
    """What to put right rather than to refuse."""

    symmetrise: bool = False
    """Add the missing direction of one-directional edges."""
    merge_duplicates: bool = False
    """Keep the first of several equal edges."""


@dataclass(frozen=True, kw_only=True)
class RawGraphs:
    """G graphs as a reader finds them: node ids count through all graphs from 0, edges in any order."""

    name: str
    origin: Origin
    sizes: Integers
    """(G,) nodes of each graph."""
    row: Integers
    """(E,) one end of each edge."""
    col: Integers
    """(E,) the other end."""
    labels: npt.NDArray[Any]
    """(G,) the source's labels: integers or strings."""
    classes: tuple[str, ...] | None = None
    """Names of the classes where the labels are already 0..C-1; otherwise the sorted distinct labels."""
    tags: Integers | None = None
    """(N, K) categorical node features, already 0..cardinality-1 where ``cardinalities`` are given."""
    cardinalities: tuple[int, ...] | None = None
    x: npt.NDArray[np.floating[Any]] | None = None
    edge_tags: Integers | None = None
    edge_cardinalities: tuple[int, ...] | None = None
    edge_x: npt.NDArray[np.floating[Any]] | None = None
    splits: Mapping[str, Integers] = field(default_factory=dict)
    source: str = ""


def pack(raw: RawGraphs, *, features: FeatureRule = "auto", repairs: Repairs | None = None) -> PackedGraphs:
    """Check raw graphs, put their edges in order, and make their features small."""
    num_nodes = int(raw.sizes.sum())
    _check_sizes(raw)
    labels, classes = _encode_labels(raw)
    node_ptr = np.concatenate(([0], np.cumsum(raw.sizes, dtype=np.int64)))
    rowptr, col, order, loops = _order_edges(raw, num_nodes, repairs or Repairs())
    # Columns count from the first node of their graph.
    col -= np.repeat(np.repeat(node_ptr[:-1], raw.sizes).astype(col.dtype), np.diff(rowptr))

    tags, cardinalities, x = _node_features(raw, features, np.diff(rowptr))
    edge_tags, edge_cardinalities = _encode(raw.edge_tags, raw.edge_cardinalities)
    _check_finite(raw.edge_x, raw.origin.edge_features, lambda k: _name_edge(raw, k))
    return PackedGraphs(
        name=raw.name,
        node_ptr=torch.from_numpy(node_ptr),
        rowptr=torch.from_numpy(rowptr),
        col=torch.from_numpy(col),
        labels=torch.from_numpy(labels),
        classes=classes,
        tags=_tensor(tags),
        cardinalities=cardinalities,
        x=_tensor(x),
        edge_tags=_tensor(edge_tags, order),
        edge_cardinalities=edge_cardinalities,
        edge_x=_tensor(None if raw.edge_x is None else raw.edge_x.astype(np.float32), order),
        splits={name: torch.from_numpy(np.array(ids, dtype=np.int64)) for name, ids in raw.splits.items()},
        removed_self_loops=loops,
        source=raw.source,
    )


def _check_sizes(raw: RawGraphs) -> None:
    if len(raw.sizes) == 0:
        raise DataError("there are no graphs", **raw.origin.graph(0), remedy="give at least two graphs")
    empty = np.flatnonzero(raw.sizes == 0)
    if empty.size:
        raise DataError(
            f"the graph has no nodes ({empty.size} such of {len(raw.sizes)} graphs)",
            **raw.origin.graph(int(empty[0])),
            remedy="take the graph and its label out, or give it a node",
        )


def _encode_labels(raw: RawGraphs) -> tuple[npt.NDArray[np.int64], tuple[str, ...]]:
    if raw.classes is not None:
        return raw.labels.astype(np.int64), raw.classes
    values, labels = np.unique(raw.labels, return_inverse=True)
    if len(values) < 2:
        raise DataError(
            f"all {len(labels)} graphs have the same label, {values[0]}",
            **raw.origin.graph(0),
            remedy="classification needs two classes or more; check the label column or file",
        )
    return labels.astype(np.int64), tuple(str(value) for value in values)


def _order_edges(
    raw: RawGraphs, num_nodes: int, repairs: Repairs
) -> tuple[npt.NDArray[np.int64], npt.NDArray[np.int32], Integers | None, int]:
    """rowptr and col of the edges sorted by (row, col), without self-loops, doubles and one-way streets.

    Also which raw edge each one is (None: they were in order), and how many self-loops there were.
    """
    row, col = raw.row, raw.col
    order: Integers | None = None
    if row.size and (min(row.min(), col.min()) < 0 or max(row.max(), col.max()) >= num_nodes):
        ends = np.stack((row, col), axis=1)
        k, end = (int(i[0]) for i in np.nonzero((ends < 0) | (ends >= num_nodes)))
        raise DataError(
            f"an edge names node {ends[k, end] + 1}, but the nodes are 1 to {num_nodes}",
            **raw.origin.edge(k),
            remedy="node ids count from 1 through all graphs; check the edge and the list of nodes",
        )
    graph = np.repeat(np.arange(len(raw.sizes), dtype=np.int32), raw.sizes)
    crossing = np.flatnonzero(graph[row] != graph[col])
    if crossing.size:
        k = int(crossing[0])
        raise DataError(
            f"an edge joins graph {graph[row[k]] + 1} and graph {graph[col[k]] + 1}",
            **raw.origin.edge(k),
            remedy="both ends of an edge lie in one graph; check the edge and the nodes' graphs",
        )

    loops = row == col
    num_loops = int(np.count_nonzero(loops))
    if num_loops:
        order = np.flatnonzero(~loops)
        row, col = row[order], col[order]
    if not _in_order(row, col):
        # Stable twice, by the less significant end first: sorted by (row, col), equal edges as they came.
        by_col = np.argsort(col, kind="stable")
        permutation = by_col[np.argsort(row[by_col], kind="stable")]
        order = permutation if order is None else order[permutation]
        row, col = row[permutation], col[permutation]
    row, col, order = _drop_duplicates(raw, row, col, order, repairs)
    row, col, order = _make_symmetric(raw, row, col, order, repairs)
    rowptr = np.concatenate(([0], np.cumsum(np.bincount(row, minlength=num_nodes)))).astype(np.int64)
    return rowptr, np.array(col, dtype=np.int32), order, num_loops


def _in_order(row: Integers, col: Integers) -> bool:
    later = row[1:] > row[:-1]
    later |= (row[1:] == row[:-1]) & (col[1:] >= col[:-1])
    return bool(later.all())


def _name_edge(raw: RawGraphs, k: int) -> str:
    row, col = raw.origin.name(int(raw.row[k])), raw.origin.name(int(raw.col[k]))
    return f"the edge from node {row} to node {col}"


def _drop_duplicates(
    raw: RawGraphs, row: Integers, col: Integers, order: Integers | None, repairs: Repairs
) -> tuple[Integers, Integers, Integers | None]:
    again = np.flatnonzero((row[1:] == row[:-1]) & (col[1:] == col[:-1])) + 1
    if again.size == 0:
        return row, col, order
    if not repairs.merge_duplicates:
        k = int(again[0] if order is None else order[again].min())
        raise DataError(
            f"{_name_edge(raw, k)} was there before ({again.size} duplicate edges in all)",
            **raw.origin.edge(k),
            remedy="take it out, or load with merge_duplicates=True (--merge-duplicates) to keep the first",
        )
    kept = np.delete(np.arange(len(row)), again)
    return row[kept], col[kept], kept if order is None else order[kept]


def _make_symmetric(
    raw: RawGraphs, row: Integers, col: Integers, order: Integers | None, repairs: Repairs
) -> tuple[Integers, Integers, Integers | None]:
    """Edges sorted by (row, col) are symmetric if, sorted by (col, row), they read the same reversed."""
    back = np.argsort(col, kind="stable")
    if np.array_equal(col[back], row) and np.array_equal(row[back], col):
        return row, col, order
    span = int(raw.sizes.sum())
    there, reverse = (a.astype(np.int64) * span + b for a, b in ((row, col), (col, row)))
    lonely = np.flatnonzero(~np.isin(reverse, there))
    at = lonely if order is None else order[lonely]
    if not repairs.symmetrise:
        k = int(at.min())
        raise DataError(
            f"{_name_edge(raw, k)} has no edge back ({lonely.size} one-directional edges of {len(row)})",
            **raw.origin.edge(k),
            remedy="give both directions, or load with symmetrise=True (--symmetrise) to add them",
        )
    row, col = np.concatenate((row, col[lonely])), np.concatenate((col, row[lonely]))
    order = np.concatenate((np.arange(len(row) - lonely.size) if order is None else order, at))
    by_row = np.argsort(row.astype(np.int64) * span + col, kind="stable")
    return row[by_row], col[by_row], order[by_row]


def _node_features(
    raw: RawGraphs, rule: FeatureRule, degree: npt.NDArray[np.int64]
) -> tuple[Integers | None, tuple[int, ...], npt.NDArray[np.float32] | None]:
    if rule == "labels" and raw.tags is None:
        raise DataError(
            "there are no node labels",
            **raw.origin.node(0),
            remedy='add them, or load with features="degree"',
        )
    if rule == "constant":
        return np.zeros((len(degree), 1), np.uint8), (1,), None
    if rule == "degree" or (rule == "auto" and raw.tags is None and raw.x is None):
        return (*_encode(degree[:, None], None), None)
    x = raw.x if rule == "auto" else None
    _check_finite(x, raw.origin.node, lambda i: f"node {raw.origin.name(i)}")
    return (*_encode(raw.tags, raw.cardinalities), None if x is None else np.ascontiguousarray(x, np.float32))


def _check_finite(
    x: npt.NDArray[np.floating[Any]] | None, place: Callable[[int], Place], name: Callable[[int], str]
) -> None:
    if x is not None and not np.isfinite(x).all():
        k, feature = (int(i[0]) for i in np.nonzero(~np.isfinite(x)))
        raise DataError(
            f"feature {feature + 1} of {name(k)} is {x[k, feature]}",
            **place(k),
            remedy="replace values that are missing or not finite",
        )


def _encode(values: Integers | None, cardinalities: tuple[int, ...] | None) -> tuple[Integers | None, tuple[int, ...]]:
    """Columns of any integers to 0..cardinality-1, in the smallest integer type that torch can index by."""
    if values is None:
        return None, ()
    if cardinalities is None:
        columns = [np.unique(column, return_inverse=True) for column in values.T]
        cardinalities = tuple(len(distinct) for distinct, _ in columns)
        values = np.stack([index.reshape(-1) for _, index in columns], axis=1)
    widest = max(cardinalities, default=0)
    dtype = np.uint8 if widest <= 2**8 else np.int16 if widest <= 2**15 else np.int32
    return np.ascontiguousarray(values, dtype), cardinalities


def _tensor(array: npt.NDArray[Any] | None, order: Integers | None = None) -> torch.Tensor | None:
    if array is None:
        return None
    return torch.from_numpy(array if order is None else array[order])
