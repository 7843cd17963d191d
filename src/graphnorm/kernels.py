"""The C library, where it was built: its address book and its thread pool."""

from __future__ import annotations

import ctypes
import math
from collections.abc import Sequence
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack


def _load() -> ModuleType | None:
    try:
        from graphnorm import _kernels  # type: ignore[attr-defined]
    except ImportError:
        return None
    _kernels.use_pool(_torch_pool())
    return _kernels  # type: ignore[no-any-return]


def _torch_pool() -> int:
    """The address of ``GOMP_parallel`` in the OpenMP runtime that torch itself runs on; 0 where there is none."""
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted([*folder.glob("libgomp*"), *folder.glob("libomp*"), *folder.glob("libiomp*")]):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0


library = _load()

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
"""The types of elements that the library has kernels for, by the numbers it knows them by."""
if library is not None and library.HAS_FLOAT16:
    TYPES[torch.float16] = 3

_LARGE = 1 << 16  # bytes; smaller blocks stay with malloc anyway, larger ones make it look for memory to give back


def output(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialized memory for an output of the kernels: an ordinary CPU tensor of one of :data:`TYPES`.

    Where it is large it comes from the library, which keeps freed outputs for later ones (:func:`keep_at_most`): fresh
    memory costs more than the arithmetic (``csrc/outputs.h``).
    """
    if library is None or math.prod(shape) * dtype.itemsize < _LARGE:
        return torch.empty(shape, dtype=dtype)
    return from_dlpack(library.output(TYPES[dtype], *shape))


def output_like(x: Tensor) -> Tensor:
    """:func:`output` of the shape and type of x, which is contiguous; quicker where it is small."""
    return torch.empty_like(x) if x.nbytes < _LARGE else output(x.shape, x.dtype)


def keep_at_most(size: int) -> None:
    """Let the library keep so many bytes of freed outputs for later ones, 256 MiB otherwise; 0 frees those kept now.

    >>> keep_at_most(64 * 2**20)
    """
    if library is not None:
        library.keep(size)


def boundaries(batch: Tensor, ptr: Tensor) -> int | None:
    """Fill ``ptr`` (G + 1) from a sorted CPU vector of graph ids (N).

    Returns the first row whose id breaks the order or leaves ``0 … G - 1``, and ``None`` when there is none.
    """
    graphs = ptr.shape[0] - 1
    if library is not None:
        row = library.boundaries(batch.data_ptr(), batch.shape[0], graphs, ptr.data_ptr())
        return None if row < 0 else row
    wrong = (batch < 0) | (batch >= graphs)
    wrong[1:] |= batch[1:] < batch[:-1]
    if bool(wrong.any()):
        return int(wrong.int().argmax())
    torch.searchsorted(batch, torch.arange(graphs + 1), out=ptr)
    return None
