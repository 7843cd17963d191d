"""A linear layer that knows what to do when a fleet stacks it.

For one model it is ``torch.nn.functional.linear``. Under ``torch.func.vmap`` over models torch makes of it a batched
product, a pass that adds the bias, and in backward two batched products and a sum over the rows. On a GPU, moreover,
the product for the weight's gradient, whose inner dimension is the rows of the batch, keeps only as many
multiprocessors busy as there are models. Here bias and product are one kernel, the gradients of weight and bias
another, which shares the rows out and adds up partial sums in a fixed order; in C, and in Triton.
"""

from __future__ import annotations

from types import ModuleType
from typing import Any, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.nn import functional

from graphnorm.backends import chosen_backend
from graphnorm.ops.dispatch import triton_kernels
from graphnorm.ops.linear import cpu
from graphnorm.ops.vmap import EagerFunction

__all__ = ["linear"]

WIDEST_ON_CPU = 128
"""A weight with more rows or columns does not fit beside its tile of rows; torch's products suit it better there."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b: x (N, K), weight (O, K), bias (O,) to (N, O).

    >>> linear(torch.ones(2, 3), torch.ones(1, 3), torch.zeros(1))
    tensor([[3.],
            [3.]])
    """
    if not (_are_functorch_transforms_active() and _suits(x, weight)):
        return functional.linear(x, weight, bias)
    return cast(Tensor, _Linear.apply(x, weight, bias))


def _suits(x: Tensor, weight: Tensor) -> bool:
    same = x.dtype == weight.dtype == torch.float32 and x.ndim == 2
    if not same or chosen_backend() == "reference":
        return False
    if x.is_cuda:
        return triton_kernels(__package__) is not None
    return max(weight.shape) <= WIDEST_ON_CPU and cpu.available(x)


def _kernels(x: Tensor) -> ModuleType:
    """A module with ``forward`` and ``backward`` of stacked layers."""
    module = triton_kernels(__package__) if x.is_cuda else cpu
    assert module is not None
    return module


def _keep(ctx: Any, inputs: tuple[Tensor, ...]) -> None:
    x, weight, bias = inputs
    ctx.save_for_backward(x, weight)
    ctx.has_bias = bias is not None


def _textbook(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
    """The gradients as torch's products, of one model or of a stack."""
    x, weight = ctx.saved_tensors
    return gradient @ weight, gradient.mT @ x, gradient.sum(-2) if ctx.has_bias else None


class _Linear(EagerFunction):
    """What vmap meets: the rule that hands all members to one launch."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """Of one model: torch's own."""
        return functional.linear(x, weight, bias)

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep what the products of backward are made of."""
        _keep(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor, Tensor, Tensor | None]:
        """The textbook's."""
        return _textbook(ctx, gradient)

    @staticmethod
    def vmap(
        info: Any, in_dims: tuple[int | None, ...], x: Tensor, weight: Tensor, bias: Tensor | None
    ) -> tuple[Tensor, int]:
        """All members in one launch; what they share is not copied."""
        arrays = [
            tensor.expand(info.batch_size, *tensor.shape) if dim is None else tensor.movedim(dim, 0)
            for tensor, dim in zip((x, weight, bias), in_dims, strict=True)
            if tensor is not None
        ]
        if arrays[0].ndim != 3:  # one vmap inside another: torch's own rules
            out = arrays[0] @ arrays[1].mT
            return (out if bias is None else out + arrays[2].unsqueeze(-2)), 0
        return StackedLinear.apply(*arrays, *[None] * (3 - len(arrays))), 0


class StackedLinear(EagerFunction):
    """M linear layers: x (M, N, K), weight (M, O, K), bias (M, O) to (M, N, O), by the kernels of its device."""

    @staticmethod
    def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
        """One kernel."""
        out: Tensor = _kernels(x).forward(x, weight, bias)
        return out

    @staticmethod
    def setup_context(ctx: Any, inputs: tuple[Tensor, ...], output: Tensor) -> None:
        """Keep what the products of backward are made of."""
        _keep(ctx, inputs)

    @staticmethod
    def backward(ctx: Any, gradient: Tensor) -> tuple[Tensor | None, Tensor, Tensor | None]:
        """Two kernels and the sum of partial results; torch's products where this gradient is differentiated again."""
        if torch.is_grad_enabled():
            return _textbook(ctx, gradient)
        x, weight = ctx.saved_tensors
        dx, dweight, dbias = _kernels(x).backward(gradient, x, weight, ctx.needs_input_grad[0])
        return dx, dweight, dbias if ctx.has_bias else None
