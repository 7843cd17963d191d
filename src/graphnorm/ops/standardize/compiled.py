r"""Standardization under ``torch.compile``: operators that compilers see through.

A compiler cannot look into an ordinary operator. A ReLU behind one stores a mask, and each call costs the host more
than a small kernel takes.

*On a CPU*, the output per segment and channel is :math:`s\,(x - m) + b`, and the gradient of x is
:math:`s\,[(dz + u) - v\,(x - m)]`. The library computes these coefficients, a few numbers for each segment. The rows
are plain torch, so the compiler fuses them with what comes before and after.

*On a GPU*, compiled programs launch the Triton kernels themselves (:mod:`~graphnorm.ops.standardize.compiled_gpu`), and
:class:`FuseReLU` hands a ReLU behind the layer to them.

*Where all rows are one segment*, everything is plain torch, on both.
"""

from __future__ import annotations

import hashlib
from collections.abc import Iterable, Sequence
from pathlib import Path
from typing import Any

import torch
import torch.compiler.config
from torch import Tensor, fx
from torch._C import _are_functorch_transforms_active
from torch._inductor.custom_graph_pass import CustomGraphPass
from torch.fx.experimental.symbolic_shapes import statically_known_true

from graphnorm.backends import TYPES, address, chosen_backend, contiguous, library, triton_kernels
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.ops.standardize.cpu import STATISTICS
from graphnorm.ops.standardize.reference import GIVEN, LIVE, Problem, statistics_shape
from graphnorm.tracing import register_operator

__all__ = ["can_fuse", "standardize_fused"]

_RELU = 10  # its place among the arguments of :func:`_rows`
_gpu: Any = triton_kernels("graphnorm.ops.standardize.compiled_gpu")

RELU_OF_TORCH = 2
"""A ReLU whose slope at exactly 0 is 0, as torch's; 1 stands for the layers' own."""

# ---- the operators ---------------------------------------------------------------------------------------------

_SHARED = (
    "Tensor? weight, Tensor? bias, Tensor? mean_scale, Tensor? ptr, Tensor? order, Tensor? mean, Tensor? var, "
    "float eps, str statistics, SymInt? max_size"
)


