"""Lanczos iterations: extreme eigenvalues of a symmetric operator that is known by its products alone.

After k products with an orthonormal basis V of the Krylov space, VᵀHV = T is tridiagonal, and its extreme
eigenvalues approach those of H, from inside, long before k reaches the size of H. With an eigenvector s of T,
βₖ|sₖ| is the residual of the approximate eigenpair: some eigenvalue of H lies within it.

The basis is orthogonalized in full, twice over, in float64: without that, rounding makes extreme eigenvalues
appear again and again.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import Literal

import numpy as np
import torch
from torch import Tensor

from graphnorm.analysis.measurement import Floats, Measurement
from graphnorm.errors import GraphnormError

__all__ = ["RitzValues", "lanczos"]

Ends = Literal["both", "larger"]


@dataclass(frozen=True, eq=False)
class RitzValues(Measurement):
    """What k Lanczos steps say of the eigenvalues of a symmetric matrix."""

    eigenvalues: Floats
    """(k,): eigenvalues of T, ascending; the outermost are close to those of the matrix."""
    residuals: Floats
    """(k,): an eigenvalue of the matrix lies within this distance of each."""
    weights: Floats
    """(k,): squared first components of T's eigenvectors, which sum to 1. Averaged over random starts,
    Σ weight·f(eigenvalue) estimates the mean of f over the whole spectrum (stochastic Lanczos quadrature)."""
    converged: bool
    """Whether the residuals at the ends that were asked for are within the tolerance."""

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


def lanczos(
    product: Callable[[Tensor], Tensor],
    start: Tensor,
    *,
    max_steps: int = 100,
    tolerance: float = 1e-3,
    ends: Ends = "both",
) -> RitzValues:
    """Run Lanczos iterations with a symmetric operator on vectors (P,) of float64, from ``start``.

    They end when the residuals at both ends of the spectrum, or at the end of the larger absolute value alone, are
    below ``tolerance`` times the largest absolute value, and after ``max_steps`` in any case. The error of an
    eigenvalue is of the order of its residual squared.
    """
    if max_steps < 1:
        raise GraphnormError(f"{max_steps} steps find nothing", remedy="take one step or more")
    diagonal: list[float] = []
    off_diagonal: list[float] = []
    limit = min(max_steps, start.numel())
    basis = start.new_empty(min(limit, 16), start.numel())
    vector = start / torch.linalg.vector_norm(start)
    look = 2
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
        ended = bool(length <= np.finfo(np.float64).eps * (step + 1) * max(map(abs, diagonal + off_diagonal)))
        # T is looked at ever more rarely: its eigenvalues cost the third power of its size.
        if ended or step + 1 in (look, limit):
            look = max(step + 2, (step + 1) * 11 // 10)
            result = _ritz(diagonal, off_diagonal, length, tolerance, ends, ended)
            if result.converged:
                return result
        off_diagonal.append(length)
        vector = image / length
    return result


def _ritz(
    diagonal: Sequence[float],
    off_diagonal: Sequence[float],
    length: float,
    tolerance: float,
    ends: Ends,
    ended: bool,
) -> RitzValues:
    tridiagonal = np.diag(diagonal) + np.diag(off_diagonal, 1) + np.diag(off_diagonal, -1)
    values, vectors = np.linalg.eigh(tridiagonal)
    residuals = length * np.abs(vectors[-1])
    scale = np.abs(values).max()
    watched = residuals[[0, -1]] if ends == "both" else residuals[[int(np.abs(values).argmax())]]
    # Where the Krylov space has ended, what it holds of the spectrum is exact.
    return RitzValues(values, residuals, vectors[0] ** 2, ended or bool(watched.max() <= tolerance * scale))
