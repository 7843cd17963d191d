"""Normalizations of other papers, computing what PyTorch Geometric's layers of the same names compute.

They are written over the operations of this package, so that a fleet can stack them and rows of no graph have no part
in them; their state dicts are those of PyTorch Geometric. Like every layer here they take an activation and a residual.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm, check_unused
from graphnorm.layers.batch import BatchNorm
from graphnorm.ops.neighbour_sum import pool
from graphnorm.ops.standardize.api import check_segments
from graphnorm.segments import Segments, as_segments

__all__ = ["DiffGroupNorm", "MeanSubtractionNorm", "MessageNorm", "PairNorm"]

GROUPS = 10
"""Clusters of :class:`DiffGroupNorm`, as in its paper."""


class PeerNorm(Norm):
    """What the four share: no affine part, and features that must be numbers with a fraction."""

    def __init__(self, in_channels: int, eps: float = 1e-5, *, act: str | None = None) -> None:
        super().__init__(in_channels, eps, affine=False, act=act)

    def _check_width(self, x: Tensor) -> None:
        super()._check_width(x)
        if not x.is_floating_point():
            raise TypeError(f"x must hold floating-point features, got {x.dtype}; convert it with x.float()")


class MeanSubtractionNorm(PeerNorm):
    """Mean subtraction: the mean of each graph is taken away, and nothing else is done (Yang et al., 2020).

    >>> MeanSubtractionNorm(1)(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])).T
    tensor([[-1.,  1.,  0.]])
    """

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Centre the rows of each graph."""
        self._check_width(x)
        return self._tail(centre(x, as_segments(batch, batch_size)), residual)


class PairNorm(PeerNorm):
    r"""PairNorm: each graph centred, and scaled to rows of a mean square length of 1 (Zhao and Akoglu, 2020).

    .. math:: x^c = x - \mu, \qquad y = s\,\frac{x^c}{\sqrt{E\,\lVert x^c \rVert^2 + \varepsilon}}

    The scale is one for all channels, and keeps the total distance between pairs of nodes from layer to layer.
    """

    def __init__(self, in_channels: int, eps: float = 1e-5, *, scale: float = 1.0, act: str | None = None) -> None:
        super().__init__(in_channels, eps, act=act)
        self.scale = scale

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Centre and scale the rows of each graph."""
        self._check_width(x)
        segments = as_segments(batch, batch_size)
        centred = centre(x, segments)
        square = graph_means(centred.square().sum(-1, keepdim=True), segments)
        return self._tail(self.scale * centred * (square + self.eps).rsqrt(), residual)


class MessageNorm(PeerNorm):
    r"""MessageNorm: what arrives at a node gets the length of what is there (Li et al., 2020).

    .. math:: y = s\,\lVert h \rVert\,\frac{x}{\lVert x \rVert}

    h is the node's own state, which PyTorch Geometric's layer takes as an argument of its own; here it is the
    ``residual``, the input of the convolution. Where there is none, as inside a perceptron or in a first convolution
    that changes the width, a node's state is x itself, and y = s·x. The scale s is learned, from 1.
    """

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, act=act)
        self.scale = nn.Parameter(torch.ones(1))

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Scale each row to the length of the residual's; which graph it belongs to does not matter."""
        self._check_width(x)
        check_unused(x, batch)
        y = x
        if isinstance(residual, Tensor) and residual.shape == x.shape:
            y = nn.functional.normalize(x, dim=-1) * residual.norm(dim=-1, keepdim=True)
        return self._tail(y * self.scale.to(x.dtype), residual)


class DiffGroupNorm(PeerNorm):
    r"""DiffGroupNorm: a BatchNorm for each of K learned clusters of nodes (Zhou et al., 2020).

    .. math:: s = \mathrm{softmax}(W x), \qquad y = x + \lambda \sum_k \mathrm{BatchNorm}_k(s_k x)

    The intermediate array has K·C columns, so it takes K times the memory and time of a BatchNorm.
    """

    def __init__(
        self,
        in_channels: int,
        groups: int = GROUPS,
        lamda: float = 0.01,
        eps: float = 1e-5,
        momentum: float = 0.1,
        *,
        act: str | None = None,
    ) -> None:
        super().__init__(in_channels, eps, act=act)
        self.groups, self.lamda = groups, lamda
        self.lin = nn.Linear(in_channels, groups, bias=False)
        self.norm = BatchNorm(groups * in_channels, eps, momentum)

    def reset_parameters(self) -> None:
        """Draw the clusters anew, and forget the running averages."""
        self.lin.reset_parameters()
        self.norm.reset_parameters()

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Add the rows as the clusters see them; statistics are those of the whole batch."""
        self._check_width(x)
        wide = x.to(self.lin.weight.dtype)
        shares = self.lin(wide).softmax(dim=-1)
        parts = (shares[:, :, None] * wide[:, None, :]).flatten(1)
        seen = self.norm(parts, batch, batch_size).unflatten(1, (self.groups, self.in_channels)).sum(1)
        return self._tail((wide + self.lamda * seen).to(x.dtype), residual)


def centre(x: Tensor, segments: Segments | None) -> Tensor:
    """(N, C): x less the mean of each row's graph; 0 for rows of no graph."""
    if segments is None:
        return x - graph_means(x, None)
    return torch.where(_place(x, segments)[:, None] < segments.num_graphs, x - graph_means(x, segments), 0.0)


def graph_means(x: Tensor, segments: Segments | None) -> Tensor:
    """(N, C): the mean of each row's graph; 0 for rows of no graph."""
    if segments is None:
        return x.sum(0, keepdim=True) / max(x.shape[0], 1)
    means = nn.functional.pad(pool(x, segments, "mean"), (0, 0, 0, 1))
    return means[_place(x, segments)]


def _place(x: Tensor, segments: Segments) -> Tensor:
    """(N,): the graph of each row; G for rows of no graph."""
    check_segments(x, segments)
    ids, graphs = segments.ids(x.shape[0]), segments.num_graphs
    return torch.where((ids < 0) | (ids >= graphs), graphs, ids)
