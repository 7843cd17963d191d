"""Triton kernels for segments too long for one program: all processors share one graph.

Rows are cut at fixed windows, so the cut needs no look at the sizes from the host. A segment is long when it has more
rows than a window; a window then meets at most two long segments, the one that owns its first row and the one that
owns its last. These are its two *slots*. Statistics go by slot; of the programs that share a segment the last one to
come joins them, in the order of the windows. They are applied by the slots of finer windows, last window first, while
the cache still holds it; where a segment is all of its member, by :mod:`~graphnorm.ops.standardize.gpu_whole`.

The slot in which a segment begins is its *home*. No window is home to two long segments.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    SIZES,
    arrived_last,
    bounds,
    coefficients,
    gradient_coefficients,
    statistics_of,
    store_gradients,
    store_shares,
    stored_affine,
    sum_of_shares,
    wait_for_the_one_before,
)
from graphnorm.ops.standardize.gpu_ranges import apply_range, gradient_range, long_range_statistics, range_sums

ADDED = tl.constexpr(8)
"""Channels of the parameters' gradients that one program adds up."""


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


@triton.jit
def _is_last(counters, first, last, window, windows, member, block, blocks, PER: tl.constexpr):
    """Whether all other windows of a segment are done with. One counter per slot and block, that of its home counts."""
    w0 = first // window
    home = _slot_of(w0, first, window, windows, member, PER)
    return arrived_last(counters + home * blocks + block, (last - 1) // window - w0 + 1)


@triton.jit
def window_statistics(
    x, ptr, order, mean, var, slot_statistics, counters, place, block, rows, segments, ptr_stride, order_stride,
    window, windows, limit, slot_plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Mean and m2 of one slot, into slot_statistics (2, slots, channels); once all are there, those of the segment.

    BL rows, and BW windows, at a time.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    if begin < end:
        here, m2 = long_range_statistics(
            x, order, order_stride, member, rows, begin, end, channel, CHANNELS, ACC, BL, BC
        )
        tl.store(slot_statistics + place * CHANNELS + channel, here, mask=in_channels)
        tl.store(slot_statistics + slot_plane + place * CHANNELS + channel, m2, mask=in_channels)
        if _is_last(counters, first, last, window, windows, member, block, blocks, PER):
            w1 = (last - 1) // window
            n = (last - first).to(tl.float64)
            home = _slot_of(first // window, first, window, windows, member, PER) * CHANNELS + channel
            base = tl.load(slot_statistics + home, mask=in_channels, other=0.0, cache_modifier=".cg")
            total = tl.zeros((BC,), tl.float64)
            square = tl.zeros((BC,), tl.float64)
            for start in range(first // window, w1 + 1, BW):
                w = start + tl.arange(0, BW)
                mask = (w <= w1)[:, None] & in_channels[None, :]
                at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
                count = (tl.minimum(last, (w + 1) * window) - tl.maximum(first, w * window)).to(tl.float64)[:, None]
                means = tl.load(slot_statistics + at, mask=mask, other=0.0, cache_modifier=".cg")
                squares = tl.load(slot_statistics + slot_plane + at, mask=mask, other=0.0, cache_modifier=".cg")
                gap = means - base[None, :]
                total += tl.sum(tl.where(mask, count * gap, 0.0), 0)
                square += tl.sum(tl.where(mask, squares + count * gap * gap, 0.0), 0)
            above = total / n
            stored = (member * segments + g) * CHANNELS + channel
            tl.store(mean + stored, base + above, mask=in_channels)
            tl.store(var + stored, (tl.maximum(square - total * above, 0.0) / n).to(ACC), mask=in_channels)


@triton.jit(do_not_specialize=SIZES)
def long_apply(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, window, windows, limit,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of each slot."""
    wait_for_the_one_before(EARLY)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    channel = backwards % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, _f, _l, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, 2)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        of_member = member * CHANNELS + channel
        centre, scale, offset = stored_affine(
            mean, var, stored, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip


@triton.jit
def window_sums(
    x, dy, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    place, block, rows, segments, ptr_stride, order_stride, window, windows, limit, runs, slots, plane, slot_plane,
    PER: tl.constexpr, CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr,
    APART: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """P and Q of one slot; slope, constant and the parameters' gradients of the segment once all its slots are there.

    They lie behind the shares, (4, slots, channels): P, Q and, at the homes, slope and constant. A segment's gradients
    go to the share of its window of home, behind those of the short segments; or, where it is the only one (PER = 1),
    where they belong.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    member, g, first, last, begin, end = _slot(ptr, ptr_stride, segments, rows, window, windows, limit, place, PER)
    sums = shares + 3 * plane
    of_member = member * CHANNELS + channel
    if PER == 2:
        low = place // PER % windows * window
        is_home = (first >= low) & (first < low + window) & (last - first > limit)
        if (place % 2 == 1) & (is_home == 0):  # the second slot sees whether any segment has its home in this window
            at_share = (member * slots + runs + place // PER % windows) * CHANNELS + channel
            none = tl.zeros((BC,), ACC)
            store_shares(shares, plane, at_share, in_channels, none, none, none)
    if begin < end:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        alpha, kept, r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        P, Q = range_sums(
            x, dy, order, order_stride, member, rows, begin, end, channel,
            centre, scale, offset, CHANNELS, RELU, APART, ACC, BL, BC,
        )  # fmt: skip
        tl.store(sums + place * CHANNELS + channel, P, mask=in_channels)
        tl.store(sums + slot_plane + place * CHANNELS + channel, Q, mask=in_channels)
        if _is_last(counters, first, last, window, windows, member, block, blocks, PER):
            w0 = first // window
            w1 = (last - 1) // window
            all_P = tl.zeros((BC,), tl.float64)
            all_Q = tl.zeros((BC,), tl.float64)
            for start in range(w0, w1 + 1, BW):
                w = start + tl.arange(0, BW)
                mask = (w <= w1)[:, None] & in_channels[None, :]
                at = _slot_of(w, first, window, windows, member, PER)[:, None] * CHANNELS + channel[None, :]
                some_P = tl.load(sums + at, mask=mask, other=0.0, cache_modifier=".cg")
                some_Q = tl.load(sums + slot_plane + at, mask=mask, other=0.0, cache_modifier=".cg")
                all_P += tl.sum(some_P.to(tl.float64), 0)
                all_Q += tl.sum(some_Q.to(tl.float64), 0)
            of_bias = all_P.to(ACC)
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                of_bias, all_Q.to(ACC), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
            )
            home = _slot_of(w0, first, window, windows, member, PER) * CHANNELS + channel
            tl.store(sums + 2 * slot_plane + home, slope, mask=in_channels)
            tl.store(sums + 3 * slot_plane + home, constant, mask=in_channels)
            if PER == 2:
                at_share = (member * slots + runs + w0) * CHANNELS + channel
                store_shares(shares, plane, at_share, in_channels, of_weight, of_bias, of_mean_scale)
            else:
                store_gradients(
                    dweight, dbias, dmean_scale, of_member, in_channels, of_weight, of_bias, of_mean_scale
                )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def long_gradient(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, fine_window, fine_windows, limit, window, windows, slots, plane,
    slot_plane, adds,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of each slot of the finer windows; slope and constant lie at the home in the coarser ones.

    The first `adds` programs add up the shares of the parameters' gradients, :data:`ADDED` channels of a member each.
    """
    plane = plane.to(tl.int64)
    wait_for_the_one_before(EARLY)
    if tl.program_id(0) >= adds:
        blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
        backwards = tl.num_programs(0) - 1 - tl.program_id(0)
        place = (backwards // blocks).to(tl.int64)
        channel = backwards % blocks * BC + tl.arange(0, BC)
        in_channels = channel < CHANNELS
        member, g, first, _l, begin, end = _slot(
            ptr, ptr_stride, segments, rows, fine_window, fine_windows, limit, place, 2
        )
        if begin < end:
            stored = (member * segments + g) * CHANNELS + channel
            of_member = member * CHANNELS + channel
            centre, scale, offset = stored_affine(
                mean, var, stored, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
            )
            sums = shares + 3 * plane + 2 * slot_plane
            home = _slot_of(first // window, first, window, windows, member, 2) * CHANNELS + channel
            slope = tl.load(sums + home, mask=in_channels, other=0.0)
            constant = tl.load(sums + slot_plane + home, mask=in_channels, other=0.0)
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, begin, end, channel,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
    else:
        narrow: tl.constexpr = (CHANNELS + ADDED - 1) // ADDED
        member = (tl.program_id(0) // narrow).to(tl.int64)
        added = tl.program_id(0) % narrow * ADDED + tl.arange(0, ADDED)
        there = added < CHANNELS
        of_weight, of_bias, of_mean_scale = sum_of_shares(
            shares, plane, member * slots, (member + 1) * slots, added, there, CHANNELS, 128, ADDED
        )
        at = member * CHANNELS + added
        store_gradients(dweight, dbias, dmean_scale, at, there, of_weight, of_bias, of_mean_scale)
