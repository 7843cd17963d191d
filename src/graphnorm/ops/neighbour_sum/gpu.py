"""Sums over neighbours on a GPU: the Triton kernels and their launches. Symbols as in the reference's docstring.

One set of kernels serves forward and backward: `values` are what neighbours send, x forward and dy backward, over the
edges or the edges reversed. Rows with at most `limit` edges are summed by :func:`sum_rows`. Longer ones are cut at the
multiples of `limit`, so that at most two of them meet in one chunk of edges: :func:`sum_chunks` fills two slots per
chunk, :func:`join_chunks` adds up the slots of each long row. The host does not know which rows are long: programs that
find none end at once.

Arguments that are ``None`` are resolved at compile time. Positions are 64-bit throughout. Nothing here synchronises
with the device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.backends import contiguous, member_stride
from graphnorm.launch import Tile, kinds, launch, power_of_two
from graphnorm.ops.neighbour_sum import reference
from graphnorm.ops.neighbour_sum.reference import Problem, Wanted
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.tiles_gpu import accumulator, tile_mask

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = (
    "rows", "edges", "rowptr_stride", "col_stride", "edge_stride", "scale_stride", "degree_stride", "tiles", "limit",
    "chunks", "steps",
)  # fmt: skip

FORWARD, BACKWARD = 0, 1


@triton.jit
def bounds(rowptr, row, mask, edges):
    """Edges [first, last) of the rows, clamped to the member whatever rowptr holds."""
    first = tl.load(rowptr + row, mask=mask, other=0).to(tl.int64)
    last = tl.load(rowptr + row + 1, mask=mask, other=0).to(tl.int64)
    first = tl.minimum(tl.maximum(first, 0), edges)
    return first, tl.minimum(tl.maximum(last, first), edges)


@triton.jit
def row_at(rowptr, edge, rows):
    """The last row that begins at or before the edge: a search over 64 boundaries at a time."""
    low = edge * 0
    high = low + rows
    while high - low > 1:
        step = (high - low + 63) // 64
        at = low + tl.arange(0, 64) * step
        begins = tl.load(rowptr + at, mask=at < high, other=0).to(tl.int64)
        passed = tl.sum(((at < high) & (begins <= edge)).to(tl.int64), 0)
        low = low + tl.maximum(passed - 1, 0) * step
        high = tl.minimum(low + step, high)
    return low


@triton.jit
def load_rows(x, row, channel, mask, CHANNELS: tl.constexpr, ACC: tl.constexpr):
    """A tile of rows of x; 0 outside."""
    return tl.load(x + row[:, None] * CHANNELS + channel[None, :], mask=mask, other=0.0).to(ACC)


@triton.jit
def degree_of(degree, row, mask, ACC: tl.constexpr):
    """The number of edges that lead to a row, at least 1."""
    first = tl.load(degree + row, mask=mask, other=0)
    last = tl.load(degree + row + 1, mask=mask, other=0)
    return tl.maximum(last - first, 1).to(ACC)


@triton.jit
def sum_range(
    values, edge_values, own, col, edge_of, scale, degree, member, first, last, channel, rows, edges,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, DIRECTION: tl.constexpr, ACC: tl.constexpr, UNROLL: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The sum over edges [first, last) of each row of a tile, (BR, BC), before the row's own factors.

    UNROLL edges are in flight at a time. `own` is x of the rows themselves, for relu backward.
    """
    total = tl.zeros((BR, BC), ACC)
    longest = tl.max(last - first, 0)
    for start in range(0, longest, UNROLL):
        part = tl.zeros((BR, BC), ACC)
        for ahead in tl.static_range(UNROLL):
            e = first + start + ahead
            there = e < last
            mask = tile_mask(there, channel, CHANNELS, BC)
            if col is not None:
                c = tl.load(col + e, mask=there, other=0).to(tl.int64)
                c = tl.minimum(tl.maximum(c, 0), rows - 1)
            if edge_values is not None:
                at = e
                if edge_of is not None:
                    at = tl.load(edge_of + e, mask=there, other=0).to(tl.int64)
                own_part = load_rows(edge_values, member * edges + at, channel, mask, CHANNELS, ACC)
            if values is not None:
                value = load_rows(values, member * rows + c, channel, mask, CHANNELS, ACC)
                if DIRECTION == 0:
                    if edge_values is not None:
                        value += own_part
            else:
                value = own_part
            if RELU:
                if DIRECTION == 0:
                    value = tl.where(value < 0.0, 0.0, value)
                else:
                    before = own
                    if edge_values is not None:
                        before = own + own_part
                    value = tl.where(before <= 0.0, 0.0, value)
            if scale is not None:
                value = value * tl.load(scale + c, mask=there, other=0.0).to(ACC)[:, None]
            if degree is not None:
                value = value / degree_of(degree, c, there, ACC)[:, None]
            part += value
        total += part
    return total


