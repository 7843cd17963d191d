"""Segments: which rows of a matrix of node (or edge) features form one graph."""

from __future__ import annotations

import operator
from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor
from torch.utils import _pytree as pytree

from graphnorm.backends import chosen_backend, debugging, library, triton_kernels
from graphnorm.tracing import (
    can_read_values,
    is_abstract,
    is_exporting,
    is_inference_tensor,
    may_cache,
    outside_inference_mode,
    register_operator,
)

__all__ = ["Segments", "check_count", "check_dense", "check_ids", "read_quickly"]

_MOST_GRAPHS = 1 << 20  # that a few rows may form; each costs memory in every layer
_INTEGERS = (torch.int64, torch.int32, torch.int16, torch.int8, torch.uint8)


class Segments:
    """The graphs of a batch as runs of rows, built once and passed to every layer.

    Give exactly one of

    * ``batch``: the graph id of every row, shape ``(N,)``, as PyTorch Geometric has it. Ids need not be sorted.
    * ``ptr``: boundaries, shape ``(G + 1,)``: graph *g* owns rows ``ptr[g] … ptr[g+1] - 1``.
    * ``sizes``: rows per graph, shape ``(G,)``, a tensor or a list of ints, as DGL's ``batch_num_nodes()`` returns.

    Args:
        batch_size: the number of graphs G, with ``batch``. On a GPU it saves a device synchronisation.
        num_rows: the number of rows N, with ``ptr`` or ``sizes``. It may exceed ``ptr[-1]``: the rows left over are
            padding. They belong to no graph, and layers give them zeros.
        assume_sorted: with ``batch`` on a GPU, take the ids as sorted, which saves launches and ``order``. Wrong on
            unsorted ids; checked by ``graphnorm.debug()``.
        max_size: an upper bound on the rows of one graph, where it is known beforehand. On a CPU it is computed; on a
            GPU that would synchronise.

    Attributes:
        ptr: boundaries in ``order``, shape ``(G + 1,)``, int64.
        order: the row at each position, shape ``(N,)``, or ``None`` when rows are already in the order of graphs. It
            rises within each graph.
        num_rows: N, or ``None`` where only the device knows it.
        max_size: an upper bound on the rows of one graph, or ``None`` where only the device knows one.
        may_pad: whether some rows may belong to no graph. False only where that is certain.
        plans: what operations have worked out for these segments, kept for later calls.

    >>> Segments(sizes=[3, 2])
    Segments(2 graphs, 5 rows)
    >>> Segments(batch=torch.tensor([1, 0, 1])).order
    tensor([1, 0, 2])
    """

    __slots__ = ("_ids", "_merged", "max_size", "may_pad", "num_rows", "order", "plans", "ptr")

    ptr: Tensor
    order: Tensor | None
    num_rows: int | None
    max_size: int | None
    may_pad: bool
    plans: dict[Any, Any]
    _ids: Tensor | None
    _merged: Segments | None

    def __init__(
        self,
        *,
        batch: Tensor | None = None,
        ptr: Tensor | None = None,
        sizes: Tensor | Iterable[int] | None = None,
        batch_size: int | None = None,
        num_rows: int | None = None,
        assume_sorted: bool = False,
        max_size: int | None = None,
    ) -> None:
        given = [name for name, value in (("batch", batch), ("ptr", ptr), ("sizes", sizes)) if value is not None]
        if len(given) != 1:
            raise ValueError(f"Segments takes exactly one of batch, ptr and sizes; got {' and '.join(given) or 'none'}")
        if not torch.compiler.is_compiling():
            num_rows = None if num_rows is None else check_count("num_rows", "rows", num_rows)
            max_size = None if max_size is None else check_count("max_size", "rows", max_size)
        self.order, self.num_rows, self.max_size, self._ids = None, num_rows, max_size, None
        self.may_pad, self._merged, self.plans = True, None, {}
        if batch is not None:
            outside_inference_mode(self._read_batch, batch, batch_size, assume_sorted)
        elif ptr is not None:
            outside_inference_mode(self._read_ptr, _vector_of_integers("ptr", ptr))
        else:
            outside_inference_mode(self._read_sizes, sizes)
        if batch is None and batch_size not in (None, self.num_graphs):
            found = f"{given[0]} describes {self.num_graphs} graphs"
            raise ValueError(f"batch_size is {batch_size!r}, but {found}; leave it out")

    @classmethod
    def trusted(
        cls,
        ptr: Tensor,
        order: Tensor | None = None,
        num_rows: int | None = None,
        max_size: int | None = None,
        may_pad: bool = True,
        ids: Tensor | None = None,
    ) -> Segments:
        """Segments from arrays that are known to be right: nothing is checked."""
        self = object.__new__(cls)
        self.ptr, self.order, self.num_rows, self.max_size = ptr, order, num_rows, max_size
        self.may_pad, self._ids, self._merged, self.plans = may_pad, ids, None, {}
        return self

    @classmethod
    def temporary(cls, batch: Tensor, batch_size: int | None) -> Segments:
        """Segments of a batch vector for the current call. In inference mode they hold inference tensors."""
        self = cls.trusted(batch)
        self._read_batch(batch, batch_size, False)
        return self

    # ---- from batch, ptr or sizes ---------------------------------------------------------------------------

    def _read_batch(self, batch: Tensor, batch_size: int | None, assume_sorted: bool) -> None:
        batch = _vector_of_integers("batch", batch)
        plain = _without_gradients(batch)
        if plain is not batch and not is_abstract(plain):  # inside torch.func.grad values can be read
            with torch._C._DisableFuncTorch():
                self._read_batch(plain, batch_size, assume_sorted)
            return
        if self.num_rows not in (None, batch.shape[0]):
            raise ValueError(f"num_rows is {self.num_rows}, but batch has {batch.shape[0]} entries; leave it out")
        self.num_rows = batch.shape[0]
        if batch_size is not None and not torch.compiler.is_compiling():
            batch_size = check_count("batch_size", "graphs", batch_size)
            _check_number_of_graphs(f"batch_size is {batch_size}", batch_size, self.num_rows)
        if not can_read_values(batch):
            self._read_batch_unseen(batch, batch_size, assume_sorted)
        elif batch.device.type == "cpu":
            self._read_batch_on_cpu(batch, batch_size)
        else:
            if batch_size is None or debugging():
                batch_size = _check_on_device(batch, batch_size, assume_sorted)
                self.may_pad = False
            self._sort(batch, batch_size, assume_sorted)

    def _read_batch_unseen(self, batch: Tensor, batch_size: int | None, assume_sorted: bool) -> None:
        """Where its values cannot be read: while compiling and exporting, and inside vmap."""
        compiled = torch.compiler.is_compiling() and not is_exporting()
        if compiled and batch_size is not None and (batch.is_cpu or (batch.is_cuda and not assume_sorted)):
            self.ptr, self.order = torch.ops.graphnorm.read_batch(batch, batch_size)
            self._ids, self.may_pad = batch, not batch.is_cpu
            return
        if compiled and batch.is_cpu:
            _assert_not_negative(batch)
        self._sort(batch, _symbolic_num_graphs(batch) if batch_size is None else batch_size, assume_sorted)

    def _read_batch_on_cpu(self, batch: Tensor, batch_size: int | None) -> None:
        rows = batch.shape[0]
        if batch_size is None:
            batch_size = int(batch.max()) + 1 if rows else 0
            if batch_size < 0:
                raise ValueError(f"batch holds the negative id {batch_size - 1}; graph ids start at 0")
            _check_number_of_graphs(f"batch holds id {batch_size - 1}", batch_size, rows)
        self.ptr = torch.empty(batch_size + 1, dtype=torch.int64)
        self.max_size = _write_boundaries(batch, self.ptr)
        if self.max_size is None:
            low, high = map(int, batch.aminmax())
            _check_range(low, high, batch_size)
            sorted_ids, self.order = torch.sort(batch, stable=True)
            self.ptr = _boundaries(sorted_ids, batch_size)
            self.max_size = _largest(self.ptr)
        self._ids, self.may_pad = batch, False

    def _sort(self, batch: Tensor, batch_size: int, assume_sorted: bool) -> None:
        """Boundaries and order without reading the ids, which may be out of range."""
        self._ids = batch
        if assume_sorted:
            self.ptr = _boundaries(batch, batch_size)
        elif batch.is_cuda and can_read_values(batch):
            self.ptr, self.order = _read_on_gpu(batch, batch_size)
        else:
            self.ptr, self.order = _sort_ids(batch, batch_size)

    @classmethod
    def with_empty_graphs(cls, batch: Tensor) -> Segments:
        """While compiling: the graphs of a batch vector, numbered anew, and empty ones up to as many as there are rows.

        The compiler knows that number. Inductor cannot hand arrays whose size depends on values to the backward pass of
        two layers.
        """
        batch = _vector_of_integers("batch", batch)
        if batch.is_cpu:
            _assert_not_negative(batch)
        sorted_ids, order = torch.sort(batch, stable=True)
        rows = batch.shape[0]
        rank = torch.nn.functional.pad((sorted_ids.diff() != 0).long().cumsum(0), (1, 0))[:rows]
        ids = torch.empty_like(batch).scatter(0, order, rank)
        return cls.trusted(_boundaries(rank, rows), order, rows, None, False, ids)

    def _read_ptr(self, ptr: Tensor) -> None:
        if ptr.shape[0] == 0:
            raise ValueError("ptr is empty; with no graphs it is still [0], one entry more than there are graphs")
        self.ptr = ptr.clone() if is_inference_tensor(ptr) else ptr
        if _may_check(ptr):
            sizes = ptr.diff()
            if int(ptr[0]) != 0 or bool((sizes < 0).any()):
                raise ValueError("ptr must start at 0 and never fall; it holds the boundaries of the graphs, as in CSR")
            self._set_extent(sizes)

    def _read_sizes(self, sizes: Tensor | Iterable[int]) -> None:
        if not isinstance(sizes, Tensor):
            try:
                sizes = torch.tensor(sizes if isinstance(sizes, Sequence) else list(sizes))
            except (TypeError, ValueError, RuntimeError):
                raise TypeError(f"sizes must hold integers, the rows of each graph, got {sizes!r}") from None
            sizes = sizes if sizes.numel() else sizes.long()
        sizes = _vector_of_integers("sizes", sizes)
        self.ptr = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))
        if _may_check(sizes):
            if bool((sizes < 0).any()):
                raise ValueError(f"sizes holds {int(sizes.min())}; a graph has at least 0 rows")
            self._set_extent(sizes)

    def _set_extent(self, sizes: Tensor) -> None:
        """Check or set num_rows, max_size and may_pad."""
        rows, largest = int(self.ptr[-1]), int(sizes.max()) if len(sizes) else 0
        if self.num_rows is not None and self.num_rows < rows:
            raise ValueError(f"num_rows is {self.num_rows}, but the graphs own {rows} rows")
        self.num_rows = rows if self.num_rows is None else self.num_rows
        self.may_pad = self.num_rows > rows
        if self.max_size is not None and self.max_size < largest:
            raise ValueError(f"max_size is {self.max_size}, but a graph has {largest} rows; leave it out")
        self.max_size = largest if self.max_size is None else self.max_size

    # ---- derived arrays -------------------------------------------------------------------------------------

    @property
    def num_graphs(self) -> int:
        """G, the number of graphs, those with no rows included."""
        return self.ptr.shape[-1] - 1

    @property
    def sizes(self) -> Tensor:
        """Rows per graph, shape ``(G,)``."""
        return self.ptr.diff()

    def merged(self, num_rows: int) -> Segments:
        """The batch as one segment of all rows that belong to a graph. Computed once."""
        merged = self._merged
        if merged is None:
            merged = outside_inference_mode(self._merge, num_rows)
            if may_cache(self.ptr, merged.ptr):
                self._merged = merged
        return merged

    def _merge(self, num_rows: int) -> Segments:
        graphs = self.num_graphs
        ptr = torch.stack((self.ptr[..., 0], self.ptr[..., -1]), -1)
        order = None
        if self.order is not None:
            ids = self.ids(num_rows)
            order = torch.sort((ids >= 0).to(torch.int8) + (ids >= graphs), stable=True).indices
        return Segments.trusted(ptr, order, self.num_rows, num_rows, self.may_pad)

    @property
    def device(self) -> torch.device:
        """Where ``ptr`` and ``order`` live."""
        return self.ptr.device

    def ids(self, num_rows: int) -> Tensor:
        """The graph of every row, shape ``(N,)``; anything outside ``0 … G - 1`` marks a row of no graph."""
        ids = self._ids
        if ids is None or (is_inference_tensor(ids) and not torch.is_inference_mode_enabled()):
            ids = outside_inference_mode(self._find_ids, num_rows) if ids is None else ids.clone()
            if may_cache(self.ptr, ids):
                self._ids = ids
        return ids

    def bounded_ids(self, num_rows: int) -> Tensor:
        """As :meth:`ids`, but with G for every row of no graph."""
        ids, graphs = self.ids(num_rows), self.num_graphs
        if not self.may_pad:
            return ids
        return torch.where((ids < 0) | (ids >= graphs), graphs, ids)

    def _find_ids(self, num_rows: int) -> Tensor:
        position = torch.arange(num_rows, device=self.ptr.device)
        if is_abstract(self.ptr):  # vmap would expand it, and searchsorted warns if it is not contiguous
            position = self.ptr.new_zeros(num_rows) + position
        ids = torch.searchsorted(self.ptr, position, right=True) - 1
        return ids if self.order is None else torch.empty_like(ids).scatter(0, self.order, ids)

    def to(self, device: torch.device | str) -> Segments:
        """The same segments on another device."""
        return outside_inference_mode(self._moved, device)

    def _moved(self, device: torch.device | str) -> Segments:
        move = [None if t is None else t.to(device) for t in (self.order, self._ids)]
        return Segments.trusted(self.ptr.to(device), move[0], self.num_rows, self.max_size, self.may_pad, move[1])

    def __repr__(self) -> str:
        rows = "rows" if self.num_rows is None else f"{self.num_rows} rows"
        order = "" if self.order is None else ", not in order"
        device = "" if self.device.type == "cpu" else f", on {self.device}"
        return f"Segments({self.num_graphs} graphs, {rows}{order}{device})"

    def __eq__(self, other: object) -> bool:
        if not isinstance(other, Segments):
            return NotImplemented
        if (self.order is None) != (other.order is None) or self.num_rows != other.num_rows:
            return False
        same_order = self.order is None or other.order is None or torch.equal(self.order, other.order)
        return same_order and torch.equal(self.ptr, other.ptr)

    __hash__ = None  # type: ignore[assignment]  # compared by value, and tensors are mutable

    def __reduce__(self) -> tuple[Any, ...]:
        return _restored, (self.ptr, self.order, self.num_rows, self.max_size, self.may_pad, self._ids)


