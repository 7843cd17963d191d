r"""The differentiable function. With :math:`v_r` the category of row r, -1 for none, and W of shape (O, F):

.. math:: y_r = W_{:, v_r} \;(0 \text{ for none}), \qquad dW_{:, v} = \sum_{r : v_r = v} dy_r

which is what a linear layer without bias makes of one-hot rows.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor
from torch.nn.functional import pad

from graphnorm.ops.dispatch import triton_kernels_for
from graphnorm.ops.vmap import EagerFunction, vmap_rule

_ARGUMENTS: dict[str, int | None] = {"category": 1, "weight": 2}
_SHARED = ("category",)


def project_categories(category: Tensor, weight: Tensor) -> Tensor:
    """y, (N, O), of categories (N,) in -1 … F-1 and a weight (O, F).

    >>> project_categories(torch.tensor([2, -1]), torch.tensor([[1.0, 2.0, 3.0]]))
    tensor([[3.],
            [0.]])
    """
    y: Tensor = _Project.apply(category, weight)
    return y


def _rows_of_table(category: Tensor, members: int, categories: int) -> Tensor:
    """(M, N): where each row's column of W lies in the members' tables, whose last row is the zeros of -1."""
    member = torch.arange(members, device=category.device)[:, None]
    return category % (categories + 1) + member * (categories + 1)


def _sums(gradient: Tensor, category: Tensor, categories: int) -> Tensor:
    """(M, F, O) of a gradient (M, N, O)."""
    if gradient.dtype == torch.float32 and not torch.is_grad_enabled():
        kernels = triton_kernels_for(__package__, gradient)
        if kernels is not None:
            sums: Tensor = kernels.sums(gradient, category, categories)
            return sums
    members, _, width = gradient.shape
    table = gradient.new_zeros(members * (categories + 1), width)
    rows = _rows_of_table(category, members, categories).flatten()
    return table.index_add(0, rows, gradient.flatten(0, 1)).view(members, categories + 1, width)[:, :-1]


class _Project(EagerFunction):
    """Arguments as in ``_ARGUMENTS``; both may have a leading M, the categories also where the weight has none."""

    @staticmethod
    def forward(category: Tensor, weight: Tensor) -> Tensor:
        """One gather from W, transposed."""
        alone = weight.dim() == 2
        weight = weight[None] if alone else weight
        members, width, categories = weight.shape
        table = pad(weight.mT, (0, 0, 0, 1)).reshape(-1, width)
        y = table.index_select(0, _rows_of_table(category, members, categories).flatten()).view(members, -1, width)
        return y[0] if alone else y

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, Tensor], output: Tensor) -> None:
        """The categories are all that backward reads."""
        category, weight = inputs
        ctx.save_for_backward(category)
        ctx.categories = weight.shape[-1]

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[None, Tensor]:
        """Sums by category."""
        (category,) = ctx.saved_tensors
        alone = gradient.dim() == 2
        sums = _sums(gradient[None] if alone else gradient, category, ctx.categories).mT
        return None, sums[0] if alone else sums

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(_Project.apply, _ARGUMENTS, _SHARED)(info, dims, *arguments)
