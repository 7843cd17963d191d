"""The matrix Q with which a layer gathers from neighbours, H ↦ HQ, for GIN and GCN.

GIN: Q = A + (1 + ξ)I. The authors' data has a self-loop on every node besides, so there Q = A + (2 + ξ)I.
GCN: Q = D̂^{-1/2}(A + I)D̂^{-1/2}, where D̂ is the diagonal of degrees of A + I.

Both are symmetric, and both have the form q_ij = sᵢsⱼ on edges and dᵢ on the diagonal.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from graphnorm.analysis.measurement import Floats, Integers
from graphnorm.errors import GraphnormError, MissingDependencyError

if TYPE_CHECKING:
    from graphnorm.data import GraphBatch

__all__ = ["Aggregation", "Entries", "dense_q", "sparse_q"]


class Entries(NamedTuple):
    """Q of a graph or batch with R nodes: q_ij = edge[i]·edge[j] on edges, diagonal[i] on the diagonal."""

    diagonal: Floats
    edge: Floats


@dataclass(frozen=True)
class Aggregation:
    """Which Q: that of GIN, with its ξ and with or without the authors' extra self-loop, or that of GCN.

    >>> Aggregation("gin", xi=0.1, self_loop=True).label
    'GIN, ξ = 0.1, self-loop'
    """

    model: Literal["gin", "gcn"] = "gin"
    xi: float = 0.0
    self_loop: bool = False

    def __post_init__(self) -> None:
        if self.model not in ("gin", "gcn"):
            raise GraphnormError(f"there is no aggregation {self.model!r}", remedy="use 'gin' or 'gcn'")
        if not np.isfinite(self.xi):
            raise GraphnormError(f"ξ is {self.xi}", remedy="give a finite number")
        if self.model == "gcn" and (self.xi or self.self_loop):
            raise GraphnormError("GCN has neither ξ nor an extra self-loop", remedy="leave them out, or use 'gin'")

    @property
    def label(self) -> str:
        """For people."""
        if self.model == "gcn":
            return "GCN"
        return f"GIN, ξ = {self.xi:g}" + (", self-loop" if self.self_loop else "")

    def entries(self, degree: Integers) -> Entries:
        """What Q is made of, from the degrees of A, (R,)."""
        if self.model == "gin":
            return Entries(np.full(len(degree), 1.0 + self.xi + self.self_loop), np.ones(len(degree)))
        loops = degree + 1.0
        return Entries(1 / loops, 1 / np.sqrt(loops))


def dense_q(batch: GraphBatch, aggregation: Aggregation) -> Floats:
    """(R, R): Q of a batch; with more than one graph it is block-diagonal."""
    row, col = batch.row.cpu().numpy(), batch.col.cpu().numpy()
    entries = aggregation.entries(batch.degree.cpu().numpy())
    matrix = np.diag(entries.diagonal)
    matrix[row, col] = entries.edge[row] * entries.edge[col]
    return matrix


def sparse_q(batch: GraphBatch, aggregation: Aggregation) -> Any:
    """(R, R) ``scipy.sparse.csr_array``: Q of a batch, block-diagonal."""
    try:
        from scipy import sparse
    except ImportError as error:
        raise MissingDependencyError("scipy", "sparse aggregation", "analysis") from error
    col, rowptr = batch.col.cpu().numpy(), batch.rowptr.cpu().numpy()
    entries = aggregation.entries(np.diff(rowptr))
    row = np.repeat(np.arange(len(rowptr) - 1), np.diff(rowptr))
    adjacency = sparse.csr_array(
        (entries.edge[row] * entries.edge[col], col, rowptr), shape=(batch.num_rows, batch.num_rows)
    )
    return sparse.csr_array(adjacency + sparse.diags_array(entries.diagonal))
