"""Standardization as a differentiable function: gradients of every order, and members stacked by ``vmap``.

It exists twice over the same kernels and the same rules. :class:`Standardize` is an ``autograd.Function``, the quick
way in eager mode; ``torch.ops.graphnorm.standardize`` is a custom operator, which ``torch.compile`` can look past.
Each has a second function for its gradient, since that is worth a fused kernel too. The gradient of the gradient
(force fields need it) is that of the reference's closed form.

Both take their arguments flat, in the order of :data:`ARGUMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphnorm.ops.standardize import reference
from graphnorm.ops.standardize.choice import kernels_for
from graphnorm.ops.standardize.problem import GIVEN, Problem, computed_in, in_type_of, kept_in, statistics_shape
from graphnorm.ops.vmap import EagerFunction, vmap_rule

ARGUMENTS = {
    # name: dimensions without members; None for what is not a tensor
    "x": 2, "residual": 2, "weight": 1, "bias": 1, "mean_scale": 1, "ptr": 1, "order": 1, "mean": 2, "var": 2,
    "eps": None, "relu": None, "statistics": None, "max_size": None,
}  # fmt: skip
BACKWARD_ARGUMENTS = {"dy": 2, **{name: dims for name, dims in ARGUMENTS.items() if name != "residual"}}
_SHARED = ("ptr", "order")  # need not be repeated for every member


def _problem(
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    ptr: Tensor | None,
    order: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    eps: float,
    relu: bool,
    statistics: str,
    max_size: int | None,
) -> Problem:
    return Problem(ptr, order, weight, bias, mean_scale, mean, var, eps, relu, statistics, max_size)


def run_forward(x: Tensor, residual: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """Output and statistics; statistics that were given are not given back."""
    problem = _problem(*rest)
    y, mean, var = kernels_for(x, problem.graphs).forward(x, residual, problem)
    return (y, mean, var) if problem.statistics != GIVEN else (y, mean.new_empty(0), var.new_empty(0))


def run_backward(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx and the gradients of weight, bias and mean_scale."""
    problem = _problem(*rest)
    dx, dweight, dbias, dmean_scale = kernels_for(x, problem.graphs).backward(dy, x, problem)
    return dx, dweight, dbias, dmean_scale


# ---- autograd --------------------------------------------------------------------------------------------------


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, Tensor, Tensor]) -> None:
    """The input and two numbers per segment and channel: nothing else of the input's size."""
    x, residual, weight, bias, mean_scale, ptr, order, mean, var, *options = inputs
    if options[2] != GIVEN:
        _, mean, var = output
    ctx.save_for_backward(x, weight, bias, mean_scale, ptr, order, mean, var)
    ctx.options = options
    ctx.has_residual = residual is not None
    if hasattr(ctx, "mark_non_differentiable"):
        ctx.mark_non_differentiable(*output[1:])
        ctx.set_materialize_grads(False)  # the statistics have none, and need no zeros in their place


def needs_autograd(*tensors: Tensor) -> bool:
    """Whether the gradient is itself being differentiated or vmapped."""
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor
    return torch.is_grad_enabled() or any(wrapped(tensor) for tensor in tensors)


def gradients(ctx: Any, differentiable: Callable[..., Any], dy: Tensor | None) -> tuple[Tensor | None, ...]:
    """One gradient per argument of the forward pass."""
    if dy is None:  # y itself was not used
        return (None,) * len(ARGUMENTS)
    x, weight, bias, mean_scale, *rest = ctx.saved_tensors
    by_operator = differentiable is standardize_backward_op  # a compiler may be looking: kernels stay behind it
    run = differentiable if by_operator or needs_autograd(dy, x) else run_backward
    dx, *dparameters = run(dy, x, weight, bias, mean_scale, *rest, *ctx.options)
    return (
        dx,
        dy if ctx.has_residual else None,
        *map(in_type_of, (weight, bias, mean_scale), dparameters),
        *[None] * (len(ARGUMENTS) - 5),
    )


