"""Measure neighbour sums and readouts against PyTorch Geometric's, forward and backward.

``PYTHONPATH=src:. python -m benchmarks.neighbour_sum [--device cuda]``. Every figure is a ratio of two times of one
run, taken in turns. A time counts only after the result was checked against float64. Graphs are drawn at random, with
about the sizes and degrees of the datasets they are named after. Stacks of members run under ``torch.func.vmap``;
PyTorch Geometric has no such form, so they are compared with as many separate calls.
Writes ``benchmarks/results/neighbour-sum-DEVICE.csv``.
"""

from __future__ import annotations

import argparse
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GCNConv, GINConv, global_add_pool

import graphnorm
from benchmarks.facts import announce, write_table
from benchmarks.run import graphed, medians
from graphnorm.ops.neighbour_sum import aggregate, pool


@dataclass(frozen=True)
class Case:
    """A batch of undirected graphs: sizes around ``nodes``, ``degree`` neighbours on average."""

    name: str
    graphs: int
    nodes: int
    degree: float
    channels: int = 64
    hubs: bool = False  # most edges of a graph lead to one of its first three nodes
    members: int = 1


CASES = [
    Case("MUTAG 128 x 18", 128, 18, 2.2),
    Case("NCI1 128 x 30", 128, 30, 2.2),
    Case("NCI1 C=300", 128, 30, 2.2, channels=300),
    Case("COLLAB 128 x 75", 128, 75, 65.0),
    Case("REDDIT 128 x 430", 128, 430, 2.3, hubs=True),
    Case("NCI1, 10 members", 128, 30, 2.2, members=10),
    Case("NCI1, 60 members", 128, 30, 2.2, members=60),
    Case("NCI1, 300 members", 128, 30, 2.2, members=300),
]


