"""The stacked linear layer in Triton: one program takes a tile of one member's rows and its whole weight."""

from __future__ import annotations

import triton
import triton.language as tl


@triton.jit
def linear_forward(
    x, weight, bias, out, rows, x_stride,
    IN: tl.constexpr, OUT: tl.constexpr, KP: tl.constexpr, OP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """out = x·Wᵀ + b for R rows of a member; IN and OUT channels, padded to KP and OP."""
    member = tl.program_id(1).to(tl.int64)
    row = tl.program_id(0) * R + tl.arange(0, R)
    k, o = tl.arange(0, KP), tl.arange(0, OP)
    inside = (row < rows)[:, None]
    tile = tl.load(x + member * x_stride + row.to(tl.int64)[:, None] * IN + k[None, :], inside & (k < IN)[None, :], 0.0)
    w = tl.load(weight + member * OUT * IN + o[None, :] * IN + k[:, None], (k < IN)[:, None] & (o < OUT)[None, :], 0.0)
    b = tl.load(bias + member * OUT + o, o < OUT, 0.0)
    y = tl.dot(tile, w, input_precision="tf32x3") + b[None, :]
    to = out + (member * rows + row)[:, None] * OUT + o[None, :]
    tl.store(to, y, inside & (o < OUT)[None, :])


@triton.jit
def linear_backward(
    gradient, x, weight, dx, dweight, dbias, rows, x_stride, blocks, members,
    IN: tl.constexpr, OUT: tl.constexpr, KP: tl.constexpr, OP: tl.constexpr, R: tl.constexpr,
):  # fmt: skip
    """dx = g·W, and this program's share of dW = gᵀ·x and of the sums of g, over ``blocks`` tiles of R rows."""
    part, member = tl.program_id(0).to(tl.int64), tl.program_id(1).to(tl.int64)
    k, o = tl.arange(0, KP), tl.arange(0, OP)
    in_k, in_o = (k < IN)[None, :], (o < OUT)[None, :]
    w = tl.load(weight + member * OUT * IN + o[:, None] * IN + k[None, :], (o < OUT)[:, None] & in_k, 0.0)
    sum_w = tl.zeros((OP, KP), dtype=tl.float32)
    sum_b = tl.zeros((OP,), dtype=tl.float32)
    for block in range(blocks):
        row = (part * blocks + block) * R + tl.arange(0, R)
        inside = (row < rows)[:, None]
        g = tl.load(gradient + (member * rows + row)[:, None] * OUT + o[None, :], inside & in_o, 0.0)
        tile = tl.load(x + member * x_stride + row[:, None] * IN + k[None, :], inside & in_k, 0.0)
        if dx is not None:
            to = dx + (member * rows + row)[:, None] * IN + k[None, :]
            tl.store(to, tl.dot(g, w, input_precision="tf32x3"), inside & in_k)
        sum_w += tl.dot(tl.trans(g), tile, input_precision="tf32x3")
        sum_b += tl.sum(g, 0)
    at = part * members + member
    tl.store(dweight + at * OUT * IN + o[:, None] * IN + k[None, :], sum_w, (o < OUT)[:, None] & in_k)
    tl.store(dbias + at * OUT + o, sum_b, o < OUT)
