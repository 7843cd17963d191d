"""The inputs that layers are measured on, and the bars they are held to."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor


@dataclass(frozen=True)
class Case:
    """One batch of graphs.

    Bars, in float32, are ratios: to PyTorch Geometric's time (at least), to the copy limit (at most).
    """

    name: str
    channels: int
    sizes: Callable[[int], Tensor]  # from the number of graphs (or nodes, for a single graph) to rows per graph
    count: int
    gpu_speedup: float
    gpu_limits: float | None
    cpu_speedup: float
    cpu_count: int | None = None  # a tenth where the full size would take minutes


def _between(low: int, high: int) -> Callable[[int], Tensor]:
    return lambda graphs: torch.randint(low, high, (graphs,), generator=_generator())


def _heavy_tail(graphs: int) -> Tensor:
    """Pareto sizes, 80 to 3,700 nodes, as threads of a discussion board have them."""
    uniform = torch.rand(graphs, generator=_generator())
    return (80 * uniform.clamp(min=1e-6) ** (-1 / 1.2)).clamp(max=3700).long()


def _one_graph(nodes: int) -> Tensor:
    return torch.tensor([nodes])


def _generator() -> torch.Generator:
    return torch.Generator().manual_seed(0)


CASES = [
    Case("128 x 18, C=64", 64, _between(10, 28), 128, 6, None, 6),
    Case("128 x 30, C=64", 64, _between(10, 50), 128, 6, None, 8),
    Case("256 x 25, C=300", 300, _between(10, 42), 256, 6, None, 7),
    Case("40000 x 30, C=64", 64, _between(10, 50), 40_000, 20, 1.25, 10, 4_000),
    Case("40000 x 30, C=300", 300, _between(10, 50), 40_000, 13, 1.3, 8, 4_000),
    Case("2000 heavy tail, C=64", 64, _heavy_tail, 2_000, 15, 1.6, 12, 200),
    Case("one graph of 10^6, C=64", 64, _one_graph, 1_000_000, 50, 1.6, 5, 100_000),
]
