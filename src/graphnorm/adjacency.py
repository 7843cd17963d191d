"""Adjacency: the edges between the rows of a matrix of node features, in CSR and, for dense graphs, as matrices."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from graphnorm.backends import debugging
from graphnorm.segments import Segments
from graphnorm.tracing import can_read_values, is_inference_tensor, may_cache, outside_inference_mode

__all__ = ["Adjacency", "Blocks", "Transpose", "row_stride", "rows_of", "write_blocks"]

_INDICES = (torch.int64, torch.int32)


class Transpose(NamedTuple):
    """The edges by the row they come from."""

    rowptr: Tensor
    """(N + 1,): the edges that leave row c are ``rowptr[c]:rowptr[c+1]`` of what follows."""
    col: Tensor
    """(E,): the row each of them leads to."""
    edge: Tensor
    """(E,): the row of the edge in the edge features."""


class Blocks(NamedTuple):
    """The edges as symmetric matrices of small counts, one for each graph. M members may share them or have their own.

    A graph with many edges for its size is aggregated faster as a product with its adjacency matrix, read once, than
    edge by edge, where every row is read as often as it has neighbours.
    """

    values: Tensor
    """(V,) uint8: matrices end to end, row by row, each row padded with zeros to :func:`row_stride`."""
    start: Tensor
    """([M,] B) int64: where the matrix of each graph begins, a multiple of 16."""
    ptr: Tensor
    """([M,] B + 1) int64: graph k has the rows ``ptr[k]:ptr[k+1]``; rows from ``ptr[-1]`` on belong to none."""
    max_size: int
    """At least the rows of the largest graph."""


class Adjacency:
    """The edges of a batch of graphs in CSR, built once and passed to every layer.

    Give either

    * ``rowptr`` and ``col``: row r receives from rows ``col[rowptr[r]:rowptr[r+1]]``; shapes ``(N + 1,)`` and ``(E,)``,
      int64 or int32. They are taken as they are. Edges from ``rowptr[-1]`` on are padding. Or
    * ``edge_index`` and ``num_nodes``, as PyTorch Geometric has them: messages flow from ``edge_index[0]`` to
      ``edge_index[1]``. Edges in any order; they are sorted, and features of edges stay in the order given.

    Args:
        symmetric: a promise that every edge occurs as often as its reverse. Gradients then need no transpose.
            Checked inside ``graphnorm.debug()``.
        max_degree: an upper bound on the edges that lead to one row, and on those that leave one, where it is known
            beforehand. It saves work on a GPU.

    Attributes:
        rowptr, col: as above.
        edge_ids: the row of each edge of ``col`` in the edge features, shape ``(E,)``; ``None`` if they are in order.
        blocks: the same edges as matrices, or ``None``. Copies to other devices and pickles do not carry them.

    >>> Adjacency(edge_index=torch.tensor([[0, 1, 2, 0], [1, 0, 0, 2]]), num_nodes=3)
    Adjacency(3 rows, 4 edges)
    >>> Adjacency(rowptr=torch.tensor([0, 1, 2]), col=torch.tensor([1, 0]), symmetric=True)
    Adjacency(2 rows, 2 edges, symmetric)
    """

    __slots__ = ("_transpose", "blocks", "col", "edge_ids", "max_degree", "rowptr", "symmetric")

    rowptr: Tensor
    col: Tensor
    edge_ids: Tensor | None
    symmetric: bool
    max_degree: int | None
    blocks: Blocks | None
    _transpose: Transpose | None

    def __init__(
        self,
        *,
        rowptr: Tensor | None = None,
        col: Tensor | None = None,
        edge_index: Tensor | None = None,
        num_nodes: int | None = None,
        symmetric: bool = False,
        max_degree: int | None = None,
    ) -> None:
        self.symmetric, self.max_degree, self.blocks, self._transpose = symmetric, max_degree, None, None
        if rowptr is not None and col is not None and edge_index is None and num_nodes is None:
            for name, value in (("rowptr", rowptr), ("col", col)):
                _check_index(name, value, 1)
            if rowptr.shape[0] == 0:
                raise ValueError("rowptr is empty; with no rows it is still [0], one entry more than there are rows")
            self.rowptr, self.col, self.edge_ids = rowptr, col, None
        elif edge_index is not None and num_nodes is not None and rowptr is None and col is None:
            _check_index("edge_index", edge_index, 2)
            outside_inference_mode(self._read_edge_index, edge_index, num_nodes)
        else:
            raise ValueError("Adjacency takes rowptr and col, or edge_index and num_nodes")
        if self.rowptr.device != self.col.device:
            raise ValueError(f"rowptr is on {self.rowptr.device}, col is on {self.col.device}; move one with .to(...)")
        if debugging() and can_read_values(self.col):
            self._check_values()

    @classmethod
    def trusted(
        cls,
        rowptr: Tensor,
        col: Tensor,
        edge_ids: Tensor | None = None,
        symmetric: bool = False,
        max_degree: int | None = None,
        transpose: Transpose | None = None,
        blocks: Blocks | None = None,
    ) -> Adjacency:
        """An adjacency from arrays that are known to be right: nothing is checked."""
        self = object.__new__(cls)
        self.rowptr, self.col, self.edge_ids = rowptr, col, edge_ids
        self.symmetric, self.max_degree, self.blocks, self._transpose = symmetric, max_degree, blocks, transpose
        return self

    def _read_edge_index(self, edge_index: Tensor, num_nodes: int) -> None:
        if edge_index.shape[0] != 2:
            raise ValueError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
        if edge_index.device.type == "cpu" and can_read_values(edge_index) and edge_index.shape[1]:
            low, high = map(int, edge_index.aminmax())
            _check_range("edge_index", low, high, num_nodes)
        edge_index = edge_index.clone() if is_inference_tensor(edge_index) else edge_index
        source, target = edge_index[0], edge_index[1]
        by_target = Segments(batch=target, batch_size=num_nodes)
        self.rowptr, self.edge_ids = by_target.ptr, by_target.order
        self.col = source if self.edge_ids is None else source[self.edge_ids]

    def _check_values(self) -> None:
        """All promises about the arrays. Synchronises a few times."""
        first, last = int(self.rowptr[0]), int(self.rowptr[-1])
        if first != 0 or last > self.num_edges or bool((self.rowptr.diff() < 0).any()):
            raise ValueError("rowptr must start at 0, never fall and end at the number of edges, as in CSR")
        if last:
            low, high = map(int, self.col[:last].aminmax())
            _check_range("col", low, high, self.num_rows)
        if self.max_degree is not None and self.num_rows:
            most = max(int(rowptr.diff().max()) for rowptr in (self.rowptr, self.transpose().rowptr))
            if most > self.max_degree:
                raise ValueError(f"a row has {most} edges, more than max_degree={self.max_degree}")
        if self.symmetric:
            row, col = self.rows()[:last].long(), self.col[:last].long()
            there = torch.sort(row * self.num_rows + col).values
            back = torch.sort(col * self.num_rows + row).values
            if not torch.equal(there, back):
                raise ValueError("the edges are not symmetric, but symmetric=True was given; leave symmetric out")

    @property
    def num_rows(self) -> int:
        """N, the rows without edges included."""
        return self.rowptr.shape[-1] - 1

    @property
    def num_edges(self) -> int:
        """E, the padding included."""
        return self.col.shape[-1]

    @property
    def device(self) -> torch.device:
        """Where the arrays live."""
        return self.col.device

    def rows(self) -> Tensor:
        """The row that each edge leads to, shape (E,); N on padded edges."""
        return rows_of(self.rowptr, self.num_edges)

    def transpose(self) -> Transpose:
        """The edges by the row they come from. Computed at the first call, without a device synchronisation."""
        made = self._transpose
        if made is None:
            made = outside_inference_mode(self._compute_transpose)
            if may_cache(self.rowptr, made.rowptr):
                self._transpose = made
        return made

    def _compute_transpose(self) -> Transpose:
        row, rows = self.rows(), self.num_rows
        kept = torch.int32 if rows < torch.iinfo(torch.int32).max else torch.int64
        source = torch.where(row < rows, self.col, rows).to(kept)
        source, edge = torch.sort(source, dim=-1, stable=True)
        boundaries = torch.arange(rows + 1, device=source.device, dtype=kept)
        boundaries = source.new_zeros(rows + 1) + boundaries  # a copy for each member inside vmap
        rowptr = torch.searchsorted(source.contiguous(), boundaries)
        col = row.clamp(0, max(0, rows - 1)).gather(-1, edge)
        edge = edge if self.edge_ids is None else self.edge_ids.gather(-1, edge)
        return Transpose(rowptr, col, edge)

    def to(self, device: torch.device | str) -> Adjacency:
        """The same edges on another device."""
        return outside_inference_mode(self._moved, device)

    def _moved(self, device: torch.device | str) -> Adjacency:
        edge_ids = None if self.edge_ids is None else self.edge_ids.to(device)
        made = None if self._transpose is None else Transpose(*(t.to(device) for t in self._transpose))
        rowptr, col = self.rowptr.to(device), self.col.to(device)
        return Adjacency.trusted(rowptr, col, edge_ids, self.symmetric, self.max_degree, made)

    def __repr__(self) -> str:
        notes = [f"{self.num_rows} rows", f"{self.num_edges} edges"]
        notes += ["symmetric"] if self.symmetric else []
        notes += [] if self.device.type == "cpu" else [f"on {self.device}"]
        return f"Adjacency({', '.join(notes)})"

    def __reduce__(self) -> tuple[Any, ...]:
        arrays = (self.rowptr, self.col, self.edge_ids)
        return Adjacency.trusted, (*arrays, self.symmetric, self.max_degree, self._transpose)


def rows_of(rowptr: Tensor, edges: int) -> Tensor:
    """The row of each edge, ([M,] E), given ``rowptr`` ([M,] N + 1); N for edges that belong to no row."""
    rows = rowptr.shape[-1] - 1
    position = torch.arange(edges, device=rowptr.device, dtype=rowptr.dtype)
    position = rowptr.new_zeros(*rowptr.shape[:-1], edges) + position
    row = torch.searchsorted(rowptr.contiguous(), position, right=True) - 1
    return torch.where(row < 0, rows, row)


ALIGNMENT = 16
"""Bytes. Rows of a matrix begin at multiples of it, so that a GPU can read many bytes at a time."""


def row_stride(size: Tensor) -> Tensor:
    """From one row of a matrix of that size to the next."""
    return (size + ALIGNMENT - 1) // ALIGNMENT * ALIGNMENT


def write_blocks(node_ptr: Tensor, rowptr: Tensor, col: Tensor) -> tuple[Tensor, Tensor]:
    """The matrices of all graphs of a dataset: ``values`` as in :class:`Blocks`, and (G + 1,) where each begins.

    node_ptr (G + 1,), rowptr (N + 1,) and col (E,) are CSR; col counts from the first node of its graph.

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


