"""Standardization on the CPU: hands addresses and sizes to the C library (``csrc/standardize.h``)."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphnorm.kernels import library
from graphnorm.ops.standardize.problem import DETACHED, GIVEN, LIVE, Problem, computed_in, statistics_shape

_TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
if library is not None and library.HAS_FLOAT16:
    _TYPES[torch.float16] = 3
_STATISTICS = {LIVE: 0, DETACHED: 1, GIVEN: 2}


def available(x: Tensor) -> bool:
    """Whether the library was built and has a kernel for this tensor."""
    return library is not None and x.dtype in _TYPES and x.is_cpu


def _address(tensor: Tensor | None) -> int:
    return 0 if tensor is None else tensor.data_ptr()


def _ready(tensor: Tensor | None, dtype: torch.dtype) -> Tensor | None:
    """The tensor as the library wants it: contiguous, of this type."""
    if tensor is None or (tensor.dtype == dtype and tensor.is_contiguous()):
        return tensor
    return tensor.to(dtype).contiguous()


def _arguments(x: Tensor, out: Tensor, mean: Tensor, var: Tensor, problem: Problem) -> tuple[tuple[Any, ...], Any]:
    """What both kernels take, in the order of ``csrc/kernels.c``, and the tensors that must outlive the call."""
    acc, shape = computed_in(x.dtype), x.shape
    ptr, order = _ready(problem.ptr, torch.int64), _ready(problem.order, torch.int64)
    weight, bias, mean_scale = _ready(problem.weight, acc), _ready(problem.bias, acc), _ready(problem.mean_scale, acc)
    arguments = (
        float(problem.eps),
        _TYPES[x.dtype],
        shape[0] if len(shape) == 3 else 1,
        shape[-2],
        shape[-1],
        problem.graphs,
        _address(ptr),
        0 if ptr is None or ptr.dim() == 1 else ptr.shape[1],
        _address(order),
        0 if order is None or order.dim() == 1 else shape[-2],
        _address(weight),
        _address(bias),
        _address(mean_scale),
        mean.data_ptr(),
        var.data_ptr(),
        int(problem.relu),
        _STATISTICS[problem.statistics],
        torch.get_num_threads(),
        x.data_ptr(),
        out.data_ptr(),
    )
    return arguments, (ptr, order, weight, bias, mean_scale)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The C twin of :func:`graphnorm.ops.standardize.reference.forward`."""
    assert library is not None
    x, y = x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    acc = computed_in(x.dtype)
    if problem.mean is None or problem.var is None:
        shape = statistics_shape(x, problem.graphs)
        mean, var = torch.empty(shape, dtype=torch.float64), torch.empty(shape, dtype=acc)
    else:
        mean, var = problem.mean.to(torch.float64).contiguous(), problem.var.to(acc).contiguous()
    residual = None if residual is None else residual.contiguous()
    arguments, _alive = _arguments(x, y, mean, var, problem)
    library.forward(*arguments, _address(residual))
    return y, mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The C twin of :func:`graphnorm.ops.standardize.reference.backward`."""
    assert library is not None and problem.mean is not None and problem.var is not None
    dy, x, dx = dy.contiguous(), x.contiguous(), torch.empty(x.shape, dtype=x.dtype)
    mean, var = problem.mean.to(torch.float64).contiguous(), problem.var.to(computed_in(x.dtype)).contiguous()
    gradients = torch.empty(3, *x.shape[:-2], x.shape[-1], dtype=computed_in(x.dtype))
    arguments, _alive = _arguments(x, dx, mean, var, problem)
    library.backward(*arguments, _address(dy), _address(gradients))
    dweight, dbias, dmean_scale = gradients.unbind()
    return dx, dweight, dbias, dmean_scale
