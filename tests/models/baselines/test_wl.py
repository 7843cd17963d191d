"""The WL kernel against GraKeL's, and against colour refinement written out."""

import os
from pathlib import Path

import numpy as np
import pytest

from graphnorm.data import load, synthetic
from graphnorm.models.baselines.wl import refine, wl_kernels
from graphnorm.study.kernels import graph_arrays


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
    for found, right in zip(wl_kernels(*graph_arrays(graphs), depth=3), plain_kernels(graphs, 3), strict=True):
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
    *_, found = wl_kernels(*arrays, depth=3)
    right = grakel.WeisfeilerLehman(n_iter=3, base_graph_kernel=grakel.VertexHistogram).fit_transform(theirs)
    np.testing.assert_allclose(found, right, rtol=1e-12)


def test_nodes_without_neighbours_and_graphs_without_nodes():
    nothing = np.array([], dtype=np.int64)
    assert refine(np.array([4, 4, 2]), np.zeros(4, dtype=np.int64), nothing).tolist() in ([0, 0, 1], [1, 1, 0])
    *_, kernel = wl_kernels(np.array([0, 2, 2, 3]), np.zeros(4, dtype=np.int64), nothing, np.array([0, 1, 1]), depth=1)
    assert kernel.tolist() == [[4, 0, 2], [0, 0, 0], [2, 0, 2]]
