"""Graphs in memory: from and to NetworkX, and from PyTorch Geometric."""

from __future__ import annotations

import reprlib
import warnings
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphnorm.data.archive import Place
from graphnorm.data.build import RawGraphs, by_graph, join_edges, pack
from graphnorm.data.packed import UNKNOWN, PackedGraphs, announce
from graphnorm.data.table import TARGET_COLUMNS, listed, named_columns
from graphnorm.data.targets import Targets, as_columns, dense, find_targets
from graphnorm.errors import DataError, DataWarning, need, require
from graphnorm.settings import TaskName

__all__ = ["find_features", "find_labels", "from_networkx", "from_pyg", "to_networkx"]

Array = npt.NDArray[Any]


def from_networkx(
    graphs: Sequence[Any],
    labels: Any,
    *,
    task: TaskName | None = None,
    name: str = "networkx",
    node_label: str | None = None,
    node_features: str | None = None,
    edge_label: str | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
    unlabelled: bool = False,
) -> PackedGraphs:
    """Pack NetworkX graphs with a label each, or with numbers.

    labels: (G,) whole numbers or words, which are classes; (G,) or (G, T) other numbers, None or NaN where one is
        missing. Or the name of the graphs' attribute that holds them; or columns of (G,) by their names.
    task: ``"classes"``, ``"binary"`` or ``"values"``, if the guess of :mod:`~graphnorm.data.targets` is not what is
        meant.
    node_label, edge_label: the attribute that holds a category (any hashable value).
    node_features: the attribute that holds a number or a list of numbers.
    symmetrise: add the missing direction of edges of directed graphs.
    merge_duplicates: keep the first of several equal edges of multigraphs.
    unlabelled: read no labels; all graphs have the class ``"unknown"``.

    Without node_label and node_features the degree is the feature.

    >>> import networkx as nx
    >>> from_networkx([nx.path_graph(3), nx.cycle_graph(4)], ["path", "cycle"])
    PackedGraphs(networkx: 2 graphs, 7 nodes, 12 edges, 2 classes, 2 features, cpu)
    """
    require("graphs", graphs, Collection, "a list of NetworkX graphs")
    if isinstance(labels, str) and not unlabelled:
        labels = {labels: [_attribute(graph.graph, labels, "the graph", g) for g, graph in enumerate(graphs)]}
    sizes: list[int] = []
    ends: list[tuple[int, int]] = []
    tags: list[Hashable] = []
    edge_tags: list[Hashable] = []
    x: list[Array] = []
    num_nodes = 0
    for g, graph in enumerate(graphs):
        _require_networkx(graph, g)
        index = {node: num_nodes + i for i, node in enumerate(graph)}
        num_nodes += len(index)
        sizes.append(len(index))
        for node, data in graph.nodes(data=True):
            if node_label is not None:
                tags.append(_attribute(data, node_label, f"node {node!r}", g))
            if node_features is not None:
                x.append(_numbers(data, node_features, f"node {node!r}", g))
        for u, v, data in graph.edges(data=True):
            directions = [(index[u], index[v])]
            if not graph.is_directed() and u != v:
                directions.append((index[v], index[u]))
            ends += directions
            if edge_label is not None:
                edge_tags += [_attribute(data, edge_label, f"edge {(u, v)!r}", g)] * len(directions)
    if len({value.shape for value in x}) > 1:
        raise DataError(
            f"the node attribute {node_features!r} has lists of different lengths",
            remedy="give every node the same count of numbers",
        )
    pairs = np.array(ends, np.int64).reshape(-1, 2)
    numbered_tags, tag_names = (None, ()) if node_label is None else _categories(tags)
    numbered_edge_tags, edge_tag_names = (None, ()) if edge_label is None else _categories(edge_tags)
    raw = RawGraphs(
        name=name,
        locate=by_graph(_place, np.array(sizes), pairs[:, 0]),
        sizes=np.array(sizes, np.int64),
        row=pairs[:, 0],
        col=pairs[:, 1],
        targets=_targets(labels, len(graphs), task, unlabelled),
        tags=numbered_tags,
        tag_names=tag_names,
        x=None if node_features is None else np.array(x),
        edge_tags=numbered_edge_tags,
        edge_tag_names=edge_tag_names,
        source=f"{len(graphs)} NetworkX graphs",
    )
    packed = pack(raw, symmetrise=symmetrise, merge_duplicates=merge_duplicates)
    announce(packed)
    return packed


