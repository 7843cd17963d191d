"""Triton kernels for segments that one program can take on.

A segment is read tile by tile, once for its sums and once more, from the cache, for the output, so each element crosses
the memory bus once each way. Backward, a program works through a run of segments and adds up the gradients of the
parameters on its way; where every segment fits one tile, it stays in registers between the two steps.
Segments of more than `limit` rows are left to :mod:`graphnorm.ops.standardize.gpu_long`.

A program has a block of channels; blocks of the same segments are neighbours in the grid, since they share sectors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    SIZES,
    add_partial,
    apply_range,
    before_tail,
    bounds,
    coefficients,
    fill_outside,
    gradient_coefficients,
    gradient_range,
    load,
    offsets,
    range_statistics,
    range_sums,
    run_of,
    split,
    statistics_of,
    tile_mask,
    tile_statistics,
)


@triton.jit
def _boundary(ptr, ptr_stride, member, g, rows):
    """ptr[g] of a member, kept inside it whatever ptr says."""
    return tl.minimum(tl.maximum(tl.load(ptr + member * ptr_stride + g), 0), rows)


@triton.jit(do_not_specialize=SIZES)
def backward_tiles(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, partial,
    rows, segments, ptr_stride, order_stride, limit, runs, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward where no segment has more than BR rows, so that `limit` does not matter.

    Without `mean` the statistics are taken from x anew, which is in registers anyway.
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    g1 = tl.minimum(g0 + run, segments)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    tile = tl.arange(0, BR)
    first = _boundary(ptr, ptr_stride, member, g0, rows)
    last = _boundary(ptr, ptr_stride, member, g0 + 1, rows)
    if g0 == 0:
        fill_outside(dx, None, order, order_stride, member, rows, 0, first, channel, CHANNELS, ACC, BR, BC)
    dweight = tl.zeros((BC,), ACC)
    dbias = tl.zeros((BC,), ACC)
    dmean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, g1):
        inside = tile < last - first
        consecutive, shift = run_of(order, order_stride, member, first, last)
        at = offsets(
            order, order_stride, member, rows, consecutive, shift, first + tile, inside, channel, CHANNELS
        )  # fmt: skip
        mask = tile_mask(inside, channel, CHANNELS, BC)
        values = load(x, at, mask, ACC)
        grads = load(dy, at, mask, ACC)
        stored = (member * segments + g) * CHANNELS + channel
        if mean is None:
            count = tl.maximum(last - first, 1).to(ACC)
            rough, finer, m2 = tile_statistics(values, mask, count)
            centre, rest = split(rough.to(tl.float64) + finer.to(tl.float64), ACC)
            spread = m2 / count
        else:
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        following = _boundary(ptr, ptr_stride, member, tl.minimum(g + 2, g1), rows)
        alpha, kept, r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
        )
        d = values - centre[None, :]
        dz = before_tail(grads, d, scale, offset, RELU)
        P = tl.sum(dz, 0)
        slope, constant, of_weight, of_mean_scale = gradient_coefficients(
            P, tl.sum(dz * d, 0), last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
        )
        tl.store(dx + at, scale[None, :] * ((dz + constant[None, :]) - slope[None, :] * d), mask=mask)
        dweight += of_weight
        dbias += P
        dmean_scale += of_mean_scale
        first, last = last, following
    if g1 == segments:
        fill_outside(dx, None, order, order_stride, member, rows, first, rows, channel, CHANNELS, ACC, BR, BC)
    at_partial = (member * slots + place % runs) * CHANNELS + channel
    add_partial(partial, plane, at_partial, in_channels, dweight, dbias, dmean_scale)


@triton.jit(do_not_specialize=SIZES)
def forward_loops(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, limit,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward, one program per segment and block of channels."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    index = (tl.program_id(0) // blocks).to(tl.int64)
    member, g = index // segments, index % segments
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
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
def backward_loops(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, partial,
    rows, segments, ptr_stride, order_stride, limit, runs, run, slots, plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward, one program per run of segments and block of channels."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    dweight = tl.zeros((BC,), ACC)
    dbias = tl.zeros((BC,), ACC)
    dmean_scale = tl.zeros((BC,), ACC)
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
                centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                P, Q, last - first, centre, rest, spread, alpha, kept, r, scale, EPS, LIVE
            )
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, first, last, channel,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
            dweight += of_weight
            dbias += P
            dmean_scale += of_mean_scale
    at = (member * slots + place % runs) * CHANNELS + channel
    add_partial(partial, plane, at, in_channels, dweight, dbias, dmean_scale)


@triton.jit(do_not_specialize=SIZES)
def add_slots(
    partial, dweight, dbias, dmean_scale, slots, plane, CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """The gradients of the parameters from their shares in `partial`, (3, members, slots, channels), in order."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    which = place % 3
    member = place // 3
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    total = tl.zeros((BC,), tl.float64)
    for start in range(0, slots, BR):
        slot = start + tl.arange(0, BR)
        at = which * plane + (member * slots + slot)[:, None] * CHANNELS + channel[None, :]
        mask = (slot < slots)[:, None] & in_channels[None, :]
        total += tl.sum(tl.load(partial + at, mask=mask, other=0.0).to(tl.float64), 0)
    of_member = member * CHANNELS + channel
    if dweight is not None:
        if which == 0:
            tl.store(dweight + of_member, total, mask=in_channels)
    if dbias is not None:
        if which == 1:
            tl.store(dbias + of_member, total, mask=in_channels)
    if dmean_scale is not None:
        if which == 2:
            tl.store(dmean_scale + of_member, total, mask=in_channels)
