"""Aggregation as a differentiable function: gradients of every order, and members stacked by ``vmap``.

As with standardization it exists twice over the same kernels and rules: :class:`Aggregate` for eager mode, and the
custom operator ``torch.ops.graphnorm.aggregate``, which ``torch.compile`` can look past. Each has a second function for
its gradient. The gradient of the gradient is that of the reference's closed form.

Both take their arguments flat, in the order of :data:`ARGUMENTS`.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from graphnorm.ops.neighbour_sum import reference
from graphnorm.ops.neighbour_sum.choice import kernels_for
from graphnorm.ops.neighbour_sum.problem import Problem, Wanted
from graphnorm.ops.standardize.problem import computed_in
from graphnorm.ops.vmap import EagerFunction, vmap_rule

ARGUMENTS = {
    # name: dimensions without members; None for what is not a tensor
    "x": 2, "edge_x": 2, "self_weight": 0, "scale": 1, "rowptr": 1, "col": 1, "edge_of": 1,
    "t_rowptr": 1, "t_col": 1, "t_edge": 1, "constant": None, "relu": None, "mean": None, "max_degree": None,
}  # fmt: skip
BACKWARD_ARGUMENTS = {"dy": 2, **ARGUMENTS, "wants_x": None, "wants_edges": None, "wants_self_weight": None}
_SHARED = ("scale", "rowptr", "col", "edge_of", "t_rowptr", "t_col", "t_edge")  # need not be repeated for every member
_TENSORS = sum(dims is not None for dims in ARGUMENTS.values())


def problem_of(self_weight: Tensor | None, scale: Tensor | None, *rest: Any) -> Problem:
    """The arguments behind x and edge_x, in order."""
    rowptr, col, edge_of, t_rowptr, t_col, t_edge, *options = rest
    return Problem(rowptr, col, edge_of, t_rowptr, t_col, t_edge, scale, self_weight, *options)


def run_forward(x: Tensor | None, edge_x: Tensor | None, *rest: Any) -> Tensor:
    """y, ([M,] R, C)."""
    problem = problem_of(*rest)
    features = edge_x if x is None else x
    assert features is not None
    y: Tensor = kernels_for(features, problem.rows).forward(x, edge_x, problem)
    return y


def run_backward(dy: Tensor, x: Tensor | None, edge_x: Tensor | None, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, edge_x and self_weight; empty where they are not wanted."""
    problem, wanted = problem_of(*rest[:-3]), Wanted(*rest[-3:])
    dx, da, dw = kernels_for(dy, problem.rows).backward(dy, x, edge_x, problem, wanted)
    return dx, da, dw


# ---- autograd --------------------------------------------------------------------------------------------------


def keep_for_backward(ctx: Any, inputs: tuple[Any, ...], output: Tensor) -> None:
    """x and edge_x only where the gradient depends on them: on x for self_weight, on both for relu."""
    x, edge_x, self_weight, *rest = inputs
    relu = inputs[-3]
    ctx.edges = None if edge_x is None else edge_x.shape[-2]
    kept_x = x if relu or (self_weight is not None and ctx.needs_input_grad[2]) else None
    ctx.save_for_backward(kept_x, edge_x if relu else None, self_weight, *rest[: _TENSORS - 3])
    ctx.options = inputs[_TENSORS:]


def _needs_autograd() -> bool:
    """Whether the gradient is itself being differentiated or vmapped."""
    return torch.is_grad_enabled() or torch._C._are_functorch_transforms_active()


def gradients(ctx: Any, differentiable: Callable[..., Any], dy: Tensor) -> tuple[Tensor | None, ...]:
    """One gradient per argument of the forward pass."""
    tensors = ctx.saved_tensors
    self_weight = tensors[2]
    wants_x, wants_edges, wants_self_weight = ctx.needs_input_grad[:3]
    by_operator = differentiable is aggregate_backward_op  # a compiler may be looking: kernels stay behind it
    run = differentiable if by_operator or _needs_autograd() else run_backward
    wanted = (wants_x, ctx.edges if wants_edges else None, wants_self_weight)
    dx, da, dw = run(dy, *tensors, *ctx.options, *wanted)
    return (
        dx if wants_x else None,
        da if wants_edges else None,
        dw.reshape(self_weight.shape).to(self_weight.dtype) if wants_self_weight else None,
        *[None] * (len(ARGUMENTS) - 3),
    )


def keep_for_double_backward(ctx: Any, inputs: tuple[Any, ...], output: Any) -> None:
    """Everything: orders beyond the first are computed by the reference, from the inputs."""
    ctx.save_for_backward(*inputs[: _TENSORS + 1])
    ctx.options = inputs[_TENSORS + 1 :]


