"""What all models share: convolutions, a readout, a linear head, dropout on its scores."""

from __future__ import annotations

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.models.dropout import Dropout, DropoutKey
from graphnorm.models.linear import Linear
from graphnorm.models.one_hot import OneHot
from graphnorm.ops.neighbour_sum import pool
from graphnorm.segments import Segments, as_segments

__all__ = ["READOUTS", "GraphClassifier"]

READOUTS = ("sum", "mean")


class GraphClassifier(nn.Module):
    """Convolutions, then the sum or mean over each graph's nodes, then a linear head.

    The readout takes the last convolution's output only. Every convolution but the first adds its input to its output
    (the first changes the width). Dropout acts on the head's scores, as in the authors' code.

    Args:
        convolutions: modules called as ``convolution(h, adjacency, segments, residual=None)``.
        hidden: the width of their output.
        num_outputs: how many scores a graph gets.
        readout: ``"sum"`` or ``"mean"``.
        dropout: the share of scores dropped in training.
    """

    def __init__(
        self,
        convolutions: Sequence[nn.Module],
        hidden: int,
        num_outputs: int,
        *,
        readout: str = "sum",
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if readout not in READOUTS:
            raise ValueError(f"readout is {readout!r}; it can be 'sum' or 'mean'")
        if not convolutions:
            raise ValueError("a model needs at least two layers: a convolution and the linear head")
        self.convolutions = nn.ModuleList(convolutions)
        self.head = Linear(hidden, num_outputs)
        self.readout, self.dropout = readout, Dropout(dropout)

    def forward(
        self,
        x: Tensor | OneHot,
        edges: Tensor | Adjacency,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """Score every graph of a batch.

        x: (N, F) node features, or :class:`OneHot` in their place.
        edges: PyTorch Geometric's ``edge_index`` (2, E), or an :class:`Adjacency`.
        batch: the graph of each node, or :class:`Segments`; left out, all nodes are one graph.
        dropout_key: see :class:`Dropout`.

        Returns:
            (G, num_outputs): the scores.
        """
        first = x.category if isinstance(x, OneHot) else x
        adjacency, segments = graph_structure(first, edges, batch, batch_size)
        h = self.convolutions[0](x, adjacency, segments)
        for convolution in self.convolutions[1:]:
            h = convolution(h, adjacency, segments, residual=h)
        scores: Tensor = self.head(pool(h, segments, self.readout))
        dropped: Tensor = self.dropout(scores, dropout_key)
        return dropped


def graph_structure(
    x: Tensor, edges: Tensor | Adjacency, batch: Tensor | Segments | None, batch_size: int | None
) -> tuple[Adjacency, Segments]:
    """The two objects that layers take, from what people hand over."""
    rows = x.shape[0]
    adjacency = edges if isinstance(edges, Adjacency) else Adjacency(edge_index=edges, num_nodes=rows)
    segments = as_segments(batch, batch_size)
    if segments is None:
        segments = Segments(ptr=torch.tensor([0, rows], device=x.device), num_rows=rows, max_size=rows)
    return adjacency, segments
