r"""Linear layers over categories: the product of a weight with one-hot rows, without writing these out.

With :math:`v_r` the category of row r, -1 for none, and W of shape (O, F):

.. math:: y_r = W_{:, v_r} \;(0 \text{ for none}), \qquad dW_{:, v} = \sum_{r : v_r = v} dy_r

The sums have a Triton kernel, in :mod:`graphnorm.ops.categories_gpu`.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphnorm.ops.dispatch import optional_triton_kernels
from graphnorm.ops.function import define

__all__ = ["project_categories"]


def project_categories(category: Tensor, weight: Tensor) -> Tensor:
    """y, (N, O), of categories (N,) in -1 … F-1 and a weight (O, F).

    >>> project_categories(torch.tensor([2, -1]), torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3.],
            [0.]])
    """
    y: Tensor = _project(category, weight)
    return y


def _forward(category: Tensor, weight: Tensor) -> Tensor:
    """One gather from W, transposed. Both may have a leading M, or the weight alone."""
    alone = weight.dim() == 2
    weight = weight[None] if alone else weight
    members, width, categories = weight.shape
    table = pad(weight.mT, (0, 0, 0, 1)).reshape(-1, width)
    y = table.index_select(0, _rows_of_table(category, members, categories).flatten()).view(members, -1, width)
    return y[0] if alone else y


def _backward(dy: Tensor, category: Tensor, categories: int) -> tuple[Tensor]:
    kernels = optional_triton_kernels("graphnorm.ops.categories_gpu", dy) if dy.dtype == torch.float32 else None
    if kernels is None:
        return _reference_backward(dy, category, categories)
    alone = dy.dim() == 2
    sums: Tensor = kernels.weight_gradient(dy[None] if alone else dy, category, categories).mT
    return (sums[0] if alone else sums,)


def _reference_backward(dy: Tensor, category: Tensor, categories: int) -> tuple[Tensor]:
    alone = dy.dim() == 2
    dy = dy[None] if alone else dy
    members, _, width = dy.shape
    table = dy.new_zeros(members * (categories + 1), width)
    rows = _rows_of_table(category, members, categories).flatten()
    sums = table.index_add(0, rows, dy.flatten(0, 1)).view(members, categories + 1, width)[:, :-1].mT
    return (sums[0] if alone else sums,)


def _rows_of_table(category: Tensor, members: int, categories: int) -> Tensor:
    """(M, N): the index of each row's column of W in the members' tables, whose last row, for -1, is zeros."""
    member = torch.arange(members, device=category.device)[:, None]
    return category % (categories + 1) + member * (categories + 1)


def _save(wanted: Any, y: Tensor, category: Tensor, weight: Tensor) -> tuple[Any, ...]:
    return category, weight.shape[-1]


def _fake_forward(category: Tensor, weight: Tensor) -> Tensor:
    return weight.new_empty(*weight.shape[:-2], category.shape[-1], weight.shape[-2])


def _fake_backward(dy: Tensor, category: Tensor, categories: int) -> tuple[Tensor]:
    return (dy.new_empty(*dy.shape[:-2], categories, dy.shape[-1]).mT,)


_project = define(
    "project_categories",
    _forward,
    _backward,
    _reference_backward,
    dims={"category": 1, "weight": 2, "dy": 2},
    save=_save,
    gradients=("weight",),
    shared=("category",),
    fake=(_fake_forward, _fake_backward),
)
