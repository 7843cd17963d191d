"""Launching Triton kernels with little work on the host.

Triton looks at every argument of every launch to decide which compiled variant fits. Here the caller says in a key
what decides it (types, what is ``None``, alignment), sizes are never compiled in, and the compiled kernel is launched
at once when the key was seen before. On tiny batches a launch takes longer than the kernel itself.
"""

from __future__ import annotations

import os
from typing import Any, NamedTuple

from torch import Tensor

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_LARGEST_INT32 = 2**31 - 1
_compiled: dict[tuple[Any, ...], Any] = {}


class Tile(NamedTuple):
    """What one program holds at a time, ``rows`` × ``channels`` elements, and its warps."""

    rows: int
    channels: int
    warps: int


def kind_of(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What a compiled kernel depends on: types, absences, and whether all addresses are multiples of 16."""
    bits = 0
    kind: list[Any] = []
    for tensor in tensors:
        if tensor is None:
            kind.append(None)
        else:
            bits |= tensor.data_ptr()
            kind.append(tensor.dtype)
    kind.append(bits & 15)
    return tuple(kind)


def launch(
    kernel: Any, key: tuple[Any, ...], programs: int, tile: Tile, arguments: tuple[Any, ...], *constants: Any
) -> None:
    """Run ``programs`` programs of ``kernel``.

    ``constants`` are its compile-time arguments, in its own order, up to the tile's rows and channels, which come last.
    ``key`` together with the kernel and the tile must tell apart everything that is compiled in.
    """
    key = (id(kernel), tile, *key)
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[(programs, 1, 1)](*arguments, *constants, tile.rows, tile.channels)
        return
    compiled = kernel[(programs,)](*arguments, *constants, tile.rows, tile.channels, num_warps=tile.warps)
    if not _INTERPRETED and all(a <= _LARGEST_INT32 for a in arguments if isinstance(a, int)):
        _compiled[key] = compiled
