"""Blocks: the adjacency matrices of a batch's graphs, written out in full.

A graph with many edges for its size is aggregated faster as a product with its adjacency matrix, read once, than edge
by edge, where every row is read as often as it has neighbours.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

__all__ = ["Blocks", "row_stride", "write_blocks"]

ALIGNMENT = 16
"""Bytes. Rows of a matrix begin at multiples of it, so that a GPU can read them many bytes at a time."""


class Blocks(NamedTuple):
    """Symmetric matrices of small counts, one for each graph of a batch. M members may share them or have their own."""

    values: Tensor
    """(V,) uint8: matrices end to end, row by row, each row filled up with zeros to :func:`row_stride`."""
    start: Tensor
    """([M,] B) int64: where the matrix of each graph begins, a multiple of 16."""
    ptr: Tensor
    """([M,] B + 1) int64: graph k has the rows ``ptr[k]:ptr[k+1]``; rows from ``ptr[-1]`` on belong to none."""
    max_size: int
    """At least the rows of the largest graph."""


def row_stride(size: Tensor) -> Tensor:
    """From one row of a matrix of that size to the next."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write_blocks(node_ptr: Tensor, rowptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor]:
    """All matrices of a dataset: ``values`` as in :class:`Blocks`, and (G + 1,) where each begins and the last ends.

    node_ptr (G + 1,), rowptr (N + 1,) and col (E,), which counts from the first node of the graph, are CSR.

    >>> values, start = write_blocks(torch.tensor([0, 2]), torch.tensor([0, 1, 2]), torch.tensor([1, 0]))
    >>> values.view(2, 16)[:, :2].tolist(), start.tolist()
    ([[0, 1], [1, 0]], [0, 32])
    """
    size = node_ptr.diff()
    stride = row_stride(size)
    start = torch.nn.functional.pad((size * stride).cumsum(0), (1, 0))
    graph = torch.repeat_interleave(size)
    local = torch.arange(len(graph), device=graph.device) - node_ptr[graph]
    row_start = start[graph] + local * stride[graph]
    place = torch.repeat_interleave(row_start, rowptr.diff()) + col
    values = torch.zeros(int(start[-1]), dtype=torch.uint8, device=col.device)
    values.scatter_add_(0, place, torch.ones_like(place, dtype=torch.uint8))
    return values, start
