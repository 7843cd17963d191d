"""The segments of batch vectors that layers were called with lately.

A model calls all of its layers with the same tensor ``batch``. On a GPU reading it takes a sort, and a wait for the
device where ``batch_size`` is left out; both take longer than a layer does on a small batch. So what was made of a
tensor is found again by the next layer, for as long as that tensor object lives and nothing has changed:

* its *version*, which torch counts up with every change in place. Changes that torch does not count stay unseen:
  through ``batch.data``, by the replay of a CUDA graph, by ``torch.distributed``, by kernels or libraries that were
  handed the memory (DLPack);
* ``batch_size``, with ``None`` as a value of its own;
* the stream, since another one need not wait for the sort;
* inference mode, since what is made inside of it is of no use to training.

Always made anew, and not remembered, are segments of tensors on a CPU, where reading takes one quick pass and numpy may
change values unseen; of inference tensors, which have no version; of subclasses; inside :func:`graphnorm.debug`, which
checks every call; while a CUDA graph is recorded, which has to read the ids at each replay; while compiling, exporting
or tracing; inside functorch transforms and dispatch modes.
"""

from __future__ import annotations

import weakref

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active, _get_tracing_state, _len_torch_dispatch_stack

from graphnorm.backends import debugging
from graphnorm.segments import Segments

_MOST = 64  # far more than the batches under way; all are forgotten then, as of a dataset kept on the device

_Key = tuple[int, int | None, int, bool]


class _Remembered(weakref.ref[Tensor]):
    """A batch vector that may go at any time, and the segments made of it."""

    __slots__ = ("key", "segments", "version")

    key: _Key
    version: int
    segments: Segments


# Read and changed by single operations of a dict, which need no lock. A lock would be taken twice where a tensor is
# freed, and so forgotten, in the middle of remembering another.
_remembered: dict[_Key, _Remembered] = {}


def segments_of(batch: Tensor, batch_size: int | None) -> Segments:
    """``Segments(batch=batch, batch_size=batch_size)``, the same object again where that is safe."""
    if torch.compiler.is_compiling():
        return Segments(batch=batch, batch_size=batch_size)
    key = _key(batch, batch_size)
    if key is None:
        return Segments.of_one_call(batch, batch_size)
    version = batch._version
    found = _remembered.get(key)
    if found is not None and found.version == version and found() is batch:
        return found.segments
    new = _Remembered(batch, _forget)
    new.key, new.version = key, version
    new.segments = Segments.of_one_call(batch.detach(), batch_size)  # it keeps its ids, but not the object batch
    if len(_remembered) >= _MOST:
        _remembered.clear()
    _remembered[key] = new
    return new.segments


def _forget(gone: _Remembered, remembered: dict[_Key, _Remembered] = _remembered) -> None:
    remembered.pop(gone.key, None)


def _key(batch: Tensor, batch_size: int | None) -> _Key | None:
    """What segments are found by, besides the version; ``None`` where they must be made anew."""
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
    """The stream that kernels reading ``batch`` are put on now; ``None`` on a CPU, and while it is recorded."""
    if not batch.is_cuda or torch._C._cuda_isCurrentStreamCapturing():
        return None
    return torch._C._cuda_getCurrentRawStream(batch.get_device())
