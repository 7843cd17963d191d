"""The layers that take every graph, or every node, by itself: their statistics are live, in evaluation too."""

from __future__ import annotations

import math

import torch
from torch import Tensor, nn

from graphnorm.layers.base import Norm, RunningAverages
from graphnorm.ops.standardize.api import check_features, check_segments
from graphnorm.ops.standardize.eager import standardize_graphs
from graphnorm.segments import Segments
from graphnorm.tracing import is_exporting

__all__ = ["GraphNorm", "GraphSizeNorm", "InstanceNorm", "NoNorm", "size_norm"]


class _PerGraphNorm(Norm):
    """Live statistics of each graph and channel."""

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if not torch.compiler.is_compiling():
            weight, bias, mean_scale = self._affine()
            y = standardize_graphs(x, segments, weight, bias, mean_scale, self.eps, self.act, residual)
            if y is not None:
                return y
        return self._standardize(x, segments, residual)[0]


class GraphNorm(_PerGraphNorm):
    r"""GraphNorm: per graph and channel, with a learned share α of the mean subtracted.

    .. math:: y = \gamma\,\frac{x - \alpha\mu}{\sqrt{E[(x - \alpha\mu)^2] + \varepsilon}} + \beta

    The second moment is that of the shifted value; it is not centred again. Parameters ``weight`` (γ), ``bias`` (β)
    and ``mean_scale`` (α) are named as in PyTorch Geometric, whose state dicts load here and ours there.

    On a GPU, the first layer that is called with a tensor ``batch`` reads it; later layers reuse the result until
    ``batch`` is modified in place. Writes that torch does not count (``batch.data``, a replayed CUDA graph) go
    unnoticed: pass new ``Segments`` after them.

    >>> norm = GraphNorm(4)
    >>> x, batch = torch.randn(5, 4), torch.tensor([0, 0, 0, 1, 1])
    >>> norm(x, batch).shape
    torch.Size([5, 4])
    >>> torch.equal(norm(x, batch), norm(x, Segments(sizes=[3, 2])))
    True
    """

    mean_scale: nn.Parameter

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


class InstanceNorm(_PerGraphNorm, RunningAverages):
    r"""InstanceNorm: per graph and channel, with the whole mean subtracted (α = 1).

    As in PyTorch Geometric, γ and β are off by default; ``make_norm("instance", …)`` turns them on, since the paper's
    InstanceNorm has them.

    Args:
        in_channels: C, the number of features of a node.
        eps: ε, added to the second moment.
        momentum: the weight of the newest batch in the running averages.
        affine: whether there are a weight γ and a bias β.
        track_running_stats: average the statistics of graphs in training, and use the averages in evaluation.
        device: where the parameters live.
        act: ``"relu"`` to apply it in the same pass, or ``None``.
        dtype: what parameters are stored in.

    >>> InstanceNorm(2)(torch.tensor([[1.0, 5.0], [3.0, 5.0]]))
    tensor([[-1.0000,  0.0000],
            [ 1.0000,  0.0000]])
    """

    def __init__(
        self,
        in_channels: int,
        eps: float = 1e-5,
        momentum: float = 0.1,
        affine: bool = False,
        track_running_stats: bool = False,
        device: torch.device | str | None = None,
        *,
        act: str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__(in_channels, eps, affine=affine, act=act, device=device, dtype=dtype)
        self.momentum, self.track_running_stats = momentum, track_running_stats
        self.counts_graphs = track_running_stats
        self._register_averages(in_channels, track=track_running_stats, device=device)

    def reset_parameters(self) -> None:
        super().reset_parameters()
        self.reset_running_stats()

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        if self.running_mean is None or self.running_var is None:
            return super()._normalize(x, segments, residual)
        if not self.training:
            averages = {"mean": self.running_mean.clone()[None], "var": self.running_var.clone()[None]}
            return self._standardize(x, segments, residual, scope="batch", statistics="given", **averages)[0]
        y, mean, var = self._standardize(x, segments, residual)
        with torch.no_grad():  # as in PyTorch Geometric, the mean over graphs, empty ones included
            sizes = torch.tensor([x.shape[0]], device=x.device) if segments is None else segments.sizes
            sizes = sizes[:, None].to(var.dtype)
            unbiased = var * sizes / (sizes - 1).clamp(min=1)
            self.running_mean.lerp_(mean.mean(0).to(self.running_mean.dtype), self.momentum)
            self.running_var.lerp_(unbiased.mean(0).to(self.running_var.dtype), self.momentum)
        return y


class NoNorm(Norm):
    """No normalization, but called like one: activation and residual are still applied."""

    uses_graphs = False

    def __init__(self, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        return self._finish(x, residual)


class GraphSizeNorm(Norm):
    r"""Graph size normalization (the paper's footnote): each node's features over the root of its graph's size.

    .. math:: y = x / \sqrt{n}
    """

    any_width = True

    def __init__(self, *, act: str | None = None) -> None:
        super().__init__(None, affine=False, act=act)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        return self._finish(size_norm(x, segments), residual)


def size_norm(x: Tensor, segments: Segments | None) -> Tensor:
    """x / √n, n being the number of rows of the row's graph; 0 for rows of no graph."""
    check_features("x", x)
    if segments is None:
        if is_exporting():  # a root of the number of rows would make it a part of the program
            return x / torch.ones_like(x[:, :1], dtype=torch.float32).sum().clamp(min=1).sqrt().to(x.dtype)
        return x / math.sqrt(max(x.shape[0], 1))
    check_segments(x, segments)
    ids, graphs = segments.bounded_ids(x.shape[0]), segments.num_graphs
    if is_exporting():  # ONNX has no searchsorted
        counts = torch.zeros(graphs + 1, dtype=torch.int64, device=x.device)
        sizes = counts.scatter_add(0, ids, torch.ones_like(ids))[:graphs]
    else:
        sizes = segments.sizes
    factor = torch.nn.functional.pad(sizes.clamp(min=1).to(x.dtype).rsqrt(), (0, 1))
    return x * factor[ids][:, None]
