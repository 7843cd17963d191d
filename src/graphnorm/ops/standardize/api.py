""":func:`standardize`: checks of the arguments, the differentiable operation, and its plain form for export."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NoReturn, SupportsFloat

import torch
from torch import Tensor

from graphnorm.ops.dispatch import choose_kernels
from graphnorm.ops.function import define
from graphnorm.ops.layer_norm import layer_norm
from graphnorm.ops.precision import accumulation_dtype, wide_dtype
from graphnorm.ops.standardize import cpu, reference
from graphnorm.ops.standardize.reference import DETACHED, GIVEN, LIVE, Problem, statistics_shape
from graphnorm.segments import Segments, check_dense
from graphnorm.tracing import is_exporting

SCOPES = ("node", "graph", "batch")
ACTIVATIONS = (None, "relu")
_TYPES = frozenset((torch.float64, torch.float32, torch.bfloat16, torch.float16))


def standardize(
    x: Tensor,
    segments: Segments | None = None,
    *,
    scope: str = "graph",
    weight: Tensor | None = None,
    bias: Tensor | None = None,
    mean_scale: Tensor | None = None,
    statistics: str = LIVE,
    mean: Tensor | None = None,
    var: Tensor | None = None,
    eps: float = 1e-5,
    act: str | None = None,
    residual: Tensor | None = None,
) -> tuple[Tensor, Tensor, Tensor]:
    r"""Shift by α·mean and divide by the root of the second moment, over a set of values.

    .. math:: y = \mathrm{act}\!\left(\gamma\,\frac{x - \alpha\mu}{\sqrt{E[(x - \alpha\mu)^2] + \varepsilon}} + \beta
              \right) + \text{residual}

    Args:
        x: features, shape (N, C), of nodes or edges.
        segments: which rows form a graph; ``None``: all rows are one graph.
        scope: over what mean and second moment are taken: ``"node"`` (the channels of one row), ``"graph"`` (the rows
            of one graph, per channel) or ``"batch"`` (all rows, per channel).
        weight: γ, shape (C,); 1 if left out.
        bias: β, shape (C,); 0 if left out.
        mean_scale: α, shape (C,); 1 if left out. Not with scope ``"node"``.
        statistics: ``"live"``; ``"detached"``, live but with no gradient through them; or ``"given"``.
        mean: with ``"given"``, the mean to use, shape (G, C), or (1, C) with scope ``"batch"``.
        var: with ``"given"``, the variance to use, likewise. The second moment follows as v + (1-α)²·mean².
        eps: ε, added to the second moment.
        act: ``"relu"`` or ``None``, applied in the same pass. Its slope at exactly 0 is taken as 1, not 0: where all
            rows of a graph are equal the standardized value is exactly 0 at α = 1 and β = 0, and a slope of 0 there
            would keep α and β from ever moving.
        residual: added after ``act`` in the same pass, shape (N, C).

    Returns:
        y of x's shape and type (or the residual's type, where that is wider); the mean (double) and variance used,
        shape (G, C), without gradient: empty where they were given, and with scope ``"node"``.

    >>> x = torch.tensor([[1.0], [3.0], [5.0]])
    >>> y, mean, var = standardize(x, Segments(sizes=[2, 1]))
    >>> y.T
    tensor([[-1.0000,  1.0000,  0.0000]])
    >>> mean.T, var.T
    (tensor([[2., 5.]], dtype=torch.float64), tensor([[1., 0.]]))
    """
    _check_arguments(x, weight, bias, mean_scale, residual)
    check_act(act)
    if not torch.compiler.is_compiling():
        check_eps(eps)
    late = None  # a residual of another type, which kernels do not take
    if residual is not None and residual.dtype != x.dtype:
        residual, late = None, residual
    if scope == "node":
        if mean_scale is not None or statistics != LIVE:
            raise ValueError("scope 'node' takes no mean_scale and has live statistics only")
        y = layer_norm(x, residual, weight, bias, float(eps), act == "relu")
        return y if late is None else y + late, x.new_empty(0), x.new_empty(0)
    if scope not in SCOPES:
        raise ValueError(f"scope is {scope!r}; the scopes are {', '.join(map(repr, SCOPES))}")
    if statistics not in (LIVE, DETACHED, GIVEN):
        raise ValueError(f"statistics is {statistics!r}; it can be 'live', 'detached' or 'given'")
    if (statistics == GIVEN) != (mean is not None) or (mean is None) != (var is None):
        raise ValueError("mean and var come with statistics='given', both of them, and with nothing else")
    if segments is not None:
        check_segments(x, segments)
    if mean is not None and var is not None:
        graphs = 1 if segments is None or scope == "batch" else segments.num_graphs
        _check_statistics(x, graphs, mean, var)
    ptr, order, max_size = layout(x, segments, scope)
    problem = Problem(
        weight, bias, mean_scale, ptr, order, mean, var, float(eps), act == "relu", statistics, max_size
    )  # fmt: skip
    if is_exporting():  # plain torch, so that an exported program runs anywhere, an ONNX runtime included
        ids, graphs = _ids(x, segments, scope)
        y, mean, var = reference.standardize_by_ids(x, residual, ids, problem, graphs)
    elif torch.compiler.is_compiling():
        from graphnorm.ops.standardize import compiled  # which imports all of the compiler

        if compiled.can_fuse(x, problem):
            of_rows = None if ptr is None or x.is_cuda else _ids(x, segments, scope)[0]
            y, mean, var = compiled.standardize_fused(x, residual, of_rows, problem)
        else:
            y, mean, var = standardize_op(x, residual, *problem)
    else:
        y, mean, var = standardize_op(x, residual, *problem)
    return y if late is None else y + late, mean, var


def layout(x: Tensor, segments: Segments | None, scope: str) -> tuple[Tensor | None, Tensor | None, int | None]:
    """The segments that statistics run over: ptr, order and an upper bound on the rows of one segment."""
    rows = x.shape[-2]
    if segments is None or (not segments.may_pad and segments.num_graphs == 1):
        return None, None, rows
    if scope == "graph":
        return segments.ptr, segments.order, segments.max_size
    if segments.may_pad:
        whole = segments.merged(rows)
        return whole.ptr, whole.order, rows
    return None, None, rows


def _ids(x: Tensor, segments: Segments | None, scope: str) -> tuple[Tensor, int]:
    """The segment that statistics run over of every row, G for rows of none, and G."""
    if segments is None or (scope == "batch" and not segments.may_pad):
        return torch.zeros(x.shape[0], dtype=torch.int64, device=x.device), 1
    graphs, ids = segments.num_graphs, segments.bounded_ids(x.shape[0])
    return (ids, graphs) if scope == "graph" else ((ids == graphs).long(), 1)


# ---- the operation ---------------------------------------------------------------------------------------------


def kernels_for(x: Tensor, graphs: int, *others: Any) -> Any:
    """The implementation for these arguments: a module with ``forward`` and ``backward`` as in the reference."""
    return choose_kernels(x, graphs, reference, cpu, "graphnorm.ops.standardize.gpu", others)


def _forward(x: Tensor, residual: Tensor | None, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    """Output, mean and variance; the latter are empty where they were given."""
    y, mean, var = kernels_for(x, problem.graphs, residual, *problem).forward(x, residual, problem)
    return (y, mean, var) if problem.statistics != GIVEN else (y, mean.new_empty(0), var.new_empty(0))


def _backward(dy: Tensor, x: Tensor, problem: Problem) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """dx and the gradients of weight, bias and mean_scale, whether these are there or not."""
    kernels = kernels_for(x, problem.graphs, dy, *problem)
    gradients: tuple[Tensor, Tensor, Tensor, Tensor] = kernels.backward(dy, x, problem)
    return gradients


def _save(
    wanted: Any, outputs: tuple[Tensor, Tensor, Tensor], x: Tensor, residual: Any, problem: Problem
) -> tuple[Any, ...]:
    """The input, and two numbers per segment and channel."""
    if problem.statistics != GIVEN:
        problem = problem._replace(mean=outputs[1], var=outputs[2])
    return x, *problem


def _fake_forward(x: Tensor, residual: Any, problem: Problem) -> tuple[Tensor, Tensor, Tensor]:
    shape = (0,) if problem.statistics == GIVEN else statistics_shape(x, problem.graphs)
    mean, var = x.new_empty(shape, dtype=wide_dtype(x)), x.new_empty(shape, dtype=accumulation_dtype(x.dtype))
    return x.new_empty(x.shape), mean, var


def _fake_backward(dy: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    shape, acc = (*x.shape[:-2], x.shape[-1]), accumulation_dtype(x.dtype)
    dweight, dbias, dmean_scale = (x.new_empty(shape, dtype=acc) for _ in range(3))
    return x.new_empty(x.shape), dweight, dbias, dmean_scale


standardize_op = define(
    "standardize",
    _forward,
    _backward,
    reference.backward,
    dims={
        "x": 2, "residual": 2, "weight": 1, "bias": 1, "mean_scale": 1, "ptr": 1, "order": 1, "mean": 2, "var": 2,
        "dy": 2,
    },
    save=_save,
    gradients=("x", "weight", "bias", "mean_scale"),
    residual="residual",
    shared=("ptr", "order"),
    fake=(_fake_forward, _fake_backward),
)  # fmt: skip


# ---- checks ----------------------------------------------------------------------------------------------------


def check_features(name: str, x: Tensor) -> None:
    """Refuse what is no dense tensor of a floating-point type."""
    if not isinstance(x, Tensor):
        raise TypeError(f"{name} must be a tensor of features, got {type(x).__name__}")
    if x.dtype not in _TYPES:
        remedy = "dequantize()" if x.is_quantized else "float()"
        raise TypeError(f"{name} must hold floating-point features, got {x.dtype}; convert it with {name}.{remedy}")
    check_dense(name, x)


def _check_arguments(
    x: Tensor, weight: Tensor | None, bias: Tensor | None, mean_scale: Tensor | None, residual: Tensor | None
) -> None:
    check_features("x", x)
    shape, device = x.shape, x.device
    if len(shape) != 2:
        raise ValueError(f"x must have shape (nodes, channels), got {tuple(shape)}")
    width = shape[1:]
    for name, tensor in (("weight", weight), ("bias", bias), ("mean_scale", mean_scale)):
        if tensor is not None and (not isinstance(tensor, Tensor) or tensor.shape != width or tensor.device != device):
            explain_mismatch(x, name, tensor, width, "one entry per channel of x")
    if residual is not None:
        check_features("residual", residual)
        if residual.shape != shape or residual.device != device:
            explain_mismatch(x, "residual", residual, shape, "the same shape as x")


def explain_mismatch(x: Tensor, name: str, tensor: Tensor, expected: Sequence[int], why: str) -> NoReturn:
    """Say what is wrong with a tensor that comes with x."""
    if not isinstance(tensor, Tensor):
        raise TypeError(f"{name} must be a tensor, got {type(tensor).__name__}")
    if tensor.device != x.device:
        raise ValueError(f"{name} is on {tensor.device}, x is on {x.device}; move one with .to(...)")
    raise ValueError(
        f"{name} has shape {tuple(tensor.shape)}, x has shape {tuple(x.shape)}; expected {tuple(expected)}: {why}"
    )


def _check_statistics(x: Tensor, graphs: int, mean: Tensor, var: Tensor) -> None:
    expected = (graphs, x.shape[1])
    for name, tensor in (("mean", mean), ("var", var)):
        if not isinstance(tensor, Tensor) or tensor.shape != expected or tensor.device != x.device:
            why = "one row per graph, or one for the whole batch, and one entry per channel of x"
            explain_mismatch(x, name, tensor, expected, why)


def check_act(act: str | None) -> None:
    if act not in ACTIVATIONS:
        raise ValueError(f"act is {act!r}; it can be 'relu' or None")


def check_eps(eps: float) -> None:
    """Refuse an ε that is no number, or is negative."""
    if type(eps) is float and eps >= 0:
        return
    if not isinstance(eps, SupportsFloat) or not float(eps) >= 0:
        raise ValueError(f"eps is {eps!r}; it is a small number that is added to variances, 0 or more")


def check_segments(x: Tensor, segments: Segments) -> None:
    """Refuse segments on another device, or of another number of rows where that is known without synchronising."""
    if not isinstance(segments, Segments):
        raise TypeError(f"segments must be Segments, got {type(segments).__name__}; write Segments(batch=…)")
    check_fit(x, segments.device, segments.num_rows)


def check_fit(x: Tensor, device: torch.device, described: int | None) -> None:
    """Refuse x if its batch is on another device, or describes another number of rows, where that is known."""
    if device != x.device:
        raise ValueError(
            f"the segments (batch, ptr or sizes) are on {device}, x is on {x.device}; "
            f"move them with .to({str(x.device)!r})"
        )
    if described is not None and described != x.shape[0]:
        raise ValueError(
            f"x has {x.shape[0]} rows, but batch (or ptr, sizes) describes {described}; "
            "each row of x needs exactly one graph id, so pass the batch vector that belongs to this x"
        )
