"""Normalizations of other papers. They compute what PyTorch Geometric's layers of the same names compute.

They are built on the operations of this package, so that a fleet can stack them and rows of no graph do not take part;
their state dicts are those of PyTorch Geometric. Like every layer here they take an activation and a residual.
"""

from __future__ import annotations

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm
from graphnorm.layers.batch import BatchNorm
from graphnorm.ops.neighbour_sum import pool
from graphnorm.ops.standardize.api import check_segments
from graphnorm.segments import Segments

__all__ = ["DiffGroupNorm", "MeanSubtractionNorm", "MessageNorm", "PairNorm"]

GROUPS = 10
"""Clusters of :class:`DiffGroupNorm`, as in its paper."""


class _UnfusedNorm(Norm):
    """No affine part, and floating-point features."""

    def __init__(self, in_channels: int, eps: float = 1e-5, *, act: str | None = None) -> None:
        super().__init__(in_channels, eps, affine=False, act=act)

    def _check_features(self, x: Tensor) -> None:
        super()._check_features(x)
        if not x.is_floating_point():
            raise TypeError(f"x must hold floating-point features, got {x.dtype}; convert it with x.float()")


class MeanSubtractionNorm(_UnfusedNorm):
    """Mean subtraction: the mean of each graph is subtracted, and nothing else is done (Yang et al., 2020).

    >>> MeanSubtractionNorm(1)(torch.tensor([[1.0], [3.0], [7.0]]), torch.tensor([0, 0, 1])).T
    tensor([[-1.,  1.,  0.]])
    """

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        return self._finish(centre(x, segments), residual)


class PairNorm(_UnfusedNorm):
    r"""PairNorm: each graph centred, and scaled to rows of a mean square length of 1 (Zhao and Akoglu, 2020).

    .. math:: x^c = x - \mu, \qquad y = s\,\frac{x^c}{\sqrt{E\,\lVert x^c \rVert^2 + \varepsilon}}

    The scale is one for all channels, and keeps the total distance between pairs of nodes from layer to layer.
    """

    def __init__(self, in_channels: int, eps: float = 1e-5, *, scale: float = 1.0, act: str | None = None) -> None:
        super().__init__(in_channels, eps, act=act)
        self.scale = scale

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        centred = centre(x, segments)
        square = graph_means(centred.square().sum(-1, keepdim=True), segments)
        return self._finish(self.scale * centred * (square + self.eps).rsqrt(), residual)


class MessageNorm(_UnfusedNorm):
    r"""MessageNorm: the message to a node is scaled to the length of the node's own state (Li et al., 2020).

    .. math:: y = s\,\lVert h \rVert\,\frac{x}{\lVert x \rVert}

    h is the node's own state, which PyTorch Geometric's layer takes as a separate argument; here it is the
    ``residual``, the input of the convolution. Where there is none, as inside a perceptron or in a first convolution
    that changes the width, a node's state is x itself, and y = s·x. The scale s is learned, from 1.
    """

    uses_graphs = False

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, act=act)
        self.scale = nn.Parameter(torch.ones(1))

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        y = x
        if isinstance(residual, Tensor) and residual.shape == x.shape:
            y = nn.functional.normalize(x, dim=-1) * residual.norm(dim=-1, keepdim=True)
        return self._finish(y * self.scale.to(x.dtype), residual)


class DiffGroupNorm(_UnfusedNorm):
    r"""DiffGroupNorm: a BatchNorm for each of K learned clusters of nodes (Zhou et al., 2020).

    .. math:: s = \mathrm{softmax}(W x), \qquad y = x + \lambda \sum_k \mathrm{BatchNorm}_k(s_k x)

    The intermediate array has K·C columns, so it takes K times the memory and time of a BatchNorm.
    """

    uses_graphs = False

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
        """Draw new clusters, and reset the running averages."""
        self.lin.reset_parameters()
        self.norm.reset_parameters()

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        wide = x.to(self.lin.weight.dtype)
        shares = self.lin(wide).softmax(dim=-1)
        parts = (shares[:, :, None] * wide[:, None, :]).flatten(1)
        normed = self.norm(parts, segments).unflatten(1, (self.groups, self.in_channels)).sum(1)
        return self._finish((wide + self.lamda * normed).to(x.dtype), residual)


def centre(x: Tensor, segments: Segments | None) -> Tensor:
    """(N, C): x minus the mean of each row's graph; 0 for rows of no graph."""
    if segments is None:
        return x - graph_means(x, None)
    check_segments(x, segments)
    inside = segments.bounded_ids(x.shape[0])[:, None] < segments.num_graphs
    return torch.where(inside, x - graph_means(x, segments), 0.0)


def graph_means(x: Tensor, segments: Segments | None) -> Tensor:
    """(N, C): the mean of each row's graph; 0 for rows of no graph."""
    if segments is None:
        return x.sum(0, keepdim=True) / max(x.shape[0], 1)
    means = nn.functional.pad(pool(x, segments, "mean"), (0, 0, 0, 1))
    return means[segments.bounded_ids(x.shape[0])]
