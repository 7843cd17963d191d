"""Linear layers over categories against one-hot matrices."""

import pytest
import torch
from torch.func import vmap

from graphnorm.models.graph import OneHot
from graphnorm.ops.categories import project_categories


@pytest.mark.interpreted
@pytest.mark.parametrize("shared", [False, True])
def test_values_and_gradients_are_those_of_one_hot_rows(device, shared):
    """Three members, 150 rows of 140 categories, some of none."""
    category = torch.randint(-1, 140, (150,) if shared else (3, 150), device=device)
    weight = torch.randn(3, 24, 140, device=device, requires_grad=True)
    dy = torch.randn(3, 150, 24, device=device)
    y = vmap(project_categories, in_dims=(None if shared else 0, 0))(category, weight)
    (dweight,) = torch.autograd.grad(y, weight, dy)
    dense = OneHot(category, 140).dense()
    torch.testing.assert_close(y, dense @ weight.mT, rtol=0, atol=0 if device.type == "cpu" else 1e-2)
    exact = dy.double().mT @ dense.double()
    assert (dweight - exact).abs().max() <= 1e-6 * exact.abs().max()


def test_alone_and_differentiated_twice():
    category, weight = torch.randint(-1, 7, (20,)), torch.randn(2, 7, dtype=torch.float64, requires_grad=True)
    assert torch.autograd.gradcheck(lambda w: project_categories(category, w), weight)
    assert torch.autograd.gradgradcheck(lambda w: project_categories(category, w).square(), weight)


def test_no_rows():
    weight = torch.ones(3, 5, requires_grad=True)
    y = project_categories(torch.empty(0, dtype=torch.int64), weight)
    assert y.shape == (0, 3)
    y.sum().backward()
    assert not weight.grad.any()


def test_opcheck():
    weight, dy = torch.randn(3, 5, requires_grad=True), torch.randn(4, 3, requires_grad=True)
    category = torch.tensor([0, 4, -1, 2])
    torch.library.opcheck(torch.ops.graphnorm.project_categories, (category, weight))
    torch.library.opcheck(torch.ops.graphnorm.project_categories_backward, (dy, category, 5))
