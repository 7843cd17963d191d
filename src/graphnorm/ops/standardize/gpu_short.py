"""Triton kernels for segments that one program can take on; they are the first kernel of every call.

A segment is read tile by tile, once for its sums and once more, from the cache, for the output, so each element crosses
the memory bus once each way. Backward, where every segment fits one tile, it stays in registers instead; a program
works through a run of segments and adds up the gradients of the parameters on its way, and the last program adds up
those of all runs. Segments of more than `limit` rows are left to :mod:`graphnorm.ops.standardize.gpu_long`, whose first
half is done by further programs of the same launch.

A program has a block of channels; blocks of the same segments are neighbours in the grid, since they share sectors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    SIZES,
    add_up,
    before_tail,
    bounds,
    coefficients,
    gradient_coefficients,
    let_the_next_begin,
    load,
    offsets,
    run_of,
    split,
    statistics_of,
    store_shares,
    tile_mask,
)
from graphnorm.ops.standardize.gpu_long import window_statistics, window_sums
from graphnorm.ops.standardize.gpu_ranges import (
    apply_range,
    fill_outside,
    gradient_range,
    range_statistics,
    range_sums,
    tile_statistics,
)


@triton.jit
def _boundary(ptr, ptr_stride, member, g, rows):
    """ptr[g] of a member, kept inside it whatever ptr says."""
    return tl.minimum(tl.maximum(tl.load(ptr + member * ptr_stride + g), 0), rows)


# ---- forward ---------------------------------------------------------------------------------------------------


@triton.jit
def _forward_segment(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, index, channel,
    rows, segments, ptr_stride, order_stride, limit,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    member, g = index // segments, index % segments
    in_channels = channel < CHANNELS
    first, last = bounds(ptr, ptr_stride, member, g, rows)
    if ptr is not None:
        if g == 0:
            fill_outside(y, residual, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
        if g == segments - 1:
            fill_outside(y, residual, order, order_stride, member, rows, last, rows, channel, CHANNELS, ACC, BR, BC)
    stored = index * CHANNELS + channel
    if last - first <= limit:
        if not GIVEN:
            wide, m2 = range_statistics(
                x, order, order_stride, member, rows, first, last, channel, CHANNELS, ACC, BR, BC
            )
            centre, rest = split(wide, ACC)
            spread = m2 / tl.maximum(last - first, 1).to(ACC)
            if mean is not None:
                tl.store(mean + stored, wide, mask=in_channels)
                tl.store(var + stored, spread, mask=in_channels)
        else:
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, first, last, channel,
            centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
        )  # fmt: skip


@triton.jit(do_not_specialize=SIZES)
def forward_short(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, slot_statistics, counters,
    rows, segments, ptr_stride, order_stride, limit, shorts, window, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, PER: tl.constexpr,
    EARLY: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward: y of `shorts` segments, one program for each and block of channels; then statistics of long ones.

    PER: slots of a window, 0 where no segment is long. EARLY: whether the next kernel, which has the rest of the long
    ones, may begin to wait for this one. `counters` holds zeros before and after.
    """
    let_the_next_begin(EARLY)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    index = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    if PER == 0:
        _forward_segment(
            x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, index, channel,
            rows, segments, ptr_stride, order_stride, limit, CHANNELS, EPS, RELU, GIVEN, ACC, BR, BC,
        )  # fmt: skip
    elif index < shorts:
        _forward_segment(
            x, y, residual, ptr, order, weight, bias, mean_scale, mean, var, index, channel,
            rows, segments, ptr_stride, order_stride, limit, CHANNELS, EPS, RELU, GIVEN, ACC, BR, BC,
        )  # fmt: skip
    else:
        window_statistics(
            x, ptr, order, mean, var, slot_statistics, counters, index - shorts, block,
            rows, segments, ptr_stride, order_stride, window, windows, limit, slot_plane,
            PER, CHANNELS, ACC, BL, BW, BC,
        )  # fmt: skip


# ---- backward --------------------------------------------------------------------------------------------------


