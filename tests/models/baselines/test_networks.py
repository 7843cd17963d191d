"""The neural baselines: against their definitions and PyTorch Geometric's, and trained in fleets as by themselves."""

import warnings
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from tests.training.plain_loop import plain_losses

from graphnorm import Adjacency, Segments
from graphnorm.data import load, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.models.baselines import DCNN, DGCNN, MLP, OGBGCN, OGBGIN
from graphnorm.models.baselines.dgcnn import rows_kept, sort_pool
from graphnorm.training import Fleet, Split, Trial
from graphnorm.training.condensed import condense
from graphnorm.training.setup import BASELINE_MODELS, Extremes, build_model, model_inputs

SIZES = [4, 1, 12, 7]
CATEGORIES, BONDS = (5, 3), (4, 2)


@pytest.fixture
def batch():
    """Random graphs: x, edge_index, batch, and their adjacency matrix."""
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


def test_mlp_sees_pooled_features_alone(batch):
    model = MLP(3, 2, hidden=8, layers=3).double().eval()
    pooled = by_graph(batch.x, batch.ids, lambda rows: rows.sum(0))
    right = model.head(model.linears[1](model.linears[0](pooled).relu()).relu())
    assert torch.allclose(model(batch.x, batch.edges, batch.ids), right)


def test_dcnn_equals_its_definition(batch):
    model = DCNN(3, 2, layers=4).double().eval()
    step = batch.matrix / batch.matrix.sum(1, keepdim=True).clamp(min=1)
    diffused = [torch.linalg.matrix_power(step, hop) @ batch.x for hop in range(4)]
    z = torch.stack([by_graph(values, batch.ids, lambda rows: rows.mean(0)) for values in diffused], dim=1)
    right = model.head((z * model.weight).tanh().flatten(1))
    assert torch.allclose(model(batch.x, batch.edges, batch.ids), right)


def test_sort_pooling_equals_pytorch_geometric(batch):
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        pyg = pytest.importorskip("torch_geometric.nn.aggr")
        right = pyg.SortAggregation(k=6)(batch.x, batch.ids)
    found = sort_pool(batch.x, Segments(batch=batch.ids), 6).flatten(1)
    assert torch.equal(found, right)
    padded = Segments(ptr=torch.tensor([0, 4, 5, 17, 24]), num_rows=27)
    more = torch.cat([batch.x, torch.full((3, 3), 99.0, dtype=torch.float64)])
    assert torch.equal(sort_pool(more, padded, 6).flatten(1), right)


def test_dgcnn_equals_its_definition(batch):
    model = DGCNN(3, 2, rows=11, hidden=4, layers=4).double().eval()
    closed = batch.matrix + torch.eye(len(batch.x), dtype=torch.float64)
    h, outputs = batch.x, []
    for layer in model.convolutions:
        h = torch.tanh(closed @ layer(h) / closed.sum(1, keepdim=True))
        outputs.append(h)
    kept = sort_pool(torch.cat(outputs, 1), Segments(batch=batch.ids), 11)
    signal = kept.flatten(1)[:, None]  # the paper's form: one-dimensional convolutions over the rows laid end to end
    width = kept.shape[2]
    z = torch.conv1d(signal, model.across.weight[:, None], model.across.bias, stride=width).relu()
    z = torch.max_pool1d(z, 2, 2)
    window = model.along.weight.unflatten(1, (5, 16)).transpose(1, 2)
    z = torch.conv1d(z, window, model.along.bias).relu()
    right = model.head(model.dense(z.transpose(1, 2).flatten(1)).relu())
    assert torch.allclose(model(batch.x, batch.edges, batch.ids), right)


def test_sort_pooling_keeps_enough_rows():
    assert rows_kept(torch.tensor([3, 3, 3])) == 10
    assert rows_kept(torch.tensor([50, 20, 30, 10, 40])) == 30
    with pytest.raises(ValueError, match="at least 10"):
        DGCNN(3, 2, rows=9)


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


GRAPHS = synthetic.trees(num_graphs=60, seed=0)


@pytest.mark.parametrize("model", BASELINE_MODELS)
def test_members_train_as_a_plain_loop_would(model):
    ids = np.arange(60)
    splits = [Split(ids[ids % 5 != k], ids[ids % 5 == k]) for k in range(3)]
    members = [
        Trial(dataset="trees", model=model, norm="none", batch_size=13, epochs=4, hidden=16, layers=4, fold=k, seed=k,
              lr=1e-3 / (k + 1), weight_decay=1e-3 * k, dropout=0.25 * k, readout="mean")
        for k in range(3)
    ]  # fmt: skip
    fleet = Fleet(GRAPHS, members, splits, device="cpu")
    fleet.advance(3)
    for outcome, member, part in zip(fleet.outcomes(), members, splits, strict=True):
        losses, scores = plain_losses(GRAPHS, member, part, 3)
        np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=2e-3)
        assert outcome.curves["valid"][0] == pytest.approx(scores[0], abs=0.09)


@pytest.mark.parametrize("model", ["mlp", "dcnn"])
def test_condensed_graphs_give_the_same_scores(model):
    trial = Trial(dataset="trees", model=model, norm="none", layers=4, readout="mean")
    condensed = condense(trial, GRAPHS)
    assert (condensed.num_nodes, condensed.num_edges) == (60, 0)
    network = build_model(trial, GRAPHS).eval()
    scores = []
    for graphs in (GRAPHS, condensed):
        batch = graphs.batch([5, 0, 59])
        inputs = model_inputs(graphs, batch, Extremes.of(graphs), may_pad=False)
        scores.append(network(**inputs))
    torch.testing.assert_close(scores[1], scores[0])


@pytest.mark.parametrize("model", ["mlp", "dcnn"])
def test_some_members_of_condensed_graphs_go_on(model):
    split = Split(np.arange(50), np.arange(50, 60))
    members = [Trial(dataset="t", model=model, norm="none", epochs=4, layers=3, seed=seed) for seed in range(3)]
    fleet = Fleet(GRAPHS, members, [split] * 3, device="cpu")
    fleet.advance(2)
    smaller = fleet.keep([0, 2])
    fleet.advance()
    smaller.advance()
    for found, right in zip(smaller.outcomes(), [fleet.outcomes()[k] for k in (0, 2)], strict=True):
        np.testing.assert_allclose(found.curves["loss"], right.curves["loss"], rtol=1e-5)


def test_bonds_in_a_fleet():
    graphs = load("molecules")
    ids = np.arange(graphs.num_graphs)
    splits = [Split(ids[:40], ids[40:60]), Split(ids[20:60], ids[:20])]
    members = [
        Trial(dataset="m", model="ogb-gin-virtual", norm="none", batch_size=16, epochs=2, hidden=8, layers=3, seed=k)
        for k in range(2)
    ]
    fleet = Fleet(graphs, members, splits, device="cpu")
    fleet.advance()
    for outcome, member, part in zip(fleet.outcomes(), members, splits, strict=True):
        losses, _ = plain_losses(graphs, member, part, 2)
        np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=2e-3)


def test_unknown_models_are_named():
    with pytest.raises(GraphnormError, match="did you mean 'dgcnn'"):
        Fleet(GRAPHS, [Trial(dataset="t", model="dgcn")], [Split(np.arange(9), np.arange(9, 12))])
