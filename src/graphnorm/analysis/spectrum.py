"""Singular values of the aggregation Q and of QN, the interlacing of Theorem 1, and condition numbers.

Q, N and the quotient matrices that stand for Q are those of :mod:`graphnorm.analysis.aggregation`.

**Theorem 1.** Let λ₁ ≤ … ≤ λₙ be the singular values of Q. QN has a singular value 0, since N1 = 0; let μ₁ ≤ … ≤ μₙ₋₁
be its others. Then λᵢ ≤ μᵢ ≤ λᵢ₊₁ for every i.

**Accuracy.** LAPACK's algorithms are backward stable: each computed value is off by at most a small multiple of n·ε·λₙ,
with ε = 2.2e-16. :func:`tolerance` takes 4 as the multiple. Values below it count as zero, and Theorem 1 is checked up
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from graphnorm.analysis.aggregation import Aggregation, Quotients, quotients
from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement, finite_median
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, need

__all__ = ["Conditions", "ExtremeSingularValues", "Interlacing", "SharedValues", "Spectra"]
__all__ += ["affordable", "conditions", "extreme_singular_values", "interlacing", "shared_values"]
__all__ += ["spectra", "tolerance"]

sparse, linalg = (need(module, "graphnorm.analysis", "analysis") for module in ("scipy.sparse", "scipy.sparse.linalg"))

MAX_DENSE = 8192
"""The largest quotient matrix whose singular values are all computed."""
NUMBERS_PER_STACK = 1 << 21
"""Entries of the matrices that LAPACK gets at once."""
SAME = 1e-8
"""Singular values closer than this share of the largest belong to one space of singular vectors."""


# ---- whole spectra --------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Spectra(Measurement):
    """Singular values of Q and QN of K graphs, ascending within each graph."""

    ids: Integers
    """(K,): which graphs of the dataset."""
    sizes: Integers
    """(K,): nodes of each graph."""
    q: Floats
    """(Σ n,): λ₁ … λₙ of each graph in turn."""
    shifted: Floats
    """(Σ (n−1),): μ₁ … μₙ₋₁ of each graph in turn."""
    aggregation: str
    """The label of Q."""

    @property
    def ptr(self) -> Integers:
        """(K+1,): where each graph's λ begin; its μ begin at ``ptr[k] - k``."""
        return np.concatenate(([0], np.cumsum(self.sizes)))

    def of(self, k: int) -> tuple[Floats, Floats]:
        """λ (n,) and μ (n−1,) of the k-th graph."""
        start, end = self.ptr[k : k + 2]
        return self.q[start:end], self.shifted[start - k : end - k - 1]

    @property
    def largest(self) -> Floats:
        """(K,): λₙ of each graph."""
        return self.q[self.ptr[1:] - 1]


