r"""Standardization of rows in plain torch: the definition, and what every fused kernel is tested against.

For each row x of C channels:

.. math::

    \mu = \tfrac1C \sum x, \qquad v = \tfrac1C \sum (x - \mu)^2, \qquad r = (v + \varepsilon)^{-1/2}, \qquad
    \hat x = r\,(x - \mu)

    z = \gamma\,\hat x + \beta, \qquad y = \mathrm{act}(z) + \text{residual}

The mean is taken twice, the second time about the first, so that its rounding does not matter where it is large.

**Gradient.** With :math:`g = \gamma\,dz`, and means taken over the channels of a row:

.. math::

    dx = r \left[(g - \overline g) - \hat x\,\overline{g\,\hat x}\right], \qquad
    d\gamma = \sum_{\text{rows}} dz\,\hat x, \qquad d\beta = \sum_{\text{rows}} dz

The statistics are found anew in the backward pass, which has x in registers anyway: nothing is kept but the inputs.
Where all channels of a row are equal, or there is but one, :math:`\hat x = 0`: the output is β and dx = r (g - ḡ).

Shapes here and in the fused twins: x is (N, C), or (M, N, C) for M members stacked by ``vmap``; parameters are (C) or
(M, C), and ``None`` stands for γ = 1 and β = 0.
"""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.ops.standardize.problem import computed_in


def _standardized(x: Tensor, eps: float) -> tuple[Tensor, Tensor]:
    """x̂ like x, and r per row, (…, 1)."""
    rough = x - x.mean(-1, keepdim=True)
    centred = rough - rough.mean(-1, keepdim=True)
    r = torch.rsqrt((centred * centred).mean(-1, keepdim=True) + eps)
    return centred * r, r


def _per_row(parameter: Tensor, like: Tensor) -> Tensor:
    """A parameter ([M,] C) beside rows: ([M,] 1, C)."""
    return parameter.to(like.dtype).unsqueeze(-2)


def _affine(standardized: Tensor, weight: Tensor | None, bias: Tensor | None) -> Tensor:
    z = standardized if weight is None else standardized * _per_row(weight, standardized)
    return z if bias is None else z + _per_row(bias, standardized)


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """y like x."""
    z = _affine(_standardized(x.to(computed_in(x.dtype)), eps)[0], weight, bias)
    if relu:
        z = torch.where(z < 0, 0, z)
    return (z if residual is None else z + residual).to(x.dtype)


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The closed form above: dx like x, and the gradients of weight and bias, ([M,] C). Itself differentiable."""
    acc = computed_in(x.dtype)
    standardized, r = _standardized(x.to(acc), eps)
    dz = dy.to(acc)
    if relu:
        dz = torch.where(_affine(standardized, weight, bias) < 0, 0, dz)  # at 0 itself the slope is 1; see standardize
    g = dz if weight is None else dz * _per_row(weight, dz)
    along = (g * standardized).mean(-1, keepdim=True)
    dx = r * ((g - g.mean(-1, keepdim=True)) - standardized * along)
    return dx.to(x.dtype), (dz * standardized).sum(-2), dz.sum(-2)


def composed(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """y of one model by torch's own layer norm, which exporters know, and which reads rows of any width."""
    acc = computed_in(x.dtype)
    weight, bias = (None if p is None else p.to(acc) for p in (weight, bias))
    z = torch.nn.functional.layer_norm(x.to(acc), x.shape[-1:], weight, bias, eps)
    if relu:
        z = torch.where(z < 0, 0, z)
    return (z if residual is None else z + residual).to(x.dtype)
