"""GCN, the graph convolutional network, as the paper trains it."""

from __future__ import annotations

from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.layers import make_norm
from graphnorm.models.classifier import GraphClassifier
from graphnorm.models.gin import aggregate_then_project
from graphnorm.models.linear import Linear
from graphnorm.models.one_hot import OneHot
from graphnorm.segments import Segments

__all__ = ["GCN", "GCNConvolution"]


class GCNConvolution(nn.Module):
    r"""Neighbour mean by the roots of the degrees, one linear layer, the normalization and ReLU.

    .. math:: h' = \mathrm{ReLU}\,N\big(W \hat D^{-1/2} (A + I) \hat D^{-1/2} h\big)

    where D̂ counts the self-loop that the equation puts on every node.
    """

    def __init__(self, in_features: int, hidden: int, norm: str = "graph") -> None:
        super().__init__()
        self.linear = Linear(in_features, hidden)
        self.norm = make_norm(norm, hidden, act="relu")

    def forward(
        self,
        h: Tensor | OneHot,
        adjacency: Adjacency,
        segments: Segments | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """(N, in_features) to (N, hidden); ``residual`` is added to the result."""
        scale = (adjacency.rowptr.diff() + 1).to(self.linear.weight.dtype).rsqrt()
        z = aggregate_then_project(self.linear, h, adjacency, scale=scale, self_weight=scale.new_ones(()))
        out: Tensor = self.norm(z, segments, residual=residual)
        return out


class GCN(GraphClassifier):
    """The paper's GCN: ``layers - 1`` convolutions of width ``hidden`` and a linear head."""

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
    ) -> None:
        widths = [in_features] + [hidden] * (layers - 2)
        convolutions = [GCNConvolution(width, hidden, norm) for width in widths[: layers - 1]]
        super().__init__(convolutions, hidden, num_outputs, readout=readout, dropout=dropout)
