"""Anonymous walk features (Ivanov and Burnaev, 2018): how often random walks of a graph have each pattern.

The pattern of a walk numbers its nodes by their first appearance: a, b, c, b and d, a, b, a are both 0, 1, 2, 1. A
graph's features are the probabilities of the patterns of a random walk of a given length that starts at any node
alike. For short lengths they are exact: all walks are followed, each with its probability. For longer ones they are
the shares among walks drawn at random. Labels of nodes have no part in them.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.errors import MissingDependencyError
from graphnorm.models.baselines.wl import products

__all__ = ["exact_patterns", "sampled_patterns", "walk_features", "walk_kernels"]

Ids = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

MOST_WALKS = 4_000_000
"""Walks of all graphs together that are followed exactly; where there are more they are drawn."""
SAMPLES = 2_000
"""Walks drawn from each graph: every pattern's share is then within 0.04 with a probability of 95 %."""
SEED = 0
CHUNK = 100_000
"""Walks that are drawn at a time: what fits the caches."""


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
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingDependencyError("scipy", "anonymous walk features", "study") from error
    make = exact_patterns if count_walks(rowptr, col, length) <= MOST_WALKS else sampled_patterns
    patterns = make(node_ptr, rowptr, col, length)
    _, column = np.unique(patterns.code, return_inverse=True)
    shape = (len(node_ptr) - 1, int(column.max(initial=-1)) + 1)
    return csr_array((patterns.weight, (patterns.graph, column.reshape(-1))), shape=shape)


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
