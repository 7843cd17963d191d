"""Twins: nodes that no aggregation can tell apart, and the smaller matrix that is left without them.

Two nodes are *open* twins if they have the same neighbours (two leaves of one hub) and *closed* twins if they
have the same neighbours and each other (two members of a clique). No node has both kinds. For twins i, j the
vector eᵢ − eⱼ is an eigenvector of Q with eigenvalue q_ii − q_ij, and it is orthogonal to 1. So a class of k
twins has that eigenvalue k − 1 times, and N leaves these eigenvectors as they are.

What is orthogonal to all of them is spanned by the normalized indicator vectors 1_c/√k_c of the classes. On
that basis Q is the quotient matrix B with B_cd = q_cd √(k_c k_d) and B_cc = q_cc + (k_c − 1)q_cc′, and 1 is
the vector w with w_c = √k_c, hence N = I − wwᵀ/n. Together:

- the singular values of Q are those of B, and the absolute value of q_ii − q_ij, k − 1 times for each class;
- those of QN are those of B(I − wwᵀ/n), and the same repeated ones.

This is exact, and it makes matrices small: discussion threads are mostly leaves of a few hubs, ego networks
mostly cliques. The cost of a spectrum grows with the third power of the size.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.analysis.aggregation import Aggregation
from graphnorm.analysis.measurement import Floats, Integers

if TYPE_CHECKING:
    from collections.abc import Iterator

    from graphnorm.data import GraphBatch, PackedGraphs

__all__ = ["Quotients", "TwinClasses", "batches", "quotients", "twin_classes"]

EDGES_PER_BATCH = 1 << 22


class TwinClasses(NamedTuple):
    """The class of each of a batch's R nodes; a node without a twin is a class of one."""

    representative: Integers
    """(R,): the first node of the class."""
    multiplicity: Integers
    """(R,): how many nodes the class has."""
    closed: npt.NDArray[np.bool_]
    """(R,): whether its nodes are joined to each other; False for a class of one."""


class Quotients(NamedTuple):
    """The quotient matrices of G graphs; M classes and F directed edges between classes in all."""

    ptr: Integers
    """(G+1,): graph g has the classes ``ptr[g]:ptr[g+1]``."""
    diagonal: Floats
    """(M,): B_cc."""
    multiplicity: Integers
    """(M,): nodes of each class, k_c = w_c²."""
    repeated: Floats
    """(M,): q_ii − q_ij, an eigenvalue k_c − 1 times."""
    edge_ptr: Integers
    """(G+1,): graph g has the edges ``edge_ptr[g]:edge_ptr[g+1]``."""
    row: npt.NDArray[np.int32]
    """(F,): counted from the graph's first class."""
    col: npt.NDArray[np.int32]
    """(F,)."""
    value: Floats
    """(F,): B_cd."""

    @property
    def sizes(self) -> Integers:
        """(G,): classes of each graph."""
        return np.diff(self.ptr)


def batches(graphs: PackedGraphs, ids: Integers) -> Iterator[GraphBatch]:
    """Give the graphs ``ids`` in their order as batches on the CPU, each of a few million edges at most."""
    edges = graphs.edge_ptr.diff().cpu().numpy()[ids]
    part = (np.cumsum(edges) - edges) // EDGES_PER_BATCH
    for chosen in np.split(ids, np.flatnonzero(np.diff(part)) + 1):
        yield graphs.batch(chosen).to("cpu")


def twin_classes(batch: GraphBatch) -> TwinClasses:
    """Find the twins of a batch, in time linear in its edges.

    Every place in a graph has a random 64-bit code, and a node's key is the sum of its neighbours' codes, for
    closed twins with its own. Unequal neighbourhoods get equal keys with a chance of 2⁻⁶⁴ for each pair.
    """
    graph, rowptr, col = (array.numpy() for array in (batch.batch, batch.rowptr, batch.col))
    node = np.arange(batch.num_rows)
    local = node - batch.ptr.numpy()[graph]
    codes = np.random.default_rng(0).integers(2**64, size=int(local.max(initial=-1)) + 1, dtype=np.uint64)
    own = codes[local]
    summed = np.concatenate((np.zeros(1, np.uint64), np.cumsum(own[col], dtype=np.uint64)))
    neighbours = summed[rowptr[1:]] - summed[rowptr[:-1]]

    def classes(key: npt.NDArray[np.uint64]) -> tuple[Integers, Integers]:
        order = np.lexsort((key, graph))
        starts = np.ones(len(order), bool)
        starts[1:] = (np.diff(key[order]) != 0) | (np.diff(graph[order]) != 0)
        number = np.cumsum(starts) - 1
        representative, count = np.empty_like(node), np.empty_like(node)
        representative[order] = order[starts][number]
        count[order] = np.bincount(number)[number]
        return representative, count

    of_open, open_count = classes(neighbours)
    of_closed, closed_count = classes(neighbours + own)
    closed = closed_count > 1
    return TwinClasses(np.where(closed, of_closed, of_open), np.where(closed, closed_count, open_count), closed)


def quotients(graphs: PackedGraphs, ids: Integers, aggregation: Aggregation) -> Quotients:
    """Give the quotient matrices of the graphs ``ids``."""
    parts = [_quotients(batch, aggregation) for batch in batches(graphs, ids)]

    def joined(name: str) -> npt.NDArray[Any]:
        arrays = [getattr(part, name) for part in parts]
        if not name.endswith("ptr"):
            return np.concatenate(arrays)
        return np.concatenate(([0], np.cumsum(np.concatenate([np.diff(ptr) for ptr in arrays]))))

    return Quotients(*map(joined, Quotients._fields))


def _quotients(batch: GraphBatch, aggregation: Aggregation) -> Quotients:
    graph, col, degree = batch.batch.numpy(), batch.col.numpy(), batch.degree.numpy()
    node = np.arange(batch.num_rows)
    twins = twin_classes(batch)
    first = twins.representative == node
    ptr = np.concatenate(([0], np.cumsum(np.bincount(graph[first], minlength=batch.num_graphs))))
    place = np.cumsum(first) - 1 - ptr[graph]

    entries = aggregation.entries(degree)
    inside = np.where(twins.closed, entries.edge**2, 0.0)
    root = entries.edge * np.sqrt(twins.multiplicity)
    row = np.repeat(node, degree)
    between = first[row] & first[col]
    row, col = row[between], col[between]
    return Quotients(
        ptr=ptr,
        diagonal=(entries.diagonal + (twins.multiplicity - 1) * inside)[first],
        multiplicity=twins.multiplicity[first],
        repeated=(entries.diagonal - inside)[first],
        edge_ptr=np.concatenate(([0], np.cumsum(np.bincount(graph[row], minlength=batch.num_graphs)))),
        row=place[row].astype(np.int32),
        col=place[col].astype(np.int32),
        value=root[row] * root[col],
    )
