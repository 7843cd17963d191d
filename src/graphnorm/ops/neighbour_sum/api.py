""":func:`aggregate` and :func:`pool`: checks of the arguments, the operation, and its plain form for export."""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from graphnorm.adjacency import Adjacency
from graphnorm.ops.dense_sum import can_sum, sum_blocks
from graphnorm.ops.dispatch import choose_kernels
from graphnorm.ops.function import define
from graphnorm.ops.neighbour_sum import cpu, reference
from graphnorm.ops.neighbour_sum.reference import Problem, Wanted
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize.api import check_features, check_segments
from graphnorm.segments import Segments
from graphnorm.tracing import is_exporting

REDUCTIONS = ("sum", "mean")


def aggregate(
    x: Tensor,
    adjacency: Adjacency,
    *,
    self_weight: Tensor | float | None = None,
    scale: Tensor | None = None,
    edge_x: Tensor | None = None,
    relu: bool = False,
    reduce: str = "sum",
) -> Tensor:
    r"""Add up the features of each row's neighbours, and its own.

    .. math:: y_r = s_r \Bigl(\sum_{e \to r} s_c\, \varphi(x_c + a_e) + w\, s_r\, x_r\Bigr)

    Args:
        x: features of nodes, shape (N, C).
        adjacency: the edges.
        self_weight: w, a tensor of one number (it gets a gradient) or a float; ``None``: a row's own features do not
            count.
        scale: s, shape (N,), without gradient; 1 if left out. GCN's is 1/√(degree + 1).
        edge_x: a, features of edges, shape (E, C), in the order in which the adjacency was given.
        relu: whether φ is relu; the identity otherwise.
        reduce: ``"sum"``, or ``"mean"``: the sum over edges, but not the row's own part, is divided by their number.

    Returns:
        y of x's shape and type.

    >>> path = Adjacency(edge_index=torch.tensor([[0, 1, 1, 2], [1, 0, 2, 1]]), num_nodes=3, symmetric=True)
    >>> x = torch.tensor([[1.0], [10.0], [100.0]])
    >>> aggregate(x, path).T
    tensor([[ 10., 101.,  10.]])
    >>> aggregate(x, path, self_weight=1.0, reduce="mean").T
    tensor([[ 11.0000,  60.5000, 110.0000]])
    """
    _check_features("x", x)
    mean = _is_mean(reduce)
    rows = x.shape[0]
    if adjacency.device != x.device:
        raise ValueError(
            f"the adjacency is on {adjacency.device}, x is on {x.device}; move it with .to({str(x.device)!r})"
        )
    if adjacency.num_rows != rows:
        raise ValueError(f"x has {rows} rows, but the adjacency describes {adjacency.num_rows}; pass the one of this x")
    if scale is not None:
        _check_tensor(x, "scale", scale, (rows,), "one number per row of x")
        if scale.requires_grad:
            raise ValueError("scale takes no gradient; pass scale.detach(), or multiply x and the result by it outside")
    if edge_x is not None:
        _check_tensor(x, "edge_x", edge_x, (adjacency.num_edges, x.shape[1]), "one row per edge, as wide as x")
        edge_x = edge_x.to(x.dtype)
    constant = 0.0
    if isinstance(self_weight, Tensor):
        if self_weight.numel() != 1:
            raise ValueError(f"self_weight is one number, got shape {tuple(self_weight.shape)}")
        self_weight = self_weight.reshape(())
    elif self_weight is not None:
        constant, self_weight = float(self_weight), None

    if adjacency.blocks is not None:
        if edge_x is None and not (relu or mean) and can_sum(x):
            return sum_blocks(x, adjacency.blocks, self_weight=self_weight, scale=scale, constant=constant)
        if not adjacency.num_edges:
            raise ValueError("these edges are there as matrices only, which take sums of float32 features on a GPU")
    edges = (adjacency.rowptr, adjacency.col, None if edge_x is None else adjacency.edge_ids)
    reverse: tuple[Tensor | None, ...] = (None, None, None)
    if _may_need_gradient(x, edge_x):
        if adjacency.symmetric and not (relu and edge_x is not None):
            reverse = (adjacency.rowptr, adjacency.col, None)
        else:
            reverse = adjacency.transpose()
    return _apply(x, edge_x, self_weight, scale, *edges, *reverse, constant, relu, mean, adjacency.max_degree)


def pool(x: Tensor, segments: Segments, reduce: str = "sum") -> Tensor:
    """Add up, or average, the rows of each graph: the readout of a model.

    Args:
        x: features of nodes, shape (N, C).
        segments: which rows form a graph. Rows of no graph count nowhere and get a gradient of 0.
        reduce: ``"sum"`` or ``"mean"``; graphs without rows give 0 in either.

    Returns:
        shape (G, C), of x's type.

    >>> pool(torch.tensor([[1.0], [3.0], [5.0]]), Segments(sizes=[2, 0, 1]), reduce="mean").T
    tensor([[2., 0., 5.]])
    """
    _check_features("x", x)
    mean = _is_mean(reduce)
    check_segments(x, segments)
    no_transpose = (None,) * 3
    return _apply(
        None, x, None, None, segments.ptr, None, segments.order, *no_transpose, 0.0, False, mean, segments.max_size
    )  # fmt: skip


def _apply(x: Tensor | None, edge_x: Tensor | None, *rest: Any) -> Tensor:
    if is_exporting():  # plain torch, so that an exported program runs anywhere
        return reference.forward(x, edge_x, Problem(*rest))
    return cast(Tensor, _neighbour_sum(x, edge_x, *rest))


def _may_need_gradient(x: Tensor, edge_x: Tensor | None) -> bool:
    """Whether the reversed edges may be needed: only the gradient of x takes them."""
    if x.requires_grad:
        return True
    return not torch.compiler.is_compiling() and torch._C._are_functorch_transforms_active()


# ---- the operation ---------------------------------------------------------------------------------------------


def _kernels(features: Tensor, rows: int, *others: Any) -> Any:
    return choose_kernels(features, rows, reference, cpu, "graphnorm.ops.neighbour_sum.gpu", others)


def _forward(x: Tensor | None, edge_x: Tensor | None, problem: Problem) -> Tensor:
    """y, ([M,] R, C)."""
    features = cast(Tensor, edge_x if x is None else x)
    y: Tensor = _kernels(features, problem.rows, x, edge_x, *problem).forward(x, edge_x, problem)
    return y


def _backward(
    dy: Tensor, x: Tensor | None, edge_x: Tensor | None, problem: Problem, wanted: Wanted
) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, edge_x and self_weight; empty where they are not wanted."""
    kernels = _kernels(dy, problem.rows, x, edge_x, *problem)
    gradients: tuple[Tensor, Tensor, Tensor] = kernels.backward(dy, x, edge_x, problem, wanted)
    return gradients


def _save(needed: Any, y: Tensor, x: Any, edge_x: Any, problem: Problem) -> tuple[Any, ...]:
    """x and edge_x only where the gradient depends on them: on x for self_weight, on both for relu."""
    wanted = Wanted(needed[0], edge_x.shape[-2] if needed[1] else None, needed[2])
    return x if problem.relu or wanted.dw else None, edge_x if problem.relu else None, *problem, *wanted


def _fake_forward(x: Any, edge_x: Any, problem: Problem) -> Tensor:
    features: Tensor = edge_x if x is None else x
    return features.new_empty(*features.shape[:-2], problem.rows, features.shape[-1])


def _fake_backward(dy: Tensor, x: Any, edge_x: Any, problem: Problem, wanted: Wanted) -> tuple[Tensor, Tensor, Tensor]:
    lead, (dx, da, dw) = dy.shape[:-2], reference.not_wanted(dy)
    dx = dy.new_empty(dy.shape) if wanted.dx else dx
    da = da if wanted.da is None else dy.new_empty(*lead, wanted.da, dy.shape[-1])
    return dx, da, dy.new_empty(lead, dtype=accumulation_dtype(dy.dtype)) if wanted.dw else dw


_neighbour_sum = define(
    "neighbour_sum",
    _forward,
    _backward,
    reference.backward,
    dims={
        "x": 2, "edge_x": 2, "self_weight": 0, "scale": 1, "rowptr": 1, "col": 1, "edge_of": 1, "t_rowptr": 1,
        "t_col": 1, "t_edge": 1, "dy": 2,
    },
    save=_save,
    gradients=("x", "edge_x", "self_weight"),
    shared=("scale", "rowptr", "col", "edge_of", "t_rowptr", "t_col", "t_edge"),
    fake=(_fake_forward, _fake_backward),
)  # fmt: skip


# ---- checks ----------------------------------------------------------------------------------------------------


def _is_mean(reduce: str) -> bool:
    if reduce not in REDUCTIONS:
        raise ValueError(f"reduce is {reduce!r}; it can be 'sum' or 'mean'")
    return reduce == "mean"


def _check_features(name: str, x: Tensor) -> None:
    check_features(name, x)
    if x.dim() != 2:
        raise ValueError(f"{name} must have shape (nodes, channels), got {tuple(x.shape)}")


def _check_tensor(x: Tensor, name: str, tensor: Tensor, shape: tuple[int, ...], why: str) -> None:
    if tensor.device != x.device:
        raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}; move one with .to(...)")
    if tensor.shape != shape:
        raise ValueError(f"{name} has shape {tuple(tensor.shape)}; expected {shape}: {why}")
