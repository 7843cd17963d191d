"""Graph kernels: the Weisfeiler-Lehman subtree kernel and anonymous walks, as (G, G) matrices; both need scipy.

**WL** (Shervashidze et al., 2011). Colour refinement: a node's next colour stands for its own colour and the multiset
of its neighbours' colours,

    c'(v) = number of (c(v), {{ c(u) : u ~ v }}),

for all graphs at once, so that equal numbers mean equal subtrees in whatever graph. The kernel of depth h compares how
often each colour of the rounds 0 … h appears: K = Σ_{i ≤ h} Xᵢ Xᵢᵀ with Xᵢ the (graphs, colours) matrix of counts. The
multiset is told apart by a sum of 64-bit hashes, which does not depend on the order and is one pass over the edges. Two
different ones among n nodes get the same sum with a probability below n²/2⁶⁵: 10⁻⁹ for NCI1.

**Anonymous walks** (Ivanov and Burnaev, 2018). The pattern of a walk numbers its nodes by their first appearance: a, b,
c, b and d, a, b, a are both 0, 1, 2, 1. A graph's features are the probabilities of the patterns of a random walk of a
given length that starts at any node alike. For short lengths they are exact: all walks are followed, each with its
probability. For longer ones they are the shares among walks drawn at random. Labels of nodes have no part in them.
"""

from __future__ import annotations

import itertools
from collections.abc import Callable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import need
from graphnorm.randomness import bits

__all__ = ["KERNELS", "PENALTIES", "Kernel", "graph_arrays", "walk_kernels", "wl_kernels"]

Ids = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
"""C of the support vector machine: the price of a training graph on the wrong side."""
DEPTH = 5
"""Rounds of colour refinement, at most."""
LENGTHS = (2, 3, 4, 5, 6, 7, 8, 9, 10)
"""Steps of anonymous walks."""

OWN, MULTISET, PAIR = 1, 2, 3
"""Keys of the hashes."""
COMMON = 16
"""What is in more than one of so many graphs is multiplied as a dense column."""
MOST_WALKS = 4_000_000
"""Walks of all graphs together that are followed exactly; where there are more they are drawn."""
SAMPLES = 2_000
"""Walks drawn from each graph: every pattern's share is then within 0.04 with a probability of 95 %."""
SEED = 0
CHUNK = 100_000
"""Walks that are drawn at a time: what fits the caches."""


class GraphArrays(NamedTuple):
    """Graphs as kernels take them: numpy arrays, nodes numbered through all graphs."""

    node_ptr: npt.NDArray[np.int64]
    """(G+1,): graph g has the nodes node_ptr[g] … node_ptr[g+1] - 1."""
    rowptr: npt.NDArray[np.int64]
    """(N+1,)."""
    col: npt.NDArray[np.int64]
    """(E,)."""
    colours: npt.NDArray[np.int64]
    """(N,): a number for each combination of categorical features; 0 where there are none."""


