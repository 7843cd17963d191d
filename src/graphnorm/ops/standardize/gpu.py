"""Standardization on a GPU: plans and launches the Triton kernels. Nothing here waits for the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from graphnorm.ops.standardize import gpu_long as long
from graphnorm.ops.standardize import gpu_short as short
from graphnorm.ops.standardize.gpu_launch import Tile, kind_of, launch
from graphnorm.ops.standardize.problem import GIVEN, LIVE, Problem, computed_in, statistics_shape

_UNLIMITED = 2**31 - 1  # rows: no segment is longer
_LARGEST_TILE = 64  # rows of a segment that still fits the registers of one program


class Plan(NamedTuple):
    """How one call is cut into programs."""

    forward: Tile
    backward: Tile
    fits: bool  # every segment fits the backward tile
    run: int  # segments per program, backward
    window: int  # rows per window; 0: no segment can be longer than one
    windows: int  # windows per member
    fine_window: int  # the same for the kernels that write rows
    fine_windows: int
    read: Tile  # of long segments: the kernels that read,
    join: Tile  # those that join windows,
    write: Tile  # and those that write

    @property
    def limit(self) -> int:
        """Segments of more rows are long."""
        return self.window or _UNLIMITED


@lru_cache(maxsize=4096)
def plan(members: int, rows: int, channels: int, graphs: int, largest: int) -> Plan:
    """``largest`` bounds the rows of one segment. The numbers are tuned on an H200."""
    narrow = min(32, _power_of_two(channels))
    wide = min(64, _power_of_two(channels))
    blocks = -(-channels // narrow)
    run = max(1, min(16, members * graphs * blocks // 4096))
    none = Tile(0, 0, 0)
    if largest <= _LARGEST_TILE:
        height = max(16, _power_of_two(largest))
        forward, backward = Tile(min(32, height), wide, 2), Tile(height, narrow, 1)
        return Plan(forward, backward, True, run, 0, 0, 0, 0, none, none, none)
    typical = members * rows // max(1, members * graphs)
    small = typical <= _LARGEST_TILE  # by their number; the largest is not known, or is an exception
    forward = Tile(32, wide, 2) if small else Tile(128, narrow, 4)
    backward = Tile(32, wide, 2) if small else Tile(64, narrow, 2)
    window = min(1024, max(128, _power_of_two(members * rows * blocks // 4096)))
    if largest <= max(window, 512):
        return Plan(forward, backward, False, run, 0, 0, 0, 0, none, none, none)
    window = window if graphs == 1 else min(window, 512)
    fine = 64 if graphs == 1 else min(window, 256)
    joined = min(1024, max(4, _power_of_two(largest // window + 2)))
    join = Tile(joined, min(narrow, max(4, 4096 // joined)), 8 if joined > 64 else 1)
    return Plan(
        forward, backward, False, run, window, -(-rows // window), fine, -(-rows // fine),
        Tile(128, narrow, 4), join, Tile(64, wide, 4),
    )  # fmt: skip


def _power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


class _Call:
    """What the kernels of a call share."""

    __slots__ = ("acc", "channels", "graphs", "layout", "members", "order", "parameters", "per", "plan", "ptr")

    def __init__(self, x: Tensor, problem: Problem) -> None:
        rows, channels = x.shape[-2:]
        members = x.shape[0] if x.dim() == 3 else 1
        graphs, ptr, order = problem.graphs, _contiguous(problem.ptr), _contiguous(problem.order)
        largest = rows if ptr is None or problem.max_size is None else min(rows, problem.max_size)
        self.plan = plan(members, rows, channels, graphs, largest)
        self.per = 1 if ptr is None else 2
        if ptr is None and self.plan.fits:  # one small segment: the tiles want its boundaries all the same
            ptr = torch.arange(0, rows + 1, rows, device=x.device)
        self.members, self.channels, self.graphs, self.ptr, self.order = members, channels, graphs, ptr, order
        self.parameters = _contiguous(problem.weight), _contiguous(problem.bias), _contiguous(problem.mean_scale)
        ptr_stride = 0 if ptr is None or ptr.dim() == 1 else ptr.shape[1]
        order_stride = 0 if order is None or order.dim() == 1 else rows
        self.layout = (rows, graphs, ptr_stride, order_stride)
        self.acc = tl.float64 if x.dtype == torch.float64 else tl.float32

    @property
    def has_short(self) -> bool:
        """Whether the short kernels have anything to do: short segments, or rows outside of any."""
        return self.ptr is not None or not self.plan.window

    def programs(self, count: int, tile: Tile) -> int:
        """``count`` for each block of channels, over all members."""
        return self.members * count * -(-self.channels // tile.channels)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.forward`."""
    x, residual, call = x.contiguous(), _contiguous(residual), _Call(x, problem)
    y = torch.empty_like(x)
    cut, ptr, order, relu, eps = call.plan, call.ptr, call.order, problem.relu, problem.eps
    given = problem.statistics == GIVEN
    if given:
        assert problem.mean is not None and problem.var is not None
        mean, var = problem.mean.contiguous(), problem.var.contiguous()
    else:
        shape = statistics_shape(x, call.graphs)
        mean = torch.empty(shape, dtype=torch.float64, device=x.device)
        var = torch.empty(shape, dtype=computed_in(x.dtype), device=x.device)
    tensors = (x, y, residual, ptr, order, *call.parameters, mean, var)
    channels, acc = call.channels, call.acc
    key = (kind_of(*tensors), channels, eps, relu, given)
    if call.has_short:
        programs = call.programs(call.graphs, cut.forward)
        arguments: tuple[Any, ...] = (*tensors, *call.layout, cut.limit)
        launch(short.forward_loops, key, programs, cut.forward, arguments, channels, eps, relu, given, acc)
    if cut.window:
        if not given:
            _long_statistics(x, mean, var, call, key)
        programs = call.programs(call.per * cut.fine_windows, cut.write)
        arguments = (*tensors, *call.layout, cut.fine_window, cut.fine_windows, cut.limit)
        launch(long.long_apply, key, programs, cut.write, arguments, call.per, channels, eps, relu, acc)
    return y, mean, var


