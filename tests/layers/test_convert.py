"""convert_norms on models as people write them."""

import copy
import pickle
import warnings
from concurrent.futures import ThreadPoolExecutor

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrize
from torch.utils.checkpoint import checkpoint

import graphnorm
from graphnorm import GraphNorm, InstanceNorm, Segments, convert_norms
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


def test_copies_of_a_converted_model():
    model = convert_norms(trained(HandWritten()), exclude=["head.*"]).eval()
    x = nodes()
    right = model(x, BATCH)
    for twin in (copy.deepcopy(model), pickle.loads(pickle.dumps(model))):
        assert torch.equal(twin(x, BATCH), right)


def test_pooled_rows_are_an_error_that_names_the_layer():
    model = convert_norms(HandWritten())
    with pytest.raises(ValueError, match=r"'head\.1' got 3 rows.*has 9.*exclude=\['head\.1'\]"):
        model(nodes(), BATCH)
    with pytest.raises(ValueError, match="cannot tell"):  # the batch is forgotten, also after an error
        model.norm(torch.randn(9, 6))


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


def test_switches_carry_over():
    old = nn.BatchNorm1d(3, affine=False, track_running_stats=False)
    for to in ("graph", "instance", "batch", "layer"):
        new = convert_norms(nn.Sequential(copy.deepcopy(old)), to=to)[0].norm
        assert new.weight is None
        assert new.bias is None
        assert new(nodes()).shape == (9, 3)
    x = nodes()
    batch = convert_norms(nn.Sequential(copy.deepcopy(old)), to="batch").eval()
    assert torch.allclose(batch(x), old.eval()(x), atol=1e-5)  # by the batch's own statistics
    frozen = nn.BatchNorm1d(3)
    frozen.weight.requires_grad_(False)
    new = convert_norms(nn.Sequential(frozen))[0].norm
    assert (new.weight.requires_grad, new.bias.requires_grad) == (False, True)


def test_an_optimizer_made_before_trains_the_new_layer():
    model = HandWritten()
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    before = model.norm.weight
    convert_norms(model, exclude=["head.*"])
    norm = model.norm.norm
    assert norm.weight is before
    norm.bias.grad = torch.ones(6)
    optimizer.step()
    assert torch.equal(norm.bias, torch.full((6,), -0.1))
    held = {id(parameter) for group in optimizer.param_groups for parameter in group["params"]}
    new = [name for name, parameter in model.named_parameters() if id(parameter) not in held]
    assert new == ["norm.norm.mean_scale", "mlp.1.norm.mean_scale"]


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, pyg_nn.BatchNorm])
def test_running_averages_are_the_same_tensors(kind):
    model = nn.Sequential(kind(3))
    before = dict(model.named_buffers()) | dict(model.named_parameters())
    after = convert_norms(model, to="batch").state_dict(keep_vars=True)
    assert {id(tensor) for tensor in after.values()} == {id(tensor) for tensor in before.values()}


def test_tied_parameters_stay_tied():
    model = nn.Sequential(nn.BatchNorm1d(3), nn.BatchNorm1d(3))
    model[1].weight = model[0].weight
    convert_norms(model)
    assert model[0].norm.weight is model[1].norm.weight
    assert model[0].norm.bias is not model[1].norm.bias


@pytest.mark.parametrize("kind", [nn.BatchNorm1d, pyg_nn.BatchNorm, graphnorm.BatchNorm])
@pytest.mark.parametrize("to", ["graph", "instance", "batch", "batch-alpha", "layer", "none"])
def test_a_checkpoint_of_the_model_with_batch_norm_loads(kind, to):
    old = nn.Sequential(nn.Linear(3, 3), kind(3))
    for parameter in old.parameters():
        nn.init.normal_(parameter)
    old(nodes())
    state = old.state_dict()
    converted_before = convert_norms(nn.Sequential(nn.Linear(3, 3), kind(3)), to=to).eval()
    converted_before.load_state_dict(state)
    assert state.keys() == old.state_dict().keys()  # the caller's dict stays as it is
    right, x = convert_norms(old, to=to).eval(), nodes()
    with graphnorm.use_batch(BATCH):
        assert torch.equal(converted_before(x), right(x))
    converted_before.load_state_dict(right.state_dict())