def second_gradients(ctx: Any, *grads: Tensor) -> tuple[Tensor | None, ...]:
    """The gradient of the reference's closed form with respect to dy, x, edge_x and self_weight."""
    *differentiable, scale, rowptr, col, edge_of, t_rowptr, t_col, t_edge = ctx.saved_tensors
    edges = (rowptr, col, edge_of, t_rowptr, t_col, t_edge)
    present = [t for t in differentiable if t is not None]

    def closed_form(*tensors: Tensor) -> tuple[Tensor, ...]:
        given = iter(tensors)
        dy, x, edge_x, self_weight = (None if t is None else next(given) for t in differentiable)
        assert dy is not None
        problem = problem_of(self_weight, scale, *edges, *ctx.options[:-3])
        return reference.backward(dy, x, edge_x, problem, Wanted(*ctx.options[-3:]))

    found = iter(torch.func.vjp(closed_form, *present)[1](grads))
    of_inputs = [None if t is None else next(found) for t in differentiable]
    return *of_inputs, *[None] * (len(BACKWARD_ARGUMENTS) - 4)


# ---- eager: two autograd functions ---------------------------------------------------------------------------


class AggregateBackward(EagerFunction):
    """The gradient of :class:`Aggregate`, differentiable itself."""

    forward = staticmethod(run_backward)
    setup_context = staticmethod(keep_for_double_backward)
    backward = staticmethod(second_gradients)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(AggregateBackward.apply, BACKWARD_ARGUMENTS, _SHARED)(info, dims, *arguments)


class Aggregate(EagerFunction):
    """Arguments as in :data:`ARGUMENTS`; returns y."""

    forward = staticmethod(run_forward)
    setup_context = staticmethod(keep_for_backward)

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> Any:
        """The closed form of the reference, by the kernels."""
        return gradients(ctx, AggregateBackward.apply, dy)

    @staticmethod
    def vmap(info: Any, dims: Any, *arguments: Any) -> Any:
        """Fold the members into one call."""
        return vmap_rule(Aggregate.apply, ARGUMENTS, _SHARED)(info, dims, *arguments)


# ---- compiled: two custom operators ----------------------------------------------------------------------------


@torch.library.custom_op("graphnorm::aggregate", mutates_args=())
def aggregate_op(
    x: Tensor | None,
    edge_x: Tensor | None,
    self_weight: Tensor | None,
    scale: Tensor | None,
    rowptr: Tensor,
    col: Tensor | None,
    edge_of: Tensor | None,
    t_rowptr: Tensor | None,
    t_col: Tensor | None,
    t_edge: Tensor | None,
    constant: float,
    relu: bool,
    mean: bool,
    max_degree: int | None,
) -> Tensor:
    """:class:`Aggregate` as an operator that ``torch.compile`` and ``torch.library.opcheck`` know."""
    edges = (rowptr, col, edge_of, t_rowptr, t_col, t_edge)
    return run_forward(x, edge_x, self_weight, scale, *edges, constant, relu, mean, max_degree)


@aggregate_op.register_fake
def _(
    x: Tensor | None, edge_x: Tensor | None, self_weight: Tensor | None, scale: Any, rowptr: Tensor, *_: Any
) -> Tensor:
    features = edge_x if x is None else x
    assert features is not None
    return features.new_empty(*features.shape[:-2], rowptr.shape[-1] - 1, features.shape[-1])


@torch.library.custom_op("graphnorm::aggregate_backward", mutates_args=())
def aggregate_backward_op(
    dy: Tensor,
    x: Tensor | None,
    edge_x: Tensor | None,
    self_weight: Tensor | None,
    scale: Tensor | None,
    rowptr: Tensor,
    col: Tensor | None,
    edge_of: Tensor | None,
    t_rowptr: Tensor | None,
    t_col: Tensor | None,
    t_edge: Tensor | None,
    constant: float,
    relu: bool,
    mean: bool,
    max_degree: int | None,
    wants_x: bool,
    wants_edges: int | None,
    wants_self_weight: bool,
) -> tuple[Tensor, Tensor, Tensor]:
    """:class:`AggregateBackward` as an operator."""
    edges = (rowptr, col, edge_of, t_rowptr, t_col, t_edge)
    options = (constant, relu, mean, max_degree, wants_x, wants_edges, wants_self_weight)
    return run_backward(dy, x, edge_x, self_weight, scale, *edges, *options)


@aggregate_backward_op.register_fake
def _(dy: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    wanted, lead = Wanted(*rest[-3:]), dy.shape[:-2]
    dx, da, dw = reference.not_wanted(dy)
    dx = dy.new_empty(dy.shape) if wanted.x else dx
    da = da if wanted.edges is None else dy.new_empty(*lead, wanted.edges, dy.shape[-1])
    return dx, da, dy.new_empty(*lead, 1, dtype=computed_in(dy.dtype)) if wanted.self_weight else dw


def _op_gradients(ctx: Any, dy: Tensor) -> Any:
    return gradients(ctx, aggregate_backward_op, dy)


aggregate_op.register_autograd(_op_gradients, setup_context=keep_for_backward)
aggregate_op.register_vmap(vmap_rule(aggregate_op, ARGUMENTS, _SHARED))
aggregate_backward_op.register_autograd(second_gradients, setup_context=keep_for_double_backward)
aggregate_backward_op.register_vmap(vmap_rule(aggregate_backward_op, BACKWARD_ARGUMENTS, _SHARED))
