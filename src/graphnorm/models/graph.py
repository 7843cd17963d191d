"""GIN and GCN as the paper trains them, and the parts that all models share: linear layer, dropout, classifier."""

from __future__ import annotations

import itertools
from collections.abc import Sequence
from typing import Any, NamedTuple

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.layers import make_norm
from graphnorm.ops.categories import project_categories
from graphnorm.ops.dropout import drop
from graphnorm.ops.linear import linear
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.segment_cache import as_segments
from graphnorm.segments import Segments

__all__ = [
    "GCN",
    "GIN",
    "Dropout",
    "DropoutKey",
    "GCNConvolution",
    "GINConvolution",
    "GraphClassifier",
    "GraphModel",
    "Linear",
    "OneHot",
    "check_layers",
    "check_readout",
    "graph_structure",
    "make_paper_norm",
    "number_dropouts",
    "segments_of",
]


class Linear(nn.Linear):
    """``torch.nn.Linear``, with the stacked kernels of :mod:`graphnorm.ops.linear` under ``torch.func.vmap``."""

    def forward(self, x: Tensor) -> Tensor:
        return linear(x, self.weight, self.bias)


class OneHot(NamedTuple):
    """An (N, F) matrix with a single 1 in each row, stored as categories. A large one is never written out."""

    category: Tensor
    """(N,) int64 in 0 … F-1; -1 for a row of zeros."""
    width: int
    """F."""

    def project(self, weight: Tensor) -> Tensor:
        """The matrix times Wᵀ, for W of shape (O, F): (N, O)."""
        return project_categories(self.category, weight)

    def dense(self) -> Tensor:
        """The matrix, (N, F).

        >>> OneHot(torch.tensor([1, -1]), 3).dense()
        tensor([[0., 1., 0.],
                [0., 0., 0.]])
        """
        return torch.nn.functional.embedding(
            self.category % (self.width + 1), torch.eye(self.width + 1, self.width, device=self.category.device)
        )


class DropoutKey(NamedTuple):
    """The key and rate of all dropout masks of one training step."""

    key: Tensor
    """() int64: differs for every step of every model."""
    rate: Tensor
    """() float: the share to drop. A tensor, since it may differ between members of a fleet."""


class Dropout(nn.Module):
    """Sets a share of the entries to zero and scales the others, so that the mean stays.

    Without a key it is ``torch.nn.Dropout``. With a key, entry i at dropout number ``site`` of the model is dropped if
    uniform(key ⊕ site, i) < rate. No generator is used, so the mask does not depend on the other models of a fleet.
    Padded rows come last and do not change the masks of other rows.

    >>> import torch
    >>> key = DropoutKey(torch.tensor(5), torch.tensor(0.5))
    >>> Dropout(0.5)(torch.ones(6), key)
    tensor([2., 0., 2., 2., 0., 2.])
    """

    def __init__(self, rate: float = 0.5, site: int = 0) -> None:
        super().__init__()
        if not 0 <= rate < 1:
            raise ValueError(f"dropout is {rate}; it must be at least 0 and less than 1")
        self.rate, self.site = rate, site

    def extra_repr(self) -> str:
        return f"{self.rate}" + (f", site={self.site}" if self.site else "")

    def forward(self, x: Tensor, key: DropoutKey | None = None, residual: Tensor | None = None) -> Tensor:
        """Drop entries of x in training mode, then add the residual."""
        if self.training and key is not None:
            return drop(x, *key, self.site, residual)
        y = nn.functional.dropout(x, self.rate) if self.training else x
        return y if residual is None else residual + y


def number_dropouts(model: nn.Module) -> None:
    """Number the dropouts of a model, so that each has its own masks."""
    numbers = itertools.count()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.site = next(numbers)


def check_readout(readout: str) -> None:
    if readout not in ("sum", "mean"):
        raise ValueError(f"readout is {readout!r}; it can be 'sum' or 'mean'")


def check_layers(layers: int) -> None:
    if layers < 2:
        raise ValueError(f"layers is {layers}; a model needs at least two layers, one of them the linear head")


class GraphModel(nn.Module):
    """Base of models that are called with PyTorch Geometric's arguments. A subclass writes ``score``."""

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

        x: (N, F) node features; for GIN and GCN also :class:`OneHot`.
        edges: PyTorch Geometric's ``edge_index`` (2, E), or an :class:`Adjacency`.
        batch: the graph of each node, or :class:`Segments`; without it all nodes are one graph.
        dropout_key: see :class:`Dropout`.

        Returns:
            (G, num_outputs): the scores.
        """
        rows = x.category if isinstance(x, OneHot) else x
        return self.score(x, *graph_structure(rows, edges, batch, batch_size), dropout_key)

    def score(self, x: Any, adjacency: Adjacency, segments: Segments, key: DropoutKey | None) -> Tensor:
        """(G, num_outputs): the scores."""
        raise NotImplementedError


class GraphClassifier(GraphModel):
    """Convolutions, then the sum or mean over each graph's nodes, then a linear head.

    The readout takes the output of the last convolution only. Every convolution but the first, which changes the width,
    adds its input to its output. Dropout acts on the head's scores, as in the authors' code.

    Args:
        convolutions: modules called as ``convolution(h, adjacency, segments, residual=None)``.
        hidden: the width of their output.
        num_outputs: scores of each graph.
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
        check_readout(readout)
        check_layers(len(convolutions) + 1)
        self.convolutions = nn.ModuleList(convolutions)
        self.head = Linear(hidden, num_outputs)
        self.readout, self.dropout = readout, Dropout(dropout)

    def score(self, x: Tensor | OneHot, adjacency: Adjacency, segments: Segments, key: DropoutKey | None) -> Tensor:
        h = self.convolutions[0](x, adjacency, segments)
        for convolution in self.convolutions[1:]:
            h = convolution(h, adjacency, segments, residual=h)
        scores: Tensor = self.head(pool(h, segments, self.readout))
        dropped: Tensor = self.dropout(scores, key)
        return dropped


