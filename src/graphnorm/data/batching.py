"""From graph ids to one batch: vectorised, on the arrays' own device, with static shapes on request.

A batch of B graphs is B contiguous blocks of rows. Let nₖ be the size of the k-th graph and sₖ the index of its first
node in the packed arrays. Row r of graph k comes from packed row sₖ + (r − ptrₖ), where ptr is the exclusive cumulative
sum of n. So one ``repeat_interleave`` (which graph owns row r) and one gather per array make the batch. The same holds
for edges. There is no loop over graphs.

**Static shapes.** CUDA graphs and ``torch.compile`` want every batch to have the same number of rows. Padding is one
more graph, number B, that takes the rows that are left. Padded rows come last, belong to no graph, have no edges and
hold zeros. The sizes of all blocks add up to the static bound, so nothing has to be read back from the device.

**Stacks.** ids of shape (M, B) make M independent batches at once. Each has pointers and columns of its own that start
at 0, and every array gains a leading M. ``torch.func.vmap`` takes this form with ``in_dims=0``.

**Two implementations.** The torch functions below define the result and run everywhere. On the CPU the C library, where
it was built, does the same in one call (``csrc/assemble.h``), six to seven times as fast for 128 graphs.
"""

from __future__ import annotations

import itertools
from dataclasses import dataclass, fields, replace
from functools import cached_property, lru_cache
from typing import NamedTuple, NoReturn, cast

import torch
from torch import Tensor
from torch.utils import _pytree as pytree
from torch.utils._python_dispatch import _get_current_dispatch_mode

from graphnorm.backends import chosen_backend, library
from graphnorm.errors import DataError
from graphnorm.tracing import can_read_values

__all__ = ["BatchTables", "Bounds", "GraphBatch", "assemble", "measure", "one_hot"]

_CPU = torch.device("cpu")


class Bounds(NamedTuple):
    """Static sizes of a batch: how many rows and how many directed edges its arrays have."""

    max_nodes: int
    max_edges: int


