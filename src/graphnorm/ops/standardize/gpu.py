"""Standardization on a GPU: plans and launches the Triton kernels. Nothing here synchronises with the device."""

from __future__ import annotations

import itertools
import math
from functools import lru_cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import contiguous, library, member_stride
from graphnorm.launch import Launch, Launches, Tile, can_be_early, on_device, power_of_two, scratch
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize import kernels
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Parameters, Problem, statistics_shape
from graphnorm.ops.tiles_gpu import accumulator

_UNLIMITED = 2**31 - 1  # rows: no segment is longer
_LARGEST_TILE = 64  # rows of a segment that still fits the registers of one program
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


def _type(tensor: Tensor | None) -> torch.dtype | None:
    return None if tensor is None else tensor.dtype


class Call:
    """All that calls of one shape over the same segments share: the cut into programs, and launches without tensors."""

    def __init__(self, x: Tensor, problem: Problem) -> None:
        rows, channels = x.shape[-2:]
        members = x.shape[0] if x.dim() == 3 else 1
        graphs, ptr, order = problem.graphs, contiguous(problem.ptr), contiguous(problem.order)
        largest = rows if ptr is None or problem.max_size is None else min(rows, problem.max_size)
        self.problem, self.cut = problem, cut(members, rows, channels, graphs, largest)
        per = 1 if ptr is None else 2
        self.per = per if self.cut.window else 0
        if ptr is None and self.cut.fits:  # one small segment: the kernel for tiles needs its boundaries
            ptr = torch.arange(0, rows + 1, rows, device=x.device)
        self.ptr, self.order = ptr, order
        self.members, self.channels, self.graphs = members, channels, graphs
        self.layout = (rows, graphs, member_stride(ptr), member_stride(order))
        self.device, self.acc = x.device, accumulation_dtype(x.dtype)
        self.index = x.device.index if x.is_cuda else None
        self.key = (self.index, x.dtype, ptr is None, order is None)
        self.shape = statistics_shape(x, graphs)
        self.dparameters = (*x.shape[:-2], channels)
        # the first kernel has short segments to do, or rows outside of any
        has_short = ptr is not None or not self.cut.window
        self.runs = -(-graphs // self.cut.run) if has_short else 0
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
        self._forward: Launches | None = None
        self._backward: Launches | None = None

    # ---- launches, made when first needed ---------------------------------------------------------------------

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
        eps, relu, given = self.problem.eps, self.problem.relu, self.problem.statistics == GIVEN
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
        self._forward = Launches(first, second)
        return self._forward

    def _backward_launches(self) -> Launches:
        c, channels, per, acc = self.cut, self.channels, self.per, accumulator(self.acc)
        eps, relu, live = self.problem.eps, self.problem.relu, self.problem.statistics == LIVE
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
        self._backward = Launches(first, second)
        return self._backward

    # ---- every call -------------------------------------------------------------------------------------------

    def _stream(self) -> int:
        """The current stream; 0 on a CPU, where Triton's interpreter runs."""
        return 0 if self.index is None else torch._C._cuda_getCurrentRawStream(self.index)

    def new_statistics(self) -> tuple[Tensor, Tensor]:
        mean = torch.empty(self.shape, dtype=torch.float64, device=self.device)
        return mean, torch.empty(self.shape, dtype=self.acc, device=self.device)

    def _gradient_of(self, parameter: Tensor | None) -> Tensor:
        if parameter is not None and parameter.dtype is self.acc and parameter.shape == self.dparameters:
            return torch.empty_like(parameter)
        return torch.empty(self.dparameters, dtype=self.acc, device=self.device)

    def apply(
        self, x: Tensor, residual: Tensor | None, parameters: Parameters, mean: Tensor | None, var: Tensor | None
    ) -> Tensor:
        """y. Statistics are read from or written to ``mean`` and ``var``, if these are not ``None``."""
        x, residual = x if x.is_contiguous() else x.contiguous(), contiguous(residual)
        weight, bias, mean_scale = map(contiguous, parameters)
        y, slots, counters = torch.empty_like(x), None, None
        kind = (_type(weight), _type(bias), _type(mean_scale)), (_type(mean), _type(var)), residual is None
        with on_device(self.device):
            stream = self._stream()
            if self.per and self.problem.statistics != GIVEN:
                memory = scratch(self.device, self.index, stream)
                slots = memory.room(self.slot_statistics, torch.float64)
                counters = memory.counters(self.forward_counters)
            tensors = (x, y, residual, self.ptr, self.order, weight, bias, mean_scale, mean, var, slots, counters)
            (self._forward or self._forward_launches())(kind, stream, *tensors)
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
        x, dy = x if x.is_contiguous() else x.contiguous(), dy if dy.is_contiguous() else dy.contiguous()
        weight, bias, mean_scale = map(contiguous, parameters)
        dx = torch.empty_like(x)
        there = wanted or (weight is not None, bias is not None, mean_scale is not None)
        dweight = self._gradient_of(weight) if there[0] else None
        dbias = self._gradient_of(bias) if there[1] else None
        dmean_scale = self._gradient_of(mean_scale) if there[2] else None
        kind = (_type(weight), _type(bias), _type(mean_scale)), (_type(mean), _type(var)), wanted
        with on_device(self.device):
            stream = self._stream()
            memory = scratch(self.device, self.index, stream)
            counters = memory.counters(self.backward_counters)
            if self.per:  # two launches, and another call's may come between them
                shares = torch.empty((self.shares,), dtype=self.acc, device=self.device)
            else:
                shares = memory.room(self.shares, self.acc)
            tensors = (x, dy, dx, self.ptr, self.order, weight, bias, mean_scale, mean, var, shares, counters)
            (self._backward or self._backward_launches())(kind, stream, *tensors, dweight, dbias, dmean_scale)
        return dx, (dweight, dbias, dmean_scale)


class CallPlan(Call):
    """A call that an eager layer repeats: a variant that was launched before goes straight to the driver."""

    def __init__(self, x: Tensor, problem: Problem) -> None:
        super().__init__(x, problem)
        self._in_registers = self.cut.fits  # then backward computes the statistics again
        self._kept_types = (None, None) if self._in_registers else (torch.float64, self.acc)
        count = math.prod(self.shape)
        self._var_at = -(-8 * count // 16) * 16  # bytes: kernels need addresses divisible by 16
        self._kept = self._var_at // 8 + -(-count * self.acc.itemsize // 8)
        self._ptr, self._order = _address(self.ptr), _address(self.order)
        # new_empty of these is quicker than torch.empty with a type and a device
        self._double, self._acc = x.new_empty(0, dtype=torch.float64), x.new_empty(0, dtype=self.acc)
        self._forward_variants = self._forward_launches().variants
        self._backward_variants = self._backward_launches().variants
        self._averages: dict[float, Launches] = {}  # by the weight of a batch
        # types of parameters whose gradients the kernels give in that same type
        self._summed_types = frozenset(itertools.product((None, self.acc), repeat=3))

    def forward(self, x: Tensor, residual: Tensor | None, parameters: Parameters) -> tuple[Tensor, tuple[Tensor, ...]]:
        """y, and for :meth:`backward` the statistics in one buffer: all means (double), then all variances.

        There is no buffer where backward computes the statistics again.
        """
        weight, bias, mean_scale = parameters
        types = (
            None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype,
        )  # fmt: skip
        kept: tuple[Tensor, ...] = ()
        mean = var = slots = counters = None
        if not self._in_registers:
            buffer = self._double.new_empty(self._kept)
            kept, mean = (buffer,), buffer.data_ptr()
            var = mean + self._var_at
        variants = self._forward_variants.get((types, self._kept_types, residual is None))
        if variants is not None and self.index == torch._C._cuda_getDevice():
            stream = torch._C._cuda_getCurrentRawStream(self.index)
            if self.per:
                memory = scratch(self.device, self.index, stream)
                slots = memory.room(self.slot_statistics, torch.float64)
                counters = memory.counters(self.forward_counters)
            y = torch.empty_like(x)
            if _launch_again(
                variants, stream, x, y, residual, self._ptr, self._order, weight, bias, mean_scale, mean, var,
                slots, counters,
            ) == 0:  # fmt: skip
                return y, kept
        return self.apply(x, residual, parameters, *self.statistics(*kept)), kept

    def backward(self, dy: Tensor, x: Tensor, parameters: Parameters, *kept: Tensor) -> tuple[Tensor, Parameters]:
        """dx, and the gradients of those parameters that are there."""
        weight, bias, mean_scale = parameters
        types = (
            None if weight is None else weight.dtype, None if bias is None else bias.dtype,
            None if mean_scale is None else mean_scale.dtype,
        )  # fmt: skip
        variants = self._backward_variants.get((types, self._kept_types, None))
        if variants is not None and types in self._summed_types and self.index == torch._C._cuda_getDevice():
            mean = kept[0].data_ptr() if kept else None
            var = None if mean is None else mean + self._var_at
            stream = torch._C._cuda_getCurrentRawStream(self.index)
            memory = scratch(self.device, self.index, stream)
            counters = memory.counters(self.backward_counters)
            shares = self._acc.new_empty(self.shares) if self.per else memory.room(self.shares, self.acc)
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
        launches = self._averages.get(weight)
        if launches is None:
            tile, constants = Tile(1, min(256, power_of_two(self.channels)), 1), (self.channels, weight)
            launches = Launches(self._launch(kernels.move_averages, 1, tile, self.layout[:1], *constants))
            self._averages[weight] = launches
        variants = launches.variants.get(())
        if variants is not None and self.index == torch._C._cuda_getDevice():
            stream, mean = self._stream(), kept.data_ptr()
            if _launch_again(variants, stream, mean, mean + self._var_at, running_mean, running_var) == 0:
                return
        with on_device(self.device):
            launches((), self._stream(), *self.statistics(kept), running_mean, running_var)

    def statistics(self, *kept: Tensor) -> tuple[Tensor | None, Tensor | None]:
        """Mean and variance, in the buffer of :meth:`forward`; ``None`` where there is none."""
        if not kept:
            return None, None
        count, (mean, var) = math.prod(self.shape), kept[0].tensor_split((self._var_at // 8,))
        return mean[:count].view(self.shape), var.view(self.acc)[:count].view(self.shape)


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.forward`."""
    call = Call(x, problem)
    if problem.mean is not None and problem.var is not None:
        mean, var = problem.mean.contiguous(), problem.var.contiguous()
    else:
        mean, var = call.new_statistics()
    return call.apply(x, residual, problem.parameters, mean, var), mean, var


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.standardize.reference.backward`."""
    call = Call(x, problem)
    mean, var = contiguous(problem.mean), contiguous(problem.var)
    if mean is None and not call.cut.fits:
        _, mean, var = forward(x, None, problem)
    wanted = (True, True, True)
    dx, (dweight, dbias, dmean_scale) = call.gradient(dy, x, problem.parameters, mean, var, wanted)
    assert dweight is not None and dbias is not None and dmean_scale is not None
    return dx, dweight, dbias, dmean_scale
