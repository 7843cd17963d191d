"""Node features that are one category each, before they are written out as one-hot rows."""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphnorm.ops.categories import project_categories

__all__ = ["OneHot"]


class OneHot(NamedTuple):
    """What models take in place of an (N, F) matrix with a single 1 in each row, to never make it where F is large."""

    category: Tensor
    """(N,) int64 in 0 … F-1; -1 stands for a row of zeros."""
    width: int
    """F."""

    def project(self, weight: Tensor) -> Tensor:
        """The matrix times Wᵀ, for W of shape (O, F): (N, O)."""
        return project_categories(self.category, weight)

    def dense(self) -> Tensor:
        """The matrix, (N, F).

        >>> OneHot(torch.tensor([1, -1]), 3).dense()
        tensor([[0., 1., 0.],
                [0., 0., 0.]])
        """
        return torch.nn.functional.embedding(
            self.category % (self.width + 1), torch.eye(self.width + 1, self.width, device=self.category.device)
        )