def _long_statistics(x: Tensor, mean: Tensor, var: Tensor, call: _Call, key: tuple[Any, ...]) -> None:
    """Mean and variance of long segments: of their parts in each window, then of the whole."""
    cut, windows = call.plan, call.per * call.plan.windows
    shape = (call.members * windows, call.channels)
    slot_mean = torch.empty(shape, dtype=mean.dtype, device=x.device)
    slot_m2 = torch.empty(shape, dtype=var.dtype, device=x.device)
    cuts = (cut.window, cut.windows, cut.limit)
    arguments: tuple[Any, ...] = (x, call.ptr, call.order, slot_mean, slot_m2, *call.layout, *cuts)
    programs = call.programs(windows, cut.read)
    launch(long.long_statistics, key, programs, cut.read, arguments, call.per, call.channels, call.acc)
    arguments = (call.ptr, slot_mean, slot_m2, mean, var, *call.layout[:3], *cuts)
    programs = call.programs(windows, cut.join)
    launch(long.long_join, key, programs, cut.join, arguments, call.per, call.channels, call.acc)


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.backward`."""
    x, dy, call = x.contiguous(), dy.contiguous(), _Call(x, problem)
    dx = torch.empty_like(x)
    cut, relu, eps, live = call.plan, problem.relu, problem.eps, problem.statistics == LIVE
    statistics = (*call.parameters, _contiguous(problem.mean), _contiguous(problem.var))
    runs = -(-call.graphs // cut.run) if call.has_short else 0
    slots = runs + (1 if call.per == 1 and cut.window else 2 * cut.windows)
    partial = torch.empty((3, *x.shape[:-2], slots, call.channels), dtype=computed_in(x.dtype), device=x.device)
    plane = call.members * slots * call.channels
    tensors = (x, dy, dx, call.ptr, call.order, *statistics)
    channels, acc = call.channels, call.acc
    key = (kind_of(*tensors), channels, eps, relu, live)
    if call.has_short:
        programs = call.programs(runs, cut.backward)
        kernel = short.backward_tiles if cut.fits else short.backward_loops
        arguments = (*tensors, partial, *call.layout, cut.limit, runs, cut.run, slots, plane)
        launch(kernel, key, programs, cut.backward, arguments, channels, eps, relu, live, acc)
    if cut.window:
        _long_gradient(tensors, partial, call, key, (eps, relu, live), slots, plane)
    dweight, dbias, dmean_scale = (partial.squeeze(-2) if slots == 1 else partial.sum(-2)).unbind()
    return dx, dweight, dbias, dmean_scale


def _long_gradient(
    tensors: tuple[Tensor | None, ...],
    partial: Tensor,
    call: _Call,
    key: tuple[Any, ...],
    options: tuple[float, bool, bool],
    slots: int,
    plane: int,
) -> None:
    """dx of long segments, and their part of the parameters' gradients: sums by window, of the whole, then rows."""
    x, dy, _, ptr, order, *statistics = tensors
    (eps, relu, live), cut, windows = options, call.plan, call.per * call.plan.windows
    places, channels, per, acc = call.members * windows, call.channels, call.per, call.acc
    sums = torch.empty(2, places, channels, dtype=partial.dtype, device=partial.device)
    cuts = (cut.window, cut.windows, cut.limit, places * channels)
    arguments: tuple[Any, ...] = (x, dy, ptr, order, *statistics, sums, *call.layout, *cuts)
    launch(
        long.long_sums, key, call.programs(windows, cut.read), cut.read, arguments, per, channels, eps, relu, acc
    )  # fmt: skip
    arguments = (ptr, *statistics, sums, partial, *call.layout[:3], *cuts, slots, plane)
    launch(
        long.long_reduce, key, call.programs(windows, cut.join), cut.join, arguments, per, channels, eps, live, acc
    )  # fmt: skip
    fine = (cut.fine_window, cut.fine_windows, cut.limit, cut.window, cut.windows, places * channels)
    arguments = (*tensors, sums, *call.layout, *fine)
    programs = call.programs(per * cut.fine_windows, cut.write)
    launch(long.long_gradient, key, programs, cut.write, arguments, per, channels, eps, relu, acc)
