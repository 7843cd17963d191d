"""Boundaries and order of a batch vector on a GPU, without a sort where the ids are sorted, and without waiting.

The host does not know whether they are. So the first kernel takes them as sorted and notes where they fall; the second
one does nothing if they never fall, and else sorts them by counting.
"""

from __future__ import annotations

from functools import lru_cache

import torch
import triton
import triton.language as tl
from torch import Tensor

from graphnorm.launch import Launch, Launches, Tile, on_device

__all__ = ["can_read", "read"]

_MOST_COMPARISONS = 1 << 30  # of a row with a graph, by the second kernel; beyond that a radix sort is quicker
_FIRST = Tile(1024, 1, 4)  # rows
_SECOND = Tile(256, 16, 4)  # rows × graphs
_FLAGS = 1024  # that the second kernel looks at together

# Integer arguments, which Triton must not compile in: they change from batch to batch.
SIZES = ("rows", "graphs", "parts")


@triton.jit
def _ids(batch, position, rows, graphs):
    """The id at each position: -1 before the batch and for negative ids, `graphs` behind it and for ids too large."""
    ids = tl.load(batch + position, mask=(position >= 0) & (position < rows), other=0)
    ids = tl.minimum(tl.maximum(ids, -1), graphs)
    return tl.where(position < 0, -1, tl.where(position < rows, ids, graphs))


@triton.jit(do_not_specialize=SIZES)
def find_boundaries(batch, ptr, order, falls, rows, graphs, BR: tl.constexpr, BC: tl.constexpr):
    """Write rows in order, and a flag per program where ids fall; elsewhere ptr[g], the first row of id g or more."""
    position = tl.program_id(0).to(tl.int64) * BR + tl.arange(0, BR)
    here = _ids(batch, position, rows, graphs)
    gap = here - _ids(batch, position - 1, rows, graphs)
    tl.store(order + position, position, mask=position < rows)
    fall = tl.max((gap < 0).to(tl.int32), 0)
    tl.store(falls + tl.program_id(0), fall)
    if fall == 0:  # otherwise the next kernel writes ptr
        for step in range(tl.max(gap, 0)):  # more than one where graphs are empty
            tl.store(ptr + here - step, position, mask=step < gap)


@triton.jit(do_not_specialize=SIZES)
def sort_if_they_fall(
    batch, ptr, order, falls, rows, graphs, parts, FLAGS: tl.constexpr, BR: tl.constexpr, BC: tl.constexpr
):
    """Each program finds the rows of BC graphs, in their order; -1 and `graphs` count as such."""
    unsorted = 0
    for start in range(0, parts, FLAGS):
        part = start + tl.arange(0, FLAGS)
        unsorted = tl.maximum(unsorted, tl.max(tl.load(falls + part, mask=part < parts, other=0), 0))
    if unsorted > 0:
        g = tl.program_id(0).to(tl.int64) * BC + tl.arange(0, BC) - 1
        place = tl.zeros((BC,), tl.int64)
        for start in range(0, rows, BR):
            ids = _ids(batch, start + tl.arange(0, BR), rows, graphs + 1)
            place += tl.sum((ids[:, None] < g[None, :]).to(tl.int64), 0)
        tl.store(ptr + g, place, mask=(g >= 0) & (g <= graphs))
        for start in range(0, rows, BR):
            position = start + tl.arange(0, BR)
            ids = _ids(batch, position, rows, graphs)
            mine = (ids[:, None] == g[None, :]) & (position < rows)[:, None]
            at = place[None, :] + tl.cumsum(mine.to(tl.int64), 0) - 1
            tl.store(order + at, tl.broadcast_to(position[:, None], (BR, BC)), mask=mine)
            place += tl.sum(mine.to(tl.int64), 0)


def can_read(rows: int, graphs: int) -> bool:
    """Whether :func:`read` is the quicker way, whatever the ids are."""
    return rows > 0 and graphs <= rows + _FIRST.rows and rows * (graphs + 2) <= _MOST_COMPARISONS


@lru_cache(maxsize=1024)
def _launches(index: int | None, rows: int, graphs: int) -> tuple[int, Launches]:
    """How many flags there are, and both kernels."""
    parts, blocks = -(-(rows + 1) // _FIRST.rows), -(-(graphs + 2) // _SECOND.channels)
    first = Launch(find_boundaries, parts, _FIRST, (rows, graphs), (index,))
    second = Launch(sort_if_they_fall, blocks, _SECOND, (rows, graphs, parts), (index,), _FLAGS)
    return parts, Launches(first, second)


def read(batch: Tensor, graphs: int) -> tuple[Tensor, Tensor]:
    """ptr (G + 1) and order (N) of ids (N), int64. Ids out of range end up before ptr[0] or behind ptr[G]."""
    batch = batch.contiguous()
    rows, device = batch.shape[0], batch.device
    parts, launches = _launches(device.index, rows, graphs)
    ptr, order = batch.new_empty(graphs + 1), batch.new_empty(rows)
    falls = batch.new_empty(parts, dtype=torch.int32)
    with on_device(device):
        stream = torch._C._cuda_getCurrentRawStream(device.index) if batch.is_cuda else 0
        launches((), stream, batch, ptr, order, falls)
    return ptr, order
