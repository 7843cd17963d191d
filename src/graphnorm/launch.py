"""Launching Triton kernels with little work on the host, and the scratch memory that launches share.

Triton inspects every argument of every launch to decide which compiled variant fits. Here the caller gives a key of
what decides it (types, which arguments are ``None``), sizes are never compiled in, and a variant that was seen before
goes straight to the driver, through the C library. On tiny batches a launch takes longer than the kernel itself.
"""

from __future__ import annotations

import ctypes
import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from contextlib import AbstractContextManager, nullcontext
from functools import cache
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import interpreted, library

_INTERPRETED = interpreted()
_LARGEST_INT32 = 2**31 - 1
_compiled: dict[tuple[Any, ...], Any] = {}


class Tile(NamedTuple):
    """The ``rows`` × ``channels`` elements that one program holds at a time, its warps and the registers per thread."""

    rows: int
    channels: int
    warps: int
    registers: int | None = None
    """An upper bound, so that more programs fit a multiprocessor; the compiler's choice if ``None``."""

    @property
    def options(self) -> dict[str, int]:
        """The options for Triton's compiler."""
        return compiler_options(self.warps) | ({} if self.registers is None else {"maxnreg": self.registers})


def compiler_options(warps: int) -> dict[str, int]:
    """Options for Triton's compiler. Its default for fused multiply-adds depends on its version."""
    return {"num_warps": warps, "enable_fp_fusion": True}


def power_of_two(number: int) -> int:
    """The smallest power of two that is at least ``number``."""
    return 1 << max(0, number - 1).bit_length()


def kinds(*tensors: Tensor | None) -> tuple[Any, ...]:
    """The properties of tensors that a kernel is compiled for: types, ``None``, and addresses divisible by 16."""
    return tuple(None if t is None else (t.dtype, t.data_ptr() % 16 == 0) for t in tensors)


@cache
def _driver() -> int:
    """The address of the driver's ``cuLaunchKernelEx``; 0 where there is no driver, or no C library to call it."""
    if library is None or torch.version.cuda is None:
        return 0
    try:
        return ctypes.cast(ctypes.CDLL("libcuda.so.1").cuLaunchKernelEx, ctypes.c_void_p).value or 0
    except (OSError, AttributeError):
        return 0


def _is_plain(metadata: Any, early: bool) -> bool:
    """Whether a compiled kernel needs only its arguments (no scratch memory, no clusters) and is ``early`` if asked."""
    extras = ("global_scratch_size", "profile_scratch_size", "launch_cooperative_grid")
    plain = metadata.num_ctas == 1 and not any(getattr(metadata, name, None) for name in extras)
    return plain and bool(getattr(metadata, "launch_pdl", False)) == early


@cache
def can_be_early(index: int | None) -> bool:
    """Whether a kernel on this device may start before the previous one has ended: since Hopper."""
    if _INTERPRETED or index is None or torch.version.cuda is None:
        return False
    return torch.cuda.get_device_capability(index) >= (9, 0)


