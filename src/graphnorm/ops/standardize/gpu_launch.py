"""Launching Triton kernels with little work on the host.

Triton looks at every argument of every launch to decide which compiled variant fits. Here the caller says in a key
what decides it (types, what is ``None``), sizes are never compiled in, and a variant that was seen before goes straight
to the driver, by way of the C library. On tiny batches a launch takes longer than the kernel itself.
"""

from __future__ import annotations

import ctypes
import os
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphnorm.kernels import library

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_LARGEST_INT32 = 2**31 - 1
_compiled: dict[tuple[Any, ...], Any] = {}


class Tile(NamedTuple):
    """What one program holds at a time, ``rows`` × ``channels`` elements, and its warps."""

    rows: int
    channels: int
    warps: int


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def kinds(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What a compiled kernel depends on: types, absences, and which addresses are multiples of 16."""
    return tuple(None if t is None else (t.dtype, t.data_ptr() % 16 == 0) for t in tensors)


@cache
def _driver() -> int:
    """The address of ``cuLaunchKernel``; 0 where there is none, or no library to call it."""
    if library is None or torch.version.cuda is None:
        return 0
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernel, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _is_plain(metadata: Any) -> bool:
    """Whether a compiled kernel asks for nothing but its arguments: no scratch memory, no clusters."""
    wants = ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid", "launch_pdl")
    return metadata.num_ctas == 1 and not any(getattr(metadata, name, None) for name in wants)


class Launch:
    """``programs`` programs of a kernel, everything but its tensors fixed.

    A kernel takes tensors first, then ``integers``, then ``constants``: its compile-time arguments, in its own order,
    up to the tile's rows and channels, which come last. ``constants`` and ``key``, together with the ``kind`` of each
    call, must tell apart everything that is compiled in, apart from how tensors are aligned.
    """

    __slots__ = ("constants", "device", "integers", "kernel", "key", "programs", "ready", "tile", "wide")

    def __init__(
        self, kernel: Any, programs: int, tile: Tile, integers: tuple[int, ...], key: tuple[Any, ...], *constants: Any
    ) -> None:
        self.kernel, self.programs, self.tile, self.integers = kernel, programs, tile, integers
        self.constants = (*constants, tile.rows, tile.channels)
        self.key = (id(kernel), tile.warps, *key, *self.constants)
        self.device, self.wide = key[0], any(integer > _LARGEST_INT32 for integer in integers)
        self.ready: dict[tuple[Any, ...], tuple[int, ...]] = {}

    def __call__(self, kind: tuple[Any, ...], *tensors: Tensor | None) -> None:
        """Run on the current stream. ``kind`` holds the types of those tensors whose type the key does not tell."""
        ready = self.ready.get(kind)
        if ready is not None:
            assert library is not None
            stream = torch._C._cuda_getCurrentRawStream(self.device)
            addresses = [tensor.data_ptr() for tensor in tensors if tensor is not None]
            if library.launch(*ready, stream, *addresses, *self.integers) == 0:
                return  # else a tensor is not aligned, or the driver wants something that Triton sees to
        arguments = (*tensors, *self.integers, *self.constants)
        unaligned = any(tensor is not None and tensor.data_ptr() & 15 for tensor in tensors)
        if _INTERPRETED or unaligned or self.wide:  # a variant of its own, which Triton tells apart
            self.kernel[(self.programs,)](*arguments, num_warps=self.tile.warps)
            return
        key = (*self.key, kind)
        compiled = _compiled.get(key)
        if compiled is None:
            compiled = _compiled[key] = self.kernel[(self.programs,)](*arguments, num_warps=self.tile.warps)
        else:
            compiled[(self.programs, 1, 1)](*arguments)
        if _driver() and _is_plain(compiled.metadata):
            threads, shared = 32 * self.tile.warps, compiled.metadata.shared
            pointers = sum(tensor is not None for tensor in tensors)
            self.ready[kind] = (_driver(), compiled.function, self.programs, threads, shared, pointers)


def launch(
    kernel: Any, key: tuple[Any, ...], programs: int, tile: Tile, arguments: tuple[Any, ...], *constants: Any
) -> None:
    """Run ``programs`` programs of a kernel whose sizes change from call to call.

    As for :class:`Launch`, but ``key`` tells apart how tensors are aligned, too.
    """
    constants = (*constants, tile.rows, tile.channels)
    key = (id(kernel), tile, *key)
    compiled = _compiled.get(key)
    if compiled is not None:
        compiled[(programs, 1, 1)](*arguments, *constants)
        return
    compiled = kernel[(programs,)](*arguments, *constants, num_warps=tile.warps)
    if not _INTERPRETED and all(a <= _LARGEST_INT32 for a in arguments if isinstance(a, int)):
        _compiled[key] = compiled
