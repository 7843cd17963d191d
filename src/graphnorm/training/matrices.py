"""Whether a dataset's graphs are aggregated as matrices on a GPU, and those matrices."""

from __future__ import annotations

from typing import NamedTuple

from torch import Tensor

from graphnorm.adjacency import Blocks, row_stride, write_blocks
from graphnorm.data.batching import GraphBatch
from graphnorm.data.packed import PackedGraphs

__all__ = ["Matrices", "worthwhile_matrices"]

TILE = 64
"""Rows and columns that a GPU multiplies at a time."""
WORTHWHILE = 0.25
"""Share of the edge-by-edge traffic, from which down matrices are taken."""
MOST_BYTES = 1 << 32


class Matrices(NamedTuple):
    """All adjacency matrices of a dataset; see :class:`~graphnorm.adjacency.Blocks`."""

    values: Tensor
    start: Tensor
    """(G + 1,)."""
    max_size: int

    def of(self, batch: GraphBatch) -> Blocks:
        """Those of a batch. An empty place, -1, finds the end: a matrix of no rows is nowhere read."""
        return Blocks(self.values, self.start[batch.ids], batch.ptr, self.max_size)


def worthwhile_matrices(graphs: PackedGraphs) -> Matrices | None:
    """The matrices, where products with them read a small share of what going edge by edge reads.

    Edge by edge, a row of features is read for each of E edges. Multiplied by tiles, each of ⌈n/64⌉² tiles of a graph
    reads 64 rows. Dense graphs of a few hundred nodes gain tenfold, sparse ones nothing.
    """
    sizes = graphs.sizes
    if graphs.device.type != "cuda" or not graphs.num_edges:
        return None
    rows_read = int(((sizes + TILE - 1) // TILE).square().sum()) * TILE
    in_bytes = int((sizes * row_stride(sizes)).sum())
    if rows_read > WORTHWHILE * graphs.num_edges or in_bytes > MOST_BYTES:
        return None
    return Matrices(*write_blocks(graphs.node_ptr, graphs.rowptr, graphs.col), int(sizes.max()))
