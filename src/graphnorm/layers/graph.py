"""The layers: each is a row of the table *scope × shift × statistics* over one operation.

============== ================ ======== ======================= ===================
name           scope            shift α  statistics in training  in evaluation
============== ================ ======== ======================= ===================
``none``       –                –        –                       –
``layer``      one node         1        live                    live
``batch``      the whole batch  1        live                    running averages
``instance``   one graph        1        live                    live
``graph``      one graph        learned  live                    live
``batch-alpha``    the whole batch  learned  live                running averages
``batch-running``  the whole batch  1        running averages    running averages
``batch-detached`` the whole batch  1        live, no gradient   running averages
============== ================ ======== ======================= ===================

All are called alike: ``norm(x, batch=None, batch_size=None)`` as in PyTorch Geometric, or ``norm(x, segments)``; ``x``
has shape (N, C), of nodes or of edges. ``act="relu"`` at construction and ``residual=`` at the call put the activation
and the skip connection into the same pass over memory.
"""

from __future__ import annotations

import difflib
import math
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm, check_unused
from graphnorm.layers.batch import AlphaBatchNorm, BatchNorm, DetachedBatchNorm, RunningBatchNorm
from graphnorm.layers.other_papers import DiffGroupNorm, MeanSubtractionNorm, MessageNorm, PairNorm
from graphnorm.ops.standardize.api import check_segments
from graphnorm.segments import Segments, as_segments


class GraphNorm(Norm):
    r"""GraphNorm: per graph and channel, with a learned share α of the mean taken away.

    .. math:: y = \gamma\,\frac{x - \alpha\mu}{\sqrt{E[(x - \alpha\mu)^2] + \varepsilon}} + \beta

    The second moment is that of the shifted value; it is not centred again. Parameters ``weight`` (γ), ``bias`` (β)
    and ``mean_scale`` (α) are named as in PyTorch Geometric, whose state dicts load here and ours there.

    On a GPU, the layers of a model read the same tensor ``batch`` once, and again after a change in place that torch
    counts. Where it is written to in other ways (``batch.data``, a replayed CUDA graph), pass new ``Segments``.

    >>> norm = GraphNorm(4)
    >>> x, batch = torch.randn(5, 4), torch.tensor([0, 0, 0, 1, 1])
    >>> norm(x, batch).shape
    torch.Size([5, 4])
    >>> torch.equal(norm(x, batch), norm(x, Segments(sizes=[3, 2])))
    True
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, act=act, device=device, dtype=dtype)
        self.mean_scale = nn.Parameter(torch.ones(in_channels, device=device, dtype=dtype))

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize the rows of each graph of ``batch``."""
        return self._by_graph(x, batch, batch_size, residual)


class InstanceNorm(Norm):
    r"""InstanceNorm: per graph and channel, with the whole mean taken away (α = 1).

    As in PyTorch Geometric there is no affine part unless asked for; ``make_norm("instance", …)`` asks for it, since
    the paper's has one.

    >>> InstanceNorm(2)(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.0000,  0.0000],
            [ 1.0000,  0.0000]])
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        *,
        affine: bool = False,
        act: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize the rows of each graph of ``batch``."""
        return self._by_graph(x, batch, batch_size, residual)


class LayerNorm(Norm):
    """LayerNorm: every node by itself, across its channels. PyTorch Geometric's ``LayerNorm(mode="node")``.

    >>> LayerNorm(2)(torch.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]], grad_fn=...)
    """

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Standardize each row; which graph it belongs to does not matter."""
        self._check_width(x)
        check_unused(x, batch)
        return self._standardize(x, None, residual, scope="node")[0]


class NoNorm(Norm):
    """No normalization, with the call of one: the activation and the residual are still applied."""

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Return x, activated, plus the residual."""
        self._check_width(x)
        check_unused(x, batch)
        return self._tail(x, residual)


class GraphSizeNorm(Norm):
    r"""Graph size normalization (the paper's footnote): each node's features over the root of its graph's size.

    .. math:: y = x / \sqrt{n}
    """

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Scale the rows of each graph by one over the root of their number."""
        self._check_width(x)
        return self._tail(size_norm(x, as_segments(batch, batch_size)), residual)


def size_norm(x: Tensor, segments: Segments | None) -> Tensor:
    """x / √n, n being the number of rows of the row's graph; 0 for rows of no graph."""
    if not isinstance(x, Tensor):
        raise TypeError(f"x must be a tensor of features, got {type(x).__name__}")
    if segments is None:
        return x / math.sqrt(max(x.shape[0], 1))
    check_segments(x, segments)
    ids, graphs = segments.ids(x.shape[0]), segments.num_graphs
    place = torch.where((ids < 0) | (ids >= graphs), graphs, ids)
    if torch.compiler.is_exporting():  # ONNX has no search for boundaries
        counts = torch.zeros(graphs + 1, dtype=torch.int64, device=x.device)
        sizes = counts.scatter_add(0, place, torch.ones_like(place))[:graphs]
    else:
        sizes = segments.sizes
    factor = torch.nn.functional.pad(sizes.clamp(min=1).to(x.dtype).rsqrt(), (0, 1))
    return x * factor[place][:, None]


REGISTRY: dict[str, Callable[..., Norm]] = {
    "none": NoNorm,
    "layer": LayerNorm,
    "batch": BatchNorm,
    "instance": lambda channels, **options: InstanceNorm(channels, **{"affine": True, **options}),
    "graph": GraphNorm,
    "batch-alpha": AlphaBatchNorm,
    "batch-running": RunningBatchNorm,
    "batch-detached": DetachedBatchNorm,
    "size": GraphSizeNorm,
    "pair": PairNorm,
    "mean-subtraction": MeanSubtractionNorm,
    "message": MessageNorm,
    "diff-group": DiffGroupNorm,
}
"""The layers by name: those of the paper as its experiments name them, and the competitors from other papers."""

BUILT_IN = frozenset(REGISTRY)
"""The names that come with the package; :func:`graphnorm.register_norm` adds more to the registry."""


def make_norm(name: str, channels: int, **options: Any) -> Norm:
    """A layer by name: ``"graph"``, ``"instance"``, ``"batch"``, ``"layer"``, ``"none"``, ``"batch-alpha"``,
    ``"batch-running"``, ``"batch-detached"``, ``"size"``, ``"pair"``, ``"mean-subtraction"``, ``"message"``,
    ``"diff-group"``, or one registered by :func:`graphnorm.register_norm`.

    >>> make_norm("graph", 64)
    GraphNorm(64, eps=1e-05)
    """
    return find_norm(name)(channels, **options)


def find_norm(name: str) -> Callable[..., Norm]:
    """What makes the layer of a name, called with the number of channels."""
    known = f"The known ones are {', '.join(REGISTRY)}."
    if not isinstance(name, str):
        raise TypeError(f"name must be that of a normalization, got {name!r}. {known}")
    if name not in REGISTRY:
        near = difflib.get_close_matches(name.lower(), REGISTRY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"unknown normalization {name!r}{hint} {known}")
    return REGISTRY[name]
