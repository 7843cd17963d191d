"""The aggregation Q of a graph network as a matrix, and the smaller matrix that has its singular values.

**Q and N.** A layer gathers from neighbours by H ↦ HQ.

- GIN: Q = A + (1 + ξ)I. The authors' data has one more self-loop on every node, so there Q = A + (2 + ξ)I.
- GCN: Q = D̂^{-1/2}(A + I)D̂^{-1/2}, where D̂ is the diagonal matrix of the degrees of A + I.

Both are symmetric: q_ij = sᵢsⱼ on edges, and dᵢ on the diagonal. N = I − 11ᵀ/n subtracts the mean over a graph's
nodes, as InstanceNorm does.

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
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.analysis.measurement import Booleans, Floats, Integers
from graphnorm.data import GraphBatch, PackedGraphs
from graphnorm.errors import GraphnormError, need, require

__all__ = ["Aggregation", "dense_q", "sparse_q"]

sparse = need("scipy.sparse", "graphnorm.analysis", "analysis")

EDGES_PER_BATCH = 1 << 22


# ---- Q --------------------------------------------------------------------------------------------------------------


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


# ---- graphs, some at a time -----------------------------------------------------------------------------------------


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


def in_batches(graphs: PackedGraphs, ids: Integers) -> Iterator[GraphBatch]:
    """The graphs ``ids`` in their order, as batches on the CPU of a few million edges at most."""
    edges = graphs.edge_ptr.diff().cpu().numpy()[ids]
    part = (np.cumsum(edges) - edges) // EDGES_PER_BATCH
    for chosen in np.split(ids, np.flatnonzero(np.diff(part)) + 1):
        yield graphs.batch(chosen).to("cpu")


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

    ids: Integers
    """(G,): which graphs of the dataset."""
    num_nodes: Integers
    """(G,): nodes of each graph."""
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


def quotients(
    graphs: PackedGraphs, ids: Sequence[int] | Integers | None = None, aggregation: Aggregation | None = None
) -> Quotients:
    """The quotient matrices of all graphs, or of those in ``ids``."""
    ids, aggregation = check_ids(graphs, ids), aggregation or Aggregation()
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
    num_nodes = graphs.sizes.cpu().numpy()[ids]
    return Quotients(ids, num_nodes, ptr, matrix, np.concatenate(multiplicity), np.concatenate(repeated))
