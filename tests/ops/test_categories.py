"""Linear layers over categories against one-hot matrices."""

import os

import pytest
import torch
from torch.func import vmap

import graphnorm
from graphnorm.models.graph import OneHot
from graphnorm.ops.categories import project_categories

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
DEVICE = "cuda" if torch.cuda.is_available() and not INTERPRETED else "cpu"
needs_kernel = pytest.mark.skipif(DEVICE == "cpu" and not INTERPRETED, reason="needs Triton's interpreter, or a GPU")
BACKENDS = ["reference", pytest.param("triton", marks=[needs_kernel, pytest.mark.interpreted])]


@pytest.fixture
def case():
    """Three members, 150 rows of 140 categories, some of none."""
    generator = torch.Generator().manual_seed(0)
    category = torch.randint(-1, 140, (3, 150), generator=generator)
    weight = torch.randn(3, 24, 140, generator=generator)
    dy = torch.randn(3, 150, 24, generator=generator)
    return category.to(DEVICE), weight.to(DEVICE), dy.to(DEVICE)


@pytest.mark.parametrize("backend", BACKENDS)
@pytest.mark.parametrize("shared", [False, True])
def test_values_and_gradients_are_those_of_one_hot_rows(case, backend, shared):
    category, weight, dy = case
    category = category[0] if shared else category
    weight.requires_grad_()
    with graphnorm.backend(backend):
        y = vmap(project_categories, in_dims=(None if shared else 0, 0))(category, weight)
        (dweight,) = torch.autograd.grad(y, weight, dy)
    dense = OneHot(category, 140).dense()
    torch.testing.assert_close(y, dense @ weight.mT, rtol=0, atol=0 if DEVICE == "cpu" else 1e-2)
    exact = dy.double().mT @ dense.double()
    assert (dweight - exact).abs().max() <= 1e-6 * exact.abs().max()


def test_alone_and_differentiated_twice(case):
    category, weight, _ = case
    category, weight = category[0, :20].cpu() % 7, weight[0, :2, :7].double().cpu().requires_grad_()
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
