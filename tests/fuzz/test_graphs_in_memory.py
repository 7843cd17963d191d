"""Graphs of NetworkX and PyTorch Geometric, and labels of every kind, with absurd values."""

from __future__ import annotations

import warnings
from fractions import Fraction
from typing import Any

import networkx as nx
import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.fuzz.promises import answer_or_refusal

from graphnorm.data import PackedGraphs, from_networkx, from_pyg
from graphnorm.data.targets import Targets, as_columns, find_targets

VALUES = (
    st.none()
    | st.booleans()
    | st.integers()
    | st.floats(allow_subnormal=False)
    | st.sampled_from(
        [1e300, -0.0, 10**400, 1j, "", "nan", "1", "1.0", " 1", "None", "<3", b"x", (1, 2), "0,5", "١", "1_0"]
    )
    | st.lists(st.floats(), max_size=3)
    | st.builds(np.float32, st.floats(width=32))
)


@pytest.fixture(autouse=True)
def _notes_are_welcome() -> Any:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        yield


def fits_together(graphs: Any, count: int) -> None:
    if not isinstance(graphs, PackedGraphs):
        return
    assert graphs.num_graphs == count
    assert graphs.features(graphs.batch(range(count))).isfinite().all()
    assert int(graphs.labels.max()) < graphs.num_classes == len(set(graphs.classes))
    if graphs.targets is not None:
        assert not graphs.targets.isinf().any()


@given(
    st.lists(st.lists(VALUES, min_size=1, max_size=2) | VALUES, min_size=1, max_size=6),
    st.sampled_from([None, "classes", "binary", "values"]),
    st.sampled_from([None, "median", 0.5, float("nan")]),
    st.booleans(),
)
def test_labels(labels: list[Any], task: Any, threshold: Any, unlabelled: bool) -> None:
    def find() -> Targets:
        columns, found = as_columns(labels)
        chosen = task or (None if threshold is not None else found)
        return find_targets(columns, lambda g: {}, task=chosen, threshold=threshold, unlabelled=unlabelled)

    result = answer_or_refusal(find)
    if isinstance(result, Targets):
        assert len(result.labels) == len(labels)
        assert result.labels.min() >= 0
        assert int(result.labels.max()) < len(set(result.classes)) == len(result.classes)
        assert (result.targets is None) == (result.task == "classes")
        if result.targets is not None:
            assert result.targets.shape == (len(labels), len(result.names))
            assert not np.isinf(result.targets).any()


@given(
    st.lists(
        st.integers(-3, 3)
        | st.integers(2**53 - 3, 2**53 + 3)
        | st.sampled_from(
            [0.5, 1.0, -0.0, "1", "1.0", " 1 ", "01", "1e0", "a", "A", "a ", "é", "e\u0301", "0,5", "nan"]
        ),
        min_size=2,
        max_size=8,
    )
)
def test_two_labels_are_one_class_if_they_are_equal(labels: list[Any]) -> None:
    result = answer_or_refusal(lambda: find_targets(*as_columns(labels)[:1], lambda g: {}, task="classes"))
    if isinstance(result, Targets):
        values = [exact(label) for label in labels]
        for a, one in zip(values, result.labels, strict=True):
            for b, other in zip(values, result.labels, strict=True):
                assert (a == b) == (one == other), labels


def exact(label: Any) -> Fraction | str:
    """A label as an exact number, or as a word."""
    word = str(label).strip()
    try:
        return Fraction(word)
    except ValueError:
        return word


@st.composite
def networkx_graphs(draw: st.DrawFn) -> Any:
    kind = draw(st.sampled_from([nx.Graph, nx.DiGraph, nx.MultiGraph]))
    graph = kind()
    nodes = draw(st.lists(st.integers(0, 5) | st.sampled_from(["a", ("b", 1)]), max_size=5, unique=True))
    values = VALUES if draw(st.booleans()) else st.sampled_from([0.5, 1, 2])
    for node in nodes:
        graph.add_node(node, a=draw(values))
    for _ in range(draw(st.integers(0, 5)) if nodes else 0):
        graph.add_edge(draw(st.sampled_from(nodes)), draw(st.sampled_from(nodes)), b=draw(values))
    graph.graph["y"] = draw(values)
    return graph


@given(graphs=st.lists(networkx_graphs(), max_size=3), data=st.data())
def test_networkx(graphs: list[Any], data: st.DataObject) -> None:
    options = data.draw(
        st.fixed_dictionaries(
            {},
            optional={
                "node_label": st.just("a"),
                "node_features": st.just("a"),
                "edge_label": st.just("b"),
                "symmetrise": st.booleans(),
                "merge_duplicates": st.booleans(),
            },
        )
    )
    labels = data.draw(st.just("y") | st.just(list(range(len(graphs)))))
    fits_together(answer_or_refusal(from_networkx, graphs, labels, **options), len(graphs))


TYPES = (torch.float32, torch.float64, torch.bfloat16, torch.int64, torch.uint8, torch.bool, torch.complex64)


@st.composite
def tensors(draw: st.DrawFn, rows: st.SearchStrategy[int]) -> torch.Tensor:
    shape = (draw(rows), *draw(st.lists(st.integers(0, 3), max_size=2)))
    value = draw(st.sampled_from([0.0, 1.0, 0.5, 3.0, -1.0, 1e300, float("nan"), float("inf")]))
    dtype = draw(st.sampled_from(TYPES))
    small = value if np.isfinite(value) and abs(value) < 100 else 7.0
    tensor = torch.full(shape, value if dtype == torch.float64 else abs(small), dtype=dtype)
    wrap = draw(st.sampled_from(["plain", "plain", "plain", "sparse", "meta", "gradient"]))
    if wrap == "sparse":
        return tensor.to_sparse()
    if wrap == "meta":
        return tensor.to("meta")
    return tensor.requires_grad_(wrap == "gradient" and (dtype.is_floating_point or dtype.is_complex))


@given(data=st.data())
def test_pyg(data: st.DataObject) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.data import Data
    graphs = []
    for _ in range(data.draw(st.integers(0, 3))):
        n = data.draw(st.integers(0, 4))
        edges = data.draw(st.lists(st.tuples(st.integers(-1, 4), st.integers(-1, 4)), max_size=4))
        both = torch.tensor([*edges, *(edge[::-1] for edge in edges)], dtype=torch.int64).reshape(-1, 2).T
        x = data.draw(st.none() | tensors(st.just(n) | st.integers(0, 4)))
        y = data.draw(st.none() | st.just(torch.tensor([1])) | tensors(st.just(1)))
        nodes = data.draw(st.just(n) | st.integers(-1, 5))
        edge_index = data.draw(st.just(both) | st.none() | tensors(st.just(2)))
        graphs.append(Data(x=x, y=y, edge_index=edge_index, num_nodes=nodes))
    labels = data.draw(st.none() | st.just(list(range(len(graphs)))))
    fits_together(answer_or_refusal(from_pyg, graphs, labels, merge_duplicates=True), len(graphs))