def _check_index(name: str, value: Tensor, dims: int) -> None:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, got {type(value).__name__}")
    if value.dtype not in _INDICES:
        raise TypeError(f"{name} must hold int64 or int32, got {value.dtype}; convert it with {name}.long()")
    if value.dim() != dims:
        shape = "one-dimensional" if dims == 1 else "of shape (2, edges)"
        raise ValueError(f"{name} must be {shape}, got shape {tuple(value.shape)}")


def _check_range(name: str, low: int, high: int, rows: int) -> None:
    if low < 0 or high >= rows:
        wrong = low if low < 0 else high
        raise ValueError(f"{name} holds {wrong}, but there are {rows} rows; rows go from 0 to {rows - 1}")


def _flatten(adjacency: Adjacency) -> tuple[list[Tensor], tuple[Any, ...]]:
    made = adjacency._transpose
    optional = (adjacency.edge_ids, *((None,) * 3 if made is None else made))
    present = tuple(tensor is not None for tensor in optional)
    leaves = [adjacency.rowptr, adjacency.col, *(tensor for tensor in optional if tensor is not None)]
    return leaves, (present, adjacency.symmetric, adjacency.max_degree)


def _unflatten(leaves: Iterable[Tensor], context: tuple[Any, ...]) -> Adjacency:
    present, symmetric, max_degree = context
    remaining = iter(leaves)
    rowptr, col = next(remaining), next(remaining)
    edge_ids, *made = (next(remaining) if there else None for there in present)
    transpose = Transpose(*made) if made[0] is not None else None  # type: ignore[arg-type]
    return Adjacency.trusted(rowptr, col, edge_ids, symmetric, max_degree, transpose)


pytree.register_pytree_node(Adjacency, _flatten, _unflatten, serialized_type_name="graphnorm.Adjacency")
