"""The Triton kernel of the weights' gradient."""

from __future__ import annotations

import triton
import triton.language as tl

from graphnorm.ops.split_bfloat16 import three_parts

SIZES = ("rows", "category_stride", "blocks", "members", "categories")
"""Integer arguments: none is compiled for a value of its own."""


@triton.jit(do_not_specialize=SIZES)
def sum_by_category(
    gradient, category, out, rows, category_stride, blocks, members, categories,
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
        g = tl.load(gradient + (member * rows + row)[:, None] * OUT + o[None, :], mask=mask, other=0.0)
        one_hot = (v[:, None] == own[None, :]).to(PART)
        high, middle, low = three_parts(g, PART)
        total = tl.dot(one_hot, low, total)
        total = tl.dot(one_hot, middle, total)
        total = tl.dot(one_hot, high, total)
    at = (part * members + member) * categories + v
    tl.store(out + at[:, None] * OUT + o[None, :], total, mask=(v < categories)[:, None] & (o < OUT)[None, :])
