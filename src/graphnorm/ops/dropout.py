r"""Dropout by a key: the dropped entries depend on the key and their position alone, not on what else is trained.

With i the position of an entry, counted along the rows, and u random numbers of the key and the site:

.. math:: y_i = \frac{[u_i \ge p]}{1 - p}\, x_i + r_i, \qquad dx_i = \frac{[u_i \ge p]}{1 - p}\, dy_i, \qquad dr = dy

On a GPU a Triton kernel (:mod:`graphnorm.ops.dropout_gpu`) does it in one pass and saves no mask: backward draws it
again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from graphnorm.ops.dispatch import optional_triton_kernels
from graphnorm.ops.function import define
from graphnorm.randomness import bits, uniform

__all__ = ["drop"]

_GPU = "graphnorm.ops.dropout_gpu"


def drop(x: Tensor, key: Tensor, rate: Tensor, site: int = 0, residual: Tensor | None = None) -> Tensor:
    """y of x's shape.

    Args:
        x: shape (N, C).
        key: one int64.
        rate: p, one number.
        site: a number for each place of a model that drops by the same key.
        residual: r, of x's shape.

    >>> drop(torch.ones(2, 3), torch.tensor(5), torch.tensor(0.5))
    tensor([[2., 0., 2.],
            [2., 0., 2.]])
    """
    if x.dim() == 2 and x.dtype == torch.float32 and optional_triton_kernels(_GPU, x) is not None:
        return cast(Tensor, _drop(x, residual, key, rate, site))
    return _plain_drop(x, residual, key, rate, site, x.shape)


def _plain_drop(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int, shape: torch.Size) -> Tensor:
    """shape: of one member; key and rate may have a leading M, as x and residual then do."""
    position = torch.arange(shape.numel(), device=x.device).view(shape)
    if key.dim():
        key, rate = (per_member.view(-1, *[1] * len(shape)) for per_member in (key, rate))
    kept = uniform(bits(key, site), position) >= rate
    y = x * (kept / (1 - rate)).to(x.dtype)
    return y if residual is None else residual + y


def _forward(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int) -> Tensor:
    kernels = optional_triton_kernels(_GPU, x)
    if kernels is None:
        return _plain_drop(x, residual, key, rate, site, x.shape[-2:])
    return cast(Tensor, kernels.drop(x, residual, key, rate, site))


def _backward(dy: Tensor, key: Tensor, rate: Tensor, site: int) -> tuple[Tensor]:
    return (_forward(dy, None, key, rate, site),)


def _reference_backward(dy: Tensor, key: Tensor, rate: Tensor, site: int) -> tuple[Tensor]:
    return (_plain_drop(dy, None, key, rate, site, dy.shape[-2:]),)


def _save(wanted: Any, y: Tensor, x: Tensor, residual: Any, *rest: Any) -> tuple[Any, ...]:
    return rest


def _fake_forward(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(dy: Tensor, *_: Any) -> tuple[Tensor]:
    return (dy.new_empty(dy.shape),)


_drop = define(
    "dropout",
    _forward,
    _backward,
    _reference_backward,
    dims={"x": 2, "residual": 2, "key": 0, "rate": 0, "dy": 2},
    save=_save,
    gradients=("x",),
    residual="residual",
    fake=(_fake_forward, _fake_backward),
)