class Launch:
    """``programs`` programs of a kernel, with everything fixed but its tensors.

    A kernel takes tensors first, those of the call except at the positions ``without``, then ``integers``, then
    ``constants``: its compile-time arguments, in its own order, and last the tile's rows and channels. An ``early``
    kernel may start before the previous one has ended (programmatic dependent launch); it waits for it itself.
    ``constants`` and ``key``, together with the ``kind`` of each call, must determine the compiled variant, apart from
    how tensors are aligned.
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

    def __call__(self, kind: tuple[Any, ...], *tensors: Tensor | None) -> None:
        """Launch through Triton."""
        tensors = tuple(tensor for position, tensor in enumerate(tensors) if position not in self.without)
        arguments = (*tensors, *self.integers, *self.constants)
        options = self.tile.options | ({"launch_pdl": True} if self.early else {})
        unaligned = any(tensor is not None and tensor.data_ptr() & 15 for tensor in tensors)
        if _INTERPRETED or unaligned or self.wide:  # Triton finds the variant
            self.kernel[(self.programs,)](*arguments, **options)
            return
        compiled = _compiled.get((*self.key, kind))
        if compiled is None:
            _compiled[(*self.key, kind)] = self.kernel[(self.programs,)](*arguments, **options)
        else:
            compiled[(self.programs, 1, 1)](*arguments)

    def variant(self, kind: tuple[Any, ...]) -> bytes | None:
        """For the C library: the kernel and all its arguments but tensors, where it was compiled before."""
        compiled = None if self.wide else _compiled.get((*self.key, kind))
        if compiled is None or library is None or not _driver() or not _is_plain(compiled.metadata, self.early):
            return None
        threads, shared, without = 32 * self.tile.warps, compiled.metadata.shared, sum(1 << k for k in self.without)
        sizes = (self.programs, threads, shared, without, int(self.early), *self.integers)
        return library.variant(_driver(), compiled.function, *sizes)  # type: ignore[no-any-return]


class Launches:
    """Kernels that run one after another on the same tensors; running one twice does no harm.

    ``variants`` holds, for the C library, the compiled kernels by the ``kind`` of a call: the types of those tensors
    that a launch's key does not cover. A caller may pass them to ``library.launch`` itself, with addresses in place of
    tensors; if the result is not 0, the launch has to be repeated here.
    """

    __slots__ = ("launches", "variants")

    def __init__(self, *launches: Launch | None) -> None:
        self.launches = tuple(launch for launch in launches if launch is not None)
        self.variants: dict[tuple[Any, ...], bytes] = {}

    def __call__(self, kind: tuple[Any, ...], stream: int, *tensors: Tensor | None) -> None:
        """Run on the current stream, which is ``stream``."""
        ready = self.variants.get(kind) or self._find(kind)
        if ready is not None:
            assert library is not None
            if library.launch(ready, stream, *tensors) == 0:
                return  # otherwise a tensor is not aligned, or the driver refused: Triton takes care of both
        for launch in self.launches:
            launch(kind, *tensors)
        self._find(kind)

    def _find(self, kind: tuple[Any, ...]) -> bytes | None:
        """The variants of all launches, where each was compiled before."""
        found = [launch.variant(kind) for launch in self.launches]
        known = [variant for variant in found if variant is not None]
        if not known or len(known) < len(found):
            return None
        self.variants[kind] = b"".join(known)
        return self.variants[kind]


def on_device(device: torch.device) -> AbstractContextManager[Any]:
    """Make a device the current one, on which Triton launches."""
    elsewhere = device.index is not None and device.index != torch._C._cuda_getDevice()
    return torch.cuda.device(device) if elsewhere else nullcontext()


def launch(
    kernel: Any,
    device: torch.device,
    key: tuple[Any, ...],
    programs: int,
    tile: Tile,
    arguments: tuple[Any, ...],
    *constants: Any,
) -> None:
    """Launch ``programs`` programs of a kernel whose sizes change from call to call.

    As :class:`Launch`, but ``key`` also covers how tensors are aligned (:func:`kinds`).
    """
    constants = (*constants, tile.rows, tile.channels)
    wide = any(type(a) is int and a > _LARGEST_INT32 for a in arguments)  # Triton compiles another variant
    key = (id(kernel), device.index, tile, wide, *key)
    compiled = _compiled.get(key)
    with on_device(device):
        if compiled is not None:
            compiled[(programs, 1, 1)](*arguments, *constants)
            return
        compiled = kernel[(programs,)](*arguments, *constants, **tile.options)
    if not (_INTERPRETED or wide):
        _compiled[key] = compiled


# ---- scratch memory --------------------------------------------------------------------------------------------

# Programs of one launch count, in counters that begin at 0, which of them comes last; that one sets its counter back.
# So counters are 0 between launches, and the next launch of the stream can use the same ones. A CUDA graph may be
# replayed at any time, so each captured launch gets separate memory.

_COUNTERS = 1 << 14  # of a stream at first
_STOCK = 1 << 20  # counters of all launches captured in CUDA graphs, per device
_LARGEST_ROOM = 1 << 18  # elements that are worth keeping

_lock = threading.Lock()


def _to_keep(make: Callable[..., Tensor], size: int, dtype: torch.dtype, device: torch.device) -> Tensor:
    """Memory for later calls too: made by a thread of its own, which is not in inference mode, nor in a memory pool.

    With ``mode="reduce-overhead"``, ``torch.compile`` runs programs in a pool in which nothing may be left behind.
    """
    stream = torch.cuda.current_stream(device) if device.type == "cuda" else None

    def run() -> Tensor:
        with torch.cuda.stream(stream):
            return make((size,), dtype=dtype, device=device)

    with ThreadPoolExecutor(1) as thread:
        return thread.submit(run).result()


def _counters(count: int, device: torch.device) -> Tensor:
    return _to_keep(torch.zeros, count, torch.int32, device)


class Scratch:
    """The memory of one stream."""

    __slots__ = ("_counters", "_device", "_rooms", "_size")

    def __init__(self, device: torch.device) -> None:
        self._device, self._size = device, _COUNTERS
        self._counters = _counters(_COUNTERS, device)
        self._rooms: dict[torch.dtype, Tensor] = {}

    def counters(self, count: int) -> Tensor:
        """At least ``count`` zeros (int32), for a single launch, which leaves zeros behind."""
        if count > self._size:
            self._counters, self._size = _counters(2 * count, self._device), 2 * count
        return self._counters

    def room(self, size: int, dtype: torch.dtype) -> Tensor:
        """At least ``size`` elements, for a single launch: the next one gets the same memory."""
        if size > _LARGEST_ROOM:
            return torch.empty((size,), dtype=dtype, device=self._device)
        room = self._rooms.get(dtype)
        if room is None:
            room = self._rooms[dtype] = _to_keep(torch.empty, _LARGEST_ROOM, dtype, self._device)
        return room


class GraphScratch:
    """The memory of launches captured in CUDA graphs on one device.

    Counters come from a stock that was allocated and cleared beforehand. Once it is used up, or before it is there,
    they are allocated and cleared within the graph.
    """

    __slots__ = ("_device", "_stock", "_used")

    def __init__(self, device: torch.device, stock: Tensor | None = None) -> None:
        self._device, self._stock, self._used = device, stock, 0

    def counters(self, count: int) -> Tensor:
        """``count`` zeros, for one launch however often it is replayed."""
        with _lock:
            begin, end = self._used, self._used + -(-count // 4) * 4  # kernels need addresses divisible by 16
            if self._stock is None or end > self._stock.shape[0]:
                return torch.zeros(count, dtype=torch.int32, device=self._device)
            self._used = end
            return self._stock[begin : begin + count]

    def room(self, size: int, dtype: torch.dtype) -> Tensor:
        """As :meth:`Scratch.room`, but new for each launch."""
        return torch.empty((size,), dtype=dtype, device=self._device)


_stream_scratch: dict[tuple[int | None, int], Scratch] = {}
_graph_scratch: dict[int | None, GraphScratch] = {}


def scratch(device: torch.device, index: int | None, stream: int) -> Scratch | GraphScratch:
    """The memory of the current stream of a GPU; ``index`` is None on a CPU, where Triton's interpreter runs."""
    if index is not None and torch._C._cuda_isCurrentStreamCapturing():
        return _graph_scratch.get(index) or GraphScratch(device)
    return _stream_scratch.get((index, stream)) or _new_scratch(device, index, stream)


def _new_scratch(device: torch.device, index: int | None, stream: int) -> Scratch:
    with _lock:
        if index not in _graph_scratch:
            _graph_scratch[index] = GraphScratch(device, _counters(_STOCK, device))
        return _stream_scratch.setdefault((index, stream), Scratch(device))
