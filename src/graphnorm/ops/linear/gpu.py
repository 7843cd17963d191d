"""The stacked linear layer's three launches.

Products are taken in three parts of TF32 (x = high + low, and high·high + high·low + low·high), whose error is that of
float32. Those of the weights' gradient run along the rows, where a GPU multiplies bfloat16 but not TF32 straight from
memory: there x is a sum of three bfloat16, and the six largest of the nine products are taken, to the same error.

Products with a wide weight are torch's, and as exact as its setting says (``torch.set_float32_matmul_precision``).
"""

from __future__ import annotations

import os
from typing import NamedTuple

import torch
import triton
from torch import Tensor

from graphnorm.ops.linear.gpu_kernels import product, weight_gradient


class Cut(NamedTuple):
    """How a launch is cut into programs."""

    rows: int  # of a tile
    warps: int
    stages: int  # tiles on their way at a time
    programs: int  # about how many to aim at


WIDEST = 128
"""A weight with more rows or columns does not fit beside its tile of rows: torch's products suit it better."""
FEW_ROWS = 2048
"""Fewer rows of a member than this do not keep a GPU busy: wide products of all members are then one launch."""
PRODUCT = Cut(rows=64, warps=4, stages=3, programs=1056)
GRADIENT = Cut(rows=64, warps=4, stages=3, programs=1056)
GRADIENT_PRECISION = "tf32x3" if os.environ.get("TRITON_INTERPRET") == "1" else "bf16x6"
"""Triton's interpreter knows only one of them, and takes products in full."""


def _power_of_two(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


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
        product[(parts, members)](
            x, weight, bias, out, rows, _rows_apart(x), blocks,
            inner, outer, _power_of_two(inner), _power_of_two(outer), transposed, PRODUCT.rows, PRODUCT.stages,
            num_warps=PRODUCT.warps,
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
    bias = None if bias is None else bias.contiguous()
    return _product(_rows_in_order(x), weight.contiguous(), bias, weight.shape[1])


def backward(gradient: Tensor, x: Tensor, weight: Tensor, wants_dx: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of x (None where nobody wants it), weight and bias."""
    gradient, x, weight = gradient.contiguous(), _rows_in_order(x), weight.contiguous()
    outer, inner = weight.shape[1:]
    dx = _product(gradient, weight, None, inner, transposed=True) if wants_dx else None
    if inner > WIDEST:
        return dx, torch.bmm(gradient.mT, x), gradient.sum(1)
    dweight, dbias = _gradients(gradient, x, outer)
    return dx, (dweight[0] if len(dweight) == 1 else dweight.sum(0)), (dbias[0] if len(dbias) == 1 else dbias.sum(0))


def _gradients(gradient: Tensor, x: Tensor, outer: int) -> tuple[Tensor, Tensor]:
    """Partial sums of those of weight and bias, (parts, M, O, K) and (parts, M, O)."""
    members, rows, inner = x.shape
    width = min(WIDEST, _power_of_two(outer))
    strips = triton.cdiv(outer, width)
    parts, blocks = _shares(rows, members * strips, GRADIENT) if rows else (1, 0)
    dweight, dbias = x.new_empty(parts, members, outer, inner), x.new_empty(parts, members, outer)
    weight_gradient[(parts, members, strips)](
        gradient, x, dweight, dbias, rows, _rows_apart(x), blocks, members,
        inner, outer, _power_of_two(inner), width, GRADIENT_PRECISION, GRADIENT.rows, GRADIENT.stages,
        num_warps=GRADIENT.warps,
    )  # fmt: skip
    return dweight, dbias
