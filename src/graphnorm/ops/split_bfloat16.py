"""Products of float32 with small whole numbers by the bfloat16 units of a GPU, exactly."""

from __future__ import annotations

import os

import triton
import triton.language as tl

__all__ = ["PART", "three_parts"]

PART = tl.float32 if os.environ.get("TRITON_INTERPRET") == "1" else tl.bfloat16
"""What the parts are. Triton's interpreter cannot multiply bfloat16."""


@triton.jit
def three_parts(value, PART: tl.constexpr):
    """A float32 as a sum of three bfloat16: its 24 bits by eight. Products of each with a small count are exact."""
    high = value.to(PART)
    rest = value - high.to(tl.float32)
    middle = rest.to(PART)
    low = (rest - middle.to(tl.float32)).to(PART)
    return high, middle, low
