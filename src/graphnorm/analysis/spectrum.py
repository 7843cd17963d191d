"""Singular values of Q and QN, the interlacing of Theorem 1, and condition numbers.

N = I − 11ᵀ/n subtracts the mean of a graph's nodes. Let λ₁ ≤ … ≤ λₙ be the singular values of Q, and
μ₁ ≤ … ≤ μₙ₋₁ those of QN besides the 0 that N always brings. Theorem 1: λᵢ ≤ μᵢ ≤ λᵢ₊₁ for every i.

**Method.** Twins are taken out first (:mod:`graphnorm.analysis.twins`), exactly. Quotient matrices of equal size
are stacked. λ are the absolute eigenvalues of the symmetric B. For μ, let U have n − 1 orthonormal columns,
orthogonal to w: they are columns of the Householder reflection that takes w to an axis. Then μ are the
singular values of BU. (The eigenvalues of NQ²N would give the small ones to half the digits only.)

**Accuracy.** Each computed value is off by at most a modest multiple of n·ε·λₙ, with ε = 2.2e-16: both
algorithms are backward stable. :func:`tolerance` takes the multiple to be 4; what is below it counts as zero,
and the inequalities of Theorem 1 are checked up to it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.analysis.twins import Quotients, quotients
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, require

__all__ = [
    "Conditions",
    "Interlacing",
    "Spectra",
    "affordable",
    "check_ids",
    "conditions",
    "interlacing",
    "spectra",
    "stack",
    "tolerance",
]

MAX_DENSE = 8192
NUMBERS_PER_STACK = 1 << 21


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
    """(Σ (n−1),): μ₁ … μₙ₋₁ of each graph in turn, without the 0 that N brings."""
    aggregation: str
    """For people: which Q."""

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


@dataclass(frozen=True, eq=False)
class Interlacing(Measurement):
    """Theorem 1 on K graphs."""

    excess: Floats
    """(K,): the most by which any λᵢ ≤ μᵢ ≤ λᵢ₊₁ fails; 0 where none does."""
    tolerance: Floats
    """(K,): what rounding may account for."""

    @property
    def holds(self) -> npt.NDArray[np.bool_]:
        """(K,): whether the theorem holds on each graph within the tolerance."""
        return self.excess <= self.tolerance

    def summary(self) -> dict[str, Any]:
        """Count the graphs, and give the largest excess as a multiple of the tolerance."""
        return {
            "graphs": len(self.excess),
            "holds": int(self.holds.sum()),
            "largest_excess_over_tolerance": float((self.excess / self.tolerance).max(initial=0.0)),
        }


@dataclass(frozen=True, eq=False)
class Conditions(Measurement):
    """Condition numbers of Q and QN of K graphs: the largest over the smallest *nonzero* singular value.

    For QN that leaves out the 0 that N brings. A matrix of zeros, such as QN of a complete graph at ξ = 0, has
    none: NaN.
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
        """(K,): condition of Q over condition of QN.

        At least 1 where Q is regular, by Theorem 1. Where Q is singular, N may turn one of its zeros into a
        small nonzero value, and the quotient may be below 1.
        """
        return self.q / self.shifted

    def summary(self) -> dict[str, Any]:
        """Give medians, and on how many graphs the condition number is better, equal (to 1e-6) or worse."""
        known = self.improvement[np.isfinite(self.improvement)]
        return {
            "graphs": len(self.q),
            "median_condition_q": _median(self.q),
            "median_condition_shifted": _median(self.shifted),
            "median_improvement": _median(known),
            "better": int((known > 1 + 1e-6).sum()),
            "equal": int((np.abs(known - 1) <= 1e-6).sum()),
            "worse": int((known < 1 - 1e-6).sum()),
            "shifted_to_zero": int((self.rank_shifted == 0).sum()),
        }


