"""Extreme eigenvalues of the Hessian of a loss, by Lanczos iterations with Hessian-vector products.

The Hessian H (P × P, for P parameters) is never formed: a product Hv is the derivative of vᵀ∇L, and costs about two
backward passes. After k products with an orthonormal basis V of the Krylov space, VᵀHV = T is tridiagonal, and
its extreme eigenvalues approach those of H, from inside, long before k reaches P. With an eigenvector s of T,
βₖ|sₖ| is the residual of the approximate eigenpair: some eigenvalue of H lies within it.

The basis is orthogonalized in full, twice over, in float64: without that, rounding makes extreme eigenvalues appear
again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass

import numpy as np
import torch
from torch import Tensor

from graphnorm.analysis.results import Floats, Result
from graphnorm.errors import GraphnormError

__all__ = ["HessianSpectrum", "hessian_spectrum", "lanczos", "module_loss"]

Loss = Callable[[dict[str, Tensor]], Tensor]


@dataclass(frozen=True, eq=False)
class HessianSpectrum(Result):
    """What k Lanczos steps say of the eigenvalues of a symmetric matrix."""

    eigenvalues: Floats
    """(k,): eigenvalues of T, ascending; the outermost are close to those of the matrix."""
    residuals: Floats
    """(k,): an eigenvalue of the matrix lies within this distance of each."""
    weights: Floats
    """(k,): squared first components of T's eigenvectors, which sum to 1. Averaged over random starts,
    Σ weight·f(eigenvalue) estimates the mean of f over the whole spectrum (stochastic Lanczos quadrature)."""
    converged: bool
    """Whether both ends have residuals within the tolerance."""

    @property
    def largest(self) -> float:
        """The largest eigenvalue: the sharpness of the loss."""
        return float(self.eigenvalues[-1])

    @property
    def smallest(self) -> float:
        """The smallest eigenvalue; negative where the loss curves down."""
        return float(self.eigenvalues[0])

    @property
    def steps(self) -> int:
        """k: products with the matrix."""
        return len(self.eigenvalues)


def hessian_spectrum(
    loss: Loss,
    parameters: Mapping[str, Tensor],
    *,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    seed: int = 0,
) -> HessianSpectrum:
    """Compute the extreme eigenvalues of the Hessian of ``loss`` at ``parameters``.

    loss: from a dict of parameters to a scalar; for a module see :func:`module_loss`. It must be twice
        differentiable, give the same value each time (no fresh dropout masks), and not change its parameters.
    parameters: where the Hessian is taken, by name. They are not changed. float64 gives more digits.
    max_steps: products at most; each takes as long as about two backward passes, and keeps one vector of the size
        of all parameters in float64.
    tolerance: stop when the residuals of both ends are below this multiple of the largest |eigenvalue|.

    >>> quadratic = lambda p: (torch.tensor([1.0, 5.0, -2.0]) * p["w"] ** 2).sum() / 2
    >>> result = hessian_spectrum(quadratic, {"w": torch.zeros(3)})
    >>> round(result.smallest, 4), round(result.largest, 4)
    (-2.0, 5.0)
    """
    at = {name: value.detach().clone().requires_grad_() for name, value in parameters.items()}
    if not at:
        raise GraphnormError("there are no parameters", remedy="pass dict(model.named_parameters())")
    leaves = list(at.values())
    with torch.enable_grad():
        value = loss(at)
        if value.ndim:
            raise GraphnormError(f"the loss has shape {tuple(value.shape)}", remedy="give one number, such as its mean")
        gradients = torch.autograd.grad(value, leaves, create_graph=True, materialize_grads=True)
        gradient = _flat(gradients)

    def product(vector: Tensor) -> Tensor:
        if not gradient.requires_grad:  # a loss that is linear in its parameters
            return torch.zeros_like(vector)
        rows = torch.autograd.grad(
            gradient, leaves, vector.to(gradient.dtype), retain_graph=True, materialize_grads=True
        )
        return _flat(rows).to(torch.float64)

    generator = torch.Generator().manual_seed(seed)
    start = torch.randn(gradient.numel(), generator=generator, dtype=torch.float64).to(gradient.device)
    return lanczos(product, start, max_steps=max_steps, tolerance=tolerance)


def module_loss(module: torch.nn.Module, loss: Callable[[torch.nn.Module], Tensor]) -> Loss:
    """Turn ``loss(module)`` into a function of the module's parameters; buffers are left as they are.

    >>> model = torch.nn.Linear(3, 1)
    >>> x, y = torch.randn(8, 3), torch.randn(8, 1)
    >>> f = module_loss(model, lambda m: (m(x) - y).square().mean())
    >>> hessian_spectrum(f, dict(model.named_parameters())).smallest > 0
    True
    """

    class Holder(torch.nn.Module):
        def __init__(self) -> None:
            super().__init__()
            self.module = module

        def forward(self) -> Tensor:
            return loss(self.module)

    holder = Holder()

    def function(parameters: dict[str, Tensor]) -> Tensor:
        state = {f"module.{name}": value for name, value in parameters.items()}
        state |= {f"module.{name}": buffer.clone() for name, buffer in module.named_buffers()}
        value: Tensor = torch.func.functional_call(holder, state, ())
        return value

    return function


def lanczos(
    product: Callable[[Tensor], Tensor], start: Tensor, *, max_steps: int = 100, tolerance: float = 1e-3
) -> HessianSpectrum:
    """Run Lanczos iterations with a symmetric operator on vectors of float64, from ``start``."""
    if max_steps < 1:
        raise GraphnormError(f"{max_steps} steps find nothing", remedy="take one step or more")
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    basis: list[Tensor] = []
    vector = start / torch.linalg.vector_norm(start)
    limit = min(max_steps, start.numel())
    while True:
        basis.append(vector)
        image = product(vector)
        diagonal.append(float(vector @ image))
        if not np.isfinite(diagonal[-1]):
            raise GraphnormError(
                "a product with the Hessian is not finite", remedy="look for NaN or infinity in the loss"
            )
        known = torch.stack(basis)
        for _ in range(2):
            image = image - known.T @ (known @ image)
        length = float(torch.linalg.vector_norm(image))
        result = _ritz(diagonal, off_diagonal, length, tolerance)
        if result.converged or len(basis) >= limit:
            return result
        off_diagonal.append(length)
        vector = image / length


def _ritz(diagonal: Sequence[float], off_diagonal: Sequence[float], length: float, tolerance: float) -> HessianSpectrum:
    tridiagonal = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
    values, vectors = np.linalg.eigh(tridiagonal)
    residuals = length * np.abs(vectors[-1])
    scale = np.abs(values).max()
    # One eigenvalue is both ends at once: at least two steps, unless the Krylov space ends here.
    ended = length <= np.finfo(np.float64).eps * len(diagonal) * scale or scale == 0
    small = bool(max(residuals[0], residuals[-1]) <= tolerance * scale)
    return HessianSpectrum(values, residuals, vectors[0] ** 2, ended or (small and len(diagonal) > 1))


def _flat(tensors: Sequence[Tensor]) -> Tensor:
    return torch.cat([tensor.reshape(-1) for tensor in tensors])
