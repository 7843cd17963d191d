r"""Neighbour sums as products with adjacency matrices, for graphs that have many edges for their size.

With A the graphs' matrices, S = diag(s) and w the weight of a row's own features:

.. math:: y = S (A + w) S\, x, \qquad dx = S (A + w) S\, dy, \qquad dw = \sum_r s_r^2 \langle x_r, dy_r \rangle

since A is symmetric: the gradient is the same function again. There is a Triton kernel only
(:mod:`graphnorm.ops.dense_sum_gpu`); elsewhere :mod:`graphnorm.ops.neighbour_sum` adds up edge by edge.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphnorm.adjacency import Blocks
from graphnorm.backends import triton_kernels
from graphnorm.ops.dispatch import optional_triton_kernels
from graphnorm.ops.function import define

__all__ = ["can_sum", "sum_blocks"]

_GPU = "graphnorm.ops.dense_sum_gpu"


def can_sum(x: Tensor) -> bool:
    """Whether :func:`sum_blocks` takes these features: float32, on a GPU, in eager mode."""
    if x.dtype != torch.float32 or x.numel() == 0 or torch.compiler.is_compiling():
        return False
    return optional_triton_kernels(_GPU, x) is not None


def sum_blocks(
    x: Tensor, blocks: Blocks, *, self_weight: Tensor | None = None, scale: Tensor | None = None, constant: float = 0.0
) -> Tensor:
    """y as above, (N, C); ``constant`` is w where ``self_weight`` is ``None``."""
    scale = None if scale is None else scale.to(x.dtype)
    weight = None if self_weight is None else self_weight.to(x.dtype)
    y: Tensor = _dense_sum(x, weight, scale, *blocks, constant)
    return y


def _forward(x: Tensor, self_weight: Tensor | None, scale: Tensor | None, blocks: Blocks, constant: float) -> Tensor:
    y: Tensor = _kernels().run(x, self_weight, scale, blocks, constant, None)[0]
    return y


def _backward(
    dy: Tensor,
    x: Tensor | None,
    self_weight: Tensor | None,
    scale: Tensor | None,
    blocks: Blocks,
    constant: float,
) -> tuple[Tensor, Tensor]:
    """The gradients of x and, given x, of self_weight."""
    dx, dw = _kernels().run(dy, self_weight, scale, blocks, constant, x)
    return dx, dy.new_empty(0) if dw is None else dw


def _kernels() -> Any:
    return triton_kernels(_GPU)


def _differentiable_backward(
    dy: Tensor, x: Tensor | None, self_weight: Tensor | None, scale: Tensor | None, *rest: Any
) -> tuple[Tensor, Tensor]:
    """The same by functions that have gradients."""
    dx: Tensor = _dense_sum(dy, self_weight, scale, *rest)
    if x is None:
        return dx, dy.new_empty(0)
    products = x * dy if scale is None else x * dy * scale.square().unsqueeze(-1)
    return dx, products.sum((-2, -1))


def _save(wanted: Any, y: Tensor, x: Tensor, self_weight: Any, *rest: Any) -> tuple[Any, ...]:
    """x only where the gradient of self_weight is wanted."""
    return x if wanted[1] else None, self_weight, *rest


_dense_sum = define(
    "dense_sum",
    _forward,
    _backward,
    _differentiable_backward,
    dims={"x": 2, "self_weight": 0, "scale": 1, "values": 1, "start": 1, "ptr": 1, "dy": 2},
    save=_save,
    gradients=("x", "self_weight"),
    shared=("scale", "values", "start", "ptr"),
)
