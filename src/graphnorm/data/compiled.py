"""Batches on the CPU by the C library (``csrc/assemble.h``): hands over addresses and sizes.

:mod:`graphnorm.data.batching` holds the plain twins, which serve wherever :func:`available` says no.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING

import torch
from torch import Tensor
from torch.utils._python_dispatch import _get_current_dispatch_mode

from graphnorm.backends import chosen_backend, library
from graphnorm.errors import DataError

if TYPE_CHECKING:
    from graphnorm.data.batching import BatchTables, Bounds

__all__ = ["assemble", "available", "measure", "one_hot", "prepare"]

_CPU = torch.device("cpu")
_TAG_TYPES = (torch.uint8, torch.int16, torch.int32, torch.int64)


def available(tensor: Tensor) -> bool:
    """Whether the library was built and may touch this tensor's memory.

    It may not where a tensor only stands for values: inside ``torch.compile``, ``torch.func`` transforms and
    modes such as ``FakeTensorMode``.
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
    """The C twin of :func:`graphnorm.data.batching.measure`, for contiguous int64 ids."""
    assert library is not None
    slots, graphs = ids.shape[-1], counts.shape[1] - 1
    members = ids.shape[:-1].numel()
    low, high, nodes, edges, full = library.measure(ids.data_ptr(), members, slots, counts.data_ptr(), graphs)
    return low, high, nodes, edges, bool(full)


def prepare(tables: BatchTables) -> BatchTables:
    """The tables as the library reads them: contiguous, of the types it knows, every graph within the arrays.

    The library reads whatever the tables point at, so this is where it is seen that they point at their own.
    """
    starts = (tables.node_start, tables.node_count, tables.edge_start, tables.edge_count, tables.labels)
    start, count, edge_start, edge_count, labels = (tensor.long().contiguous() for tensor in starts)
    node = {name: tensor.contiguous() for name, tensor in tables.node.items()}
    edge = {name: tensor.contiguous() for name, tensor in tables.edge.items()}
    nodes = min([len(tables.rowptr) - 1, *map(len, node.values())])
    edges = min([len(tables.col), *map(len, edge.values())])
    if not (
        len(start) == len(count) == len(edge_start) == len(edge_count) == len(labels)
        and _lie_within(start, count, nodes)
        and _lie_within(edge_start, edge_count, edges)
    ):
        raise DataError("the arrays of the graphs do not fit together", remedy="make the dataset anew")
    rowptr, col = tables.rowptr.long().contiguous(), tables.col.int().contiguous()
    return tables._replace(
        node_start=start,
        node_count=count,
        edge_start=edge_start,
        edge_count=edge_count,
        labels=labels,
        rowptr=rowptr,
        col=col,
        node=node,
        edge=edge,
    )


def _lie_within(start: Tensor, count: Tensor, total: int) -> bool:
    return bool(((start >= 0) & (count >= 0) & (start <= total - count)).all())


def assemble(tables: BatchTables, ids: Tensor, bounds: Bounds) -> dict[str, Tensor]:
    """The C twin of :func:`graphnorm.data.batching.assemble`.

    tables: from :func:`prepare`.
    ids: (B,) or (M, B) int64, contiguous; it becomes part of the batch. Arrays have a leading M where ids has.
    bounds: no smaller than :func:`measure` found the ids to need.
    """
    assert library is not None
    rows, edges = bounds
    lead, slots = ids.shape[:-1], ids.shape[-1]

    def empty(length: int) -> Tensor:
        return torch.empty((*lead, length), dtype=torch.int64, device=_CPU)

    labels, ptr, batch, rowptr, col = empty(slots), empty(slots + 1), empty(rows), empty(rows + 1), empty(edges)
    arrays = {"ids": ids, "labels": labels, "ptr": ptr, "batch": batch, "rowptr": rowptr, "col": col}
    features: list[int] = []
    for packed, length in ((tables.node, rows), (tables.edge, edges)):
        for name, source in packed.items():
            row = source.shape[1:]
            out = arrays[name] = torch.empty((*lead, length, *row), dtype=source.dtype, device=_CPU)
            features += source.data_ptr(), out.data_ptr(), row.numel() * source.itemsize
        features += (0, 0, 0) * (2 - len(packed))
    library.assemble(
        torch.get_num_threads(),
        lead.numel(),
        slots,
        rows,
        edges,
        ids.data_ptr(),
        tables.node_start.data_ptr(),
        tables.node_count.data_ptr(),
        tables.edge_start.data_ptr(),
        tables.edge_count.data_ptr(),
        tables.labels.data_ptr(),
        tables.rowptr.data_ptr(),
        tables.col.data_ptr(),
        labels.data_ptr(),
        ptr.data_ptr(),
        batch.data_ptr(),
        rowptr.data_ptr(),
        col.data_ptr(),
        *features,
    )
    return arrays


def one_hot(tags: Tensor, cardinalities: tuple[int, ...], real: Tensor | None) -> Tensor:
    """The C twin of :func:`graphnorm.data.batching.one_hot`, in float32."""
    assert library is not None
    tags = (tags if tags.dtype in _TAG_TYPES else tags.long()).contiguous()
    real = None if real is None else real.expand(tags.shape[:-1]).contiguous()
    sizes = _cardinalities(tuple(cardinalities))
    rows, columns, width = tags.shape[:-1].numel(), tags.shape[-1], sum(cardinalities)
    if columns != len(cardinalities):
        raise ValueError(f"{columns} columns of tags need as many cardinalities, not {len(cardinalities)}")
    out = torch.empty((*tags.shape[:-1], width), dtype=torch.float32, device=_CPU)
    wrong = library.one_hot(
        torch.get_num_threads(),
        tags.data_ptr(),
        tags.itemsize,
        rows,
        columns,
        0 if real is None else real.data_ptr(),
        sizes.data_ptr(),
        width,
        out.data_ptr(),
    )
    if wrong >= 0:
        found = tags.reshape(rows, columns)[wrong].tolist()
        raise IndexError(f"row {wrong} has the tags {found}, which must be below {list(cardinalities)}")
    return out


@lru_cache
def _cardinalities(cardinalities: tuple[int, ...]) -> Tensor:
    """As an array that the library can read."""
    if min(cardinalities, default=0) < 0:
        raise ValueError(f"cardinalities are numbers of values, not {cardinalities}")
    return torch.tensor(cardinalities, dtype=torch.int64, device=_CPU)
