"""The Weisfeiler-Lehman subtree kernel (Shervashidze et al., 2011).

Colour refinement: a node's next colour stands for its own colour and the multiset of its neighbours' colours,

    c'(v) = number of (c(v), {{ c(u) : u ~ v }}),

for all graphs at once, so that equal numbers mean equal subtrees in whatever graph. The kernel of depth h compares how
often each colour of the rounds 0 … h appears: K = Σ_{i ≤ h} Xᵢ Xᵢᵀ with Xᵢ the (graphs, colours) matrix of counts.

The multiset is told apart by a sum of 64-bit hashes, which does not depend on the order and is one pass over the
edges. Two different ones among n nodes get the same sum with a probability below n²/2⁶⁵: 10⁻⁹ for NCI1.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.errors import MissingDependencyError
from graphnorm.randomness import bits

__all__ = ["colour_counts", "products", "refine", "wl_kernels"]

Colours = npt.NDArray[np.int64]
Matrix = npt.NDArray[np.float64]

OWN, MULTISET, PAIR = 1, 2, 3
"""Keys of the hashes."""
COMMON = 16
"""What is in more than one of so many graphs is multiplied as a dense column."""


def refine(colours: Colours, rowptr: npt.NDArray[np.int64], col: npt.NDArray[np.int64]) -> Colours:
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
    node_ptr: npt.NDArray[np.int64],
    rowptr: npt.NDArray[np.int64],
    col: npt.NDArray[np.int64],
    colours: Colours,
    depth: int,
) -> Iterator[Any]:
    """Give the counts of the rounds 0 … depth, one after another: sparse (G, colours) matrices.

    node_ptr: (G+1,): graph g has the nodes node_ptr[g] … node_ptr[g+1] - 1.
    colours: (N,), what the nodes are labelled with.
    """
    try:
        from scipy.sparse import csr_array
    except ImportError as error:
        raise MissingDependencyError("scipy", "the WL kernel", "study") from error
    graph = np.repeat(np.arange(len(node_ptr) - 1), np.diff(node_ptr))
    colours = _numbered(colours)
    for round_ in range(depth + 1):
        if round_:
            colours = refine(colours, rowptr, col)
        shape = (len(node_ptr) - 1, int(colours.max(initial=-1)) + 1)
        yield csr_array((np.ones(len(colours)), (graph, colours)), shape=shape)  # what is twice there is added up


def wl_kernels(
    node_ptr: npt.NDArray[np.int64],
    rowptr: npt.NDArray[np.int64],
    col: npt.NDArray[np.int64],
    colours: Colours,
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


def _hash(key: int, values: Colours) -> Colours:
    hashed: Colours = bits(torch.tensor(key), torch.from_numpy(values)).numpy()
    return hashed


def _numbered(values: Colours) -> Colours:
    """The same values numbered from 0, in their order."""
    return np.unique(values, return_inverse=True)[1].reshape(-1).astype(np.int64)
