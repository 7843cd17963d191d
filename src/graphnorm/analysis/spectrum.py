"""Singular values of the aggregation Q and of QN, the interlacing of Theorem 1, and condition numbers.

**Q and N.** A layer gathers from neighbours by H ↦ HQ.

- GIN: Q = A + (1 + ξ)I. The authors' data has one more self-loop on every node, so there Q = A + (2 + ξ)I.
- GCN: Q = D̂^{-1/2}(A + I)D̂^{-1/2}, where D̂ is the diagonal matrix of the degrees of A + I.

Both are symmetric: q_ij = sᵢsⱼ on edges, and dᵢ on the diagonal. N = I − 11ᵀ/n subtracts the mean over a graph's
nodes, as InstanceNorm does.

**Theorem 1.** Let λ₁ ≤ … ≤ λₙ be the singular values of Q. QN has a singular value 0, since N1 = 0; let μ₁ ≤ … ≤ μₙ₋₁
be its others. Then λᵢ ≤ μᵢ ≤ λᵢ₊₁ for every i.

**Smaller matrices.** Nodes with the same neighbours are *twins*: open twins if they are not joined (two leaves of a
hub), closed twins if they are (two members of a clique). No node has twins of both kinds. If i and j are twins,
eᵢ − eⱼ is an eigenvector of Q with the eigenvalue q_ii − q_ij, and N leaves it unchanged. So a class of k twins has
this eigenvalue k − 1 times. The other eigenvectors are spanned by the indicator vectors 1_c/√k_c of the classes c. In
this basis Q is the *quotient matrix* B, with B_cd = q_cd √(k_c k_d) and B_cc = q_cc + (k_c − 1)q_cc′, and 1/√n is the
unit vector w with w_c = √(k_c/n). Hence:

- the singular values of Q are those of B, and the absolute value of q_ii − q_ij, k − 1 times for each class;
- those of QN are those of B(I − wwᵀ), and the same repeated ones.

This is exact. It saves much time, since the cost grows with the third power of the size: discussion threads are mostly
leaves of a few hubs, and ego networks mostly cliques.

**Accuracy.** LAPACK's algorithms are backward stable: each computed value is off by at most a small multiple of n·ε·λₙ,
with ε = 2.2e-16. :func:`tolerance` takes 4 as the multiple. Values below it count as zero, and Theorem 1 is checked up
to it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt
from tqdm import tqdm

from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement, finite_median
from graphnorm.data import GraphBatch, PackedGraphs
from graphnorm.errors import GraphnormError, need, require

__all__ = ["Aggregation", "Conditions", "ExtremeSingularValues", "Interlacing", "SharedValues", "Spectra"]
__all__ += ["affordable", "conditions", "dense_q", "extreme_singular_values", "interlacing", "shared_values"]
__all__ += ["sparse_q", "spectra", "tolerance"]

sparse, linalg = (need(module, "graphnorm.analysis", "analysis") for module in ("scipy.sparse", "scipy.sparse.linalg"))

MAX_DENSE = 8192
"""The largest quotient matrix whose singular values are all computed."""
NUMBERS_PER_STACK = 1 << 21
"""Entries of the matrices that LAPACK gets at once."""
EDGES_PER_BATCH = 1 << 22
SAME = 1e-8
"""Singular values closer than this share of the largest belong to one space of singular vectors."""


# ---- the aggregation ------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Aggregation:
    """The aggregation Q: GIN's, with its ξ and with or without the authors' extra self-loop, or GCN's.

    >>> Aggregation("gin", xi=0.1, self_loop=True).label
    'GIN, ξ = 0.1, self-loop'
    """

    model: Literal["gin", "gcn"] = "gin"
    xi: float = 0.0
    self_loop: bool = False

    def __post_init__(self) -> None:
        if self.model not in ("gin", "gcn"):
            raise GraphnormError(f"there is no aggregation {self.model!r}", remedy="use 'gin' or 'gcn'")
        if not np.isfinite(self.xi):
            raise GraphnormError(f"ξ is {self.xi}", remedy="give a finite number")
        if self.model == "gcn" and (self.xi or self.self_loop):
            raise GraphnormError("GCN has neither ξ nor an extra self-loop", remedy="leave them out, or use 'gin'")

    @property
    def label(self) -> str:
        """The name for titles and tables."""
        if self.model == "gcn":
            return "GCN"
        return f"GIN, ξ = {self.xi:g}" + (", self-loop" if self.self_loop else "")

    def entries(self, degree: Integers) -> tuple[Floats, Floats]:
        """d and s, (R,) each, from the degrees of A: q_ii = dᵢ, and q_ij = sᵢsⱼ on edges."""
        if self.model == "gin":
            return np.full(len(degree), 1.0 + self.xi + self.self_loop), np.ones(len(degree))
        return 1 / (degree + 1.0), 1 / np.sqrt(degree + 1.0)


def sparse_q(batch: GraphBatch, aggregation: Aggregation) -> Any:
    """Q of a batch of R nodes, block-diagonal: an (R, R) ``scipy.sparse.csr_array``."""
    diagonal, edges = _diagonal_and_edges(batch, aggregation)
    return sparse.csr_array(edges + sparse.diags_array(diagonal))


def dense_q(batch: GraphBatch, aggregation: Aggregation) -> Floats:
    """Q of a batch of R nodes, block-diagonal: an (R, R) array."""
    matrix: Floats = sparse_q(batch, aggregation).toarray()
    return matrix


def _diagonal_and_edges(batch: GraphBatch, aggregation: Aggregation) -> tuple[Floats, Any]:
    """The diagonal of Q, (R,), and the rest of it, an (R, R) ``csr_array``."""
    col, rowptr = batch.col.cpu().numpy(), batch.rowptr.cpu().numpy()
    degree = np.diff(rowptr)
    diagonal, edge = aggregation.entries(degree)
    values = np.repeat(edge, degree) * edge[col]
    return diagonal, sparse.csr_array((values, col, rowptr), shape=(batch.num_rows, batch.num_rows))


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
    chosen = check_ids(graphs, ids)
    b = quotients(graphs, chosen, aggregation)
    largest = int(b.sizes.max())
    if largest > MAX_DENSE:
        raise GraphnormError(
            f"a graph has {largest} nodes with different neighbours; whole spectra are computed up to {MAX_DENSE}",
            remedy="compute the smallest and largest ones, with graphnorm.analysis.extreme_singular_values",
        )
    q, shifted = np.empty(b.ptr[-1]), np.empty(b.ptr[-1] - len(chosen))
    for members in _stacks_of_equal_size(b.sizes, progress):
        matrices, w = b.stack(members)
        at = b.ptr[members][:, None] + np.arange(matrices.shape[1])
        q[at] = np.abs(np.linalg.eigvalsh(matrices))
        centred = matrices - (matrices @ w[:, :, None]) * w[:, None, :]
        # Descending: the last one is the 0 of N. The eigenvalues of NQ²N would have half the digits only.
        shifted[at[:, :-1] - members[:, None]] = np.linalg.svd(centred, compute_uv=False)[:, :-1]

    number = np.arange(len(chosen))
    repeated = np.repeat(np.abs(b.repeated), b.multiplicity - 1)
    repeated_in = np.repeat(np.repeat(number, b.sizes), b.multiplicity - 1)

    def with_repeated(values: Floats, sizes: Integers) -> Floats:
        values, graph = np.append(values, repeated), np.append(np.repeat(number, sizes), repeated_in)
        return values[np.lexsort((values, graph))]

    return Spectra(
        ids=chosen,
        sizes=graphs.sizes.cpu().numpy()[chosen],
        q=with_repeated(q, b.sizes),
        shifted=with_repeated(shifted, b.sizes - 1),
        aggregation=aggregation.label,
    )


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


def check_ids(graphs: PackedGraphs, ids: Sequence[int] | Integers | None) -> Integers:
    """The ids as an array, all of them for None. An empty list or an id out of range is an error."""
    require("graphs", graphs, PackedGraphs, "PackedGraphs, which graphnorm.data.load gives")
    chosen = np.arange(graphs.num_graphs) if ids is None else np.array(ids, dtype=np.int64)
    if chosen.ndim != 1 or not len(chosen) or chosen.min() < 0 or chosen.max() >= graphs.num_graphs:
        raise GraphnormError(
            f"ids of shape {chosen.shape} are not some of the {graphs.num_graphs} graphs",
            remedy=f"give a list of numbers from 0 to {graphs.num_graphs - 1}, or None for all graphs",
        )
    return chosen


def affordable(graphs: PackedGraphs, ids: Integers, work: float = 2e11) -> Integers:
    """The leading ones of ``ids`` whose spectra together cost up to ``work``, in cubed sizes of the quotient matrices.

    The default takes one or two minutes. Graphs that would take half of it alone are skipped, and so are graphs too
    large for :func:`spectra`.
    """
    ids = check_ids(graphs, ids)
    sizes = quotients(graphs, ids, Aggregation()).sizes.astype(np.float64)
    cost = sizes**3
    possible = (sizes <= MAX_DENSE) & (cost <= work / 2)
    return ids[possible][np.cumsum(cost[possible]) <= work]


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
    aggregation = aggregation or Aggregation()
    chosen = check_ids(graphs, ids)
    b = quotients(graphs, chosen, aggregation)
    sizes = graphs.sizes.cpu().numpy()[chosen]
    shared, orthogonal = np.zeros(len(chosen), np.int64), np.zeros(len(chosen), np.int64)
    for members in _stacks_of_equal_size(b.sizes, progress=False):
        matrices, w = b.stack(members)
        if not w.shape[1] > 1:
            continue
        eigenvalues, vectors = np.linalg.eigh(matrices)
        order = np.argsort(np.abs(eigenvalues), axis=1)
        before = np.take_along_axis(np.abs(eigenvalues), order, axis=1)
        cosine = np.take_along_axis((vectors * w[:, :, None]).sum(axis=1), order, axis=1)
        centred = matrices - (matrices @ w[:, :, None]) * w[:, None, :]
        after = np.linalg.svd(centred, compute_uv=False)[:, -2::-1]  # ascending, without the 0 of N
        largest = before[:, -1:]
        rounding = tolerance(sizes[members][:, None], largest)
        edge = np.full((len(members), 1), np.inf)

        def nearest(distance: Floats, edge: Floats = edge) -> Floats:
            """To the neighbour below or above; distance: between neighbours."""
            return np.minimum(np.hstack([edge, distance]), np.hstack([distance, edge]))

        # By the theorem, the values of QN next to λᵢ are μᵢ₋₁ and μᵢ.
        near = np.minimum(
            np.hstack([edge, np.abs(before[:, 1:] - after)]), np.hstack([np.abs(before[:, :-1] - after), edge])
        )
        equal = near <= rounding
        several = nearest(np.diff(before, axis=1)) <= SAME * largest
        at = b.ptr[members][:, None] + np.arange(before.shape[1])
        for row, places in enumerate(at):
            twins = np.sort(np.abs(b.repeated[places][b.multiplicity[places] > 1]))
            twins = np.concatenate([[-np.inf], twins, [np.inf]])
            right = np.searchsorted(twins, before[row])
            several[row] |= (
                np.minimum(before[row] - twins[right - 1], twins[right] - before[row]) <= SAME * largest[row]
            )
        alone = cosine**2 * nearest(np.diff(before**2, axis=1)) <= 4 * (before + rounding) * rounding
        shared[members] = equal.sum(axis=1)
        orthogonal[members] = (equal & (several | alone)).sum(axis=1)
    return SharedValues(shared, orthogonal)


# ---- quotient matrices ----------------------------------------------------------------------------------------------


class SameNeighbours(NamedTuple):
    """For each of a batch's R nodes, its class of nodes with the same neighbours, which may be a class of one."""

    first: Integers
    """(R,): the first node of the class."""
    multiplicity: Integers
    """(R,): nodes of the class."""
    closed: Booleans
    """(R,): whether the nodes of the class are joined to each other; False for a class of one."""


