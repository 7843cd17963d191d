"""The segments of a layer's batch vector, which all layers of a model share: :func:`as_segments`.

A model calls all of its layers with the same tensor `batch`. On a small batch, reading it takes as long as a layer;
on a GPU it takes launches, and a synchronisation where batch_size is left out. So the segments of a tensor are cached
for as long as that tensor object lives and nothing of this has changed:

- on a CPU, the ids, which are compared with a copy: numpy may change them without torch knowing;
- on a GPU, the tensor's version, which torch counts up with every change in place. Changes that torch does not count
  go unnoticed: through batch.data, by the replay of a CUDA graph, by torch.distributed, by kernels or libraries that
  were given the memory (DLPack);
- batch_size, None included;
- the stream, since another stream need not wait for the launches;
- inference mode, since training cannot use what is made inside of it.

Not cached are segments of inference tensors, which have no version; of subclasses; inside graphnorm.debug(), which
checks every call; while a CUDA graph is captured, which has to read the ids at each replay; while compiling,
exporting or tracing; inside torch.func transforms and dispatch modes.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _get_tracing_state, _len_torch_dispatch_stack

from graphnorm.backends import debugging
from graphnorm.segments import Segments, check_count, read_quickly
from graphnorm.tracing import is_exporting

__all__ = ["as_segments"]

_MAX_CACHED = 64  # far more than the batches in use at a time; beyond that the whole cache is cleared

_Key = tuple[int, int | None, int, bool]


class _CacheEntry(weakref.ref[Tensor]):
    """A batch vector, which may be freed at any time, and its segments."""

    __slots__ = ("key", "segments", "state")

    key: _Key
    state: int | Tensor
    """The tensor's version, or a copy of its ids."""
    segments: Segments

    def still_holds(self, batch: Tensor) -> bool:
        if self() is not batch:
            return False
        state = self.state
        return state == batch._version if isinstance(state, int) else torch.equal(state, batch)


# Only single operations of a dict, which need no lock. With a lock, a tensor freed while another is being cached would
# make one thread take it twice.
_cache: dict[_Key, _CacheEntry] = {}


def as_segments(
    batch: Tensor | Segments | None, batch_size: int | None = None, *, counted: bool = False
) -> Segments | None:
    """The second argument of a layer as segments; ``None`` stands for one graph.

    All layers that are called with the same tensor share its segments. Unless they are to be ``counted``, compiled
    training may number the graphs anew, and add some without rows.
    """
    if isinstance(batch, Segments):
        if batch_size is not None and batch_size != batch.num_graphs:
            raise ValueError(f"batch_size is {batch_size}, but the segments hold {batch.num_graphs}; leave it out")
        return batch
    if batch is None:
        if batch_size is not None and not torch.compiler.is_compiling():
            check_count("batch_size", "graphs", batch_size)
        return None
    if torch.compiler.is_compiling():
        if batch_size is None and not counted and torch.is_grad_enabled() and not is_exporting():
            return Segments.with_empty_graphs(batch)
        return Segments(batch=batch, batch_size=batch_size)
    key = _cache_key(batch, batch_size)
    if key is None:
        return Segments.temporary(batch, batch_size)
    found = _cache.get(key)
    if found is not None and found.still_holds(batch):
        return found.segments
    entry = _CacheEntry(batch, _drop_from_cache)
    on_gpu = key[2] >= 0
    ids = batch.detach() if on_gpu else batch.clone()
    entry.key, entry.state = key, batch._version if on_gpu else ids
    entry.segments = read_quickly(ids, batch_size) or Segments.temporary(ids, batch_size)
    if len(_cache) >= _MAX_CACHED:
        _cache.clear()
    _cache[key] = entry
    return entry.segments


def _drop_from_cache(freed: _CacheEntry, cache: dict[_Key, _CacheEntry] = _cache) -> None:
    cache.pop(freed.key, None)


def _cache_key(batch: Tensor, batch_size: int | None) -> _Key | None:
    """All that decides about a cached entry but its version; ``None`` where nothing may be cached."""
    if type(batch) is not Tensor or (batch_size is not None and type(batch_size) is not int):
        return None
    stream = _stream(batch)
    if (
        stream is None
        or batch.is_inference()
        or debugging()
        or _are_functorch_transforms_active()
        or _len_torch_dispatch_stack()
        or _get_tracing_state() is not None
    ):
        return None
    return id(batch), batch_size, stream, torch.is_inference_mode_enabled()


def _stream(batch: Tensor) -> int | None:
    """The current stream of the tensor's GPU, -1 on a CPU; ``None`` elsewhere, and while a CUDA graph is captured."""
    if batch.is_cpu:
        return -1
    if not batch.is_cuda or torch._C._cuda_isCurrentStreamCapturing():
        return None
    return torch._C._cuda_getCurrentRawStream(batch.get_device())
