"""The layers at work, in a few seconds: equal to PyTorch Geometric, faster, and what a learned shift keeps.

Run it with ``python examples/demo.py``. PyTorch Geometric is used where it is installed.
"""

from __future__ import annotations

import time
import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

import graphnorm
from graphnorm import GraphNorm, InstanceNorm, Segments

try:
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        from torch_geometric.nn.norm import GraphNorm as PyGGraphNorm
except ImportError:
    PyGGraphNorm = None


def say(text: str = "") -> None:
    """Print at once, so that progress is seen."""
    print(text, flush=True)


def molecules(graphs: int, mean_size: int, channels: int) -> tuple[Tensor, Tensor]:
    """Random features of graphs about as large as molecules, and the graph of every node."""
    sizes = torch.randint(mean_size // 2, mean_size + mean_size // 2 + 1, (graphs,))
    batch = torch.repeat_interleave(torch.arange(graphs), sizes)
    return torch.randn(len(batch), channels), batch


def seconds(step: Callable[[], Any], budget: float = 0.5) -> float:
    """The median time of a step."""
    step()
    times: list[float] = []
    end = time.perf_counter() + budget
    while time.perf_counter() < end or len(times) < 3:
        start = time.perf_counter()
        step()
        times.append(time.perf_counter() - start)
    return sorted(times)[len(times) // 2]


def drop_in() -> None:
    """Same state dict, same call, same numbers."""
    say("1  Drop-in: a trained layer of PyTorch Geometric, loaded here")
    if PyGGraphNorm is None:
        say("   torch_geometric is not installed; skipped (pip install torch_geometric)")
        return
    theirs, ours = PyGGraphNorm(64).double(), GraphNorm(64).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.add_(0.3 * torch.randn_like(parameter))
    ours.load_state_dict(theirs.state_dict())
    x, batch = molecules(128, 18, 64)
    a, b = (x.double().requires_grad_() for _ in range(2))
    y, z = ours(a, batch), theirs(b, batch)
    for output in (y, z):
        output.pow(3).sum().backward()
    say(f"   largest difference of outputs:   {(y - z).abs().max().item():.1e}")
    say(f"   largest difference of gradients: {(a.grad - b.grad).abs().max().item():.1e}")


def speed() -> None:
    """Forward and backward, float32, on this machine's CPU."""
    say("\n2  Speed: forward + backward on this CPU, float32")
    say("    graphs   nodes    C   graphnorm   reference         PyG   vs PyG")
    for graphs, mean_size, channels in ((128, 18, 64), (128, 30, 64), (256, 25, 300), (2000, 30, 64)):
        x, batch = molecules(graphs, mean_size, channels)
        x, dy = x.requires_grad_(), torch.randn_like(x)
        segments, ours = Segments(batch=batch, batch_size=graphs), GraphNorm(channels)

        def step(norm: Any, *arguments: Any, x: Tensor = x, dy: Tensor = dy) -> None:
            torch.autograd.grad(norm(x, *arguments), [x, *norm.parameters()], dy)

        fused = seconds(lambda: step(ours, segments))  # noqa: B023
        with graphnorm.backend("reference"):
            plain = seconds(lambda: step(ours, segments))  # noqa: B023
        line = f"   {graphs:>7} {len(x):>7} {channels:>4} {fused * 1e3:>8.2f} ms {plain * 1e3:>8.2f} ms"
        if PyGGraphNorm is None:
            say(f"{line} {'-':>11} {'-':>8}")
            continue
        theirs = PyGGraphNorm(channels)
        other = seconds(lambda: step(theirs, batch, graphs))  # noqa: B023
        say(f"{line} {other * 1e3:>8.2f} ms {other / fused:>7.1f}x")
    say("   C library: " + ("in use" if graphnorm.backends.library is not None else "not built, plain torch is used"))


def regular_graphs() -> None:
    """Proposition 1: subtracting the whole mean erases the degree of a regular graph."""
    say("\n3  Why a learned shift: rings (degree 2) against complete graphs (degree 5), 6 nodes each")
    say("   The only feature is the degree. What is left after one GIN layer and a norm:")
    ring = torch.eye(6).roll(1, 0) + torch.eye(6).roll(-1, 0)
    complete = torch.ones(6, 6) - torch.eye(6)
    h = torch.cat([(a + torch.eye(6)) @ a.sum(1, keepdim=True) for a in (ring, complete)])
    segments = Segments(sizes=[6, 6])
    norm = GraphNorm(1, eps=1.0)
    with torch.no_grad():
        norm.mean_scale.fill_(0.5)
        rows = {
            "InstanceNorm": InstanceNorm(1, eps=1.0)(h, segments),
            "GraphNorm, α = 0.5": norm(h, segments),
        }
    say(f"   {'':<20} {'ring':>8} {'complete':>9}")
    for name, y in rows.items():
        say(f"   {name:<20} {y[0].item():>8.3f} {y[6].item():>9.3f}")
    say("   To InstanceNorm the two kinds of graph are the same; GraphNorm tells them apart.")


def main() -> None:
    """Run the three parts."""
    torch.manual_seed(0)
    say(f"graphnorm {graphnorm.__version__}, torch {torch.__version__}, {torch.get_num_threads()} threads\n")
    drop_in()
    speed()
    regular_graphs()


if __name__ == "__main__":
    main()
