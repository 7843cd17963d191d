"""Standardization by rows on the CPU: hands addresses and sizes to the C library (``csrc/rows.h``)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.backends import TYPES, library, output_like
from graphnorm.ops.standardize.cpu import address, available, ready
from graphnorm.ops.standardize.problem import computed_in

__all__ = ["available", "backward", "forward"]


def _run(
    x: Tensor,
    out: Tensor,
    residual: Tensor | None,
    dy: Tensor | None,
    parameters: tuple[Tensor | None, Tensor | None],
    dparameters: tuple[Tensor | None, Tensor | None],
    eps: float,
    relu: bool,
) -> None:
    """Forward where there is no ``dy``. All tensors but the parameters are contiguous and of x's type."""
    assert library is not None
    acc = computed_in(x.dtype)
    weight, bias = ready(parameters[0], acc), ready(parameters[1], acc)
    members = x.shape[0] if x.dim() == 3 else 1
    library.rows(
        eps, TYPES[x.dtype], members, *x.shape[-2:], relu, torch.get_num_threads(), x.data_ptr(), out.data_ptr(),
        address(residual), address(dy), address(weight), address(bias), address(dparameters[0]),
        address(dparameters[1]),
    )  # fmt: skip


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """The C twin of :func:`graphnorm.ops.layer_norm.reference.forward`."""
    x = x.contiguous()
    y = output_like(x)
    _run(x, y, ready(residual, x.dtype), None, (weight, bias), (None, None), eps, relu)
    return y


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The C twin of :func:`graphnorm.ops.layer_norm.reference.backward`."""
    x, dy, acc = x.contiguous(), dy.contiguous(), computed_in(x.dtype)
    dx, shape = output_like(x), (*x.shape[:-2], x.shape[-1])
    dweight, dbias = torch.empty(shape, dtype=acc), torch.empty(shape, dtype=acc)
    _run(x, dx, None, dy, (weight, bias), (dweight, dbias), eps, relu)
    return dx, dweight, dbias