def graph_arrays(graphs: PackedGraphs) -> GraphArrays:
    """The graphs as kernels take them."""
    graphs = graphs.to("cpu")
    node_ptr, rowptr, local = (t.numpy().astype(np.int64) for t in (graphs.node_ptr, graphs.rowptr, graphs.col))
    col = local + np.repeat(node_ptr[:-1], np.diff(rowptr[node_ptr]))
    colours = np.zeros(graphs.num_nodes, dtype=np.int64)
    if graphs.tags is not None:
        colours = np.unique(graphs.tags.numpy(), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return GraphArrays(node_ptr, rowptr, col, colours)


# Weisfeiler-Lehman


def refine(colours: Ids, rowptr: Ids, col: Ids) -> Ids:
    """One round of refinement: the next colours, numbered from 0.

    colours: (N,). rowptr, col: the neighbours in CSR form, (N+1,) and (E,), numbered through all graphs.

    >>> refine(np.array([0, 0, 0]), np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])).tolist()  # a path
    [0, 1, 0]
    """
    partial_sums = np.concatenate([[0], _hash(MULTISET, colours)[col]]).cumsum()  # wraps around at 2⁶⁴, as it may
    neighbours = partial_sums[rowptr[1:]] - partial_sums[rowptr[:-1]]
    signature = _hash(PAIR, _hash(OWN, colours) + neighbours)
    return _numbered(signature)


def colour_counts(
    node_ptr: Ids,
    rowptr: Ids,
    col: Ids,
    colours: Ids,
    depth: int,
) -> Iterator[Any]:
    """Give the counts of the rounds 0 … depth, one after another: sparse (G, colours) matrices.

    node_ptr: (G+1,): graph g has the nodes node_ptr[g] … node_ptr[g+1] - 1.
    colours: (N,), what the nodes are labelled with.
    """
    sparse = need("scipy.sparse", "the WL kernel", "study")
    graph = np.repeat(np.arange(len(node_ptr) - 1), np.diff(node_ptr))
    colours = _numbered(colours)
    for round_ in range(depth + 1):
        if round_:
            colours = refine(colours, rowptr, col)
        shape = (len(node_ptr) - 1, int(colours.max(initial=-1)) + 1)
        yield sparse.csr_array((np.ones(len(colours)), (graph, colours)), shape=shape)  # duplicates add up


def wl_kernels(
    node_ptr: Ids,
    rowptr: Ids,
    col: Ids,
    colours: Ids,
    depth: int = 5,
) -> Iterator[Matrix]:
    """Give the kernel matrices of the depths 0 … depth, one after another: (G, G), whole numbers.

    Arguments as in :func:`colour_counts`.

    >>> path, triangle = [1, 0, 2, 1], [4, 5, 3, 5, 3, 4]
    >>> arrays = [[0, 3, 6], [0, 1, 3, 4, 6, 8, 10], path + triangle, [0] * 6]
    >>> [kernel.tolist() for kernel in wl_kernels(*map(np.array, arrays), depth=1)]
    [[[9.0, 9.0], [9.0, 9.0]], [[14.0, 12.0], [12.0, 18.0]]]
    """
    total: Matrix | None = None
    for counts in colour_counts(node_ptr, rowptr, col, colours, depth):
        total = products(counts) if total is None else total + products(counts)
        yield total


def products(features: Any) -> Matrix:
    """X Xᵀ, dense, of a sparse X: common columns by a dense product, the many rare ones by a sparse one."""
    by_column = features.tocsc()
    common = np.diff(by_column.indptr) * COMMON > features.shape[0]
    dense: Matrix = by_column[:, common].toarray()
    rare = by_column[:, ~common].tocsr()
    found: Matrix = dense @ dense.T + (rare @ rare.T).toarray()
    return found


def _hash(key: int, values: Ids) -> Ids:
    hashed: Ids = bits(torch.tensor(key), torch.from_numpy(values)).numpy()
    return hashed


def _numbered(values: Ids) -> Ids:
    """The same values numbered from 0, in their order."""
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)


# Anonymous walks


class Patterns(NamedTuple):
    """Patterns of walks: (graph, code, weight), one entry for each walk, or for each pattern of a graph."""

    graph: Ids
    code: Ids
    """A pattern as a number: its places are digits, in a base one above the number of steps."""
    weight: Matrix
    """The probabilities; those of each graph with an edge add up to 1."""


def exact_patterns(node_ptr: Ids, rowptr: Ids, col: Ids, length: int) -> Patterns:
    """Follow every walk of so many steps from every node; a walk ends at a node without neighbours.

    >>> path = np.array([0, 3]), np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])
    >>> patterns = exact_patterns(*path, length=2)  # 0,1,0 in base 3 is 3, and 0,1,2 is 5
    >>> [float(patterns.weight[patterns.code == code].sum().round(3)) for code in (3, 5)]
    [0.667, 0.333]
    """
    degree = np.diff(rowptr)
    graph = np.repeat(np.arange(len(node_ptr) - 1), np.diff(node_ptr))
    walks = np.arange(len(degree))[:, None]
    weight = 1.0 / np.diff(node_ptr)[graph]
    for _ in range(length):
        here = walks[:, -1]
        ways = degree[here]
        which = np.repeat(np.arange(len(walks)), ways)
        step = np.arange(len(which)) - np.repeat(ways.cumsum() - ways, ways)
        following = col[rowptr[here[which]] + step]
        walks = np.concatenate([walks[which], following[:, None]], axis=1)
        graph, weight = graph[which], (weight / np.maximum(ways, 1))[which]
    return Patterns(graph, _codes(walks), weight)


