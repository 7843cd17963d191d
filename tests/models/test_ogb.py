"""OGB's models against their definition, written out edge by edge."""

import numpy as np
import pytest
import torch
from tests.models.conftest import BONDS, CATEGORIES, by_graph

from graphnorm import Adjacency, Segments
from graphnorm.models.ogb import OGBGCN, OGBGIN


@pytest.mark.parametrize("make", [OGBGIN, OGBGCN])
@pytest.mark.parametrize("virtual", [False, True])
def test_ogb_models_equal_their_definition(batch, make, virtual):
    """By matrices, edge by edge, in evaluation mode with randomized parameters and averages."""
    torch.manual_seed(3)
    model = make(CATEGORIES, BONDS, 1, hidden=6, layers=4, virtual=virtual).double()
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    for _ in range(3):
        model(batch.categories, batch.edges, batch.ids, edge_attr=batch.bonds)
    model.eval()

    def encoded(tables, categories, cardinalities):
        starts = np.cumsum([0, *cardinalities[:-1]])
        return sum(tables.weight.T[start + column] for start, column in zip(starts, categories.T, strict=True))

    source, target = batch.edges
    degree = batch.matrix.sum(1) + 1
    h = encoded(model.atoms, batch.categories, CATEGORIES)
    state = model.start.expand(4, -1) if virtual else None
    for index, (convolution, norm) in enumerate(zip(model.convolutions, model.norms, strict=True)):
        h = h + state[batch.ids] if virtual else h
        bonds = encoded(convolution.bonds, batch.bonds, BONDS)
        if make is OGBGIN:
            received = torch.zeros_like(h).index_add(0, target, (h[source] + bonds).relu())
            z = convolution.second(convolution.norm(convolution.first((1 + convolution.xi) * h + received)))
        else:
            own = convolution.linear(h)
            share = (degree[source] * degree[target]).rsqrt()[:, None]
            z = torch.zeros_like(h).index_add(0, target, share * (own[source] + bonds).relu())
            z = z + (own + convolution.root).relu() / degree[:, None]
        if virtual and index < 2:
            node = model.virtual[index]
            gathered = state + by_graph(h, batch.ids, lambda rows: rows.sum(0))
            state = node.second_norm(node.second(node.first_norm(node.first(gathered))))
        h = norm(z)
    right = model.head(by_graph(h, batch.ids, lambda rows: rows.mean(0)))
    found = model(batch.categories, batch.edges, batch.ids, edge_attr=batch.bonds)
    assert torch.allclose(found, right)


def test_a_virtual_node_does_not_see_empty_places(batch):
    torch.manual_seed(0)
    model = OGBGIN(CATEGORIES, BONDS, 1, hidden=6, layers=4, virtual=True, dropout=0.0).double()
    adjacency = Adjacency(edge_index=batch.edges, num_nodes=24, symmetric=True)
    first, second = (
        model(batch.categories, adjacency, Segments(ptr=torch.tensor(ptr)), edge_attr=batch.bonds)
        for ptr in ([0, 4, 5, 17, 24], [0, 4, 5, 17, 24, 24, 24])
    )
    assert torch.allclose(first, second[:4])
