"""Adjacency: who is whose neighbour among the rows of a matrix of node features."""

from __future__ import annotations

from collections.abc import Iterable
from typing import Any, NamedTuple

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from graphnorm.backends import debugging
from graphnorm.blocks import Blocks
from graphnorm.segments import Segments
from graphnorm.tracing import is_passing, lastingly, may_keep, of_inference

_INDICES = (torch.int64, torch.int32)


class Transpose(NamedTuple):
    """The edges once more, by the row they come from."""

    rowptr: Tensor
    """(N + 1,): the edges that leave row c are ``rowptr[c]:rowptr[c+1]`` of what follows."""
    col: Tensor
    """(E,): the row each of them leads to."""
    edge: Tensor
    """(E,): where the edge's features lie."""


class Adjacency:
    """The edges of a batch of graphs in CSR, built once and handed to every layer.

    Give either

    * ``rowptr`` and ``col``: row r receives from rows ``col[rowptr[r]:rowptr[r+1]]``; shapes ``(N + 1,)`` and ``(E,)``,
      int64 or int32. They are taken as they are. Edges from ``rowptr[-1]`` on are padding. Or
    * ``edge_index`` and ``num_nodes``, as PyTorch Geometric has them: messages flow from ``edge_index[0]`` to
      ``edge_index[1]``. Edges in any order; they are sorted, and features of edges stay in the order given.

    Args:
        symmetric: a promise that with every edge its reverse is there as often. Gradients then need no transpose.
            Checked inside ``graphnorm.debug()``.
        max_degree: an upper bound on the edges that lead to one row, and on those that leave one, where it is known
            beforehand. It saves work on a GPU.

    Attributes:
        rowptr, col: as above.
        edge_ids: where the features of each edge of ``col`` lie, shape ``(E,)``; ``None`` where they lie in order.
        blocks: the same edges as matrices, where these were made, too; they are not carried through copies.

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
            lastingly(self._read_edge_index, edge_index, num_nodes)
        else:
            raise ValueError("Adjacency takes rowptr and col, or edge_index and num_nodes")
        if self.rowptr.device != self.col.device:
            raise ValueError(f"rowptr is on {self.rowptr.device}, col is on {self.col.device}; move one with .to(...)")
        if debugging() and not is_passing(self.col):
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
        """An adjacency from arrays that are known to be right: nothing is read, checked or moved."""
        self = object.__new__(cls)
        self.rowptr, self.col, self.edge_ids = rowptr, col, edge_ids
        self.symmetric, self.max_degree, self.blocks, self._transpose = symmetric, max_degree, blocks, transpose
        return self

    def _read_edge_index(self, edge_index: Tensor, num_nodes: int) -> None:
        if edge_index.shape[0] != 2:
            raise ValueError(f"edge_index must have shape (2, edges), got {tuple(edge_index.shape)}")
        if edge_index.device.type == "cpu" and not is_passing(edge_index) and edge_index.shape[1]:
            low, high = map(int, edge_index.aminmax())
            _check_range("edge_index", low, high, num_nodes)
        edge_index = edge_index.clone() if of_inference(edge_index) else edge_index
        source, target = edge_index[0], edge_index[1]
        by_target = Segments(batch=target, batch_size=num_nodes)
        self.rowptr, self.edge_ids = by_target.ptr, by_target.order
        self.col = source if self.edge_ids is None else source[self.edge_ids]

    def _check_values(self) -> None:
        """Everything that is promised, for one synchronisation or a few."""
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
        """The edges by the row they come from. Made once, where it is first asked for; nothing waits for a device."""
        made = self._transpose
        if made is None:
            made = lastingly(self._turn)
            if may_keep(self.rowptr, made.rowptr):
                self._transpose = made
        return made

    def _turn(self) -> Transpose:
        row, rows = self.rows(), self.num_rows
        kept = torch.int32 if rows < torch.iinfo(torch.int32).max else torch.int64
        source = torch.where(row < rows, self.col, rows).to(kept)
        source, edge = torch.sort(source, dim=-1, stable=True)
        boundaries = torch.arange(rows + 1, device=source.device, dtype=kept)
        boundaries = source.new_zeros(rows + 1) + boundaries  # one for each member where vmap has several
        rowptr = torch.searchsorted(source.contiguous(), boundaries)
        col = row.clamp(0, max(0, rows - 1)).gather(-1, edge)
        edge = edge if self.edge_ids is None else self.edge_ids.gather(-1, edge)
        return Transpose(rowptr, col, edge)

    def to(self, device: torch.device | str) -> Adjacency:
        """The same edges on another device."""
        return lastingly(self._moved, device)

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