class Quotients(NamedTuple):
    """The quotient matrices of G graphs, with M classes in all."""

    ptr: Integers
    """(G+1,): graph g has the classes ``ptr[g]:ptr[g+1]``."""
    matrix: Any
    """(M, M) ``csr_array``: the matrices B as blocks on the diagonal."""
    multiplicity: Integers
    """(M,): nodes of each class, k_c."""
    repeated: Floats
    """(M,): q_ii − q_ij, an eigenvalue k_c − 1 times."""

    @property
    def sizes(self) -> Integers:
        """(G,): classes of each graph."""
        return np.diff(self.ptr)

    def stack(self, members: Integers) -> tuple[Floats, Floats]:
        """B, (K, m, m), and the unit vectors w, (K, m), of K graphs with m classes each."""
        first, size = self.ptr[members], int(self.sizes[members[0]])
        at = first[:, None] + np.arange(size)
        rows = self.matrix[at.reshape(-1)].tocoo()
        graph, row = np.divmod(rows.row, size)
        matrices = np.zeros((len(members), size, size))
        matrices[graph, row, rows.col - first[graph]] = rows.data
        nodes = self.multiplicity[at]
        return matrices, np.sqrt(nodes / nodes.sum(1, keepdims=True))


def in_batches(graphs: PackedGraphs, ids: Integers) -> Iterator[GraphBatch]:
    """The graphs ``ids`` in their order, as batches on the CPU of a few million edges at most."""
    edges = graphs.edge_ptr.diff().cpu().numpy()[ids]
    part = (np.cumsum(edges) - edges) // EDGES_PER_BATCH
    for chosen in np.split(ids, np.flatnonzero(np.diff(part)) + 1):
        yield graphs.batch(chosen).to("cpu")


