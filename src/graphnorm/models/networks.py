"""Networks that the paper compares with: a perceptron, DCNN and DGCNN. They have no normalization."""

from __future__ import annotations

import itertools

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.models.graph import (
    Dropout,
    DropoutKey,
    GraphModel,
    Linear,
    check_layers,
    check_readout,
)
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segments import Segments

__all__ = ["DCNN", "DGCNN", "MLP", "diffuse", "rows_kept", "sort_pool"]


class MLP(GraphModel):
    """``layers`` linear layers with ReLU between them, on pooled node features. It does not see the edges.

    If a graph network does better, it learned from the structure.
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
        check_readout(readout)
        check_layers(layers)
        widths = [in_features] + [hidden] * (layers - 2)
        self.linears = nn.ModuleList(Linear(width, hidden) for width in widths)
        self.head = Linear(hidden, num_outputs)
        self.readout, self.dropout = readout, Dropout(dropout)

    def score(self, x: Tensor, adjacency: Adjacency, segments: Segments, key: DropoutKey | None) -> Tensor:
        z = pool(x, segments, self.readout)
        for linear in self.linears:
            z = linear(z).relu()
        scores: Tensor = self.head(self.dropout(z, key))
        return scores


class DCNN(GraphModel):
    r"""Features after 0, 1, … hops of diffusion, averaged over the nodes; a weight for each; and a linear head.

    .. math:: Z_{hf} = \tanh\Bigl(W_{hf}\, \frac1n \sum_v (P^h X)_{vf}\Bigr), \qquad P = D^{-1} A

    ``layers`` counts the head: with 5, the hops are 0 … 4.
    """

    def __init__(self, in_features: int, num_outputs: int, *, layers: int = 5, dropout: float = 0.5) -> None:
        super().__init__()
        check_layers(layers)
        self.hops = layers - 1
        self.weight = nn.Parameter(torch.empty(self.hops + 1, in_features).uniform_(-1, 1))
        self.dropout = Dropout(dropout)
        self.head = Linear((self.hops + 1) * in_features, num_outputs)

    def score(self, x: Tensor, adjacency: Adjacency, segments: Segments, key: DropoutKey | None) -> Tensor:
        """x: (N, in_features), or of graphs that were diffused before, one node each, (G, (hops+1)·in_features)."""
        if x.shape[-1] == self.weight.numel():
            diffused = pool(x, segments).view(-1, *self.weight.shape)
        else:
            diffused = diffuse(x, adjacency, segments, self.hops)
        z = (self.weight * diffused).tanh().flatten(1)
        scores: Tensor = self.head(self.dropout(z, key))
        return scores


def diffuse(x: Tensor, adjacency: Adjacency, segments: Segments, hops: int) -> Tensor:
    """(N, F) to (G, hops+1, F): the means over each graph's nodes after 0, 1, … hops. It has no parameters."""
    pooled = [pool(x, segments, "mean")]
    for _ in range(hops):
        x = aggregate(x, adjacency, reduce="mean")
        pooled.append(pool(x, segments, "mean"))
    return torch.stack(pooled, dim=1)


FIRST_CHANNELS, SECOND_CHANNELS, WINDOW, DENSE = 16, 32, 5, 128
"""Channels of the two one-dimensional convolutions, length of the second, width of the dense layer, as in the paper."""
LEAST_ROWS = 2 * WINDOW
"""With this many rows, one window is left after max pooling."""


class DGCNN(GraphModel):
    r"""Graph convolutions, then sort pooling of the nodes by the last channel, then one-dimensional convolutions.

    .. math:: H_{t+1} = \tanh\bigl(\tilde D^{-1} (A + I) H_t W_t\bigr)

    The outputs of all convolutions are concatenated. The last has a single channel, which sorts the nodes. Each graph
    keeps ``rows`` nodes; smaller graphs are padded with zeros. ``layers`` counts the head: 5 layers are four
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
        check_layers(layers)
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

    def score(self, x: Tensor, adjacency: Adjacency, segments: Segments, key: DropoutKey | None) -> Tensor:
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
        scores: Tensor = self.head(self.dropout(z, key))
        return scores


def _rowwise(linear: nn.Linear, x: Tensor) -> Tensor:
    """(G, R, in) to (G, R, out)."""
    out: Tensor = linear(x.flatten(0, 1))
    return out.view(*x.shape[:2], -1)


def sort_pool(x: Tensor, segments: Segments, rows: int) -> Tensor:
    """Sort each graph's nodes by their last channel, descending: (N, C) to (G, rows, C), cut or padded with zeros.

    >>> sort_pool(torch.tensor([[1.0], [3.0], [2.0], [5.0]]), Segments(sizes=[3, 1]), rows=2)[..., 0]
    tensor([[3., 2.],
            [5., 0.]])
    """
    ids = segments.bounded_ids(x.shape[0])
    falling = torch.argsort(x[:, -1].detach(), descending=True, stable=True)
    order = falling[torch.argsort(ids[falling], stable=True)]
    slot = torch.arange(rows, device=x.device)
    place = (segments.ptr[:-1, None] + slot).clamp(max=max(x.shape[0] - 1, 0))
    there = slot < segments.sizes[:, None]
    return torch.where(there[..., None], x[order[place]], 0.0)


def rows_kept(sizes: Tensor) -> int:
    """The number of nodes that sort pooling keeps: 60 % of the graphs have no more; at least 10.

    >>> rows_kept(torch.arange(1, 101))
    60
    """
    place = max(-(-len(sizes) * 6 // 10) - 1, 0)
    return max(LEAST_ROWS, int(sizes.sort().values[place]))
