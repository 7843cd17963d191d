"""LayerNorm on a GPU: the Triton kernels and their launches. Symbols as in :mod:`graphnorm.ops.layer_norm`.

A program holds BR rows of one member and all their channels, padded to BC, a power of two, in its registers: each
element crosses the memory bus once each way, and sums over channels need no other program. Positions are 64-bit
throughout. Arguments that are ``None`` are resolved at compile time. Nothing here synchronises with the device.
"""

from __future__ import annotations

from functools import lru_cache
from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.backends import contiguous
from graphnorm.launch import Tile, kinds, launch, power_of_two
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.tiles_gpu import accumulator, tile_mask

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = ("rows", "tiles", "parts", "blocks")


@triton.jit
def tile_at(member, first, rows, CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr):
    """Offsets in x of BR rows of a member from `first` on, which of these rows exist, and which elements."""
    row = first + tl.arange(0, BR)
    channel = tl.arange(0, BC)
    at = (member * rows + row)[:, None] * CHANNELS + channel[None, :]
    inside = row < rows
    return at, inside, tile_mask(inside, channel, CHANNELS, BC)


@triton.jit
def standardized(values, inside, CHANNELS: tl.constexpr, EPS: tl.constexpr, BC: tl.constexpr):
    """x̂ and r of the rows of a tile, which is 0 outside: exact to rounding, however large the mean."""
    per_channel: tl.constexpr = 1.0 / CHANNELS
    d = values - (tl.sum(values, 1) * per_channel)[:, None]
    if CHANNELS != BC:
        d = tl.where((tl.arange(0, BC) < CHANNELS)[None, :], d, 0.0)
    shift = tl.sum(d, 1) * per_channel
    var = tl.maximum(tl.sum(d * d, 1) * per_channel - shift * shift, 0.0)
    r = 1.0 / tl.sqrt(tl.where(inside, var, 1.0) + EPS)
    return (d - shift[:, None]) * r[:, None], r


@triton.jit
def parameter(pointer, member, otherwise, CHANNELS: tl.constexpr, ACC: tl.constexpr, BC: tl.constexpr):
    """A member's parameter, or its neutral value, (1, BC)."""
    channel = tl.arange(0, BC)
    if pointer is None:
        value = tl.full((BC,), otherwise, ACC)
    else:
        value = tl.load(pointer + member * CHANNELS + channel, mask=channel < CHANNELS, other=0.0).to(ACC)
    return value[None, :]