def same_neighbours(batch: GraphBatch) -> SameNeighbours:
    """Find nodes with the same neighbours.

    Each node and each graph has a random 64-bit code. The key of a node is the sum of its neighbours' codes and its
    graph's code, and its own for closed twins. Two different neighbourhoods get the same key with probability 2⁻⁶⁴.
    """
    graph, rowptr, col = (array.numpy() for array in (batch.batch, batch.rowptr, batch.col))
    codes = np.random.default_rng(0).integers(2**64, size=batch.num_rows + batch.num_graphs, dtype=np.uint64)
    own, of_graph = codes[: batch.num_rows], codes[batch.num_rows :]
    summed = np.concatenate((np.zeros(1, np.uint64), np.cumsum(own[col])))
    key = summed[rowptr[1:]] - summed[rowptr[:-1]] + of_graph[graph]

    def classes(key: npt.NDArray[np.uint64]) -> tuple[Integers, Integers]:
        _, first, number, count = np.unique(key, return_index=True, return_inverse=True, return_counts=True)
        return first[number], count[number]

    (open_first, open_count), (closed_first, closed_count) = classes(key), classes(key + own)
    closed = closed_count > 1
    first = np.where(closed, closed_first, open_first)
    return SameNeighbours(first, np.where(closed, closed_count, open_count), closed)


