"""The linear layer, by itself and stacked."""

from __future__ import annotations

import pytest
import torch
from torch.func import grad, vmap

from graphnorm.models.graph import Linear
from graphnorm.ops.linear import linear

SHAPES = [
    (3, 200, 37, 64),
    (2, 130, 64, 64),
    (4, 70, 7, 64),
    (3, 65, 64, 2),
    (40, 5, 64, 64),
    (2, 0, 8, 8),
    (1, 301, 128, 100),
    (2, 130, 174, 64),
    (2, 70, 256, 200),
    (3, 150, 300, 40),
    (2, 70, 13, 300),
    (2, 0, 200, 8),
]


@pytest.mark.interpreted
@pytest.mark.parametrize("shape", SHAPES, ids=str)
@pytest.mark.parametrize("shared", [False, True], ids=["own rows", "shared rows"])
def test_stacked_layers_are_the_products(device, shape, shared):
    members, rows, inner, outer = shape
    x, g = torch.randn(members, rows, inner, device=device), torch.randn(members, rows, outer, device=device)
    x = x[0] if shared else x
    weight, bias = torch.randn(members, outer, inner, device=device), torch.randn(members, outer, device=device)
    leaves = [t.requires_grad_() for t in (x, weight, bias)]
    wide = [t.detach().double() for t in (x, weight, bias, g)]
    dx = wide[3] @ wide[1]
    expected = [
        wide[0] @ wide[1].mT + wide[2][:, None],
        dx.sum(0) if shared else dx,
        wide[3].mT @ wide[0],
        wide[3].sum(1),
    ]
    tolerance = {"rtol": 1e-5, "atol": 1e-5 * max(1, rows * (members if shared else 1)) ** 0.5}
    y = vmap(linear, (None if shared else 0, 0, 0))(*leaves)
    for mine, right in zip((y, *torch.autograd.grad(y, leaves, g)), expected, strict=True):
        torch.testing.assert_close(mine.double(), right, **tolerance)
    y = vmap(linear, (None if shared else 0, 0))(x.detach(), weight)
    torch.testing.assert_close(y.double(), expected[0] - wide[2][:, None], rtol=1e-5, atol=1e-4)
    (dweight,) = torch.autograd.grad(y, [weight], g)
    torch.testing.assert_close(dweight.double(), expected[2], **tolerance)


@pytest.mark.interpreted
def test_gradients_inside_vmap(device):
    x, weight, bias = (torch.randn(*shape, device=device) for shape in ((3, 9, 5), (3, 4, 5), (3, 4)))

    def loss(x, weight, bias):
        return linear(x, weight, bias).pow(3).sum()

    found = vmap(grad(loss, argnums=(0, 1, 2)))(x, weight, bias)
    for m in range(3):
        leaves = [t[m].double().requires_grad_() for t in (x, weight, bias)]
        right = torch.autograd.grad(torch.nn.functional.linear(*leaves).pow(3).sum(), leaves)
        for one, exact in zip(found, right, strict=True):
            torch.testing.assert_close(one[m].double(), exact, rtol=1e-4, atol=1e-4)


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
