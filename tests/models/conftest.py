"""A batch of random graphs with all kinds of features."""

from types import SimpleNamespace

import pytest
import torch

SIZES = [4, 1, 12, 7]
CATEGORIES, BONDS = (5, 3), (4, 2)


@pytest.fixture
def batch():
    """x, edge_index, batch, categories, bonds, and the adjacency matrix."""
    generator = torch.Generator().manual_seed(0)
    rows, ids = sum(SIZES), torch.repeat_interleave(torch.arange(4), torch.tensor(SIZES))
    chosen = torch.rand(rows, rows, generator=generator) < 0.4
    matrix = ((chosen | chosen.T) & (ids[:, None] == ids)).fill_diagonal_(False).double()
    edges = matrix.nonzero().T
    bonds = torch.stack([edges.sum(0) % cardinality for cardinality in BONDS], dim=1)  # alike in both directions
    categories = torch.stack([torch.randint(c, (rows,), generator=generator) for c in CATEGORIES], dim=1)
    x = torch.randn(rows, 3, dtype=torch.float64, generator=generator)
    return SimpleNamespace(x=x, edges=edges, ids=ids, matrix=matrix, bonds=bonds, categories=categories)


def by_graph(values, ids, reduce):
    return torch.stack([reduce(values[ids == graph]) for graph in range(4)])