class Problem:
    """The tensors of one case, and what is timed on them."""

    def __init__(self, case: Case, device: torch.device) -> None:
        draw = torch.Generator().manual_seed(0)
        sizes = torch.randint(case.nodes // 2, case.nodes * 3 // 2, (case.graphs,), generator=draw)
        rows = int(sizes.sum())
        batch = torch.repeat_interleave(torch.arange(case.graphs), sizes)
        first = torch.nn.functional.pad(sizes.cumsum(0), (1, 0))[:-1]
        pairs = int(rows * case.degree / 2)
        one = torch.randint(0, rows, (pairs,), generator=draw)
        reach = torch.full_like(one, 3) if case.hubs else sizes[batch[one]]
        other = first[batch[one]] + (torch.rand(pairs, generator=draw) * reach).long()
        one, other = one[one != other], other[one != other]  # GCNConv means something else by loops
        self.edge_index = torch.stack([torch.cat([one, other]), torch.cat([other, one])]).to(device)
        order = self.edge_index[1].argsort(stable=True)
        self.edge_index = self.edge_index[:, order]  # as PyTorch Geometric's loader has it, near enough
        found = graphnorm.Adjacency(edge_index=self.edge_index, num_nodes=rows, symmetric=True)
        degree = found.rowptr.diff()
        self.adjacency = graphnorm.Adjacency(rowptr=found.rowptr, col=found.col, symmetric=True)
        self.segments, self.batch = graphnorm.Segments(batch=batch).to(device), batch.to(device)
        self.graphs, self.members = case.graphs, case.members
        shape = (case.members, rows, case.channels) if case.members > 1 else (rows, case.channels)
        self.x = torch.randn(shape, generator=draw).to(device).requires_grad_()
        self.dy = torch.randn(shape, generator=draw).to(device)
        self.dy_pool = torch.randn((*shape[:-2], case.graphs, case.channels), generator=draw).to(device)
        self.weight = torch.full(shape[:-2], 1.1).to(device).requires_grad_()
        self.scale = (degree + 1.0).rsqrt()
        self.gin = GINConv(torch.nn.Identity(), eps=0.1, train_eps=True).to(device)
        self.gcn = GCNConv(case.channels, case.channels, bias=False, cached=True).to(device)
        self.gcn.lin = torch.nn.Identity()

    def mapped(self, function: Callable[..., Tensor], *arguments: Tensor) -> Tensor:
        """The function over all members, if there are several."""
        return torch.func.vmap(function)(*arguments) if self.members > 1 else function(*arguments)

    def ours_gin(self) -> tuple[Tensor, ...]:
        """GIN's sum with a learned self weight: y, dx, dw."""
        y = self.mapped(lambda x, w: aggregate(x, self.adjacency, self_weight=w), self.x, self.weight)
        return (y, *torch.autograd.grad(y, (self.x, self.weight), self.dy))

    def ours_gcn(self) -> tuple[Tensor, ...]:
        """GCN's scaled sum: y, dx."""
        y = self.mapped(lambda x: aggregate(x, self.adjacency, self_weight=1.0, scale=self.scale), self.x)
        return (y, *torch.autograd.grad(y, self.x, self.dy))

    def ours_pool(self) -> tuple[Tensor, ...]:
        """The readout by sums: y, dx."""
        y = self.mapped(lambda x: pool(x, self.segments), self.x)
        return (y, *torch.autograd.grad(y, self.x, self.dy_pool))

    def _each(self, function: Callable[[Tensor, Tensor], tuple[Tensor, ...]], dy: Tensor) -> tuple[Tensor, ...]:
        if self.members == 1:
            return function(self.x, dy)
        alone = [function(x.requires_grad_(), d) for x, d in zip(self.x.detach(), dy, strict=True)]
        return tuple(torch.stack(parts) for parts in zip(*alone, strict=True))

    def pyg_gin(self) -> tuple[Tensor, ...]:
        """The same by GINConv."""

        def one(x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
            y = self.gin(x, self.edge_index)
            dx, dw = torch.autograd.grad(y, (x, self.gin.eps), dy)
            return y, dx, dw.reshape(())

        return self._each(one, self.dy)

    def pyg_gcn(self) -> tuple[Tensor, ...]:
        """The same by GCNConv, its scales cached, without its matrix."""

        def one(x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
            y = self.gcn(x, self.edge_index)
            return (y, *torch.autograd.grad(y, x, dy))

        return self._each(one, self.dy)

    def pyg_pool(self) -> tuple[Tensor, ...]:
        """The same by global_add_pool."""

        def one(x: Tensor, dy: Tensor) -> tuple[Tensor, ...]:
            y = global_add_pool(x, self.batch, self.graphs)
            return (y, *torch.autograd.grad(y, x, dy))

        return self._each(one, self.dy_pool)

    def truth(self, name: str) -> tuple[Tensor, ...]:
        """PyTorch Geometric's answer in float64."""
        kept = self.x, self.dy, self.dy_pool, self.gin, self.gcn
        self.x, self.dy, self.dy_pool = (t.detach().double() for t in kept[:3])
        self.x.requires_grad_()
        self.gin = GINConv(torch.nn.Identity(), eps=kept[3].eps.item(), train_eps=True).double().to(self.x.device)
        self.gcn = GCNConv(self.x.shape[-1], self.x.shape[-1], bias=False).to(self.x.device)
        self.gcn.lin = torch.nn.Identity()
        try:
            answer: tuple[Tensor, ...] = getattr(self, f"pyg_{name}")()
        finally:
            self.x, self.dy, self.dy_pool, self.gin, self.gcn = kept
        return answer


def worst_error(found: tuple[Tensor, ...], right: tuple[Tensor, ...]) -> float:
    """The largest relative error over output and gradients."""
    errors = [
        float((f.detach().double() - r.detach()).norm() / r.detach().norm()) for f, r in zip(found, right, strict=True)
    ]
    return max(errors)


def measure(case: Case, device: torch.device, seconds: float) -> list[dict[str, Any]]:
    problem, rows = Problem(case, device), []
    for name in ("gin", "gcn", "pool"):
        ours, pyg = getattr(problem, f"ours_{name}"), getattr(problem, f"pyg_{name}")
        error = worst_error(ours(), problem.truth(name))
        if not error < 1e-5:
            raise SystemExit(f"{case.name}, {name}: wrong by {error:.1e}; no time is taken of a wrong answer")
        functions: dict[str, Callable[[], Any]] = {"ours": ours, "pyg": pyg}
        if device.type == "cuda":
            functions["ours_graph"] = graphed(ours)
            if case.members == 1:
                functions["pyg_graph"] = graphed(pyg)
        times = medians(functions, device, seconds)
        row: dict[str, Any] = {"case": case.name, "operation": name, "error": error}
        row |= {f"{key}_us": round(value, 1) for key, value in times.items()}
        row |= {"speedup": times["pyg"] / times["ours"]}
        if "pyg_graph" in times:
            row["speedup_graph"] = times["pyg_graph"] / times["ours_graph"]
        rows.append(row)
        graph = "" if "ours_graph" not in times else f"  as a CUDA graph {times['ours_graph']:9.1f} us"
        print(
            f"{case.name:20s} {name:5s} {times['ours']:10.1f} us {times['pyg']:10.1f} us  {row['speedup']:6.1f}x  "
            f"error {error:.1e}{graph}",
            flush=True,
        )
    return rows


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=2.0, help="per case and operation, for the clock (default 2)")
    parser.add_argument("--most-members", type=int, help="leave out larger stacks (default: 10 on a CPU, else none)")
    parser.add_argument("--out", type=Path, help="the CSV (default: benchmarks/results/neighbour-sum-DEVICE.csv)")
    options = parser.parse_args()
    device = torch.device(options.device)
    most = options.most_members or (10 if device.type == "cpu" else 10**9)
    made = announce(device, "torch_geometric")
    rows = [row for case in CASES if case.members <= most for row in measure(case, device, options.seconds)]
    write_table("neighbour-sum", rows, made, options.out)


if __name__ == "__main__":
    main()
