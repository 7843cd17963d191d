"""Two switches that a user or a test may flip for a while: which kernels run, and how much is checked."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

BACKENDS = ("auto", "reference", "cpu", "triton")

_backend = "auto"
_debug = False


@contextmanager
def backend(name: str) -> Iterator[None]:
    """Run the operations on one implementation inside a ``with`` block.

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
    """Check inside a ``with`` block also what costs a device synchronisation.

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
