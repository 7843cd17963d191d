"""Recording work as CUDA graphs, also while other threads use the same GPU."""

from __future__ import annotations

import threading
from collections.abc import Callable
from typing import Any

import torch

__all__ = ["record"]

_ONE_AT_A_TIME = threading.Lock()


def record(work: Callable[[], None], pool: Any = None, *, warm_up: int = 1) -> torch.cuda.CUDAGraph:
    """Give ``work`` as a CUDA graph; it is run ``warm_up`` times before, as libraries set themselves up at first use.

    A thread that has chosen a stream records on that: a new one might be another thread's, since torch hands out a
    fixed number of them in turn. What other threads do meanwhile does not spoil the recording.

    pool: of memory, shared between graphs that are never replayed at the same time.
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
    with _ONE_AT_A_TIME, torch.cuda.graph(graph, pool=pool, stream=aside, capture_error_mode="thread_local"):
        work()
    return graph
