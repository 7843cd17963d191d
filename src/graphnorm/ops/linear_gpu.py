"""Stacked linear layers on a GPU: the Triton kernels and their launches.

A program takes some tiles of one member's rows, and its whole weight. Products are taken in three parts of TF32 (x =
high + low, and high·high + high·low + low·high), whose error is that of float32. Those of the weights' gradient run
along the rows, where a GPU multiplies bfloat16 but not TF32 straight from memory: there x is a sum of three bfloat16,
and the six largest of the nine products are taken, to the same error.

Products with a wide weight are torch's, and as exact as its setting says (``torch.set_float32_matmul_precision``).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.backends import contiguous, interpreted
from graphnorm.launch import compiler_options, on_device, power_of_two

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = ("rows", "x_rows", "blocks", "members")


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
    dy, x, dweight, dbias, rows, x_rows, blocks, members,
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
        g = tl.load(dy + (member * rows + row)[:, None] * OUT + o[None, :], inside & in_o, 0.0)
        tile = tl.load(x + (member * x_rows + row)[:, None] * IN + k[None, :], inside & in_k, 0.0)
        sum_w = tl.dot(tl.trans(g), tile, sum_w, input_precision=PRECISION)
        sum_b += tl.sum(g, 0)
    at = part * members + member
    tl.store(dweight + at * OUT * IN + o[:, None] * IN + k[None, :], sum_w, (o < OUT)[:, None] & in_k)
    tl.store(dbias + at * OUT + o, sum_b, o < OUT)


# ---- launches --------------------------------------------------------------------------------------------------


class Cut(NamedTuple):
    """How a launch is cut into programs."""

    rows: int  # of a tile
    warps: int
    stages: int  # tiles loaded ahead
    programs: int  # to aim at


WIDEST = 128  # rows or columns of a weight that fits along with its tile of rows; beyond, torch's products are faster
FEW_ROWS = 2048  # of a member: fewer do not keep a GPU busy, so wide products of all members are one launch
PRODUCT = Cut(rows=64, warps=4, stages=3, programs=1056)
GRADIENT = Cut(rows=64, warps=4, stages=3, programs=1056)
GRADIENT_PRECISION = "tf32x3" if interpreted() else "bf16x6"  # the interpreter knows only the first


def _padded(width: int) -> int:
    return max(16, power_of_two(width))


def _shares(rows: int, members: int, cut: Cut) -> tuple[int, int]:
    """Programs of one member, and the tiles of each."""
    tiles = triton.cdiv(rows, cut.rows)
    blocks = triton.cdiv(tiles, max(1, min(tiles, triton.cdiv(cut.programs, members))))
    return triton.cdiv(tiles, blocks), blocks


def _rows_in_order(x: Tensor) -> Tensor:
    """x with its rows end to end; members may share them, by a stride of 0."""
    _, rows, width = x.shape
    ordered = x.stride(2) == 1 and x.stride(1) == width and x.stride(0) in (0, rows * width)
    return x if ordered else x.contiguous()


def _rows_apart(x: Tensor) -> int:
    """From one member to the next."""
    return x.shape[1] if x.stride(0) else 0


def _product(x: Tensor, weight: Tensor, bias: Tensor | None, outer: int, *, transposed: bool = False) -> Tensor:
    """x·Wᵀ + b; transposed: x·W, backward's."""
    members, rows, inner = x.shape
    if max(inner, outer) > WIDEST:
        return _wide_product(x, weight if transposed else weight.mT, bias)
    out = torch.empty(members, rows, outer, dtype=x.dtype, device=x.device)
    if out.numel():
        parts, blocks = _shares(rows, members, PRODUCT)
        with on_device(x.device):
            product[(parts, members)](
                x, weight, bias, out, rows, _rows_apart(x), blocks,
                inner, outer, _padded(inner), _padded(outer), transposed, PRODUCT.rows, PRODUCT.stages,
                **compiler_options(PRODUCT.warps),
            )  # fmt: skip
    return out


def _wide_product(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x·W + b (W: K × O) by torch; its product of one member alone adds the bias on the way."""
    if bias is None:
        return torch.bmm(x, weight)
    if x.shape[1] < FEW_ROWS:
        return torch.baddbmm(bias[:, None], x, weight)
    out = x.new_empty(*x.shape[:2], weight.shape[2])
    for member in range(x.shape[0]):
        torch.addmm(bias[member], x[member], weight[member], out=out[member])
    return out


def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (M, N, K), with a stride of 0 where all members share it; weight (M, O, K); bias (M, O), or none."""
    return _product(_rows_in_order(x), weight.contiguous(), contiguous(bias), weight.shape[1])


def backward(dy: Tensor, x: Tensor, weight: Tensor, wants_x: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of x (``None`` if it is not wanted), weight and bias."""
    dy, x, weight = dy.contiguous(), _rows_in_order(x), weight.contiguous()
    outer, inner = weight.shape[1:]
    dx = _product(dy, weight, None, inner, transposed=True) if wants_x else None
    if inner > WIDEST:
        return dx, torch.bmm(dy.mT, x), dy.sum(1)
    dweight, dbias = _gradients(dy, x, outer)
    return dx, (dweight[0] if len(dweight) == 1 else dweight.sum(0)), (dbias[0] if len(dbias) == 1 else dbias.sum(0))


def _gradients(dy: Tensor, x: Tensor, outer: int) -> tuple[Tensor, Tensor]:
    """Partial sums of those of weight and bias, (parts, M, O, K) and (parts, M, O)."""
    members, rows, inner = x.shape
    width = min(WIDEST, _padded(outer))
    strips = triton.cdiv(outer, width)
    parts, blocks = _shares(rows, members * strips, GRADIENT) if rows else (1, 0)
    dweight, dbias = x.new_empty(parts, members, outer, inner), x.new_empty(parts, members, outer)
    with on_device(x.device):
        weight_gradient[(parts, members, strips)](
            dy, x, dweight, dbias, rows, _rows_apart(x), blocks, members,
            inner, outer, _padded(inner), width, GRADIENT_PRECISION, GRADIENT.rows, GRADIENT.stages,
            **compiler_options(GRADIENT.warps),
        )  # fmt: skip
    return dweight, dbias