def _require_networkx(graph: Any, g: int) -> None:
    if not all(hasattr(graph, attribute) for attribute in ("nodes", "edges", "is_directed")):
        shown = reprlib.repr(graph)
        hint = "a single graph goes into a list: [graph]"
        if isinstance(graph, str):
            hint = "for SMILES use graphnorm.data.from_smiles, or a DataFrame with their targets"
        raise TypeError(f"graphs[{g}] must be a NetworkX graph, got {shown}; {hint}")


def find_labels(graphs: Sequence[Any], target: str | Sequence[str] | None) -> dict[str, list[Any]]:
    """The labels or numbers of NetworkX graphs by name: the attributes that ``target`` names, or a usual one."""
    for g, graph in enumerate(graphs):
        _require_networkx(graph, g)
    found = dict.fromkeys(name for graph in graphs for name in graph.graph)
    known = [name for name in found if isinstance(name, str)]
    if target is None:
        usual = [name for name in known if name.casefold() in TARGET_COLUMNS]
        if len(usual) != 1:
            raise DataError(
                f"it is not clear which attribute of the graphs is the label; they have {listed(known) or 'none'}",
                **_place(0),
                remedy='set graph.graph["label"] of each graph, or name the attribute: target="…" (--target)',
            )
        target = usual[0]
    names = [target] if target in known else named_columns(known, target, "the graphs", "attribute")
    return {name: [graph.graph.get(name) for graph in graphs] for name in names}


def find_features(graphs: Sequence[Any]) -> dict[str, Any]:
    """The attributes of NetworkX nodes and edges that serve as features, as arguments of :func:`from_networkx`.

    An attribute that all nodes have is used if it is the only one with categories, or the only one with numbers.
    """
    for g, graph in enumerate(graphs):
        _require_networkx(graph, g)
    nodes = [data for graph in graphs for _, data in graph.nodes(data=True)]
    edges = [data for graph in graphs for _, _, data in graph.edges(data=True)]
    names = {name for name in nodes[0] if all(name in data for data in nodes)} if nodes else set()
    words = sorted((name for name in names if all(isinstance(data[name], (str, int)) for data in nodes)), key=str)
    numbers = sorted(names - set(words), key=str)
    bonds = (
        sorted((n for n in edges[0] if all(isinstance(e.get(n), (str, int)) for e in edges)), key=str) if edges else []
    )
    found = {"node_label": words, "node_features": numbers, "edge_label": bonds}
    for argument, several in found.items():
        if len(several) > 1:
            warnings.warn(
                f"the attributes {listed(list(map(str, several)))} are not used; choose one with "
                f"from_networkx(graphs, labels, {argument}=…)",
                DataWarning,
                stacklevel=4,
            )
    return {argument: names[0] for argument, names in found.items() if len(names) == 1}


def to_networkx(graphs: PackedGraphs, graph_id: int) -> Any:
    """One graph as a ``networkx.Graph``. Its nodes are 0, 1, ... and have their first tag as the attribute ``tag``.

    >>> from graphnorm.data import synthetic
    >>> print(to_networkx(synthetic.trees(4), 0))
    Graph with 38 nodes and 37 edges
    """
    nx = need("networkx", "converting to NetworkX", "plots")
    batch = graphs.batch([graph_id]).to("cpu")
    graph = nx.Graph()
    tags = [0] * batch.num_rows if batch.tags is None else batch.tags[:, 0].tolist()
    graph.add_nodes_from((node, {"tag": tag}) for node, tag in enumerate(tags))
    graph.add_edges_from(zip(batch.row.tolist(), batch.col.tolist(), strict=True))
    return graph


