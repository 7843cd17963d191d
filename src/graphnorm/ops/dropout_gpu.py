"""Dropout by a key on a GPU: the Triton kernel and its launch, which does not synchronise."""

from __future__ import annotations

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.backends import contiguous
from graphnorm.launch import compiler_options, on_device


@triton.jit
def _hash(key, counter):
    """:func:`graphnorm.randomness.bits`, on unsigned words."""
    word = key + (counter + 1) * 0x9E3779B97F4A7C15
    word = (word ^ (word >> 30)) * 0xBF58476D1CE4E5B9
    word = (word ^ (word >> 27)) * 0x94D049BB133111EB
    return word ^ (word >> 31)


@triton.jit(do_not_specialize=["site", "rows"])
def drop_entries(x, residual, key, rate, out, site, rows, WIDTH: tl.constexpr, E: tl.constexpr):
    """y = [u ≥ p] / (1 - p) · x + r for E entries of a member; x, residual and out: (M, rows, WIDTH)."""
    member = tl.program_id(1).to(tl.int64)
    entries = tl.cast(rows, tl.int64) * WIDTH
    place = tl.program_id(0).to(tl.int64) * E + tl.arange(0, E)
    inside, at = place < entries, member * entries + place
    own = _hash(tl.load(key + member).to(tl.uint64, bitcast=True), site.to(tl.uint64))
    share = tl.load(rate + member)
    uniform = (_hash(own, place.to(tl.uint64)) >> 40).to(tl.float32) * 5.9604644775390625e-08  # 2^-24
    y = tl.load(x + at, mask=inside, other=0.0) * tl.where(uniform >= share, 1 / (1 - share), 0.0)
    if residual is not None:
        y += tl.load(residual + at, mask=inside, other=0.0)
    tl.store(out + at, y, mask=inside)


ENTRIES, WARPS = 2048, 4  # of one program


def drop(x: Tensor, residual: Tensor | None, key: Tensor, rate: Tensor, site: int) -> Tensor:
    """y of x, ([M,] N, C), with key and rate, ([M,])."""
    x, key, rate, residual = x.contiguous(), key.contiguous(), rate.contiguous(), contiguous(residual)
    out, (rows, width) = torch.empty_like(x), x.shape[-2:]
    if out.numel():
        grid = (triton.cdiv(rows * width, ENTRIES), key.numel())
        with on_device(x.device):
            drop_entries[grid](x, residual, key, rate, out, site, rows, width, ENTRIES, **compiler_options(WARPS))
    return out
