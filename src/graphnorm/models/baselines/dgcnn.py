"""DGCNN, the deep graph convolutional network with sort pooling (Zhang et al., 2018)."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.models.classifier import graph_structure
from graphnorm.models.dropout import Dropout, DropoutKey
from graphnorm.models.linear import Linear
from graphnorm.ops.neighbour_sum import aggregate
from graphnorm.segments import Segments

__all__ = ["DGCNN", "rows_kept", "sort_pool"]

FIRST_CHANNELS, SECOND_CHANNELS, WINDOW, DENSE = 16, 32, 5, 128
"""Of the two one-dimensional convolutions, the length of the second one, and the dense layer, as in the paper."""
LEAST_ROWS = 2 * WINDOW
"""Of sort pooling: what leaves one window after the pooling in between."""


class DGCNN(nn.Module):
    r"""Graph convolutions, then the nodes in the order of the last channel, then a one-dimensional network on them.

    .. math:: H_{t+1} = \tanh\bigl(\tilde D^{-1} (A + I) H_t W_t\bigr)

    The outputs of all convolutions stand side by side; the last has a single channel, which sorts the nodes. ``rows``
    of them are kept, or zeros added where a graph has fewer. ``layers`` counts the head: with 5 there are four
    convolutions, of ``hidden``, ``hidden``, ``hidden`` and 1 channels.
    """

    def __init__(
        self,
        in_features: int,
        num_outputs: int,
        *,
        rows: int = 30,
        hidden: int = 32,
        layers: int = 5,
        dropout: float = 0.5,
    ) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError("a model needs at least two layers: a convolution and the linear head")
        if rows < LEAST_ROWS:
            raise ValueError(f"rows is {rows}; sort pooling keeps at least {LEAST_ROWS} nodes")
        widths = [in_features, *[hidden] * (layers - 2), 1]
        self.rows = rows
        self.convolutions = nn.ModuleList(Linear(a, b) for a, b in itertools.pairwise(widths))
        self.across = Linear(sum(widths[1:]), FIRST_CHANNELS)
        self.along = Linear(FIRST_CHANNELS * WINDOW, SECOND_CHANNELS)
        self.dense = Linear(SECOND_CHANNELS * (rows // 2 - WINDOW + 1), DENSE)
        self.dropout = Dropout(dropout)
        self.head = Linear(DENSE, num_outputs)

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
        adjacency, segments = graph_structure(x, edges, batch, batch_size)
        closed = (adjacency.rowptr.diff() + 1).to(x.dtype)[:, None]  # neighbours and the node itself
        outputs = []
        for linear in self.convolutions:
            x = (aggregate(linear(x), adjacency, self_weight=1.0) / closed).tanh()
            outputs.append(x)
        kept = sort_pool(torch.cat(outputs, dim=-1), segments, self.rows)
        z = _rowwise(self.across, kept).relu()
        half = self.rows // 2
        z = z[:, : 2 * half].reshape(len(z), half, 2, -1).amax(2)
        windows = torch.stack([z[:, k : half - WINDOW + 1 + k] for k in range(WINDOW)], dim=2).flatten(2)
        z = self.dense(_rowwise(self.along, windows).relu().flatten(1)).relu()
        scores: Tensor = self.head(self.dropout(z, dropout_key))
        return scores


def _rowwise(linear: nn.Linear, x: Tensor) -> Tensor:
    """(G, R, in) to (G, R, out)."""
    out: Tensor = linear(x.flatten(0, 1))
    return out.view(*x.shape[:2], -1)


def sort_pool(x: Tensor, segments: Segments, rows: int) -> Tensor:
    """Each graph's nodes in falling order of their last channel: (N, C) to (G, rows, C), cut off or filled with zeros.

    >>> sort_pool(torch.tensor([[1.0], [3.0], [2.0], [5.0]]), Segments(sizes=[3, 1]), rows=2)[..., 0]
    tensor([[3., 2.],
            [5., 0.]])
    """
    ids, graphs = segments.ids(x.shape[0]), segments.num_graphs
    ids = torch.where((ids < 0) | (ids >= graphs), graphs, ids)
    falling = torch.argsort(x[:, -1].detach(), descending=True, stable=True)
    order = falling[torch.argsort(ids[falling], stable=True)]
    slot = torch.arange(rows, device=x.device)
    place = (segments.ptr[:-1, None] + slot).clamp(max=max(x.shape[0] - 1, 0))
    there = slot < segments.sizes[:, None]
    return torch.where(there[..., None], x[order[place]], 0.0)


def rows_kept(sizes: Tensor) -> int:
    """How many nodes sort pooling keeps: so many that a share of 60 % of the graphs is kept whole, and at least 10.

    >>> rows_kept(torch.arange(1, 101))
    60
    """
    place = max(-(-len(sizes) * 6 // 10) - 1, 0)
    return max(LEAST_ROWS, int(sizes.sort().values[place]))