def from_pyg(
    dataset: Iterable[Any],
    labels: Any = None,
    *,
    task: TaskName | None = None,
    name: str | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
    unlabelled: bool = False,
) -> PackedGraphs:
    """Pack PyTorch Geometric's ``Data`` objects: a list of them, or any dataset that yields them.

    Labels are those given, or ``y`` of each graph. Whole numbers are classes; others are targets, in one or several
    columns, NaN where one is missing. ``task`` overrules this. Integer ``x`` and ``edge_attr`` are categorical, column
    by column. One-hot floats are stored as the category they stand for. Other floats are continuous.

    unlabelled: read no labels; all graphs have the class ``"unknown"``.
    """
    if not any(hasattr(dataset, method) for method in ("__iter__", "__getitem__")):
        raise TypeError(f"dataset must be a dataset of PyTorch Geometric or a list of its graphs, got {dataset!r}")
    graphs = list(dataset)
    for g, graph in enumerate(graphs):
        if not all(hasattr(graph, attribute) for attribute in ("num_nodes", "edge_index")):
            raise TypeError(f"dataset[{g}] must be a Data object of PyTorch Geometric, got {graph!r}")
        if hasattr(graph, "to_data_list"):
            raise DataError("it is a batch of graphs", **_place(g), remedy="pass its graphs: batch.to_data_list()")
    sizes = np.array([_count_nodes(graph, g) for g, graph in enumerate(graphs)], np.int64)
    edges = [_edges(graph.edge_index, g, int(sizes[g])) for g, graph in enumerate(graphs)]
    row, col = join_edges(edges, sizes).T
    tags, cardinalities, x = _features(graphs, "x", sizes.tolist())
    edge_tags, edge_cardinalities, edge_x = _features(graphs, "edge_attr", [len(own) for own in edges])
    if labels is None and not unlabelled:
        labels = [_target_of(graph, g) for g, graph in enumerate(graphs)]
        shapes = [getattr(graph.y, "shape", ()) for graph in graphs]
        if all(tuple(shape) == (size,) != (1,) for shape, size in zip(shapes, sizes.tolist(), strict=True)):
            raise DataError(
                "y of each graph has one value for each of its nodes",
                **_place(0),
                remedy="give a class or T numbers of the graph: a tensor of shape (1,) or (1, T)",
            )
    raw = RawGraphs(
        name=name or getattr(dataset, "name", None) or "pyg",
        locate=by_graph(_place, sizes, row),
        sizes=sizes,
        row=row,
        col=col,
        targets=_targets(labels, len(graphs), task, unlabelled),
        tags=tags,
        cardinalities=cardinalities,
        x=x,
        edge_tags=edge_tags,
        edge_cardinalities=edge_cardinalities,
        edge_x=edge_x,
        source=f"{len(graphs)} PyG graphs",
    )
    packed = pack(raw, symmetrise=symmetrise, merge_duplicates=merge_duplicates)
    announce(packed)
    return packed


def _place(g: int) -> Place:
    return {"where": f"graph {g} of the list"}


def _targets(labels: Any, num_graphs: int, task: TaskName | None, unlabelled: bool) -> Targets:
    if num_graphs == 0:
        raise DataError("there are no graphs", remedy="give at least two graphs")
    if unlabelled:
        return Targets("classes", np.zeros(num_graphs, np.int64), (UNKNOWN,))
    columns, found = as_columns(labels, num_graphs)
    return find_targets(columns, _place, task=task or found)


def _attribute(data: Mapping[str, Any], attribute: str, owner: str, g: int) -> Any:
    if data.get(attribute) is None:
        problem = f"{owner} has no attribute {attribute!r}"
        raise DataError(problem, **_place(g), remedy="add the attribute everywhere, or name another")
    return data[attribute]


def _numbers(data: Mapping[str, Any], attribute: str, owner: str, g: int) -> Array:
    """(F,): an attribute that is a number or a list of numbers."""
    value = _attribute(data, attribute, owner, g)
    try:
        numbers = np.atleast_1d(np.asarray(value))
        numbers = np.empty((0, 0)) if np.iscomplexobj(numbers) else numbers.astype(np.float64)
    except (TypeError, ValueError, OverflowError, RuntimeError):
        numbers = np.empty((0, 0))
    if numbers.ndim != 1 or not numbers.size:
        problem = f"the attribute {attribute!r} of {owner} is {value!r}"
        raise DataError(problem, **_place(g), remedy="give a number or a list of numbers")
    return numbers