def spectra(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> Spectra:
    """Compute all singular values of Q and QN, of all graphs or of those in ``ids``.

    >>> from graphnorm.data import synthetic
    >>> result = spectra(synthetic.regular(10), [3, 1])
    >>> before, after = result.of(0)
    >>> bool((before[:-1] <= after + 1e-9).all() and (after <= before[1:] + 1e-9).all())
    True
    """
    aggregation = aggregation or Aggregation()
    b = quotients(graphs, ids, aggregation)
    largest = int(b.sizes.max())
    if largest > MAX_DENSE:
        raise GraphnormError(
            f"a graph has {largest} nodes with different neighbours; whole spectra are computed up to {MAX_DENSE}",
            remedy="compute the smallest and largest ones, with graphnorm.analysis.extreme_singular_values",
        )
    q, shifted = np.empty(b.ptr[-1]), np.empty(b.ptr[-1] - len(b.ids))
    for members in _stacks_of_equal_size(b.sizes, progress):
        matrices, w = b.stack(members)
        at = b.ptr[members][:, None] + np.arange(matrices.shape[1])
        q[at] = np.abs(np.linalg.eigvalsh(matrices))
        shifted[at[:, :-1] - members[:, None]] = _values_after_shift(matrices, w)

    number = np.arange(len(b.ids))
    repeated = np.repeat(np.abs(b.repeated), b.multiplicity - 1)
    repeated_in = np.repeat(np.repeat(number, b.sizes), b.multiplicity - 1)

    def with_repeated(values: Floats, sizes: Integers) -> Floats:
        values, graph = np.append(values, repeated), np.append(np.repeat(number, sizes), repeated_in)
        return values[np.lexsort((values, graph))]

    return Spectra(
        ids=b.ids,
        sizes=b.num_nodes,
        q=with_repeated(q, b.sizes),
        shifted=with_repeated(shifted, b.sizes - 1),
        aggregation=aggregation.label,
    )


def _values_after_shift(matrices: Floats, w: Floats) -> Floats:
    """The singular values of B(I − wwᵀ), ascending and without the 0 of N: (K, m, m) and (K, m) to (K, m−1)."""
    centred = matrices - (matrices @ w[:, :, None]) * w[:, None, :]
    # The eigenvalues of NQ²N would have half the digits only.
    return np.asarray(np.linalg.svd(centred, compute_uv=False)[:, -2::-1])


def _stacks_of_equal_size(sizes: Integers, progress: bool) -> Iterator[Integers]:
    """Sets of graphs of equal size, of a bounded number of matrix entries each; the largest graphs come first."""
    order = np.argsort(-sizes, kind="stable")
    with tqdm(
        total=float((sizes.astype(np.float64) ** 3).sum()),
        desc="singular values",
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
        disable=not progress or None,
        delay=1.0,
    ) as bar:
        for same in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
            size = int(sizes[same[0]])
            at_once = max(1, NUMBERS_PER_STACK // size**2)
            for start in range(0, len(same), at_once):
                members = same[start : start + at_once]
                yield members
                bar.update(float(len(members) * size**3))


def affordable(graphs: PackedGraphs, ids: Integers, work: float = 2e11) -> Integers:
    """The leading ones of ``ids`` whose spectra together cost up to ``work``, in cubed sizes of the quotient matrices.

    The default takes one or two minutes. Graphs that would take half of it alone are skipped, and so are graphs too
    large for :func:`spectra`.
    """
    b = quotients(graphs, ids)
    sizes = b.sizes.astype(np.float64)
    cost = sizes**3
    possible = (sizes <= MAX_DENSE) & (cost <= work / 2)
    return b.ids[possible][np.cumsum(cost[possible]) <= work]


# ---- Theorem 1 and condition numbers --------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Interlacing(Measurement):
    """Theorem 1 on K graphs."""

    excess: Floats
    """(K,): the most by which any λᵢ ≤ μᵢ ≤ λᵢ₊₁ fails; 0 where none does."""
    tolerance: Floats
    """(K,): the excess that rounding can explain."""

    @property
    def holds(self) -> Booleans:
        """(K,): whether the theorem holds on each graph within the tolerance."""
        return self.excess <= self.tolerance

    def summary(self) -> dict[str, Any]:
        """The number of graphs on which it holds, and the largest excess as a multiple of the tolerance."""
        return {
            "graphs": len(self.excess),
            "holds": int(self.holds.sum()),
            "largest_excess_over_tolerance": float((self.excess / self.tolerance).max(initial=0.0)),
        }


@dataclass(frozen=True, eq=False)
class Conditions(Measurement):
    """Condition numbers of Q and QN of K graphs: the largest over the smallest *nonzero* singular value.

    A matrix of zeros has none: NaN. An example is QN of a complete graph at ξ = 0.
    """

    q: Floats
    """(K,)."""
    shifted: Floats
    """(K,)."""
    rank_q: Integers
    """(K,): nonzero singular values of Q."""
    rank_shifted: Integers
    """(K,)."""

    @property
    def improvement(self) -> Floats:
        """(K,): the condition number of Q over that of QN.

        It is at least 1 where Q is regular, by Theorem 1. Where Q is singular, N may turn one of its zeros into a small
        nonzero value, and the quotient may be below 1.
        """
        return self.q / self.shifted

    def summary(self) -> dict[str, Any]:
        """Medians, and on how many graphs the shift improves the condition number, keeps it (to 1e-6) or worsens it."""
        gain = self.improvement[np.isfinite(self.improvement)]
        return {
            "graphs": len(self.q),
            "median_condition_q": finite_median(self.q),
            "median_condition_shifted": finite_median(self.shifted),
            "median_improvement": finite_median(gain),
            "better": int((gain > 1 + 1e-6).sum()),
            "equal": int((np.abs(gain - 1) <= 1e-6).sum()),
            "worse": int((gain < 1 - 1e-6).sum()),
            "shifted_to_zero": int((self.rank_shifted == 0).sum()),
        }


def tolerance(sizes: Integers, largest: Floats) -> Floats:
    """(K,): 4·n·ε·λₙ, the accuracy of a graph's singular values."""
    return 4 * sizes * np.finfo(np.float64).eps * largest


def interlacing(result: Spectra) -> Interlacing:
    """Check Theorem 1 on every graph."""
    below, above = np.delete(result.q, result.ptr[1:] - 1), np.delete(result.q, result.ptr[:-1])  # λᵢ and λᵢ₊₁
    excess = np.zeros(len(result.ids))
    graph = np.repeat(np.arange(len(result.ids)), result.sizes - 1)
    np.maximum.at(excess, graph, np.maximum(below - result.shifted, result.shifted - above))
    return Interlacing(excess, tolerance(result.sizes, result.largest))


def conditions(result: Spectra) -> Conditions:
    """Compute the condition numbers of Q and QN of every graph, over their nonzero singular values."""
    zero = tolerance(result.sizes, result.largest)

    def condition(values: Floats, sizes: Integers) -> tuple[Floats, Integers]:
        graph = np.repeat(np.arange(len(sizes)), sizes)
        rank = np.bincount(graph[values > zero[graph]], minlength=len(sizes))
        number, some = np.full(len(sizes), np.nan), rank > 0
        end = np.cumsum(sizes)[some]
        number[some] = values[end - 1] / values[end - rank[some]]
        return number, rank

    q, rank_q = condition(result.q, result.sizes)
    shifted, rank_shifted = condition(result.shifted, result.sizes - 1)
    return Conditions(q, shifted, rank_q, rank_shifted)


@dataclass(frozen=True, eq=False)
class SharedValues(Measurement):
    """Singular values that Q and QN have in common, on K graphs.

    Values that repeat because nodes have the same neighbours are not counted: eᵢ − eⱼ is orthogonal to 1.
    """

    shared: Integers
    """(K,): values of Q that QN has, too, up to rounding."""
    orthogonal: Integers
    """(K,): those with a right singular vector of Q that is orthogonal to 1."""


def shared_values(
    graphs: PackedGraphs, ids: Sequence[int] | Integers | None = None, aggregation: Aggregation | None = None
) -> SharedValues:
    """Check the second part of Theorem 1: λᵢ = μᵢ or λᵢ₊₁ = μᵢ only if 1ᵀv = 0 for some v of λᵢ.

    The squares of the μ solve Σ cᵢ²/(λᵢ² − μ²) = 0, where cᵢ is the cosine of the i-th singular vector and 1. If the
    k-th value is shared up to δ, then cₖ² ≤ abs(λₖ² − μ²) / minᵢ abs(λᵢ² − μ²): that much of cₖ counts as rounding.

    >>> from graphnorm.data import synthetic
    >>> found = shared_values(synthetic.trees(10))
    >>> bool((found.shared == found.orthogonal).all())
    True
    """
    b = quotients(graphs, ids, aggregation)
    shared, orthogonal = np.zeros((2, len(b.ids)), np.int64)
    for members in _stacks_of_equal_size(b.sizes, progress=False):
        matrices, w = b.stack(members)
        if w.shape[1] < 2:
            continue
        eigenvalues, vectors = np.linalg.eigh(matrices)
        order = np.argsort(np.abs(eigenvalues), axis=1)
        before = np.take_along_axis(np.abs(eigenvalues), order, axis=1)
        cosine = np.take_along_axis((vectors * w[:, :, None]).sum(axis=1), order, axis=1)
        after = _values_after_shift(matrices, w)
        largest = before[:, -1:]
        rounding = tolerance(b.num_nodes[members][:, None], largest)
        # By the theorem, the values of QN next to λᵢ are μᵢ₋₁ and μᵢ.
        equal = _nearer(np.abs(before[:, 1:] - after), np.abs(before[:, :-1] - after)) <= rounding
        apart, squares_apart = np.diff(before, axis=1), np.diff(before**2, axis=1)
        several = _nearer(apart, apart) <= SAME * largest
        at = b.ptr[members][:, None] + np.arange(before.shape[1])
        for row, places in enumerate(at):
            of_twins = np.abs(b.repeated[places][b.multiplicity[places] > 1])
            several[row] |= _distance(before[row], of_twins) <= SAME * largest[row]
        alone = cosine**2 * _nearer(squares_apart, squares_apart) <= 4 * (before + rounding) * rounding
        shared[members] = equal.sum(axis=1)
        orthogonal[members] = (equal & (several | alone)).sum(axis=1)
    return SharedValues(shared, orthogonal)


def _nearer(below: Floats, above: Floats) -> Floats:
    """(K, m): the smaller distance of each value, from those below and above, (K, m−1) each.

    The first value has none below, and the last none above.
    """
    edge = np.full((len(below), 1), np.inf)
    return np.asarray(np.minimum(np.hstack([edge, below]), np.hstack([above, edge])))


def _distance(values: Floats, others: Floats) -> Floats:
    """From each value to the nearest of ``others``; infinite if there are none."""
    bounded = np.concatenate([[-np.inf], np.sort(others), [np.inf]])
    above = np.searchsorted(bounded, values)
    return np.asarray(np.minimum(values - bounded[above - 1], bounded[above] - values))


# ---- large graphs ---------------------------------------------------------------------------------------------------

DENSE = 64
"""Up to this many classes, all singular values are as fast as the extreme ones."""
BASIS = 40
MAX_RESTARTS = 2000
Operator = Callable[[Floats], Floats]


@dataclass(frozen=True, eq=False)
class ExtremeSingularValues(Measurement):
    """The smallest and largest singular values of K graphs. Values below the tolerance are given as 0."""

    ids: Integers
    """(K,)."""
    sizes: Integers
    """(K,)."""
    q: Floats
    """(K, 2): λ₁ and λₙ."""
    shifted: Floats
    """(K, 2): μ₁ and μₙ₋₁; NaN for a single node."""


def extreme_singular_values(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> ExtremeSingularValues:
    """Compute the smallest and largest singular values of Q and QN of large graphs, without a dense matrix.

    The largest ones come from ARPACK's iterations with the sparse quotient matrix B. The smallest come from iterations
    with an inverse, by sparse LU factorization: for λ₁ the inverse of B itself. For μ₁, let C = (B + τwwᵀ)⁻¹. The
    multiple of wwᵀ changes nothing in B(I − wwᵀ), and where μ₁ > 0, C exists for all τ but at most one, even if B is
    singular. With a = Cw/‖Cw‖, the values 1/μᵢ are the nonzero singular values of (I − aaᵀ)C. B + τwwᵀ is dense, but
    systems with it are solved by factoring the sparse matrix

        ⎡ B     τw ⎤ ⎡x⎤   ⎡y⎤
        ⎣ wᵀ    −1 ⎦ ⎣t⎦ = ⎣0⎦

    with B + iδI in place of B, δ = ε·λₙ. That is never singular (SuperLU may crash on singular matrices), and it
    changes the real part of a solution by a factor of at least 1 − (δ/λ₁)². No matrix is squared before it is inverted,
    so small values keep their digits. The factors take little memory for trees, threads and molecules, and much for
    dense networks.
    """
    b = quotients(graphs, ids, aggregation)
    q, shifted = np.empty((len(b.ids), 2)), np.full((len(b.ids), 2), np.nan)
    small = np.flatnonzero(b.sizes <= DENSE)
    if len(small):
        whole = spectra(graphs, b.ids[small], aggregation)
        for k, values in zip(small, map(whole.of, range(len(small))), strict=True):
            q[k] = values[0][[0, -1]]
            shifted[k] = values[1][[0, -1]] if len(values[1]) else np.nan
    for k in tqdm(np.flatnonzero(b.sizes > DENSE), "extreme singular values", disable=not progress or None, delay=1.0):
        q[k], shifted[k] = _sparse_extremes(b, int(k))
    zero = tolerance(b.num_nodes, q[:, 1])[:, None]
    return ExtremeSingularValues(
        b.ids, b.num_nodes, np.where(q <= zero, 0.0, q), np.where(shifted <= zero, 0.0, shifted)
    )


def _sparse_extremes(quotient: Quotients, k: int) -> tuple[Floats, Floats]:
    classes = slice(*quotient.ptr[k : k + 2])
    b = quotient.matrix[classes, classes].tocsc()
    nodes = quotient.multiplicity[classes]
    w = np.sqrt(nodes / nodes.sum())

    def shifted_square(x: Floats) -> Floats:
        y = b @ (b @ (x - w * (w @ x)))
        return np.asarray(y - w * (w @ y))

    largest = _largest_eigenvalue(len(w), lambda x: np.asarray(b @ x))
    largest_shifted = np.sqrt(_largest_eigenvalue(len(w), shifted_square))
    negligible = float(tolerance(nodes.sum(), np.array(largest)))
    smallest = smallest_shifted = 0.0
    if (inverse := _inverse(b, None, largest, negligible)) is not None:
        smallest = 1 / _largest_eigenvalue(len(w), inverse)
    if (c := _inverse(b, w, largest, negligible)) is not None:
        a = c(w)
        a /= np.linalg.norm(a)

        def projected_square(x: Floats, c: Operator = c) -> Floats:
            y = c(x)
            return c(y - a * (a @ y))

        smallest_shifted = 1 / np.sqrt(_largest_eigenvalue(len(w), projected_square))
    repeated = np.abs(quotient.repeated[classes][nodes > 1])
    return (
        np.array([min([smallest, *repeated]), max([largest, *repeated])]),
        np.array([min([smallest_shifted, *repeated]), max([largest_shifted, *repeated])]),
    )


def _largest_eigenvalue(size: int, apply: Operator) -> float:
    """The largest absolute eigenvalue of a symmetric operator."""
    operator = linalg.LinearOperator((size, size), matvec=apply, dtype=np.float64)
    start = np.random.default_rng(0).standard_normal(size)
    try:
        found = linalg.eigsh(
            operator, 1, ncv=BASIS, v0=start, tol=1e-10, maxiter=MAX_RESTARTS, return_eigenvectors=False
        )
    except linalg.ArpackNoConvergence:
        raise GraphnormError(
            f"the search for an extreme singular value did not converge in {MAX_RESTARTS} restarts",
            remedy="compute all singular values, with graphnorm.analysis.spectra",
        ) from None
    return float(np.abs(found[0]))


def _inverse(b: Any, w: Floats | None, scale: float, negligible: float) -> Operator | None:
    """x ↦ B⁻¹x, or with w x ↦ (B + scale·wwᵀ)⁻¹x; None where that is singular up to ``negligible``."""
    size = b.shape[0]
    blocks = [[b + sparse.diags_array(np.full(size, 1j * np.finfo(np.float64).eps * scale))]]
    if w is not None:
        column = sparse.csc_array(w[:, None])
        blocks = [[*blocks[0], scale * column], [column.T, -sparse.eye_array(1)]]
    factors = linalg.splu(sparse.csc_array(sparse.block_array(blocks)))

    def solve(x: Floats) -> npt.NDArray[np.complex128]:
        padded = np.zeros(factors.shape[0], np.complex128)
        padded[:size] = x.reshape(-1)
        return np.asarray(factors.solve(padded)[:size])

    random = np.random.default_rng(1).standard_normal(size)
    growth = np.linalg.norm(solve(random)) / np.linalg.norm(random)
    return None if growth * negligible >= 1 else lambda x: np.ascontiguousarray(solve(x).real)
