"""Triton kernels for segments too long for one program: all processors share one graph.

Rows are cut at fixed windows, so the cut needs no look at the sizes from the host. A segment is long when it has more
rows than a window; a window then meets at most two long segments, the one that owns its first row and the one that
owns its last. These are its two *slots*. Statistics go by slot, are joined by the slot in which a segment begins (its
*home*), and applied by the slots of finer windows, last window first, while the cache still holds it.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    SIZES,
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
def _owner(ptr, segments, position):
    """The last segment that begins at or before `position`: a search that halves 256-fold at each look."""
    looks = tl.arange(0, 256)
    g = position * 0
    span = g + segments
    while span > 1:
        stride = (span + 255) // 256
        begins = tl.load(ptr + g + looks * stride, mask=looks * stride < span, other=2**62)
        passed = (tl.maximum(tl.sum((begins <= position).to(tl.int32), 0), 1) - 1) * stride
        g += passed
        span = tl.minimum(stride, span - passed)
    return g


@triton.jit
def _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER: tl.constexpr):
    """The long segment of one slot: member, segment, its first and last row, and those inside the window.

    `place` counts slots over all members: window w of member m has the PER slots from PER (m windows + w) on. PER is 2,
    or 1 where a member is a single segment. A slot without a long segment has no rows: the last two numbers are equal.
    """
    member = place // (PER * windows)
    low = place // PER % windows * window
    high = tl.minimum(low + window, rows)
    second = place % PER
    position = tl.where(second == 1, high - 1, low)
    g = position * 0
    if ptr is not None:
        g = _owner(ptr + member * ptr_stride, segments, position)
    first, last = bounds(ptr, ptr_stride, member, g, rows)
    mine = (first <= position) & (position < last) & (last - first > limit) & ((second == 0) | (first > low))
    begin = tl.maximum(first, low)
    return member, g, first, last, begin, tl.where(mine, tl.minimum(last, high), begin)


@triton.jit
def _slot_of(w, first, window, windows, member, PER: tl.constexpr):
    """The slot that a long segment beginning at `first` has in window w."""
    slot = PER * (member * windows + w)
    if PER == 2:
        slot += tl.where(first > w * window, 1, 0)
    return slot


@triton.jit(do_not_specialize=SIZES)
def long_statistics(
    x, ptr, order, slot_mean, slot_m2, rows, segments, ptr_stride, order_stride, window, windows, limit,
    PER: tl.constexpr, CHANNELS: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and m2 of each slot, (slots, channels)."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, _g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if begin < end:
        mean, m2 = range_statistics(x, order, order_stride, member, rows, begin, end, channel, CHANNELS, ACC, BR, BC)
        tl.store(slot_mean + place * CHANNELS + channel, mean, mask=in_channels)
        tl.store(slot_m2 + place * CHANNELS + channel, m2, mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def long_join(
    ptr, slot_mean, slot_m2, mean, var, rows, segments, ptr_stride, window, windows, limit,
    PER: tl.constexpr, CHANNELS: tl.constexpr, ACC: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and variance of each long segment, at its home, BW windows at a time."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if (begin < end) & (begin == first):
        w1 = (last - 1) // window
        n = (last - first).to(tl.float64)
        base = tl.load(slot_mean + place * CHANNELS + channel, mask=in_channels, other=0.0)
        total = tl.zeros((BC,), tl.float64)
        square = tl.zeros((BC,), tl.float64)
        for start in range(first // window, w1 + 1, BW):
            w = start + tl.arange(0, BW)
            mask = (w <= w1)[:, None] & in_channels[None, :]
            at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
            count = (tl.minimum(last, (w + 1) * window) - tl.maximum(first, w * window)).to(tl.float64)[:, None]
            gap = tl.load(slot_mean + at, mask=mask, other=0.0) - base[None, :]
            m2 = tl.load(slot_m2 + at, mask=mask, other=0.0).to(tl.float64)
            total += tl.sum(tl.where(mask, count * gap, 0.0), 0)
            square += tl.sum(tl.where(mask, m2 + count * gap * gap, 0.0), 0)
        above = total / n
        centre = base + above
        m2 = tl.maximum(square - total * above, 0.0)
        stored = (member * segments + g) * CHANNELS + channel
        tl.store(mean + stored, centre, mask=in_channels)
        tl.store(var + stored, (m2 / n).to(ACC), mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def long_apply(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, window, windows, limit,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of each slot."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def long_sums(
    x, dy, ptr, order, weight, bias, mean_scale, mean, var, slot_sums,
    rows, segments, ptr_stride, order_stride, window, windows, limit, plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """P and Q of each slot; slot_sums is (2, slots, channels), `plane` = slots * channels."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        P, Q = range_sums(
            x, dy, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip
        tl.store(slot_sums + place * CHANNELS + channel, P, mask=in_channels)
        tl.store(slot_sums + plane + place * CHANNELS + channel, Q, mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def long_reduce(
    ptr, weight, bias, mean_scale, mean, var, slot_sums, partial,
    rows, segments, ptr_stride, window, windows, limit, plane, slots, partial_plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The parameters' gradients of each long segment into `partial`; slope and constant over the sums at its home.

    `partial` has for each member, behind the slots that the short kernels fill, one per slot here, or just one where
    the member is a single segment.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
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
            at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
            P += tl.sum(tl.load(slot_sums + at, mask=mask, other=0.0).to(tl.float64), 0)
            Q += tl.sum(tl.load(slot_sums + plane + at, mask=mask, other=0.0).to(tl.float64), 0)
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        alpha, kept, r, scale, _o = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        dbias = P.to(ACC)
        slope, constant, dweight, dmean_scale = gradient_coefficients(
            dbias, Q.to(ACC), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
        )
        tl.store(slot_sums + place * CHANNELS + channel, slope, mask=in_channels)
        tl.store(slot_sums + plane + place * CHANNELS + channel, constant, mask=in_channels)
    if PER == 2:
        at_partial = ((member + 1) * slots - PER * windows + place % (PER * windows)) * CHANNELS + channel
        add_partial(partial, partial_plane, at_partial, in_channels, dweight, dbias, dmean_scale)
    elif begin == 0:
        add_partial(partial, partial_plane, member * CHANNELS + channel, in_channels, dweight, dbias, dmean_scale)


@triton.jit(do_not_specialize=SIZES)
def long_gradient(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, slot_sums,
    rows, segments, ptr_stride, order_stride, fine_window, fine_windows, limit, window, windows, plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of each slot of the finer windows; slope and constant lie at the home in the coarser ones."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, _l, begin, end = _slot(
        ptr, ptr_stride, segments, rows, fine_window, fine_windows, limit, place, PER
    )
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        home = _slot_of(first // window, first, window, windows, member, PER) * CHANNELS + channel
        slope = tl.load(slot_sums + home, mask=in_channels, other=0.0)
        constant = tl.load(slot_sums + plane + home, mask=in_channels, other=0.0)
        gradient_range(
            x, dy, dx, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip
