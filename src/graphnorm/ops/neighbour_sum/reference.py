r"""Sums over neighbours in plain torch: the definition, against which every fused kernel is tested.

Row r has the edges e, each from the row c = c(e) and with the features a. With a scale s per row (1 if left out), the
weight w of a row's own features (0 if left out), and φ the identity or relu:

.. math::

    y_r = s_r \Bigl(k_r \sum_{e \to r} s_c\, \varphi(x_c + a_e) + w\, s_r\, x_r\Bigr), \qquad
    k_r = 1 \text{ (sum)} \quad\text{or}\quad 1 / \text{number of edges of } r \text{ (mean; 0 for none)}

GIN is w = 1 + ξ; GCN is s = (degree + 1)^{-1/2} and w = 1; GINE (molecules) has φ = relu and features of bonds. A
readout has no x: it adds up "features of edges", where the edges of a graph are its rows.

**Gradient.** With :math:`m_e = k_r s_r\, s_c\; dy_r \odot \varphi'(x_c + a_e)` for e → r:

.. math::

    dx_c = \sum_{e\ \text{from}\ c} m_e + w\, s_c^2\, dy_c, \qquad da_e = m_e, \qquad
    dw = \sum_r s_r^2\, \langle x_r, dy_r \rangle

So dx is the same operation over the edges reversed, which for a symmetric graph are the edges themselves.
:math:`\varphi'(0) = 0` for relu, as torch has it. Edges of no row (padding) have da = 0. No gradient flows to s.

Shapes, here and in the fused implementations: x is (N, C), or (M, N, C) for M members stacked by ``vmap``; see
:class:`Problem` for the rest.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphnorm.adjacency import rows_of
from graphnorm.ops.precision import accumulation_dtype, wide_dtype


class Problem(NamedTuple):
    """Edges, scales and options of one call: all of its arguments but the features.

    Integer arrays and ``scale`` may lack M where all members share them. ``col`` is absent where there are only
    features of edges to add up, ``edge_of`` where those are in the order of the edges. The transposed arrays serve the
    backward pass; ``t_edge`` only where the gradient depends on the features of the edges.
    """

    self_weight: Tensor | None  # ([M]), or `constant` in its place
    scale: Tensor | None  # ([M,] N), without gradient
    rowptr: Tensor  # ([M,] R + 1)
    col: Tensor | None  # ([M,] E)
    edge_of: Tensor | None  # ([M,] E)
    t_rowptr: Tensor | None  # ([M,] N + 1)
    t_col: Tensor | None  # ([M,] E)
    t_edge: Tensor | None  # ([M,] E)
    constant: float
    relu: bool
    mean: bool
    max_degree: int | None  # an upper bound on the edges of one row, in both directions

    @property
    def rows(self) -> int:
        """R, the number of rows that receive."""
        return self.rowptr.shape[-1] - 1


class Wanted(NamedTuple):
    """Which gradients to compute; the others come back empty."""

    dx: bool
    da: int | None  # E, where it is wanted
    dw: bool


class _Edges(NamedTuple):
    """The edges of all members end to end, so that one index_add serves all.

    Every member gets one more row, number R, for the edges that belong to none.
    """

    members: int
    rows: int  # R
    row: Tensor  # (M E,) in 0 … M (R + 1) - 1
    inside: Tensor  # (M E, 1)
    col: Tensor | None  # (M E,) in 0 … M R - 1
    feature: Tensor | None  # (M E,) in 0 … M E - 1; None: in order

    def by_row(self, values: Tensor) -> Tensor:
        """Sums over the edges of each row, (M, R, C). Taken in double: they run over the edges one by one."""
        return _sums(values, self.row, self.members, self.rows + 1)[:, : self.rows]

    def by_col(self, values: Tensor) -> Tensor:
        """Sums over the edges from each row, (M, R, C)."""
        assert self.col is not None
        return _sums(values, self.col, self.members, self.rows)

    def of_row(self, values: Tensor) -> Tensor:
        """Values ([M,] R, C) of the rows that edges lead to, (M E, C); 0 for those that lead to none."""
        values = values.expand(self.members, *values.shape[-2:])
        return torch.nn.functional.pad(values, (0, 0, 0, 1)).flatten(0, 1)[self.row]

    def of_col(self, values: Tensor) -> Tensor:
        """Values ([M,] R, C) of the rows that edges come from, (M E, C)."""
        return values.expand(self.members, *values.shape[-2:]).flatten(0, 1)[self.col]


def _sums(values: Tensor, at: Tensor, members: int, rows: int) -> Tensor:
    wide = wide_dtype(values)
    zeros = values.new_zeros(members * rows, values.shape[-1], dtype=wide)
    sums = zeros.index_add(0, at, values.to(wide)).to(values.dtype)
    return sums.reshape(members, rows, values.shape[-1])


def _edges(problem: Problem, members: int, edges: int) -> _Edges:
    rows, device = problem.rows, problem.rowptr.device
    member = torch.arange(members, device=device)[:, None]

    def flat(index: Tensor, size: int) -> Tensor:
        return (index.expand(members, edges).long() + member * size).reshape(-1)

    row = rows_of(problem.rowptr, edges)
    inside = (row < rows).expand(members, edges).reshape(-1, 1)
    col = None if problem.col is None else flat(problem.col.clamp(0, max(0, rows - 1)), rows)
    feature = None if problem.edge_of is None else flat(problem.edge_of, edges)
    return _Edges(members, rows, flat(row, rows + 1), inside, col, feature)


def count_edges(problem: Problem, edge_x: Tensor | None) -> int:
    """E, the padding included."""
    if problem.col is not None:
        return problem.col.shape[-1]
    assert edge_x is not None
    return edge_x.shape[-2]


def _scale(problem: Problem, acc: torch.dtype) -> Tensor | None:
    """s as ([M,] N, 1)."""
    return None if problem.scale is None else problem.scale.to(acc).unsqueeze(-1)


def _self_weight(problem: Problem, acc: torch.dtype) -> Tensor | float:
    """w, over (M, N, C)."""
    w = problem.self_weight
    return problem.constant if w is None else w.to(acc).reshape(-1, 1, 1)


def _per_row(problem: Problem, acc: torch.dtype) -> Tensor:
    """k as ([M,] R, 1)."""
    return problem.rowptr.diff().clamp(min=1).to(acc).reciprocal().unsqueeze(-1)


def _before_relu(edges: _Edges, x: Tensor | None, edge_x: Tensor | None, acc: torch.dtype) -> Tensor:
    """x of the neighbour plus the edge's own, (M E, C)."""
    values = None if x is None else edges.of_col(x.to(acc))
    if edge_x is not None:
        own = edge_x.to(acc).reshape(edges.row.shape[0], edge_x.shape[-1])
        own = own if edges.feature is None else own[edges.feature]
        values = own if values is None else values + own
    assert values is not None
    return values


