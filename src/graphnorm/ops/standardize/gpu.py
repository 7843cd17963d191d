"""Standardization on a GPU: plans and launches the Triton kernels. Nothing here synchronises with the device."""

from __future__ import annotations

import itertools
import math
import struct
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import contiguous, library, member_stride
from graphnorm.launch import (
    GraphScratch,
    Launch,
    Launches,
    Scratch,
    Tile,
    can_be_early,
    on_device,
    power_of_two,
    scratch,
)
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize import kernels
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Parameters, Problem
from graphnorm.ops.tiles_gpu import accumulator

_UNLIMITED = 2**31 - 1  # rows: no segment is longer
_LARGEST_TILE = 64  # rows of a segment that still fits the registers of one program
_MAX_WEIGHTS = 64  # of batches in running averages, whose launches are kept
_PROGRAMS = 528  # that share one graph, forward: as many as an H200 runs at a time

_launch_again: Any = None if library is None else library.launch


class Cut(NamedTuple):
    """How one call is cut into programs."""

    forward: Tile
    backward: Tile
    run: int  # segments per program, backward
    fits: bool = False  # every segment fits the backward tile,
    half: bool = False  # and those that fit half of it get that
    apart: bool = False  # backward, each element of a tile has separate sums
    window: int = 0  # rows per window; 0: no segment can be longer than one
    windows: int = 0  # windows per member
    fine_window: int = 0  # the same, no more rows, for the kernels that write rows of long segments
    fine_windows: int = 0
    read: int = 0  # rows of a window at a time, forward
    join: int = 0  # windows at a time
    write: Tile = Tile(0, 0, 0)  # of the kernels that write rows of long segments
    whole: Tile = Tile(0, 0, 0)  # of those for members that are one segment

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
    if largest <= _LARGEST_TILE:
        height = max(16, power_of_two(largest))
        forward = Tile(32, 32, 1) if channels % 32 == 0 else Tile(32, wide, 2, 64)
        return Cut(
            forward._replace(rows=min(32, height)), Tile(height, narrow, 1), run, fits=True, half=height > 16
        )  # fmt: skip
    typical = members * rows // max(1, members * graphs)
    small = typical <= _LARGEST_TILE  # by their number; the largest is not known, or is an exception
    forward = Tile(32, wide, 2) if small else Tile(128, narrow, 4)
    backward = Tile(32, wide, 2) if small else Tile(64, narrow, 2)
    window = min(1024, max(128, power_of_two(members * rows * blocks // 2048)))
    if largest <= max(window, 512):
        return Cut(forward, backward, run, apart=not small)
    if graphs == 1:
        forward, backward = Tile(128, narrow, 4, 128), Tile(128, narrow, 4)
        window = min(4096, max(128, -(-members * rows * blocks // (_PROGRAMS * 128)) * 128))
        fine = 64
    else:
        backward = Tile(32, wide, 2) if small else Tile(128, narrow, 4)
        fine = min(window, 128)
    read = 128 if graphs == 1 else 16 if small else 64
    join = min(64, max(4, power_of_two(largest // window + 2)))
    return Cut(
        forward, backward, run, apart=not small, window=window, windows=-(-rows // window), fine_window=fine,
        fine_windows=-(-rows // fine), read=read, join=join, write=Tile(64, wide, 4),
        whole=Tile(16, wide, 1),
    )  # fmt: skip


def _address(tensor: Tensor | None) -> int | None:
    return None if tensor is None else tensor.data_ptr()


def _stream(index: int | None) -> int:
    """The current stream; 0 on a CPU, where Triton's interpreter runs."""
    return 0 if index is None else torch._C._cuda_getCurrentRawStream(index)


def _type(tensor: Tensor | None) -> torch.dtype | None:
    return None if tensor is None else tensor.dtype


class Shape(NamedTuple):
    """What a call's launches depend on: everything but the tensors' addresses."""

    device: torch.device
    dtype: torch.dtype
    x: torch.Size
    graphs: int
    largest: int
    """A bound on the rows of one segment."""
    ptr: int | None
    """From one member's entries to the next one's; ``None`` without the array."""
    order: int | None
    eps: float
    relu: bool
    statistics: str


class Work:
    """All that calls of one shape share: the cut into programs, sizes of memory, and launches without tensors."""

    def __init__(self, shape: Shape) -> None:
        rows, channels = shape.x[-2:]
        members = shape.x[0] if len(shape.x) == 3 else 1
        self.shape, self.graphs = shape, shape.graphs
        self.cut = cut(members, rows, channels, shape.graphs, shape.largest)
        per = 1 if shape.ptr is None else 2
        self.per = per if self.cut.window else 0
        self.members, self.channels = members, channels
        self.layout = (rows, shape.graphs, shape.ptr or 0, shape.order or 0)
        self.device, self.acc = shape.device, accumulation_dtype(shape.dtype)
        self.index = shape.device.index if shape.device.type == "cuda" else None
        self.key = (self.index, shape.dtype, shape.ptr is None, shape.order is None)
        self.statistics = (*shape.x[:-2], shape.graphs, channels)
        self.dparameters = (*shape.x[:-2], channels)
        # the first kernel has short segments to do, or rows outside of any
        has_short = shape.ptr is not None or not self.cut.window
        self.runs = -(-shape.graphs // self.cut.run) if has_short else 0
        groups = -(-self.runs // kernels.GROUP.value)
        self.slots = 0 if self.per == 1 else self.runs + (self.cut.windows if self.per else groups)
        self.places = members * self.per * self.cut.windows
        self.slot_statistics = 2 * self.places * channels
        plane = members * self.slots * channels
        self.shares = 3 * plane + 4 * self.places * channels
        self.planes = (plane, self.places * channels)
        forward, backward = self.cut.forward.channels, self.cut.backward.channels
        self.forward_counters = self.places * -(-channels // forward)
        self.backward_counters = (self.places or members * (groups + 1)) * -(-channels // backward)
        # mean and variance that an eager layer keeps, in one buffer
        self.in_registers = self.cut.fits  # then backward computes them again
        self.kept_types = (None, None) if self.in_registers else (torch.float64, self.acc)
        count = math.prod(self.statistics)
        self.var_at = -(-8 * count // 16) * 16  # bytes: kernels need addresses divisible by 16
        self.kept = self.var_at // 8 + -(-count * self.acc.itemsize // 8)
        self.forward = self._forward_launches()
        self.backward = self._backward_launches()
        self.averages: dict[float, Launches] = {}  # by the weight of a batch
        # types of parameters whose gradients the kernels give in that same type
        self.summed_types = frozenset(itertools.product((None, self.acc), repeat=3))

    def _launch(
        self, kernel: Any, count: int, tile: Tile, sizes: tuple[int, ...], *constants: Any, more: int = 0, **rest: Any
    ) -> Launch:
        """``count`` programs for each block of channels, ``more`` before them."""
        programs = more + count * -(-self.channels // tile.channels)
        return Launch(kernel, programs, tile, sizes, self.key, *constants, **rest)

    def _launch_whole(self, kernel: Any, sizes: tuple[int, ...], *constants: Any, **rest: Any) -> Launch:
        """A program for each tile of each member's rows."""
        rows, tile = self.layout[0], self.cut.whole
        tiles = -(-rows // tile.rows)
        return self._launch(kernel, self.members * tiles, tile, (rows, tiles, *sizes), *constants, **rest)

    def _forward_launches(self) -> Launches:
        c, channels, per, acc = self.cut, self.channels, self.per, accumulator(self.acc)
        eps, relu, given = self.shape.eps, self.shape.relu, self.shape.statistics == GIVEN
        first, second, early = None, None, bool(per) and can_be_early(self.index)
        sizes: tuple[int, ...]
        constants: tuple[Any, ...]
        shorts = self.members * self.graphs if self.runs else 0
        if shorts or not given:
            places = 0 if given else self.places
            sizes = (*self.layout, c.limit, shorts, c.window, c.windows, self.planes[1])
            constants = (channels, eps, relu, given, 0 if given else per, early, acc, c.read, c.join)
            first = self._launch(kernels.forward_short, shorts + places, c.forward, sizes, *constants)
        early = early and first is not None
        constants = (channels, eps, relu, early, acc)
        if per == 1:
            rest: dict[str, Any] = {"without": (3, 4, 10, 11), "early": early}
            second = self._launch_whole(kernels.whole_apply, (), *constants, **rest)
        elif per:
            sizes = (*self.layout, c.fine_window, c.fine_windows, c.limit)
            count = self.members * per * c.fine_windows
            rest = {"without": (10, 11), "early": early}
            second = self._launch(kernels.long_apply, count, c.write, sizes, *constants, **rest)
        return Launches(first, second)

    def _backward_launches(self) -> Launches:
        c, channels, per, acc = self.cut, self.channels, self.per, accumulator(self.acc)
        eps, relu, live = self.shape.eps, self.shape.relu, self.shape.statistics == LIVE
        second, early = None, bool(per) and can_be_early(self.index)
        sizes: tuple[int, ...]
        constants: tuple[Any, ...]
        shorts = self.members * self.runs
        if c.fits:
            sizes = (*self.layout, self.runs, c.run, self.slots, self.planes[0])
            constants = (channels, eps, relu, live, acc, c.half)
            first = self._launch(kernels.backward_tiles, shorts, c.backward, sizes, *constants)
        else:
            sizes = (*self.layout, c.limit, self.runs, c.run, self.slots, self.planes[0])
            sizes = (*sizes, shorts, c.window, c.windows, self.planes[1])
            constants = (channels, eps, relu, live, c.apart, per, early, acc, c.backward.rows, c.join)
            first = self._launch(kernels.backward_short, shorts + self.places, c.backward, sizes, *constants)
        constants = (channels, eps, relu, early, acc)
        if per == 1:
            rest: dict[str, Any] = {"without": (3, 4, 11, 12, 13, 14), "early": early}
            second = self._launch_whole(kernels.whole_gradient, (c.windows, self.planes[1]), *constants, **rest)
        elif per:
            adds = self.members * -(-channels // kernels.ADDED.value)
            sizes = (*self.layout, c.fine_window, c.fine_windows, c.limit, c.window, c.windows)
            sizes = (*sizes, self.slots, *self.planes, adds)
            count = self.members * per * c.fine_windows
            rest = {"more": adds, "without": (11,), "early": early}
            second = self._launch(kernels.long_gradient, count, c.write, sizes, *constants, **rest)
        return Launches(first, second)

    def average(self, weight: float) -> Launches:
        """The launch that moves running averages by ``weight``."""
        found = self.averages.get(weight)
        if found is None:
            low, high = struct.unpack("<ii", struct.pack("<d", weight))
            tile, sizes = Tile(1, min(256, power_of_two(self.channels)), 1), (self.layout[0], high, low)
            found = Launches(self._launch(kernels.move_averages, 1, tile, sizes, self.channels))
            if len(self.averages) >= _MAX_WEIGHTS:
                self.averages.clear()
            self.averages[weight] = found
        return found


_work = lru_cache(maxsize=1024)(Work)


class CallPlan:
    """Calls of one shape over the same segments. For a fresh batch of a known shape there is nothing to work out."""

    __slots__ = ("_order", "_ptr", "order", "problem", "ptr", "work")

    def __init__(self, x: Tensor, problem: Problem) -> None:
        rows, ptr, order = x.shape[-2], contiguous(problem.ptr), contiguous(problem.order)
        largest = rows if ptr is None or problem.max_size is None else min(rows, problem.max_size)
        if ptr is None and rows <= _LARGEST_TILE:  # one small segment: the kernel for tiles needs its boundaries
            ptr = torch.arange(0, rows + 1, rows, device=x.device)
        self.work = _work(
            Shape(
                x.device, x.dtype, x.shape, problem.graphs, largest,
                None if ptr is None else member_stride(ptr), None if order is None else member_stride(order),
                problem.eps, problem.relu, problem.statistics,
            )
        )  # fmt: skip
        self.problem, self.ptr, self.order = problem, ptr, order
        self._ptr, self._order = _address(ptr), _address(order)

    # ---- for eager layers: a variant that was launched before goes straight to the driver -----------------------

    def forward(self, x: Tensor, residual: Tensor | None, parameters: Parameters) -> tuple[Tensor, tuple[Tensor, ...]]:
        """y, and for :meth:`backward` the statistics in one buffer: all means (double), then all variances.

        There is no buffer where backward computes the statistics again.
        """
        work, (weight, bias, mean_scale) = self.work, parameters
        types = (
            None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype,
        )  # fmt: skip
        kept: tuple[Tensor, ...] = ()
        mean = var = slots = counters = None
        if not work.in_registers:
            buffer = torch.empty(work.kept, dtype=torch.float64, device=work.device)
            kept, mean = (buffer,), buffer.data_ptr()
            var = mean + work.var_at
        variants = work.forward.variants.get((types, work.kept_types, residual is None))
        if variants is not None and work.index == torch._C._cuda_getDevice():
            stream = torch._C._cuda_getCurrentRawStream(work.index)
            if work.per:
                memory = scratch(work.device, work.index, stream)
                slots = memory.room(work.slot_statistics, torch.float64)
                counters = memory.counters(work.forward_counters)
            y = torch.empty_like(x)
            if _launch_again(
                variants, stream, x, y, residual, self._ptr, self._order, weight, bias, mean_scale, mean, var,
                slots, counters,
            ) == 0:  # fmt: skip
                return y, kept
        return self.apply(x, residual, parameters, *self.statistics(*kept)), kept

    def backward(self, dy: Tensor, x: Tensor, parameters: Parameters, *kept: Tensor) -> tuple[Tensor, Parameters]:
        """dx, and the gradients of those parameters that are there."""
        work, (weight, bias, mean_scale) = self.work, parameters
        types = (
            None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype,
        )  # fmt: skip
        variants = work.backward.variants.get((types, work.kept_types, None))
        if variants is not None and types in work.summed_types and work.index == torch._C._cuda_getDevice():
            mean = kept[0].data_ptr() if kept else None
            var = None if mean is None else mean + work.var_at
            stream = torch._C._cuda_getCurrentRawStream(work.index)
            memory = scratch(work.device, work.index, stream)
            counters, shares = memory.counters(work.backward_counters), self._shares(memory)
            dx, dweight = torch.empty_like(x), None if weight is None else torch.empty_like(weight)
            dbias = None if bias is None else torch.empty_like(bias)
            dmean_scale = None if mean_scale is None else torch.empty_like(mean_scale)
            dy = dy if dy.is_contiguous() else dy.contiguous()
            if _launch_again(
                variants, stream, x, dy, dx, self._ptr, self._order, weight, bias, mean_scale, mean, var,
                shares, counters, dweight, dbias, dmean_scale,
            ) == 0:  # fmt: skip
                return dx, (dweight, dbias, dmean_scale)
        return self.gradient(dy, x, parameters, *self.statistics(*kept))

    def average(self, kept: Tensor, running_mean: Tensor, running_var: Tensor, weight: float, unbias: float) -> None:
        """Move running averages towards the statistics in ``kept``, the variance times n/(n-1)."""
        work, launches = self.work, self.work.average(weight)
        variants = launches.variants.get(())
        if variants is not None and work.index == torch._C._cuda_getDevice():
            stream, mean = _stream(work.index), kept.data_ptr()
            if _launch_again(variants, stream, mean, mean + work.var_at, running_mean, running_var) == 0:
                return
        with on_device(work.device):
            launches((), _stream(work.index), *self.statistics(kept), running_mean, running_var)

    def statistics(self, *kept: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Mean and variance, in the buffer of :meth:`forward`; ``None`` where there is none."""
        if not kept:
            return None, None
        shape = self.work.statistics
        count, (mean, var) = math.prod(shape), kept[0].tensor_split((self.work.var_at // 8,))
        return mean[:count].view(shape), var.view(self.work.acc)[:count].view(shape)

    # ---- for all, through Triton --------------------------------------------------------------------------------

    def apply(
        self, x: Tensor, residual: Tensor | None, parameters: Parameters, mean: Tensor | None, var: Tensor | None
    ) -> Tensor:
        """y. Statistics are read from or written to ``mean`` and ``var``, if these are not ``None``."""
        work, x, residual = self.work, x if x.is_contiguous() else x.contiguous(), contiguous(residual)
        weight, bias, mean_scale = map(contiguous, parameters)
        y, slots, counters = torch.empty_like(x), None, None
        kind = (_type(weight), _type(bias), _type(mean_scale)), (_type(mean), _type(var)), residual is None
        with on_device(work.device):
            stream = _stream(work.index)
            if work.per and self.problem.statistics != GIVEN:
                memory = scratch(work.device, work.index, stream)
                slots = memory.room(work.slot_statistics, torch.float64)
                counters = memory.counters(work.forward_counters)
            tensors = (x, y, residual, self.ptr, self.order, weight, bias, mean_scale, mean, var, slots, counters)
            work.forward(kind, stream, *tensors)
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
        """dx, and the gradients of the parameters that are there, or those ``wanted``."""
        work = self.work
        x, dy = x if x.is_contiguous() else x.contiguous(), dy if dy.is_contiguous() else dy.contiguous()
        weight, bias, mean_scale = map(contiguous, parameters)
        dx = torch.empty_like(x)
        there = wanted or (weight is not None, bias is not None, mean_scale is not None)
        dweight = self._gradient_of(weight) if there[0] else None
        dbias = self._gradient_of(bias) if there[1] else None
        dmean_scale = self._gradient_of(mean_scale) if there[2] else None
        kind = (_type(weight), _type(bias), _type(mean_scale)), (_type(mean), _type(var)), wanted
        with on_device(work.device):
            stream = _stream(work.index)
            memory = scratch(work.device, work.index, stream)
            counters, shares = memory.counters(work.backward_counters), self._shares(memory)
            tensors = (x, dy, dx, self.ptr, self.order, weight, bias, mean_scale, mean, var, shares, counters)
            work.backward(kind, stream, *tensors, dweight, dbias, dmean_scale)
        return dx, (dweight, dbias, dmean_scale)

    def _shares(self, memory: Scratch | GraphScratch) -> Tensor:
        work = self.work
        if work.per:  # two launches, and another call's may come between them
            return torch.empty((work.shares,), dtype=work.acc, device=work.device)
        return memory.room(work.shares, work.acc)

    def _gradient_of(self, parameter: Tensor | None) -> Tensor:
        work = self.work
        if parameter is not None and parameter.dtype is work.acc and parameter.shape == work.dparameters:
            return torch.empty_like(parameter)
        return torch.empty(work.dparameters, dtype=work.acc, device=work.device)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.forward`."""
    plan = CallPlan(x, problem)
    if problem.mean is not None and problem.var is not None:
        mean, var = problem.mean.contiguous(), problem.var.contiguous()
    else:
        shape, acc = plan.work.statistics, plan.work.acc
        mean, var = x.new_empty(shape, dtype=torch.float64), x.new_empty(shape, dtype=acc)
    return plan.apply(x, residual, problem.parameters, mean, var), mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.backward`."""
    plan = CallPlan(x, problem)
    mean, var = contiguous(problem.mean), contiguous(problem.var)
    if mean is None and not plan.work.in_registers:
        _, mean, var = forward(x, None, problem)
    wanted = (True, True, True)
    dx, (dweight, dbias, dmean_scale) = plan.gradient(dy, x, problem.parameters, mean, var, wanted)
    assert dweight is not None and dbias is not None and dmean_scale is not None
    return dx, dweight, dbias, dmean_scale
