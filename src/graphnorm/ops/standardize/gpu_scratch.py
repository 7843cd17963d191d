"""Memory that launches of one stream use one after another.

Programs of one launch count, in counters that begin at 0, who of them comes last; that one sets its counter back. So
counters are 0 between launches, and the next launch of the stream can have the same. A CUDA graph may be replayed
beside anything, so each launch that is being recorded gets memory of its own.
"""

from __future__ import annotations

import threading

import torch
from torch import Tensor

_COUNTERS = 1 << 14  # that a stream begins with
_STOCK = 1 << 20  # counters of all launches that are recorded on one device
_LARGEST_ROOM = 1 << 18  # elements that are worth keeping

_lock = threading.Lock()


@torch.inference_mode(False)  # its tensors serve outside of it, too
def _zeros(count: int, device: torch.device) -> Tensor:
    return torch.zeros(count, dtype=torch.int32, device=device)


class Scratch:
    """The memory of one stream; made by :func:`scratch`."""

    __slots__ = ("_counters", "_device", "_rooms", "_size")

    def __init__(self, device: torch.device) -> None:
        self._device, self._size = device, _COUNTERS
        self._counters = _zeros(_COUNTERS, device)
        self._rooms: dict[torch.dtype, Tensor] = {}

    def counters(self, count: int) -> Tensor:
        """At least ``count`` zeros (int32), for a single launch, which leaves them as they were."""
        if count > self._size:
            self._counters, self._size = _zeros(2 * count, self._device), 2 * count
        return self._counters

    def room(self, size: int, dtype: torch.dtype) -> Tensor:
        """At least ``size`` elements, for a single launch: the next one gets the same."""
        if size > _LARGEST_ROOM:
            return torch.empty((size,), dtype=dtype, device=self._device)
        room = self._rooms.get(dtype)
        if room is None:
            room = self._rooms[dtype] = torch.empty((_LARGEST_ROOM,), dtype=dtype, device=self._device)
        return room


class ScratchOfGraphs:
    """The memory of launches that are being recorded on one device.

    Counters come from a stock that was made, and cleared, before; once it is used up, or where there is none yet, they
    are made, and cleared, in the graph itself.
    """

    __slots__ = ("_device", "_stock", "_used")

    def __init__(self, device: torch.device, stock: Tensor | None = None) -> None:
        self._device, self._stock, self._used = device, stock, 0

    def counters(self, count: int) -> Tensor:
        """``count`` zeros, for one launch however often it is replayed."""
        with _lock:
            begin, end = self._used, self._used + -(-count // 4) * 4  # kernels want addresses that 16 divides
            if self._stock is None or end > self._stock.shape[0]:
                return _zeros(count, self._device)
            self._used = end
            return self._stock[begin : begin + count]

    def room(self, size: int, dtype: torch.dtype) -> Tensor:
        """As :meth:`Scratch.room`, but of its own."""
        return torch.empty((size,), dtype=dtype, device=self._device)


_of_streams: dict[tuple[int | None, int], Scratch] = {}
_of_graphs: dict[int | None, ScratchOfGraphs] = {}


def scratch(device: torch.device, index: int | None, stream: int) -> Scratch | ScratchOfGraphs:
    """The memory of the current stream of a GPU; ``index`` is None on a CPU, where Triton's interpreter runs."""
    if index is not None and torch._C._cuda_isCurrentStreamCapturing():
        return _of_graphs.get(index) or ScratchOfGraphs(device)
    return _of_streams.get((index, stream)) or _new_stream(device, index, stream)


def _new_stream(device: torch.device, index: int | None, stream: int) -> Scratch:
    with _lock:
        if index not in _of_graphs:
            _of_graphs[index] = ScratchOfGraphs(device, _zeros(_STOCK, device))
        return _of_streams.setdefault((index, stream), Scratch(device))
