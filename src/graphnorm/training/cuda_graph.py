"""Recording work as a CUDA graph while other threads use the GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from contextlib import suppress
from typing import Any

import torch

__all__ = ["record_cuda_graph"]

_ONE_RECORDING = threading.Lock()


def record_cuda_graph(work: Callable[[], None], pool: Any = None, *, warm_up: int = 1) -> torch.cuda.CUDAGraph:
    """Record ``work`` as a CUDA graph, after ``warm_up`` runs in which libraries initialise themselves.

    A thread that has chosen a stream records on it. A new stream might belong to another thread, since torch hands out
    a fixed number of them in turn. Other threads may use the GPU during the recording.

    pool: a memory pool, shared between graphs that are never replayed at the same time.
    """
    current = torch.cuda.current_stream()
    is_default = current == torch.cuda.default_stream()
    aside = torch.cuda.Stream() if is_default else current  # type: ignore[no-untyped-call]
    graph = torch.cuda.CUDAGraph()
    aside.wait_stream(current)
    with torch.cuda.stream(aside):
        for _ in range(warm_up):
            work()
    current.wait_stream(aside)
    recording = torch.cuda.graph(graph, pool=pool, stream=aside, capture_error_mode="thread_local")
    try:
        with (
            torch.cuda.stream(aside),
            _ONE_RECORDING,
            recording,
        ):  # the recording alone stays on its stream after an error
            work()
    except Exception:
        with suppress(RuntimeError):
            _end_recording(aside)
        raise
    return graph


def _end_recording(stream: torch.cuda.Stream) -> None:
    """After a recording that failed torch draws no random numbers on the GPU until another one succeeds: record one."""
    number = torch.zeros(1, device=stream.device)
    recording = torch.cuda.graph(torch.cuda.CUDAGraph(), stream=stream, capture_error_mode="thread_local")
    with torch.cuda.stream(stream), _ONE_RECORDING, recording:
        number += 1
