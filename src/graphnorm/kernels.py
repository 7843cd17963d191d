"""The C library, where it was built: its address book and its thread pool."""

from __future__ import annotations

import ctypes
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor


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
