"""Every set of instructions that the C library is compiled for computes the same."""

from __future__ import annotations

from collections.abc import Iterator

import pytest
import torch

from graphnorm import Segments, backend
from graphnorm.backends import library
from graphnorm.layers.functional import graph_norm
from graphnorm.ops.linear import linear
from graphnorm.training.adam import AdamState, adam_step

SETS = {"baseline": 0, "avx2": 1, "avx512": 2}


@pytest.fixture(params=SETS)
def instructions(request: pytest.FixtureRequest) -> Iterator[str]:
    if library is None:
        pytest.skip("the C library was not built")
    if library.use_instructions(SETS[request.param]) != SETS[request.param]:
        library.use_instructions(max(SETS.values()))
        pytest.skip(f"this machine has no {request.param}")
    yield request.param
    library.use_instructions(max(SETS.values()))


@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
@pytest.mark.parametrize("channels", [3, 8, 64, 75])
@pytest.mark.usefixtures("instructions")
def test_standardize(dtype, channels):
    torch.manual_seed(0)
    segments = Segments(sizes=[5, 0, 1, 40])
    x, residual, dy = (torch.randn(46, channels).to(dtype) for _ in range(3))
    parameters = [torch.randn(channels, requires_grad=True) for _ in range(3)]

    def outcome(name: str) -> list[torch.Tensor]:
        inputs = [x.clone().requires_grad_(), *parameters]
        with backend(name):
            y = graph_norm(inputs[0], segments, *inputs[1:], act="relu", residual=residual)
            return [y, *torch.autograd.grad(y, inputs, dy)]

    tolerance = {torch.float32: 1e-5, torch.float64: 1e-12, torch.bfloat16: 2e-2}[dtype]
    for mine, plain in zip(outcome("cpu"), outcome("reference"), strict=True):
        torch.testing.assert_close(
            mine, plain, rtol=tolerance, atol=max(tolerance, 1e-5 if dtype != torch.float64 else 0)
        )


@pytest.mark.usefixtures("instructions")
def test_linear():
    torch.manual_seed(0)
    shapes = ((2, 150, 37), (2, 64, 37), (2, 64))
    x, weight, bias = leaves = [torch.randn(*shape, requires_grad=True) for shape in shapes]
    g = torch.randn(2, 150, 64)
    y = torch.func.vmap(linear)(*leaves)
    torch.testing.assert_close(y, torch.baddbmm(bias[:, None], x, weight.mT))
    expected = g @ weight, g.mT @ x, g.sum(1)
    for mine, plain in zip(torch.autograd.grad(y, leaves, g), expected, strict=True):
        torch.testing.assert_close(mine, plain, rtol=1e-4, atol=1e-4)


@pytest.mark.usefixtures("instructions")
def test_adam():
    torch.manual_seed(0)
    start, gradient, one = torch.randn(19), torch.randn(19), torch.ones(1)
    owner = torch.zeros(19, dtype=torch.int32)
    found = []
    for name in ("cpu", "reference"):
        values, moments = start.clone(), AdamState.zeros(19, 1, torch.device("cpu"))
        with backend(name):
            adam_step(values, gradient, moments, owner, 1e-2 * one, 1e-3 * one, one > 0)
        found.append(values)
    torch.testing.assert_close(*found)
