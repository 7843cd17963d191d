"""The graph-agnostic baseline: a perceptron on the sum or mean of a graph's node features."""

from __future__ import annotations

from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.models.classifier import READOUTS, graph_structure
from graphnorm.models.dropout import Dropout, DropoutKey
from graphnorm.models.linear import Linear
from graphnorm.ops.neighbour_sum import pool
from graphnorm.segments import Segments

__all__ = ["MLP"]


class MLP(nn.Module):
    """``layers`` linear layers with ReLU between them, on pooled node features; edges have no part in it.

    What a model of graphs gains over it, it gains from the structure.
    """

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        *,
        hidden: int = 64,
        layers: int = 5,
        readout: str = "sum",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(f"readout is {readout!r}; it can be 'sum' or 'mean'")
        if layers < 2:
            raise ValueError("the perceptron needs at least two layers")
        widths = [in_features] + [hidden] * (layers - 2)
        self.linears = nn.ModuleList(Linear(width, hidden) for width in widths)
        self.head = Linear(hidden, num_outputs)
        self.readout, self.dropout = readout, Dropout(dropout)

    def forward(
        self,
        x: Tensor,
        edges: Tensor | Adjacency,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """(G, num_outputs): the scores. Arguments as in :class:`graphnorm.models.GraphClassifier`."""
        _, segments = graph_structure(x, edges, batch, batch_size)
        z = pool(x, segments, self.readout)
        for linear in self.linears:
            z = linear(z).relu()
        scores: Tensor = self.head(self.dropout(z, dropout_key))
        return scores