def test_a_checkpoint_that_lacks_a_weight_is_refused():
    state = nn.Sequential(nn.BatchNorm1d(3)).state_dict()
    del state["0.weight"]
    with pytest.raises(RuntimeError, match=r'Missing key.*"0\.norm\.weight"'):
        convert_norms(nn.Sequential(nn.BatchNorm1d(3))).load_state_dict(state)


class Exponential(nn.Module):
    def forward(self, logarithm):
        return logarithm.exp()


@pytest.mark.parametrize("to", ["graph", "batch", "layer", "rms"])
def test_parametrizations_are_kept(to):
    old = nn.BatchNorm1d(3)
    parametrize.register_parametrization(old, "weight", Exponential())
    original = old.parametrizations.weight.original
    norm = convert_norms(nn.Sequential(old), to=to)[0].norm
    assert torch.equal(norm.weight, torch.ones(3).exp())
    norm(nodes(), BATCH).square().sum().backward()
    assert any(parameter is original for parameter in norm.parameters())
    assert original.grad.abs().min() > 0


@pytest.mark.parametrize("to", ["graph", "layer", "none"])
def test_the_activation_of_our_batch_norm_is_kept(to):
    model = convert_norms(nn.Sequential(graphnorm.BatchNorm(3, act="relu")), to=to)
    assert model[0](nodes(), BATCH).min() >= 0


def test_what_is_left_behind_is_named():
    class Functional(nn.Module):
        def forward(self, x):
            return nn.functional.batch_norm(x, None, None, training=True)

    model = nn.ModuleDict(
        {
            "ours": nn.BatchNorm1d(3),
            "lazy": nn.LazyBatchNorm1d(),
            "hetero": pyg_nn.HeteroBatchNorm(3, 2),
            "written": Functional(),
        }
    )
    with pytest.warns(UserWarning, match=r"lazy.*run the model once.*hetero.*written"):
        convert_norms(model)


# ---- ways of calling a model ----------------------------------------------------------------------------------------


class Inner(nn.Module):
    def __init__(self):
        super().__init__()
        self.linear, self.norm = nn.Linear(3, 6), nn.BatchNorm1d(6)

    def forward(self, x, batch=None):
        return self.norm(self.linear(x))

    def encode(self, x):
        return self.norm(self.linear(x))


class Wrapper(nn.Module):
    def __init__(self, inner):
        super().__init__()
        self.inner = inner

    def forward(self, *args, **kwargs):
        return self.inner(*args, **kwargs)


class Anything(Inner):
    """Looks into what it is given, as models do that are called with tuples, dicts and objects."""

    def forward(self, *args, **kwargs):
        x = next(v for v in torch.utils._pytree.tree_leaves((args, kwargs)) if getattr(v, "ndim", 0) == 2)
        return self.encode(x)


class TakesOne(Inner):
    def forward(self, batch):  # the name of the argument is that of the vector
        return self.encode(batch.x)


class Siamese(nn.Module):
    def __init__(self, shared):
        super().__init__()
        self.shared = shared

    def forward(self, left, right):
        return self.shared.encode(left.x) - self.shared.encode(right.x)


class SiameseByCall(Siamese):
    def forward(self, left, right):
        return self.shared(left) - self.shared(right)


def converted(model):
    torch.manual_seed(0)
    for parameter in model.parameters():
        nn.init.normal_(parameter)
    return convert_norms(model)


def graph_norm(model, x, batch):
    norm = GraphNorm(6)
    norm.load_state_dict(model.norm.norm.state_dict())
    return norm(model.linear(x), batch)


def pyg_batch(x=None):
    x = nodes() if x is None else x
    return Batch.from_data_list([Data(part) for part in x.split([3, 2, 4])])


