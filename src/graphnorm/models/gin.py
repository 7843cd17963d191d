"""GIN, the graph isomorphism network, as the paper trains it."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.layers import make_norm
from graphnorm.models.classifier import GraphClassifier
from graphnorm.models.linear import Linear
from graphnorm.models.one_hot import OneHot
from graphnorm.ops.neighbour_sum import aggregate
from graphnorm.segments import Segments

__all__ = ["GIN", "GINConvolution", "aggregate_then_project"]


class GINConvolution(nn.Module):
    r"""Neighbour sum, then two linear layers, each followed by the normalization and ReLU.

    .. math:: h' = \mathrm{ReLU}\,N\big(W_2\,\mathrm{ReLU}\,N(W_1 (A + I + \xi I) h)\big)

    with ξ learned, starting at 0. ``self_loops`` puts a self-loop on every node besides, as the authors' data has it:
    A + (2+ξ)I.

    >>> layer = GINConvolution(3, 8)
    >>> layer(torch.randn(2, 3), Adjacency(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)).shape
    torch.Size([2, 8])
    """

    def __init__(self, in_features: int, hidden: int, norm: str = "graph", *, self_loops: bool = False) -> None:
        super().__init__()
        self.self_loops = self_loops
        self.xi = nn.Parameter(torch.zeros(()))
        self.first = Linear(in_features, hidden)
        self.first_norm = make_norm(norm, hidden, act="relu")
        self.second = Linear(hidden, hidden)
        self.second_norm = make_norm(norm, hidden, act="relu")

    def forward(
        self,
        h: Tensor | OneHot,
        adjacency: Adjacency,
        segments: Segments | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """(N, in_features) to (N, hidden); ``residual`` is added to the result."""
        own = self.xi + (2 if self.self_loops else 1)
        z = self.first_norm(aggregate_then_project(self.first, h, adjacency, self_weight=own), segments)
        out: Tensor = self.second_norm(self.second(z), segments, residual=residual)
        return out


def aggregate_then_project(
    linear: nn.Linear, h: Tensor | OneHot, adjacency: Adjacency, *, self_weight: Tensor, scale: Tensor | None = None
) -> Tensor:
    """W·Q·h + b, by whichever order moves less: Q mixes rows and W mixes columns, so they commute."""
    if linear.in_features <= linear.out_features:
        h = h.dense() if isinstance(h, OneHot) else h
        out: Tensor = linear(aggregate(h, adjacency, self_weight=self_weight, scale=scale))
        return out
    narrow = h.project(linear.weight) if isinstance(h, OneHot) else h @ linear.weight.T
    mixed = aggregate(narrow, adjacency, self_weight=self_weight, scale=scale)
    return mixed if linear.bias is None else mixed + linear.bias


class GIN(GraphClassifier):
    """The paper's GIN: ``layers - 1`` convolutions of width ``hidden`` and a linear head.

    >>> model = GIN(in_features=7, num_outputs=2, norm="graph")
    >>> edge_index = torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]])
    >>> model(torch.randn(3, 7), edge_index, batch=torch.tensor([0, 0, 0])).shape
    torch.Size([1, 2])
    """

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        *,
        hidden: int = 64,
        layers: int = 5,
        norm: str = "graph",
        readout: str = "sum",
        dropout: float = 0.5,
        self_loops: bool = False,
    ) -> None:
        widths = [in_features] + [hidden] * (layers - 2)
        convolutions = [GINConvolution(width, hidden, norm, self_loops=self_loops) for width in widths[: layers - 1]]
        super().__init__(convolutions, hidden, num_outputs, readout=readout, dropout=dropout)
