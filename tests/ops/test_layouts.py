"""Any size, type and memory layout; and sizes at the ends of the scale."""

import pytest
import torch

import graphnorm
from graphnorm import Segments
from graphnorm.layers.functional import graph_norm, standardize
from oracle import PARAMETERS, Case, error, laid_out

hypothesis = pytest.importorskip("hypothesis")
from hypothesis import given  # noqa: E402
from hypothesis import strategies as st  # noqa: E402

TOLERANCE = {torch.float64: 1e-11, torch.float32: 4e-6, torch.bfloat16: 8e-3, torch.float16: 1e-3}
LAYOUTS = ["contiguous", "strided", "transposed", "expanded", "offset"]


@given(
    sizes=st.lists(st.integers(0, 40), max_size=9),
    channels=st.sampled_from([1, 2, 5, 8, 31, 64, 71, 300]),
    dtype=st.sampled_from(list(TOLERANCE)),
    x_layout=st.sampled_from(LAYOUTS),
    dy_layout=st.sampled_from(LAYOUTS),
    shuffled=st.booleans(),
    padding=st.integers(0, 3),
    parameters=st.sets(st.sampled_from(PARAMETERS)),
    residual=st.booleans(),
    scope=st.sampled_from(["graph", "batch"]),
    statistics=st.sampled_from(["live", "detached"]),
    name=st.sampled_from(["auto", "reference"]),
    seed=st.integers(0, 2**16),
)
def test_any_input(x_layout, dy_layout, sizes, channels, shuffled, padding, parameters, name, **options):
    shuffled, parameters = shuffled and not padding, tuple(sorted(parameters))
    case = Case(sizes, channels, shuffled=shuffled, padding=padding, parameters=parameters, **options)
    dtype = options["dtype"]
    for key, layout in (("x", x_layout), ("dy", dy_layout)):
        case.given[key] = laid_out(case.given[key], layout)
        case.right[key] = case.given[key].double()
    with graphnorm.backend(name):
        found, right = case.results(), case._run(case.right, True)
    for key in right:
        scale = 1 + torch.linalg.vector_norm(right[key])  # parameters' gradients may cancel down to nothing
        gap = torch.linalg.vector_norm(found[key].double() - right[key])
        extra = 300 if key == "mean_scale" else 1  # 1/√ε, for graphs of one node
        assert gap <= TOLERANCE[dtype] * extra * scale, (key, gap, scale)


def test_70000_graphs(device):
    x, dy = torch.randn(2, 70_000, 3, 4, dtype=torch.float64)
    leaf = x.requires_grad_()
    right = torch.nn.functional.layer_norm(leaf.transpose(1, 2), (3,)).transpose(1, 2)
    (gradient,) = torch.autograd.grad(right, leaf, dy)
    flat = x.detach().float().reshape(-1, 4).to(device).requires_grad_()
    y = graph_norm(flat, Segments(sizes=[3] * 70_000).to(device))
    y.backward(dy.float().reshape(-1, 4).to(device))
    assert error(y, right.reshape(-1, 4)) < 1e-5
    assert error(flat.grad, gradient.reshape(-1, 4)) < 1e-5


@pytest.mark.parametrize("channels", [1, 4])
def test_one_graph_of_a_million_nodes(channels):
    x = (0.5 + torch.randn(1_000_000, channels, dtype=torch.float64)).float()
    dy, alpha = torch.randn(1_000_000, channels), torch.full((channels,), 0.7)
    results = []
    for dtype in (torch.float32, torch.float64):
        leaves = [x.to(dtype).requires_grad_(), alpha.to(dtype).requires_grad_()]
        if dtype == torch.float64:
            mu = leaves[0].mean(0)
            shifted = leaves[0] - leaves[1] * mu
            y = shifted / (shifted.square().mean(0) + 1e-5).sqrt()
        else:
            y = graph_norm(leaves[0], mean_scale=leaves[1])
        results.append((y, *torch.autograd.grad(y, leaves, dy.to(dtype))))
    assert max(error(f, r) for f, r in zip(*results, strict=True)) < 3e-5


def test_zero_stride_gradient():
    """The gradient of a sum is one number, expanded; no kernel may read it as if it were an array."""
    x = torch.randn(9, 4, dtype=torch.float64, requires_grad=True)
    standardize(x, Segments(sizes=[4, 5]), act="relu")[0].sum().backward()
    twin = x.detach().requires_grad_()
    y = standardize(twin, Segments(sizes=[4, 5]), act="relu")[0]
    y.backward(torch.ones_like(y))
    assert torch.equal(x.grad, twin.grad)
