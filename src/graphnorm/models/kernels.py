"""Graph kernels: the Weisfeiler-Lehman subtree kernel and anonymous walks, as (G, G) matrices. Both need scipy.

**WL** (Shervashidze et al., 2011). In each round of colour refinement, a node's next colour stands for its own colour
and the multiset of its neighbours' colours,

    c'(v) = number of (c(v), {{ c(u) : u ~ v }}).

All graphs are refined together, so equal colours mean equal subtrees in any two graphs. The kernel of depth h compares
how often each colour of the rounds 0 … h appears: K = Σ_{i ≤ h} Xᵢ Xᵢᵀ, where Xᵢ is the (graphs, colours) matrix of
counts. A multiset is identified by a sum of 64-bit hashes, which does not depend on the order and takes one pass over
the edges. Two different multisets among n nodes have the same sum with probability below n²/2⁶⁵: 10⁻⁹ for NCI1.

**Anonymous walks** (Ivanov and Burnaev, 2018). The pattern of a walk numbers its nodes by their first appearance: a, b,
c, b and d, a, b, a are both 0, 1, 2, 1. A graph's features are the probabilities of the patterns of a random walk of a
given length from a uniformly chosen node. If there are few walks, all of them are followed and the features are exact.
Otherwise they are shares among walks drawn at random. Node labels are not used.
"""

from __future__ import annotations

import itertools
from collections.abc import Iterator, Mapping, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import need
from graphnorm.randomness import bits

__all__ = ["Matrix", "graph_arrays", "kernel_matrices", "walk_kernels", "wl_kernels"]

Ids = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

OWN, MULTISET, PAIR = 1, 2, 3
"""Keys of the hashes."""
COMMON = 16
"""A feature that more than one graph in 16 has is multiplied as a dense column."""
MOST_WALKS = 4_000_000
"""If all graphs together have more walks, walks are drawn at random."""
SAMPLES = 2_000
"""Walks drawn from each graph. Every share is then within 0.04 of the probability in 95 % of cases."""
SEED = 0
CHUNK = 100_000
"""Walks drawn at a time, so that they fit the caches."""


class GraphArrays(NamedTuple):
    """The input of kernels: numpy arrays, with nodes numbered through all graphs."""

    node_ptr: Ids
    """(G+1,): graph g has the nodes node_ptr[g] … node_ptr[g+1] - 1."""
    rowptr: Ids
    """(N+1,): node i has the neighbours col[rowptr[i]] … col[rowptr[i+1] - 1]."""
    col: Ids
    """(E,)."""
    colours: Ids
    """(N,): a number for each combination of categorical features; 0 if there are none."""

    @property
    def num_graphs(self) -> int:
        return len(self.node_ptr) - 1

    @property
    def graph(self) -> Ids:
        """(N,): the graph of each node."""
        return np.repeat(np.arange(self.num_graphs), np.diff(self.node_ptr))


def graph_arrays(graphs: PackedGraphs) -> GraphArrays:
    """The graphs as the input of kernels."""
    graphs = graphs.to("cpu")
    node_ptr, rowptr, local = (t.numpy().astype(np.int64) for t in (graphs.node_ptr, graphs.rowptr, graphs.col))
    col = local + np.repeat(node_ptr[:-1], np.diff(rowptr[node_ptr]))
    colours = np.zeros(graphs.num_nodes, dtype=np.int64)
    if graphs.tags is not None:
        colours = _numbered(graphs.tags.numpy(), axis=0)
    return GraphArrays(node_ptr, rowptr, col, colours)


# Weisfeiler-Lehman


def refine(colours: Ids, rowptr: Ids, col: Ids) -> Ids:
    """Refine colours (N,) once; the new ones are numbered from 0.

    >>> refine(np.array([0, 0, 0]), np.array([0, 1, 3, 4]), np.array([1, 0, 2, 1])).tolist()  # a path
    [0, 1, 0]
    """
    partial_sums = np.concatenate([[0], _hash(MULTISET, colours)[col]]).cumsum()  # it may wrap around at 2⁶⁴
    neighbours = partial_sums[rowptr[1:]] - partial_sums[rowptr[:-1]]
    return _numbered(_hash(PAIR, _hash(OWN, colours) + neighbours))


def wl_kernels(arrays: GraphArrays, depth: int) -> Iterator[Matrix]:
    """Yield the kernel matrices of the depths 0 … depth: (G, G), whole numbers.

    >>> path, triangle = [1, 0, 2, 1], [4, 5, 3, 5, 3, 4]
    >>> arrays = map(np.array, ([0, 3, 6], [0, 1, 3, 4, 6, 8, 10], path + triangle, [0] * 6))
    >>> [kernel.tolist() for kernel in wl_kernels(GraphArrays(*arrays), depth=1)]
    [[[9.0, 9.0], [9.0, 9.0]], [[14.0, 12.0], [12.0, 18.0]]]
    """
    sparse = need("scipy.sparse", "the WL kernel", "study")
    graph, colours = arrays.graph, _numbered(arrays.colours)
    total = np.zeros((arrays.num_graphs, arrays.num_graphs))
    for round_ in range(depth + 1):
        if round_:
            colours = refine(colours, arrays.rowptr, arrays.col)
        shape = (arrays.num_graphs, int(colours.max(initial=-1)) + 1)
        total = total + products(sparse.csr_array((np.ones(len(colours)), (graph, colours)), shape=shape))
        yield total


def products(features: Any) -> Matrix:
    """X Xᵀ, dense, of a sparse X: a dense product of the common columns, and a sparse one of the many rare ones."""
    by_column = features.tocsc()
    common = np.diff(by_column.indptr) * COMMON > features.shape[0]
    dense: Matrix = by_column[:, common].toarray()
    rare = by_column[:, ~common].tocsr()
    found: Matrix = dense @ dense.T + (rare @ rare.T).toarray()
    return found


