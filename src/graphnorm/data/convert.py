"""Graphs that are in memory already: lists of NetworkX graphs, lists of PyG ``Data``, any PyG dataset."""

from __future__ import annotations

from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphnorm.data.build import ByGraph, Place, RawGraphs, Repairs, pack
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import DataError, require

__all__ = ["from_networkx", "from_pyg"]

Array = npt.NDArray[Any]


def from_networkx(
    graphs: Sequence[Any],
    labels: Sequence[int | str],
    *,
    name: str = "networkx",
    node_label: str | None = None,
    node_features: str | None = None,
    edge_label: str | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
) -> PackedGraphs:
    """Pack NetworkX graphs with one class label each.

    node_label, edge_label: the attribute that holds a category (any hashable value).
    node_features: the attribute that holds a number or a list of numbers.
    Without either of the node attributes the degree is the feature. Directed graphs need both directions, or
    ``symmetrise``; multigraphs need ``merge_duplicates`` where an edge is there twice.

    >>> import networkx as nx
    >>> from_networkx([nx.path_graph(3), nx.cycle_graph(4)], ["path", "cycle"])
    PackedGraphs(networkx: 2 graphs, 7 nodes, 12 edges, 2 classes, 2 features, cpu)
    """
    sizes, edge_counts = [], []
    ends: list[tuple[int, int]] = []
    tags: list[Hashable] = []
    edge_tags: list[Hashable] = []
    x: list[Array] = []
    num_nodes = 0
    require("graphs", graphs, Collection, "a list of NetworkX graphs")
    for g, graph in enumerate(graphs):
        _refuse_others(f"graphs[{g}]", graph, "a NetworkX graph", ("nodes", "edges", "is_directed"))
        before = len(ends)
        place = {node: num_nodes + i for i, node in enumerate(graph)}
        num_nodes += len(place)
        for node, data in graph.nodes(data=True):
            if node_label is not None:
                tags.append(_attribute(data, node_label, f"node {node!r}", g))
            if node_features is not None:
                x.append(_numbers(data, node_features, f"node {node!r}", g))
        for u, v, data in graph.edges(data=True):
            ways = [(place[u], place[v])]
            if not graph.is_directed() and u != v:
                ways.append((place[v], place[u]))
            ends += ways
            if edge_label is not None:
                edge_tags += [_attribute(data, edge_label, f"edge {(u, v)!r}", g)] * len(ways)
        sizes.append(len(place))
        edge_counts.append(len(ends) - before)
    if len({value.shape for value in x}) > 1:
        raise DataError(
            f"the node attribute {node_features!r} has lists of different lengths",
            remedy="give every node the same count of numbers",
        )
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    raw = RawGraphs(
        name=name,
        origin=ByGraph(_listed, sizes, edge_counts),
        sizes=np.array(sizes, np.int64),
        row=pairs[:, 0],
        col=pairs[:, 1],
        labels=_labels(labels, len(graphs)),
        tags=None if node_label is None else _categories(tags),
        x=None if node_features is None else np.array(x),
        edge_tags=None if edge_label is None else _categories(edge_tags),
        source=f"{len(graphs)} NetworkX graphs",
    )
    return pack(raw, repairs=Repairs(symmetrise=symmetrise, merge_duplicates=merge_duplicates))


def _refuse_others(argument: str, graph: object, wanted: str, attributes: Sequence[str]) -> None:
    if not all(hasattr(graph, name) for name in attributes):
        raise TypeError(f"{argument} must be {wanted}, got {graph!r}")


def from_pyg(
    dataset: Iterable[Any],
    labels: Sequence[int | str] | None = None,
    *,
    name: str | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
) -> PackedGraphs:
    """Pack PyG ``Data`` objects: a list of them, or any dataset that yields them.

    Classes are ``labels``, or each graph's ``y``. Integer ``x`` and ``edge_attr`` are categorical, column by
    column; float ones that are one-hot are kept as the category they stand for; others are continuous.
    """
    if not any(hasattr(dataset, name) for name in ("__iter__", "__getitem__")):
        raise TypeError(f"dataset must be a dataset of PyTorch Geometric or a list of its graphs, got {dataset!r}")
    graphs = list(dataset)
    for g, graph in enumerate(graphs):
        _refuse_others(f"dataset[{g}]", graph, "a Data object of PyTorch Geometric", ("num_nodes", "edge_index"))
    sizes = [int(graph.num_nodes or 0) for graph in graphs]
    edges = [_edges(graph.edge_index, g, sizes[g]) for g, graph in enumerate(graphs)]
    edge_counts = [pair.shape[1] for pair in edges]
    first = np.concatenate(([0], np.cumsum(sizes)))[:-1].astype(np.int64)
    pairs = np.concatenate([np.empty((2, 0), np.int64), *(p + f for p, f in zip(edges, first, strict=True))], axis=1)
    tags, cardinalities, x = _features(graphs, "x", sizes)
    edge_tags, edge_cardinalities, edge_x = _features(graphs, "edge_attr", edge_counts)
    raw = RawGraphs(
        name=name or getattr(dataset, "name", None) or "pyg",
        origin=ByGraph(_listed, sizes, edge_counts),
        sizes=np.array(sizes, np.int64),
        row=pairs[0],
        col=pairs[1],
        labels=_labels(
            [_class_of(graph, g) for g, graph in enumerate(graphs)] if labels is None else labels, len(graphs)
        ),
        tags=tags,
        cardinalities=cardinalities,
        x=x,
        edge_tags=edge_tags,
        edge_cardinalities=edge_cardinalities,
        edge_x=edge_x,
        source=f"{len(graphs)} PyG graphs",
    )
    return pack(raw, repairs=Repairs(symmetrise=symmetrise, merge_duplicates=merge_duplicates))


