"""The floating-point types that operations compute in."""

from __future__ import annotations

import torch
from torch import Tensor

__all__ = ["accumulation_dtype", "wide_dtype"]


def accumulation_dtype(dtype: torch.dtype) -> torch.dtype:
    """The type that values of ``dtype`` are summed and scaled in: float32 for the half types."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def wide_dtype(x: Tensor) -> torch.dtype:
    """float64, for means and long sums; float32 on Apple's GPUs, which have no float64.

    A mean in float64 keeps the digits of x - mean where the mean is large.
    """
    return torch.float32 if x.device.type == "mps" else torch.float64
