"""Properties of every operation that ``define`` makes."""

import pytest
import torch
from torch.func import grad, jacrev, vjp, vmap

from graphnorm import Adjacency, Segments
from graphnorm.layers.functional import aggregate, graph_norm, layer_norm, pool
from graphnorm.ops import function
from graphnorm.ops.categories import project_categories
from graphnorm.ops.dropout import drop
from graphnorm.ops.linear import linear

SEGMENTS = Segments(sizes=[2, 3])
EDGES = Adjacency(edge_index=torch.tensor([[0, 1, 4, 3], [1, 0, 0, 2]]), num_nodes=5)
OPERATIONS = {
    "standardize": lambda x, w: graph_norm(x, SEGMENTS.to(x.device), w[0], mean_scale=w[1], residual=x, act="relu"),
    "layer norm": lambda x, w: layer_norm(x, w[0], w[1], residual=x),
    "neighbour sum": lambda x, w: aggregate(x, EDGES.to(x.device), self_weight=w[0, 0], relu=True),
    "readout": lambda x, w: pool(x * w[0], SEGMENTS.to(x.device), "mean"),
    "linear": lambda x, w: linear(x, w, w[0]),
    "categories": lambda x, w: project_categories(torch.tensor([0, 3, -1], device=x.device), w) * x[:3],
    "dropout": lambda x, w: drop(x * w[0], torch.tensor(3, device=x.device), torch.tensor(0.5, device=x.device), 1, x),
}


def inputs(device, *lead):
    return torch.randn(*lead, 5, 4, device=device), torch.randn(*lead, 4, 4, device=device)


@pytest.mark.interpreted
@pytest.mark.parametrize("name", OPERATIONS)
@pytest.mark.parametrize("tracked", [True, False])
def test_vjp_outlives_its_transform(device, name, tracked):
    """``torch.func.vjp`` runs backward after its transform has ended."""
    run, given = OPERATIONS[name], inputs(device)
    leaves = [t.clone().requires_grad_() for t in given]
    right = run(*leaves)
    dy = torch.randn_like(right)
    y, pull_back = vjp(run, *given)
    with torch.set_grad_enabled(tracked):
        found = pull_back(dy)
    torch.testing.assert_close(y, right)
    for one, other in zip(found, torch.autograd.grad(right, leaves, dy), strict=True):
        torch.testing.assert_close(one, other, rtol=1e-5, atol=1e-6)


@pytest.mark.parametrize("name", OPERATIONS)
def test_torch_s_own_vmap_gives_the_same(monkeypatch, name):
    """It serves where torch's internals have changed their names."""
    x, weight = inputs("cpu", 3)
    weight.requires_grad_()

    def results():
        y = vmap(OPERATIONS[name])(x, weight)
        return y, *torch.autograd.grad(y.square().sum(), weight)

    assert function._QUICK_VMAP
    quick = results()
    monkeypatch.setattr(function, "_QUICK_VMAP", False)
    assert all(torch.equal(a, b) for a, b in zip(quick, results(), strict=True))


@pytest.mark.parametrize("name", [*OPERATIONS, "stacked linear"])
def test_compiled_in_one_graph(name):
    run = vmap(OPERATIONS["linear"]) if name == "stacked linear" else OPERATIONS[name]
    leaves = [t.requires_grad_() for t in inputs("cpu", *([3] if name == "stacked linear" else []))]
    torch.compiler.reset()
    found, right = torch.compile(run, backend="aot_eager", fullgraph=True)(*leaves), run(*leaves)
    torch.testing.assert_close(found, right)
    gradients = [torch.autograd.grad(y.square().sum(), leaves) for y in (found, right)]
    for one, other in zip(*gradients, strict=True):
        torch.testing.assert_close(one, other)
    torch.compiler.reset()


def close(found, right):
    for one, other in zip(found, right, strict=True):
        torch.testing.assert_close(one, other, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("name", OPERATIONS)
def test_vmap_inside_vmap_and_over_one_argument_alone(device, name):
    x, weight = inputs(device, 3)
    gradients = grad(lambda x, weight: OPERATIONS[name](x, weight).pow(3).sum(), argnums=(0, 1))
    both = vmap(vmap(gradients), (0, None))(torch.stack([x, -x]), weight)
    crossed = vmap(vmap(gradients, (0, None)), (None, 0))(x, weight)
    for k in range(3):
        close([t[1, k] for t in both], gradients(-x[k], weight[k]))
        close([t[k, 0] for t in crossed], gradients(x[0], weight[k]))


@pytest.mark.parametrize("name", OPERATIONS)
def test_second_order_inside_vmap(device, name):
    x, weight = inputs(device, 3)

    def loss(x, weight):
        return OPERATIONS[name](x, weight).pow(3).sum()

    def penalty(x, weight):
        return grad(loss)(x, weight).square().sum()

    found = vmap(grad(penalty, argnums=(0, 1)))(x, weight)
    close([t[1] for t in found], grad(penalty, argnums=(0, 1))(x[1], weight[1]))
    hessian = torch.autograd.functional.hessian(lambda x: loss(x, weight[1]), x[1])
    close([jacrev(grad(loss))(x[1], weight[1])], [hessian])
