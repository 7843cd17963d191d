"""Standardization of rows as a differentiable function: gradients of every order, and members stacked by ``vmap``.

As with standardization over graphs it exists twice over the same kernels and rules: :class:`StandardizeRows` for eager
mode, and the custom operator ``torch.ops.graphnorm.standardize_rows``, which ``torch.compile`` can look past. Each has
a second function for its gradient. The gradient of the gradient is that of the reference's closed form.

Both take their arguments flat, in the order of :data:`ARGUMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphnorm.ops.layer_norm import reference
from graphnorm.ops.layer_norm.choice import kernels_for
from graphnorm.ops.standardize.autograd import needs_autograd
from graphnorm.ops.standardize.problem import computed_in, in_type_of
from graphnorm.ops.vmap import EagerFunction, vmap_rule

ARGUMENTS = {
    # name: dimensions without members; None for what is not a tensor
    "x": 2, "residual": 2, "weight": 1, "bias": 1, "eps": None, "relu": None,
}  # fmt: skip
BACKWARD_ARGUMENTS = {"dy": 2, "x": 2, "weight": 1, "bias": 1, "eps": None, "relu": None}


def run_forward(x: Tensor, residual: Tensor | None, *rest: Any) -> Tensor:
    """y, ([M,] N, C)."""
    y: Tensor = kernels_for(x, x.shape[-2]).forward(x, residual, *rest)
    return y


def run_backward(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """dx and the gradients of weight and bias."""
    dx, dweight, dbias = kernels_for(x, x.shape[-2]).backward(dy, x, *rest)
    return dx, dweight, dbias


# ---- autograd --------------------------------------------------------------------------------------------------


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """The input and the parameters: nothing else."""
    x, residual, weight, bias, *options = inputs
    ctx.save_for_backward(x, weight, bias)
    ctx.options = options
    ctx.has_residual = residual is not None


def gradients(ctx: Any, differentiable: Callable[..., Any], dy: Tensor) -> tuple[Tensor | None, ...]:
    """One gradient per argument of the forward pass."""
    x, weight, bias = ctx.saved_tensors
    by_operator = differentiable is standardize_rows_backward_op  # a compiler may be looking: kernels stay behind it
    run = differentiable if by_operator or needs_autograd(dy, x) else run_backward
    dx, dweight, dbias = run(dy, x, weight, bias, *ctx.options)
    dresidual = dy if ctx.has_residual else None
    return dx, dresidual, in_type_of(weight, dweight), in_type_of(bias, dbias), None, None


def keep_for_double_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Everything: orders beyond the first are computed by the reference, from the inputs."""
    ctx.save_for_backward(*inputs[:4])
    ctx.options = inputs[4:]


def second_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of the reference's closed form with respect to dy, x and weight."""
    dy, x, weight, bias = ctx.saved_tensors

    def closed_form(dy: Tensor, x: Tensor, weight: Tensor | None = None) -> tuple[Tensor, ...]:
        return reference.backward(dy, x, weight, bias, *ctx.options)

    present = (dy, x) if weight is None else (dy, x, weight)
    found = torch.func.vjp(closed_form, *present)[1](grads)
    return *found, *[None] * (len(BACKWARD_ARGUMENTS) - len(found))


# ---- eager: two autograd functions ---------------------------------------------------------------------------


class StandardizeRowsBackward(EagerFunction):
    """The gradient of :class:`StandardizeRows`, differentiable itself."""

    forward = staticmethod(run_backward)
    setup_context = staticmethod(keep_for_double_backward)
    backward = staticmethod(second_gradients)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(StandardizeRowsBackward.apply, BACKWARD_ARGUMENTS, ())(info, dims, *arguments)


class StandardizeRows(EagerFunction):
    """Arguments as in :data:`ARGUMENTS`; returns y."""

    forward = staticmethod(run_forward)
    setup_context = staticmethod(keep_for_backward)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """The closed form of the reference, by the kernels."""
        return gradients(ctx, StandardizeRowsBackward.apply, dy)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(StandardizeRows.apply, ARGUMENTS, ())(info, dims, *arguments)


# ---- compiled: two custom operators ----------------------------------------------------------------------------


@torch.library.custom_op("graphnorm::standardize_rows", mutates_args=())
def standardize_rows_op(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """:class:`StandardizeRows` as an operator that ``torch.compile`` and ``torch.library.opcheck`` know."""
    return run_forward(x, residual, weight, bias, eps, relu)


@standardize_rows_op.register_fake
def _(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


@torch.library.custom_op("graphnorm::standardize_rows_backward", mutates_args=())
def standardize_rows_backward_op(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """:class:`StandardizeRowsBackward` as an operator."""
    return run_backward(dy, x, weight, bias, eps, relu)


@standardize_rows_backward_op.register_fake
def _(dy: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape, acc = (*x.shape[:-2], x.shape[-1]), computed_in(x.dtype)
    return x.new_empty(x.shape), x.new_empty(shape, dtype=acc), x.new_empty(shape, dtype=acc)


def _op_gradients(ctx: Any, dy: Tensor) -> Any:
    return gradients(ctx, standardize_rows_backward_op, dy)


standardize_rows_op.register_autograd(_op_gradients, setup_context=keep_for_backward)
standardize_rows_op.register_vmap(vmap_rule(standardize_rows_op, ARGUMENTS, ()))
standardize_rows_backward_op.register_autograd(second_gradients, setup_context=keep_for_double_backward)
standardize_rows_backward_op.register_vmap(vmap_rule(standardize_rows_backward_op, BACKWARD_ARGUMENTS, ()))
