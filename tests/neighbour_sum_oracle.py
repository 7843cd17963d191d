"""Neighbour sums, independent of the library: float64, by incidence matrices, gradients by torch."""

from __future__ import annotations

from typing import Any

import torch
from torch import Tensor

from graphnorm import Adjacency
from graphnorm.ops.neighbour_sum import aggregate
from oracle import Checked


def neighbours(
    x: Tensor,
    edge_index: Tensor,
    *,
    self_weight: Tensor | float = 0.0,
    scale: Tensor | None = None,
    edge_x: Tensor | None = None,
    relu: bool = False,
    reduce: str = "sum",
) -> Tensor:
    """The definition, with incidence matrices: one row per edge."""
    source, target = (edge_index[..., None] == torch.arange(len(x))).to(x.dtype)
    s = torch.ones(len(x), 1, dtype=x.dtype) if scale is None else scale[:, None]
    message = source @ x if edge_x is None else source @ x + edge_x
    message = (source @ s) * (torch.relu(message) if relu else message)
    total = target.T @ message
    if reduce == "mean":
        total = total / target.sum(0).clamp(min=1)[:, None]
    return s * (total + self_weight * s * x)


class Case(Checked):
    """A random multigraph with loops and rows without edges, and the inputs of one call of ``aggregate``."""

    def __init__(
        self,
        rows: int,
        edges: int,
        channels: int = 5,
        *,
        dtype: torch.dtype = torch.float64,
        index: torch.dtype = torch.int64,
        device: torch.device | str = "cpu",
        parts: tuple[str, ...] = ("self_weight", "scale", "edge_x"),
        symmetric: bool = False,
        hub: int = 0,
        padding: int = 0,
        seed: int = 0,
        **options: Any,
    ) -> None:
        draw = torch.Generator().manual_seed(seed)

        def normal(*shape: int) -> Tensor:
            return torch.randn(shape, generator=draw, dtype=torch.float64)

        edge_index = torch.randint(0, max(1, rows), (2, edges if rows else 0), generator=draw)
        if hub:  # so many more edges lead to one row
            extra = torch.randint(0, rows, (hub,), generator=draw)
            edge_index = torch.cat([edge_index, torch.stack([extra, torch.full_like(extra, rows // 2)])], 1)
        if symmetric:
            edge_index = torch.cat([edge_index, edge_index.flip(0)], 1)
        self.edge_index = edge_index
        if padding:
            ordered = edge_index[:, edge_index[1].argsort(stable=True)]
            self.edge_index = ordered
            counts = torch.bincount(ordered[1], minlength=rows)
            rowptr = torch.nn.functional.pad(counts.cumsum(0), (1, 0))
            col = torch.nn.functional.pad(ordered[0], (0, padding))
            adjacency = Adjacency(rowptr=rowptr.to(index), col=col.to(index), symmetric=symmetric)
        else:
            adjacency = Adjacency(edge_index=edge_index.to(index), num_nodes=rows, symmetric=symmetric)
        self.adjacency, self.padding, self.options = adjacency.to(device), padding, options
        made = {"x": normal(rows, channels), "dy": normal(rows, channels)}
        if "self_weight" in parts:
            made["self_weight"] = 1 + normal()
        if "scale" in parts:
            made["scale"] = normal(rows).abs() + 0.3
        if "edge_x" in parts:
            made["edge_x"] = normal(adjacency.num_edges, channels)
        super().__init__(made, ("x", "dy", "edge_x"), dtype, device)

    def _run(self, tensors: dict[str, Tensor], oracle: bool) -> dict[str, Tensor]:
        leaves = {k: t.detach().requires_grad_(k != "scale") for k, t in tensors.items() if k != "dy"}
        given = dict(leaves)
        if oracle:
            if self.padding and "edge_x" in given:
                given["edge_x"] = given["edge_x"][: -self.padding]
            y = neighbours(edge_index=self.edge_index, **given, **self.options)
        else:
            y = aggregate(adjacency=self.adjacency, **given, **self.options)
        wanted = {name: leaf for name, leaf in leaves.items() if name != "scale"}
        gradients = torch.autograd.grad(y, list(wanted.values()), tensors["dy"])
        return {"y": y.detach()} | dict(zip(wanted, gradients, strict=True))
