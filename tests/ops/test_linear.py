"""The linear layer, by itself and stacked."""

from __future__ import annotations

import importlib
import os
from itertools import product
from types import ModuleType

import pytest
import torch
from torch.func import vmap

from graphnorm.kernels import library
from graphnorm.models.graph import Linear
from graphnorm.ops.linear import cpu, linear

SHAPES = [
    (3, 200, 37, 64),
    (2, 130, 64, 64),
    (4, 70, 7, 64),
    (3, 65, 64, 2),
    (40, 5, 64, 64),
    (2, 0, 8, 8),
    (1, 301, 128, 100),
]
WIDE = [(3, 150, 300, 40), (2, 70, 13, 300), (2, 0, 200, 8)]
"""Shapes for the GPU alone."""


def kernels(name: str) -> tuple[ModuleType, str]:
    """The module of kernels, and the device to try it on."""
    if name == "cpu":
        if library is None:
            pytest.skip("the C library was not built")
        return cpu, "cpu"
    if os.environ.get("TRITON_INTERPRET") != "1" and not torch.cuda.is_available():
        pytest.skip("needs a GPU, or Triton's interpreter (TRITON_INTERPRET=1)")
    return importlib.import_module("graphnorm.ops.linear.gpu"), "cuda" if torch.cuda.is_available() else "cpu"


@pytest.mark.interpreted
@pytest.mark.parametrize(
    ("name", "shape"), [*product(["cpu", "triton"], SHAPES), *product(["triton"], WIDE)], ids=lambda value: str(value)
)
@pytest.mark.parametrize("shared", [False, True], ids=["own rows", "shared rows"])
def test_kernels_are_the_products(name, shape, shared):
    module, device = kernels(name)
    members, rows, inner, outer = shape
    torch.manual_seed(0)
    x, g = torch.randn(members, rows, inner, device=device), torch.randn(members, rows, outer, device=device)
    x = x[:1].expand_as(x) if shared else x
    weight, bias = torch.randn(members, outer, inner, device=device), torch.randn(members, outer, device=device)
    wide = [t.double() for t in (x, weight, bias, g)]
    expected = [
        torch.baddbmm(wide[2][:, None], wide[0], wide[1].mT),
        wide[3] @ wide[1],
        wide[3].mT @ wide[0],
        wide[3].sum(1),
    ]
    got = [module.forward(x, weight, bias), *module.backward(g, x, weight, True)]
    for mine, right in zip(got, expected, strict=True):
        torch.testing.assert_close(mine.double(), right, rtol=1e-5, atol=1e-5 * max(1.0, rows**0.5))
    assert module.backward(g, x, weight, False)[0] is None
    torch.testing.assert_close(module.forward(x, weight, None), got[0] - bias[:, None], rtol=1e-5, atol=1e-4)


def test_alone_it_is_torchs():
    x = torch.randn(5, 3)
    for layer in (Linear(3, 4), Linear(3, 4, bias=False)):
        assert torch.equal(layer(x), torch.nn.functional.linear(x, layer.weight, layer.bias))


@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
@pytest.mark.parametrize("bias", [True, False], ids=["bias", "no bias"])
def test_stacked_with_gradients_of_gradients(device, bias):
    torch.manual_seed(0)
    shapes = ((3, 9, 5), (3, 4, 5), (3, 4))[: 2 + bias]
    arrays = [torch.randn(*shape, device=device, requires_grad=True) for shape in shapes]
    stacked = vmap(linear)(*arrays)
    each = torch.stack([torch.nn.functional.linear(*member) for member in zip(*arrays, strict=True)])
    torch.testing.assert_close(stacked, each, rtol=1e-5, atol=1e-5)
    for mine, right in zip(*(torch.autograd.grad(y.square().sum(), arrays) for y in (stacked, each)), strict=True):
        torch.testing.assert_close(mine, right, rtol=1e-4, atol=1e-4)

    def twice(y):
        first = torch.autograd.grad(y.square().sum(), arrays[1], create_graph=True)[0]
        return torch.autograd.grad(first.square().sum(), arrays[0])[0]

    again = torch.stack([torch.nn.functional.linear(*member) for member in zip(*arrays, strict=True)])
    torch.testing.assert_close(twice(vmap(linear)(*arrays)), twice(again), rtol=1e-4, atol=1e-3)
