"""Triton kernels for segments that one program can take on.

*Tiles*: every segment fits one tile in registers, so each element crosses the memory bus once each way. A program
works through a run of segments and loads the next one while it computes and stores the present one.

*Loops*: segments of several tiles, read once for the statistics and once more, from the cache, for the output.
Segments of more than `limit` rows are left to :mod:`graphnorm.ops.standardize.gpu_long`.

A program has a block of channels; blocks of the same segments are neighbours in the grid, since they share sectors.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    add_partial,
    apply_range,
    before_tail,
    bounds,
    coefficients,
    fill_outside,
    finish,
    gradient_coefficients,
    gradient_range,
    load,
    offsets,
    range_statistics,
    range_sums,
    split,
    statistics_of,
)


@triton.jit
def _boundary(ptr, ptr_stride, member, g, last, rows):
    """ptr[g] of a member, or the present end where g is past the run."""
    value = tl.load(ptr + member * ptr_stride + tl.minimum(g, last))
    return tl.minimum(tl.maximum(value, 0), rows)


@triton.jit
def forward_tiles(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, eps, runs, run,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Forward for segments of at most BR rows; live statistics."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    g1 = tl.minimum(g0 + run, segments)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    tile = tl.arange(0, BR)

    first = _boundary(ptr, ptr_stride, member, g0, g1, rows)
    last = _boundary(ptr, ptr_stride, member, g0 + 1, g1, rows)
    following = _boundary(ptr, ptr_stride, member, g0 + 2, g1, rows)
    if g0 == 0:
        fill_outside(
            y, residual, order, order_stride, member, rows, g0, segments + 1, first, last, channel, in_channels,
            CHANNELS, ACC, BR, BC,
        )  # fmt: skip
    inside = tile < last - first
    at = offsets(order, order_stride, member, rows, first + tile, inside, channel, CHANNELS)
    mask = inside[:, None] & in_channels[None, :]
    values = load(x, at, mask, ACC)
    for g in range(g0, g1):
        next_inside = tile < following - last
        next_at = offsets(order, order_stride, member, rows, last + tile, next_inside, channel, CHANNELS)
        next_mask = next_inside[:, None] & in_channels[None, :]
        next_values = load(x, next_at, next_mask, ACC)
        after = _boundary(ptr, ptr_stride, member, g + 3, g1, rows)

        count = tl.maximum(last - first, 1).to(ACC)
        rough = tl.sum(values, 0) / count
        d = tl.where(mask, values - rough[None, :], 0.0)
        shift = tl.sum(d, 0) / count
        spread = tl.maximum(tl.sum(d * d, 0) / count - shift * shift, 0.0)
        wide = rough.to(tl.float64) + shift.to(tl.float64)
        stored = (member * segments + g) * CHANNELS + channel
        tl.store(mean + stored, wide, mask=in_channels)
        tl.store(var + stored, spread, mask=in_channels)
        centre, rest = split(wide, ACC)
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        finish(y, residual, at, mask, scale[None, :] * (values - centre[None, :]) + offset[None, :], RELU, ACC)
        first, last, following = last, following, after
        at, mask, values = next_at, next_mask, next_values
    if g1 == segments:
        fill_outside(
            y, residual, order, order_stride, member, rows, segments - 1, segments, first, first, channel, in_channels,
            CHANNELS, ACC, BR, BC,
        )  # fmt: skip


@triton.jit
def backward_tiles(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, partial,
    rows, segments, ptr_stride, order_stride, eps, runs, run, slots, plane,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """Backward for segments of at most BR rows. Adds the parameters' gradients up over its run."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    member = place // runs
    g0 = place % runs * run
    g1 = tl.minimum(g0 + run, segments)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    tile = tl.arange(0, BR)

    first = _boundary(ptr, ptr_stride, member, g0, g1, rows)
    last = _boundary(ptr, ptr_stride, member, g0 + 1, g1, rows)
    following = _boundary(ptr, ptr_stride, member, g0 + 2, g1, rows)
    if g0 == 0:
        fill_outside(
            dx, None, order, order_stride, member, rows, g0, segments + 1, first, last, channel, in_channels,
            CHANNELS, ACC, BR, BC,
        )  # fmt: skip
    stored = (member * segments + g0) * CHANNELS + channel
    centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
    inside = tile < last - first
    at = offsets(order, order_stride, member, rows, first + tile, inside, channel, CHANNELS)
    mask = inside[:, None] & in_channels[None, :]
    values = load(x, at, mask, ACC)
    grads = load(dy, at, mask, ACC)
    dweight = tl.zeros((BC,), ACC)
    dbias = tl.zeros((BC,), ACC)
    dmean_scale = tl.zeros((BC,), ACC)
    for g in range(g0, g1):
        next_inside = tile < following - last
        next_at = offsets(order, order_stride, member, rows, last + tile, next_inside, channel, CHANNELS)
        next_mask = next_inside[:, None] & in_channels[None, :]
        next_values = load(x, next_at, next_mask, ACC)
        next_grads = load(dy, next_at, next_mask, ACC)
        stored = (member * segments + tl.minimum(g + 1, g1 - 1)) * CHANNELS + channel
        next_centre, next_rest, next_spread = statistics_of(mean, var, stored, in_channels, ACC)
        after = _boundary(ptr, ptr_stride, member, g + 3, g1, rows)

        alpha, kept, r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        d = values - centre[None, :]
        dz = before_tail(grads, d, scale, offset, RELU)
        P = tl.sum(dz, 0)
        slope, constant, of_weight, of_mean_scale = gradient_coefficients(
            P, tl.sum(dz * d, 0), last - first, centre, rest, spread, alpha, kept, r, scale, eps, LIVE
        )
        tl.store(dx + at, scale[None, :] * ((dz + constant[None, :]) - slope[None, :] * d), mask=mask)
        dweight += of_weight
        dbias += P
        dmean_scale += of_mean_scale
        first, last, following = last, following, after
        at, mask, values, grads = next_at, next_mask, next_values, next_grads
        centre, rest, spread = next_centre, next_rest, next_spread
    if g1 == segments:
        fill_outside(
            dx, None, order, order_stride, member, rows, segments - 1, segments, first, first, channel, in_channels,
            CHANNELS, ACC, BR, BC,
        )  # fmt: skip
    at_partial = (member * slots + place % runs) * CHANNELS + channel
    add_partial(partial, plane, at_partial, in_channels, dweight, dbias, dmean_scale)