def _categories(values: Sequence[Hashable]) -> tuple[Array, tuple[str, ...]]:
    """(n, 1): the index of each value among the distinct values, sorted: numbers first, then all others as text.

    Also the distinct values as text, in this order.
    """

    def order(value: Hashable) -> tuple[bool, float, str, str]:
        if isinstance(value, (int, float)):
            return False, value, "", ""
        return True, 0.0, str(value), type(value).__name__

    try:
        wrong = next((value for value in values if value != value or isinstance(value, complex)), None)
        distinct = set(values)
    except (TypeError, ValueError, RuntimeError) as error:  # a list, an array
        problem = f"a category must be a word or a number: {error}"
        raise DataError(problem, remedy="name lists of numbers as node_features") from error
    if wrong is not None:
        raise DataError(f"a category is {wrong!r}", remedy="give a word or a number where the category is missing")
    known = sorted(distinct, key=order)
    index = {value: k for k, value in enumerate(known)}
    numbered = np.array([index[value] for value in values], np.int64).reshape(-1, 1)
    return numbered, tuple(repr(value) if isinstance(value, str) else str(value) for value in known)


def _count_nodes(graph: Any, g: int) -> int:
    count = graph.num_nodes
    if count is not None and (not isinstance(count, int) or not 0 <= count < 2**31):
        raise DataError(f"num_nodes is {count!r}", **_place(g), remedy="give the number of nodes")
    return count or 0


def _edges(edge_index: Tensor | None, g: int, num_nodes: int) -> Array:
    """(edges, 2) of one graph as (row, col) = (target, source)."""
    if edge_index is None:
        problem = "the graph has no edge_index"
        raise DataError(problem, **_place(g), remedy="add it, with the shape (2, 0) if there are no edges")
    edge_index = dense(edge_index, "edge_index", **_place(g))
    if edge_index.ndim != 2 or len(edge_index) != 2 or edge_index.is_floating_point() or edge_index.dtype == torch.bool:
        problem = f"edge_index has the shape {tuple(edge_index.shape)} and the type {edge_index.dtype}"
        raise DataError(problem, **_place(g), remedy="give an integer tensor of shape (2, edges)")
    pair = edge_index.numpy()
    if pair.size and (pair.min() < 0 or pair.max() >= num_nodes):
        wrong = pair.max() if pair.max() >= num_nodes else pair.min()
        problem = f"an edge has the node {wrong}, but the nodes are 0 to {num_nodes - 1}"
        raise DataError(problem, **_place(g), remedy="correct the edge, or set num_nodes")
    return pair[::-1].T.astype(np.int64)


def _target_of(graph: Any, g: int) -> Any:
    """``y``: a number, or a list of T numbers."""
    y = getattr(graph, "y", None)
    if isinstance(y, int | float | np.number):
        return y
    if not isinstance(y, Tensor) or y.numel() == 0 or (y.ndim > 1 and y.shape[0] != 1):
        shape = tuple(y.shape) if isinstance(y, Tensor) else y
        raise DataError(
            f"y is {shape}, not a class or T numbers of the graph",
            **_place(g),
            remedy="give a number, or a tensor of shape (1, T); or give all labels: from_pyg(dataset, labels)",
        )
    values = dense(y, "y", **_place(g)).reshape(-1).tolist()
    return values[0] if len(values) == 1 else values


def _features(
    graphs: Sequence[Any], attribute: str, counts: Sequence[int]
) -> tuple[Array | None, tuple[int, ...] | None, Array | None]:
    """Tags and their cardinalities, or continuous features, from an attribute of all graphs."""
    values: list[Any] = [getattr(graph, attribute, None) for graph in graphs]
    if all(value is None for value in values):
        return None, None, None
    for g, (value, count) in enumerate(zip(values, counts, strict=True)):
        if not isinstance(value, Tensor) or value.is_nested or value.shape[:1] != (count,):
            shape = tuple(value.shape) if isinstance(value, Tensor) and not value.is_nested else value
            raise DataError(f"{attribute} is {shape} for {count} rows", **_place(g), remedy="give one row for each")
    tensors = [dense(value, attribute, **_place(g)) for g, value in enumerate(values)]
    try:
        table = torch.cat([value.reshape(len(value), value.shape[1:].numel()) for value in tensors])
    except RuntimeError as error:
        problem = f"{attribute} does not have the same width in all graphs"
        raise DataError(problem, remedy="give all graphs the same features") from error
    if table.shape[1] == 0:
        return None, None, None
    if not table.is_floating_point():
        return table.numpy().astype(np.int64), None, None
    if table.shape[1] > 1 and bool(((table == 0) | (table == 1)).all()) and bool((table.sum(1) == 1).all()):
        return table.argmax(1, keepdim=True).numpy(), (table.shape[1],), None
    return None, None, (table if table.dtype == torch.float64 else table.float()).numpy()
