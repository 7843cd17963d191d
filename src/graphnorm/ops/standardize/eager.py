"""A quick path for layers in eager mode, whose statistics run over the rows of a graph, or over all rows.

On small batches the Python around a kernel takes longer than the kernel. So all that depends on shapes and segments
alone (checks, sizes, how the work is divided) is worked out at the first call and kept with the segments as a *plan*.
Everything else (torch.func transforms, compilation, tensor subclasses, wrong input) is left to
:func:`graphnorm.ops.standardize.api.standardize`, which checks and explains it.
"""

from __future__ import annotations

from collections import defaultdict
from typing import Any

import torch
from torch import Tensor, is_grad_enabled
from torch._C import _are_functorch_transforms_active, _len_torch_dispatch_stack
from torch._C._functorch import is_functorch_wrapped_tensor

from graphnorm.backends import chosen_backend
from graphnorm.ops.dispatch import is_plain
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize import cpu
from graphnorm.ops.standardize.api import ACTIVATIONS, kernels_for, layout, standardize_op
from graphnorm.ops.standardize.reference import LIVE, Problem
from graphnorm.segments import Segments

_FEW_ROWS = 64  # of a single graph: GPU kernels then need its boundaries, and the segments have them already
_MAX_PLANS = 64  # per segments; far more than a model has widths
_plans_of_one_graph: dict[Any, Any] = defaultdict(dict)  # by device, without segments: they hold no tensors


class _Planned(torch.autograd.Function):
    """y of x, residual, weight, bias, mean_scale and a plan. Called by :data:`_apply` alone, outside of transforms.

    ``averages`` are the running averages to update, with the arguments of the plan's ``average``; or ``None``.
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
        averages: tuple[Any, ...] | None,
    ) -> Tensor:
        y, kept = plan.forward(x, residual, (weight, bias, mean_scale))
        if averages is not None:
            plan.average(*kept, *averages)
        ctx.save_for_backward(x, weight, bias, mean_scale, *kept)
        ctx.plan = plan
        return y  # type: ignore[no-any-return]

    @staticmethod
    def backward(ctx: Any, dy: Tensor) -> tuple[Tensor | None, ...]:
        x, weight, bias, mean_scale, *kept = ctx.saved_tensors
        plan, parameters = ctx.plan, (weight, bias, mean_scale)
        if is_grad_enabled() or is_functorch_wrapped_tensor(dy):
            mean, var = plan.statistics(*kept)
            problem = plan.problem._replace(weight=weight, bias=bias, mean_scale=mean_scale, mean=mean, var=var)
            dx, *dparameters = standardize_op.backward(dy, x, *problem)
            dparameters = [d if p is not None else None for d, p in zip(dparameters, parameters, strict=True)]
        else:
            dx, dparameters = plan.backward(dy, x, parameters, *kept)
        return dx, dy if ctx.needs_input_grad[1] else None, *dparameters, None, None


_apply: Any = super(torch.autograd.Function, _Planned).apply


def standardize_graphs(
    x: Tensor,
    segments: Segments | None,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    eps: float,
    act: str | None,
    residual: Tensor | None,
    statistics: str = LIVE,
    averages: tuple[Tensor, Tensor, float, float] | None = None,
) -> Tensor | None:
    """y of :func:`~graphnorm.ops.standardize.api.standardize`, or ``None`` where the quick path cannot take the call.

    Not to be called while compiling. ``averages`` are running averages of mean and variance to update, the weight of
    this batch in them, and n/(n-1).
    """
    if _are_functorch_transforms_active() or _len_torch_dispatch_stack():
        return None
    if not is_plain(x, weight, bias, mean_scale, residual):
        return None
    if averages is not None and not _can_update(x, *averages[:2]):
        return None
    plans = _plans_of_one_graph[x.device] if segments is None else segments.plans
    key = x.shape, x.dtype, eps, act, statistics, chosen_backend()
    known = plans.get(key)
    if known is None:
        plan = _make_plan(x, segments, eps, act, statistics)
        if plan is None:
            return None
        if len(plans) >= _MAX_PLANS:
            plans.clear()
        known = plans[key] = (plan, x.device, x.shape, x.shape[1:])
    plan, device, shape, width = known
    if (
        x.device != device
        or (weight is not None and (weight.shape != width or weight.device != device))
        or (bias is not None and (bias.shape != width or bias.device != device))
        or (mean_scale is not None and (mean_scale.shape != width or mean_scale.device != device))
        or (
            residual is not None
            and (
                not isinstance(residual, Tensor)
                or residual.shape != shape
                or residual.dtype is not x.dtype
                or residual.device != device
            )
        )
    ):
        return None
    return _apply(x, residual, weight, bias, mean_scale, plan, averages)  # type: ignore[no-any-return]


def _can_update(x: Tensor, *averages: Tensor) -> bool:
    """Whether a plan can update these running averages of x's channels."""
    acc, width = accumulation_dtype(x.dtype), x.shape[1:]
    return is_plain(*averages) and all(
        a.dtype is acc and a.shape == width and a.device == x.device and a.is_contiguous() for a in averages
    )


def _make_plan(x: Tensor, segments: Segments | None, eps: float, act: str | None, statistics: str) -> Any:
    """A plan for calls like this one; ``None`` where the call is wrong, or left to the reference."""
    if x.dim() != 2 or not x.is_floating_point() or act not in ACTIVATIONS:
        return None
    if segments is not None and (segments.device != x.device or segments.num_rows not in (None, x.shape[0])):
        return None
    kernels = kernels_for(x, 1 if segments is None else segments.num_graphs)
    if not hasattr(kernels, "CallPlan"):
        return None
    if segments is None and x.shape[0] <= _FEW_ROWS and kernels is not cpu:  # its plan would hold the boundaries
        return None
    ptr, order, max_size = layout(x, segments, "graph")
    if ptr is None and x.shape[0] <= _FEW_ROWS and segments is not None:
        ptr = segments.ptr
    return kernels.CallPlan(
        x, Problem(None, None, None, ptr, order, None, None, float(eps), act == "relu", statistics, max_size)
    )
