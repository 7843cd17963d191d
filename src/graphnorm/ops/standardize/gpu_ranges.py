"""What the Triton kernels do with a range of a segment's rows, tile by tile."""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    before_tail,
    finish,
    gradient_of,
    load,
    load_first,
    offsets,
    run_of,
    tile_mask,
)


@triton.jit
def fill_outside(
    out, residual, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Positions [first, last) belong to no segment: they get the residual, or zero."""
    tile = tl.arange(0, BR)
    zero = tl.zeros((BR, BC), ACC)
    for start in range(first, last, BR):
        inside = start + tile < last
        at = offsets(order, order_stride, member, rows, False, 0, start + tile, inside, channel, CHANNELS)
        finish(out, residual, at, tile_mask(inside, channel, CHANNELS, BC), zero, False, ACC)


@triton.jit
def tile_statistics(values, mask, count):
    """Mean, in two parts, and m2 of a tile in registers: exact to rounding, however large the mean."""
    rough = tl.sum(values, 0) / count
    d = tl.where(mask, values - rough[None, :], 0.0)
    shift = tl.sum(d, 0) / count
    return rough, shift, tl.maximum(tl.sum(d * d, 0) - count * shift * shift, 0.0)


@triton.jit
def range_statistics(
    x, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean (double) and m2 of positions [first, last): tile by tile, joined about the first tile's mean."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    tile = tl.arange(0, BR)
    n = last - first
    base = tl.zeros((BC,), ACC)
    above = tl.zeros((BC,), ACC)
    m2 = tl.zeros((BC,), ACC)
    for start in range(0, n, BR):
        inside = start + tile < n
        at = offsets(
            order, order_stride, member, rows, consecutive, shift, first + start + tile, inside, channel, CHANNELS
        )  # fmt: skip
        mask = tile_mask(inside, channel, CHANNELS, BC)
        here = tl.minimum(n - start, BR).to(ACC)
        before = (start + n * 0).to(ACC)
        rough, finer, tile_m2 = tile_statistics(load_first(x, at, mask, ACC), mask, here)
        base = tl.where(start == 0, rough, base)
        gap = (rough - base) + finer - above
        above += gap * (here / (before + here))
        m2 += tile_m2 + gap * gap * (before * here / (before + here))
    return base.to(tl.float64) + above.to(tl.float64), m2


@triton.jit
def long_range_statistics(
    x, order, order_stride, member, rows, first, last, channel,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """As :func:`range_statistics`: Σ d and Σ d² of d = x - the first tile's mean, which no tile has to wait for.

    d is at most as large as the values lie apart. The first tile is among them, so that Σ d² is at most (last - first)
    / BR times as large as m2: that many roundings are lost at the worst, and next to none where rows come in any order.
    """
    consecutive, shift = run_of(order, order_stride, member, first, last)
    tile = tl.arange(0, BR)
    n = last - first
    inside = tile < n
    at = offsets(order, order_stride, member, rows, consecutive, shift, first + tile, inside, channel, CHANNELS)
    mask = tile_mask(inside, channel, CHANNELS, BC)
    values = load_first(x, at, mask, ACC)
    base = tl.sum(values, 0) / tl.minimum(n, BR).to(ACC)
    sums = tl.where(mask, values - base[None, :], 0.0)
    squares = sums * sums
    for start in range(BR, n, 2 * BR):  # two tiles are on their way at a time
        position = first + start + tile
        inside = position < last
        inside2 = position + BR < last
        at = offsets(order, order_stride, member, rows, consecutive, shift, position, inside, channel, CHANNELS)
        at2 = offsets(order, order_stride, member, rows, consecutive, shift, position + BR, inside2, channel, CHANNELS)
        mask = tile_mask(inside, channel, CHANNELS, BC)
        mask2 = tile_mask(inside2, channel, CHANNELS, BC)
        values = load_first(x, at, mask, ACC)
        values2 = load_first(x, at2, mask2, ACC)
        d = tl.where(mask, values - base[None, :], 0.0)
        d2 = tl.where(mask2, values2 - base[None, :], 0.0)
        sums += d + d2
        squares += d * d + d2 * d2
    total = tl.sum(sums, 0)
    above = total / n.to(ACC)
    return base.to(tl.float64) + above.to(tl.float64), tl.maximum(tl.sum(squares, 0) - total * above, 0.0)


@triton.jit
def _tile_from(
    order, order_stride, member, rows, consecutive, shift, first, last, start, channel,
    CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Where the BR positions from first + start on lie in x, and which elements of that tile are before `last`."""
    tile = tl.arange(0, BR)
    inside = start + tile < last - first
    at = offsets(
        order, order_stride, member, rows, consecutive, shift, first + start + tile, inside, channel, CHANNELS
    )  # fmt: skip
    return at, tile_mask(inside, channel, CHANNELS, BC)


@triton.jit
def apply_range(
    x, y, residual, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of positions [first, last)."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        z = scale[None, :] * (load(x, at, mask, ACC) - centre[None, :]) + offset[None, :]
        finish(y, residual, at, mask, z, RELU, ACC)


@triton.jit
def range_sums(
    x, dy, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, APART: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """P = Σ dz and Q = Σ dz (x - centre) over positions [first, last).

    APART: whether each element of a tile has sums of its own until the end, so that no tile waits for the sums of the
    one before; in twice the registers.
    """
    consecutive, shift = run_of(order, order_stride, member, first, last)
    kept: tl.constexpr = BR if APART else 1
    P = tl.zeros((kept, BC), ACC)
    Q = tl.zeros((kept, BC), ACC)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        d = load_first(x, at, mask, ACC) - centre[None, :]
        dz = before_tail(load_first(dy, at, mask, ACC), d, scale, offset, RELU)
        if APART:
            P += dz
            Q += dz * d
        else:
            P += tl.sum(dz, 0)[None, :]
            Q += tl.sum(dz * d, 0)[None, :]
    return tl.sum(P, 0), tl.sum(Q, 0)


@triton.jit
def gradient_range(
    x, dy, dx, order, order_stride, member, rows, first, last, channel, centre, scale, offset,
    slope, constant, CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of positions [first, last)."""
    consecutive, shift = run_of(order, order_stride, member, first, last)
    for start in range(0, last - first, BR):
        at, mask = _tile_from(
            order, order_stride, member, rows, consecutive, shift, first, last, start, channel, CHANNELS, BR, BC
        )  # fmt: skip
        d = load(x, at, mask, ACC) - centre[None, :]
        found = gradient_of(load(dy, at, mask, ACC), d, scale, offset, slope, constant, RELU)
        tl.store(dx + at, found, mask=mask)