CALLS = {
    "batch object": (TakesOne, lambda m, x: m(pyg_batch(x))),
    "tuple": (Anything, lambda m, x: m((x, pyg_batch(x)))),
    "dict": (Anything, lambda m, x: m({"x": x, "batch": BATCH})),
    "nested dict": (Anything, lambda m, x: m({"graph": {"x": x, "batch": BATCH, "batch_size": 3}})),
    "keywords": (Anything, lambda m, x: m(x=x, batch=BATCH)),
    "segments in a list": (Anything, lambda m, x: m([x, Segments(batch=BATCH)])),
    "encode": (Inner, lambda m, x: call_inside_use_batch(m, x)),
}


def call_inside_use_batch(model, x):
    with graphnorm.use_batch(BATCH):
        return model.encode(x)


@pytest.mark.parametrize("how", CALLS)
def test_the_batch_is_found(how):
    kind, call = CALLS[how]
    model, x = converted(kind()), nodes()
    assert torch.allclose(call(model, x), graph_norm(model, x, BATCH), atol=1e-6)


WRAPPERS = {
    "one": Wrapper,
    "two": lambda model: Wrapper(Wrapper(model)),
    "parallel": nn.DataParallel,
    "averaged": torch.optim.swa_utils.AveragedModel,
    "compiled": lambda model: torch.compile(model, backend="eager"),
}


@pytest.mark.filterwarnings("ignore:The .grad attribute")  # Dynamo's own, where the number of graphs is read
@pytest.mark.parametrize("how", WRAPPERS)
@pytest.mark.parametrize("convert_first", [True, False])
def test_through_wrappers(how, convert_first):
    x, model, wrap = nodes(), Inner(), WRAPPERS[how]
    outer = wrap(converted(model)) if convert_first else converted(wrap(model))
    inner = next(m for m in outer.modules() if isinstance(m, Inner))
    assert torch.allclose(outer(x, BATCH), graph_norm(inner, x, BATCH), atol=1e-6)
    assert torch.allclose(outer(x, batch=BATCH), graph_norm(inner, x, BATCH), atol=1e-6)


def test_compiled_in_one_graph():
    model, x = converted(Inner()), nodes()
    compiled = torch.compile(model, backend="eager", fullgraph=True)
    assert torch.allclose(compiled(x, BATCH), graph_norm(model, x, BATCH), atol=1e-6)


def test_compiled_with_a_norm_that_counts_graphs():
    """Compiled training may add graphs without rows, but not for such a layer."""
    model, x = converted(Inner()), nodes()
    model.norm.norm = InstanceNorm(6, track_running_stats=True)
    twin = copy.deepcopy(model)
    torch.compile(model, backend="eager", fullgraph=True)(x, 2 * BATCH)
    twin(x, 2 * BATCH)
    for ours, right in zip(model.norm.buffers(), twin.norm.buffers(), strict=True):
        assert torch.allclose(ours, right)


@pytest.mark.parametrize("call", [lambda m: m.encode(nodes()), lambda m: nn.Sequential(m.linear, m.norm)(nodes())])
def test_no_batch_is_an_error(call):
    model = converted(Inner())
    with pytest.raises(ValueError, match="use_batch"):
        call(model)
    assert model(nodes()).shape == (9, 6)  # it takes a batch and is called without: one graph


def test_two_batches_are_an_error_where_both_could_be_meant():
    left, right = pyg_batch(), pyg_batch()
    model = converted(Siamese(Inner()))
    with pytest.raises(ValueError, match="more than one"):
        model(left, right)
    by_call = converted(SiameseByCall(TakesOne()))
    shared = by_call.shared
    expected = graph_norm(shared, left.x, BATCH) - graph_norm(shared, right.x, BATCH)
    assert torch.allclose(by_call(left, right), expected, atol=1e-6)