@triton.jit
def forward_loops(
    x, y, residual, ptr, order, weight, bias, mean_scale, mean, var,
    rows, segments, ptr_stride, order_stride, eps, limit,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, GIVEN: tl.constexpr, ACC: tl.constexpr,
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
        fill_outside(
            y, residual, order, order_stride, member, rows, g, segments, first, last, channel, in_channels,
            CHANNELS, ACC, BR, BC,
        )  # fmt: skip
    stored = index * CHANNELS + channel
    if last - first <= limit:
        if not GIVEN:
            wide, m2 = range_statistics(
                x, order, order_stride, member, rows, first, last, channel, in_channels, CHANNELS, ACC, BR, BC
            )
            centre, rest = split(wide, ACC)
            spread = m2 / tl.maximum(last - first, 1).to(ACC)
            tl.store(mean + stored, wide, mask=in_channels)
            tl.store(var + stored, spread, mask=in_channels)
        else:
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
        of_member = member * CHANNELS + channel
        _a, _k, _r, scale, offset = coefficients(
            centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
        )
        apply_range(
            x, y, residual, order, order_stride, member, rows, first, last, channel, in_channels,
            centre, scale, offset, CHANNELS, RELU, ACC, BR,
        )  # fmt: skip


@triton.jit
def backward_loops(
    x, dy, dx, ptr, order, weight, bias, mean_scale, mean, var, partial,
    rows, segments, ptr_stride, order_stride, eps, limit, runs, run, slots, plane,
    CHANNELS: tl.constexpr, RELU: tl.constexpr, LIVE: tl.constexpr, ACC: tl.constexpr,
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
            fill_outside(
                dx, None, order, order_stride, member, rows, g, segments, first, last, channel, in_channels,
                CHANNELS, ACC, BR, BC,
            )  # fmt: skip
        if last - first <= limit:
            stored = (member * segments + g) * CHANNELS + channel
            centre, rest, spread = statistics_of(mean, var, stored, in_channels, ACC)
            alpha, kept, r, scale, offset = coefficients(
                centre, rest, spread, weight, bias, mean_scale, of_member, in_channels, eps, ACC, BC
            )
            P, Q = range_sums(
                x, dy, order, order_stride, member, rows, first, last, channel, in_channels,
                centre, scale, offset, CHANNELS, RELU, ACC, BR, BC,
            )  # fmt: skip
            slope, constant, of_weight, of_mean_scale = gradient_coefficients(
                P, Q, last - first, centre, rest, spread, alpha, kept, r, scale, eps, LIVE
            )
            gradient_range(
                x, dy, dx, order, order_stride, member, rows, first, last, channel, in_channels,
                centre, scale, offset, slope, constant, CHANNELS, RELU, ACC, BR,
            )  # fmt: skip
            dweight += of_weight
            dbias += P
            dmean_scale += of_mean_scale
    at = (member * slots + place % runs) * CHANNELS + channel
    add_partial(partial, plane, at, in_channels, dweight, dbias, dmean_scale)
