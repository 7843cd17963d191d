"""Kernels against their definitions written out, and the WL kernel against GraKeL's."""

import os
from pathlib import Path

import numpy as np
import pytest

from graphnorm.data import load, synthetic
from graphnorm.models import kernels
from graphnorm.models.kernels import (
    GraphArrays,
    cosine,
    exact_patterns,
    graph_arrays,
    refine,
    sampled_patterns,
    walk_features,
    walk_kernels,
    wl_kernels,
)


def plain_kernels(graphs, depth):
    """Colour refinement as it is defined, one dictionary for all graphs."""
    arrays = graph_arrays(graphs)
    neighbours = [arrays.col[a:b].tolist() for a, b in zip(arrays.rowptr[:-1], arrays.rowptr[1:], strict=True)]
    colours, total = arrays.colours.tolist(), np.zeros((graphs.num_graphs, graphs.num_graphs))
    for round_ in range(depth + 1):
        if round_:
            signatures = [
                (colours[v], tuple(sorted(colours[u] for u in around))) for v, around in enumerate(neighbours)
            ]
            names = {}
            colours = [names.setdefault(signature, len(names)) for signature in signatures]
        counts = np.zeros((graphs.num_graphs, max(colours) + 1))
        for graph, (a, b) in enumerate(zip(arrays.node_ptr[:-1], arrays.node_ptr[1:], strict=True)):
            np.add.at(counts[graph], colours[a:b], 1)
        total = total + counts @ counts.T
        yield total


@pytest.mark.parametrize("make", [synthetic.trees, synthetic.regular])
def test_kernels_equal_the_definition(make):
    graphs = make(num_graphs=30, seed=1)
    for found, right in zip(wl_kernels(graph_arrays(graphs), depth=3), plain_kernels(graphs, 3), strict=True):
        np.testing.assert_array_equal(found, right)


@pytest.mark.skipif("GRAPHNORM_DATA" not in os.environ, reason="GRAPHNORM_DATA does not name a folder of archives")
@pytest.mark.parametrize("name", ["MUTAG", "PTC"])
def test_kernels_equal_grakel(name):
    grakel = pytest.importorskip("grakel")
    graphs = load(name, Path(os.environ["GRAPHNORM_DATA"]))
    arrays = graph_arrays(graphs)
    theirs = []
    for a, b in zip(arrays.node_ptr[:-1], arrays.node_ptr[1:], strict=True):
        around = {v - a: (arrays.col[arrays.rowptr[v] : arrays.rowptr[v + 1]] - a).tolist() for v in range(a, b)}
        theirs.append([around, {v - a: int(arrays.colours[v]) for v in range(a, b)}])
    *_, found = wl_kernels(arrays, depth=3)
    right = grakel.WeisfeilerLehman(n_iter=3, base_graph_kernel=grakel.VertexHistogram).fit_transform(theirs)
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_nodes_without_neighbours_and_graphs_without_nodes():
    nothing = np.array([], dtype=np.int64)
    assert refine(np.array([4, 4, 2]), np.zeros(4, dtype=np.int64), nothing).tolist() in ([0, 0, 1], [1, 1, 0])
    arrays = GraphArrays(np.array([0, 2, 2, 3]), np.zeros(4, dtype=np.int64), nothing, np.array([0, 1, 1]))
    *_, kernel = wl_kernels(arrays, depth=1)
    assert kernel.tolist() == [[4, 0, 2], [0, 0, 0], [2, 0, 2]]


def test_scaled_kernels():
    scaled = cosine(np.array([[4.0, 2.0, 0.0], [2.0, 9.0, 0.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(scaled, [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 0]])


# Anonymous walks

ARRAYS = graph_arrays(synthetic.trees(num_graphs=8, seed=2))


def shares(patterns, graph):
    mine = patterns.graph == graph
    return {code: patterns.weight[mine & (patterns.code == code)].sum() for code in np.unique(patterns.code[mine])}


def plain_shares(graph, length):
    """The probability of every pattern, walk by walk."""
    node_ptr, rowptr, col, _ = ARRAYS
    nodes = range(node_ptr[graph], node_ptr[graph + 1])
    found = {}

    def follow(walk, probability):
        if len(walk) == length + 1:
            names = {}
            digits = [names.setdefault(node, len(names)) for node in walk]
            code = sum(digit * (length + 1) ** k for k, digit in enumerate(reversed(digits)))
            found[code] = found.get(code, 0) + probability
            return
        around = col[rowptr[walk[-1]] : rowptr[walk[-1] + 1]].tolist()
        for node in around:
            follow([*walk, node], probability / len(around))

    for node in nodes:
        follow([node], 1 / len(nodes))
    return found


@pytest.mark.parametrize("length", [1, 3, 4])
def test_exact_shares_equal_the_definition(length):
    patterns = exact_patterns(ARRAYS, length)
    for graph in range(8):
        assert shares(patterns, graph) == pytest.approx(plain_shares(graph, length))


def test_sampled_shares_are_near_the_exact_ones():
    exact, sampled = exact_patterns(ARRAYS, 4), sampled_patterns(ARRAYS, 4, samples=20_000)
    for graph in range(8):
        right, found = shares(exact, graph), shares(sampled, graph)
        assert found.keys() <= right.keys()
        assert all(abs(found.get(code, 0) - share) < 0.02 for code, share in right.items())


def test_few_walks_are_followed_and_many_drawn(monkeypatch):
    exact = walk_features(ARRAYS, 4).toarray()
    np.testing.assert_allclose(exact.sum(1), 1)
    assert np.abs(exact * 2000 - np.round(exact * 2000)).max() > 1e-3
    monkeypatch.setattr(kernels, "MOST_WALKS", 10)
    drawn = walk_features(ARRAYS, 4).toarray()
    np.testing.assert_allclose(drawn * 2000, np.round(drawn * 2000), atol=1e-6)


def test_graphs_without_edges():
    arrays = GraphArrays(*map(np.array, ([0, 2, 4], [0, 1, 2, 2, 2], [1, 0], [0, 0, 0, 0])))
    for make in (exact_patterns, sampled_patterns):
        assert set(make(arrays, 3).graph.tolist()) == {0}
    (matrix,) = walk_kernels(arrays, [3])
    np.testing.assert_allclose(matrix, [[1, np.exp(-1)], [np.exp(-1), 1]])