def _restored(*arguments: Any) -> Segments:
    """Called by a pickle: a module's function, since ``torch.load`` allows no methods."""
    return Segments.trusted(*arguments)


torch.serialization.add_safe_globals([_restored])


# ---- helpers ---------------------------------------------------------------------------------------------------


def check_dense(name: str, value: Tensor) -> None:
    """Refuse sparse, nested and MKL-DNN tensors."""
    if value.is_nested:
        raise TypeError(f"{name} is a nested tensor; concatenate its parts, torch.cat({name}.unbind())")
    if value.layout is not torch.strided:
        kind = "an MKL-DNN" if value.is_mkldnn else "a sparse"
        raise TypeError(f"{name} is {kind} tensor; convert it with {name}.to_dense()")


def check_ids(batch: Tensor, batch_size: int | None) -> None:
    """Refuse a batch vector for what is known without reading it."""
    _vector_of_integers("batch", batch)
    if batch_size is not None and not torch.compiler.is_compiling():
        batch_size = check_count("batch_size", "graphs", batch_size)
        _check_number_of_graphs(f"batch_size is {batch_size}", batch_size, batch.shape[0])


def _vector_of_integers(name: str, value: Tensor) -> Tensor:
    if not isinstance(value, Tensor):
        raise TypeError(f"{name} must be a tensor of integers, got {type(value).__name__}")
    check_dense(name, value)
    if value.dtype not in _INTEGERS:
        raise TypeError(f"{name} must hold integers, got {value.dtype}; convert it with {name}.long()")
    if value.dim() != 1:
        raise ValueError(f"{name} must be one-dimensional, got shape {tuple(value.shape)}")
    if not torch.compiler.is_compiling() and type(value) is not Tensor and hasattr(value, "as_tensor"):
        value = value.as_tensor()  # PyTorch Geometric's Index wraps the ids
    return value.long().contiguous()


