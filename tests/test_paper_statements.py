"""Statements that the paper proves, checked numerically. Its H has a column for each node; the shift is H·N."""

import pytest
import torch

from graphnorm import make_norm
from graphnorm.layers.functional import graph_norm, instance_norm


def random_graph(n, density, seed):
    draw = torch.Generator().manual_seed(seed)
    upper = torch.triu(torch.rand(n, n, generator=draw) < density, 1).double()
    return upper + upper.T


def regular_graph(n, half):
    """A circulant graph: every node is joined to `half` neighbours on either side."""
    gap = (torch.arange(n)[:, None] - torch.arange(n)).abs()
    gap = torch.minimum(gap, n - gap)
    return ((gap > 0) & (gap <= half)).double()


def q_gin(adjacency, xi=0.1):
    return adjacency + (1 + xi) * torch.eye(len(adjacency), dtype=torch.float64)


def q_gcn(adjacency):
    loops = adjacency + torch.eye(len(adjacency), dtype=torch.float64)
    root = loops.sum(0).rsqrt()
    return root[:, None] * loops * root


def shift(n):
    return torch.eye(n, dtype=torch.float64) - torch.full((n, n), 1 / n, dtype=torch.float64)


@pytest.mark.parametrize("seed", range(5))
@pytest.mark.parametrize("q", [q_gin, q_gcn])
def test_theorem_1_singular_values_interlace(q, seed):
    n = 8 + 5 * seed
    matrix = q(random_graph(n, 0.3, seed))
    before = torch.linalg.svdvals(matrix).flip(0)
    after = torch.linalg.svdvals(matrix @ shift(n)).flip(0)
    assert after[0] < 1e-12  # the one that the shift takes away
    after = after[1:]
    assert (before[:-1] <= after + 1e-10).all()
    assert (after <= before[1:] + 1e-10).all()
    assert (before[:-1] - after).abs().max() > 1e-3  # and it does change something


@pytest.mark.parametrize("half", [1, 2, 3])
def test_proposition_1_regular_graphs_lose_their_degree(half):
    n, degree = 12, 2 * half
    h0 = torch.nn.functional.one_hot(torch.full((n,), degree), 8).double()
    weight = torch.randn(5, 8, dtype=torch.float64)
    h = q_gin(regular_graph(n, half)) @ h0 @ weight.T
    assert torch.allclose(h.T @ shift(n), torch.zeros(5, n, dtype=torch.float64), atol=1e-12)
    assert torch.allclose(instance_norm(h), torch.zeros_like(h), atol=1e-9)
    kept = graph_norm(h, mean_scale=torch.full((5,), 0.5, dtype=torch.float64))
    assert torch.allclose(kept.abs(), torch.ones_like(kept), atol=1e-2)  # GraphNorm keeps a signal


@pytest.mark.parametrize("n", [2, 7, 20])
def test_proposition_2_complete_graphs_lose_their_adjacency(n):
    complete = torch.ones(n, n, dtype=torch.float64) - torch.eye(n, dtype=torch.float64)
    for xi in (-0.3, 0.0, 0.8):
        assert torch.allclose(q_gin(complete, xi) @ shift(n), xi * shift(n), atol=1e-12)


def test_fact_1_no_instance_norm_equals_graph_norm():
    """A witness: a graph and its shifted copy look the same to every InstanceNorm, not to GraphNorm."""
    x = torch.randn(10, 1, dtype=torch.float64)
    alpha = torch.full((1,), 0.4, dtype=torch.float64)
    assert torch.allclose(instance_norm(x), instance_norm(x + 3))
    assert (graph_norm(x, mean_scale=alpha) - graph_norm(x + 3, mean_scale=alpha)).abs().max() > 0.1
    one = torch.ones(1, dtype=torch.float64)
    assert torch.allclose(graph_norm(x, mean_scale=one), instance_norm(x))  # equal at α = 1


def test_a_mean_over_nodes_right_after_instance_norm_is_beta():
    """Of every graph; not after an activation, nor with α ≠ 1."""
    x, batch = torch.randn(9, 6, dtype=torch.float64), torch.tensor([0] * 4 + [1] * 5)
    means = {}
    for name, act in (("instance", None), ("instance", "relu"), ("graph", None)):
        norm = make_norm(name, 6, act=act).double()
        torch.nn.init.constant_(norm.bias, 0.3)
        if name == "graph":
            torch.nn.init.constant_(norm.mean_scale, 0.8)
        y = norm(x, batch)
        means[name, act] = torch.stack([y[batch == graph].mean(0) for graph in (0, 1)])
    hidden, *seen = means.values()
    assert torch.allclose(hidden, torch.full_like(hidden, 0.3))
    for mean in seen:
        assert (mean[0] - mean[1]).abs().max() > 0.01


@pytest.mark.parametrize("name", ["graph", "instance", "batch", "layer", "batch-alpha", "batch-detached"])
def test_scale_invariance(name):
    norm = make_norm(name, 6, eps=1e-12).double()
    x, batch = torch.randn(9, 6, dtype=torch.float64), torch.tensor([0] * 4 + [1] * 5)
    assert torch.allclose(norm(x, batch), norm(37 * x, batch), atol=1e-8)


def test_statistics_of_one_graph_do_not_depend_on_the_batch():
    """Batch noise: BatchNorm's output for a graph changes with its company, GraphNorm's does not."""
    x, company = torch.randn(5, 3), 4 + torch.randn(7, 3)
    both, batch = torch.cat([x, company]), torch.tensor([0] * 5 + [1] * 7)
    graph, batch_norm = make_norm("graph", 3), make_norm("batch", 3)
    assert torch.allclose(graph(both, batch)[:5], graph(x), atol=1e-6)
    assert not torch.allclose(batch_norm(both, batch)[:5], batch_norm(x), atol=0.1)
