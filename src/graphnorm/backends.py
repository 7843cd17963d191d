"""Which implementation runs: two switches for users and tests, and the C library where it was built."""

from __future__ import annotations

import ctypes
import importlib
import math
import os
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from types import ModuleType

import torch
from torch import Tensor
from torch.utils.dlpack import from_dlpack

BACKENDS = ("auto", "reference", "cpu", "triton")

_backend = "auto"
_debug = False


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Force one implementation of the operations inside a ``with`` block.

    ``"auto"`` chooses by device: Triton on a GPU, the C library on a CPU, and plain torch where neither is there.
    ``"reference"`` is plain torch on any device, ``"cpu"`` the C library, ``"triton"`` the GPU kernels (on CPU
    tensors only under Triton's interpreter, ``TRITON_INTERPRET=1``).

    >>> import torch, graphnorm
    >>> norm, x = graphnorm.GraphNorm(8), torch.randn(5, 8)
    >>> with graphnorm.backend("reference"):
    ...     y = norm(x)
    >>> torch.allclose(y, norm(x), atol=1e-6)
    True
    """
    global _backend
    if name not in BACKENDS:
        raise ValueError(f"unknown backend {name!r}; the backends are {', '.join(map(repr, BACKENDS))}")
    previous, _backend = _backend, name
    try:
        yield
    finally:
        _backend = previous


@contextmanager
def debug() -> Iterator[None]:
    """Inside a ``with`` block, also run the checks that cost a device synchronisation.

    On a GPU, ids of graphs are not read back when ``batch_size`` is given: a row with an id outside
    ``0 … batch_size - 1`` belongs to no graph and gets zeros. Inside this block such ids raise ``ValueError``.
    """
    global _debug
    previous, _debug = _debug, True
    try:
        yield
    finally:
        _debug = previous


def chosen_backend() -> str:
    """The backend of the innermost ``with graphnorm.backend(...)`` block, ``"auto"`` outside of any."""
    return _backend


def debugging() -> bool:
    """Whether a ``with graphnorm.debug()`` block is open."""
    return _debug


# ---- the GPU kernels --------------------------------------------------------------------------------------


@cache
def triton_kernels(module: str) -> ModuleType | None:
    """A module of Triton kernels, imported at its first use; ``None`` where Triton is not installed."""
    try:
        import triton  # noqa: F401
    except ImportError:
        return None
    return importlib.import_module(module)


def interpreted() -> bool:
    """Whether Triton's interpreter is on, which runs the GPU kernels on CPU tensors."""
    return os.environ.get("TRITON_INTERPRET") == "1"


# ---- the C library ---------------------------------------------------------------------------------------------


def _load_library() -> ModuleType | None:
    try:
        from graphnorm import _kernels  # type: ignore[attr-defined]
    except ImportError:  # no C compiler at installation
        return None
    _kernels.use_pool(_torch_thread_pool())
    return _kernels  # type: ignore[no-any-return]


def _torch_thread_pool() -> int:
    """The address of ``GOMP_parallel`` in the OpenMP runtime that torch itself uses; 0 where there is none."""
    folder = Path(torch.__file__).parent / "lib"
    for path in sorted([*folder.glob("libgomp*"), *folder.glob("libomp*"), *folder.glob("libiomp*")]):
        try:
            return ctypes.cast(ctypes.CDLL(str(path)).GOMP_parallel, ctypes.c_void_p).value or 0
        except (OSError, AttributeError):
            continue
    return 0


library = _load_library()
"""The extension module ``graphnorm._kernels`` (``csrc/``), or ``None`` where it was not built."""

TYPES = {torch.float32: 0, torch.float64: 1, torch.bfloat16: 2}
"""The element types that the library has kernels for, and its numbers for them."""
if library is not None and library.HAS_FLOAT16:
    TYPES[torch.float16] = 3

_LARGE = 1 << 16  # bytes; malloc keeps smaller blocks anyway, and returns larger ones to the system


def is_small(shape: Sequence[int], dtype: torch.dtype) -> bool:
    """Whether an output comes from torch's allocator rather than from the library."""
    return library is None or math.prod(shape) * dtype.itemsize < _LARGE


def output(shape: Sequence[int], dtype: torch.dtype) -> Tensor:
    """Uninitialized memory for an output of the kernels: an ordinary CPU tensor of one of :data:`TYPES`.

    Large outputs come from the library, which reuses freed ones (:func:`keep_at_most`): fresh memory costs more than
    the arithmetic (``csrc/outputs.h``).
    """
    if library is None or is_small(shape, dtype):
        return torch.empty(shape, dtype=dtype)
    return from_dlpack(library.output(TYPES[dtype], *shape))


def output_like(x: Tensor) -> Tensor:
    """:func:`output` of the shape and type of x, which is contiguous; quicker where it is small."""
    return torch.empty_like(x) if x.nbytes < _LARGE else output(x.shape, x.dtype)


def keep_at_most(size: int) -> None:
    """Set how many bytes of freed outputs the library keeps for reuse (256 MiB at first); 0 frees them all.

    >>> keep_at_most(64 * 2**20)
    """
    if library is not None:
        library.keep(size)


def has_c_kernel(x: Tensor) -> bool:
    """Whether the library was built and has kernels for this tensor's device and type."""
    return library is not None and x.dtype in TYPES and x.is_cpu


def contiguous(tensor: Tensor | None, dtype: torch.dtype | None = None) -> Tensor | None:
    """The tensor as the library reads it: contiguous, and of this type where one is given."""
    if tensor is None or (tensor.is_contiguous() and (dtype is None or tensor.dtype is dtype)):
        return tensor
    return tensor.to(dtype or tensor.dtype).contiguous()


def member_stride(tensor: Tensor | None) -> int:
    """From one member's entries to the next one's in an array ([M,] entries); 0 where members share them."""
    return 0 if tensor is None or tensor.dim() == 1 else tensor.shape[1]


def address(tensor: Tensor | None) -> int:
    """Where a tensor's elements begin; 0 for ``None``."""
    return 0 if tensor is None else tensor.data_ptr()
