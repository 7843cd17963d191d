"""Launches the Triton kernel. Nothing here waits for the device."""

from __future__ import annotations

import torch
import triton
from torch import Tensor

from graphnorm.ops.dropout.gpu_kernels import drop_entries

ENTRIES, WARPS = 2048, 4
"""Of one program."""


def drop(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int) -> Tensor:
    """y of x, ([M,] N, C), with key and rate, ([M,])."""
    x, key, rate = x.contiguous(), key.contiguous(), rate.contiguous()
    residual = None if residual is None else residual.contiguous()
    out, (rows, width) = torch.empty_like(x), x.shape[-2:]
    if out.numel():
        grid = (triton.cdiv(rows * width, ENTRIES), key.numel())
        drop_entries[grid](x, residual, key, rate, out, site, rows, width, ENTRIES, num_warps=WARPS)
    return out
