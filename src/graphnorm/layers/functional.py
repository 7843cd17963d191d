"""The layers as functions, with their parameters as arguments.

:func:`standardize`, :func:`aggregate` and :func:`pool` are the operations that layers and models consist of.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.layers.base import finish
from graphnorm.layers.graph import size_norm
from graphnorm.ops.neighbour_sum import aggregate, pool
from graphnorm.ops.standardize import standardize
from graphnorm.ops.standardize.api import check_act, explain_mismatch
from graphnorm.segment_cache import as_segments
from graphnorm.segments import Segments

__all__ = [
    "aggregate",
    "batch_norm",
    "graph_norm",
    "graph_size_norm",
    "instance_norm",
    "layer_norm",
    "pool",
    "standardize",
]


def graph_norm(
    x: Tensor,
    batch: Tensor | Segments | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean_scale: Tensor | None = None,
    *,
    batch_size: int | None = None,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """The function of :class:`graphnorm.GraphNorm`. ``mean_scale`` is α, 1 if left out.

    ``weight`` and ``bias`` have shape (C,), or (G, C) for a γ and a β of each graph (conditional normalization). The
    latter are applied by plain torch, after the fused operation.

    >>> import torch
    >>> x = torch.tensor([[1.0], [3.0]])
    >>> graph_norm(x, mean_scale=torch.zeros(1)).T  # nothing is subtracted: x / √(mean of x²)
    tensor([[0.4472, 1.3416]])
    """
    of_graphs = [given for given in (weight, bias) if isinstance(given, Tensor) and given.ndim == 2]
    if of_graphs and batch_size is None and isinstance(batch, Tensor) and torch.compiler.is_compiling():
        batch_size = of_graphs[0].shape[0]  # a number that the compiler knows
    segments = as_segments(batch, batch_size)
    if not of_graphs:
        return standardize(
            x, segments, weight=weight, bias=bias, mean_scale=mean_scale, eps=eps, act=act, residual=residual
        )[0]
    check_act(act)
    y = standardize(x, segments, mean_scale=mean_scale, eps=eps)[0]
    y = y if weight is None else y * _of_each_row("weight", weight, x, segments)
    y = y if bias is None else y + _of_each_row("bias", bias, x, segments)
    return finish(y.to(x.dtype), act, residual)


def _of_each_row(name: str, parameter: Tensor, x: Tensor, segments: Segments | None) -> Tensor:
    """A parameter of shape (C,) or (G, C) for each row; 0 for rows of no graph."""
    shape = (1 if segments is None else segments.num_graphs, x.shape[1])
    if not isinstance(parameter, Tensor) or parameter.shape not in (shape, shape[1:]) or parameter.device != x.device:
        explain_mismatch(x, name, parameter, shape, "one row per graph, or one in all, and one entry per channel of x")
    if segments is None:
        return parameter
    table = torch.nn.functional.pad(parameter.expand(shape), (0, 0, 0, 1))
    return table[segments.bounded_ids(x.shape[0])]


def instance_norm(
    x: Tensor,
    batch: Tensor | Segments | None = None,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    batch_size: int | None = None,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """The function of :class:`graphnorm.InstanceNorm`.

    >>> import torch
    >>> instance_norm(torch.tensor([[1.0], [3.0]])).T
    tensor([[-1.0000,  1.0000]])
    """
    return graph_norm(x, batch, weight, bias, batch_size=batch_size, eps=eps, act=act, residual=residual)


def batch_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean_scale: Tensor | None = None,
    *,
    running_mean: Tensor | None = None,
    running_var: Tensor | None = None,
    detach: bool = False,
    segments: Segments | None = None,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """The function of :class:`graphnorm.BatchNorm` and its variants.

    By ``running_mean`` and ``running_var``, shape (C,), where they are given; by the batch's own statistics otherwise,
    without gradient through them if ``detach``. ``segments`` matters only where it marks rows as padding.

    >>> import torch
    >>> batch_norm(torch.tensor([[1.0], [3.0]])).T
    tensor([[-1.0000,  1.0000]])
    """
    given = running_mean is not None and running_var is not None
    return standardize(
        x, segments, scope="batch", weight=weight, bias=bias, mean_scale=mean_scale, eps=eps, act=act,
        residual=residual,
        statistics="given" if given else "detached" if detach else "live",
        mean=None if running_mean is None else running_mean[None],
        var=None if running_var is None else running_var[None],
    )[0]  # fmt: skip


def layer_norm(
    x: Tensor,
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    *,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> Tensor:
    """The function of :class:`graphnorm.LayerNorm`.

    >>> import torch
    >>> layer_norm(torch.tensor([[1.0, 3.0]]))
    tensor([[-1.0000,  1.0000]])
    """
    return standardize(x, scope="node", weight=weight, bias=bias, eps=eps, act=act, residual=residual)[0]


def graph_size_norm(x: Tensor, batch: Tensor | Segments | None = None, *, batch_size: int | None = None) -> Tensor:
    """The function of :class:`graphnorm.GraphSizeNorm`.

    >>> import torch
    >>> graph_size_norm(torch.tensor([[4.0], [4.0], [4.0], [4.0]])).T
    tensor([[2., 2., 2., 2.]])
    """
    return size_norm(x, as_segments(batch, batch_size))
