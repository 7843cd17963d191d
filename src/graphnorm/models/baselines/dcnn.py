"""DCNN, the diffusion-convolutional network (Atwood and Towsley, 2016), for whole graphs."""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.models.classifier import graph_structure
from graphnorm.models.dropout import Dropout, DropoutKey
from graphnorm.models.linear import Linear
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segments import Segments

__all__ = ["DCNN", "diffuse"]


class DCNN(nn.Module):
    r"""Features after 0, 1, … hops of diffusion, averaged over the nodes, weighted one by one, and a linear head.

    .. math:: Z_{hf} = \tanh\Bigl(W_{hf}\, \frac1n \sum_v (P^h X)_{vf}\Bigr), \qquad P = D^{-1} A

    ``layers`` counts the head: with 5, the hops are 0 … 4.
    """

    def __init__(self, in_features: int, num_outputs: int, *, layers: int = 5, dropout: float = 0.5) -> None:
        super().__init__()
        if layers < 2:
            raise ValueError("a model needs at least two layers: a hop and the linear head")
        self.hops = layers - 1
        self.weight = nn.Parameter(torch.empty(self.hops + 1, in_features).uniform_(-1, 1))
        self.dropout = Dropout(dropout)
        self.head = Linear((self.hops + 1) * in_features, num_outputs)

    def forward(
        self,
        x: Tensor,
        edges: Tensor | Adjacency,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        dropout_key: DropoutKey | None = None,
    ) -> Tensor:
        """(G, num_outputs): the scores. Arguments as in :class:`graphnorm.models.GraphClassifier`.

        x: (N, in_features); or, of graphs that were diffused before and are one node each, (G, (hops+1)·in_features).
        """
        adjacency, segments = graph_structure(x, edges, batch, batch_size)
        if x.shape[-1] == self.weight.numel():
            diffused = pool(x, segments).view(-1, *self.weight.shape)
        else:
            diffused = diffuse(x, adjacency, segments, self.hops)
        z = (self.weight * diffused).tanh().flatten(1)
        scores: Tensor = self.head(self.dropout(z, dropout_key))
        return scores


def diffuse(x: Tensor, adjacency: Adjacency, segments: Segments, hops: int) -> Tensor:
    """(N, F) to (G, hops+1, F): the means over each graph's nodes after 0, 1, … hops. No parameter has a part in it."""
    pooled = [pool(x, segments, "mean")]
    for _ in range(hops):
        x = aggregate(x, adjacency, reduce="mean")
        pooled.append(pool(x, segments, "mean"))
    return torch.stack(pooled, dim=1)
