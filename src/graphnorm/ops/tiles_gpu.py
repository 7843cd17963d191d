"""Triton functions that several operations share."""

from __future__ import annotations

from typing import Any

import torch
import triton
import triton.language as tl

from graphnorm.backends import interpreted

__all__ = ["PART", "accumulator", "exact_dot", "tile_mask"]

PART = tl.float32 if interpreted() else tl.bfloat16
"""The type that :func:`exact_dot` multiplies. Triton's interpreter cannot multiply bfloat16."""


def accumulator(dtype: torch.dtype) -> Any:
    """Triton's name for :func:`~graphnorm.ops.precision.accumulation_dtype`."""
    return tl.float64 if dtype == torch.float64 else tl.float32


@triton.jit
def tile_mask(inside, channel, CHANNELS: tl.constexpr, BC: tl.constexpr):
    """Which elements of a tile exist; channels are compared only where the last block is not full."""
    if CHANNELS % BC == 0:
        mask = inside[:, None]
    else:
        mask = inside[:, None] & (channel < CHANNELS)[None, :]
    return mask


@triton.jit
def exact_dot(integers, values, total, PART: tl.constexpr):
    """total + integers · values, for small integers in PART and values in float32, on the units for bfloat16.

    A float32 is the sum of three bfloat16 with eight of its 24 bits each, and their products with small integers are
    exact.
    """
    high = values.to(PART)
    rest = values - high.to(tl.float32)
    middle = rest.to(PART)
    low = (rest - middle.to(tl.float32)).to(PART)
    total = tl.dot(integers, low, total)
    total = tl.dot(integers, middle, total)
    return tl.dot(integers, high, total)
