"""Adjacency: two ways in, one meaning; the transpose; wrong input says what to do."""

import copy
import pickle

import pytest
import torch
from torch.utils import _pytree as pytree

import graphnorm
from graphnorm import Adjacency

EDGES = torch.tensor([[0, 1, 2, 0, 3], [1, 0, 0, 2, 0]])  # 3 sends and does not receive


def dense(rowptr, col):
    matrix = torch.zeros(len(rowptr) - 1, len(rowptr) - 1)
    for row in range(len(rowptr) - 1):
        for c in col[rowptr[row] : rowptr[row + 1]].tolist():
            matrix[row, c] += 1
    return matrix


def test_two_ways_in_agree():
    adjacency = Adjacency(edge_index=EDGES, num_nodes=4)
    assert adjacency.rowptr.tolist() == [0, 3, 4, 5, 5]
    assert adjacency.col.tolist() == [1, 2, 3, 0, 0]
    assert adjacency.edge_ids.tolist() == [1, 2, 4, 0, 3]
    assert adjacency.rows().tolist() == [0, 0, 0, 1, 2]
    assert (adjacency.num_rows, adjacency.num_edges) == (4, 5)
    ordered = Adjacency(edge_index=EDGES[:, adjacency.edge_ids], num_nodes=4)
    assert ordered.edge_ids is None
    assert torch.equal(ordered.col, adjacency.col)


@pytest.mark.parametrize("index", [torch.int64, torch.int32], ids=str)
@pytest.mark.parametrize("padding", [0, 3])
def test_transpose(index, padding):
    adjacency = Adjacency(edge_index=EDGES, num_nodes=4)
    rowptr, col = adjacency.rowptr.to(index), torch.nn.functional.pad(adjacency.col, (0, padding)).to(index)
    adjacency = Adjacency(rowptr=rowptr, col=col)
    turned = adjacency.transpose()
    assert torch.equal(dense(turned.rowptr, turned.col), dense(rowptr, col).T)
    real = turned.edge[: turned.rowptr[-1]]
    assert torch.equal(adjacency.rows()[real], turned.col[: len(real)].long())
    assert adjacency.transpose() is turned


def test_transpose_finds_features_in_the_order_given():
    adjacency = Adjacency(edge_index=EDGES, num_nodes=4)
    turned = adjacency.transpose()
    assert torch.equal(EDGES[1][turned.edge], turned.col)
    assert torch.equal(EDGES[0][turned.edge], torch.sort(EDGES[0]).values)


def test_copies():
    adjacency = Adjacency(edge_index=EDGES, num_nodes=4, max_degree=3)
    for made in (False, True):
        if made:
            adjacency.transpose()
        leaves, structure = pytree.tree_flatten(adjacency)
        for twin in (
            pickle.loads(pickle.dumps(adjacency)),
            copy.deepcopy(adjacency),
            adjacency.to("cpu"),
            pytree.tree_unflatten(leaves, structure),
        ):
            assert torch.equal(twin.col, adjacency.col)
            assert torch.equal(twin.edge_ids, adjacency.edge_ids)
            assert (twin.max_degree, twin.symmetric) == (3, False)
            assert (twin._transpose is not None) == made
            assert torch.equal(twin.transpose().col, adjacency.transpose().col if made else twin._transpose.col)


@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ({}, ValueError, "rowptr and col, or edge_index and num_nodes"),
        ({"rowptr": torch.tensor([0])}, ValueError, "rowptr and col, or"),
        ({"edge_index": EDGES}, ValueError, "edge_index and num_nodes"),
        ({"edge_index": EDGES.float(), "num_nodes": 4}, TypeError, r"edge_index\.long\(\)"),
        ({"edge_index": EDGES.tolist(), "num_nodes": 4}, TypeError, "edge_index must be a tensor"),
        ({"edge_index": EDGES[0], "num_nodes": 4}, ValueError, r"of shape \(2, edges\)"),
        ({"edge_index": EDGES.T, "num_nodes": 4}, ValueError, r"shape \(2, edges\), got \(5, 2\)"),
        ({"edge_index": EDGES, "num_nodes": 3}, ValueError, "edge_index holds 3, but there are 3 rows"),
        ({"edge_index": EDGES - 1, "num_nodes": 4}, ValueError, "edge_index holds -1"),
        ({"rowptr": torch.tensor([], dtype=torch.int64), "col": EDGES[0]}, ValueError, "rowptr is empty"),
        ({"rowptr": torch.tensor([0]), "col": EDGES}, ValueError, "col must be one-dimensional"),
    ],
)
def test_wrong_input(arguments, error, words):
    with pytest.raises(error, match=words):
        Adjacency(**arguments)


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ({"rowptr": [0, 2, 1], "col": [0, 1]}, "rowptr must start at 0"),
        ({"rowptr": [0, 1, 3], "col": [0, 1]}, "rowptr must start at 0"),
        ({"rowptr": [0, 1, 2], "col": [0, 2]}, "col holds 2, but there are 2 rows"),
        ({"rowptr": [0, 2, 2], "col": [0, 1], "max_degree": 1}, "a row has 2 edges, more than max_degree=1"),
        ({"rowptr": [0, 1, 1], "col": [1], "symmetric": True}, "not symmetric"),
    ],
)
def test_debug_checks_what_is_promised(arguments, words):
    arguments = {k: torch.tensor(v) if isinstance(v, list) else v for k, v in arguments.items()}
    Adjacency(**arguments)  # taken as it is
    with graphnorm.debug(), pytest.raises(ValueError, match=words):
        Adjacency(**arguments)
    with graphnorm.debug():
        Adjacency(rowptr=torch.tensor([0, 1, 2]), col=torch.tensor([1, 0, 9]), symmetric=True)  # padding is not read
        Adjacency(edge_index=torch.empty(2, 0, dtype=torch.int64), num_nodes=0)


@pytest.mark.parametrize("backend", ["auto", "reference"])
@pytest.mark.parametrize("edges", [EDGES, EDGES[:, [1, 2, 4, 0, 3]]], ids=["unsorted", "sorted"])
def test_made_in_inference_mode_it_serves_training(edges, backend):
    x, features = torch.randn(4, 2, requires_grad=True), torch.randn(5, 2)
    right = Adjacency(edge_index=edges, num_nodes=4)
    with torch.inference_mode():
        inside = Adjacency(edge_index=edges.clone(), num_nodes=4).to("cpu")
        inside.transpose()

    def gradient(adjacency):
        y = graphnorm.layers.functional.aggregate(x, adjacency, edge_x=features)
        return torch.autograd.grad(y.square().sum(), x)

    with graphnorm.backend(backend):
        torch.testing.assert_close(gradient(inside), gradient(right))