@dataclass(frozen=True, eq=False, repr=False)
class GraphBatch:
    """B graphs as one graph with R rows (nodes) and E directed edges. A stack of M batches has a leading M everywhere.

    With static shapes (see :class:`Bounds`), the rows from ``ptr[-1]`` on and the edges from ``rowptr[-1]`` on are
    padding: they hold zeros and belong to no graph. A graph id of -1 is an empty graph with label -1.

    The class is a pytree: ``torch.func.vmap``, ``torch.utils._pytree.tree_map`` and ``torch.export`` see its tensors.
    An optional array that is absent is not a leaf.
    """

    ids: Tensor
    """(B,) int64: ids of the graphs in the dataset; -1 for an empty place."""
    labels: Tensor
    """(B,) int64: classes; -1 for an empty place (``ignore_index`` of a cross-entropy)."""
    ptr: Tensor
    """(B+1,) int64: graph k has the rows ``ptr[k]:ptr[k+1]``; ``ptr[-1] <= R``."""
    batch: Tensor
    """(R,) int64: the graph of each row; B on padded rows."""
    rowptr: Tensor
    """(R+1,) int64: row r has the edges ``rowptr[r]:rowptr[r+1]``."""
    col: Tensor
    """(E,) int64: the neighbour at the other end of each edge, as a row of this batch. (0,) if the batch was made
    without edges."""
    tags: Tensor | None = None
    """(R, K) small integers: K categorical node features."""
    x: Tensor | None = None
    """(R, F) float32: continuous node features."""
    edge_tags: Tensor | None = None
    """(E, L) small integers: L categorical edge features."""
    edge_x: Tensor | None = None
    """(E, D) float32: continuous edge features."""
    targets: Tensor | None = None
    """(B, T) float32: targets of each graph; NaN where one is missing, and for an empty place."""

    @property
    def num_graphs(self) -> int:
        """B, including empty places."""
        return self.ids.shape[-1]

    @property
    def num_rows(self) -> int:
        """R: the nodes, and with static shapes the padded rows."""
        return self.batch.shape[-1]

    @property
    def sizes(self) -> Tensor:
        """(B,): number of nodes of each graph."""
        return self.ptr.diff()

    @property
    def degree(self) -> Tensor:
        """(R,): number of edges of each row; 0 on padded rows."""
        return self.rowptr.diff()

    @property
    def real(self) -> Tensor:
        """(R,) bool: true for nodes, false for padding."""
        return self.batch < self.num_graphs

    @property
    def row(self) -> Tensor:
        """(E,): the row that each edge belongs to, the counterpart of ``col``; R on padded edges."""
        edges = torch.arange(self.col.shape[-1], device=self.col.device).expand(self.col.shape).contiguous()
        # The last row that begins at or before the edge: an empty row begins where the next one does.
        return torch.searchsorted(self.rowptr.contiguous(), edges, right=True) - 1

    @property
    def edge_index(self) -> Tensor:
        """(2, E): PyTorch Geometric's (source, target). Messages flow from ``col`` to ``row``.

        Only valid without padding: a padded edge has no target.
        """
        return torch.stack([self.col, self.row], dim=-2)

    def one_hot(self, cardinalities: tuple[int, ...], dtype: torch.dtype = torch.float32) -> Tensor:
        """(R, Σ cardinalities): the one-hot node tags, side by side; zero on padded rows."""
        if self.tags is None:
            raise ValueError("this batch has no categorical node features; use its x")
        return one_hot(self.tags, cardinalities, dtype, self.real)

    def categories(self) -> Tensor:
        """(R,) int64: the only categorical feature of each node; -1 on padded rows."""
        if self.tags is None or self.tags.shape[-1] != 1:
            raise ValueError("the nodes of this batch do not have exactly one categorical feature")
        return torch.where(self.real, self.tags[..., 0].long(), -1)

    def without_padding(self) -> GraphBatch:
        """The batch without padded rows and edges, and without the empty places at its end. Not for a stack."""
        graphs = int((self.ids >= 0).sum())
        rows = int(self.ptr[graphs])
        ends = {"ids": graphs, "labels": graphs, "targets": graphs, "ptr": graphs + 1}
        ends |= {"rowptr": rows + 1, "batch": rows, "tags": rows, "x": rows}
        ends |= dict.fromkeys(("col", "edge_tags", "edge_x"), int(self.rowptr[rows]))
        arrays = {field.name: getattr(self, field.name) for field in fields(self)}
        return replace(self, **{name: array[: ends[name]] for name, array in arrays.items() if array is not None})

    def to(self, device: torch.device | str, non_blocking: bool = False) -> GraphBatch:
        return cast(GraphBatch, pytree.tree_map(lambda t: t.to(device, non_blocking=non_blocking), self))

    def __repr__(self) -> str:
        arrays = ((field.name, getattr(self, field.name)) for field in fields(self))
        return f"GraphBatch({', '.join(f'{name}={list(t.shape)}' for name, t in arrays if t is not None)})"


torch.export.register_dataclass(GraphBatch, serialized_type_name="graphnorm.data.GraphBatch")


class BatchTables(NamedTuple):
    """The packed arrays that batches are made from, all on one device.

    On the CPU they are contiguous, of the types given here, and every graph lies within its arrays: the C library
    checks nothing.
    """

    node_start: Tensor
    """(G,) int64: the first node of each graph."""
    node_count: Tensor
    """(G,) int64."""
    edge_start: Tensor
    """(G,) int64: the first edge of each graph."""
    edge_count: Tensor
    """(G,) int64."""
    labels: Tensor
    """(G,) int64."""
    rowptr: Tensor
    """(N+1,) int64."""
    col: Tensor
    """(E,) int32, counted from the first node of the graph."""
    node_features: dict[str, Tensor]
    """``tags`` and ``x`` where present, N rows each."""
    edge_features: dict[str, Tensor]
    """``edge_tags`` and ``edge_x`` where present, E rows each."""
    targets: Tensor | None = None
    """(G+1, T) float32. The last row, which is also that of id -1, is NaN."""

    def checked(self) -> BatchTables:
        """The same tables as :func:`assemble` reads them on the CPU."""
        start, count, edge_start, edge_count, labels, rowptr = (tensor.long().contiguous() for tensor in self[:6])
        col = self.col.int().contiguous()
        node_features = {name: tensor.contiguous() for name, tensor in self.node_features.items()}
        edge_features = {name: tensor.contiguous() for name, tensor in self.edge_features.items()}
        num_nodes = min([len(rowptr) - 1, *map(len, node_features.values())])
        num_edges = min([len(col), *map(len, edge_features.values())])
        if not (
            len(start) == len(count) == len(edge_start) == len(edge_count) == len(labels)
            and (self.targets is None or len(self.targets) == len(labels) + 1)
            and bool(((start >= 0) & (count >= 0) & (start <= num_nodes - count)).all())
            and bool(((edge_start >= 0) & (edge_count >= 0) & (edge_start <= num_edges - edge_count)).all())
        ):
            raise DataError("the arrays of the graphs do not fit together", remedy="create the dataset again")
        return BatchTables(
            start, count, edge_start, edge_count, labels, rowptr, col, node_features, edge_features, self.targets
        )


