"""The gradient of weights over categories on a GPU: the Triton kernel and its launch, which does not synchronise."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.backends import member_stride
from graphnorm.launch import compiler_options, on_device, power_of_two
from graphnorm.ops.tiles_gpu import PART, exact_dot

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = ("rows", "category_stride", "blocks", "members", "categories")


@triton.jit(do_not_specialize=SIZES)
def sum_by_category(
    dy, category, out, rows, category_stride, blocks, members, categories,
    OUT: tl.constexpr, OUT_PADDED: tl.constexpr, PART: tl.constexpr, R: tl.constexpr, V: tl.constexpr,
):  # fmt: skip
    """This program's share of the sums of g over the rows of each of V categories, over ``blocks`` tiles of R rows.

    The one-hot matrix exists as a tile in registers only: V × R, times g, R × OUT. out is (parts, M, categories, OUT).
    """
    part, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    v, o = tl.program_id(2) * V + tl.arange(0, V), tl.arange(0, OUT_PADDED)
    total = tl.zeros((V, OUT_PADDED), tl.float32)
    for block in range(blocks):
        row = (part * blocks + block) * R + tl.arange(0, R)
        inside = row < rows
        own = tl.load(category + member * category_stride + row, mask=inside, other=-1)
        mask = inside[:, None] & (o < OUT)[None, :]
        g = tl.load(dy + (member * rows + row)[:, None] * OUT + o[None, :], mask=mask, other=0.0)
        one_hot = (v[:, None] == own[None, :]).to(PART)
        total = exact_dot(one_hot, g, total, PART)
    at = (part * members + member) * categories + v
    tl.store(out + at[:, None] * OUT + o[None, :], total, mask=(v < categories)[:, None] & (o < OUT)[None, :])


ROWS, CATEGORIES = 64, 128  # of a tile
WARPS = 4  # of a program
PROGRAMS = 1056  # to aim at


def weight_gradient(dy: Tensor, category: Tensor, categories: int) -> Tensor:
    """(M, F, O): for each member the sums of dy, (M, N, O), by category, ([M,] N) in -1 … F-1."""
    dy, category = dy.contiguous(), category.contiguous()
    members, rows, width = dy.shape
    strips, tiles = triton.cdiv(categories, CATEGORIES), max(1, triton.cdiv(rows, ROWS))
    blocks = triton.cdiv(tiles, max(1, min(tiles, PROGRAMS // (members * strips))))
    parts = triton.cdiv(tiles, blocks)
    out = torch.empty(parts, members, categories, width, dtype=dy.dtype, device=dy.device)
    with on_device(dy.device):
        sum_by_category[(parts, members, strips)](
            dy, category, out, rows, member_stride(category), blocks, members, categories,
            width, max(16, power_of_two(width)), PART, ROWS, CATEGORIES, **compiler_options(WARPS),
        )  # fmt: skip
    return out[0] if parts == 1 else out.sum(0)