def graph_structure(
    x: Tensor, edges: Tensor | Adjacency, batch: Tensor | Segments | None, batch_size: int | None
) -> tuple[Adjacency, Segments]:
    """The arguments of a model as the two objects that layers take."""
    adjacency = edges if isinstance(edges, Adjacency) else Adjacency(edge_index=edges, num_nodes=x.shape[0])
    return adjacency, segments_of(x, batch, batch_size)


def segments_of(x: Tensor, batch: Tensor | Segments | None, batch_size: int | None) -> Segments:
    """The segments of the rows of x; without ``batch`` all rows are one graph."""
    segments = as_segments(batch, batch_size, counted=True)  # a row of scores for each
    if segments is None:
        rows = x.shape[0]
        segments = Segments(ptr=torch.tensor([0, rows], device=x.device), num_rows=rows, max_size=rows)
    return segments


AUTHORS_EPS = 1e-6
"""In the authors' code of InstanceNorm and GraphNorm."""


def make_paper_norm(norm: str, channels: int, as_authors: bool, **options: Any) -> nn.Module:
    """A layer by name, with the ε of the authors' code."""
    own = {"eps": AUTHORS_EPS} if as_authors and norm in ("instance", "graph") else {}
    return make_norm(norm, channels, **own, **options)


class GINConvolution(nn.Module):
    r"""Neighbour sum, then two linear layers, each followed by the normalization and ReLU.

    .. math:: h' = \mathrm{ReLU}\,N\big(W_2\,\mathrm{ReLU}\,N(W_1 (A + I + \xi I) h)\big)

    ξ is learned and starts at 0, or stays there ``as_authors``. ``self_loops`` adds one more self-loop to every node,
    as in the authors' data: A + (2+ξ)I.

    >>> layer = GINConvolution(3, 8)
    >>> layer(torch.randn(2, 3), Adjacency(edge_index=torch.tensor([[0, 1], [1, 0]]), num_nodes=2)).shape
    torch.Size([2, 8])
    """

    def __init__(
        self,
        in_features: int,
        hidden: int,
        norm: str = "graph",
        *,
        self_loops: bool = False,
        as_authors: bool = False,
    ) -> None:
        super().__init__()
        self.self_loops = self_loops
        self.xi = None if as_authors else nn.Parameter(torch.zeros(()))
        self.first = Linear(in_features, hidden)
        self.first_norm = make_paper_norm(norm, hidden, as_authors, act="relu")
        self.second = Linear(hidden, hidden)
        self.second_norm = make_paper_norm(norm, hidden, as_authors, act="relu")

    def forward(
        self,
        h: Tensor | OneHot,
        adjacency: Adjacency,
        segments: Segments | None = None,
        residual: Tensor | None = None,
    ) -> Tensor:
        """(N, in_features) to (N, hidden); ``residual`` is added to the result."""
        own = (0.0 if self.xi is None else self.xi) + (2 if self.self_loops else 1)
        z = self.first_norm(aggregate_then_project(self.first, h, adjacency, self_weight=own), segments)
        out: Tensor = self.second_norm(self.second(z), segments, residual=residual)
        return out


def aggregate_then_project(
    layer: nn.Linear,
    h: Tensor | OneHot,
    adjacency: Adjacency,
    *,
    self_weight: Tensor | float,
    scale: Tensor | None = None,
) -> Tensor:
    """W·Q·h + b, in the cheaper order. Q mixes rows and W mixes columns, so they commute."""
    if layer.in_features <= layer.out_features:
        h = h.dense() if isinstance(h, OneHot) else h
        out: Tensor = layer(aggregate(h, adjacency, self_weight=self_weight, scale=scale))
        return out
    narrow = h.project(layer.weight) if isinstance(h, OneHot) else linear(h, layer.weight)
    mixed = aggregate(narrow, adjacency, self_weight=self_weight, scale=scale)
    return mixed if layer.bias is None else mixed + layer.bias


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
        as_authors: bool = False,
    ) -> None:
        widths = [in_features] + [hidden] * (layers - 2)
        convolutions = [
            GINConvolution(width, hidden, norm, self_loops=self_loops, as_authors=as_authors)
            for width in widths[: layers - 1]
        ]
        super().__init__(convolutions, hidden, num_outputs, readout=readout, dropout=dropout)


class GCNConvolution(nn.Module):
    r"""Neighbour sum weighted by the roots of the degrees, one linear layer, the normalization and ReLU.

    .. math:: h' = \mathrm{ReLU}\,N\big(W \hat D^{-1/2} (A + I) \hat D^{-1/2} h\big)

    where D̂ are the degrees of A + I. ``as_authors`` starts W by Glorot's uniform rule and b at 0.
    """

    def __init__(self, in_features: int, hidden: int, norm: str = "graph", *, as_authors: bool = False) -> None:
        super().__init__()
        self.linear = Linear(in_features, hidden)
        if as_authors:
            nn.init.xavier_uniform_(self.linear.weight)
            nn.init.zeros_(self.linear.bias)
        self.norm = make_paper_norm(norm, hidden, as_authors, act="relu")

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
        as_authors: bool = False,
    ) -> None:
        widths = [in_features] + [hidden] * (layers - 2)
        convolutions = [GCNConvolution(width, hidden, norm, as_authors=as_authors) for width in widths[: layers - 1]]
        super().__init__(convolutions, hidden, num_outputs, readout=readout, dropout=dropout)
