"""Products with adjacency matrices against the aggregation edge by edge."""

import dataclasses

import pytest
import torch
from torch.func import vmap

import graphnorm
from graphnorm.adjacency import Adjacency, Blocks, write_blocks
from graphnorm.backends import chosen_backend
from graphnorm.data import synthetic
from graphnorm.ops.neighbour_sum import aggregate
from graphnorm.training.inputs import Matrices


@pytest.fixture
def kernel_device(device):
    """The devices with a kernel for matrices."""
    if chosen_backend() != "triton":
        pytest.skip("other kernels add up edge by edge")
    return device


@pytest.fixture
def dense_graphs():
    """Cliques of several sizes, the largest above one tile of 64 rows."""
    sizes = torch.tensor([5, 70, 1, 40])
    node_ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
    degree = torch.repeat_interleave(sizes - 1, sizes)
    rowptr = torch.nn.functional.pad(degree.cumsum(0), (1, 0))
    col = torch.cat([c for n in sizes.tolist() for i in range(n) for c in [torch.arange(n)[torch.arange(n) != i]]])
    few = synthetic.regular(num_graphs=4, seed=0)
    return dataclasses.replace(
        few, node_ptr=node_ptr, rowptr=rowptr, col=col.int(), tags=torch.zeros(116, 1, dtype=torch.uint8)
    )


def test_matrices_hold_each_edge_once(dense_graphs):
    values, start = write_blocks(dense_graphs.node_ptr, dense_graphs.rowptr, dense_graphs.col)
    assert int(values.sum()) == dense_graphs.num_edges
    second = values[start[1] : start[2]].view(70, 80)
    assert torch.equal(second[:, :70], 1 - torch.eye(70, dtype=torch.uint8))
    assert not second[:, 70:].any()
    assert not (start % 16).any()


def test_matrices_are_not_for_the_cpu(dense_graphs):
    assert Matrices.of(dense_graphs) is None


@pytest.mark.interpreted
@pytest.mark.parametrize("channels", [64, 5])
@pytest.mark.parametrize("scaled", [False, True])
def test_sums_equal_those_edge_by_edge(dense_graphs, kernel_device, channels, scaled):
    """Two members with different graphs, an empty place and padded rows; values and all gradients."""
    dense_graphs = dense_graphs.to(kernel_device)
    ids = torch.tensor([[1, 0, -1], [3, 2, 1]])
    batch = dense_graphs.batch(ids, bounds=dense_graphs.bounds(ids)._replace(max_nodes=130))
    matrices = Matrices(*write_blocks(dense_graphs.node_ptr, dense_graphs.rowptr, dense_graphs.col), 70)
    x, dy = torch.randn(2, 2, 130, channels, device=kernel_device)
    weight = torch.tensor([1.5, -0.5], device=kernel_device)

    def results(use_matrices, dtype, name):
        given = x.to(dtype).requires_grad_(), weight.to(dtype).requires_grad_()

        def one(x, weight, batch):
            blocks = matrices.blocks(batch) if use_matrices else None
            edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True, max_degree=70, blocks=blocks)
            scale = (batch.rowptr.diff() + 1).to(x.dtype).rsqrt() if scaled else None
            return aggregate(x, edges, self_weight=weight, scale=scale)

        with graphnorm.backend(name):
            y = vmap(one)(*given, batch)
            return y, *torch.autograd.grad(y, given, dy.to(dtype))

    expected = results(False, torch.float64, "reference")
    for found, exact in zip(results(True, torch.float32, "triton"), expected, strict=True):
        assert (found - exact).abs().max() <= 2e-6 * exact.abs().max()


@pytest.mark.interpreted
def test_gradient_of_the_gradient(dense_graphs, kernel_device):
    dense_graphs = dense_graphs.to(kernel_device)
    batch = dense_graphs.batch([0, 3])
    values, start = write_blocks(dense_graphs.node_ptr, dense_graphs.rowptr, dense_graphs.col)
    blocks = Blocks(values, start[batch.ids], batch.ptr, 70)
    x = torch.randn(45, 3, device=kernel_device)

    def second(blocks, name):
        h, w = x.clone().requires_grad_(), torch.tensor(0.7, device=kernel_device, requires_grad=True)
        edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True, blocks=blocks)
        with graphnorm.backend(name):
            y = aggregate(h, edges, self_weight=w)
            first = torch.autograd.grad(y.square().sum(), (h, w), create_graph=True)
            return torch.autograd.grad(first[0].square().sum() + first[1], (h, w))

    for found, exact in zip(second(blocks, "triton"), second(None, "reference"), strict=True):
        torch.testing.assert_close(found, exact, rtol=1e-5, atol=1e-3)
