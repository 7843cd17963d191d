"""What one standardization is asked to do, apart from its input: shared by the reference and the fused kernels."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

LIVE, DETACHED, GIVEN = "live", "detached", "given"
"""Where statistics come from: computed, computed but held fixed in the gradient, or handed in (running averages)."""


Parameters = tuple[Tensor | None, Tensor | None, Tensor | None]
"""weight γ, bias β and mean_scale α, ([M,] C) each; 1, 0 and 1 where they are ``None``."""


class Problem(NamedTuple):
    """Segments, parameters and statistics of one call. M members are stacked by ``vmap``; alone there is no M.

    ``ptr`` and ``order`` may lack M where all members share them; ``None`` means one segment of all rows, and rows in
    order. Parameters that are ``None`` are 1, 0 and 1. ``mean`` and ``var`` come in when statistics are given and, in
    the backward pass, always.
    """

    ptr: Tensor | None  # ([M,] G + 1) int64
    order: Tensor | None  # ([M,] N) int64
    weight: Tensor | None  # ([M,] C)
    bias: Tensor | None  # ([M,] C)
    mean_scale: Tensor | None  # ([M,] C)
    mean: Tensor | None  # ([M,] G, C), in `kept_in`
    var: Tensor | None  # ([M,] G, C), in `computed_in`
    eps: float
    relu: bool
    statistics: str
    max_size: int | None  # an upper bound on the rows of one segment

    @property
    def parameters(self) -> Parameters:
        """γ, β and α."""
        return self.weight, self.bias, self.mean_scale

    @property
    def graphs(self) -> int:
        """G, the number of segments of each member."""
        return 1 if self.ptr is None else self.ptr.shape[-1] - 1


def computed_in(dtype: torch.dtype) -> torch.dtype:
    """The type that values of ``dtype`` are summed and scaled in: float32 for the half types."""
    return torch.float64 if dtype == torch.float64 else torch.float32


def kept_in(x: Tensor) -> torch.dtype:
    """The type a mean is kept in. Double, so that x - mean keeps its digits where the mean is large."""
    return torch.float32 if x.device.type == "mps" else torch.float64


def in_type_of(parameter: Tensor | None, gradient: Tensor | None) -> Tensor | None:
    """A gradient in the type of its parameter; none where there is no parameter."""
    if parameter is None or gradient is None:
        return None
    return gradient if gradient.dtype is parameter.dtype else gradient.to(parameter.dtype)


def statistics_shape(x: Tensor, graphs: int) -> tuple[int, ...]:
    """([M,] G, C)."""
    return (*x.shape[:-2], graphs, x.shape[-1])
