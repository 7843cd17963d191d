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

from graphnorm.backends import library

_INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
_LARGEST_INT32 = 2**31 - 1
_compiled: dict[tuple[Any, ...], Any] = {}


class Tile(NamedTuple):
    """What one program holds at a time, ``rows`` × ``channels`` elements, its warps and the registers of a thread."""

    rows: int
    channels: int
    warps: int
    registers: int | None = None
    """At most so many, so that more programs fit a processor; as many as the compiler wants if left out."""

    @property
    def options(self) -> dict[str, int]:
        """What the compiler is told."""
        return {"num_warps": self.warps} | ({} if self.registers is None else {"maxnreg": self.registers})


def power_of_two(number: int) -> int:
    """The smallest power of two that is not less."""
    return 1 << max(0, number - 1).bit_length()


def kinds(*tensors: Tensor | None) -> tuple[Any, ...]:
    """What a compiled kernel depends on: types, absences, and which addresses are multiples of 16."""
    return tuple(None if t is None else (t.dtype, t.data_ptr() % 16 == 0) for t in tensors)


@cache
def _driver() -> int:
    """The address of ``cuLaunchKernelEx``; 0 where there is none, or no library to call it."""
    if library is None or torch.version.cuda is None:
        return 0
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _is_plain(metadata: Any, early: bool) -> bool:
    """Whether a compiled kernel asks for nothing but its arguments, or to be early: no scratch memory, no clusters."""
    wants = ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid")
    plain = metadata.num_ctas == 1 and not any(getattr(metadata, name, None) for name in wants)
    return plain and bool(getattr(metadata, "launch_pdl", False)) == early


@cache
def can_be_early(index: int | None) -> bool:
    """Whether kernels on this device may begin before the one before them has ended: not before Hopper."""
    if _INTERPRETED or index is None or torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(index) >= (9, 0)


class Launch:
    """``programs`` programs of a kernel, everything but its tensors fixed.

    A kernel takes tensors first, those of the call but for the places ``without``, then ``integers``, then
    ``constants``: its compile-time arguments, in its own order, up to the tile's rows and channels, which come last.
    One that is ``early`` may begin before the kernel launched before it has ended; it waits for it itself.
    ``constants`` and ``key``, together with the ``kind`` of each call, must tell apart everything that is compiled in,
    apart from how tensors are aligned.
    """

    __slots__ = ("constants", "early", "integers", "kernel", "key", "programs", "tile", "wide", "without")

    def __init__(
        self,
        kernel: Any,
        programs: int,
        tile: Tile,
        integers: tuple[int, ...],
        key: tuple[Any, ...],
        *constants: Any,
        without: tuple[int, ...] = (),
        early: bool = False,
    ) -> None:
        self.kernel, self.programs, self.tile, self.integers = kernel, programs, tile, integers
        self.without, self.early = without, early
        self.constants = (*constants, tile.rows, tile.channels)
        self.key = (id(kernel), tile, early, *key, *self.constants)
        self.wide = any(integer > _LARGEST_INT32 for integer in integers)

    def __call__(self, kind: tuple[Any, ...], *tensors: Tensor | None) -> bytes | None:
        """Run by way of Triton; gives the variant, as the C library takes it, where that can run it the next time."""
        tensors = tuple(tensor for place, tensor in enumerate(tensors) if place not in self.without)
        arguments = (*tensors, *self.integers, *self.constants)
        options = self.tile.options | ({"launch_pdl": True} if self.early else {})
        unaligned = any(tensor is not None and tensor.data_ptr() & 15 for tensor in tensors)
        if _INTERPRETED or unaligned or self.wide:  # a variant of its own, which Triton tells apart
            self.kernel[(self.programs,)](*arguments, **options)
            return None
        key = (*self.key, kind)
        compiled = _compiled.get(key)
        if compiled is None:
            compiled = _compiled[key] = self.kernel[(self.programs,)](*arguments, **options)
        else:
            compiled[(self.programs, 1, 1)](*arguments)
        if library is None or not _driver() or not _is_plain(compiled.metadata, self.early):
            return None
        threads, shared, without = 32 * self.tile.warps, compiled.metadata.shared, sum(1 << k for k in self.without)
        sizes = (self.programs, threads, shared, without, int(self.early), *self.integers)
        return library.variant(_driver(), compiled.function, *sizes)  # type: ignore[no-any-return]


class Launches:
    """Kernels that run one after another on the same tensors, each free to run twice.

    ``variants`` holds what the C library wants to know of them, by the ``kind`` of a call, which tells the types of
    those tensors whose type a launch's key does not. A caller may hand it to ``library.launch`` itself, with addresses
    in place of tensors where it likes; unless that gives 0, the call is as good as none.
    """

    __slots__ = ("launches", "variants")

    def __init__(self, *launches: Launch | None) -> None:
        self.launches = tuple(launch for launch in launches if launch is not None)
        self.variants: dict[tuple[Any, ...], bytes] = {}

    def __call__(self, kind: tuple[Any, ...], stream: int, *tensors: Tensor | None) -> None:
        """Run on the current stream, which is ``stream``."""
        ready = self.variants.get(kind)
        if ready is not None:
            assert library is not None
            if library.launch(ready, stream, *tensors) == 0:
                return  # else a tensor is not aligned, or the driver wants something that Triton sees to
        variants = [launch(kind, *tensors) for launch in self.launches]
        known = [variant for variant in variants if variant is not None]
        if known and len(known) == len(variants):
            self.variants[kind] = b"".join(known)


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
    compiled = kernel[(programs,)](*arguments, *constants, **tile.options)
    if not _INTERPRETED and all(a <= _LARGEST_INT32 for a in arguments if isinstance(a, int)):
        _compiled[key] = compiled