def test_threads_do_not_share_a_batch():
    model = converted(Inner())
    batches = [torch.arange(240) // size for size in (2, 3, 5, 8)]
    x = torch.randn(240, 3)
    right = [graph_norm(model, x, batch) for batch in batches]
    with ThreadPoolExecutor(4) as pool:
        found = list(pool.map(lambda k: (k % 4, model(x, batches[k % 4])), range(80)))
    assert all(torch.allclose(y, right[k], atol=1e-6) for k, y in found)


class Checkpointed(Inner):
    reentrant = True

    def forward(self, x, batch):
        return checkpoint(self.encode, x, use_reentrant=self.reentrant)


@pytest.mark.parametrize("reentrant", [True, False])
def test_checkpointed_layers_have_their_batch_in_backward(reentrant):
    model = converted(Checkpointed())
    model.reentrant = reentrant
    other = torch.tensor([0, 0, 1, 1, 1, 1, 2, 2, 2])
    x, y = (nodes().requires_grad_() for _ in range(2))
    (model(x, BATCH).square().sum() + model(y, other).sin().sum()).backward()  # two passes, then backward
    found = [x.grad, y.grad, *[p.grad.clone() for p in model.parameters()]]
    for leaf in (x, y, *model.parameters()):
        leaf.grad = None
    norm = model.norm.norm
    right = norm(model.linear(x), BATCH).square().sum() + norm(model.linear(y), other).sin().sum()
    right.backward()
    for a, b in zip(found, [x.grad, y.grad, *[p.grad for p in model.parameters()]], strict=True):
        assert torch.allclose(a, b, atol=1e-4)


class DistributedStandIn(nn.parallel.DistributedDataParallel):
    """Without processes: what it is, not what it does."""

    def __init__(self, module):
        nn.Module.__init__(self)
        self.module = module


@pytest.mark.parametrize("around", [lambda model: model, Wrapper])
def test_a_model_inside_distributed_data_parallel_is_refused(around):
    model = Inner()
    with pytest.raises(ValueError, match=r"DistributedDataParallel, which .*convert the model first, then wrap it"):
        convert_norms(around(DistributedStandIn(model)))
    assert isinstance(model.norm, nn.BatchNorm1d)
    assert isinstance(DistributedStandIn(convert_norms(model)).module.norm, ConvertedNorm)


@pytest.mark.parametrize("exclude", [["head"], ["head.*"], ["head.1"], ["hea?"]])
def test_an_excluded_module_stays_as_it_is_with_all_that_is_in_it(exclude):
    model = convert_norms(HandWritten(), exclude=exclude)
    assert isinstance(model.head[1], nn.BatchNorm1d)
    assert isinstance(model.norm, ConvertedNorm)


def test_a_norm_of_pytorch_geometric_can_be_excluded():
    model = nn.Sequential(pyg_nn.BatchNorm(3), pyg_nn.BatchNorm(3))
    convert_norms(model, exclude=["1"])
    assert [type(norm) for norm in model] == [ConvertedNorm, pyg_nn.BatchNorm]
    assert isinstance(model[1].module, nn.BatchNorm1d)


def test_an_excluded_path_that_no_module_has():
    model = HandWritten()
    with pytest.raises(ValueError, match=r"'haed\.\*', but the model has no module of that path; did you mean 'head'"):
        convert_norms(model, exclude=["head", "haed.*"])
    with pytest.raises(ValueError, match=r"'readout', but .* that path\. Its paths are those of"):
        convert_norms(model, exclude=["readout"])
    assert isinstance(model.norm, nn.BatchNorm1d)


def test_nothing_to_convert():
    with pytest.raises(ValueError, match=r"found in the model; '0' is a LazyBatchNorm1d: run the model once before"):
        convert_norms(nn.Sequential(nn.LazyBatchNorm1d()))
    with pytest.raises(ValueError, match=r"no BatchNorm layer was found.*is to have torch\.nn\.BatchNorm1d or"):
        convert_norms(nn.Linear(2, 2))
    with pytest.raises(ValueError, match="was converted before; convert a copy made before that"):
        convert_norms(convert_norms(HandWritten()), to="instance")
    with pytest.raises(ValueError, match="besides those excluded"):
        convert_norms(HandWritten(), exclude=["*"])
    with pytest.raises(ValueError, match="itself a BatchNorm"):
        convert_norms(nn.BatchNorm1d(2))
    with pytest.raises(ValueError, match="unknown normalization"):
        convert_norms(HandWritten(), to="grphnorm")
