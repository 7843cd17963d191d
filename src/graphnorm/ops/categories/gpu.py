"""Launches the Triton kernel. Nothing here waits for the device."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from graphnorm.ops.categories.gpu_kernels import sum_by_category
from graphnorm.ops.split_bfloat16 import PART

ROWS, CATEGORIES, WARPS = 64, 128, 4
"""Of a tile, and the warps of a program."""
PROGRAMS = 1056
"""About how many to aim at."""


def sums(gradient: Tensor, category: Tensor, categories: int) -> Tensor:
    """(M, F, O): for each member the sums of its gradient, (M, N, O), by category, ([M,] N) in -1 … F-1."""
    gradient, category = gradient.contiguous(), category.contiguous()
    members, rows, width = gradient.shape
    strips, tiles = triton.cdiv(categories, CATEGORIES), max(1, triton.cdiv(rows, ROWS))
    blocks = triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // (members * strips))))
    parts = triton.cdiv(tiles, blocks)
    out = torch.empty(parts, members, categories, width, dtype=gradient.dtype, device=gradient.device)
    stride = 0 if category.dim() == 1 else rows
    sum_by_category[(parts, members, strips)](
        gradient, category, out, rows, stride, blocks, members, categories,
        width, max(16, triton.next_power_of_2(width)), PART, ROWS, CATEGORIES, num_warps=WARPS,
    )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)
