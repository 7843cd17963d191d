"""Anonymous walks against walks written out."""

import numpy as np
import pytest

from graphnorm.data import synthetic
from graphnorm.models.baselines import awl
from graphnorm.models.baselines.awl import exact_patterns, sampled_patterns, walk_features, walk_kernels
from graphnorm.study.kernels import graph_arrays

ARRAYS = graph_arrays(synthetic.trees(num_graphs=8, seed=2))[:3]


def shares(patterns, graph):
    mine = patterns.graph == graph
    return {code: patterns.weight[mine & (patterns.code == code)].sum() for code in np.unique(patterns.code[mine])}


def plain_shares(node_ptr, rowptr, col, graph, length):
    """The probability of every pattern, walk by walk."""
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
    patterns = exact_patterns(*ARRAYS, length)
    for graph in range(8):
        assert shares(patterns, graph) == pytest.approx(plain_shares(*ARRAYS, graph, length))


def test_sampled_shares_are_near_the_exact_ones():
    exact, sampled = exact_patterns(*ARRAYS, 4), sampled_patterns(*ARRAYS, 4, samples=20_000)
    for graph in range(8):
        right, found = shares(exact, graph), shares(sampled, graph)
        assert found.keys() <= right.keys()
        assert all(abs(found.get(code, 0) - share) < 0.02 for code, share in right.items())


def test_few_walks_are_followed_and_many_drawn(monkeypatch):
    exact = walk_features(*ARRAYS, 4).toarray()
    np.testing.assert_allclose(exact.sum(1), 1)
    assert np.abs(exact * 2000 - np.round(exact * 2000)).max() > 1e-3
    monkeypatch.setattr(awl, "MOST_WALKS", 10)
    drawn = walk_features(*ARRAYS, 4).toarray()
    np.testing.assert_allclose(drawn * 2000, np.round(drawn * 2000), atol=1e-6)


def test_graphs_without_edges():
    node_ptr, rowptr, col = (np.array(values) for values in ([0, 2, 4], [0, 1, 2, 2, 2], [1, 0]))
    for make in (exact_patterns, sampled_patterns):
        assert set(make(node_ptr, rowptr, col, 3).graph.tolist()) == {0}
    (matrix,) = walk_kernels(node_ptr, rowptr, col, [3])
    np.testing.assert_allclose(matrix, [[1, np.exp(-1)], [np.exp(-1), 1]])