@triton.jit(do_not_specialize=SIZES)
def forward_rows(
    x, y, residual, weight, bias, rows, tiles,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """y, one program per tile of rows."""
    place = tl.program_id(0).to(tl.int64)
    member = place // tiles
    at, inside, mask = tile_at(member, place % tiles * BR, rows, CHANNELS, BR, BC)
    values = tl.load(x + at, mask=mask, other=0.0).to(ACC)
    gamma = parameter(weight, member, 1.0, CHANNELS, ACC, BC)
    beta = parameter(bias, member, 0.0, CHANNELS, ACC, BC)
    hat, _r = standardized(values, inside, CHANNELS, EPS, BC)
    z = gamma * hat + beta
    if RELU:
        z = tl.where(z < 0.0, 0.0, z)
    if residual is not None:
        z += tl.load(residual + at, mask=mask, other=0.0).to(ACC)
    tl.store(y + at, z, mask=mask)


@triton.jit(do_not_specialize=SIZES)
def backward_rows(
    x, dy, dx, weight, bias, dweight, dbias, rows, parts, blocks,
    CHANNELS: tl.constexpr, EPS: tl.constexpr, RELU: tl.constexpr, ACC: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dx of `blocks` tiles of rows of a member, and this program's share of dγ and dβ: (members, parts, channels)."""
    place = tl.program_id(0).to(tl.int64)
    member = place // parts
    gamma = parameter(weight, member, 1.0, CHANNELS, ACC, BC)
    beta = parameter(bias, member, 0.0, CHANNELS, ACC, BC)
    per_channel: tl.constexpr = 1.0 / CHANNELS
    sum_w = tl.zeros((BR, BC), ACC)
    sum_b = tl.zeros((BR, BC), ACC)
    for block in range(0, blocks):
        at, inside, mask = tile_at(member, (place % parts * blocks + block) * BR, rows, CHANNELS, BR, BC)
        values = tl.load(x + at, mask=mask, other=0.0).to(ACC)
        dz = tl.load(dy + at, mask=mask, other=0.0).to(ACC)
        hat, r = standardized(values, inside, CHANNELS, EPS, BC)
        if RELU:
            dz = tl.where(gamma * hat + beta < 0.0, 0.0, dz)
        g = gamma * dz
        straight = tl.sum(g, 1) * per_channel
        along = tl.sum(g * hat, 1) * per_channel
        if CHANNELS == 1:  # g - g, where a fused multiply-add would leave a remainder
            tl.store(dx + at, tl.zeros((BR, BC), ACC), mask=mask)
        else:
            tl.store(dx + at, r[:, None] * ((g - straight[:, None]) - hat * along[:, None]), mask=mask)
        sum_w += dz * hat
        sum_b += dz
    channel = tl.arange(0, BC)
    tl.store(dweight + place * CHANNELS + channel, tl.sum(sum_w, 0), mask=channel < CHANNELS)
    tl.store(dbias + place * CHANNELS + channel, tl.sum(sum_b, 0), mask=channel < CHANNELS)


@triton.jit(do_not_specialize=SIZES)
def add_parts(
    of_weight, of_bias, dweight, dbias, parts, CHANNELS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """dγ and dβ, (members, channels), from their shares, (members, parts, channels), in order."""
    columns: tl.constexpr = (CHANNELS + BC - 1) // BC
    member = (tl.program_id(0) // columns).to(tl.int64)
    channel = tl.program_id(0) % columns * BC + tl.arange(0, BC)
    in_channels = channel < CHANNELS
    sum_w = tl.zeros((BR, BC), tl.float64)
    sum_b = tl.zeros((BR, BC), tl.float64)
    for start in range(0, parts, BR):
        part = start + tl.arange(0, BR)
        at = (member * parts + part)[:, None] * CHANNELS + channel[None, :]
        mask = (part < parts)[:, None] & in_channels[None, :]
        sum_w += tl.load(of_weight + at, mask=mask, other=0.0).to(tl.float64)
        sum_b += tl.load(of_bias + at, mask=mask, other=0.0).to(tl.float64)
    tl.store(dweight + member * CHANNELS + channel, tl.sum(sum_w, 0), mask=in_channels)
    tl.store(dbias + member * CHANNELS + channel, tl.sum(sum_b, 0), mask=in_channels)


# ---- launches --------------------------------------------------------------------------------------------------

_FORWARD_ELEMENTS = 2048  # per tile
_BACKWARD_ELEMENTS = 1024  # fewer, since a program also holds dy and the sums for weight and bias
_MOST_ROWS = 128
_PROGRAMS = 4224  # backward, over all members; an H200's 132 multiprocessors run seven each at a time
_MOST_PARTS = 792  # per member: six per multiprocessor, since their results must be added up
_ADDED = (128, 8)  # shares and channels that the last kernel adds up at a time


class Cut(NamedTuple):
    """How one call is cut into programs."""

    forward: Tile
    tiles: int  # per member
    backward: Tile
    parts: int  # programs per member,
    blocks: int  # and the tiles of each
    add: Tile


@lru_cache(maxsize=4096)
def cut(members: int, rows: int, channels: int) -> Cut:
    """Programs hold whole rows, as many as fill a tile."""
    forward, backward = _tile(channels, _FORWARD_ELEMENTS), _tile(channels, _BACKWARD_ELEMENTS)
    tiles = -(-rows // backward.rows)
    blocks = -(-tiles // min(tiles, _MOST_PARTS, -(-_PROGRAMS // members)))
    parts = -(-tiles // blocks)
    add = Tile(min(_ADDED[0], power_of_two(parts)), min(_ADDED[1], power_of_two(channels)), 4)
    return Cut(forward, -(-rows // forward.rows), backward, parts, blocks, add)


def _tile(channels: int, elements: int) -> Tile:
    padded = power_of_two(channels)
    return Tile(max(1, min(_MOST_ROWS, elements // padded)), padded, 4 if padded <= 1024 else 8)


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """y like x."""
    x = x.contiguous()
    members, (rows, channels) = x.shape[0] if x.dim() == 3 else 1, x.shape[-2:]
    how = cut(members, rows, channels)
    y = torch.empty_like(x)
    tensors = (x, y, contiguous(residual), contiguous(weight), contiguous(bias))
    key, arguments = (kinds(*tensors), channels, eps, relu), (*tensors, rows, how.tiles)
    options = (channels, eps, relu, accumulator(x.dtype))
    launch(forward_rows, x.device, key, members * how.tiles, how.forward, arguments, *options)
    return y


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like x, and the gradients of weight and bias, ([M,] C)."""
    x, dy = x.contiguous(), dy.contiguous()
    members, (rows, channels) = x.shape[0] if x.dim() == 3 else 1, x.shape[-2:]
    how, wide = cut(members, rows, channels), accumulation_dtype(x.dtype)
    dx = torch.empty_like(x)
    shares = [torch.empty((members, how.parts, channels), dtype=wide, device=x.device) for _ in range(2)]
    tensors = (x, dy, dx, contiguous(weight), contiguous(bias), *shares)
    key, arguments = (kinds(*tensors), channels, eps, relu), (*tensors, rows, how.parts, how.blocks)
    options = (channels, eps, relu, accumulator(x.dtype))
    launch(backward_rows, x.device, key, members * how.parts, how.backward, arguments, *options)
    shape = (*x.shape[:-2], channels)
    if how.parts == 1:
        dweight, dbias = (share.view(shape) for share in shares)
        return dx, dweight, dbias
    dweight, dbias = (torch.empty(shape, dtype=wide, device=x.device) for _ in range(2))
    sums, programs = (*shares, dweight, dbias), members * -(-channels // how.add.channels)
    launch(add_parts, x.device, (kinds(*sums), channels), programs, how.add, (*sums, how.parts), channels)
    return dx, dweight, dbias