def uses_c(tensor: Tensor) -> bool:
    """Whether the C library was built and may read this tensor's memory.

    It may not if the tensor has no values yet: inside ``torch.compile``, ``torch.func`` transforms and modes such as
    ``FakeTensorMode``.
    """
    return (
        not torch.compiler.is_compiling()
        and library is not None
        and type(tensor) is Tensor
        and tensor.is_cpu
        and chosen_backend() != "reference"
        and not torch._C._are_functorch_transforms_active()
        and _get_current_dispatch_mode() is None
    )


def measure(ids: Tensor, counts: Tensor) -> tuple[int, int, int, int, bool]:
    """Range and size of planned batches: (lowest id, highest id, nodes, edges, full).

    ids: (..., B) int64 on the CPU, contiguous. Lowest and highest are -1 where there are none.
    counts: (2, G+1) int64 on the CPU, the nodes and edges of each graph; the last column, also -1, holds 0.

    ``nodes`` and ``edges`` are the largest of any batch, and 0 if an id is outside of -1 … G-1. ``full`` says that all
    batches have exactly these sizes and no empty place.
    """
    if uses_c(ids):
        assert library is not None
        members, num_graphs = ids.shape[:-1].numel(), counts.shape[1] - 1
        *sizes, full = library.measure(ids.data_ptr(), members, ids.shape[-1], counts.data_ptr(), num_graphs)
        return (*sizes, bool(full))
    low, high = (int(end) for end in ids.aminmax()) if ids.numel() else (-1, -1)
    if low < -1 or high >= counts.shape[1] - 1:
        return low, high, 0, 0, False
    totals = counts[:, ids].sum(-1).reshape(2, -1)
    largest = totals.amax(1, keepdim=True)
    return low, high, int(largest[0]), int(largest[1]), low >= 0 and bool((totals == largest).all())


def assemble(tables: BatchTables, ids: Tensor, bounds: Bounds, *, padded: bool, edges: bool = True) -> GraphBatch:
    """Make the batch of these graphs.

    ids: (B,) or (M, B) int64, contiguous, on the device of the tables. On the CPU it becomes part of the batch.
    bounds: no smaller than what :func:`measure` finds.
    padded: whether there may be ids of -1, or room left within the bounds. Without it the masking is left out.
    edges: without it, arrays with an entry for each edge may be empty.
    """
    if uses_c(ids):
        return _assemble_in_c(tables, ids, bounds)
    if ids.ndim == 2:
        return GraphBatch(**_assemble_in_torch(tables, ids, bounds, padded, edges))
    arrays = _assemble_in_torch(tables, ids[None], bounds, padded, edges)
    return GraphBatch(**{name: array[0] for name, array in arrays.items()})