def quotients(graphs: PackedGraphs, ids: Integers, aggregation: Aggregation) -> Quotients:
    """The quotient matrices of the graphs ``ids``."""
    sizes, matrices, multiplicity, repeated = [], [], [], []
    for batch in in_batches(graphs, ids):
        classes = same_neighbours(batch)
        kept = np.flatnonzero(classes.first == np.arange(batch.num_rows))  # one node of each class
        nodes = classes.multiplicity[kept]
        diagonal, edges = _diagonal_and_edges(batch, aggregation)
        _, edge = aggregation.entries(batch.degree.numpy()[kept])
        inside = np.where(classes.closed[kept], edge**2, 0.0)  # q_ij within the class
        root = sparse.diags_array(np.sqrt(nodes))
        own = sparse.diags_array(diagonal[kept] + (nodes - 1) * inside)
        matrices.append(root @ edges[kept][:, kept] @ root + own)
        sizes.append(np.bincount(batch.batch.numpy()[kept], minlength=batch.num_graphs))
        multiplicity.append(nodes)
        repeated.append(diagonal[kept] - inside)
    ptr = np.concatenate(([0], np.cumsum(np.concatenate(sizes))))
    matrix = sparse.csr_array(sparse.block_diag(matrices) if len(matrices) > 1 else matrices[0])
    return Quotients(ptr, matrix, np.concatenate(multiplicity), np.concatenate(repeated))


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
    aggregation = aggregation or Aggregation()
    chosen = check_ids(graphs, ids)
    b = quotients(graphs, chosen, aggregation)
    q, shifted = np.empty((len(chosen), 2)), np.full((len(chosen), 2), np.nan)
    small = np.flatnonzero(b.sizes <= DENSE)
    if len(small):
        whole = spectra(graphs, chosen[small], aggregation)
        for k, of in zip(small, map(whole.of, range(len(small))), strict=True):
            q[k] = of[0][[0, -1]]
            shifted[k] = of[1][[0, -1]] if len(of[1]) else np.nan
    for k in tqdm(np.flatnonzero(b.sizes > DENSE), "extreme singular values", disable=not progress or None, delay=1.0):
        q[k], shifted[k] = _sparse_extremes(b, int(k))
    sizes = graphs.sizes.cpu().numpy()[chosen]
    zero = tolerance(sizes, q[:, 1])[:, None]
    return ExtremeSingularValues(chosen, sizes, np.where(q <= zero, 0.0, q), np.where(shifted <= zero, 0.0, shifted))


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