def forward(x: Tensor | None, edge_x: Tensor | None, problem: Problem) -> Tensor:
    """y, ([M,] R, C). Differentiable by torch itself: ``torch.export`` traces this function."""
    features = x if x is not None else edge_x
    assert features is not None
    members = features.shape[0] if features.dim() == 3 else 1
    acc = accumulation_dtype(features.dtype)
    scale = _scale(problem, acc)
    edges = _edges(problem, members, count_edges(problem, edge_x))
    message = _before_relu(edges, x, edge_x, acc)
    message = torch.relu(message) if problem.relu else message
    message = message if scale is None else message * edges.of_col(scale)
    y = edges.by_row(torch.where(edges.inside, message, 0))
    y = y * _per_row(problem, acc) if problem.mean else y
    if problem.self_weight is not None or problem.constant:
        assert x is not None
        own = _self_weight(problem, acc) * x.to(acc).reshape(y.shape)
        y = y + (own if scale is None else own * scale)
    y = y if scale is None else y * scale
    return y.to(features.dtype).reshape(*features.shape[:-2], *y.shape[-2:])


def backward(
    dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like x, da like edge_x, dw ([M]). Differentiable in turn. Does not use the transposed arrays."""
    lead, channels = dy.shape[:-2], dy.shape[-1]
    members = lead[0] if lead else 1
    acc = accumulation_dtype(dy.dtype)
    scale = _scale(problem, acc)
    flat = dy.to(acc).reshape(members, problem.rows, channels)
    out = flat if scale is None else flat * scale
    dx, da, dw = not_wanted(dy)
    if wanted.dx or wanted.da is not None:
        edges = _edges(problem, members, count_edges(problem, edge_x) if wanted.da is None else wanted.da)
        message = edges.of_row(out * _per_row(problem, acc) if problem.mean else out)
        message = message if scale is None else message * edges.of_col(scale)
        if problem.relu:
            message = torch.where(_before_relu(edges, x, edge_x, acc) <= 0, 0, message)
        if wanted.dx:
            own = out * _self_weight(problem, acc)
            sums = edges.by_col(message) + (own if scale is None else own * scale)
            dx = sums.to(dy.dtype).reshape(dy.shape)
        if wanted.da is not None:
            ordered = (
                message if edges.feature is None else torch.zeros_like(message).index_copy(0, edges.feature, message)
            )
            da = ordered.to(dy.dtype).reshape(*lead, wanted.da, channels)
    if wanted.dw:
        assert x is not None
        own = x.to(acc).reshape(flat.shape) * (out if scale is None else out * scale)
        dw = own.flatten(1).sum(-1, dtype=wide_dtype(own)).to(acc).reshape(lead)
    return dx, da, dw


def not_wanted(dy: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """Placeholders for dx, da and dw."""
    lead = dy.shape[:-2]
    empty = dy.new_empty(*lead, 0, 0)
    return empty, dy.new_empty(*lead, 0, 0), dy.new_empty(*lead, 0, dtype=accumulation_dtype(dy.dtype))
