"""Standardization on a GPU: plans and launches the Triton kernels. Nothing here waits for the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.ops.standardize import gpu_long as long
from graphnorm.ops.standardize import gpu_short as short
from graphnorm.ops.standardize.problem import GIVEN, LIVE, Problem, computed_in, statistics_shape

_UNLIMITED = 2**62  # rows: no segment is longer
_LARGEST_TILE = 64  # rows of a segment that still fits the registers of one program
_WINDOWS_JOINED = 32  # windows of a long segment that are joined at once


class Tile(NamedTuple):
    """What one program holds at a time, ``rows`` × ``channels`` elements, and its warps."""

    rows: int
    channels: int
    warps: int

    def programs(self, count: int, channels: int) -> tuple[int]:
        """The grid for ``count`` programs per block of channels."""
        return (count * -(-channels // self.channels),)


class Plan(NamedTuple):
    """How one call is cut into programs."""

    forward: Tile
    backward: Tile
    long: Tile
    fits: bool  # every segment fits one tile
    forward_run: int  # segments per program, where they fit
    backward_run: int  # segments per program
    window: int  # rows per window; 0: no segment can be longer than one
    windows: int  # windows per member

    @property
    def limit(self) -> int:
        """Segments of more rows are long."""
        return self.window or _UNLIMITED


@lru_cache(maxsize=4096)
def plan(members: int, rows: int, channels: int, graphs: int, largest: int) -> Plan:
    """``largest`` bounds the rows of one segment. The numbers are tuned on an H200; see benchmarks/."""
    width = min(64, _power_of_two(channels))
    blocks = -(-channels // width)
    segments = members * graphs * blocks
    if largest <= _LARGEST_TILE:
        height = max(16, _power_of_two(largest))
        return Plan(
            Tile(height, width, 2),
            Tile(height, width, 4),
            Tile(0, 0, 0),
            True,
            max(1, min(16, segments // 8192)),
            max(1, min(16, segments // 8192)),
            0,
            0,
        )
    tile = Tile(64, width, 4)
    window = min(2048, max(128, _power_of_two(members * rows * blocks // 2048)))
    if largest <= max(window, 512):
        window = 0
    run = max(1, min(16, segments // 8192))
    return Plan(tile, tile, tile, False, 1, run, window, -(-rows // window) if window else 0)


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


class _Call:
    """The arguments that the kernels of a call share."""

    def __init__(self, x: Tensor, problem: Problem) -> None:
        rows, channels = x.shape[-2:]
        members = x.shape[0] if x.dim() == 3 else 1
        graphs, ptr, order = problem.graphs, _contiguous(problem.ptr), _contiguous(problem.order)
        known = ptr is not None and problem.max_size is not None
        self.plan = plan(members, rows, channels, graphs, min(rows, problem.max_size) if known else rows)  # type: ignore[type-var]
        if ptr is None and self.plan.fits:  # a single small segment: the tiles want its boundaries
            ptr = torch.arange(0, rows + 1, rows, device=x.device)
        self.members, self.channels, self.graphs, self.ptr, self.order = members, channels, graphs, ptr, order
        self.parameters = tuple(map(_contiguous, (problem.weight, problem.bias, problem.mean_scale)))
        ptr_stride = 0 if ptr is None or ptr.dim() == 1 else ptr.shape[1]
        order_stride = 0 if order is None or order.dim() == 1 else rows
        self.layout = (rows, graphs, ptr_stride, order_stride)
        self.types: dict[str, Any] = {
            "CHANNELS": channels,
            "ACC": tl.float64 if x.dtype == torch.float64 else tl.float32,
        }

    @property
    def has_loops(self) -> bool:
        """Whether the looping kernels have anything to do: short segments, or rows outside of any."""
        return self.ptr is not None or not self.plan.window

    def launch(self, kernel: Any, count: int, tile: Tile, *arguments: Any, **options: Any) -> None:
        """Run ``count`` programs per block of channels."""
        if "BW" not in options:
            options["BR"] = tile.rows
        grid = tile.programs(count, self.channels)
        kernel[grid](*arguments, **self.types, **options, BC=tile.channels, num_warps=tile.warps)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.forward`."""
    x, residual, call = x.contiguous(), _contiguous(residual), _Call(x, problem)
    y = torch.empty_like(x)
    cut, ptr, order, relu = call.plan, call.ptr, call.order, problem.relu
    given = problem.statistics == GIVEN
    if given:
        assert problem.mean is not None and problem.var is not None
        mean, var = problem.mean.contiguous(), problem.var.contiguous()
    else:
        shape = statistics_shape(x, call.graphs)
        mean = torch.empty(shape, dtype=torch.float64, device=x.device)
        var = torch.empty(shape, dtype=computed_in(x.dtype), device=x.device)
    common = (x, y, residual, ptr, order, *call.parameters, mean, var, *call.layout, problem.eps)
    if cut.fits and not given:
        runs = -(-call.graphs // cut.forward_run)
        call.launch(
            short.forward_tiles, call.members * runs, cut.forward, *common, runs, cut.forward_run, RELU=relu
        )  # fmt: skip
    elif call.has_loops:
        programs = call.members * call.graphs
        call.launch(short.forward_loops, programs, cut.forward, *common, cut.limit, RELU=relu, GIVEN=given)
    if cut.window:
        slots = 2 * call.members * cut.windows
        windows = (cut.window, cut.windows, cut.limit)
        if not given:
            slot_mean = torch.empty(slots, call.channels, dtype=mean.dtype, device=x.device)
            slot_m2 = torch.empty(slots, call.channels, dtype=var.dtype, device=x.device)
            arguments = (x, ptr, order, slot_mean, slot_m2, *call.layout, *windows)
            call.launch(long.long_statistics, slots, cut.long, *arguments)
            arguments = (ptr, slot_mean, slot_m2, mean, var, *call.layout[:3], *windows)
            call.launch(long.long_join, slots, cut.long, *arguments, BW=_WINDOWS_JOINED)
        call.launch(long.long_apply, slots, cut.long, *common, *windows, RELU=relu)
    return y, mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.backward`."""
    x, dy, call = x.contiguous(), dy.contiguous(), _Call(x, problem)
    dx = torch.empty_like(x)
    acc, cut, ptr, order = computed_in(x.dtype), call.plan, call.ptr, call.order
    tail = {"RELU": problem.relu, "LIVE": problem.statistics == LIVE}
    statistics = (*call.parameters, problem.mean, problem.var)
    run = cut.backward_run
    runs = -(-call.graphs // run) if call.has_loops else 0
    slots = runs + 2 * cut.windows
    partial = torch.empty(3, call.members, slots, call.channels, dtype=acc, device=x.device)
    plane = call.members * slots * call.channels
    common = (x, dy, dx, ptr, order, *statistics)
    if cut.fits:
        arguments = (*common, partial, *call.layout, problem.eps, runs, run, slots, plane)
        call.launch(short.backward_tiles, call.members * runs, cut.backward, *arguments, **tail)
    elif call.has_loops:
        arguments = (*common, partial, *call.layout, problem.eps, cut.limit, runs, run, slots, plane)
        call.launch(short.backward_loops, call.members * runs, cut.backward, *arguments, **tail)
    if cut.window:
        places = 2 * call.members * cut.windows
        sums = torch.empty(2, places, call.channels, dtype=acc, device=x.device)
        windows = (cut.window, cut.windows, cut.limit, places * call.channels)
        arguments = (x, dy, ptr, order, *statistics, sums, *call.layout, problem.eps, *windows)
        call.launch(long.long_sums, places, cut.long, *arguments, RELU=problem.relu)
        arguments = (ptr, *statistics, sums, partial, *call.layout[:3], problem.eps, *windows, slots, plane)
        call.launch(long.long_reduce, places, cut.long, *arguments, LIVE=tail["LIVE"], BW=_WINDOWS_JOINED)
        arguments = (*common, sums, *call.layout, problem.eps, *windows)
        call.launch(long.long_gradient, places, cut.long, *arguments, RELU=problem.relu)
    dweight, dbias, dmean_scale = partial.sum(2).reshape(3, *x.shape[:-2], call.channels).unbind()
    return dx, dweight, dbias, dmean_scale