class _Blocks:
    """Packed rows of graphs laid end to end, for M batches; with padding, one more block takes the room that is left.

    start, count: (M, B): the first packed row of each graph and the number of its rows.
    bound: the number of rows of each batch.
    """

    def __init__(self, start: Tensor, count: Tensor, bound: int, padded: bool) -> None:
        if padded:
            room = bound - count.sum(-1, keepdim=True)
            start, count = torch.cat((start, room * 0), dim=-1), torch.cat((count, room), dim=-1)
        end = count.cumsum(-1)
        self.first = end - count  # (M, K): the first row of each block in its batch
        self.ptr = self.first if padded else torch.cat((self.first, end[:, -1:]), dim=-1)  # (M, B+1)
        self.shift = start - self.first  # (M, K): from a row of the batch to the packed row
        self.padded, self._count, self._bound = padded, count, bound

    @cached_property
    def _block(self) -> Tensor:
        """(M · bound,): the block of each row, counted through all batches."""
        return torch.repeat_interleave(self._count.flatten(), output_size=len(self._count) * self._bound)

    def spread(self, values: Tensor) -> Tensor:
        """From (M, K), one value for each block, to (M, bound), one for each row."""
        return values.flatten().index_select(0, self._block).reshape(len(values), self._bound)

    @cached_property
    def number(self) -> Tensor:
        """(M, bound): the block of each row within its batch; B on padded rows."""
        members, blocks = self._count.shape
        return self.spread(torch.arange(blocks, device=self._count.device).expand(members, blocks))

    @cached_property
    def real(self) -> Tensor:
        """(M, bound) bool: not padding."""
        return self.number < self.ptr.shape[1] - 1

    @cached_property
    def source(self) -> Tensor:
        """(M, bound): the packed row of each row; 0 for padding."""
        source = self.spread(self.shift) + torch.arange(self._bound, device=self.shift.device)
        return source * self.real if self.padded else source

    def take(self, packed: Tensor) -> Tensor:
        """(M, bound, ...): the rows of a packed array; its first row for padding."""
        return packed.index_select(0, self.source.flatten()).reshape(*self.source.shape, *packed.shape[1:])

    def clear_padding(self, rows: Tensor) -> Tensor:
        """The same (M, bound, ...) with zeros for padding."""
        return rows * self.real.reshape(*self.real.shape, *(1,) * (rows.ndim - 2)) if self.padded else rows


def _assemble_in_torch(
    tables: BatchTables, ids: Tensor, bounds: Bounds, padded: bool, edges: bool
) -> dict[str, Tensor]:
    """The arrays of a batch by name, from (M, B) ids; each has a leading M."""
    present = ids >= 0
    wanted = ids * present if padded else ids

    def look_up(per_graph: Tensor) -> Tensor:
        return per_graph.index_select(0, wanted.flatten()).reshape(ids.shape)

    def count(per_graph: Tensor) -> Tensor:
        return look_up(per_graph) * present if padded else look_up(per_graph)

    of_nodes = _Blocks(look_up(tables.node_start), count(tables.node_count), bounds.max_nodes, padded)
    of_edges = _Blocks(look_up(tables.edge_start), count(tables.edge_count), bounds.max_edges, padded)
    # A padded row has source 0, where the packed rowptr is 0, and the shift of padding is minus its first edge. So the
    # row starts at the number of real edges: it is empty.
    rowptr = of_nodes.take(tables.rowptr) - of_nodes.spread(of_edges.shift)
    if edges:
        col = of_edges.clear_padding(of_edges.take(tables.col) + of_edges.spread(of_nodes.first))
        edge_features = {
            name: of_edges.clear_padding(of_edges.take(packed)) for name, packed in tables.edge_features.items()
        }
    else:
        col = rowptr[:, :0]
        empty = ((name, packed[:0]) for name, packed in tables.edge_features.items())
        edge_features = {name: none.expand(len(ids), *none.shape) for name, none in empty}
    labels = look_up(tables.labels)
    return {
        "ids": ids.clone(),  # the caller may write into its own
        "labels": torch.where(present, labels, -1) if padded else labels,
        "ptr": of_nodes.ptr,
        "batch": of_nodes.number,
        "rowptr": torch.cat((rowptr, of_edges.ptr[:, -1:]), dim=-1),
        "col": col,
        **{name: of_nodes.clear_padding(of_nodes.take(packed)) for name, packed in tables.node_features.items()},
        **edge_features,
        **({} if tables.targets is None else {"targets": tables.targets[ids]}),
    }