@triton.jit
def _backward_tile(
    x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
    rows, segments, order_stride,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of a segment of at most BR rows, held in registers, and its share of the parameters' gradients."""
    in_channels = channel < CHANNELS
    tile = tl.arange(0, BR)
    inside = tile < last - first
    consecutive, shift = run_of(order, order_stride, member, first, last)
    at = offsets(order, order_stride, member, rows, consecutive, shift, first + tile, inside, channel, CHANNELS)
    mask = tile_mask(inside, channel, CHANNELS, BC)
    values = load(x, at, mask, ACC)
    grads = load(dy, at, mask, ACC)
    if mean is None:
        count = tl.maximum(last - first, 1).to(ACC)
        rough, finer, m2 = tile_statistics(values, mask, count)
        centre, rest = split(rough.to(tl.float64) + finer.to(tl.float64), ACC)
        spread = m2 / count
    else:
        stored = (member * segments + g) * CHANNELS + channel
        centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
    of_member = member * CHANNELS + channel
    alpha, kept, r, scale, offset = coefficients(
        centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    d = values - centre[None, :]
    dz = before_tail(grads, d, scale, offset, RELU)
    P = tl.sum(dz, 0)
    slope, constant, of_weight, of_mean_scale = gradient_coefficients(
        P, tl.sum(dz * d, 0), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
    )
    found = scale[None, :] * ((dz + constant[None, :]) - slope[None, :] * d)
    tl.store(dx + at, found, mask=mask)
    return of_weight, P, of_mean_scale


@triton.jit(do_not_specialize=SIZES)
def backward_tiles(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, runs, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    HALF: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward where no segment has more than BR rows.

    HALF: whether segments that fit half a tile get one, so that fewer lanes are idle. Without `mean` the statistics are
    taken from x anew, which is in registers anyway.
    """
    plane = plane.to(tl.int64)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    g1 = tl.minimum(g0 + run, segments)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    first = _boundary(ptr, ptr_stride, member, g0, rows)
    last = _boundary(ptr, ptr_stride, member, g0 + 1, rows)
    if g0 == 0:
        fill_outside(dx, None, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
    all_weight = tl.zeros((BC,), ACC)
    all_bias = tl.zeros((BC,), ACC)
    all_mean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, g1):
        following = _boundary(ptr, ptr_stride, member, tl.minimum(g + 2, g1), rows)
        if not HALF:
            of_weight, P, of_mean_scale = _backward_tile(
                x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
                rows, segments, order_stride, CHANNELS, EPS, RELU, LIVE, ACC, BR, BC,
            )  # fmt: skip
        elif last - first <= BR // 2:
            of_weight, P, of_mean_scale = _backward_tile(
                x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
                rows, segments, order_stride, CHANNELS, EPS, RELU, LIVE, ACC, BR // 2, BC,
            )  # fmt: skip
        else:
            of_weight, P, of_mean_scale = _backward_tile(
                x, dy, dx, order, weight, bias, mean_scale, mean, var, member, g, first, last, channel,
                rows, segments, order_stride, CHANNELS, EPS, RELU, LIVE, ACC, BR, BC,
            )  # fmt: skip
        all_weight += of_weight
        all_bias += P
        all_mean_scale += of_mean_scale
        first, last = last, following
    if g1 == segments:
        fill_outside(dx, None, order, order_stride, member, rows, first, rows, channel, CHANNELS, ACC, BR, BC)
    at_share = (member * slots + place % runs) * CHANNELS + channel
    store_shares(shares, plane, at_share, in_channels, all_weight, all_bias, all_mean_scale)
    add_up(
        shares, counters, dweight, dbias, dmean_scale, member, place % runs, block, channel,
        runs, slots, plane, CHANNELS, BC,
    )  # fmt: skip


@triton.jit
def _backward_run(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, member, slot, channel,
    rows, segments, ptr_stride, order_stride, limit, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, APART: tl.constexpr,
    ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    g0 = slot * run
    all_weight = tl.zeros((BC,), ACC)
    all_bias = tl.zeros((BC,), ACC)
    all_mean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, tl.minimum(g0 + run, segments)):
        first, last = bounds(ptr, ptr_stride, member, g, rows)
        if ptr is not None:
            if g == 0:
                fill_outside(dx, None, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
            if g == segments - 1:
                fill_outside(dx, None, order, order_stride, member, rows, last, rows, channel, CHANNELS, ACC, BR, BC)
        if last - first <= limit:
            stored = (member * segments + g) * CHANNELS + channel
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
            alpha, kept, r, scale, offset = coefficients(
                centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
            )
            P, Q = range_sums(
                x, dy, order, order_stride, member, rows, first, last, channel,
                centre, scale, offset, CHANNELS, RELU, APART, ACC, BR, BC,
            )  # fmt: skip
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                P, Q, last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
            )
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, first, last, channel,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
            all_weight += of_weight
            all_bias += P
            all_mean_scale += of_mean_scale
    at = (member * slots + slot) * CHANNELS + channel
    store_shares(shares, plane, at, in_channels, all_weight, all_bias, all_mean_scale)


@triton.jit(do_not_specialize=SIZES)
def backward_short(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, counters, dweight, dbias, dmean_scale,
    rows, segments, ptr_stride, order_stride, limit, runs, run, slots, plane, shorts,
    window, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, APART: tl.constexpr,
    PER: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr, BL: tl.constexpr, BW: tl.constexpr, BR: tl.constexpr,
    BC: tl.constexpr,
):  # fmt: skip
    """Backward: dx of `shorts` runs of segments, one program for each and block of channels; then sums of long ones.

    APART as in :func:`range_sums`, PER, EARLY and `counters` as in :func:`forward_short`. Where no segment is long
    the parameters' gradients are done as well.
    """
    let_the_next_begin(EARLY)
    plane = plane.to(tl.int64)
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    block = tl.program_id(0) % blocks
    channel = block * BC + tl.arange(0, BC)
    if PER == 0:
        _backward_run(
            x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, place // runs, place % runs, channel,
            rows, segments, ptr_stride, order_stride, limit, run, slots, plane,
            CHANNELS, EPS, RELU, LIVE, APART, ACC, BR, BC,
        )  # fmt: skip
        add_up(
            shares, counters, dweight, dbias, dmean_scale, place // runs, place % runs, block, channel,
            runs, slots, plane, CHANNELS, BC,
        )  # fmt: skip
    elif place < shorts:
        _backward_run(
            x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, shares, place // runs, place % runs, channel,
            rows, segments, ptr_stride, order_stride, limit, run, slots, plane,
            CHANNELS, EPS, RELU, LIVE, APART, ACC, BR, BC,
        )  # fmt: skip
    else:
        window_sums(
            x, dy, ptr, order, weight, bias, mean_scale, mean, var, shares, counters,
            dweight, dbias, dmean_scale, place - shorts, block, rows, segments, ptr_stride, order_stride,
            window, windows, limit, runs, slots, plane, slot_plane,
            PER, CHANNELS, EPS, RELU, LIVE, APART, ACC, BL, BW, BC,
        )  # fmt: skip