@triton.jit
def finish(
    total, values, out, scale, self_weight, member, row, mask_rows, count, channel, rows,
    CHANNELS: tl.constexpr, CONSTANT: tl.constexpr, MEAN: tl.constexpr, ACC: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The row's own factors and its own part; store."""
    mask = tile_mask(mask_rows, channel, CHANNELS, BC)
    if MEAN:
        total = total / tl.maximum(count, 1).to(ACC)[:, None]
    if scale is not None:
        s = tl.load(scale + row, mask=mask_rows, other=0.0).to(ACC)[:, None]
    at = member * rows + row
    if (self_weight is not None) | (CONSTANT != 0.0):
        own = load_rows(values, at, channel, mask, CHANNELS, ACC)
        if self_weight is not None:
            own = own * tl.load(self_weight + member).to(ACC)
        else:
            own = own * CONSTANT
        if scale is not None:
            own = own * s
        total += own
    if scale is not None:
        total = total * s
    tl.store(out + at[:, None] * CHANNELS + channel[None, :], total, mask=mask)


@triton.jit(do_not_specialize=SIZES)
def sum_rows(
    values, edge_values, x, out, rowptr, col, edge_of, scale, degree, self_weight, partial,
    rows, edges, rowptr_stride, col_stride, edge_stride, scale_stride, degree_stride, tiles, limit,
    CHANNELS: tl.constexpr, CONSTANT: tl.constexpr, RELU: tl.constexpr, MEAN: tl.constexpr, DIRECTION: tl.constexpr,
    ACC: tl.constexpr, UNROLL: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """A tile of rows and a block of channels, without the rows that have more than `limit` edges.

    `partial`, backward, takes the tile's part of dw, long rows or not: (members, tiles, blocks).
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // tiles
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    row = place % tiles * BR + tl.arange(0, BR)
    exists = row < rows
    first, last = bounds(rowptr + member * rowptr_stride, row, exists, edges)
    short = exists & (last - first <= limit)
    count = last - first
    last = tl.where(short, last, first)
    if col is not None:
        col += member * col_stride
    if edge_of is not None:
        edge_of += member * edge_stride
    if scale is not None:
        scale += member * scale_stride
    if degree is not None:
        degree += member * degree_stride
    own = tl.zeros((BR, BC), ACC)
    if x is not None:
        own = load_rows(x, member * rows + row, channel, tile_mask(exists, channel, CHANNELS, BC), CHANNELS, ACC)
    if partial is not None:
        grads = load_rows(values, member * rows + row, channel, tile_mask(exists, channel, CHANNELS, BC), CHANNELS, ACC)
        products = own * grads
        if scale is not None:
            s = tl.load(scale + row, mask=exists, other=0.0).to(ACC)
            products = products * (s * s)[:, None]
        tl.store(partial + tl.program_id(0), tl.sum(tl.sum(products, 1), 0))
    total = sum_range(
        values, edge_values, own, col, edge_of, scale, degree, member, first, last, channel, rows, edges,
        CHANNELS, RELU, DIRECTION, ACC, UNROLL, BR, BC,
    )  # fmt: skip
    finish(
        total, values, out, scale, self_weight, member, row, short, count, channel, rows,
        CHANNELS, CONSTANT, MEAN, ACC, BC,
    )  # fmt: skip


@triton.jit
def long_row(rowptr, rows, edges, chunk, which, limit):
    """The long row in slot `which` of a chunk (the one that holds its first edge, or else its last), and its bounds.

    begin = end where the slot is empty.
    """
    begin = chunk * limit
    end = tl.minimum(begin + limit, edges)
    row = row_at(rowptr, begin, rows)
    if which == 1:
        other = row_at(rowptr, end - 1, rows)
        end = tl.where(other == row, begin, end)
        row = other
    single = row + tl.arange(0, 1)
    first, last = bounds(rowptr, single, single < rows, edges)
    first = tl.sum(first, 0)
    last = tl.sum(last, 0)
    begin = tl.maximum(begin, first)
    end = tl.minimum(end, last)
    end = tl.where((last - first > limit) & (end > begin), end, begin)
    return row, first, last, begin, end


@triton.jit(do_not_specialize=SIZES)
def sum_chunks(
    values, edge_values, x, rowptr, col, edge_of, scale, degree, slots,
    rows, edges, rowptr_stride, col_stride, edge_stride, scale_stride, degree_stride, chunks, limit,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, DIRECTION: tl.constexpr, ACC: tl.constexpr, UNROLL: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The part of a long row in one chunk. `slots` is (members, chunks, 2, channels); BR = 1."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    which = place % 2
    member = place // 2 // chunks
    rowptr += member * rowptr_stride
    row, _first, _last, begin, end = long_row(rowptr, rows, edges, place // 2 % chunks, which, limit)
    if col is not None:
        col += member * col_stride
    if edge_of is not None:
        edge_of += member * edge_stride
    if scale is not None:
        scale += member * scale_stride
    if degree is not None:
        degree += member * degree_stride
    if begin < end:
        single = tl.arange(0, BR)
        own = tl.zeros((BR, BC), ACC)
        if x is not None:
            here = tile_mask(single == 0, channel, CHANNELS, BC)
            own = load_rows(x, member * rows + row + single, channel, here, CHANNELS, ACC)
        total = sum_range(
            values, edge_values, own, col, edge_of, scale, degree, member, begin + single, end + single, channel,
            rows, edges, CHANNELS, RELU, DIRECTION, ACC, UNROLL, BR, BC,
        )  # fmt: skip
        at = (place + single)[:, None] * CHANNELS + channel[None, :]
        tl.store(slots + at, total, mask=tile_mask(single == 0, channel, CHANNELS, BC))


@triton.jit(do_not_specialize=SIZES)
def join_chunks(
    values, out, rowptr, scale, self_weight, slots, rows, edges, rowptr_stride, scale_stride, chunks, limit,
    CHANNELS: tl.constexpr, CONSTANT: tl.constexpr, MEAN: tl.constexpr, ACC: tl.constexpr,
    BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The slot where a long row begins finishes that row: always in the order of the chunks, and in double."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    which = place % 2
    member = place // 2 // chunks
    rowptr += member * rowptr_stride
    row, first, last, begin, end = long_row(rowptr, rows, edges, place // 2 % chunks, which, limit)
    if scale is not None:
        scale += member * scale_stride
    if (begin < end) & (begin == first):
        total = tl.zeros((BC,), tl.float64)
        final = (last - 1) // limit
        for start in range(first // limit, final + 1, BW):
            chunk = start + tl.arange(0, BW)
            slot = (member * chunks + chunk) * 2 + (first > chunk * limit).to(tl.int64)
            part = load_rows(slots, slot, channel, tile_mask(chunk <= final, channel, CHANNELS, BC), CHANNELS, ACC)
            total += tl.sum(part.to(tl.float64), 0)
        single = tl.arange(0, 1)
        finish(
            total.to(ACC)[None, :], values, out, scale, self_weight, member, row + single, single == 0,
            last - first + single, channel, rows, CHANNELS, CONSTANT, MEAN, ACC, BC,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def edge_gradient(
    dy, x, edge_x, out, rowptr, col, edge_of, scale,
    rows, edges, rowptr_stride, col_stride, edge_stride, scale_stride, tiles, steps,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, MEAN: tl.constexpr, ACC: tl.constexpr,
    BE: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """m of a tile of edges; their rows are found by bisection, in `steps` steps."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // tiles
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    e = place % tiles * BE + tl.arange(0, BE)
    exists = e < edges
    rowptr += member * rowptr_stride
    low = e * 0
    high = low + rows
    for _ in range(steps):
        middle = (low + high) // 2
        begins = tl.load(rowptr + middle, mask=exists & (middle < rows), other=0).to(tl.int64)
        right = (begins <= e) & (middle > low)
        low = tl.where(right, middle, low)
        high = tl.where(right, high, tl.maximum(middle, low + 1))
    first, last = bounds(rowptr, low, exists, edges)
    inside = exists & (first <= e) & (e < last)
    mask = tile_mask(inside, channel, CHANNELS, BC)
    value = load_rows(dy, member * rows + low, channel, mask, CHANNELS, ACC)
    if MEAN:
        value = value / tl.maximum(last - first, 1).to(ACC)[:, None]
    if col is not None:
        c = tl.load(col + member * col_stride + e, mask=inside, other=0).to(tl.int64)
        c = tl.minimum(tl.maximum(c, 0), rows - 1)
    at = e
    if edge_of is not None:
        at = tl.load(edge_of + member * edge_stride + e, mask=exists, other=0).to(tl.int64)
    if scale is not None:
        scale += member * scale_stride
        factor = tl.load(scale + low, mask=inside, other=0.0).to(ACC) * tl.load(scale + c, mask=inside, other=0.0).to(
            ACC
        )
        value = value * factor[:, None]
    if RELU:
        before = load_rows(edge_x, member * edges + at, channel, mask, CHANNELS, ACC)
        if x is not None:
            before += load_rows(x, member * rows + c, channel, mask, CHANNELS, ACC)
        value = tl.where(before <= 0.0, 0.0, value)
    where = (member * edges + at)[:, None] * CHANNELS + channel[None, :]
    tl.store(out + where, value, mask=tile_mask(exists, channel, CHANNELS, BC))


# ---- launches --------------------------------------------------------------------------------------------------

_MANY_PROGRAMS = 4096  # several times as many as the device runs at a time
_UNROLL_CHUNK = 8  # edges of a long row in flight at a time
_DENSE = 12  # edges per row; with more, each row gets a warp


class Cut(NamedTuple):
    """How one call is cut into programs."""

    rows: Tile  # of ordinary rows
    unroll: int  # edges in flight at a time
    limit: int  # rows with more edges are long
    chunk: Tile  # of long rows: the kernel that reads,
    join: Tile  # and the one that adds up
    edges: Tile  # of the gradients of edges


@lru_cache(maxsize=4096)
def choose_cut(members: int, rows: int, edges: int, channels: int) -> Cut:
    """By the average number of edges, padding included: more is not known without synchronising."""
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
    return Cut(by_row, unroll, limit, chunk, join, Tile(32, block, 4))


class _Edges(NamedTuple):
    """One direction of the edges, contiguous."""

    rowptr: Tensor
    col: Tensor | None
    edge_of: Tensor | None
    scale: Tensor | None
    degree: Tensor | None  # rowptr of the other direction, where messages are divided by the number of edges

    def strides(self) -> tuple[int, ...]:
        return tuple(map(member_stride, self))


def _sums(
    values: Tensor | None,
    edge_values: Tensor | None,
    x: Tensor | None,
    edges: _Edges,
    problem: Problem,
    direction: int,
    partial_of: bool = False,
) -> tuple[Tensor, Tensor | None]:
    """The kernels for both directions: out, ([M,] R, C), and if wanted the parts of dw, ([M,] parts)."""
    features = edge_values if values is None else values
    assert features is not None
    lead, channels = features.shape[:-2], features.shape[-1]
    members, rows = lead[0] if lead else 1, edges.rowptr.shape[-1] - 1
    count = reference.count_edges(problem, edge_values)
    cut = choose_cut(members, rows, count, channels)
    acc = accumulator(features.dtype)
    out = torch.empty((*lead, rows, channels), dtype=features.dtype, device=features.device)
    tiles, blocks = -(-rows // cut.rows.rows), -(-channels // cut.rows.channels)
    wide = accumulation_dtype(features.dtype)
    partial = torch.empty((*lead, tiles * blocks), dtype=wide, device=out.device) if partial_of else None
    self_weight, mean = contiguous(problem.self_weight), problem.mean and direction == FORWARD
    tensors = (values, edge_values, x, out, *edges[:3], edges.scale, edges.degree, self_weight, partial)
    sizes = (rows, count, *edges.strides())
    key = (kinds(*tensors), channels, problem.constant, problem.relu, mean, direction, cut.unroll)
    options: tuple[Any, ...] = (problem.relu, mean, direction, acc, cut.unroll)
    arguments: tuple[Any, ...] = (*tensors, *sizes, tiles, cut.limit)
    launch(
        sum_rows, out.device, key, members * tiles * blocks, cut.rows, arguments, channels, problem.constant, *options
    )  # fmt: skip
    longest = count if problem.max_degree is None else min(count, problem.max_degree)
    if longest > cut.limit:
        chunks = -(-count // cut.limit)
        slots = torch.empty((members * chunks * 2, channels), dtype=wide, device=out.device)
        programs = members * chunks * 2 * blocks
        arguments = (values, edge_values, x, *edges, slots, *sizes, chunks, cut.limit)
        options = (problem.relu, direction, acc, _UNROLL_CHUNK)
        launch(sum_chunks, out.device, key, programs, cut.chunk, arguments, channels, *options)
        arguments = (values, out, edges.rowptr, edges.scale, self_weight, slots, rows, count)
        arguments += (member_stride(edges.rowptr), member_stride(edges.scale), chunks, cut.limit)
        launch(join_chunks, out.device, key, programs, cut.join, arguments, channels, problem.constant, mean, acc)
    return out, partial


def _ahead(problem: Problem) -> _Edges:
    arrays = (problem.rowptr.contiguous(), contiguous(problem.col), contiguous(problem.edge_of))
    return _Edges(*arrays, contiguous(problem.scale), None)


def forward(x: Tensor | None, edge_x: Tensor | None, problem: Problem) -> Tensor:
    """As :func:`graphnorm.ops.neighbour_sum.reference.forward`."""
    return _sums(contiguous(x), contiguous(edge_x), None, _ahead(problem), problem, FORWARD)[0]


def backward(
    dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """As :func:`graphnorm.ops.neighbour_sum.reference.backward`."""
    dy, x, edge_x = dy.contiguous(), contiguous(x), contiguous(edge_x)
    dx, da, dw = reference.not_wanted(dy)
    if wanted.dx:
        assert problem.t_rowptr is not None
        degree = problem.rowptr.contiguous() if problem.mean else None
        reverse = (problem.t_rowptr.contiguous(), contiguous(problem.t_col), contiguous(problem.t_edge))
        edges = _Edges(*reverse, contiguous(problem.scale), degree)
        own = x if problem.relu or wanted.dw else None
        masked = edge_x if problem.relu else None
        dx, partial = _sums(dy, masked, own, edges, problem, BACKWARD, wanted.dw)
        if partial is not None:
            dw = partial.sum(-1, dtype=torch.float64).to(partial.dtype)
    elif wanted.dw:
        dw = reference.backward(dy, x, edge_x, problem, Wanted(False, None, True))[2]
    if wanted.da is not None:
        da = _edge_gradient(dy, x, edge_x, problem, wanted.da)
    return dx, da, dw


def _edge_gradient(dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, count: int) -> Tensor:
    """da, ([M,] E, C)."""
    lead, rows, channels = dy.shape[:-2], problem.rows, dy.shape[-1]
    members, edges = lead[0] if lead else 1, _ahead(problem)
    tile = choose_cut(members, rows, count, channels).edges
    out = torch.empty((*lead, count, channels), dtype=dy.dtype, device=dy.device)
    tiles = -(-count // tile.rows)
    masked = (x, edge_x) if problem.relu else (None, None)
    tensors = (dy, *masked, out, *edges[:4])
    key = (kinds(*tensors), channels, problem.relu, problem.mean)
    arguments = (*tensors, rows, count, *edges.strides()[:4], tiles, max(1, rows).bit_length())
    programs = members * tiles * -(-channels // tile.channels)
    launch(
        edge_gradient,
        out.device,
        key,
        programs,
        tile,
        arguments,
        channels,
        problem.relu,
        problem.mean,
        accumulator(dy.dtype),
    )
    return out
