"""Triton kernels that write the rows of a member that is one long segment: nothing is to be searched for.

Statistics and sums come from the kernels of :mod:`~graphnorm.ops.standardize.gpu_long`, launched before. Each program
has one tile of rows, which is on its way while these are not there yet. Last rows first, while the cache holds them.
"""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.standardize.gpu_common import (
    SIZES,
    finish,
    gradient_of,
    load,
    stored_affine,
    tile_mask,
    wait_for_the_one_before,
)


@triton.jit
def _tile(rows, tiles, CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Member, channels, where in x the program's tile lies, and which of its elements exist."""
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    backwards = tl.num_programs(0) - 1 - tl.program_id(0)
    place = (backwards // blocks).to(tl.int64)
    member = place // tiles
    channel = backwards % blocks * BC + tl.arange(0, BC)
    row = place % tiles * BR + tl.arange(0, BR)
    at = (member * rows + row)[:, None] * CHANNELS + channel[None, :]
    return member, channel, at, tile_mask(row < rows, channel, CHANNELS, BC)


@triton.jit(do_not_specialize=SIZES)
def whole_apply(
    x, y, residual, weight, bias, mean_scale, mean, var, rows, tiles,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y of `tiles` tiles for each member."""
    member, channel, at, mask = _tile(rows, tiles, CHANNELS, BR, BC)
    values = load(x, at, mask, ACC)
    wait_for_the_one_before(EARLY)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    centre, scale, offset = stored_affine(
        mean, var, of_member, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    z = scale[None, :] * (values - centre[None, :]) + offset[None, :]
    finish(y, residual, at, mask, z, RELU, ACC)


@triton.jit(do_not_specialize=SIZES)
def whole_gradient(
    x, dy, dx, weight, bias, mean_scale, mean, var, sums, rows, tiles, windows, slot_plane,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, EARLY: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of `tiles` tiles for each member; slope and constant lie behind the `sums` of its first window."""
    member, channel, at, mask = _tile(rows, tiles, CHANNELS, BR, BC)
    values = load(x, at, mask, ACC)
    dy_values = load(dy, at, mask, ACC)
    wait_for_the_one_before(EARLY)
    in_channels = channel < CHANNELS
    of_member = member * CHANNELS + channel
    centre, scale, offset = stored_affine(
        mean, var, of_member, weight, bias, mean_scale, of_member, in_channels, EPS, ACC, BC
    )
    home = sums + 2 * slot_plane + member * windows * CHANNELS + channel
    slope = tl.load(home, mask=in_channels, other=0.0)
    constant = tl.load(home + slot_plane, mask=in_channels, other=0.0)
    found = gradient_of(dy_values, values - centre[None, :], scale, offset, slope, constant, RELU)
    tl.store(dx + at, found, mask=mask)
