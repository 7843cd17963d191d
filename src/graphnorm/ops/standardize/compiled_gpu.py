"""Standardization of graphs under ``torch.compile`` on a GPU: Triton kernels that compiled programs launch themselves.

One launch forward and one backward, whatever the sizes are, since a compiled program serves all of them. So a graph is
done by one program, however long it is; :func:`suits` leaves batches of few, long graphs to the operation's kernels.
"""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl
from torch import Tensor
from torch.fx.experimental.symbolic_shapes import guard_or_false
from torch.library import wrap_triton

from graphnorm.backends import contiguous, interpreted
from graphnorm.launch import on_device, power_of_two
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize.kernels import (
    SIZES,
    before_relu,
    coefficients,
    finish,
    gradient_coefficients,
    gradient_of,
    join_tile,
    load,
    load_first,
    split,
    statistics_of,
    store_shares,
)
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Problem, statistics_shape
from graphnorm.ops.tiles_gpu import tile_mask

__all__ = ["backward", "forward", "suits"]

_ROWS, _WARPS = 32, 2  # of a program
_RUN = 2  # graphs of a program, backward: half the memory for their shares
_LONG = 1024  # rows of a graph on average, from which on a graph is better shared by several programs


# Inductor copies every argument that a kernel may change. To find those it follows the address of each store back, and
# gives up at a function that loads. So the kernels load `order` themselves.


