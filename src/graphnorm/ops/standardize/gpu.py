"""Standardization on a GPU: plans and launches the Triton kernels. Nothing here waits for the device."""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from graphnorm.ops.standardize import gpu_long as long
from graphnorm.ops.standardize import gpu_short as short
from graphnorm.ops.standardize.gpu_launch import Launch, Tile, power_of_two
from graphnorm.ops.standardize.problem import GIVEN, LIVE, Parameters, Problem, computed_in, statistics_shape

_UNLIMITED = 2**31 - 1  # rows: no segment is longer
_LARGEST_TILE = 64  # rows of a segment that still fits the registers of one program
_FEW_SLOTS = 512  # shares of the parameters' gradients that one program adds up quicker than torch begins to
_ADDED = Tile(64, 16, 4)  # of those, at a time


class Cut(NamedTuple):
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
def cut(members: int, rows: int, channels: int, graphs: int, largest: int) -> Cut:
    """``largest`` bounds the rows of one segment. The numbers are tuned on an H200."""
    narrow = min(32, power_of_two(channels))
    wide = min(64, power_of_two(channels))
    blocks = -(-channels // narrow)
    programs = members * graphs * blocks
    run = max(2 if programs >= 256 else 1, min(16, programs // 4096))  # two: half the memory for their shares
    none = Tile(0, 0, 0)
    if largest <= _LARGEST_TILE:
        height = max(16, power_of_two(largest))
        forward, backward = Tile(min(32, height), wide, 2), Tile(height, narrow, 1)
        return Cut(forward, backward, True, run, 0, 0, 0, 0, none, none, none)
    typical = members * rows // max(1, members * graphs)
    small = typical <= _LARGEST_TILE  # by their number; the largest is not known, or is an exception
    forward = Tile(32, wide, 2) if small else Tile(128, narrow, 4)
    backward = Tile(32, wide, 2) if small else Tile(64, narrow, 2)
    window = min(1024, max(128, power_of_two(members * rows * blocks // 4096)))
    if largest <= max(window, 512):
        return Cut(forward, backward, False, run, 0, 0, 0, 0, none, none, none)
    window = window if graphs == 1 else min(window, 512)
    fine = 64 if graphs == 1 else min(window, 256)
    joined = min(1024, max(4, power_of_two(largest // window + 2)))
    join = Tile(joined, min(narrow, max(4, 4096 // joined)), 8 if joined > 64 else 1)
    return Cut(
        forward, backward, False, run, window, -(-rows // window), fine, -(-rows // fine),
        Tile(128, narrow, 4), join, Tile(64, wide, 4),
    )  # fmt: skip


def _contiguous(tensor: Tensor | None) -> Tensor | None:
    return tensor if tensor is None or tensor.is_contiguous() else tensor.contiguous()


class _LongForward(NamedTuple):
    """Launches for long segments: statistics by window, joined, applied."""

    statistics: Launch
    join: Launch
    apply: Launch


class _LongBackward(NamedTuple):
    """Launches for long segments: sums by window, reduced, applied."""

    sums: Launch
    reduce: Launch
    gradient: Launch


class Plan:
    """What calls of one shape over the same segments share: how they are cut, and every launch but for its tensors."""

    def __init__(self, x: Tensor, problem: Problem) -> None:
        rows, channels = x.shape[-2:]
        members = x.shape[0] if x.dim() == 3 else 1
        graphs, ptr, order = problem.graphs, _contiguous(problem.ptr), _contiguous(problem.order)
        largest = rows if ptr is None or problem.max_size is None else min(rows, problem.max_size)
        self.problem, self.cut = problem, cut(members, rows, channels, graphs, largest)
        self.per = 1 if ptr is None else 2
        if ptr is None and self.cut.fits:  # one small segment: the tiles want its boundaries all the same
            ptr = torch.arange(0, rows + 1, rows, device=x.device)
        self.ptr, self.order = ptr, order
        ptr_stride = 0 if ptr is None or ptr.dim() == 1 else ptr.shape[1]
        order_stride = 0 if order is None or order.dim() == 1 else rows
        self.members, self.channels, self.graphs = members, channels, graphs
        self.layout = (rows, graphs, ptr_stride, order_stride)
        self.device, self.acc = x.device, computed_in(x.dtype)
        self.index = x.device.index if x.is_cuda else None
        self.key = (self.index, x.dtype, ptr is None, order is None)
        self.shape = statistics_shape(x, graphs)
        self.dparameters = (*x.shape[:-2], channels)
        self._forward: tuple[Launch | None, _LongForward | None] | None = None
        self._backward: tuple[Launch | None, _LongBackward | None, Launch | None] | None = None
        # where short kernels have anything to do: short segments, or rows outside of any
        has_short = ptr is not None or not self.cut.window
        self.runs = -(-graphs // self.cut.run) if has_short else 0
        self.slots = self.runs + (1 if self.per == 1 and self.cut.window else 2 * self.cut.windows)
        self.partial = (3, members, self.slots, channels)
        self.plane = members * self.slots * channels

    # ---- launches, made when first needed ---------------------------------------------------------------------

    def _launch(self, kernel: Any, count: int, tile: Tile, integers: tuple[int, ...], *constants: Any) -> Launch:
        """``count`` programs for each block of channels, over all members."""
        programs = self.members * count * -(-self.channels // tile.channels)
        return Launch(kernel, programs, tile, integers, self.key, *constants)

    @property
    def _computed_in(self) -> Any:
        return tl.float64 if self.acc == torch.float64 else tl.float32

    def _forward_launches(self) -> tuple[Launch | None, _LongForward | None]:
        c, channels, per, acc = self.cut, self.channels, self.per, self._computed_in
        eps, relu, given = self.problem.eps, self.problem.relu, self.problem.statistics == GIVEN
        short_, long_ = None, None
        if self.runs:
            sizes = (*self.layout, c.limit)
            short_ = self._launch(short.forward_loops, self.graphs, c.forward, sizes, channels, eps, relu, given, acc)
        if c.window:
            windows, cuts = per * c.windows, (c.window, c.windows, c.limit)
            fine = (*self.layout, c.fine_window, c.fine_windows, c.limit)
            fine_windows = per * c.fine_windows
            long_ = _LongForward(
                self._launch(long.long_statistics, windows, c.read, (*self.layout, *cuts), per, channels, acc),
                self._launch(long.long_join, windows, c.join, (*self.layout[:3], *cuts), per, channels, acc),
                self._launch(long.long_apply, fine_windows, c.write, fine, per, channels, eps, relu, acc),
            )
        self._forward = short_, long_
        return self._forward

    def _backward_launches(self) -> tuple[Launch | None, _LongBackward | None, Launch | None]:
        c, channels, per, acc = self.cut, self.channels, self.per, self._computed_in
        eps, relu, live = self.problem.eps, self.problem.relu, self.problem.statistics == LIVE
        short_, long_, add = None, None, None
        if self.runs:
            kernel = short.backward_tiles if c.fits else short.backward_loops
            sizes = (*self.layout, c.limit, self.runs, c.run, self.slots, self.plane)
            short_ = self._launch(kernel, self.runs, c.backward, sizes, channels, eps, relu, live, acc)
        if c.window:
            windows = per * c.windows
            cuts = (c.window, c.windows, c.limit, self.members * windows * channels)
            sizes = (*self.layout[:3], *cuts, self.slots, self.plane)
            fine = (*self.layout, c.fine_window, c.fine_windows, c.limit, *cuts[:2], cuts[3])
            fine_windows = per * c.fine_windows
            long_ = _LongBackward(
                self._launch(long.long_sums, windows, c.read, (*self.layout, *cuts), per, channels, eps, relu, acc),
                self._launch(long.long_reduce, windows, c.join, sizes, per, channels, eps, live, acc),
                self._launch(long.long_gradient, fine_windows, c.write, fine, per, channels, eps, relu, acc),
            )
        if self.slots <= _FEW_SLOTS:
            add = self._launch(short.add_slots, 3, _ADDED, (self.slots, self.plane), channels)
        self._backward = short_, long_, add
        return self._backward

    # ---- eager layers -----------------------------------------------------------------------------------------

    def forward(self, x: Tensor, residual: Tensor | None, parameters: Parameters) -> tuple[Tensor, tuple[Tensor, ...]]:
        """y, and what :meth:`backward` needs: nothing where it finds the statistics again in registers."""
        mean, var = (None, None) if self.cut.fits else self.new_statistics()
        y = self.apply(x, residual, parameters, mean, var)
        return y, () if mean is None or var is None else (mean, var)

    def backward(self, dy: Tensor, x: Tensor, parameters: Parameters, *kept: Tensor) -> tuple[Tensor, Parameters]:
        """dx, and the gradients of those parameters that are there."""
        return self.gradient(dy, x, parameters, *self.statistics(*kept))

    def statistics(self, *kept: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Mean and variance, of what :meth:`forward` gave; ``None`` where it did without."""
        return (kept[0], kept[1]) if kept else (None, None)

    # ---- every call -------------------------------------------------------------------------------------------

    def new_statistics(self) -> tuple[Tensor, Tensor]:
        """Room for mean and variance."""
        mean = torch.empty(self.shape, dtype=torch.float64, device=self.device)
        return mean, torch.empty(self.shape, dtype=self.acc, device=self.device)

    def apply(
        self, x: Tensor, residual: Tensor | None, parameters: Parameters, mean: Tensor | None, var: Tensor | None
    ) -> Tensor:
        """y; statistics are read from or written to ``mean`` and ``var``, where they are given or wanted."""
        if self.index is not None and self.index != torch._C._cuda_getDevice():
            with torch.cuda.device(self.index):
                return self.apply(x, residual, parameters, mean, var)
        x, residual = x if x.is_contiguous() else x.contiguous(), _contiguous(residual)
        weight, bias, mean_scale = parameters
        weight, bias, mean_scale = _contiguous(weight), _contiguous(bias), _contiguous(mean_scale)
        y = torch.empty_like(x)
        ptr, order = self.ptr, self.order
        short_, long_ = self._forward or self._forward_launches()
        kind = (
            residual is None, None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype, None if mean is None else mean.dtype,
            None if var is None else var.dtype,
        )  # fmt: skip
        tensors = (x, y, residual, ptr, order, weight, bias, mean_scale, mean, var)
        if short_ is not None:
            short_(kind, *tensors)
        if long_ is not None:
            if self.problem.statistics != GIVEN:
                assert mean is not None and var is not None
                shape = (self.members * self.per * self.cut.windows, self.channels)
                slot_mean = torch.empty(shape, dtype=mean.dtype, device=self.device)
                slot_m2 = torch.empty(shape, dtype=var.dtype, device=self.device)
                long_.statistics((), x, ptr, order, slot_mean, slot_m2)
                long_.join((), ptr, slot_mean, slot_m2, mean, var)
            long_.apply(kind, *tensors)
        return y

    def gradient(
        self,
        dy: Tensor,
        x: Tensor,
        parameters: Parameters,
        mean: Tensor | None,
        var: Tensor | None,
        wanted: tuple[bool, bool, bool] | None = None,
    ) -> tuple[Tensor, Parameters]:
        """dx, and the gradients of the parameters that are there, or ``wanted``."""
        if self.index is not None and self.index != torch._C._cuda_getDevice():
            with torch.cuda.device(self.index):
                return self.gradient(dy, x, parameters, mean, var, wanted)
        x, dy = x if x.is_contiguous() else x.contiguous(), dy if dy.is_contiguous() else dy.contiguous()
        weight, bias, mean_scale = parameters
        weight, bias, mean_scale = _contiguous(weight), _contiguous(bias), _contiguous(mean_scale)
        dx, acc, device = torch.empty_like(x), self.acc, self.device
        partial = torch.empty(self.partial, dtype=acc, device=device)
        ptr, order = self.ptr, self.order
        short_, long_, add = self._backward or self._backward_launches()
        kind = (
            None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype, None if mean is None else mean.dtype,
            None if var is None else var.dtype,
        )  # fmt: skip
        tensors = (x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var)
        if short_ is not None:
            short_(kind, *tensors, partial)
        if long_ is not None:
            shape = (2, self.members * self.per * self.cut.windows, self.channels)
            sums = torch.empty(shape, dtype=acc, device=device)
            statistics = tensors[5:]
            long_.sums(kind, x, dy, ptr, order, *statistics, sums)
            long_.reduce(kind, ptr, *statistics, sums, partial)
            long_.gradient(kind, *tensors, sums)
        there = wanted or (weight is not None, bias is not None, mean_scale is not None)
        if add is None:
            dweight, dbias, dmean_scale = partial.sum(-2).view(3, *self.dparameters)
        else:
            shape = self.dparameters
            dweight = torch.empty(shape, dtype=acc, device=device) if there[0] else None
            dbias = torch.empty(shape, dtype=acc, device=device) if there[1] else None
            dmean_scale = torch.empty(shape, dtype=acc, device=device) if there[2] else None
            add(there, partial, dweight, dbias, dmean_scale)
        return dx, (dweight, dbias, dmean_scale)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.forward`."""
    plan = Plan(x, problem)
    if problem.mean is not None and problem.var is not None:
        mean, var = problem.mean.contiguous(), problem.var.contiguous()
    else:
        mean, var = plan.new_statistics()
    return plan.apply(x, residual, problem.parameters, mean, var), mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.standardize.reference.backward`."""
    plan = Plan(x, problem)
    mean, var = _contiguous(problem.mean), _contiguous(problem.var)
    if mean is None and not plan.cut.fits:
        _, mean, var = forward(x, None, problem)
    wanted = (True, True, True)
    dx, (dweight, dbias, dmean_scale) = plan.gradient(dy, x, problem.parameters, mean, var, wanted)
    assert dweight is not None and dbias is not None and dmean_scale is not None
    return dx, dweight, dbias, dmean_scale
