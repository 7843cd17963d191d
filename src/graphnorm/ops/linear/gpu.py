"""The stacked linear layer's two launches.

Products are taken in three parts of TF32 (x = high + low, and high·high + high·low + low·high), whose error is that of
float32; the kernels wait for memory, not for the tensor cores, so it costs nothing.
"""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from graphnorm.ops.linear.gpu_kernels import linear_backward, linear_forward

ROWS_FORWARD, ROWS_BACKWARD = 128, 64
PROGRAMS = 1056
"""In backward, about: eight for each multiprocessor of a large GPU."""


def _power_of_two(width: int) -> int:
    return max(16, 1 << (width - 1).bit_length())


def forward(x: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """x (M, N, K), with a stride of 0 where all members share it; weight (M, O, K); bias (M, O)."""
    x = x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
    weight, bias = weight.contiguous(), bias.contiguous()
    members, rows, inner = x.shape
    outer = weight.shape[1]
    out = torch.empty(members, rows, outer, dtype=x.dtype, device=x.device)
    if out.numel():
        linear_forward[(triton.cdiv(rows, ROWS_FORWARD), members)](
            x, weight, bias, out, rows, x.stride(0),
            inner, outer, _power_of_two(inner), _power_of_two(outer), ROWS_FORWARD, num_warps=8,
        )  # fmt: skip
    return out


def backward(gradient: Tensor, x: Tensor, weight: Tensor, wants_dx: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of x (None where nobody wants it), weight and bias."""
    gradient, weight = gradient.contiguous(), weight.contiguous()
    x = x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
    members, rows, inner = x.shape
    outer = weight.shape[1]
    tiles = triton.cdiv(rows, ROWS_BACKWARD)
    parts = max(1, min(triton.cdiv(PROGRAMS, members), tiles))
    blocks = triton.cdiv(tiles, parts)
    dx = torch.empty(members, rows, inner, dtype=x.dtype, device=x.device) if wants_dx else None
    dweight = torch.empty(parts, members, outer, inner, dtype=x.dtype, device=x.device)
    dbias = torch.empty(parts, members, outer, dtype=x.dtype, device=x.device)
    linear_backward[(parts, members)](
        gradient, x, weight, dx, dweight, dbias, rows, x.stride(0), blocks, members,
        inner, outer, _power_of_two(inner), _power_of_two(outer), ROWS_BACKWARD, num_warps=4,
    )  # fmt: skip
    return dx, (dweight[0] if parts == 1 else dweight.sum(0)), (dbias[0] if parts == 1 else dbias.sum(0))
