"""Exact products of float32 with small integers on the bfloat16 units of a GPU."""

from __future__ import annotations

import os

import triton
import triton.language as tl

__all__ = ["PART", "split_bfloat16"]

PART = tl.float32 if os.environ.get("TRITON_INTERPRET") == "1" else tl.bfloat16
"""The type of the parts. Triton's interpreter cannot multiply bfloat16."""


@triton.jit
def split_bfloat16(value, PART: tl.constexpr):
    """A float32 as the sum of three bfloat16, eight of its 24 bits each. The product of each with a small integer is
    exact."""
    high = value.to(PART)
    rest = value - high.to(tl.float32)
    middle = rest.to(PART)
    low = (rest - middle.to(tl.float32)).to(PART)
    return high, middle, low
