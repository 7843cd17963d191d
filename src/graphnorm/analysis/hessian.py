"""Extreme eigenvalues of the Hessian of a loss, by products with it alone."""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm.analysis.measurement import Floats, Measurement
from graphnorm.errors import GraphnormError, need

__all__ = ["RitzValues", "hessian_spectrum", "lanczos", "module_loss"]

Loss = Callable[[dict[str, Tensor]], Tensor]
NEGLIGIBLE = 1e-4
"""An eigenvalue below this share of the largest needs no relative accuracy of its own."""


@dataclass(frozen=True, eq=False)
class RitzValues(Measurement):
    """Approximate eigenvalues of a symmetric matrix after k Lanczos steps."""

    eigenvalues: Floats
    """(k,): ascending; the outermost are close to those of the matrix."""
    residuals: Floats
    """(k,): an eigenvalue of the matrix lies within this distance of each."""
    weights: Floats
    """(k,): they sum to 1. Averaged over random starts, Σ weight·f(eigenvalue) estimates the mean of f over the whole
    spectrum (stochastic Lanczos quadrature)."""
    converged: bool
    """Whether the residuals at both ends are within the tolerance, see :func:`lanczos`."""

    @property
    def largest(self) -> float:
        """The largest eigenvalue; of a loss's Hessian, the sharpness."""
        return float(self.eigenvalues[-1])

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue; of a loss's Hessian, negative where the loss curves down."""
        return float(self.eigenvalues[0])

    @property
    def steps(self) -> int:
        """k: products with the matrix."""
        return len(self.eigenvalues)


def hessian_spectrum(
    loss: Loss, parameters: Mapping[str, Tensor], *, max_steps: int = 100, tolerance: float = 1e-3, seed: int = 0
) -> RitzValues:
    """Compute the extreme eigenvalues of the Hessian of ``loss`` at ``parameters``.

    The Hessian H (P × P, for P parameters) is never formed. A product Hv is the derivative of vᵀ∇L, and costs about two
    backward passes. The extreme eigenvalues come out long before the number of products reaches P.

    - loss: from a dict of parameters to a scalar; for a module see :func:`module_loss`. It must be twice
      differentiable, give the same value each time (no fresh dropout masks), and not change its parameters.
    - parameters: where the Hessian is taken, by name. They are not changed. float64 gives more digits.
    - max_steps: the largest number of products. Each keeps one vector of the size of all parameters in float64.
    - tolerance: how exact both ends must be, see :func:`lanczos`.

    >>> quadratic = lambda p: (torch.tensor([1.0, 5.0, -2.0]) * p["w"] ** 2).sum() / 2
    >>> result = hessian_spectrum(quadratic, {"w": torch.zeros(3)})
    >>> round(result.smallest, 4), round(result.largest, 4)
    (-2.0, 5.0)
    """
    at = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    if not at:
        raise GraphnormError("there are no parameters", remedy="pass dict(model.named_parameters())")
    leaves = list(at.values())

    def flat(tensors: Sequence[Tensor]) -> Tensor:
        return torch.cat([tensor.reshape(-1) for tensor in tensors])

    with torch.enable_grad():
        value = loss(at)
        if value.ndim:
            raise GraphnormError(f"the loss has shape {tuple(value.shape)}", remedy="give one number, such as its mean")
        gradient = flat(torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True))

    def product(vector: Tensor) -> Tensor:
        if not gradient.requires_grad:  # the loss is linear in its parameters
            return torch.zeros_like(vector)
        vector = vector.to(gradient.dtype)
        rows = torch.autograd.grad(gradient, leaves, vector, retain_graph=True, materialize_grads=True)
        return flat(rows).to(torch.float64)

    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(gradient.numel(), generator=generator, dtype=torch.float64).to(gradient.device)
    return lanczos(product, start, max_steps=max_steps, tolerance=tolerance)


def module_loss(module: nn.Module, loss: Callable[[nn.Module], Tensor]) -> Loss:
    """Turn ``loss(module)`` into a function of the module's parameters; buffers are left as they are.

    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
    >>> f = module_loss(model, lambda m: (m(x) - y).square().mean())
    >>> hessian_spectrum(f, dict(model.named_parameters())).smallest > 0
    True
    """

    class Holder(nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return loss(self.module)

    holder = Holder()

    def function(parameters: dict[str, Tensor]) -> Tensor:
        state = {name: buffer.clone() for name, buffer in module.named_buffers()} | parameters
        state = {f"module.{name}": value for name, value in state.items()}
        value: Tensor = torch.func.functional_call(holder, state, ())
        return value

    return function


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, *, max_steps: int = 100, tolerance: float = 1e-3
) -> RitzValues:
    """Approximate the extreme eigenvalues of a symmetric operator H on vectors (P,) of float64, from ``start``.

    After k products, with an orthonormal basis V of the Krylov space, VᵀHV = T is tridiagonal, and its extreme
    eigenvalues approach those of H from inside. With an eigenvector s of T, βₖ|sₖ| is the residual of an approximate
    eigenpair. The error of an eigenvalue is of the order of its residual squared.

    Each end has converged when its residual is at most ``tolerance`` times its absolute value, or times 1e-4 of the
    largest absolute value where that is more. The iteration stops when both ends have, or after ``max_steps``. So an
    end far below 1e-4 of the other may have no correct digit, but an eigenvalue lies within ``tolerance·1e-4`` of the
    largest. Singular matrices with many small eigenvalues take the most steps.

    The basis is orthogonalized in full, twice, in float64. Otherwise rounding makes extreme eigenvalues appear again
    and again.
    """
    # Not SciPy's eigsh. On 40 Hessians of GIN (MUTAG and PROTEINS, five norms) it needs 18 products on average against
    # 14. On singular Hessians without negative eigenvalues, as those of linear models, it needs two to forty times as
    # many and may miss the eigenvalue 0. Where it does not converge it returns nothing.
    if max_steps < 1:
        raise GraphnormError(f"max_steps is {max_steps}", remedy="allow one step or more")
    linalg = need("scipy.linalg", "eigenvalues of a Hessian", "analysis")
    limit = min(max_steps, start.numel())
    basis = start.new_empty(min(limit, 16), start.numel())
    vector = start / torch.linalg.vector_norm(start)
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    for step in range(limit):
        if step == len(basis):
            basis = torch.cat([basis, torch.empty_like(basis)])
        basis[step] = vector
        image = product(vector)
        diagonal.append(float(vector @ image))
        if not np.isfinite(diagonal[-1]):
            raise GraphnormError("a product with the matrix is not finite", remedy="look for NaN or infinity in it")
        known = basis[: step + 1]
        for _ in range(2):
            image = image - known.T @ (known @ image)
        length = float(torch.linalg.vector_norm(image))
        values, vectors = linalg.eigh_tridiagonal(diagonal, off_diagonal)
        residuals = length * np.abs(vectors[-1])
        # Where the Krylov space has ended, its eigenvalues are exact.
        ended = length <= np.finfo(np.float64).eps * len(diagonal) * max(map(abs, diagonal + off_diagonal))
        allowed = tolerance * np.maximum(np.abs(values), NEGLIGIBLE * np.abs(values).max())
        converged = step > 0 and residuals[0] <= allowed[0] and residuals[-1] <= allowed[-1]
        if ended or converged:
            break
        off_diagonal.append(length)
        vector = image / length
    return RitzValues(values, residuals, vectors[0] ** 2, bool(ended or converged))
