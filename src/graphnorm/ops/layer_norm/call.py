"""The way in, for input that was checked: the path that suits eager mode, compilation, export or very wide rows."""

from __future__ import annotations

from typing import cast

import torch
from torch import Tensor

from graphnorm.ops.layer_norm.autograd import StandardizeRows, standardize_rows_op
from graphnorm.ops.layer_norm.reference import composed

WIDEST = 4096
"""Channels that a GPU program holds in its registers. Wider rows are left to torch's layer norm, on every device."""


def standardize_rows(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    eps: float,
    relu: bool,
) -> Tensor:
    """act(γ (x - mean) / √(variance + ε) + β) + residual, mean and variance over the channels of each row.

    Args:
        x: features, shape (N, C).
        residual: shape (N, C), or ``None``.
        weight: γ, shape (C,), or ``None`` for 1.
        bias: β, shape (C,), or ``None`` for 0.
        eps: ε.
        relu: whether act is relu, with slope 1 at exactly 0; the identity otherwise.

    Returns:
        y of x's shape and type; of a wider type where the residual has one.
    """
    late = None
    if residual is not None and residual.dtype != x.dtype:
        residual, late = None, residual
    if torch.compiler.is_exporting() or x.shape[-1] > WIDEST:
        y = composed(x, residual, weight, bias, eps, relu)
    else:
        apply = standardize_rows_op if torch.compiler.is_compiling() else StandardizeRows.apply
        y = cast(Tensor, apply(x, residual, weight, bias, eps, relu))
    return y if late is None else y + late