def _listed(g: int) -> Place:
    return {"where": f"graph {g} of the list"}


def _labels(labels: Sequence[int | str], num_graphs: int) -> Array:
    if len(labels) != num_graphs:
        raise DataError(f"there are {num_graphs} graphs and {len(labels)} labels", remedy="give one label each")
    if any(isinstance(label, float) for label in labels):
        raise DataError("a label is a float", remedy="give classes as integers or texts")
    return np.array(labels)


def _attribute(data: Mapping[str, Any], attribute: str, owner: str, g: int) -> Any:
    if data.get(attribute) is None:
        raise DataError(
            f"{owner} has no attribute {attribute!r}",
            **_listed(g),
            remedy="give every one the attribute, or name another",
        )
    return data[attribute]


def _numbers(data: Mapping[str, Any], attribute: str, owner: str, g: int) -> Array:
    """(F,): an attribute that is a number or a list of numbers."""
    value = _attribute(data, attribute, owner, g)
    try:
        numbers = np.atleast_1d(np.asarray(value, np.float64))
    except (TypeError, ValueError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1:
        raise DataError(
            f"the attribute {attribute!r} of {owner} is {value!r}",
            **_listed(g),
            remedy="give a number or a list of numbers",
        )
    return numbers


def _categories(values: Sequence[Hashable]) -> Array:
    """(n, 1): the index of each value among the distinct ones; numbers first, in their order, then texts."""

    def order(value: Hashable) -> tuple[bool, float, str]:
        number = isinstance(value, (int, float))
        return (
            not number,
            float(value) if isinstance(value, (int, float)) else 0.0,
            "" if number else str(value),
        )

    index = {value: k for k, value in enumerate(sorted(set(values), key=order))}
    return np.array([index[value] for value in values], np.int64).reshape(-1, 1)


def _edges(edge_index: Tensor | None, g: int, num_nodes: int) -> Array:
    """(2, edges) of one graph as (row, col) = (target, source)."""
    if edge_index is None:
        raise DataError(
            "the graph has no edge_index",
            **_listed(g),
            remedy="give it one, of shape (2, 0) if it has no edges",
        )
    pair = edge_index.cpu().numpy()
    if pair.ndim != 2 or pair.shape[0] != 2 or not np.issubdtype(pair.dtype, np.integer):
        raise DataError(
            f"edge_index has shape {tuple(pair.shape)} and type {pair.dtype}",
            **_listed(g),
            remedy="it is an integer tensor of shape (2, edges)",
        )
    if pair.size and (pair.min() < 0 or pair.max() >= num_nodes):
        worst = pair.max() if pair.max() >= num_nodes else pair.min()
        raise DataError(
            f"an edge names node {worst}, but the nodes are 0 to {num_nodes - 1}",
            **_listed(g),
            remedy="correct the edge, or set num_nodes",
        )
    return pair[::-1].astype(np.int64)


def _class_of(graph: Any, g: int) -> int:
    y = getattr(graph, "y", None)
    if not isinstance(y, Tensor) or y.numel() != 1 or not float(y).is_integer():
        raise DataError(
            f"y is {y}, not one class",
            **_listed(g),
            remedy="pass the classes as labels=[...]",
        )
    return int(y)


def _features(
    graphs: Sequence[Any], attribute: str, counts: Sequence[int]
) -> tuple[Array | None, tuple[int, ...] | None, Array | None]:
    """Categorical columns and their cardinalities, or continuous ones, of an attribute all graphs have."""
    values: list[Any] = [getattr(graph, attribute, None) for graph in graphs]
    if all(value is None for value in values):
        return None, None, None
    for g, (value, count) in enumerate(zip(values, counts, strict=True)):
        if not isinstance(value, Tensor) or value.shape[:1] != (count,):
            shape = tuple(value.shape) if isinstance(value, Tensor) else value
            raise DataError(f"{attribute} is {shape} for {count} rows", **_listed(g), remedy="give one row for each")
    try:
        table = torch.cat([value.reshape(len(value), -1).cpu() for value in values])
    except RuntimeError as error:
        raise DataError(f"{attribute} differs in width from graph to graph", remedy="use the same features") from error
    if table.shape[1] == 0:
        return None, None, None
    if not table.is_floating_point():
        return table.numpy().astype(np.int64), None, None
    if table.shape[1] > 1 and bool(((table == 0) | (table == 1)).all()) and bool((table.sum(1) == 1).all()):
        return table.argmax(1, keepdim=True).numpy(), (table.shape[1],), None
    return None, None, table.numpy()
