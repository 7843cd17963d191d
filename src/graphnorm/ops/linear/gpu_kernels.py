"""The stacked linear layer in Triton: one program takes some tiles of one member's rows, and its whole weight."""

from __future__ import annotations

import triton
import triton.language as tl

SIZES = ("rows", "x_rows", "blocks", "members")
"""Integer arguments of kernels. They change from batch to batch, so none is compiled for a value of its own."""


@triton.jit(do_not_specialize=SIZES)
def product(
    x, weight, bias, out, rows, x_rows, blocks,
    IN: tl.constexpr, OUT: tl.constexpr, IN_PADDED: tl.constexpr, OUT_PADDED: tl.constexpr,
    BACKWARD: tl.constexpr, R: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """x·Wᵀ + b (W: OUT × IN), or, backward, x·W (W: IN × OUT), for ``blocks`` tiles of R rows of a member.

    Channels are padded to powers of two. x_rows: the rows from one member's x to the next one's, 0 where all share it.
    """
    part, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    k, o = tl.arange(0, IN_PADDED), tl.arange(0, OUT_PADDED)
    in_k, in_o = (k < IN)[None, :], (o < OUT)[None, :]
    if BACKWARD:
        w = tl.load(weight + member * OUT * IN + k[:, None] * OUT + o[None, :], (k < IN)[:, None] & in_o, 0.0)
    else:
        w = tl.load(weight + member * OUT * IN + o[:, None] * IN + k[None, :], (o < OUT)[:, None] & in_k, 0.0)
        w = tl.trans(w)
    for block in tl.range(blocks, num_stages=STAGES):
        row = (part * blocks + block) * R + tl.arange(0, R)
        inside = (row < rows)[:, None]
        tile = tl.load(x + (member * x_rows + row)[:, None] * IN + k[None, :], inside & in_k, 0.0)
        y = tl.dot(tile, w, input_precision="tf32x3")
        if bias is not None:
            y += tl.load(bias + member * OUT + o, o < OUT, 0.0)[None, :]
        tl.store(out + (member * rows + row)[:, None] * OUT + o[None, :], y, inside & in_o)


@triton.jit(do_not_specialize=SIZES)
def weight_gradient(
    gradient, x, dweight, dbias, rows, x_rows, blocks, members,
    IN: tl.constexpr, OUT: tl.constexpr, IN_PADDED: tl.constexpr, WIDTH: tl.constexpr,
    PRECISION: tl.constexpr, R: tl.constexpr, STAGES: tl.constexpr,
):  # fmt: skip
    """This program's share of dW = gᵀ·x, and of db, the sums of g, over ``blocks`` tiles of R rows of a member.

    It takes WIDTH of the OUT rows of dW.
    """
    part, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    k, o = tl.arange(0, IN_PADDED), tl.program_id(2) * WIDTH + tl.arange(0, WIDTH)
    in_k, in_o = (k < IN)[None, :], (o < OUT)[None, :]
    sum_w = tl.zeros((WIDTH, IN_PADDED), dtype=tl.float32)
    sum_b = tl.zeros((WIDTH,), dtype=tl.float32)
    for block in tl.range(blocks, num_stages=STAGES):
        row = (part * blocks + block) * R + tl.arange(0, R)
        inside = (row < rows)[:, None]
        g = tl.load(gradient + (member * rows + row)[:, None] * OUT + o[None, :], inside & in_o, 0.0)
        tile = tl.load(x + (member * x_rows + row)[:, None] * IN + k[None, :], inside & in_k, 0.0)
        sum_w = tl.dot(tl.trans(g), tile, sum_w, input_precision=PRECISION)
        sum_b += tl.sum(g, 0)
    at = part * members + member
    tl.store(dweight + at * OUT * IN + o[:, None] * IN + k[None, :], sum_w, (o < OUT)[:, None] & in_k)
    tl.store(dbias + at * OUT + o, sum_b, o < OUT)
