"""The base class of all layers: the call, its checks, the parameters."""

from __future__ import annotations

from typing import Any, SupportsIndex

import torch
from torch import Tensor, nn

from graphnorm.ops.neighbour_sum import pool
from graphnorm.ops.standardize import standardize
from graphnorm.ops.standardize.api import check_act, check_eps, check_features, check_fit, check_segments
from graphnorm.ops.standardize.reference import means_by_ids
from graphnorm.segment_cache import as_segments
from graphnorm.segments import Segments, check_ids
from graphnorm.tracing import can_read_values, is_exporting

__all__ = ["Norm", "RunningAverages", "graph_means", "zero_padding"]


class Norm(nn.Module):
    """Base class of the layers: checks, parameters γ and β, activation and a readable ``repr``.

    A layer implements ``_normalize(x, segments, residual)``.

    Args:
        in_channels: C, the number of features of a node; ``None`` in layers that take any number.
        eps: ε, added to the second moment.
        affine: whether there are a weight γ and a bias β.
        act: ``"relu"`` to apply it in the same pass, or ``None``. Its slope at exactly 0 is 1, where torch's is 0.
        device: where the parameters live.
        dtype: what they are stored in.
    """

    uses_graphs = True
    """Whether it matters which rows form a graph. If not, ``batch`` is only checked."""

    counts_graphs = False
    """Whether the number of graphs matters, those without rows included, or the id of each. If not, compiled training
    may number the graphs of a batch vector anew, and add some without rows."""

    any_width = False
    """Whether the layer has no parameters, so that it takes any number of channels."""

    in_channels: int | None
    weight: nn.Parameter | None
    bias: nn.Parameter | None
    mean_scale: nn.Parameter | None

    def __init__(
        self,
        in_channels: int | None,
        eps: float = 1e-5,
        *,
        affine: bool = True,
        act: str | None = None,
        device: torch.device | str | None = None,
        dtype: torch.dtype | None = None,
    ) -> None:
        super().__init__()
        fits = isinstance(in_channels, SupportsIndex) and in_channels.__index__() >= 1
        if not fits and not (in_channels is None and self.any_width):
            raise ValueError(f"in_channels is {in_channels!r}; it is the number of features of a node, at least 1")
        check_eps(eps)
        check_act(act)
        self.in_channels, self.eps, self.act = None if in_channels is None else int(in_channels), eps, act
        self._register_affine(affine, {"device": device, "dtype": dtype})
        self.register_parameter("mean_scale", None)

    def _register_affine(self, affine: bool, factory: dict[str, Any]) -> None:
        for name, make in (("weight", torch.ones), ("bias", torch.zeros)):
            value = nn.Parameter(make(self.in_channels or 0, **factory)) if affine else None
            self.register_parameter(name, value)

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Normalize the rows of x.

        Args:
            x: features, shape (N, C), of nodes or edges.
            batch: the graph id of every row, shape (N,), in any order, or :class:`~graphnorm.Segments`. ``None``: all
                rows are one graph.
            batch_size: the number of graphs, with a tensor ``batch``. On a GPU it saves a device synchronisation.
            residual: added after the activation, shape (N, C).

        Returns:
            shape (N, C). Rows that belong to no graph (padding) are 0, plus the residual; layers that take each node by
            itself treat them like any other.
        """
        self._check(x)
        if not self.uses_graphs:
            segments = _check_batch(x, batch, batch_size)
        elif type(batch) is Segments and batch_size is None:
            segments = batch
        else:
            segments = as_segments(batch, batch_size, counted=self.counts_graphs)
        return self._normalize(x, segments, residual)

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        raise NotImplementedError

    def _check(self, x: Tensor) -> None:
        check_features("x", x)
        shape = x.shape
        if len(shape) != 2:
            raise ValueError(f"x must have shape (nodes, {self.in_channels or 'channels'}), got {tuple(shape)}")
        if self.in_channels is not None and shape[1] != self.in_channels:
            raise ValueError(
                f"{type(self).__name__} was made for {self.in_channels} channels, but x has shape {tuple(shape)}; "
                f"make it with {type(self).__name__}({shape[1]}, …) or check the layer before it"
            )
        for own in (self._parameters, self._buffers):
            for name, tensor in own.items():
                if tensor is not None and tensor.device != x.device:
                    raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}; move one with .to(...)")

    def _standardize(
        self, x: Tensor, segments: Segments | None, residual: Tensor | None, **options: Any
    ) -> tuple[Tensor, Tensor, Tensor]:
        """y, mean and variance by the fused operation, with the layer's parameters, activation and the residual."""
        compiling = torch.compiler.is_compiling()
        weight, bias, mean_scale = (self.weight, self.bias, self.mean_scale) if compiling else self._affine()
        return standardize(
            x, segments, weight=weight, bias=bias, mean_scale=mean_scale, eps=self.eps, act=self.act,
            residual=residual, **options,
        )  # fmt: skip

    def _affine(self) -> tuple[Tensor | None, Tensor | None, Tensor | None]:
        """γ, β and α, quicker than as attributes."""
        own = self._parameters
        try:
            return own["weight"], own["bias"], own["mean_scale"]
        except KeyError:  # one of them is parametrized
            return self.weight, self.bias, self.mean_scale

    def _finish(self, y: Tensor, residual: Tensor | None) -> Tensor:
        """Activation and residual, for layers that are not fused."""
        return finish(y, self.act, residual)

    def reset_parameters(self) -> None:
        """Back to γ = 1, β = 0, and α = 1 where there is one."""
        with torch.no_grad():
            for name, parameter in self.named_parameters(recurse=False):
                parameter.fill_(0.0 if name == "bias" else 1.0)

    def extra_repr(self) -> str:
        act = f"act={self.act!r}" if self.act else ""
        if self.in_channels is None:
            return act
        return ", ".join(part for part in (f"{self.in_channels}, eps={self.eps}", act) if part)


