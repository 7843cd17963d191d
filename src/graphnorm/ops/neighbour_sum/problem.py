"""What one aggregation is asked to do, apart from its input: shared by the reference and the fused kernels."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor


class Problem(NamedTuple):
    """Edges, scales and options of one call. M members are stacked by ``vmap``; alone there is no M.

    Integer arrays and ``scale`` may lack M where all members share them. ``col`` is absent where there are only
    features of edges to add up, ``edge_of`` where those lie in the order of the edges. The transposed arrays serve the
    backward pass; ``t_edge`` only where the gradient depends on the features of the edges.
    """

    rowptr: Tensor  # ([M,] R + 1)
    col: Tensor | None  # ([M,] E)
    edge_of: Tensor | None  # ([M,] E)
    t_rowptr: Tensor | None  # ([M,] N + 1)
    t_col: Tensor | None  # ([M,] E)
    t_edge: Tensor | None  # ([M,] E)
    scale: Tensor | None  # ([M,] N), without gradient
    self_weight: Tensor | None  # ([M]), or
    constant: float  # in its place
    relu: bool
    mean: bool
    max_degree: int | None  # an upper bound on the edges of one row, in both directions

    @property
    def rows(self) -> int:
        """R, the number of rows that receive."""
        return self.rowptr.shape[-1] - 1


class Wanted(NamedTuple):
    """Which gradients to compute; those that are not wanted come back empty."""

    x: bool
    edges: int | None  # E, where the gradient of edge_x is wanted
    self_weight: bool
