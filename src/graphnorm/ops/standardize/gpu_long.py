"""Triton kernels for segments too long for one program: all processors share one graph.

Rows are cut at fixed windows, so the cut needs no look at the sizes from the host. A segment is long when it has more
rows than a window; a window then meets at most two long segments, the one that owns its first row and the one that
owns its last. These are its two *slots*. Statistics go by slot, are joined by the slot in which a segment begins (its
*home*), and applied by slot again, last window first, while the cache still holds it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    add_partial,
    apply_range,
    bounds,
    coefficients,
    gradient_coefficients,
    gradient_range,
    range_statistics,
    range_sums,
    statistics_of,
)


@triton.jit
def _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place):
    """The long segment of one slot: member, segment, its first and last row, and those inside the window.

    `place` counts slots over all members: window w of member m has slots 2 (m windows + w) and the one after it.
    A slot without a long segment has no rows inside: the last two numbers are equal.
    """
    member = place // (2 * windows)
    low = place // 2 % windows * window
    high = tl.minimum(low + window, rows)
    second = place % 2
    position = tl.where(second == 1, high - 1, low)
    g = position * 0
    if ptr is not None:
        end = g + segments
        while end - g > 1:
            middle = (g + end) // 2
            before = tl.load(ptr + member * ptr_stride + middle) <= position
            g = tl.where(before, middle, g)
            end = tl.where(before, end, middle)
    first, last = bounds(ptr, ptr_stride, member, g, rows)
    mine = (first <= position) & (position < last) & (last - first > limit) & ((second == 0) | (first > low))
    begin = tl.maximum(first, low)
    return member, g, first, last, begin, tl.where(mine, tl.minimum(last, high), begin)


@triton.jit
def _slot_of(w, first, window, windows, member):
    """The slot that a long segment beginning at `first` has in window w."""
    return 2 * (member * windows + w) + tl.where(first > w * window, 1, 0)


@triton.jit
def long_statistics(
    x, ptr, order, slot_mean, slot_m2, rows, segments, ptr_stride, order_stride, window, windows, limit,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and m2 of each slot, (slots, channels)."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, _g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    if begin < end:
        mean, m2 = range_statistics(
            x, order, order_stride, member, rows, begin, end, channel, in_channels, CHANNELS, ACC, BR, BC
        )
        tl.store(slot_mean + place * CHANNELS + channel, mean, mask=in_channels)
        tl.store(slot_m2 + place * CHANNELS + channel, m2, mask=in_channels)


@triton.jit
def long_join(
    ptr, slot_mean, slot_m2, mean, var, rows, segments, ptr_stride, window, windows, limit,
    CHANNELS: tl.constexpr, ACC: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and variance of each long segment, at its home, BW windows at a time."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    if (begin < end) & (begin == first):
        w0, w1 = first // window, (last - 1) // window
        n = (last - first).to(tl.float64)
        total = tl.zeros((BC,), tl.float64)
        for start in range(w0, w1 + 1, BW):
            w = start + tl.arange(0, BW)
            mask = (w <= w1)[:, None] & in_channels[None, :]
            at = _slot_of(w, first, window, windows, member)[:, None] * CHANNELS + channel[None, :]
            count = (tl.minimum(last, (w + 1) * window) - tl.maximum(first, w * window)).to(tl.float64)
            total += tl.sum(tl.where(mask, count[:, None] * tl.load(slot_mean + at, mask=mask, other=0.0), 0.0), 0)
        centre = total / n
        m2 = tl.zeros((BC,), tl.float64)
        for start in range(w0, w1 + 1, BW):
            w = start + tl.arange(0, BW)
            mask = (w <= w1)[:, None] & in_channels[None, :]
            at = _slot_of(w, first, window, windows, member)[:, None] * CHANNELS + channel[None, :]
            count = (tl.minimum(last, (w + 1) * window) - tl.maximum(first, w * window)).to(tl.float64)
            gap = tl.load(slot_mean + at, mask=mask, other=0.0) - centre[None, :]
            here = tl.load(slot_m2 + at, mask=mask, other=0.0).to(tl.float64)
            m2 += tl.sum(tl.where(mask, here + count[:, None] * gap * gap, 0.0), 0)
        stored = (member * segments + g) * CHANNELS + channel
        tl.store(mean + stored, centre, mask=in_channels)
        tl.store(var + stored, (m2 / n).to(ACC), mask=in_channels)


@triton.jit
def long_apply(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, eps, window, windows, limit,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of each slot."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, begin, end, channel, in_channels,
            centre, scale, offset, CHANNELS, RELU, ACC, BR,
        )  # fmt: skip


@triton.jit
def long_sums(
    x, dy, ptr, order, weight, bias, mean_scale, mean, var, slot_sums,
    rows, segments, ptr_stride, order_stride, eps, window, windows, limit, plane,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """P and Q of each slot; slot_sums is (2, slots, channels), `plane` = slots * channels."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        P, Q = range_sums(
            x, dy, order, order_stride, member, rows, begin, end, channel, in_channels,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip
        tl.store(slot_sums + place * CHANNELS + channel, P, mask=in_channels)
        tl.store(slot_sums + plane + place * CHANNELS + channel, Q, mask=in_channels)


@triton.jit
def long_reduce(
    ptr, weight, bias, mean_scale, mean, var, slot_sums, partial,
    rows, segments, ptr_stride, eps, window, windows, limit, plane, slots, partial_plane,
    CHANNELS: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The parameters' gradients of each long segment into the last `2 windows` of a member's `slots` in `partial`;
    its slope and constant over the sums at its home."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    dweight = tl.zeros((BC,), ACC)
    dbias = tl.zeros((BC,), ACC)
    dmean_scale = tl.zeros((BC,), ACC)
    if (begin < end) & (begin == first):
        w1 = (last - 1) // window
        P = tl.zeros((BC,), tl.float64)
        Q = tl.zeros((BC,), tl.float64)
        for start in range(first // window, w1 + 1, BW):
            w = start + tl.arange(0, BW)
            mask = (w <= w1)[:, None] & in_channels[None, :]
            at = _slot_of(w, first, window, windows, member)[:, None] * CHANNELS + channel[None, :]
            P += tl.sum(tl.load(slot_sums + at, mask=mask, other=0.0).to(tl.float64), 0)
            Q += tl.sum(tl.load(slot_sums + plane + at, mask=mask, other=0.0).to(tl.float64), 0)
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        alpha, kept, r, scale, _o = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        dbias = P.to(ACC)
        slope, constant, dweight, dmean_scale = gradient_coefficients(
            dbias, Q.to(ACC), last - first, centre, rest, spread, alpha, kept, r, scale, eps, LIVE
        )
        tl.store(slot_sums + place * CHANNELS + channel, slope, mask=in_channels)
        tl.store(slot_sums + plane + place * CHANNELS + channel, constant, mask=in_channels)
    at_partial = ((member + 1) * slots - 2 * windows + place % (2 * windows)) * CHANNELS + channel
    add_partial(partial, partial_plane, at_partial, in_channels, dweight, dbias, dmean_scale)


@triton.jit
def long_gradient(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, slot_sums,
    rows, segments, ptr_stride, order_stride, eps, window, windows, limit, plane,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of each slot."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        home = _slot_of(first // window, first, window, windows, member) * CHANNELS + channel
        slope = tl.load(slot_sums + home, mask=in_channels, other=0.0)
        constant = tl.load(slot_sums + plane + home, mask=in_channels, other=0.0)
        gradient_range(
            x, dy, dx, order, order_stride, member, rows, begin, end, channel, in_channels,
            centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR,
        )  # fmt: skip
