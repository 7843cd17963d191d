"""convert_norms on models as people write them."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

from graphnorm import GraphNorm, Segments, convert_norms
from graphnorm.layers.convert import ConvertedNorm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    pyg = pytest.importorskip("torch_geometric")
    import torch_geometric.nn as pyg_nn
    from torch_geometric.data import Batch, Data

BATCH = torch.tensor([0, 0, 0, 1, 1, 2, 2, 2, 2])
EDGES = torch.tensor([[0, 1, 1, 2, 3, 4, 5, 6, 7, 8], [1, 0, 2, 1, 4, 3, 6, 5, 8, 7]])


def pool(h, batch):
    return torch.zeros(int(batch.max()) + 1, h.shape[1]).index_add(0, batch, h)


class HandWritten(nn.Module):
    """A norm that is called without batch, one inside a Sequential, and one on pooled graphs."""

    def __init__(self):
        super().__init__()
        self.first, self.norm = nn.Linear(3, 6), nn.BatchNorm1d(6)
        self.mlp = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6), nn.ReLU())
        self.head = nn.Sequential(nn.Linear(6, 6), nn.BatchNorm1d(6))

    def forward(self, x, batch=None):
        h = self.mlp(torch.relu(self.norm(self.first(x))))
        return self.head(pool(h, batch)) if batch is not None else h


def nodes():
    return torch.randn(9, 3)


def trained(model):
    with torch.no_grad():
        for parameter in model.parameters():
            parameter += 0.2 * torch.randn_like(parameter)
    model(nodes(), BATCH)
    return model


def right_answer(model, x, batch):
    """The hand-written model with GraphNorm at the two places where rows are nodes."""

    def graph(norm, h):
        new = GraphNorm(6)
        new.load_state_dict({"weight": norm.weight, "bias": norm.bias, "mean_scale": torch.ones(6)})
        return new(h, batch)

    h = torch.relu(graph(model.norm, model.first(x)))
    h = torch.relu(graph(model.mlp[1], model.mlp[0](h)))
    return model.head(pool(h, batch))


def test_batch_reaches_norms_that_are_called_without():
    model, x = trained(HandWritten()).eval(), nodes()
    right = right_answer(model, x, BATCH)
    converted = convert_norms(copy.deepcopy(model), exclude=["head.*"])
    assert isinstance(converted.norm, ConvertedNorm)
    assert isinstance(converted.head[1], nn.BatchNorm1d)
    assert torch.allclose(converted(x, BATCH), right, atol=1e-5)
    assert torch.allclose(converted(x, batch=BATCH), right, atol=1e-5)


def test_copies_of_a_converted_model_do_not_share_its_batch():
    model = convert_norms(trained(HandWritten()), exclude=["head.*"]).eval()
    x = nodes()
    right = model(x, BATCH)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, BATCH), right)
        assert twin.norm._current is not model.norm._current


def test_pooled_rows_are_an_error_that_names_the_layer():
    model = convert_norms(HandWritten())
    with pytest.raises(ValueError, match=r"'head\.1' got 3 rows.*has 9.*exclude=\['head\.1'\]"):
        model(nodes(), BATCH)
    assert model.norm._current.segments is None  # also after an error


def test_the_batch_is_forgotten_after_the_call():
    model = convert_norms(HandWritten(), exclude=["head.*"])
    model(nodes(), BATCH)
    one_graph = model(nodes())
    assert one_graph.shape == (9, 6)


def test_running_averages_are_kept():
    model = trained(HandWritten())
    right = model.eval()(nodes_ := nodes(), BATCH)
    converted = convert_norms(copy.deepcopy(model), to="batch")
    assert not converted.norm.training
    assert torch.allclose(converted(nodes_, BATCH), right, atol=1e-5)
    assert converted.norm.norm.momentum == model.norm.momentum


@pytest.mark.parametrize("to", ["none", "layer", "instance", "size", "batch-alpha", "batch-running", "batch-detached"])
def test_every_norm(to):
    model = convert_norms(HandWritten(), to=to, exclude=["head.*"])
    model(nodes(), BATCH).sum().backward()
    assert type(model.norm.norm).__name__ in repr(model)


def test_a_layer_at_two_places_stays_one_layer():
    model = nn.Module()
    model.a = model.b = nn.BatchNorm1d(4)
    model.forward = lambda x, batch: model.b(model.a(x))
    convert_norms(model)
    assert model.a is model.b
    assert isinstance(model.a, ConvertedNorm)


class TakesData(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv, self.norm = pyg_nn.GCNConv(3, 6), pyg_nn.BatchNorm(6)

    def forward(self, data):
        return self.norm(self.conv(data.x, data.edge_index))


def test_data_object_and_the_norm_of_pytorch_geometric():
    graphs = [Data(torch.randn(n, 3), torch.tensor([[0, 1], [1, 0]])) for n in (4, 3, 5)]
    data, model = Batch.from_data_list(graphs), TakesData()
    h = model.conv(data.x, data.edge_index)
    converted = convert_norms(model)
    assert torch.allclose(converted(data), GraphNorm(6)(h, data.batch), atol=1e-6)


@pytest.mark.parametrize("kind", ["GIN", "GCN"])
def test_models_of_pytorch_geometric(kind):
    model = getattr(pyg_nn, kind)(3, 8, num_layers=2, norm="batch_norm")
    x = nodes()
    converted = convert_norms(model)
    names = [type(m).__name__ for m in converted.modules()]
    assert "GraphNorm" in names
    assert "BatchNorm1d" not in names
    y = converted(x, EDGES, batch=BATCH)
    alone = converted(x[:3], EDGES[:, :4], batch=BATCH[:3])
    assert torch.allclose(y[:3], alone, atol=1e-5)  # graphs do not see each other


def test_segments_and_other_argument_names():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.norm = nn.BatchNorm1d(3)

        def forward(self, x, graph_ids):
            return self.norm(x)

    model, x = convert_norms(Renamed(), batch_argument="graph_ids"), nodes()
    right = GraphNorm(3)(x, BATCH)
    assert torch.allclose(model(x, BATCH), right)
    assert torch.allclose(model(x, Segments(batch=BATCH)), right)
    assert torch.allclose(model(x, graph_ids=BATCH), right)


def test_eps_type_and_device_carry_over():
    model = convert_norms(nn.Sequential(nn.BatchNorm1d(3, eps=0.1).double()))
    assert model[0].norm.eps == 0.1
    assert model[0].norm.weight.dtype == torch.float64
    bare = convert_norms(nn.Sequential(nn.BatchNorm1d(3, affine=False)))
    assert torch.equal(bare[0].norm.weight, torch.ones(3))


def test_nothing_to_convert():
    with pytest.raises(ValueError, match=r"no BatchNorm layer was found.*torch\.nn\.BatchNorm1d"):
        convert_norms(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="was converted before"):
        convert_norms(convert_norms(HandWritten()), to="instance")
    with pytest.raises(ValueError, match="besides those excluded"):
        convert_norms(HandWritten(), exclude=["*"])
    with pytest.raises(ValueError, match="itself a BatchNorm"):
        convert_norms(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="unknown normalization"):
        convert_norms(HandWritten(), to="grphnorm")
