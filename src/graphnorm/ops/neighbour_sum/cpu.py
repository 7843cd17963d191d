"""Sums over neighbours on a CPU, by the C library (``csrc/neighbour_sum.h``)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.backends import TYPES, address, contiguous, library, member_stride, output
from graphnorm.ops.neighbour_sum import reference
from graphnorm.ops.neighbour_sum.reference import Problem, Wanted
from graphnorm.ops.precision import accumulation_dtype

_FORWARD, _BACKWARD, _EDGE_GRADIENT = 0, 1, 2


def _run(
    direction: int,
    values: Tensor | None,
    edge_values: Tensor | None,
    x: Tensor | None,
    out: Tensor,
    edges: tuple[Tensor | None, ...],
    count: int,
    problem: Problem,
    dw: Tensor | None = None,
) -> None:
    """``edges`` are rowptr, col, edge_of and degree; ``count`` is E."""
    assert library is not None
    kept = [contiguous(t) for t in edges]
    rowptr = kept[0]
    assert rowptr is not None
    acc = accumulation_dtype(out.dtype)
    scale, self_weight = contiguous(problem.scale, acc), contiguous(problem.self_weight, acc)
    arrays: list[int] = []
    for t in kept:
        arrays += (0, 0, 0) if t is None else (t.data_ptr(), member_stride(t), t.dtype == torch.int32)
    library.neighbour_sum(
        problem.constant,
        TYPES[out.dtype],
        out.shape[0] if out.dim() == 3 else 1,
        rowptr.shape[-1] - 1,
        count,
        out.shape[-1],
        address(values),
        address(edge_values),
        address(x),
        out.data_ptr(),
        *arrays,
        address(scale),
        member_stride(scale),
        address(self_weight),
        problem.relu,
        problem.mean,
        direction,
        torch.get_num_threads(),
        address(dw),
    )


def forward(x: Tensor | None, edge_x: Tensor | None, problem: Problem) -> Tensor:
    """As :func:`graphnorm.ops.neighbour_sum.reference.forward`."""
    x, edge_x = contiguous(x), contiguous(edge_x)
    features = edge_x if x is None else x
    assert features is not None
    out = output((*features.shape[:-2], problem.rows, features.shape[-1]), features.dtype)
    count = reference.count_edges(problem, edge_x)
    _run(_FORWARD, x, edge_x, None, out, (problem.rowptr, problem.col, problem.edge_of, None), count, problem)
    return out


def backward(
    dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.neighbour_sum.reference.backward`."""
    dy, x, edge_x = dy.contiguous(), contiguous(x), contiguous(edge_x)
    dx, da, dw = reference.not_wanted(dy)
    lead, channels = dy.shape[:-2], dy.shape[-1]
    if wanted.dx:
        assert problem.t_col is not None
        dx = output(dy.shape, dy.dtype)
        total = torch.empty(lead, dtype=torch.float64) if wanted.dw else None
        reverse = (problem.t_rowptr, problem.t_col, problem.t_edge, problem.rowptr if problem.mean else None)
        masked = edge_x if problem.relu else None
        _run(_BACKWARD, dy, masked, x, dx, reverse, problem.t_col.shape[-1], problem, total)
        dw = dw if total is None else total.to(dw.dtype)
    elif wanted.dw:
        dw = reference.backward(dy, x, edge_x, problem, Wanted(False, None, True))[2]
    if wanted.da is not None:
        da = output((*lead, wanted.da, channels), dy.dtype)
        ahead = (problem.rowptr, problem.col, problem.edge_of, None)
        masked_x, masked_edges = (x, edge_x) if problem.relu else (None, None)
        _run(_EDGE_GRADIENT, dy, masked_edges, masked_x, da, ahead, wanted.da, problem)
    return dx, da, dw
