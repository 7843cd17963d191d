"""The largest and the smallest singular value of Q and QN of large graphs, without a dense matrix.

Twins are taken out first, as for whole spectra. The largest values come from Lanczos iterations with the sparse
quotient matrix B. The smallest come from Lanczos iterations with an inverse, by sparse LU factorization: for λ₁
of B itself. For μ₁, let C = (B + τwwᵀ)⁻¹ with w of length one. Adding a multiple of wwᵀ changes nothing in
B(I − wwᵀ), and C exists wherever μ₁ > 0, even where B is singular. With a = Cw/‖Cw‖, the values 1/μᵢ are the
nonzero singular values of (I − aaᵀ)C. To solve with B + τwwᵀ, which is dense, the sparse matrix

    ⎡ B     τw ⎤ ⎡x⎤   ⎡y⎤
    ⎣ wᵀ    −1 ⎦ ⎣t⎦ = ⎣0⎦

is factored. No matrix is squared before it is inverted, so small values keep their digits. Memory is that of
the factors: little for trees, threads and molecules, much for dense networks.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.results import Floats, Integers, Result
from graphnorm.analysis.spectrum import check_ids, spectra, tolerance
from graphnorm.analysis.twins import Quotients, quotients
from graphnorm.errors import MissingDependencyError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Extremes", "extremes"]

SMALL = 64
Operator = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class Extremes(Result):
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

    largest = _lanczos(size, lambda x: np.asarray(b @ x))
    largest_shifted = np.sqrt(_lanczos(size, shifted_square))
    negligible = float(tolerance(np.array(count.sum()), np.array(largest)))
    inverse = _solver(b, negligible)
    smallest = 0.0 if inverse is None else 1 / _lanczos(size, inverse)
    column = sparse.csc_array(unit[:, None])
    blocks: Any = [[b, largest * column], [column.T, -sparse.eye_array(1)]]
    solve = _solver(sparse.csc_array(sparse.block_array(blocks)), negligible)
    smallest_shifted = 0.0 if solve is None else 1 / np.sqrt(_lanczos(size, _projected_square(solve, unit)))
    repeated = np.abs(small.repeated[classes][count > 1])
    return (
        np.array([min([smallest, *repeated]), max([largest, *repeated])]),
        np.array([min([smallest_shifted, *repeated]), max([largest_shifted, *repeated])]),
    )


def _projected_square(solve: Operator, unit: Floats) -> Operator:
    """Give x ↦ C(I − aaᵀ)Cx, where ``solve`` solves with the bordered matrix."""

    def c(x: Floats) -> Floats:
        return solve(np.append(x, 0.0))[:-1]

    a = c(unit)
    a /= np.linalg.norm(a)

    def apply(x: Floats) -> Floats:
        y = c(x)
        return c(y - a * (a @ y))

    return apply


def _lanczos(size: int, apply: Operator) -> float:
    """Give the largest absolute eigenvalue of a symmetric operator."""
    from scipy.sparse.linalg import LinearOperator, eigsh

    operator = LinearOperator((size, size), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    (value,) = eigsh(operator, k=1, which="LM", v0=start, return_eigenvectors=False)
    return float(np.abs(value))


def _solver(matrix: Any, negligible: float) -> Operator | None:
    """Give x ↦ matrix⁻¹x by sparse LU, or None where the matrix is singular up to ``negligible``."""
    from scipy.sparse.linalg import splu

    try:
        factors = splu(matrix)
    except RuntimeError:  # a pivot is exactly 0
        return None
    probe = np.random.default_rng(1).standard_normal(matrix.shape[0])
    with np.errstate(all="ignore"):
        growth = np.linalg.norm(factors.solve(probe)) / np.linalg.norm(probe)
    if not growth * negligible < 1:
        return None
    return lambda x: np.asarray(factors.solve(x))
