"""The short way for layers in eager mode: live statistics per graph, and y alone for a result.

On small batches the kernels take less time than the Python around them. So what depends on shapes and segments only
(checks, sizes, how the work is cut) is worked out at the first call and kept with the segments as a *plan*. Whatever is
out of the ordinary (functorch transforms, compilation, tensor subclasses, wrong input) is left to
:func:`graphnorm.ops.standardize.call.standardize`, which explains and covers it all.
"""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack
from torch._C._functorch import is_functorch_wrapped_tensor

from graphnorm import backends
from graphnorm.ops.standardize.autograd import StandardizeBackward
from graphnorm.ops.standardize.call import ACTIVATIONS, layout
from graphnorm.ops.standardize.choice import kernels_for
from graphnorm.ops.standardize.problem import LIVE, Problem, in_type_of
from graphnorm.segments import Segments

_PLAIN = (Tensor, torch.nn.Parameter)
_FEW_ROWS = 64  # of a single graph: GPU kernels want its boundaries then, and a plan should make no tensors of its own
_MOST_PLANS = 64  # per segments; far more than a model has widths


class _Planned(torch.autograd.Function):
    """Arguments x, residual, weight, bias, mean_scale and a plan; returns y.

    Used by its C++ half alone (:data:`_apply`), so no transform of functorch ever sees it.
    """

    @staticmethod
    def forward(
        ctx: Any,
        x: Tensor,
        residual: Tensor | None,
        weight: Tensor | None,
        bias: Tensor | None,
        mean_scale: Tensor | None,
        plan: Any,
    ) -> Tensor:
        """By the kernels; keeps the input and two numbers per graph and channel at the most."""
        y, kept = plan.forward(x, residual, (weight, bias, mean_scale))
        ctx.save_for_backward(x, weight, bias, mean_scale, *kept)
        ctx.plan = plan
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        """The closed form of the reference, by the kernels."""
        x, weight, bias, mean_scale, *kept = ctx.saved_tensors
        plan = ctx.plan
        if is_grad_enabled() or is_functorch_wrapped_tensor(dy):
            problem = plan.problem
            statistics = plan.statistics(*kept)
            dx, dweight, dbias, dmean_scale = StandardizeBackward.apply(
                dy, x, weight, bias, mean_scale, problem.ptr, problem.order, *statistics,
                problem.eps, problem.relu, problem.statistics, problem.max_size,
            )  # fmt: skip
            dweight, dbias = in_type_of(weight, dweight), in_type_of(bias, dbias)
            dmean_scale = in_type_of(mean_scale, dmean_scale)
        else:
            dx, (dweight, dbias, dmean_scale) = plan.backward(dy, x, (weight, bias, mean_scale), *kept)
        return dx, dy if ctx.needs_input_grad[1] else None, dweight, dbias, dmean_scale, None


_apply: Any = super(torch.autograd.Function, _Planned).apply


class _Prepared:
    """A plan, and what a call must look like to go by it, beyond the key it is found by."""

    __slots__ = ("device", "plan", "shape", "width")

    def __init__(self, x: Tensor, plan: Any) -> None:
        self.plan, self.device, self.shape, self.width = plan, x.device, x.shape, x.shape[1:]


def standardize_graphs(
    x: Tensor,
    segments: Segments | None,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    eps: float,
    act: str | None,
    residual: Tensor | None,
) -> Tensor | None:
    """y of :func:`~graphnorm.layers.functional.standardize`, live and per graph; ``None`` where this does not do.

    Not to be called while compiling.
    """
    if segments is None or type(x) not in _PLAIN or _are_functorch_transforms_active() or _len_torch_dispatch_stack():
        return None
    key = x.shape, x.dtype, eps, act, backends.chosen_backend()
    prepared = segments.plans.get(key)
    if prepared is None:
        prepared = _prepare(x, segments, eps, act)
        if prepared is None:
            return None
        if len(segments.plans) >= _MOST_PLANS:
            segments.plans.clear()
        segments.plans[key] = prepared
    device, width = prepared.device, prepared.width
    if (
        x.device != device
        or (weight is not None and (weight.shape != width or weight.device != device))
        or (bias is not None and (bias.shape != width or bias.device != device))
        or (mean_scale is not None and (mean_scale.shape != width or mean_scale.device != device))
        or (
            residual is not None
            and (
                type(residual) not in _PLAIN
                or residual.shape != prepared.shape
                or residual.dtype is not x.dtype
                or residual.device != device
            )
        )
    ):
        return None
    return _apply(x, residual, weight, bias, mean_scale, prepared.plan)  # type: ignore[no-any-return]


def _prepare(x: Tensor, segments: Segments, eps: float, act: str | None) -> _Prepared | None:
    """A plan for calls like this one; ``None`` where something is wrong with it, or the reference is to be used."""
    if x.dim() != 2 or not x.is_floating_point() or act not in ACTIVATIONS or segments.device != x.device:
        return None
    if segments.num_rows not in (None, x.shape[0]):
        return None
    kernels = kernels_for(x, segments.num_graphs)
    if not hasattr(kernels, "Plan"):
        return None
    ptr, order, max_size = layout(x, segments, "graph")
    if ptr is None and x.shape[0] <= _FEW_ROWS:
        ptr = segments.ptr
    problem = Problem(ptr, order, None, None, None, None, None, float(eps), act == "relu", LIVE, max_size)
    return _Prepared(x, kernels.Plan(x, problem))
