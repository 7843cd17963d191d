"""MLP, DCNN and DGCNN against their definitions and PyTorch Geometric's."""

import warnings

import pytest
import torch
from tests.models.conftest import by_graph

from graphnorm import Segments
from graphnorm.models.networks import DCNN, DGCNN, MLP, rows_kept, sort_pool


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
