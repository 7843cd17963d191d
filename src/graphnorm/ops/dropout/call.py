r"""The differentiable function. With i the place of an entry, counted along the rows, and u of the site's key:

.. math:: y_i = \frac{[u_i \ge p]}{1 - p}\, x_i + r_i, \qquad dx_i = \frac{[u_i \ge p]}{1 - p}\, dy_i, \qquad dr = dy

No mask is kept: backward draws it again.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from graphnorm.ops.dispatch import triton_kernels_for
from graphnorm.ops.vmap import EagerFunction, vmap_rule
from graphnorm.randomness import bits, uniform

_ARGUMENTS: dict[str, int | None] = {"x": 2, "residual": 2, "key": 0, "rate": 0, "site": None}


def drop(x: Tensor, key: Tensor, rate: Tensor, site: int = 0, residual: Tensor | None = None) -> Tensor:
    """y of x's shape; key, int64, and rate, the share p, have one number each.

    site: tells apart what is dropped by the same key at several places of a model.
    residual: r, of x's shape.

    >>> drop(torch.ones(2, 3), torch.tensor(5), torch.tensor(0.5))
    tensor([[2., 0., 2.],
            [2., 0., 2.]])
    """
    if x.dim() == 2 and x.dtype == torch.float32 and triton_kernels_for(__package__, x) is not None:
        return cast(Tensor, _Drop.apply(x, residual, key, rate, site))
    return _plainly(x, residual, key, rate, site, x.shape)


def _plainly(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int, shape: torch.Size) -> Tensor:
    """shape: of one member; key and rate may have a leading M, as x and residual then do."""
    place = torch.arange(shape.numel(), device=x.device).view(shape)
    if key.dim():
        key, rate = (per_member.view(-1, *[1] * len(shape)) for per_member in (key, rate))
    kept = uniform(bits(key, site), place) >= rate
    y = x * (kept / (1 - rate)).to(x.dtype)
    return y if residual is None else residual + y


class _Drop(EagerFunction):
    """Arguments as in ``_ARGUMENTS``; all tensors may have a leading M."""

    @staticmethod
    def forward(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int) -> Tensor:
        """One pass, where there is a kernel for it."""
        kernels = triton_kernels_for(__package__, x)
        if kernels is None:
            return _plainly(x, residual, key, rate, site, x.shape[-2:])
        return cast(Tensor, kernels.drop(x, residual, key, rate, site))

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """Key and rate are all that backward needs."""
        _, residual, key, rate, ctx.site = inputs
        ctx.save_for_backward(key, rate)
        ctx.has_residual = residual is not None

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, ...]:
        """The same entries are dropped from the gradient."""
        key, rate = ctx.saved_tensors
        if torch.is_grad_enabled():
            dx = _plainly(gradient, None, key, rate, ctx.site, gradient.shape[-2:])
        else:
            dx = _Drop.forward(gradient, None, key, rate, ctx.site)
        return dx, gradient if ctx.has_residual else None, None, None, None

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(_Drop.apply, _ARGUMENTS, ())(info, dims, *arguments)
