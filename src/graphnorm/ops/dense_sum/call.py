r"""The differentiable function. With A the graphs' matrices, S = diag(s) and w the weight of a row's own features:

.. math:: y = S (A + w) S\, x, \qquad dx = S (A + w) S\, dy, \qquad dw = \sum_r s_r^2 \langle x_r, dy_r \rangle

since A is symmetric: the gradient is the same function once more.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphnorm.adjacency import Blocks
from graphnorm.ops.dispatch import triton_kernels, triton_kernels_for
from graphnorm.ops.vmap import EagerFunction, vmap_rule

_ARGUMENTS = {
    # name: dimensions without members; None for what is not a tensor
    "x": 2, "self_weight": 0, "scale": 1, "values": 1, "start": 1, "ptr": 1, "max_size": None, "constant": None,
}  # fmt: skip
_SHARED = ("scale", "values", "start", "ptr")


def can_sum(x: Tensor) -> bool:
    """Whether :func:`sum_blocks` takes these features: float32, on a GPU, in eager mode."""
    if x.dtype != torch.float32 or x.numel() == 0 or torch.compiler.is_compiling():
        return False
    return triton_kernels_for(__package__, x) is not None


def sum_blocks(
    x: Tensor, blocks: Blocks, *, self_weight: Tensor | None = None, scale: Tensor | None = None, constant: float = 0.0
) -> Tensor:
    """y of the module's equation, (N, C); ``constant`` is w where it is no tensor."""
    scale = None if scale is None else scale.to(x.dtype)
    weight = None if self_weight is None else self_weight.to(x.dtype)
    y: Tensor = BlockSum.apply(x, weight, scale, *blocks, constant)
    return y


def _run(
    values: Tensor, self_weight: Any, scale: Any, blocks: tuple[Any, ...], constant: float, x: Tensor | None = None
) -> tuple[Tensor, Tensor | None]:
    kernels = triton_kernels(__package__)
    assert kernels is not None
    result: tuple[Tensor, Tensor | None] = kernels.run(values, self_weight, scale, Blocks(*blocks), constant, x)
    return result


class BlockSum(EagerFunction):
    """Arguments as in ``_ARGUMENTS``."""

    @staticmethod
    def forward(x: Tensor, self_weight: Tensor | None, scale: Tensor | None, *rest: Any) -> Tensor:
        """y."""
        return _run(x, self_weight, scale, rest[:-1], rest[-1])[0]

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
        """x only where somebody asks for dw."""
        x, self_weight, scale, values, start, ptr, *ctx.options = inputs
        ctx.save_for_backward(x if ctx.needs_input_grad[1] else None, self_weight, scale, values, start, ptr)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """By the kernel alone, or, where the gradient is itself differentiated, by functions that can be."""
        x, self_weight, scale, *arrays = ctx.saved_tensors
        max_size, constant = ctx.options
        if not (torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()):
            dx, dw = _run(dy, self_weight, scale, (*arrays, max_size), constant, x)
        else:
            dx, dw = BlockSum.apply(dy, self_weight, scale, *arrays, max_size, constant), None
            if x is not None:
                products = x * dy if scale is None else x * dy * scale.square().unsqueeze(-1)
                dw = products.sum((-2, -1))
        return dx, None if dw is None else dw.reshape(self_weight.shape), *[None] * (len(_ARGUMENTS) - 2)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(BlockSum.apply, _ARGUMENTS, _SHARED)(info, dims, *arguments)