def _coefficients(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    """m, s and b, shape (3, G + 1, C), with zeros at the end for rows of no segment; mean and variance."""
    assert library is not None
    _, mean, var = results = _fake_coefficients(x, *rest)
    problem = _problem(*rest)
    if problem.mean is not None and problem.var is not None:
        mean, var = problem.mean, problem.var
    _run(library.standardize_coefficients, x, problem, mean, var, results)
    return results


def _slopes(dz: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """u and v, shape (2, G + 1, C), and the gradients of the parameters."""
    assert library is not None
    results, problem = _fake_slopes(dz, x, *rest), _problem(*rest)
    assert problem.mean is not None and problem.var is not None
    _run(library.standardize_slopes, x, problem, problem.mean, problem.var, results, dz.contiguous(), *results[1:])
    return results


def _run(
    function: Any, x: Tensor, problem: Problem, mean: Tensor, var: Tensor, results: Sequence[Tensor], *more: Tensor
) -> None:
    """Fill ``results``, the first of which are the coefficients, by a function of the library."""
    if x.numel() == 0:
        for result in results:
            result.zero_()
        return
    acc, (rows, channels) = results[0].dtype, x.shape
    kept = [contiguous(p, acc) for p in problem.parameters]
    kept += [contiguous(mean, torch.float64), contiguous(var, acc), x.contiguous(), results[0], *more]
    function(
        problem.eps, TYPES[x.dtype], rows, channels, problem.graphs, address(contiguous(problem.ptr)),
        address(contiguous(problem.order)), STATISTICS[problem.statistics], torch.get_num_threads(),
        *map(address, kept),
    )  # fmt: skip


def _problem(*arguments: Any) -> Problem:
    *tensors, eps, statistics, max_size = arguments
    return Problem._make((*tensors, eps, False, statistics, max_size))


def _fake_coefficients(x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor]:
    problem, acc = _problem(*rest), accumulation_dtype(x.dtype)
    shape = (0,) if problem.statistics == GIVEN else statistics_shape(x, problem.graphs)
    found = x.new_empty(3, problem.graphs + 1, x.shape[1], dtype=acc)
    return found, x.new_empty(shape, dtype=torch.float64), x.new_empty(shape, dtype=acc)


def _fake_slopes(dz: Tensor, x: Tensor, *rest: Any) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    channels, acc = x.shape[1], accumulation_dtype(x.dtype)
    dweight, dbias, dmean_scale = (x.new_empty(channels, dtype=acc) for _ in range(3))
    return x.new_empty(2, _problem(*rest).graphs + 1, channels, dtype=acc), dweight, dbias, dmean_scale


register_operator(
    f"standardize_coefficients(Tensor x, {_SHARED}) -> (Tensor, Tensor, Tensor)", _fake_coefficients, cpu=_coefficients
)
register_operator(
    f"standardize_slopes(Tensor dz, Tensor x, {_SHARED}) -> (Tensor, Tensor, Tensor, Tensor)", _fake_slopes, cpu=_slopes
)


# ---- coefficients of all rows as one segment ---------------------------------------------------------------------


def _statistics_of_all(x: Tensor) -> tuple[Tensor, Tensor]:
    """Mean (double) and variance, (1, C)."""
    first = x[:1]  # of n values, each is within √n standard deviations of their mean, so nothing cancels
    var, shift = torch.var_mean(x - first, 0, correction=0, keepdim=True)
    rough = first + shift
    return rough.to(torch.float64) + ((first - rough) + shift), var


def _coefficients_of_all(x: Tensor, problem: Problem) -> tuple[Tensor, ...]:
    """m, s and t, (1, C), for an output of s·((x - m) + t) + β.

    As t has no factor s, no product here joins mean and variance. Triton 3.6 fails to compile one where both come from
    the same reduction.
    """
    assert problem.mean is not None and problem.var is not None
    weight, _, alpha = _parameters(problem, x)
    m = problem.mean.to(x.dtype)
    kept = (1 - alpha) * m
    s = weight * torch.rsqrt(problem.var + kept * kept + problem.eps)
    return _once(m, s, kept - (problem.mean - m).to(x.dtype))


def _slopes_of_all(
    dz: Tensor, d: Tensor, m: Tensor, problem: Problem
) -> tuple[Tensor, Tensor, tuple[Tensor, Tensor, Tensor]]:
    """u and v, (1, C), and the gradients of the parameters; d = x - m. ``reference`` has the formulas."""
    assert problem.mean is not None and problem.var is not None
    weight, _, alpha = _parameters(problem, d)
    rest, kept = (problem.mean - m).to(d.dtype), (1 - alpha) * m
    r, n = torch.rsqrt(problem.var + kept * kept + problem.eps), d.shape[0]
    total = dz.sum(0, keepdim=True)
    p, q = total / n, ((dz * d).sum(0, keepdim=True) - rest * total) / n
    along = q + kept * p
    through = r * r * ((problem.var + problem.eps) * p - kept * q)
    u = v = torch.zeros_like(p)
    if problem.statistics == LIVE:
        v = r * r * along
        u = (1 - alpha) * through - p + v * rest
    u, v = _once(u, v)
    return u, v, ((n * r * along)[0], total[0], (-n * m * weight * r * through)[0])


def _once(*coefficients: Tensor) -> tuple[Tensor, ...]:
    """Computed before the rows on a CPU; on a GPU within the pass over the rows, where a launch costs more."""
    return torch.stack(coefficients).unbind(0) if coefficients[0].is_cpu else coefficients


def _parameters(problem: Problem, x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """γ, β and α, (1, C)."""
    given = zip(problem.parameters, (1.0, 0.0, 1.0), strict=True)
    weight, bias, alpha = (x.new_full((1, x.shape[1]), e) if p is None else p.to(x.dtype)[None] for p, e in given)
    return weight, bias, alpha


# ---- the rows --------------------------------------------------------------------------------------------------


def _of_rows(coefficients: Tensor, ids: Tensor | None) -> tuple[Tensor, ...]:
    """The coefficients of every row, (N, C) each."""
    assert ids is not None
    return tuple(plane.index_select(0, ids) for plane in coefficients.unbind(0))


def _output_of_all(s: Tensor, d: Tensor, t: Tensor, bias: Tensor | None) -> Tensor:
    """The rows before the ReLU, where all are one segment; d = x - m."""
    z = s * (d + t)
    return z if bias is None else z + bias.to(z.dtype)


def _is_one_segment(x: Tensor, ptr: Tensor | None) -> bool:
    return ptr is None and statically_known_true(x.shape[0] >= 1)


def _rows(
    x: Tensor,
    residual: Tensor | None,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    ptr: Tensor | None,
    order: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    ids: Tensor | None,
    relu: int,
    eps: float,
    statistics: str,
    max_size: int | None,
) -> tuple[Tensor, Tensor, Tensor, Tensor]:
    """The output; mean and variance, empty where they were given; and the coefficients."""
    rest = (weight, bias, mean_scale, ptr, order, mean, var, eps, statistics, max_size)
    one = _is_one_segment(x, ptr)
    if not one and x.is_cuda:
        y, mean, var = _gpu.forward(x, residual, _problem(*rest), relu)
        given = statistics == GIVEN
        return y, mean.new_empty(0) if given else mean, var.new_empty(0) if given else var, var.new_empty(0)
    wide = x.to(accumulation_dtype(x.dtype))
    if one:
        found, live_mean, live_var = wide.new_empty(0), wide.new_empty(0, dtype=torch.float64), wide.new_empty(0)
        problem = _problem(*rest)
        if statistics != GIVEN:
            live_mean, live_var = _statistics_of_all(wide)
            problem = problem._replace(mean=live_mean, var=live_var)
        m, s, t = _coefficients_of_all(wide, problem)
        z = _output_of_all(s, wide - m, t, bias)
    else:
        found, live_mean, live_var = torch.ops.graphnorm.standardize_coefficients(x, *rest)
        m, s, b = _of_rows(found, ids)
        z = s * (wide - m) + b
    if relu:
        z = torch.relu(z)
    if residual is not None:
        z = z + residual
    return z.to(x.dtype), live_mean, live_var, found


def _save(ctx: Any, inputs: tuple[Any, ...], output: tuple[Tensor, ...]) -> None:
    x, _, weight, bias, mean_scale, ptr, order, mean, var, ids, ctx.relu, *ctx.options = inputs
    if mean is None:
        mean, var = output[1:3]
    ctx.save_for_backward(x, ids, output[3], weight, bias, mean_scale, ptr, order, mean, var)
    ctx.mark_non_differentiable(*output[1:])
    ctx.set_materialize_grads(False)


def _gradients(ctx: Any, dy: Tensor | None, *_: Any) -> tuple[Tensor | None, ...]:
    if dy is None:  # the output was not used
        return (None,) * 14
    x, ids, found, *rest = ctx.saved_tensors
    one, dresidual = _is_one_segment(x, rest[3]), dy if ctx.needs_input_grad[1] else None
    if not one and x.is_cuda and not torch.is_grad_enabled():
        dx, shares = _gradient_on_gpu(dy, x, *rest, ctx.relu, *ctx.options)
        total = shares.sum(1, dtype=torch.float64).to(shares.dtype)  # before it is split, so that it is one launch
        return dx, dresidual, *_as_parameters(total, rest[:3]), *[None] * 9
    problem = _problem(*rest, *ctx.options)
    if torch.is_grad_enabled():  # the gradient of this gradient is wanted, which the formulas below are not made for
        from graphnorm.ops.standardize.api import standardize_op  # which imports this module

        dx, *gradients = standardize_op.backward(dy, x, *problem._replace(relu=bool(ctx.relu)))
        return dx, dresidual, *_as_parameters(gradients, rest[:3]), *[None] * 9
    m, s, b = _coefficients_of_all(x.to(found.dtype), problem) if one else _of_rows(found, ids)
    back = m - x.to(found.dtype)  # the forward pass has x - m: a compiler would store that, which is as large as x
    dz = dy
    if ctx.relu:
        z = _output_of_all(s, -back, b, problem.bias) if one else b - s * back
        dz = torch.where(z <= 0 if ctx.relu == RELU_OF_TORCH else z < 0, 0, dy)
    if one:
        u, v, gradients = _slopes_of_all(dz.to(found.dtype), -back, m, problem)
    else:
        slopes, *gradients = torch.ops.graphnorm.standardize_slopes(dz, x, *rest, *ctx.options)
        u, v = _of_rows(slopes, ids)
    dx = (s * ((dz.to(found.dtype) + u) + v * back)).to(x.dtype)
    return dx, dresidual, *_as_parameters(gradients, rest[:3]), *[None] * 9


def _as_parameters(gradients: Iterable[Tensor], parameters: Sequence[Tensor | None]) -> list[Tensor | None]:
    return [None if p is None else g.to(p.dtype) for p, g in zip(parameters, gradients, strict=True)]


def _backward_on_gpu(
    dy: Tensor,
    x: Tensor,
    weight: Tensor | None,
    bias: Tensor | None,
    mean_scale: Tensor | None,
    ptr: Tensor | None,
    order: Tensor | None,
    mean: Tensor | None,
    var: Tensor | None,
    relu: int,
    eps: float,
    statistics: str,
    max_size: int | None,
) -> tuple[Tensor, Tensor]:
    problem = _problem(weight, bias, mean_scale, ptr, order, mean, var, eps, statistics, max_size)
    dx, shares = _gpu.backward(dy, x, problem, relu)
    return dx, shares


# A compiler sees through a triton_op, one without kernels of Triton too. With autograd.Function torch 2.11 mixes up the
# gradients.
_standardize_rows: Any = torch.library.triton_op("graphnorm::standardize_rows", _rows, mutates_args=())
_standardize_rows.register_autograd(_gradients, setup_context=_save)
_gradient_on_gpu: Any = torch.library.triton_op("graphnorm::standardize_gradient", _backward_on_gpu, mutates_args=())


# ---- the compiler ------------------------------------------------------------------------------------------------

# Torch keeps compiled programs on disk by the names of their operators. With other kernels they are other programs.
_SOURCES = sorted(Path(__file__).parents[1].rglob("*.py"))
_DIGEST = hashlib.sha256(b"".join(path.read_bytes() for path in _SOURCES)).hexdigest()
torch.compiler.config.cache_key_tag += f"{__name__} {_DIGEST}"


class FuseReLU(CustomGraphPass):
    """Let the kernels apply a ReLU that is all that reads a layer's output."""

    def __call__(self, graph: fx.Graph) -> None:
        if graph.find_nodes(op="call_function", target=torch._C._set_grad_enabled):
            return  # the ReLU may be outside of what has gradients
        for node in graph.find_nodes(op="call_function", target=torch.ops.graphnorm.standardize_rows.default):
            outputs = [user for user in node.users if user.args[1] == 0]
            y = outputs[0] if len(outputs) == 1 else None
            relu = next(iter(y.users)) if y is not None and len(y.users) == 1 else None
            if y is None or relu is None or node.args[1] is not None or node.args[_RELU] or not _is_relu(relu):
                continue
            if y.meta["example_value"].is_cuda:
                node.update_arg(_RELU, RELU_OF_TORCH)
                relu.replace_all_uses_with(y)
                graph.erase_node(relu)

    def uuid(self) -> str:
        return _DIGEST


class ReadOnce(CustomGraphPass):
    """Let all layers share the first reading of a batch vector. Torch does this for training alone."""

    def __call__(self, graph: fx.Graph) -> None:
        first: dict[tuple[Any, ...], fx.Node] = {}
        for node in graph.find_nodes(op="call_function", target=torch.ops.graphnorm.read_batch.default):
            if (same := first.setdefault(node.args, node)) is not node:
                node.replace_all_uses_with(same)
                graph.erase_node(node)

    def uuid(self) -> str:
        return _DIGEST


def _is_relu(node: fx.Node) -> bool:
    functions = (torch.relu, torch.relu_, torch.nn.functional.relu, torch.nn.functional.relu_)
    return node.target in functions or (node.op == "call_method" and node.target in ("relu", "relu_"))


if torch._inductor.config.pre_grad_custom_pass is None:  # a user's own pass stays
    torch._inductor.config.pre_grad_custom_pass = FuseReLU()
if torch._inductor.config.post_grad_custom_pre_pass is None:
    torch._inductor.config.post_grad_custom_pre_pass = ReadOnce()


def can_fuse(x: Tensor, problem: Problem) -> bool:
    """Whether a compiled program is to see through the operation. Inside ``vmap`` the operation has its own rule."""
    if _are_functorch_transforms_active() or (problem.ptr is None and not _is_one_segment(x, problem.ptr)):
        return False
    if x.is_cpu:
        return library is not None and chosen_backend() in ("auto", "cpu")
    usable = x.is_cuda and _gpu is not None and chosen_backend() in ("auto", "triton")
    return usable and (problem.ptr is None or _gpu.suits(x, problem))


def standardize_fused(
    x: Tensor, residual: Tensor | None, ids: Tensor | None, problem: Problem
) -> tuple[Tensor, Tensor, Tensor]:
    """As the operation, for arguments that were checked; ``ids``, shape (N,), has G for rows of no segment."""
    *tensors, eps, relu, statistics, max_size = problem
    y, mean, var, _ = _standardize_rows(x, residual, *tensors, ids, int(relu), eps, statistics, max_size)
    return y, mean, var