def spectra(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> Spectra:
    """Compute all singular values of Q and QN, of all graphs or of those given.

    >>> from graphnorm.data import synthetic
    >>> result = spectra(synthetic.regular(10), [3, 1])
    >>> before, after = result.of(0)
    >>> bool((before[:-1] <= after + 1e-9).all() and (after <= before[1:] + 1e-9).all())
    True
    """
    aggregation = aggregation or Aggregation()
    chosen = check_ids(graphs, ids)
    sizes = graphs.sizes.cpu().numpy()[chosen]
    small = quotients(graphs, chosen, aggregation)
    largest = int(small.sizes.max(initial=0))
    if largest > MAX_DENSE:
        raise GraphnormError(
            f"a graph has {largest} nodes without its twins; all singular values are computed up to {MAX_DENSE}",
            remedy="ask for the extreme ones, with graphnorm.analysis.extremes",
        )
    owner = np.repeat(np.arange(len(chosen)), small.sizes)
    times = small.multiplicity - 1
    repeated, repeated_owner = np.repeat(np.abs(small.repeated), times), np.repeat(owner, times)
    q, shifted = np.empty(len(owner)), np.empty(len(owner))
    for members in _stacks(small.sizes, progress):
        at = small.ptr[members][:, None] + np.arange(small.sizes[members[0]])
        q[at], shifted[at] = _decompose(*stack(small, members))
    kept = np.ones(len(owner), bool)
    kept[small.ptr[:-1]] = False  # the place of the 0 that N brings
    return Spectra(
        ids=chosen,
        sizes=sizes,
        q=_sorted_by_graph(np.append(q, repeated), np.append(owner, repeated_owner)),
        shifted=_sorted_by_graph(np.append(shifted[kept], repeated), np.append(owner[kept], repeated_owner)),
        aggregation=aggregation.label,
    )


def tolerance(sizes: Integers, largest: Floats) -> Floats:
    """(K,): 4·n·ε·λₙ, the accuracy of the singular values of a graph."""
    return 4 * sizes * np.finfo(np.float64).eps * largest


def interlacing(result: Spectra) -> Interlacing:
    """Check Theorem 1 on every graph."""
    graphs = len(result.ids)
    last, first = np.ones(len(result.q), bool), np.ones(len(result.q), bool)
    last[result.ptr[1:] - 1] = False
    first[result.ptr[:-1]] = False
    excess = np.maximum(result.q[last] - result.shifted, result.shifted - result.q[first])
    worst = np.zeros(graphs)
    np.maximum.at(worst, np.repeat(np.arange(graphs), result.sizes - 1), excess)
    return Interlacing(worst, tolerance(result.sizes, result.largest))


def conditions(result: Spectra) -> Conditions:
    """Compute the condition numbers of Q and QN of every graph, over their nonzero singular values."""
    zero = tolerance(result.sizes, result.largest)

    def condition(values: Floats, sizes: Integers) -> tuple[Floats, Integers]:
        graph = np.repeat(np.arange(len(sizes)), sizes)
        rank = np.bincount(graph[values > zero[graph]], minlength=len(sizes))
        end = np.cumsum(sizes)
        number = np.full(len(sizes), np.nan)
        some = rank > 0
        number[some] = values[end[some] - 1] / values[end[some] - rank[some]]
        return number, rank

    q, rank_q = condition(result.q, result.sizes)
    shifted, rank_shifted = condition(result.shifted, result.sizes - 1)
    return Conditions(q, shifted, rank_q, rank_shifted)


def check_ids(graphs: PackedGraphs, ids: Sequence[int] | Integers | None) -> Integers:
    """Give the ids as an array, all of them for None; an empty list or an id out of range is an error."""
    require("graphs", graphs, PackedGraphs, "PackedGraphs, which graphnorm.data.load gives")
    chosen = np.arange(graphs.num_graphs) if ids is None else np.array(ids, dtype=np.int64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < 0 or chosen.max() >= graphs.num_graphs:
        raise GraphnormError(
            f"ids of shape {chosen.shape} do not name some of the {graphs.num_graphs} graphs",
            remedy="give a list of numbers from 0, or None for all graphs",
        )
    return chosen


def affordable(graphs: PackedGraphs, ids: Integers, work: float = 2e11) -> Integers:
    """Give the leading ones of ``ids`` whose spectra take up to ``work``, in cubed sizes without twins.

    The default takes one or two minutes. A graph that would take half of it alone is passed over, as is one too
    large for all its singular values.
    """
    ids = check_ids(graphs, ids)
    sizes = quotients(graphs, ids, Aggregation()).sizes.astype(np.float64)
    cost = sizes**3
    possible = (sizes <= MAX_DENSE) & (cost <= work / 2)
    return ids[possible][np.cumsum(cost[possible]) <= work]


def stack(small: Quotients, members: Integers) -> tuple[Floats, Floats]:
    """(K, m, m) quotient matrices of K graphs that have m classes each, and (K, m) unit vectors w/√n."""
    size = int(small.sizes[members[0]])
    matrices = np.zeros((len(members), size, size))
    count = small.edge_ptr[members + 1] - small.edge_ptr[members]
    which = np.repeat(np.arange(len(members)), count)
    edge = np.arange(len(which)) + np.repeat(small.edge_ptr[members] - (np.cumsum(count) - count), count)
    matrices[which, small.row[edge], small.col[edge]] = small.value[edge]
    at = small.ptr[members][:, None] + np.arange(size)
    diagonal = np.arange(size)
    matrices[:, diagonal, diagonal] = small.diagonal[at]
    counts = small.multiplicity[at].astype(np.float64)
    return matrices, np.sqrt(counts / counts.sum(1, keepdims=True))


def _decompose(matrices: Floats, unit: Floats) -> tuple[Floats, Floats]:
    """(K, m) singular values of B, and of B(I − wwᵀ) with its 0 in front; w is of length one."""
    before = np.abs(np.linalg.eigvalsh(matrices))
    after = np.zeros_like(before)
    # The reflection I − vvᵀ/(1 + w₁), v = w + e₁, takes w to −e₁: its other columns are orthogonal to w.
    v = unit.copy()
    v[:, 0] += 1
    image = (matrices @ v[:, :, None]) / v[:, :1, None]
    if matrices.shape[1] > 1:
        after[:, 1:] = np.linalg.svd(matrices[:, :, 1:] - image * v[:, None, 1:], compute_uv=False)
    return before, after


def _stacks(sizes: Integers, progress: bool) -> Any:
    """Give sets of graphs of equal size, of a bounded number of entries in all, the largest graphs first."""
    from tqdm import tqdm

    order = np.argsort(-sizes, kind="stable")
    with tqdm(
        total=float((sizes.astype(np.float64) ** 3).sum()),
        desc="singular values",
        bar_format="{desc}: {percentage:3.0f}%|{bar}| {elapsed}<{remaining}",
        disable=not progress,
        delay=1.0,
    ) as bar:
        for same in np.split(order, np.flatnonzero(np.diff(sizes[order])) + 1):
            size = int(sizes[same[0]])
            at_once = max(1, NUMBERS_PER_STACK // max(1, size) ** 2)
            for start in range(0, len(same), at_once):
                members = same[start : start + at_once]
                yield members
                bar.update(float(len(members) * size**3))


def _sorted_by_graph(values: Floats, graph: Integers) -> Floats:
    return values[np.lexsort((values, graph))]


def _median(values: Floats) -> float:
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")
