"""The linear layer of the models: torch's, fast when a fleet stacks it."""

from __future__ import annotations

from torch import Tensor, nn

from graphnorm.ops.linear import linear

__all__ = ["Linear"]


class Linear(nn.Linear):
    """``torch.nn.Linear``, with the stacked kernels of :mod:`graphnorm.ops.linear` under ``torch.func.vmap``."""

    def forward(self, x: Tensor) -> Tensor:
        """(N, in_features) to (N, out_features)."""
        return linear(x, self.weight, self.bias)