def _hash(key: int, values: Ids) -> Ids:
    hashed: Ids = bits(torch.tensor(key), torch.from_numpy(values)).numpy()
    return hashed


def _numbered(values: npt.NDArray[Any], axis: int | None = None) -> Ids:
    """The index of each value, or row, among the sorted distinct ones."""
    return np.unique(values, axis=axis, return_inverse=True)[1].reshape(-1).astype(np.int64)


# Anonymous walks


class Patterns(NamedTuple):
    """Patterns of walks, with one entry for each walk, or for each pattern of a graph."""

    graph: Ids
    code: Ids
    """The pattern as a number. Its digits are the node numbers, in base ``length + 1``."""
    weight: Matrix
    """The probabilities. Those of a graph with edges add up to 1."""


def exact_patterns(arrays: GraphArrays, length: int) -> Patterns:
    """Follow all walks of ``length`` steps from every node. A walk ends at a node without neighbours.

    >>> path = map(np.array, ([0, 3], [0, 1, 3, 4], [1, 0, 2, 1], [0, 0, 0]))
    >>> patterns = exact_patterns(GraphArrays(*path), length=2)  # 0,1,0 in base 3 is 3, and 0,1,2 is 5
    >>> [float(patterns.weight[patterns.code == code].sum().round(3)) for code in (3, 5)]
    [0.667, 0.333]
    """
    degree, graph = np.diff(arrays.rowptr), arrays.graph
    walks = np.arange(len(degree))[:, None]
    weight = 1.0 / np.diff(arrays.node_ptr)[graph]
    for _ in range(length):
        here = walks[:, -1]
        ways = degree[here]
        which = np.repeat(np.arange(len(walks)), ways)
        step = np.arange(len(which)) - np.repeat(ways.cumsum() - ways, ways)
        following = arrays.col[arrays.rowptr[here[which]] + step]
        walks = np.concatenate([walks[which], following[:, None]], axis=1)
        graph, weight = graph[which], (weight / np.maximum(ways, 1))[which]
    return Patterns(graph, _codes(walks), weight)


def sampled_patterns(arrays: GraphArrays, length: int, samples: int = SAMPLES) -> Patterns:
    """Draw walks from every graph, starting at nodes with neighbours. Graphs without edges have no walks."""
    random = np.random.default_rng(SEED)
    _, rowptr, col, _ = arrays
    degree = np.diff(rowptr)
    starts = np.flatnonzero(degree)
    first = np.searchsorted(arrays.graph[starts], np.arange(arrays.num_graphs + 1))
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


def walk_features(arrays: GraphArrays, length: int) -> Any:
    """The features of walks of one length, a sparse (G, patterns) matrix. They are exact if there are few walks."""
    sparse = need("scipy.sparse", "anonymous walk features", "study")
    make = exact_patterns if count_walks(arrays, length) <= MOST_WALKS else sampled_patterns
    patterns = make(arrays, length)
    column = _numbered(patterns.code)
    shape = (arrays.num_graphs, int(column.max(initial=-1)) + 1)
    return sparse.csr_array((patterns.weight, (patterns.graph, column)), shape=shape)


def walk_kernels(arrays: GraphArrays, lengths: Sequence[int]) -> Iterator[Matrix]:
    """Yield a Gaussian kernel of the features for each length. Its width is the median distance of two graphs."""
    for length in lengths:
        similarity = products(walk_features(arrays, length))
        square = np.diagonal(similarity)
        distance = np.maximum(square + square[:, None] - 2 * similarity, 0)
        width = float(np.median(distance[np.triu_indices(len(distance), 1)]))
        yield np.exp(-distance / (width or 1.0))


def count_walks(arrays: GraphArrays, length: int) -> float:
    """The number of walks of ``length`` steps from all nodes."""
    counts = np.ones(len(arrays.rowptr) - 1)
    for _ in range(length):
        sums = np.concatenate([[0.0], counts[arrays.col].cumsum()])
        counts = sums[arrays.rowptr[1:]] - sums[arrays.rowptr[:-1]]
    return float(counts.sum())


def _summed(patterns: Patterns) -> Patterns:
    """The same patterns with one entry for each pattern of a graph."""
    order = np.lexsort((patterns.code, patterns.graph))
    graph, code, weight = (part[order] for part in patterns)
    fresh = np.concatenate([[True], (np.diff(graph) != 0) | (np.diff(code) != 0)])
    return Patterns(graph[fresh], code[fresh], np.add.reduceat(weight, np.flatnonzero(fresh)))


def _codes(walks: Ids) -> Ids:
    """The patterns, (W,), of walks of L steps, (W, L+1)."""
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


# The kernels of the table of models


def kernel_matrices(name: str, arrays: GraphArrays, forms: Sequence[Mapping[str, int]]) -> Iterator[Matrix]:
    """Yield the (G, G) matrix of each form of a kernel.

    name: ``wl`` or ``awl``.
    forms: some of :attr:`Kernel.forms`, in order.
    """
    if name == "awl":
        yield from walk_kernels(arrays, [form["length"] for form in forms])
    else:
        first, last = forms[0]["depth"], forms[-1]["depth"]
        yield from map(cosine, itertools.islice(wl_kernels(arrays, last), first, None))


def cosine(kernel: Matrix) -> Matrix:
    """The kernel of the same features scaled to length 1. Graphs without features have zeros."""
    root = np.sqrt(np.diagonal(kernel))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    scaled: Matrix = kernel * scale * scale[:, None]
    return scaled