@triton.jit(do_not_specialize=SIZES)
def forward_graphs(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, rows, segments,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, DOUBLE: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y, mean and variance of one graph and block of channels."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    g = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    tile = tl.arange(0, BR)
    first = tl.minimum(tl.maximum(tl.load(ptr + g), 0), rows)
    last = tl.minimum(tl.maximum(tl.load(ptr + g + 1), first), rows)
    n = last - first
    stored = g * CHANNELS + channel
    if GIVEN:
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
    else:
        base = tl.zeros((BC,), ACC)
        above = tl.zeros((BC,), ACC)
        m2 = tl.zeros((BC,), ACC)
        for start in range(0, n, BR):
            inside = start + tile < n
            row = first + start + tile
            if order is not None:
                row = tl.load(order + row, mask=inside, other=0)
            mask = tile_mask(inside, channel, CHANNELS, BC)
            values = load_first(x, row[:, None] * CHANNELS + channel[None, :], mask, ACC)
            base, above, m2 = join_tile(base, above, m2, values, mask, start, n, ACC, BR)
        wide = base.to(tl.float64) + above.to(tl.float64)
        centre, rest = split(wide, ACC)
        spread = m2 / tl.maximum(n, 1).to(ACC)
        tl.store(mean + stored, wide, mask=in_channels)
        tl.store(var + stored, spread, mask=in_channels)
    _a, _k, _r, scale, offset = coefficients(
        centre, rest, spread, weight, bias, mean_scale, channel, in_channels, EPS, ACC, BC
    )
    for start in range(0, n, BR):
        inside = start + tile < n
        row = first + start + tile
        if order is not None:
            row = tl.load(order + row, mask=inside, other=0)
        at = row[:, None] * CHANNELS + channel[None, :]
        mask = tile_mask(inside, channel, CHANNELS, BC)
        z = scale[None, :] * (load(x, at, mask, ACC) - centre[None, :]) + offset[None, :]
        finish(y, residual, at, mask, z, RELU, ACC)
    before = tl.where(g == 0, first, 0)  # rows of no graph are left to the first and the last one
    after = tl.where(g == segments - 1, rows - last, 0)
    for start in range(0, before + after, BR):
        inside = start + tile < before + after
        row = start + tile
        row = tl.where(row < before, row, row - before + last)
        if order is not None:
            row = tl.load(order + row, mask=inside, other=0)
        at = row[:, None] * CHANNELS + channel[None, :]
        finish(y, residual, at, tile_mask(inside, channel, CHANNELS, BC), tl.zeros((BR, BC), ACC), False, ACC)


@triton.jit(do_not_specialize=SIZES)
def backward_graphs(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, rows, segments, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, DOUBLE: tl.constexpr,
    RUN: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of RUN graphs and one block of channels, and their share of the parameters' gradients."""
    ACC: tl.constexpr = tl.float64 if DOUBLE else tl.float32
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    run = (tl.program_id(0) // blocks).to(tl.int64)
    plane = tl.cast(plane, tl.int64)  # not .to: a plane of 1 may be a constant
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    tile = tl.arange(0, BR)
    all_weight = tl.zeros((BC,), ACC)
    all_bias = tl.zeros((BC,), ACC)
    all_mean_scale = tl.zeros((BC,), ACC)
    for g in range(run * RUN, tl.minimum(run * RUN + RUN, segments)):
        first = tl.minimum(tl.maximum(tl.load(ptr + g), 0), rows)
        last = tl.minimum(tl.maximum(tl.load(ptr + g + 1), first), rows)
        n = last - first
        centre, rest, spread = statistics_of(mean, var, g * CHANNELS + channel, in_channels, ACC)
        alpha, kept, r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, channel, in_channels, EPS, ACC, BC
        )
        P = tl.zeros((BC,), ACC)
        Q = tl.zeros((BC,), ACC)
        for start in range(0, n, BR):
            inside = start + tile < n
            row = first + start + tile
            if order is not None:
                row = tl.load(order + row, mask=inside, other=0)
            at = row[:, None] * CHANNELS + channel[None, :]
            mask = tile_mask(inside, channel, CHANNELS, BC)
            d = load_first(x, at, mask, ACC) - centre[None, :]
            dz = before_relu(load_first(dy, at, mask, ACC), d, scale, offset, RELU)
            P += tl.sum(dz, 0)
            Q += tl.sum(dz * d, 0)
        slope, constant, of_weight, of_mean_scale = gradient_coefficients(
            P, Q, n, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
        )
        for start in range(0, n, BR):
            inside = start + tile < n
            row = first + start + tile
            if order is not None:
                row = tl.load(order + row, mask=inside, other=0)
            at = row[:, None] * CHANNELS + channel[None, :]
            mask = tile_mask(inside, channel, CHANNELS, BC)
            d = load(x, at, mask, ACC) - centre[None, :]
            found = gradient_of(load(dy, at, mask, ACC), d, scale, offset, slope, constant, RELU)
            tl.store(dx + at, found, mask=mask)
        before = tl.where(g == 0, first, 0)
        after = tl.where(g == segments - 1, rows - last, 0)
        for start in range(0, before + after, BR):
            inside = start + tile < before + after
            row = start + tile
            row = tl.where(row < before, row, row - before + last)
            if order is not None:
                row = tl.load(order + row, mask=inside, other=0)
            at = row[:, None] * CHANNELS + channel[None, :]
            tl.store(dx + at, tl.zeros((BR, BC), ACC), mask=tile_mask(inside, channel, CHANNELS, BC))
        all_weight += of_weight
        all_bias += P
        all_mean_scale += of_mean_scale
    store_shares(shares, plane, run * CHANNELS + channel, in_channels, all_weight, all_bias, all_mean_scale)


def suits(x: Tensor, problem: Problem) -> bool:
    """Whether these kernels are the better ones. While compiling, a guard on sizes that are not constants."""
    return guard_or_false(x.shape[0] <= _LONG * problem.graphs)


def _launch(kernel: Any, count: int, x: Tensor, *arguments: Any) -> None:
    width = x.shape[1]
    block = min(64, power_of_two(width))
    kernel = kernel if interpreted() else wrap_triton(kernel)
    with on_device(x.device):
        kernel[(count * -(-width // block),)](x, *arguments, _ROWS, block, num_warps=_WARPS)


def forward(x: Tensor, residual: Tensor | None, problem: Problem, relu: int) -> tuple[Tensor, Tensor, Tensor]:
    """y; mean and variance of each graph, those given if they are."""
    acc, (rows, width), x = accumulation_dtype(x.dtype), x.shape, x.contiguous()
    y, mean, var = torch.empty_like(x), contiguous(problem.mean), contiguous(problem.var)
    if mean is None or var is None:
        shape = statistics_shape(x, problem.graphs)
        mean, var = x.new_empty(shape, dtype=torch.float64), x.new_empty(shape, dtype=acc)
    arrays = (residual, problem.ptr, problem.order, *problem.parameters, mean, var)
    _launch(
        forward_graphs, problem.graphs, x, y, *map(contiguous, arrays), rows, problem.graphs,
        width, problem.eps, relu, problem.statistics == GIVEN, acc == torch.float64,
    )  # fmt: skip
    return y, mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem, relu: int) -> tuple[Tensor, Tensor]:
    """dx, and the gradients of weight, bias and mean_scale in parts that are to be added up, (3, parts, C)."""
    acc, (rows, width) = accumulation_dtype(x.dtype), x.shape
    x, parts = x.contiguous(), (problem.graphs + _RUN - 1) // _RUN
    dx, shares = torch.empty_like(x), x.new_empty(3, parts, width, dtype=acc)
    arrays = (problem.ptr, problem.order, *problem.parameters, problem.mean, problem.var)
    _launch(
        backward_graphs, parts, x, dy.contiguous(), dx, *map(contiguous, arrays), shares,
        rows, problem.graphs, parts * width,
        width, problem.eps, relu, problem.statistics == LIVE, acc == torch.float64, _RUN,
    )  # fmt: skip
    return dx, shares
