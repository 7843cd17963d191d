r"""LayerNorm with activation and residual in one pass: every row by itself, across its channels.

:func:`~graphnorm.ops.standardize.standardize` comes here with scope ``"node"``. For each row x of C channels:

.. math::

    \mu = \tfrac1C \sum x, \qquad v = \tfrac1C \sum (x - \mu)^2, \qquad r = (v + \varepsilon)^{-1/2}, \qquad
    \hat x = r\,(x - \mu)

    z = \gamma\,\hat x + \beta, \qquad y = \mathrm{act}(z) + \text{residual}

The mean is taken twice, the second time about the first, so that its rounding does not matter where it is large.

**Gradient.** With :math:`g = \gamma\,dz`, and means taken over the channels of a row:

.. math::

    dx = r \left[(g - \overline g) - \hat x\,\overline{g\,\hat x}\right], \qquad
    d\gamma = \sum_{\text{rows}} dz\,\hat x, \qquad d\beta = \sum_{\text{rows}} dz

The backward pass computes the statistics again, since it has x in registers anyway: only the inputs are saved. Where
all channels of a row are equal, or there is but one, :math:`\hat x = 0`: the output is β and dx = r (g - ḡ).

Shapes: x is (N, C), or (M, N, C) for M members stacked by ``vmap``; parameters are (C) or (M, C), and ``None`` stands
for γ = 1 and β = 0. The Triton kernels are in :mod:`graphnorm.ops.layer_norm_gpu`.
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor

from graphnorm.backends import TYPES, address, contiguous, library, output_like
from graphnorm.ops.dispatch import Kernels, choose_kernels
from graphnorm.ops.function import define
from graphnorm.ops.precision import accumulation_dtype
from graphnorm.tracing import is_exporting

__all__ = ["layer_norm"]

WIDEST = 4096
"""Channels that a GPU program holds in its registers. Wider rows are left to torch's layer norm, on every device."""


def layer_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """act(γ (x - mean) / √(variance + ε) + β) + residual, for arguments that were checked.

    Args:
        x: features, shape (N, C).
        residual: shape (N, C), of x's type, or ``None``.
        weight: γ, shape (C,), or ``None`` for 1.
        bias: β, shape (C,), or ``None`` for 0.
        eps: ε.
        relu: whether act is relu, with slope 1 at exactly 0; the identity otherwise.

    Returns:
        y of x's shape and type.
    """
    if is_exporting() or x.shape[-1] > WIDEST:
        return _torch_layer_norm(x, residual, weight, bias, eps, relu)
    return cast(Tensor, _layer_norm(x, residual, weight, bias, eps, relu))


