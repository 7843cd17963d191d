"""The largest and the smallest singular value of Q and QN of large graphs, without a dense matrix.

Twins are taken out first, as for whole spectra. The largest values come from Lanczos iterations with the sparse
quotient matrix B. The smallest come from Lanczos iterations with an inverse, by sparse LU factorization: for λ₁
of B itself. For μ₁, let C = (B + τwwᵀ)⁻¹ with w of length one. Adding a multiple of wwᵀ changes nothing in
B(I − wwᵀ), and where μ₁ > 0, C exists for all τ but one at most, even where B is singular. With a = Cw/‖Cw‖, the
values 1/μᵢ are the nonzero singular values of (I − aaᵀ)C. To solve with B + τwwᵀ, which is dense, the sparse matrix

    ⎡ B     τw ⎤ ⎡x⎤   ⎡y⎤
    ⎣ wᵀ    −1 ⎦ ⎣t⎦ = ⎣0⎦

is factored, with B + iδI in place of B, δ = ε·λₙ: that is never singular (SuperLU may crash on singular matrices),
and changes the real part of a solution by the factor 1 − (δ/λ₁)² at most. No matrix is squared before it is
inverted, so small values keep their digits. Memory is that of the factors: little for trees, threads and molecules,
much for dense networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.lanczos import lanczos
from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.analysis.spectrum import check_ids, spectra, tolerance
from graphnorm.analysis.twins import Quotients, quotients
from graphnorm.errors import GraphnormError, MissingDependencyError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Extremes", "extremes"]

SMALL = 64
MAX_STEPS = 2000
Operator = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Extremes(Measurement):
    """Extreme singular values of K graphs; what is below the tolerance is given as 0."""

    ids: Integers
    """(K,)."""
    sizes: Integers
    """(K,)."""
    q: Floats
    """(K, 2): λ₁ and λₙ."""
    shifted: Floats
    """(K, 2): μ₁ and μₙ₋₁, without the 0 that N brings; NaN for a single node."""


def extremes(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> Extremes:
    """Compute the smallest and largest singular values of Q and QN, one sparse graph at a time."""
    try:
        import scipy.sparse.linalg  # noqa: F401
        from tqdm import tqdm
    except ImportError as error:
        raise MissingDependencyError("scipy", "extreme singular values", "analysis") from error
    aggregation = aggregation or Aggregation()
    chosen = check_ids(graphs, ids)
    sizes = graphs.sizes.cpu().numpy()[chosen]
    small = quotients(graphs, chosen, aggregation)
    q, shifted = np.empty((len(chosen), 2)), np.empty((len(chosen), 2))
    for k in tqdm(range(len(chosen)), desc="extreme singular values", disable=not progress, delay=1.0):
        if small.sizes[k] <= SMALL:
            before, after = spectra(graphs, chosen[[k]], aggregation).of(0)
            q[k] = before[[0, -1]]
            shifted[k] = after[[0, -1]] if len(after) else np.nan
        else:
            q[k], shifted[k] = _sparse_extremes(small, k)
    zero = tolerance(sizes, q[:, 1])[:, None]
    return Extremes(chosen, sizes, np.where(q <= zero, 0.0, q), np.where(shifted <= zero, 0.0, shifted))


def _sparse_extremes(small: Quotients, k: int) -> tuple[Floats, Floats]:
    from scipy import sparse

    classes, edges = slice(*small.ptr[k : k + 2]), slice(*small.edge_ptr[k : k + 2])
    size = int(small.sizes[k])
    count = small.multiplicity[classes]
    unit = np.sqrt(count / count.sum())
    b = sparse.csc_array((small.value[edges], (small.row[edges], small.col[edges])), shape=(size, size))
    b = sparse.csc_array(b + sparse.diags_array(small.diagonal[classes]))

    def shifted_square(x: Floats) -> Floats:
        y = b @ (b @ (x - unit * (unit @ x)))
        return np.asarray(y - unit * (unit @ y))

    largest = _largest(size, lambda x: np.asarray(b @ x))
    largest_shifted = np.sqrt(_largest(size, shifted_square))
    negligible = float(tolerance(np.array(count.sum()), np.array(largest)))
    inverse = _solver(b, None, largest, negligible)
    smallest = 0.0 if inverse is None else 1 / _largest(size, inverse)
    inverse = _solver(b, unit, largest, negligible)
    smallest_shifted = 0.0 if inverse is None else 1 / np.sqrt(_largest(size, _projected_square(inverse, unit)))
    repeated = np.abs(small.repeated[classes][count > 1])
    return (
        np.array([min([smallest, *repeated]), max([largest, *repeated])]),
        np.array([min([smallest_shifted, *repeated]), max([largest_shifted, *repeated])]),
    )


def _projected_square(c: Operator, unit: Floats) -> Operator:
    """Give x ↦ C(I − aaᵀ)Cx."""
    a = c(unit)
    a /= np.linalg.norm(a)

    def apply(x: Floats) -> Floats:
        y = c(x)
        return c(y - a * (a @ y))

    return apply


def _largest(size: int, apply: Operator) -> float:
    """Give the largest absolute eigenvalue of a symmetric operator."""
    start = torch.from_numpy(np.random.default_rng(0).standard_normal(size))
    result = lanczos(
        lambda x: torch.from_numpy(apply(x.numpy())), start, max_steps=MAX_STEPS, tolerance=1e-10, ends="larger"
    )
    if not result.converged:
        raise GraphnormError(
            f"an extreme singular value was not found in {MAX_STEPS} steps",
            remedy="ask for all singular values, with graphnorm.analysis.spectra",
        )
    return float(np.abs(result.eigenvalues).max())


def _solver(b: Any, unit: Floats | None, scale: float, negligible: float) -> Operator | None:
    """Give x ↦ B⁻¹x, or with w (``unit``) x ↦ (B + scale·wwᵀ)⁻¹x; None where that is singular up to ``negligible``."""
    from scipy import sparse
    from scipy.sparse.linalg import splu

    size = b.shape[0]
    blocks: Any = [[b + sparse.diags_array(np.full(size, 1j * np.finfo(np.float64).eps * scale))]]
    if unit is not None:
        column = sparse.csc_array(unit[:, None])
        blocks = [[*blocks[0], scale * column], [column.T, -sparse.eye_array(1)]]
    factors = splu(sparse.csc_array(sparse.block_array(blocks)))

    def solve(x: Floats) -> npt.NDArray[np.complex128]:
        padded = np.zeros(factors.shape[0], np.complex128)
        padded[:size] = x
        return np.asarray(factors.solve(padded)[:size])

    probe = np.random.default_rng(1).standard_normal(size)
    growth = np.linalg.norm(solve(probe)) / np.linalg.norm(probe)
    return None if growth * negligible >= 1 else lambda x: np.ascontiguousarray(solve(x).real)