def sampled_patterns(
    node_ptr: Ids, rowptr: Ids, col: Ids, length: int, samples: int = SAMPLES, seed: int = SEED
) -> Patterns:
    """Draw so many walks from every graph, from nodes with neighbours; graphs without edges have none."""
    random = np.random.default_rng(seed)
    degree = np.diff(rowptr)
    graph_of_node = np.repeat(np.arange(len(node_ptr) - 1), np.diff(node_ptr))
    starts = np.flatnonzero(degree)
    first = np.searchsorted(graph_of_node[starts], np.arange(len(node_ptr)))
    count = np.diff(first)
    with_edges, many = np.flatnonzero(count), max(1, CHUNK // samples)
    none = np.empty(0, dtype=np.int64)
    parts = [Patterns(none, none, np.empty(0))]
    for begin in range(0, len(with_edges), many):
        graph = np.repeat(with_edges[begin : begin + many], samples)
        here = starts[first[graph] + (random.random(len(graph)) * count[graph]).astype(np.int64)]
        walks = np.empty((length + 1, len(graph)), dtype=np.int64)
        walks[0] = here
        for step in range(1, length + 1):
            here = col[rowptr[here] + (random.random(len(here)) * degree[here]).astype(np.int64)]
            walks[step] = here
        parts.append(_summed(Patterns(graph, _codes(walks.T), np.full(len(graph), 1.0 / samples))))
    return Patterns(*map(np.concatenate, zip(*parts, strict=True)))


def walk_features(node_ptr: Ids, rowptr: Ids, col: Ids, length: int) -> Any:
    """The features of walks of one length, a sparse (G, patterns) matrix: exact where the walks are few enough."""
    sparse = need("scipy.sparse", "anonymous walk features", "study")
    make = exact_patterns if count_walks(rowptr, col, length) <= MOST_WALKS else sampled_patterns
    patterns = make(node_ptr, rowptr, col, length)
    _, column = np.unique(patterns.code, return_inverse=True)
    shape = (len(node_ptr) - 1, int(column.max(initial=-1)) + 1)
    return sparse.csr_array((patterns.weight, (patterns.graph, column.reshape(-1))), shape=shape)


def walk_kernels(node_ptr: Ids, rowptr: Ids, col: Ids, lengths: Sequence[int]) -> Iterator[Matrix]:
    """Give a Gaussian kernel of the features for each length, as wide as the median distance of two graphs."""
    for length in lengths:
        features = walk_features(node_ptr, rowptr, col, length)
        similarity = products(features)
        square = np.diagonal(similarity)
        distance = np.maximum(square + square[:, None] - 2 * similarity, 0)
        width = float(np.median(distance[np.triu_indices(len(distance), 1)]))
        yield np.exp(-distance / (width or 1.0))


def count_walks(rowptr: Ids, col: Ids, length: int) -> float:
    """How many walks of so many steps there are, from all nodes."""
    counts = np.ones(len(rowptr) - 1)
    for _ in range(length):
        sums = np.concatenate([[0.0], counts[col].cumsum()])
        counts = sums[rowptr[1:]] - sums[rowptr[:-1]]
    return float(counts.sum())


def _summed(patterns: Patterns) -> Patterns:
    """The same with one entry for each pattern of a graph."""
    order = np.lexsort((patterns.code, patterns.graph))
    graph, code, weight = (part[order] for part in patterns)
    fresh = np.concatenate([[True], (np.diff(graph) != 0) | (np.diff(code) != 0)])
    return Patterns(graph[fresh], code[fresh], np.add.reduceat(weight, np.flatnonzero(fresh)))


def _codes(walks: Ids) -> Ids:
    """(W, L+1) nodes to (W,) patterns."""
    steps = walks.shape[1]
    names = [np.zeros(len(walks), dtype=np.int64)]
    fresh = np.zeros(len(walks), dtype=np.int64)  # the highest name given so far
    code = np.zeros(len(walks), dtype=np.int64)
    for place in range(1, steps):
        name = np.full(len(walks), -1)
        for earlier in range(place):
            np.copyto(name, names[earlier], where=walks[:, earlier] == walks[:, place])
        unknown = name < 0
        fresh += unknown
        np.copyto(name, fresh, where=unknown)
        names.append(name)
        code = code * steps + name
    return code


# By name


class Kernel(NamedTuple):
    """A kernel in several forms (depths, lengths), each tried with every C."""

    forms: tuple[dict[str, Any], ...]
    """What tells the forms apart."""
    matrices: Callable[[GraphArrays, int], Iterator[Matrix]]
    """The forms' (G, G) matrices, in the same order, from a given one on."""

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """What a protocol chooses among: every form with every C.

        >>> KERNELS["wl"].candidates[0], len(KERNELS["wl"].candidates)
        ({'depth': 0, 'C': 0.001}, 42)
        """
        return [form | {"C": penalty} for form, penalty in itertools.product(self.forms, PENALTIES)]

    def describe(self, number: int) -> str:
        """A candidate by its number, counted from 1.

        >>> KERNELS["wl"].describe(42)
        'depth 5, C 1000'
        """
        return ", ".join(f"{key} {value:g}" for key, value in self.candidates[number - 1].items())


def _wl_matrices(arrays: GraphArrays, first: int) -> Iterator[Matrix]:
    return (cosine(kernel) for kernel in itertools.islice(wl_kernels(*arrays, depth=DEPTH), first, None))


def _walk_matrices(arrays: GraphArrays, first: int) -> Iterator[Matrix]:
    return walk_kernels(arrays.node_ptr, arrays.rowptr, arrays.col, LENGTHS[first:])


def cosine(kernel: Matrix) -> Matrix:
    """The kernel of the same features scaled to length 1; graphs without features are equal to nothing."""
    root = np.sqrt(np.diagonal(kernel))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    scaled: Matrix = kernel * scale * scale[:, None]
    return scaled


KERNELS = {
    "wl": Kernel(tuple({"depth": depth} for depth in range(DEPTH + 1)), _wl_matrices),
    "awl": Kernel(tuple({"length": length} for length in LENGTHS), _walk_matrices),
}