def _torch_layer_norm(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """The same by torch's own layer norm, which exporters know, and which takes rows of any width."""
    acc = accumulation_dtype(x.dtype)
    weight, bias = (None if p is None else p.to(acc) for p in (weight, bias))
    z = torch.nn.functional.layer_norm(x.to(acc), x.shape[-1:], weight, bias, eps)
    if relu:
        z = torch.where(z < 0, 0, z)
    return (z if residual is None else z + residual).to(x.dtype)


# ---- plain torch: the definition, against which the kernels are tested ------------------------------------------


def _reference_forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    z = _affine(_standardized(x.to(accumulation_dtype(x.dtype)), eps)[0], weight, bias)
    if relu:
        z = torch.where(z < 0, 0, z)
    return (z if residual is None else z + residual).to(x.dtype)


def _reference_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    acc = accumulation_dtype(x.dtype)
    standardized, r = _standardized(x.to(acc), eps)
    dz = dy.to(acc)
    if relu:
        dz = torch.where(_affine(standardized, weight, bias) < 0, 0, dz)  # at 0 itself the slope is 1; see standardize
    g = dz if weight is None else dz * _per_row(weight, dz)
    along = (g * standardized).mean(-1, keepdim=True)
    dx = r * ((g - g.mean(-1, keepdim=True)) - standardized * along)
    return dx.to(x.dtype), (dz * standardized).sum(-2), dz.sum(-2)


def _standardized(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x̂ like x, and r per row, (…, 1)."""
    rough = x - x.mean(-1, keepdim=True)
    centred = rough - rough.mean(-1, keepdim=True)
    r = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return centred * r, r


def _affine(standardized: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    z = standardized if weight is None else standardized * _per_row(weight, standardized)
    return z if bias is None else z + _per_row(bias, standardized)


def _per_row(parameter: Tensor, like: Tensor) -> Tensor:
    """A parameter ([M,] C) as ([M,] 1, C)."""
    return parameter.to(like.dtype).unsqueeze(-2)


# ---- C: addresses and sizes for csrc/layer_norm.h ---------------------------------------------------------------


def _c_forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    x = x.contiguous()
    y = output_like(x)
    _run_c(x, y, contiguous(residual, x.dtype), None, (weight, bias), (None, None), eps, relu)
    return y


def _c_backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    x, dy, acc = x.contiguous(), dy.contiguous(), accumulation_dtype(x.dtype)
    dx, shape = output_like(x), (*x.shape[:-2], x.shape[-1])
    dweight, dbias = torch.empty(shape, dtype=acc), torch.empty(shape, dtype=acc)
    _run_c(x, dx, None, dy, (weight, bias), (dweight, dbias), eps, relu)
    return dx, dweight, dbias


def _run_c(
    x: Tensor,
    out: Tensor,
    residual: Tensor | None,
    dy: Tensor | None,
    parameters: tuple[Tensor | None, Tensor | None],
    dparameters: tuple[Tensor | None, Tensor | None],
    eps: float,
    relu: bool,
) -> None:
    """Forward where there is no ``dy``. All tensors but the parameters are contiguous and of x's type."""
    assert library is not None
    acc = accumulation_dtype(x.dtype)
    weight, bias = contiguous(parameters[0], acc), contiguous(parameters[1], acc)
    members = x.shape[0] if x.dim() == 3 else 1
    library.layer_norm(
        eps, TYPES[x.dtype], members, *x.shape[-2:], relu, torch.get_num_threads(), x.data_ptr(), out.data_ptr(),
        address(residual), address(dy), address(weight), address(bias), address(dparameters[0]),
        address(dparameters[1]),
    )  # fmt: skip


# ---- the operation ---------------------------------------------------------------------------------------------

_REFERENCE, _C = Kernels(_reference_forward, _reference_backward), Kernels(_c_forward, _c_backward)


def _kernels(x: Tensor, *others: Any) -> Any:
    return choose_kernels(x, x.shape[-2], _REFERENCE, _C, "graphnorm.ops.layer_norm_gpu", others)


def _forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """y like x."""
    y: Tensor = _kernels(x, residual, weight, bias).forward(x, residual, weight, bias, eps, relu)
    return y


def _backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """dx like x, and the gradients of weight and bias, ([M,] C), in the type that sums are taken in."""
    dx, dweight, dbias = _kernels(x, dy, weight, bias).backward(dy, x, weight, bias, eps, relu)
    return dx, dweight, dbias


def _save(wanted: Any, y: Tensor, x: Tensor, residual: Any, *parameters_and_options: Any) -> tuple[Any, ...]:
    return x, *parameters_and_options


def _fake_forward(x: Tensor, *_: Any) -> Tensor:
    return x.new_empty(x.shape)


def _fake_backward(dy: Tensor, x: Tensor, *_: Any) -> tuple[Tensor, Tensor, Tensor]:
    shape, acc = (*x.shape[:-2], x.shape[-1]), accumulation_dtype(x.dtype)
    return x.new_empty(x.shape), x.new_empty(shape, dtype=acc), x.new_empty(shape, dtype=acc)


_layer_norm = define(
    "layer_norm",
    _forward,
    _backward,
    _reference_backward,
    dims={"x": 2, "residual": 2, "weight": 1, "bias": 1, "dy": 2},
    save=_save,
    gradients=("x", "weight", "bias"),
    residual="residual",
    fake=(_fake_forward, _fake_backward),
)
