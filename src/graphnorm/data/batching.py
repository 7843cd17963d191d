"""From graph ids to one batch: vectorised, on the arrays' own device, with static shapes on request.

A batch of B graphs is B contiguous blocks of rows. Let nₖ be the size of the k-th graph and sₖ the place of
its first node in the packed arrays. Row r of graph k comes from packed row sₖ + (r − ptrₖ), where ptr is the
exclusive cumulative sum of n. So one ``repeat`` (which graph owns row r) and one gather per array make the
batch, and the same holds for edges. There is no loop over graphs. On the CPU :mod:`graphnorm.data.compiled`,
where the C library was built, does the same in one call.

**Static shapes.** CUDA graphs and ``torch.compile`` want every batch to have the same number of rows. Padding
is then simply one more graph, number B, that takes up what is left: ``ptr[B]`` is where it starts. Padded
rows come after the last graph's rows, belong to no graph, have no edges and carry zeros. Because the block
sizes sum to the static bound by construction, nothing has to be read back from the device.

**Stacks.** ids of shape (M, B) make M independent batches at once, each with pointers and columns of its own
that start at 0; every array gains a leading M. That is the form ``torch.func.vmap`` takes with ``in_dims=0``.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable
from dataclasses import dataclass, fields
from typing import Any, NamedTuple, cast

import numpy as np
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from graphnorm.data import compiled
from graphnorm.tracing import can_read_values

__all__ = ["BatchTables", "Bounds", "GraphBatch", "assemble", "measure", "one_hot"]


class Bounds(NamedTuple):
    """Static sizes of a batch: how many rows and how many directed edges its arrays have."""

    max_nodes: int
    max_edges: int


@dataclass(frozen=True, eq=False, repr=False)
class GraphBatch:
    """B graphs as one, with R rows (nodes) and E directed edges; a stack of M batches has a leading M
    everywhere.

    Where the shapes are static (see :class:`Bounds`), rows from ``ptr[-1]`` on and edges from ``rowptr[-1]``
    on are padding: they hold zeros and belong to no graph. A graph id of -1 is an empty graph with label -1.

    The class is a pytree: ``torch.func.vmap``, ``torch.utils._pytree.tree_map`` and ``torch.export`` see its
    tensors, and nothing where an optional array is absent.
    """

    ids: Tensor
    """(B,) int64: which graphs of the dataset these are; -1 for an empty place."""
    labels: Tensor
    """(B,) int64: classes; -1 for an empty place (``ignore_index`` of a cross-entropy)."""
    ptr: Tensor
    """(B+1,) int64: graph k has the rows ``ptr[k]:ptr[k+1]``; ``ptr[-1] <= R``."""
    batch: Tensor
    """(R,) int64: the graph of each row; B on padded rows."""
    rowptr: Tensor
    """(R+1,) int64: the edges of row r are ``rowptr[r]:rowptr[r+1]``."""
    col: Tensor
    """(E,) int64: the neighbour at the other end of each edge, as a row of this batch; (0,) where the batch was
    assembled without edges."""
    tags: Tensor | None = None
    """(R, K) small integers: K categorical node features."""
    x: Tensor | None = None
    """(R, F) float32: continuous node features."""
    edge_tags: Tensor | None = None
    """(E, L) small integers: L categorical edge features."""
    edge_x: Tensor | None = None
    """(E, D) float32: continuous edge features."""

    @property
    def num_graphs(self) -> int:
        """B, empty places included."""
        return self.ids.shape[-1]

    @property
    def num_rows(self) -> int:
        """R: the nodes, and the padded rows where shapes are static."""
        return self.batch.shape[-1]

    @property
    def sizes(self) -> Tensor:
        """(B,): the number of nodes of each graph."""
        return self.ptr.diff()

    @property
    def degree(self) -> Tensor:
        """(R,): the number of edges of each row; 0 on padded rows."""
        return self.rowptr.diff()

    @property
    def real(self) -> Tensor:
        """(R,) bool: rows that are nodes, not padding."""
        return self.batch < self.num_graphs

    @property
    def row(self) -> Tensor:
        """(E,): the row each edge belongs to, the other half of ``col``; R on padded edges.

        The last row that begins at or before the edge: empty rows begin where the next one does.
        """
        edges = torch.arange(self.col.shape[-1], device=self.col.device).expand(self.col.shape).contiguous()
        return torch.searchsorted(self.rowptr.contiguous(), edges, right=True) - 1

    @property
    def edge_index(self) -> Tensor:
        """(2, E): PyTorch Geometric's (source, target); messages flow from ``col`` to ``row``.

        Only without padding: a padded edge has no target.
        """
        return torch.stack([self.col, self.row], dim=-2)

    def one_hot(self, cardinalities: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """(R, Σ cardinalities): the node tags one-hot, side by side; zero on padded rows."""
        if self.tags is None:
            raise ValueError("this batch has no categorical node features; use its x")
        return one_hot(self.tags, cardinalities, dtype, self.real)

    def categories(self) -> Tensor:
        """(R,) int64: the one categorical feature of each node; -1 on padded rows."""
        if self.tags is None or self.tags.shape[-1] != 1:
            raise ValueError("the nodes of this batch do not have exactly one categorical feature")
        return torch.where(self.real, self.tags[..., 0].long(), -1)

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphBatch:
        """Give the same batch on another device."""
        return cast(GraphBatch, pytree.tree_map(lambda t: t.to(device, non_blocking=non_blocking), self))

    def __repr__(self) -> str:
        shapes = ", ".join(f"{name}={list(t.shape)}" for name, t in _present(self))
        return f"GraphBatch({shapes})"


def _present(batch: GraphBatch) -> list[tuple[str, Tensor]]:
    pairs = ((field.name, getattr(batch, field.name)) for field in fields(batch))
    return [(name, tensor) for name, tensor in pairs if tensor is not None]


def _flatten(batch: GraphBatch) -> tuple[list[Any], tuple[str, ...]]:
    present = _present(batch)
    return [tensor for _, tensor in present], tuple(name for name, _ in present)


def _flatten_with_keys(batch: GraphBatch) -> tuple[list[tuple[Any, Any]], tuple[str, ...]]:
    present = _present(batch)
    return [(pytree.GetAttrKey(name), tensor) for name, tensor in present], tuple(name for name, _ in present)


def _unflatten(leaves: Any, names: tuple[str, ...]) -> GraphBatch:
    return GraphBatch(**dict(zip(names, leaves, strict=True)))


pytree.register_pytree_node(
    GraphBatch,
    _flatten,
    _unflatten,
    serialized_type_name="graphnorm.data.GraphBatch",
    flatten_with_keys_fn=_flatten_with_keys,
)


def one_hot(
    tags: Tensor,
    cardinalities: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    real: Tensor | None = None,
) -> Tensor:
    """(..., K) categorical integers to (..., Σ cardinalities) with K ones in each row.

    real: (...) bool; rows where it is false get zeros.

    >>> one_hot(torch.tensor([[1, 0]], dtype=torch.uint8), (3, 2))
    tensor([[0., 1., 0., 1., 0.]])
    """
    if compiled.available(tags):
        return compiled.one_hot(tags, cardinalities, real).to(dtype)
    if real is None:
        ones = torch.ones_like(tags, dtype=dtype)
    else:
        ones, tags = real[..., None].to(dtype).expand(tags.shape), torch.where(real[..., None], tags, 0)
    starts = [0, *itertools.accumulate(cardinalities[:-1])]
    places = torch.stack([tag + start for tag, start in zip(tags.long().unbind(-1), starts, strict=True)], dim=-1)
    if tags.device.type == "cpu" and can_read_values(tags):
        _check_tags(tags, cardinalities)
    return ones.new_zeros(*places.shape[:-1], sum(cardinalities)).scatter(-1, places, ones)


def _check_tags(tags: Tensor, cardinalities: tuple[int, ...]) -> None:
    wrong = ((tags < 0) | (tags >= torch.tensor(cardinalities))).flatten(0, -2).any(-1)
    if bool(wrong.any()):
        row = int(wrong.int().argmax())
        values = tags.flatten(0, -2)[row].tolist()
        raise IndexError(f"row {row} has the values {values}, which are not all below {list(cardinalities)}")


class BatchTables(NamedTuple):
    """What assembly reads, as arrays of one kind: all numpy (zero-copy views), or all tensors of one device.

    ``node_start``, ``node_count``, ``edge_start``, ``edge_count`` and ``labels`` are (G,): where a graph's
    nodes and edges begin and how many there are. ``rowptr`` is (N+1,), ``col`` (E,) with columns local to
    their graph. ``node`` and ``edge`` hold the feature arrays by the name they have in :class:`GraphBatch`.
    """

    node_start: Any
    node_count: Any
    edge_start: Any
    edge_count: Any
    labels: Any
    rowptr: Any
    col: Any
    node: dict[str, Any]
    edge: dict[str, Any]


class _Arrays(NamedTuple):
    """The few operations that numpy and torch spell differently."""

    take: Callable[[Any, Any], Any]
    """take(a, i): rows i of a."""
    spreader: Callable[[Any, int], Callable[[Any], Any]]
    """spreader(counts, total)(values): value k repeated counts[k] times; the counts sum to total."""
    arange: Callable[[int], Any]
    join: Callable[[Any, Any], Any]
    """join(a, b): concatenation along the last axis."""


def _torch_spreader(counts: Tensor, total: int) -> Callable[[Tensor], Tensor]:
    owner = torch.repeat_interleave(counts, output_size=total)
    return lambda values: values.index_select(0, owner)


_NUMPY = _Arrays(
    take=lambda a, i: a.take(i, axis=0),
    spreader=lambda counts, total: lambda values: np.repeat(values, counts),
    arange=np.arange,
    join=lambda a, b: np.concatenate((a, b), axis=-1),
)


def _torch(device: torch.device) -> _Arrays:
    return _Arrays(
        take=lambda a, i: a.index_select(0, i),
        spreader=_torch_spreader,
        arange=lambda n: torch.arange(n, device=device),
        join=lambda a, b: torch.cat((a, b), dim=-1),
    )


class _Blocks(NamedTuple):
    """M rows of B blocks laid end to end; with the padding, where there is any, K blocks."""

    ptr: Any
    """(M, B+1): where each block begins, and where the last one ends."""
    first: Any
    """(M·K,): where each block begins."""
    count: Any
    """(M·K,): how many places it has."""
    shift: Any
    """(M·K,): what to add to a place of a block to get its place in the packed array."""


class _Places(NamedTuple):
    """Every place of the blocks."""

    spread: Callable[[Any], Any]
    """From one value for each block, (M·K,), to one for each place, (M·bound,)."""
    source: Any
    """(M·bound,): the packed row of each place; 0 for padding."""
    real: Any
    """(M·bound,) bool: not padding; None where there is none."""


def _lay_out(xp: _Arrays, start: Any, count: Any, bound: int | None) -> _Blocks:
    """Lay blocks out: start and count are (M, B), of the packed arrays.

    bound: what padding fills up to; None where nothing is padded.
    """
    if bound is not None:
        room = bound - count.sum(-1).reshape(len(count), 1)
        start, count = xp.join(start, room * 0), xp.join(count, room)
    end = count.cumsum(-1)
    first = end - count
    ptr = first if bound is not None else xp.join(first, end[:, -1:])
    return _Blocks(ptr, first.reshape(-1), count.reshape(-1), (start - first).reshape(-1))


def _fill(xp: _Arrays, blocks: _Blocks, bound: int, within: Any | None) -> _Places:
    """Fill the blocks' places, ``bound`` for each member.

    within: (M·K,) bool, which blocks are not padding; None where nothing is padded.
    """
    members = len(blocks.ptr)
    spread = xp.spreader(blocks.count, members * bound)
    source = spread(blocks.shift).reshape(members, bound)
    source += xp.arange(bound)
    source = source.reshape(-1)
    if within is None:
        return _Places(spread, source, None)
    real = spread(within)
    return _Places(spread, source * real, real)


def measure(ids: Tensor, counts: Tensor) -> tuple[int, int, int, int, bool]:
    """What ids ask for: (lowest, highest, nodes, edges, full).

    ids: (..., B) int64 on the host. The lowest and highest are -1 where there are none.
    counts: (2, G+1) int64 on the host, nodes and edges of each graph; the last place, which is also -1, holds 0.

    Nodes and edges are those of the largest batch, each for itself; 0 where ids leave ``-1 … G-1``. ``full``:
    every batch has exactly as many, and there is no empty place.
    """
    array = ids.numpy()
    low, high = (int(array.min()), int(array.max())) if array.size else (-1, -1)
    if low < -1 or high >= counts.shape[1] - 1:
        return low, high, 0, 0, False
    totals = counts.numpy().take(array, axis=1).sum(-1).reshape(2, -1)
    nodes, edges = totals.max(1).tolist()
    return low, high, nodes, edges, low >= 0 and bool((totals == [[nodes], [edges]]).all())


def assemble(tables: BatchTables, ids: Any, bounds: Bounds, padded: bool, edges: bool = True) -> dict[str, Any]:
    """The arrays of a :class:`GraphBatch` by name, from (M, B) ids; each has a leading M.

    ``padded`` says whether there may be ids of -1, none at all, or room left within the bounds; without it
    the masking is left out. Without ``edges`` the arrays that have a place for every edge are empty. Arrays
    are numpy or torch as ``tables`` are, and the same lines serve both: on the CPU, where a batch is a few
    thousand rows, numpy's calls cost less than half of torch's.
    """
    xp = _NUMPY if isinstance(ids, np.ndarray) else _torch(ids.device)
    members, slots = ids.shape
    blocks = slots + 1 if padded else slots
    number = xp.arange(members * blocks) % blocks
    wanted = ids.reshape(-1)
    present = within = None
    if padded:
        present, within = wanted >= 0, number < slots
        wanted = wanted * present

    def lay_out(start: Any, count: Any, bound: int) -> _Blocks:
        start, count = xp.take(start, wanted), xp.take(count, wanted)
        count = count * present if padded else count
        return _lay_out(xp, start.reshape(ids.shape), count.reshape(ids.shape), bound if padded else None)

    def gather(array: Any, at: _Places) -> Any:
        taken = xp.take(array, at.source)
        taken = taken * at.real.reshape(-1, *(1,) * (taken.ndim - 1)) if padded else taken
        return taken.reshape(members, len(taken) // members, *taken.shape[1:])

    node_blocks = lay_out(tables.node_start, tables.node_count, bounds.max_nodes)
    edge_blocks = lay_out(tables.edge_start, tables.edge_count, bounds.max_edges)
    nodes = _fill(xp, node_blocks, bounds.max_nodes, within)
    labels = xp.take(tables.labels, wanted)
    # A padded row has source 0, where rowptr is 0, and the padding's shift is minus its first edge: so its
    # rowptr comes out as the number of real edges, and the row as empty.
    rowptr = xp.take(tables.rowptr, nodes.source)
    rowptr -= nodes.spread(edge_blocks.shift)
    if edges:
        places = _fill(xp, edge_blocks, bounds.max_edges, within)
        col = places.spread(node_blocks.first)
        col += xp.take(tables.col, places.source)
        col = (col * places.real if padded else col).reshape(members, bounds.max_edges)
        of_edges = {name: gather(array, places) for name, array in tables.edge.items()}
    else:
        col = rowptr[:0].reshape(members, 0)
        of_edges = {name: array[:0].reshape(members, 0, *array.shape[1:]) for name, array in tables.edge.items()}
    return {
        "ids": ids + 0,  # a copy: the caller may go on to write into his
        "labels": ((labels + 1) * present - 1 if padded else labels).reshape(members, slots),
        "ptr": node_blocks.ptr,
        "batch": nodes.spread(number).reshape(members, bounds.max_nodes),
        "rowptr": xp.join(rowptr.reshape(members, bounds.max_nodes), edge_blocks.ptr[:, -1:]),
        "col": col,
        **{name: gather(array, nodes) for name, array in tables.node.items()},
        **of_edges,
    }
