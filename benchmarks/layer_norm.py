"""Measure LayerNorm with its tail, forward and backward, against torch's layer norm, relu and addition.

``PYTHONPATH=src:. python -m benchmarks.layer_norm [--device cuda]``. Every figure is a ratio of two times of one run,
taken in turns. A time counts only after the result was checked against float64. Stacks of members, each with a weight
and a bias of its own, run under ``torch.func.vmap`` on both sides.
Writes ``benchmarks/results/layer-norm-DEVICE.csv``.

"Limit": 3 copies of x for forward + backward (x, residual and y; x, dy and dx: 6 reads or writes of x's size, a copy
being 2).
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch.nn import functional

from benchmarks.facts import announce, write_table
from benchmarks.neighbour_sum import worst_error
from benchmarks.run import graphed, medians
from graphnorm.layers.functional import layer_norm

SHAPES = [  # members, rows, channels
    (1, 2_300, 64), (1, 6_400, 300), (1, 120_000, 64), (10, 3_840, 64), (60, 3_840, 64), (300, 3_840, 64),
]  # fmt: skip
MOST_ON_CPU = 10_000_000  # elements


def ours(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Our operation: one pass."""
    return layer_norm(x, weight, bias, act="relu", residual=residual)


def composed(x: Tensor, residual: Tensor, weight: Tensor, bias: Tensor) -> Tensor:
    """Torch's operations: three passes."""
    return torch.relu(functional.layer_norm(x, x.shape[-1:], weight, bias)) + residual


def step(layer: Callable[..., Tensor], leaves: list[Tensor], dy: Tensor) -> tuple[Tensor, ...]:
    """Output and all gradients."""
    y = (layer if dy.dim() == 2 else torch.func.vmap(layer))(*leaves)
    return (y, *torch.autograd.grad(y, leaves, dy))


def measure(shape: tuple[int, int, int], device: torch.device, seconds: float) -> dict[str, Any]:
    """One row of the table."""
    draw = torch.Generator().manual_seed(0)
    lead = shape[:1] if shape[0] > 1 else ()
    rows = [torch.randn(*lead, *shape[1:], generator=draw) for _ in range(3)]
    parameters = [torch.randn(*lead, shape[2], generator=draw) for _ in range(2)]
    *leaves, dy = (t.to(device) for t in (*rows[:2], *parameters, rows[2]))
    leaves = [t.requires_grad_() for t in leaves]
    exact = step(composed, [t.detach().double().requires_grad_() for t in leaves], dy.double())
    found = step(ours, leaves, dy)
    # a value that rounds to the other side of 0 moves a gradient by a whole entry, here and there
    error = worst_error(found, exact)
    if not error < 1e-3:
        raise SystemExit(f"{shape}: wrong by {error:.1e}; no time is taken of a wrong answer")
    del exact, found
    functions: dict[str, Callable[[], Any]] = {
        "copy": lambda: dy.clone(),
        "ours": lambda: step(ours, leaves, dy),
        "torch": lambda: step(composed, leaves, dy),
    }
    if device.type == "cuda":
        functions |= {f"{name}_graph": graphed(functions[name]) for name in ("ours", "torch")}
    times = medians(functions, device, seconds)
    quickest = times.get("ours_graph", times["ours"])
    row: dict[str, Any] = dict(zip(("members", "rows", "channels"), shape, strict=True)) | {"error": error}
    row |= {f"{name}_us": round(value, 1) for name, value in times.items()}
    row |= {"speedup": times["torch"] / times["ours"], "limits": quickest / (3 * times["copy"])}
    if "ours_graph" in times:
        row["speedup_graph"] = times["torch_graph"] / times["ours_graph"]
    print("  ".join(f"{key} {value:.4g}" for key, value in row.items()), flush=True)
    return row


def main() -> None:
    """Measure all shapes that the device is large enough for."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="per shape, for the clock (default 2)")
    parser.add_argument("--out", type=Path, help="the CSV to write (default: benchmarks/results/layer-norm-DEVICE.csv)")
    options = parser.parse_args()
    device = torch.device(options.device)
    made = announce(device)
    most = MOST_ON_CPU if device.type == "cpu" else 10**12
    shapes = [shape for shape in SHAPES if shape[0] * shape[1] * shape[2] <= most]
    rows = [measure(shape, device, options.seconds) for shape in shapes]
    write_table("layer-norm", rows, made, options.out)


if __name__ == "__main__":
    main()