class RunningAverages(nn.Module):
    """For a layer that keeps running averages itself, in buffers named as those of ``torch.nn.BatchNorm1d``."""

    running_mean: Tensor | None
    running_var: Tensor | None
    num_batches_tracked: Tensor | None

    def _register_averages(self, *shape: int, track: bool, device: torch.device | str | None) -> None:
        buffers = {
            "running_mean": torch.zeros(shape, device=device),
            "running_var": torch.ones(shape, device=device),
            "num_batches_tracked": torch.tensor(0, device=device),
        }
        for name, value in buffers.items():
            self.register_buffer(name, value if track else None)

    def reset_running_stats(self) -> None:
        """Back to mean 0 and variance 1, with no batch seen."""
        if self.running_mean is not None and self.running_var is not None and self.num_batches_tracked is not None:
            self.running_mean.zero_()
            self.running_var.fill_(1)
            self.num_batches_tracked.zero_()


def finish(y: Tensor, act: str | None, residual: Tensor | None) -> Tensor:
    """Activation and residual, in plain torch."""
    y = torch.relu(y) if act == "relu" else y
    if residual is None:
        return y
    check_features("residual", residual)
    if residual.shape != y.shape:
        shapes = f"{tuple(residual.shape)}, x has shape {tuple(y.shape)}"
        raise ValueError(f"residual has shape {shapes}; expected the same shape as x")
    return y + residual


def _check_batch(x: Tensor, batch: Tensor | Segments | None, batch_size: int | None) -> Segments | None:
    """Refuse a batch that decides nothing in a layer if other layers refuse it: on a GPU, without reading the ids.

    ``Segments``, which may have padding, are returned.
    """
    if isinstance(batch, Tensor) and not (batch.is_cpu and can_read_values(batch)):
        check_ids(batch, batch_size)
        check_fit(x, batch.device, batch.shape[0])
        return None
    segments = as_segments(batch, batch_size)
    if segments is not None:
        check_segments(x, segments)
    return segments if isinstance(batch, Segments) else None


def graph_means(x: Tensor, segments: Segments | None) -> Tensor:
    """(N, C), or (1, C) without segments: the mean of each row's graph; 0 for rows of no graph."""
    if segments is None:
        return x.sum(0, keepdim=True) / max(x.shape[0], 1)
    check_segments(x, segments)
    if is_exporting():  # ONNX has no searchsorted
        return means_by_ids(x, segments.bounded_ids(x.shape[0]), segments.num_graphs)
    means = nn.functional.pad(pool(x, segments, "mean"), (0, 0, 0, 1))
    return means[segments.bounded_ids(x.shape[0])]


def zero_padding(y: Tensor, segments: Segments | None) -> Tensor:
    """y, but 0 for rows of no graph."""
    if segments is None:
        return y
    return torch.where(segments.bounded_ids(y.shape[0])[:, None] < segments.num_graphs, y, 0.0)