def keep_for_double_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Everything: orders beyond the first are computed by the reference, from the inputs."""
    tensors = len(BACKWARD_ARGUMENTS) - 4
    ctx.save_for_backward(*inputs[:tensors])
    ctx.options = inputs[tensors:]


def second_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of the reference's closed form with respect to dy, x, weight and mean_scale."""
    dy, x, weight, bias, mean_scale, *rest = ctx.saved_tensors
    present = [t for t in (dy, x, weight, mean_scale) if t is not None]

    def closed_form(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        dy, x = next(given), next(given)
        w, a = (None if t is None else next(given) for t in (weight, mean_scale))
        return reference.backward(dy, x, _problem(w, bias, a, *rest, *ctx.options))

    vjp = torch.func.vjp(closed_form, *present)[1]
    found = iter(vjp(grads))
    ddy, ddx = next(found), next(found)
    dweight, dmean_scale = (None if t is None else next(found) for t in (weight, mean_scale))
    return ddy, ddx, dweight, None, dmean_scale, *[None] * (len(BACKWARD_ARGUMENTS) - 5)


# ---- eager: two autograd functions ---------------------------------------------------------------------------


class StandardizeBackward(EagerFunction):
    """The gradient of :class:`Standardize`, differentiable itself."""

    forward = staticmethod(run_backward)
    setup_context = staticmethod(keep_for_double_backward)
    backward = staticmethod(second_gradients)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(StandardizeBackward.apply, BACKWARD_ARGUMENTS, _SHARED)(info, dims, *arguments)


class Standardize(EagerFunction):
    """Arguments as in :data:`ARGUMENTS`; returns y, mean, var."""

    forward = staticmethod(run_forward)
    setup_context = staticmethod(keep_for_backward)

    @staticmethod
    def backward(ctx: Any, dy: Tensor, *_: Tensor) -> Any:
        """The closed form of the reference, by the kernels."""
        return gradients(ctx, StandardizeBackward.apply, dy)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(Standardize.apply, ARGUMENTS, _SHARED)(info, dims, *arguments)


# ---- compiled: two custom operators ----------------------------------------------------------------------------


@torch.library.custom_op("graphnorm::standardize", mutates_args=())
def standardize_op(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    ptr: Tensor | None,
    order: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    eps: float,
    relu: bool,
    statistics: str,
    max_size: int | None,
) -> tuple[Tensor, Tensor, Tensor]:
    """:class:`Standardize` as an operator that ``torch.compile`` and ``torch.library.opcheck`` know."""
    arguments = (weight, bias, mean_scale, ptr, order, mean, var, eps, relu, statistics, max_size)
    return run_forward(x, residual, *arguments)


@standardize_op.register_fake
def _(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    given, graphs = rest[10] == GIVEN, 1 if rest[4] is None else rest[4].shape[-1] - 1
    shape = (0,) if given else statistics_shape(x, graphs)
    y = x.new_empty(x.shape)
    return y, x.new_empty(shape, dtype=kept_in(x)), x.new_empty(shape, dtype=computed_in(x.dtype))


@torch.library.custom_op("graphnorm::standardize_backward", mutates_args=())
def standardize_backward_op(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    ptr: Tensor | None,
    order: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    eps: float,
    relu: bool,
    statistics: str,
    max_size: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """:class:`StandardizeBackward` as an operator. Its outputs may not share memory, as the kernels' do."""
    arguments = (weight, bias, mean_scale, ptr, order, mean, var, eps, relu, statistics, max_size)
    dx, dweight, dbias, dmean_scale = run_backward(dy, x, *arguments)
    return dx, dweight.clone(), dbias.clone(), dmean_scale.clone()


@standardize_backward_op.register_fake
def _(dy: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shape, acc = (*x.shape[:-2], x.shape[-1]), computed_in(x.dtype)
    dweight, dbias, dmean_scale = (x.new_empty(shape, dtype=acc) for _ in range(3))
    return x.new_empty(x.shape), dweight, dbias, dmean_scale


def _op_gradients(ctx: Any, dy: Tensor, *_: Tensor) -> Any:
    return gradients(ctx, standardize_backward_op, dy)


standardize_op.register_autograd(_op_gradients, setup_context=keep_for_backward)
standardize_op.register_vmap(vmap_rule(standardize_op, ARGUMENTS, _SHARED))
standardize_backward_op.register_autograd(second_gradients, setup_context=keep_for_double_backward)
standardize_backward_op.register_vmap(vmap_rule(standardize_backward_op, BACKWARD_ARGUMENTS, _SHARED))
