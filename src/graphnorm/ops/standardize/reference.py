r"""Standardization in plain torch: the definition, against which every fused kernel is tested.

For each segment (a graph, or the whole batch) and each channel, over its n values x:

.. math::

    \mu = \tfrac1n \sum x, \qquad v = \tfrac1n \sum (x - \mu)^2, \qquad k = (1 - \alpha)\,\mu, \qquad
    r = (v + k^2 + \varepsilon)^{-1/2}

    z = \gamma\, r\, (x - \alpha\mu) + \beta, \qquad y = \mathrm{act}(z) + \text{residual}

:math:`v + k^2` is the second moment of the shifted value :math:`x - \alpha\mu = (x - \mu) + k`, as the paper has it.
Writing it about the true mean is what keeps digits: nothing large is subtracted from anything large.

**Gradient.** With :math:`c = x - \mu`, :math:`p = \tfrac1n\sum dz`, :math:`q = \tfrac1n\sum dz\,c`:

.. math::

    t &= r^2 \left[(v + \varepsilon)\,p - k\,q\right] \\
    dx &= \gamma r \left[(dz - p) - r^2 (q + k p)\, c + (1 - \alpha)\, t\right] \\
    d\gamma &= n\, r\,(q + k p), \qquad d\beta = n\,p, \qquad d\alpha = -n\,\mu\,\gamma\, r\, t

The textbook form :math:`\gamma r\,[dz - \hat x\,\overline{dz\,\hat x}] - \alpha\,\overline{(\cdot)}` is the same
function, but where :math:`|k| \gg \sqrt v` (a large mean, α ≠ 1) it subtracts numbers that agree in all their digits.

When statistics carry no gradient ("detached": live but held fixed; "given": running averages) then
:math:`dx = \gamma r\,dz`; the gradients of the parameters stay as they are.

**Edge cases.** A segment without rows contributes nothing; its stored statistics are 0. In a segment of one row, or
of equal rows, v = 0: at α = 1 the output is β, dx is exactly 0, and dα = −γμΣdz/√ε is the derivative of the formula
itself, large but finite. It lets GraphNorm leave α = 1 on regular graphs, so it is not clipped.
Rows of no segment (padding, ids out of range) have act(z) = 0 and dx = 0.

Shapes, here and in the fused implementations: x is (N, C), or (M, N, C) for M members stacked by ``vmap``; ``ptr`` is
(G + 1) or (M, G + 1), ``order`` (N) or (M, N), parameters (C) or (M, C), statistics (G, C) or (M, G, C).
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphnorm.ops.precision import accumulation_dtype, wide_dtype

LIVE, DETACHED, GIVEN = "live", "detached", "given"
"""Where statistics come from: computed, computed but constant in the gradient, or passed in (running averages)."""

Parameters = tuple[Tensor | None, Tensor | None, Tensor | None]
"""weight γ, bias β and mean_scale α, ([M,] C) each; 1, 0 and 1 where they are ``None``."""


class Problem(NamedTuple):
    """Parameters, segments and statistics of one call: all of its arguments but the input.

    ``ptr`` and ``order`` may lack M where all members share them; ``None`` means one segment of all rows, and rows in
    order. Parameters that are ``None`` are 1, 0 and 1. ``mean`` and ``var`` are there when statistics are given and, in
    the backward pass, always.
    """

    weight: Tensor | None  # ([M,] C)
    bias: Tensor | None  # ([M,] C)
    mean_scale: Tensor | None  # ([M,] C)
    ptr: Tensor | None  # ([M,] G + 1) int64
    order: Tensor | None  # ([M,] N) int64
    mean: Tensor | None  # ([M,] G, C), in `wide_dtype`
    var: Tensor | None  # ([M,] G, C), in `accumulation_dtype`
    eps: float
    relu: bool
    statistics: str
    max_size: int | None  # an upper bound on the rows of one segment

    @property
    def parameters(self) -> Parameters:
        return self.weight, self.bias, self.mean_scale

    @property
    def graphs(self) -> int:
        """G, the number of segments of each member."""
        return 1 if self.ptr is None else self.ptr.shape[-1] - 1


def statistics_shape(x: Tensor, graphs: int) -> tuple[int, ...]:
    """([M,] G, C)."""
    return (*x.shape[:-2], graphs, x.shape[-1])


class _Rows(NamedTuple):
    """The rows of all members end to end, so that one index_add serves all.

    Every member gets one more segment, number G, for the rows that belong to no graph.
    """

    ids: Tensor  # (M N,) in 0 … M (G + 1) - 1
    inside: Tensor  # (M N, 1), whether the row belongs to a graph
    rows: Tensor  # (M (G + 1), 1), rows per segment, at least 1

    def total(self, values: Tensor) -> Tensor:
        """Sums over segments, (M (G + 1), C). Taken in double: they run over the rows one by one."""
        wide = wide_dtype(values)
        zeros = values.new_zeros(self.rows.shape[0], values.shape[-1], dtype=wide)
        return zeros.index_add(0, self.ids, torch.where(self.inside, values, 0).to(wide)).to(values.dtype)

    def average(self, values: Tensor) -> Tensor:
        """Means over segments, (M (G + 1), C); 0 where there are no rows."""
        return self.total(values) / self.rows.to(values.dtype)


class _Statistics(NamedTuple):
    """Per row the centred value c; per segment the mean μ and the variance v."""

    centred: Tensor  # (M N, C)
    mean: Tensor  # (M (G + 1), C), in `wide_dtype`
    var: Tensor  # (M (G + 1), C)


def segment_ids(problem: Problem, x: Tensor) -> Tensor:
    """The segment of every row, ([M,] N), in 0 … G, where G stands for "of no graph"."""
    lead = x.shape[:-1]
    if problem.ptr is None:
        return torch.zeros(lead, dtype=torch.int64, device=x.device)
    position = torch.arange(lead[-1], device=x.device).expand(*problem.ptr.shape[:-1], lead[-1]).contiguous()
    ids = torch.searchsorted(problem.ptr, position, right=True) - 1
    ids = torch.where(ids < 0, problem.graphs, ids).expand(lead)
    if problem.order is None:
        return ids
    return torch.empty_like(ids).scatter(-1, problem.order.expand(lead), ids)


def _rows(ids: Tensor, graphs: int) -> _Rows:
    members = ids.shape[0] if ids.dim() == 2 else 1
    stacked = ids.reshape(members, ids.shape[-1])
    flat = (stacked + torch.arange(members, device=ids.device)[:, None] * (graphs + 1)).reshape(-1)
    count = flat.new_zeros(members * (graphs + 1)).index_add(0, flat, torch.ones_like(flat))
    return _Rows(flat, (stacked < graphs).reshape(-1, 1), count.clamp(min=1)[:, None])


def _per_segment(parameter: Tensor | None, otherwise: float, graphs: int, like: Tensor) -> Tensor:
    """A parameter ([M,] C) for every segment: (M (G + 1), C), or (1, C) where there are no members."""
    if parameter is None:
        return like.new_full((1, 1), otherwise)
    parameter = parameter.to(like.dtype).reshape(-1, parameter.shape[-1])
    return parameter if parameter.shape[0] == 1 else parameter.repeat_interleave(graphs + 1, 0)


def _statistics(x: Tensor, rows: _Rows, problem: Problem, graphs: int) -> _Statistics:
    """x is (M N, C). A live mean is taken twice, the second time about the first, so its rounding does not matter."""
    if problem.statistics == GIVEN or (problem.statistics != LIVE and problem.mean is not None):
        assert problem.mean is not None and problem.var is not None
        members = rows.rows.shape[0] // (graphs + 1)
        mean, var = (
            torch.nn.functional.pad(t.reshape(members, graphs, x.shape[-1]), (0, 0, 0, 1)).flatten(0, 1)
            for t in (problem.mean, problem.var.to(x.dtype))
        )
        centre = mean.to(x.dtype)
        rest = (mean - centre).to(x.dtype)
        return _Statistics((x - centre[rows.ids]) - rest[rows.ids], mean, var)
    measured = x if problem.statistics == LIVE else x.detach()
    centre = rows.average(measured)
    rest = rows.average(measured - centre[rows.ids])
    centred = (x - centre[rows.ids]) - rest[rows.ids]
    spread = centred if problem.statistics == LIVE else centred.detach()
    return _Statistics(centred, centre.to(wide_dtype(x)) + rest, rows.average(spread * spread))


def means_by_ids(x: Tensor, ids: Tensor, graphs: int) -> Tensor:
    """(N, C): the mean of the segment of every row, 0 for rows of no segment."""
    rows = _rows(ids, graphs)
    return rows.average(x)[rows.ids]


def standardize_by_ids(
    x: Tensor, residual: Tensor | None, ids: Tensor, problem: Problem, graphs: int
) -> tuple[Tensor, Tensor, Tensor]:
    """Output, mean and variance, given the segment ([M,] N) of every row, G for rows of no graph.

    Differentiable by torch itself: ``torch.export`` and ONNX trace this function.
    """
    rows = _rows(ids, graphs)
    flat = x.reshape(-1, x.shape[-1]).to(accumulation_dtype(x.dtype))
    stats = _statistics(flat, rows, problem, graphs)
    alpha, weight, bias = _parameters(problem, graphs, flat)
    kept = (1 - alpha) * stats.mean.to(flat.dtype)
    scale = weight * torch.rsqrt(stats.var + kept * kept + problem.eps)
    z = scale[rows.ids] * (stats.centred + kept[rows.ids]) + bias.expand_as(scale)[rows.ids]
    if problem.relu:
        z = torch.where(z < 0, 0, z)
    z = torch.where(rows.inside, z, 0)
    if residual is not None:
        z = z + residual.reshape(z.shape)
    y = z.to(x.dtype).reshape(x.shape)
    shape = statistics_shape(x, graphs)
    mean, var = (t.reshape(-1, graphs + 1, x.shape[-1])[:, :graphs].reshape(shape) for t in stats[1:])
    return y, mean, var


def _parameters(problem: Problem, graphs: int, like: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    return (
        _per_segment(problem.mean_scale, 1, graphs, like),
        _per_segment(problem.weight, 1, graphs, like),
        _per_segment(problem.bias, 0, graphs, like),
    )


def forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """y like x, mean and variance ([M,] G, C)."""
    return standardize_by_ids(x, residual, segment_ids(problem, x), problem, problem.graphs)


def backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The closed form above: dx like x, and the gradients of weight, bias and mean_scale, ([M,] C).

    Differentiable in turn, in every order: live statistics are computed from x again.
    """
    graphs, channels = problem.graphs, x.shape[-1]
    rows = _rows(segment_ids(problem, x), graphs)
    acc = accumulation_dtype(x.dtype)
    stats = _statistics(x.reshape(-1, channels).to(acc), rows, problem, graphs)
    alpha, weight, bias = _parameters(problem, graphs, stats.centred)
    mean = stats.mean.to(acc)
    kept = (1 - alpha) * mean
    r = torch.rsqrt(stats.var + kept * kept + problem.eps)
    dz = torch.where(rows.inside, dy.reshape(-1, channels).to(acc), 0)
    if problem.relu:
        z = (weight * r)[rows.ids] * (stats.centred + kept[rows.ids]) + bias.expand_as(r)[rows.ids]
        dz = torch.where(z < 0, 0, dz)  # at 0 itself the slope is 1; see standardize
    p, q = rows.average(dz), rows.average(dz * stats.centred)
    along = q + kept * p
    through = r * r * ((stats.var + problem.eps) * p - kept * q)
    dx = dz
    if problem.statistics == LIVE:
        constant, slope = (1 - alpha) * through - p, r * r * along
        dx = (dz + constant[rows.ids]) - slope[rows.ids] * stats.centred
    dx = torch.where(rows.inside, (weight * r)[rows.ids] * dx, 0).to(x.dtype).reshape(x.shape)

    lead = x.shape[:-2]
    n = torch.where(rows.total(torch.ones_like(dz[:, :1])) > 0, rows.rows.to(acc), 0)

    def over_segments(values: Tensor) -> Tensor:
        return values.expand(n.shape[0], channels).reshape(*lead, graphs + 1, channels)[..., :graphs, :].sum(-2)

    return dx, over_segments(n * r * along), over_segments(n * p), over_segments(-n * mean * weight * r * through)
