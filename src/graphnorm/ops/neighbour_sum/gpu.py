"""Aggregation on a GPU: plans and launches the Triton kernels. Nothing here waits for the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from graphnorm.ops.neighbour_sum import gpu_kernels as kernels
from graphnorm.ops.neighbour_sum import reference
from graphnorm.ops.neighbour_sum.problem import Problem, Wanted
from graphnorm.ops.standardize.gpu_launch import Tile, kinds, launch, power_of_two
from graphnorm.ops.standardize.problem import computed_in

_MANY_PROGRAMS = 4096  # more than the device holds at a time, several times over
_UNROLL_CHUNK = 8  # edges of a long row on their way at a time
_DENSE = 12  # edges per row, from which on a row has a warp to itself


class Plan(NamedTuple):
    """How one call is cut into programs."""

    rows: Tile  # of ordinary rows
    unroll: int  # edges on their way at a time
    limit: int  # rows with more edges are long
    chunk: Tile  # of long rows: the kernel that reads,
    join: Tile  # and the one that adds up
    edges: Tile  # of the gradients of edges


@lru_cache(maxsize=4096)
def plan(members: int, rows: int, edges: int, channels: int) -> Plan:
    """Decided by the average number of edges, padding included: no more is known without asking the device."""
    block = 128 if channels % 128 == 0 else min(64, power_of_two(channels))
    blocks = -(-channels // block)
    dense = edges > _DENSE * rows
    if dense:
        by_row, unroll, limit = Tile(1, block, 1), 8, 512
    else:
        height = min(64, max(16, 1024 // block))
        few = members * rows * blocks < _MANY_PROGRAMS * height // 4
        by_row, unroll, limit = Tile(height // 4, block, 1) if few else Tile(height, block, 4), 4, 256
    chunk, join = Tile(1, block, 1), Tile(16, block, 2)
    return Plan(by_row, unroll, limit, chunk, join, Tile(32, block, 4))


def _ready(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _stride(tensor: Tensor | None) -> int:
    """From one member to the next; 0 where they share it."""
    return 0 if tensor is None or tensor.dim() == 1 else tensor.shape[1]


class _Edges(NamedTuple):
    """One direction of the edges, ready for the kernels."""

    rowptr: Tensor
    col: Tensor | None
    edge_of: Tensor | None
    scale: Tensor | None
    degree: Tensor | None  # rowptr of the other direction, where neighbours share out what they send

    def strides(self) -> tuple[int, ...]:
        return tuple(_stride(t) for t in self)


def _sums(
    values: Tensor | None,
    edge_values: Tensor | None,
    x: Tensor | None,
    edges: _Edges,
    problem: Problem,
    direction: int,
    partial_of: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The kernels that serve both directions: out, ([M,] R, C), and where wanted the parts of dw, ([M,] parts)."""
    features = edge_values if values is None else values
    assert features is not None
    lead, channels = features.shape[:-2], features.shape[-1]
    members, rows = lead[0] if lead else 1, edges.rowptr.shape[-1] - 1
    count = edge_values.shape[-2] if edges.col is None and edge_values is not None else _length(edges.col)
    cut = plan(members, rows, count, channels)
    acc = tl.float64 if features.dtype == torch.float64 else tl.float32
    out = torch.empty((*lead, rows, channels), dtype=features.dtype, device=features.device)
    tiles, blocks = -(-rows // cut.rows.rows), -(-channels // cut.rows.channels)
    wide = computed_in(features.dtype)
    partial = torch.empty((*lead, tiles * blocks), dtype=wide, device=out.device) if partial_of else None
    self_weight, mean = _ready(problem.self_weight), problem.mean and direction == kernels.FORWARD
    tensors = (values, edge_values, x, out, *edges[:3], edges.scale, edges.degree, self_weight, partial)
    sizes = (rows, count, *edges.strides())
    key = (kinds(*tensors), channels, problem.constant, problem.relu, mean, direction, cut.unroll)
    options: tuple[Any, ...] = (problem.relu, mean, direction, acc, cut.unroll)
    arguments: tuple[Any, ...] = (*tensors, *sizes, tiles, cut.limit)
    launch(
        kernels.sum_rows, key, members * tiles * blocks, cut.rows, arguments, channels, problem.constant, *options
    )  # fmt: skip
    longest = count if problem.max_degree is None else min(count, problem.max_degree)
    if longest > cut.limit:
        chunks = -(-count // cut.limit)
        slots = torch.empty((members * chunks * 2, channels), dtype=wide, device=out.device)
        programs = members * chunks * 2 * blocks
        arguments = (values, edge_values, x, *edges, slots, *sizes, chunks, cut.limit)
        options = (problem.relu, direction, acc, _UNROLL_CHUNK)
        launch(kernels.sum_chunks, key, programs, cut.chunk, arguments, channels, *options)
        arguments = (values, out, edges.rowptr, edges.scale, self_weight, slots, rows, count)
        arguments += (_stride(edges.rowptr), _stride(edges.scale), chunks, cut.limit)
        launch(kernels.join_chunks, key, programs, cut.join, arguments, channels, problem.constant, mean, acc)
    return out, partial


def _length(col: Tensor | None) -> int:
    assert col is not None
    return col.shape[-1]


def _ahead(problem: Problem) -> _Edges:
    arrays = (problem.rowptr.contiguous(), _ready(problem.col), _ready(problem.edge_of))
    return _Edges(*arrays, _ready(problem.scale), None)


def forward(x: Tensor | None, edge_x: Tensor | None, problem: Problem) -> Tensor:
    """The Triton twin of :func:`graphnorm.ops.neighbour_sum.reference.forward`."""
    return _sums(_ready(x), _ready(edge_x), None, _ahead(problem), problem, kernels.FORWARD)[0]


def backward(
    dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.neighbour_sum.reference.backward`."""
    dy, x, edge_x = dy.contiguous(), _ready(x), _ready(edge_x)
    dx, da, dw = reference.not_wanted(dy)
    if wanted.x:
        assert problem.t_rowptr is not None
        degree = problem.rowptr.contiguous() if problem.mean else None
        reverse = (problem.t_rowptr.contiguous(), _ready(problem.t_col), _ready(problem.t_edge))
        edges = _Edges(*reverse, _ready(problem.scale), degree)
        own = x if problem.relu or wanted.self_weight else None
        masked = edge_x if problem.relu else None
        dx, partial = _sums(dy, masked, own, edges, problem, kernels.BACKWARD, wanted.self_weight)
        if partial is not None:
            dw = partial.sum(-1, keepdim=True, dtype=torch.float64).to(partial.dtype)
    elif wanted.self_weight:
        dw = reference.backward(dy, x, edge_x, problem, Wanted(False, None, True))[2]
    if wanted.edges is not None:
        da = _edge_gradient(dy, x, edge_x, problem, wanted.edges)
    return dx, da, dw


def _edge_gradient(dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, count: int) -> Tensor:
    """da, ([M,] E, C)."""
    lead, rows, channels = dy.shape[:-2], problem.rows, dy.shape[-1]
    members, edges = lead[0] if lead else 1, _ahead(problem)
    tile = plan(members, rows, count, channels).edges
    out = torch.empty((*lead, count, channels), dtype=dy.dtype, device=dy.device)
    tiles = -(-count // tile.rows)
    acc = tl.float64 if dy.dtype == torch.float64 else tl.float32
    masked = (x, edge_x) if problem.relu else (None, None)
    tensors = (dy, *masked, out, *edges[:4])
    key = (kinds(*tensors), channels, problem.relu, problem.mean)
    arguments = (*tensors, rows, count, *edges.strides()[:4], tiles, max(1, rows).bit_length())
    programs = members * tiles * -(-channels // tile.channels)
    launch(kernels.edge_gradient, key, programs, tile, arguments, channels, problem.relu, problem.mean, acc)
    return out
