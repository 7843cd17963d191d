"""Standardization on a CPU, by the C library (``csrc/standardize.h``)."""

from __future__ import annotations

import math
from functools import lru_cache
from typing import NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import TYPES, address, contiguous, is_small, library, member_stride, output, output_like
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize.reference import DETACHED, GIVEN, LIVE, Parameters, Problem

STATISTICS = {LIVE: 0, DETACHED: 1, GIVEN: 2}


class _Sizes(NamedTuple):
    """What calls of one shape share, whatever their segments."""

    acc: torch.dtype
    statistics: tuple[int, ...]
    """([M,] G, C)."""
    dparameters: tuple[int, ...]
    """([M,] C)."""
    var_at: int
    """Where the variances begin in the buffer of the statistics, in bytes."""
    kept: tuple[int]
    """The size of that buffer, in doubles."""
    few: bool
    """Whether it comes from torch's allocator."""
    members: int


@lru_cache(maxsize=1024)
def _sizes(shape: torch.Size, dtype: torch.dtype, graphs: int) -> _Sizes:
    acc, double = accumulation_dtype(dtype), torch.float64
    statistics = (*shape[:-2], graphs, shape[-1])
    count = math.prod(statistics)
    kept = (count + -(-count * acc.itemsize // double.itemsize),)
    members = shape[0] if len(shape) == 3 else 1
    dparameters = (*shape[:-2], shape[-1])
    return _Sizes(acc, statistics, dparameters, count * double.itemsize, kept, is_small(kept, double), members)


class CallPlan:
    """All that calls of one shape over the same segments share, in the form that the library takes."""

    __slots__ = ("_alive", "acc", "dparameters", "few", "kept", "problem", "shape", "shared", "var_at")

    def __init__(self, x: Tensor, problem: Problem) -> None:
        assert library is not None
        shape, graphs = x.shape, problem.graphs
        ptr, order = contiguous(problem.ptr, torch.int64), contiguous(problem.order, torch.int64)
        self._alive, self.problem = (ptr, order), problem
        sizes = _sizes(shape, x.dtype, graphs)
        self.acc, self.shape, self.dparameters, self.var_at, self.kept, self.few, members = sizes
        self.shared = library.standardize_plan(
            float(problem.eps),
            TYPES[x.dtype],
            members,
            shape[-2],
            shape[-1],
            graphs,
            address(ptr),
            member_stride(ptr),
            address(order),
            member_stride(order),
            int(problem.relu),
            STATISTICS[problem.statistics],
        )

    def forward(self, x: Tensor, residual: Tensor | None, parameters: Parameters) -> tuple[Tensor, tuple[Tensor, ...]]:
        """y, and the statistics in one buffer for :meth:`backward`: all means (double), then all variances."""
        kept = torch.empty(self.kept, dtype=torch.float64) if self.few else output(self.kept, torch.float64)
        mean = kept.data_ptr()
        return self.apply(x, residual, parameters, mean, mean + self.var_at), (kept,)

    def backward(self, dy: Tensor, x: Tensor, parameters: Parameters, kept: Tensor) -> tuple[Tensor, Parameters]:
        """dx, and the gradients of those parameters that are there."""
        mean = kept.data_ptr()
        weight, bias, mean_scale = parameters
        like, acc = torch.empty_like, self.acc  # quicker than from a shape
        dparameters = (
            None if weight is None else like(weight, dtype=acc),
            None if bias is None else like(bias, dtype=acc),
            None if mean_scale is None else like(mean_scale, dtype=acc),
        )
        return self.gradient(dy, x, parameters, dparameters, mean, mean + self.var_at), dparameters

    def statistics(self, kept: Tensor) -> tuple[Tensor, Tensor]:
        """Mean and variance, ([M,] G, C), in the buffer of :meth:`forward`."""
        count = math.prod(self.shape)
        return kept[:count].view(self.shape), kept[count:].view(self.acc)[:count].view(self.shape)

    def average(self, kept: Tensor, running_mean: Tensor, running_var: Tensor, weight: float, unbias: float) -> None:
        """Move running averages towards the statistics in ``kept``, the variance times n/(n-1)."""
        assert library is not None
        mean = kept.data_ptr()
        library.average(
            weight, unbias, TYPES[self.acc], self.dparameters[-1], mean, mean + self.var_at, running_mean.data_ptr(),
            running_var.data_ptr(),
        )  # fmt: skip

    def apply(self, x: Tensor, residual: Tensor | None, parameters: Parameters, mean: int, var: int) -> Tensor:
        """y. Statistics are read from or written to the addresses ``mean`` and ``var``."""
        assert library is not None
        x = x if x.is_contiguous() else x.contiguous()
        y, acc = output_like(x), self.acc
        weight, bias, mean_scale = parameters
        weight, bias, mean_scale = contiguous(weight, acc), contiguous(bias, acc), contiguous(mean_scale, acc)
        residual = None if residual is None else residual.contiguous()
        library.standardize_forward(
            self.shared, torch.get_num_threads(), address(weight), address(bias), address(mean_scale), mean, var,
            x.data_ptr(), y.data_ptr(), address(residual),
        )  # fmt: skip
        return y

    def gradient(
        self, dy: Tensor, x: Tensor, parameters: Parameters, dparameters: Parameters, mean: int, var: int
    ) -> Tensor:
        """dx, from the statistics at ``mean`` and ``var``. Gradients of parameters are written to ``dparameters``."""
        assert library is not None
        dy, x = dy if dy.is_contiguous() else dy.contiguous(), x if x.is_contiguous() else x.contiguous()
        dx, acc = output_like(x), self.acc
        weight, bias, mean_scale = parameters
        weight, bias, mean_scale = contiguous(weight, acc), contiguous(bias, acc), contiguous(mean_scale, acc)
        dweight, dbias, dmean_scale = dparameters
        library.standardize_backward(
            self.shared, torch.get_num_threads(), address(weight), address(bias), address(mean_scale), mean, var,
            x.data_ptr(), dx.data_ptr(), dy.data_ptr(), address(dweight), address(dbias), address(dmean_scale),
        )  # fmt: skip
        return dx


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.forward`."""
    plan = CallPlan(x, problem)
    if problem.mean is None or problem.var is None:
        mean, var = torch.empty(plan.shape, dtype=torch.float64), torch.empty(plan.shape, dtype=plan.acc)
    else:
        mean, var = problem.mean.to(torch.float64).contiguous(), problem.var.to(plan.acc).contiguous()
    return plan.apply(x, residual, problem.parameters, mean.data_ptr(), var.data_ptr()), mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.backward`."""
    assert problem.mean is not None and problem.var is not None
    plan = CallPlan(x, problem)
    mean, var = problem.mean.to(torch.float64).contiguous(), problem.var.to(plan.acc).contiguous()
    dweight, dbias, dmean_scale = (torch.empty(plan.dparameters, dtype=plan.acc) for _ in range(3))
    dparameters = dweight, dbias, dmean_scale
    dx = plan.gradient(dy, x, problem.parameters, dparameters, mean.data_ptr(), var.data_ptr())
    return dx, dweight, dbias, dmean_scale