def read_quickly(ids: Tensor, batch_size: int | None) -> Segments | None:
    """Segments of ids that a GPU takes as they are, or a CPU's that are sorted and in range; ``None`` for all else."""
    if batch_size is None or not 0 <= batch_size <= _MOST_GRAPHS:
        return None
    if type(ids) is not Tensor or ids.dtype is not torch.int64 or ids.dim() != 1 or ids.layout is not torch.strided:
        return None
    if ids.is_neg() or not ids.is_contiguous():
        return None
    if ids.is_cuda:
        return Segments.trusted(*_read_on_gpu(ids, batch_size), ids.shape[0], None, True, ids)
    if library is None:
        return None
    ptr, rows = torch.empty(batch_size + 1, dtype=torch.int64), ids.shape[0]
    found = library.boundaries(ids.data_ptr(), rows, batch_size, ptr.data_ptr())
    return Segments.trusted(ptr, None, rows, -1 - found, False, ids) if found < 0 else None


def _sort_ids(batch: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Boundaries and order of a batch vector by a sort."""
    sorted_ids, order = torch.sort(_narrowed(batch, batch_size), stable=True)
    return _boundaries(sorted_ids, batch_size), order


def _read_on_gpu(batch: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Boundaries and order of a batch vector on a GPU, without waiting for it."""
    gpu = triton_kernels("graphnorm.read_batch_gpu") if chosen_backend() in ("auto", "triton") else None
    if gpu is None or not gpu.can_read(batch.shape[0], batch_size):
        return _sort_ids(batch, batch_size)
    return gpu.read(batch, batch_size)  # type: ignore[no-any-return]


def _read_on_cpu(batch: Tensor, batch_size: int) -> tuple[Tensor, Tensor]:
    """Boundaries and order of a batch vector, which is checked."""
    found = read_quickly(batch, batch_size) or Segments.temporary(batch, batch_size)
    return found.ptr, torch.arange(batch.shape[0]) if found.order is None else found.order


register_operator(
    "read_batch(Tensor batch, SymInt batch_size) -> (Tensor, Tensor)",
    lambda batch, batch_size: (batch.new_empty(batch_size + 1), torch.empty_like(batch)),
    cpu=_read_on_cpu,
    gpu=_read_on_gpu,
)


def _may_check(tensor: Tensor) -> bool:
    """Whether to read values: on a GPU that synchronises."""
    return can_read_values(tensor) and (tensor.device.type == "cpu" or debugging())


def _assert_not_negative(batch: Tensor) -> None:
    torch._assert_async((batch >= 0).all(), "batch holds an id outside of 0 … batch_size - 1")


def _symbolic_num_graphs(batch: Tensor) -> int:
    """The number of graphs where values cannot be read: a symbol in export, an error inside vmap."""
    if is_abstract(batch):
        raise ValueError(
            "batch_size is needed where the ids in batch cannot be read, inside torch.func.vmap and on the device "
            "'meta': pass it, or build Segments outside"
        )
    from torch.fx.experimental.symbolic_shapes import statically_known_true  # which imports all of the compiler

    if statically_known_true(batch.shape[0] == 0):
        return 0
    graphs = batch.max().item() + 1  # not int(...), which would ask export for a constant
    torch._check(graphs >= 0)  # type: ignore[no-untyped-call]
    if not is_exporting():
        torch._check(graphs <= _MOST_GRAPHS + 64 * batch.shape[0])  # type: ignore[no-untyped-call]
    return graphs  # type: ignore[return-value]


def _without_gradients(tensor: Tensor) -> Tensor:
    """An integer tensor as it was outside of torch.func.grad, which wraps it although it has no gradient."""
    if not torch.compiler.is_compiling():
        while torch._C._functorch.is_gradtrackingtensor(tensor):
            tensor = torch._C._functorch.get_unwrapped(tensor)
    return tensor


def check_count(name: str, what: str, value: Any) -> int:
    try:
        count = operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be an int, the number of {what}, got {value!r}") from None
    if count < 0:
        raise ValueError(f"{name} is {count}; it is a number of {what}, so at least 0")
    return count


def _write_boundaries(batch: Tensor, ptr: Tensor) -> int | None:
    """Fill ``ptr`` (G + 1) from a sorted CPU vector of ids, and give the rows of the largest graph.

    ``None``, with ptr undefined, if the vector is unsorted or out of range.
    """
    graphs = ptr.shape[0] - 1
    if library is not None and type(batch) is Tensor and not batch.is_neg():
        found: int = library.boundaries(batch.data_ptr(), batch.shape[0], graphs, ptr.data_ptr())
        return -1 - found if found < 0 else None
    if bool(((batch < 0) | (batch >= graphs)).any()) or bool((batch[1:] < batch[:-1]).any()):
        return None
    torch.searchsorted(batch, torch.arange(graphs + 1), out=ptr)
    return _largest(ptr)


def _largest(ptr: Tensor) -> int:
    return int(ptr.diff().max()) if len(ptr) > 1 else 0


def _narrowed(ids: Tensor, batch_size: int) -> Tensor:
    """Ids in the smallest type that holds them: a radix sort takes one pass per byte.

    Ids out of range are clamped to just outside of it, so that none wraps around into a graph.
    """
    if torch.compiler.is_compiling() or batch_size >= torch.iinfo(torch.int32).max:
        return ids
    narrow = torch.int16 if batch_size < torch.iinfo(torch.int16).max else torch.int32
    return ids.clamp(-1, batch_size).to(narrow)


def _boundaries(sorted_ids: Tensor, batch_size: int) -> Tensor:
    graphs = torch.arange(batch_size + 1, device=sorted_ids.device, dtype=sorted_ids.dtype)
    if is_abstract(sorted_ids):
        graphs = sorted_ids.new_zeros(batch_size + 1) + graphs  # a copy for each member, as searchsorted requires
    return torch.searchsorted(sorted_ids, graphs)


def _check_number_of_graphs(found: str, graphs: int, rows: int) -> None:
    if graphs > max(_MOST_GRAPHS, 64 * rows):
        raise ValueError(
            f"{found}, so {rows} rows would form {graphs} graphs, nearly all empty; number them from 0 on, as "
            "batch.unique(return_inverse=True)[1] does"
        )


def _check_range(low: int, high: int, batch_size: int) -> None:
    if low < 0:
        raise ValueError(f"batch holds the negative id {low}; graph ids start at 0")
    if high >= batch_size:
        raise ValueError(
            f"batch holds id {high}, but batch_size is {batch_size}; ids go from 0 to batch_size - 1, "
            f"so pass batch_size={high + 1} or leave it out"
        )


def _check_on_device(batch: Tensor, batch_size: int | None, assume_sorted: bool) -> int:
    """All checks of the ids, with one synchronisation. Returns the number of graphs."""
    if batch.shape[0] == 0:
        return batch_size or 0
    falls = (batch[1:] < batch[:-1]).any() if assume_sorted else batch.new_zeros(())
    low, high, unsorted = torch.stack([batch.min(), batch.max(), falls.long()]).tolist()
    if batch_size is None:
        batch_size = high + 1
        _check_number_of_graphs(f"batch holds id {high}", batch_size, batch.shape[0])
    _check_range(low, high, batch_size)
    if unsorted:
        raise ValueError("batch is not sorted, but assume_sorted=True was given; leave assume_sorted out")
    return batch_size


def _flatten(segments: Segments) -> tuple[list[Tensor], tuple[Any, ...]]:
    optional = (segments.order, segments._ids)
    present = tuple(tensor is not None for tensor in optional)
    leaves = [segments.ptr, *(tensor for tensor in optional if tensor is not None)]
    return leaves, (present, segments.num_rows, segments.max_size, segments.may_pad)


def _unflatten(leaves: Iterable[Tensor], context: tuple[Any, ...]) -> Segments:
    present, num_rows, max_size, may_pad = context
    remaining = iter(leaves)
    ptr = next(remaining)
    order, ids = (next(remaining) if there else None for there in present)
    return Segments.trusted(ptr, order, num_rows, max_size, may_pad, ids)


def _flatten_with_keys(segments: Segments) -> tuple[list[tuple[pytree.KeyEntry, Tensor]], tuple[Any, ...]]:
    leaves, context = _flatten(segments)
    names = ["ptr", *(name for name, there in zip(("order", "ids"), context[0], strict=True) if there)]
    return [(pytree.GetAttrKey(name), leaf) for name, leaf in zip(names, leaves, strict=True)], context


pytree.register_pytree_node(
    Segments,
    _flatten,
    _unflatten,
    serialized_type_name="graphnorm.Segments",
    to_dumpable_context=list,
    from_dumpable_context=lambda context: (tuple(context[0]), *context[1:]),
    flatten_with_keys_fn=_flatten_with_keys,
)
