"""Products with adjacency matrices on a GPU: the Triton kernel and its launch, which does not synchronise."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.adjacency import Blocks
from graphnorm.backends import contiguous, member_stride
from graphnorm.launch import Tile, kinds, launch
from graphnorm.ops.tiles_gpu import PART, exact_dot

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = ("rows", "slots", "tiles", "start_stride", "ptr_stride", "scale_stride")


@triton.jit
def finish(
    total, values, x, out, scale, weight, at, row, inside, channel,
    CHANNELS: tl.constexpr, BR: tl.constexpr,
):  # fmt: skip
    """Add the rows' own part, scale, store. Returns what each row adds to dw, (BR,); 0 where there is no x."""
    mask = inside[:, None] & (channel < CHANNELS)[None, :]
    where = at[:, None] * CHANNELS + channel[None, :]
    own = tl.load(values + where, mask=mask, other=0.0)
    s = tl.full((BR,), 1.0, tl.float32)
    if scale is not None:
        s = tl.load(scale + row, mask=inside, other=0.0)
    total = (total + own * (weight * s)[:, None]) * s[:, None]
    tl.store(out + where, total, mask=mask)
    product = tl.zeros((BR,), tl.float32)
    if x is not None:
        product = tl.sum(own * tl.load(x + where, mask=mask, other=0.0), 1) * s * s
    return product


@triton.jit(do_not_specialize=SIZES)
def sum_blocks(
    values, x, out, matrices, start, ptr, scale, self_weight, partial,
    rows, slots, tiles, start_stride, ptr_stride, scale_stride,
    CHANNELS: tl.constexpr, CONSTANT: tl.constexpr, PART: tl.constexpr, BK: tl.constexpr,
    BR: tl.constexpr, BC: tl.constexpr,
):  # fmt: skip
    """A tile of rows of one graph and a block of channels: s (A (s v) + w s v), with s = 1 where there is none.

    Each member has ``slots`` graphs and, as one more, the rows that belong to none, whose A is 0. ``tiles`` are those
    of the largest graph; the rows of no graph are shared out among as many programs. ``x`` and ``partial``, backward,
    are for dw: (members, slots + 1, tiles, blocks).
    """
    blocks: tl.constexpr = (CHANNELS + BC - 1) // BC
    place = (tl.program_id(0) // blocks).to(tl.int64)
    channel = tl.program_id(0) % blocks * BC + tl.arange(0, BC)
    tile, slot, member = place % tiles, place // tiles % (slots + 1), place // tiles // (slots + 1)
    first = tl.load(ptr + member * ptr_stride + slot)
    weight = CONSTANT
    if self_weight is not None:
        weight = tl.load(self_weight + member)
    if scale is not None:
        scale += member * scale_stride
    product = tl.zeros((BR,), tl.float32)
    if slot < slots:
        size = tl.load(ptr + member * ptr_stride + slot + 1) - first
        local = tile * BR + tl.arange(0, BR)
        if tile * BR < size:
            stride = (size + 15) // 16 * 16
            matrix = matrices + tl.multiple_of(tl.load(start + member * start_stride + slot), 16)
            total = tl.zeros((BR, BC), tl.float32)
            for begin in range(0, size, BK):
                k = begin + tl.arange(0, BK)
                count = tl.load(
                    matrix + local[:, None] * stride + k[None, :],
                    mask=(local < size)[:, None] & (k < stride)[None, :], other=0,
                ).to(PART)  # fmt: skip
                there = k < size
                sent = tl.load(
                    values + (member * rows + first + k)[:, None] * CHANNELS + channel[None, :],
                    mask=there[:, None] & (channel < CHANNELS)[None, :], other=0.0,
                )  # fmt: skip
                if scale is not None:
                    sent = sent * tl.load(scale + first + k, mask=there, other=0.0)[:, None]
                total = exact_dot(count, sent, total, PART)
            product = finish(
                total, values, x, out, scale, weight, member * rows + first + local, first + local, local < size,
                channel, CHANNELS, BR,
            )  # fmt: skip
    else:
        for begin in range(first + tile * BR, rows, tiles * BR):
            row = begin + tl.arange(0, BR)
            product += finish(
                tl.zeros((BR, BC), tl.float32), values, x, out, scale, weight, member * rows + row, row, row < rows,
                channel, CHANNELS, BR,
            )  # fmt: skip
    if partial is not None:
        tl.store(partial + tl.program_id(0), tl.sum(product, 0))


TILE, SMALL_TILE = Tile(128, 64, 4), Tile(32, 64, 4)  # of the result; the small one where it holds every graph
AT_ONCE = 32  # columns of the matrix that are multiplied at a time


def run(
    values: Tensor, self_weight: Tensor | None, scale: Tensor | None, blocks: Blocks, constant: float, x: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The products with values, ([M,] N, C). Given x, values are dy, and the second result is dw, ([M])."""
    values = values.contiguous()
    lead, (rows, channels) = values.shape[:-2], values.shape[-2:]
    members = lead[0] if lead else 1
    tile = SMALL_TILE if blocks.max_size <= SMALL_TILE.rows else TILE
    slots, tiles = blocks.start.shape[-1], -(-blocks.max_size // tile.rows)
    programs = (slots + 1) * tiles * -(-channels // tile.channels)
    out = torch.empty_like(values)
    x, scale, self_weight = map(contiguous, (x, scale, self_weight))
    partial = None if x is None else torch.empty((*lead, programs), dtype=torch.float32, device=out.device)
    start, ptr = blocks.start.contiguous(), blocks.ptr.contiguous()
    tensors = (values, x, out, blocks.values, start, ptr, scale, self_weight, partial)
    key = (channels, constant, kinds(*tensors))
    arguments = (*tensors, rows, slots, tiles, *map(member_stride, (start, ptr, scale)))
    launch(sum_blocks, out.device, key, members * programs, tile, arguments, channels, constant, PART, AT_ONCE)
    return out, None if partial is None else partial.sum(-1, dtype=torch.float64).to(torch.float32)