def _assemble_in_c(tables: BatchTables, ids: Tensor, bounds: Bounds) -> GraphBatch:
    assert library is not None
    rows, edges = bounds
    lead, slots = ids.shape[:-1], ids.shape[-1]

    def empty(length: int) -> Tensor:
        return torch.empty((*lead, length), dtype=torch.int64, device=_CPU)

    labels, ptr, batch, rowptr, col = empty(slots), empty(slots + 1), empty(rows), empty(rows + 1), empty(edges)
    features: dict[str, Tensor] = {}
    arguments: list[int] = []  # two node features and two edge features: source, target, bytes a row; zeros if absent
    for packed, length in ((tables.node_features, rows), (tables.edge_features, edges)):
        for name, source in packed.items():
            row = source.shape[1:]
            target = features[name] = torch.empty((*lead, length, *row), dtype=source.dtype, device=_CPU)
            arguments += source.data_ptr(), target.data_ptr(), row.numel() * source.itemsize
        arguments += (0, 0, 0) * (2 - len(packed))
    library.assemble(
        torch.get_num_threads(),
        lead.numel(),
        slots,
        rows,
        edges,
        ids.data_ptr(),
        *map(Tensor.data_ptr, tables[:7]),
        *map(Tensor.data_ptr, (labels, ptr, batch, rowptr, col)),
        *arguments,
    )
    targets = None if tables.targets is None else tables.targets[ids]
    return GraphBatch(ids, labels, ptr, batch, rowptr, col, **features, targets=targets)


def one_hot(
    tags: Tensor,
    cardinalities: tuple[int, ...],
    dtype: torch.dtype = torch.float32,
    real: Tensor | None = None,
) -> Tensor:
    """(..., K) categories to (..., Σ cardinalities) with K ones in each row.

    real: (...) bool; rows where it is false get zeros.

    >>> one_hot(torch.tensor([[1, 0]], dtype=torch.uint8), (3, 2))
    tensor([[0., 1., 0., 1., 0.]])
    """
    if tags.shape[-1] != len(cardinalities):
        raise ValueError(f"{tags.shape[-1]} columns of tags need as many cardinalities, not {len(cardinalities)}")
    if uses_c(tags):
        return _one_hot_in_c(tags, cardinalities, real).to(dtype)
    if real is None:
        ones = torch.ones_like(tags, dtype=dtype)
    else:
        ones, tags = real[..., None].to(dtype).expand(tags.shape), torch.where(real[..., None], tags, 0)
    if tags.device.type == "cpu" and can_read_values(tags):
        wrong = ((tags < 0) | (tags >= torch.tensor(cardinalities))).flatten(0, -2).any(-1)
        if bool(wrong.any()):
            _refuse_tags(tags, cardinalities, int(wrong.int().argmax()))
    starts = [0, *itertools.accumulate(cardinalities[:-1])]
    places = torch.stack([tag + start for tag, start in zip(tags.long().unbind(-1), starts, strict=True)], dim=-1)
    return ones.new_zeros(*places.shape[:-1], sum(cardinalities)).scatter(-1, places, ones)


def _one_hot_in_c(tags: Tensor, cardinalities: tuple[int, ...], real: Tensor | None) -> Tensor:
    assert library is not None
    sizes = _as_array(tuple(cardinalities))
    known = tags.dtype in (torch.uint8, torch.int16, torch.int32, torch.int64)
    tags = (tags if known else tags.long()).contiguous()
    real = None if real is None else real.expand(tags.shape[:-1]).contiguous()
    out = torch.empty((*tags.shape[:-1], sum(cardinalities)), dtype=torch.float32, device=_CPU)
    wrong = library.one_hot(
        torch.get_num_threads(),
        tags.data_ptr(),
        tags.itemsize,
        tags.shape[:-1].numel(),
        tags.shape[-1],
        0 if real is None else real.data_ptr(),
        sizes.data_ptr(),
        out.shape[-1],
        out.data_ptr(),
    )
    if wrong >= 0:
        _refuse_tags(tags, cardinalities, wrong)
    return out


@lru_cache
def _as_array(cardinalities: tuple[int, ...]) -> Tensor:
    if min(cardinalities, default=0) < 0:
        raise ValueError(f"cardinalities count values, so they cannot be {cardinalities}")
    return torch.tensor(cardinalities, dtype=torch.int64, device=_CPU)


def _refuse_tags(tags: Tensor, cardinalities: tuple[int, ...], row: int) -> NoReturn:
    found = tags.flatten(0, -2)[row].tolist()
    raise IndexError(f"row {row} has the tags {found}, which must be below {list(cardinalities)}")
