"""Plans and launches the Triton kernel. Nothing here waits for the device."""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.adjacency import Blocks
from graphnorm.ops.dense_sum.gpu_kernels import sum_blocks
from graphnorm.ops.split_bfloat16 import PART
from graphnorm.ops.standardize.gpu_launch import Tile, kinds, launch

TILE, AT_ONCE = Tile(128, 64, 4), 32
"""Of the result, and the columns of the matrix that are multiplied at a time."""
SMALL_TILE, SMALL_AT_ONCE = Tile(32, 64, 4), 32
"""The same where no graph has more rows than this tile."""


def run(
    values: Tensor, self_weight: Tensor | None, scale: Tensor | None, blocks: Blocks, constant: float, x: Tensor | None
) -> tuple[Tensor, Tensor | None]:
    """The products, and given x, what values ([M,] N, C), then the gradient of the result, add to dw: ([M,])."""
    values = values.contiguous()
    lead, (rows, channels) = values.shape[:-2], values.shape[-2:]
    members = lead[0] if lead else 1
    tile, at_once = (SMALL_TILE, SMALL_AT_ONCE) if blocks.max_size <= SMALL_TILE.rows else (TILE, AT_ONCE)
    slots, tiles = blocks.start.shape[-1], -(-blocks.max_size // tile.rows)
    programs = (slots + 1) * tiles * -(-channels // tile.channels)
    out = torch.empty_like(values)
    x, scale, self_weight = (None if t is None else t.contiguous() for t in (x, scale, self_weight))
    partial = None if x is None else torch.empty((*lead, programs), dtype=torch.float32, device=out.device)
    start, ptr = blocks.start.contiguous(), blocks.ptr.contiguous()
    tensors = (values, x, out, blocks.values, start, ptr, scale, self_weight, partial)
    key = (channels, constant, kinds(*tensors))
    strides = (0 if t is None or t.dim() == 1 else t.shape[1] for t in (start, ptr, scale))
    arguments = (*tensors, rows, slots, tiles, *strides)
    launch(sum_blocks, key, members * programs, tile, arguments, channels, constant, PART, at_once)
    return out, None if partial is None else partial.sum(-1, dtype=torch.float64).to(torch.float32)
