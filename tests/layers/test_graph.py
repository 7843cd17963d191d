"""The layers against PyTorch Geometric, torch and the oracle; their state, copies and wrong input."""

import copy
import pickle
import warnings

import pytest
import torch
from torch import nn

import graphnorm
import oracle
from graphnorm import BatchNorm, GraphNorm, InstanceNorm, LayerNorm, RunningBatchNorm, Segments, make_norm
from graphnorm.layers import REGISTRY
from graphnorm.layers.registry import BUILT_IN

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    try:
        import torch_geometric.nn.norm as pyg
    except ImportError:
        pyg = None
needs_pyg = pytest.mark.skipif(pyg is None, reason="torch_geometric is not installed")

NAMES = list(REGISTRY)
BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4])


def randomize(module):
    with torch.no_grad():
        for parameter in module.parameters():
            parameter += 0.3 * torch.randn_like(parameter)
    return module


def gradients(module, x, dy, *arguments):
    x = x.detach().requires_grad_()
    y = module(x, *arguments)
    return y.detach(), *torch.autograd.grad(y, [x, *module.parameters()], dy)


# ---- as in PyTorch Geometric ---------------------------------------------------------------------


def _pairs():
    return {
        "graph": (GraphNorm(6), lambda: pyg.GraphNorm(6)),
        "instance": (InstanceNorm(6, affine=True), lambda: pyg.InstanceNorm(6, affine=True)),
        "batch": (BatchNorm(6), lambda: pyg.BatchNorm(6)),
        "layer": (LayerNorm(6, mode="node"), lambda: pyg.LayerNorm(6, mode="node")),
    }


@needs_pyg
@pytest.mark.parametrize("name", ["graph", "instance", "batch", "layer"])
@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize("sized", [False, True])
def test_values_and_gradients_equal_pytorch_geometric(name, shuffled, sized):
    ours, make = _pairs()[name]
    theirs = randomize(make()).double()
    ours.double().load_state_dict(theirs.state_dict())
    batch = BATCH[torch.randperm(len(BATCH))] if shuffled else BATCH
    x, dy = torch.randn(2, len(BATCH), 6, dtype=torch.float64)
    arguments = () if name == "batch" else (batch, 5) if sized else (batch,)
    for found, right in zip(gradients(ours, x, dy, *arguments), gradients(theirs, x, dy, *arguments), strict=True):
        assert oracle.error(found, right) < 1e-9


@needs_pyg
@pytest.mark.parametrize("batch", [None, BATCH])
def test_graph_size_norm_equals_pytorch_geometric(batch):
    x = torch.randn(len(BATCH), 6, dtype=torch.float64)
    assert torch.allclose(make_norm("size", 6)(x, batch), pyg.GraphSizeNorm()(x, batch))


@needs_pyg
@pytest.mark.parametrize("name", ["graph", "instance", "layer"])
def test_state_dicts_go_both_ways(name):
    ours, make = _pairs()[name]
    theirs = randomize(make())
    ours.load_state_dict(theirs.state_dict())
    assert all(torch.equal(ours.state_dict()[key], value) for key, value in theirs.state_dict().items())
    again = make()
    again.load_state_dict(randomize(ours).state_dict())
    assert all(torch.equal(again.state_dict()[key], value) for key, value in ours.state_dict().items())


@needs_pyg
def test_batch_norm_loads_torch_and_pytorch_geometric():
    torchs, pygs = randomize(nn.BatchNorm1d(4)), randomize(pyg.BatchNorm(4))
    x = torch.randn(20, 4)
    torchs(x), pygs(x)
    for theirs in (torchs, pygs):
        ours = BatchNorm(4)
        ours.load_state_dict(theirs.state_dict())
        assert torch.allclose(ours.eval()(x), theirs.eval()(x), atol=1e-6)
        nested, model = nn.Sequential(nn.Linear(4, 4), BatchNorm(4)), nn.Sequential(nn.Linear(4, 4), theirs)
        nested.load_state_dict(model.state_dict())
        assert torch.allclose(nested.eval()(x), model.eval()(x), atol=1e-6)
    again = nn.BatchNorm1d(4)
    again.load_state_dict(ours.module.state_dict())


def test_signature_of_pytorch_geometric():
    norm = GraphNorm(4, 1e-3, "cpu")
    assert norm.eps == 1e-3
    assert [name for name, _ in norm.named_parameters()] == ["weight", "bias", "mean_scale"]
    x = torch.randn(3, 4)
    right = norm(x, torch.tensor([0, 0, 1]), 2)
    assert torch.equal(norm(x=x, batch=torch.tensor([0, 0, 1]), batch_size=2), right)
    assert torch.equal(norm(x, Segments(sizes=[2, 1])), right)


# ---- batch norm and its variants -----------------------------------------------------------------


@pytest.mark.parametrize("momentum", [0.1, 0.7, None])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64], ids=str)
def test_running_averages_equal_torch(momentum, dtype):
    ours, theirs = (
        BatchNorm(5, momentum=momentum, dtype=dtype),
        nn.BatchNorm1d(5, momentum=momentum, dtype=dtype),
    )
    tolerance = 1e-6 if dtype == torch.float32 else 1e-12
    for rows in (7, 30, 12):
        x = 3 + 2 * torch.randn(rows, 5, dtype=dtype)
        assert torch.allclose(ours(x), theirs(x), atol=5e-6)
    for key, value in theirs.state_dict().items():
        assert torch.allclose(ours.module.state_dict()[key], value, rtol=tolerance, atol=tolerance), key
    x, dy = torch.randn(2, 9, 5, dtype=dtype)
    found, right = gradients(ours.eval(), x, dy), gradients(theirs.eval(), x, dy)
    assert all(torch.allclose(f, r, atol=10 * tolerance) for f, r in zip(found, right, strict=True))


def test_batch_norm_without_running_averages_uses_the_batch_in_evaluation():
    ours, theirs = BatchNorm(5, track_running_stats=False), nn.BatchNorm1d(5, track_running_stats=False)
    x = torch.randn(9, 5)
    for training in (True, False):
        assert torch.allclose(ours.train(training)(x), theirs.train(training)(x), atol=1e-6)


def test_batch_norm_leaves_padding_out():
    ours, theirs = BatchNorm(5), nn.BatchNorm1d(5)
    x = torch.randn(9, 5)
    padded = torch.cat([x, torch.full((4, 5), 1e6)])
    y = ours(padded, Segments(sizes=[4, 5], num_rows=13))
    assert torch.allclose(y[:9], theirs(x), atol=1e-6)
    assert (y[9:] == 0).all()
    assert torch.allclose(ours.running_var, theirs.running_var)
    assert torch.allclose(ours.running_mean, theirs.running_mean, atol=1e-6)


def test_alpha_batch_norm_in_training_and_evaluation():
    norm = randomize(make_norm("batch-alpha", 3)).double()
    x = 2 + torch.randn(40, 3, dtype=torch.float64)
    parameters = {"weight": norm.weight, "bias": norm.bias, "mean_scale": norm.mean_scale}
    right = oracle.standardize(x, torch.zeros(40, dtype=torch.int64), scope="batch", **parameters)
    assert torch.allclose(norm(x), right)
    norm.eval()
    shifted = x - norm.mean_scale * norm.running_mean
    second = norm.running_var + (1 - norm.mean_scale) ** 2 * norm.running_mean**2
    assert torch.allclose(norm(x), norm.weight * shifted / (second + norm.eps).sqrt() + norm.bias)


def test_detached_batch_norm_stops_the_gradient():
    norm, x = randomize(make_norm("batch-detached", 3)).double(), torch.randn(8, 3, dtype=torch.float64)
    y, dx, *_ = gradients(norm, x, torch.ones_like(x))
    assert torch.allclose(y, nn.functional.batch_norm(x, None, None, norm.weight, norm.bias, True))
    assert torch.allclose(dx, (norm.weight / (x.var(0, correction=0) + norm.eps).sqrt()).expand_as(x))


def test_running_batch_norm_uses_its_averages_in_training():
    norm = RunningBatchNorm(3, momentum=0.5).double()
    x = 4 + torch.randn(8, 3, dtype=torch.float64)
    y, dx, *_ = gradients(norm, x, torch.ones_like(x))
    mean, var = 0.5 * x.mean(0), 0.5 + 0.5 * x.var(0)
    assert torch.allclose(norm.running_mean, mean)
    assert torch.allclose(y, (x - mean) / (var + norm.eps).sqrt())
    assert torch.allclose(dx, (1 / (var + norm.eps).sqrt()).expand_as(x))
    assert torch.equal(norm.eval()(x), y)


@pytest.mark.parametrize("name", NAMES)
def test_reset_parameters(name):
    norm = randomize(make_norm(name, 3))
    norm(torch.randn(5, 3))
    torch.manual_seed(0)
    norm.reset_parameters()
    torch.manual_seed(0)
    fresh = make_norm(name, 3).state_dict()
    assert all(torch.equal(value, fresh[key]) for key, value in norm.state_dict().items())


# ---- all layers ----------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [name for name in NAMES if name != "message"])  # there the residual decides more
@pytest.mark.parametrize("training", [True, False])
def test_fused_tail_equals_the_composition(name, training):
    plain = randomize(make_norm(name, 5)).double().train(training)
    fused = make_norm(name, 5, act="relu").double().train(training)
    fused.load_state_dict(plain.state_dict())
    x, residual, dy = torch.randn(3, len(BATCH), 5, dtype=torch.float64)
    results = []
    for tail in (
        lambda x, r: torch.relu(plain(x, BATCH)) + r,
        lambda x, r: fused(x, BATCH, residual=r),
    ):
        leaves = [x.clone().requires_grad_(), residual.clone().requires_grad_()]
        module = plain if not results else fused
        y = tail(*leaves)
        results.append((y, *torch.autograd.grad(y, [*leaves, *module.parameters()], dy)))
    assert all(torch.allclose(a, b, rtol=1e-12, atol=1e-13) for a, b in zip(*results, strict=True))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32, torch.bfloat16, torch.float16], ids=str)
def test_type_of_the_input_is_kept(name, dtype):
    x = torch.randn(len(BATCH), 5, dtype=dtype, requires_grad=True)
    norm = make_norm(name, 5)
    y = norm(x, BATCH)
    y.sum().backward()
    assert y.dtype == x.grad.dtype == dtype
    assert all(p.grad.dtype == torch.float32 for p in norm.parameters())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("rows", [0, 1])
def test_no_rows_and_one_row(name, rows):
    norm = make_norm(name, 5)
    for module in (norm, norm.eval()):
        x = torch.randn(rows, 5, requires_grad=True)
        y = module(x, torch.zeros(rows, dtype=torch.int64))
        y.sum().backward()
        assert y.shape == (rows, 5)
        finite = [y, x.grad, *module.state_dict().values(), *(p.grad for p in module.parameters())]
        assert all(torch.isfinite(t).all() for t in finite)


@pytest.mark.parametrize("name", NAMES)
def test_copies_and_state(name):
    norm = randomize(make_norm(name, 5, act="relu"))
    x = torch.randn(len(BATCH), 5)
    norm(x, BATCH)
    restored = make_norm(name, 5, act="relu")
    restored.load_state_dict(norm.state_dict())
    right = norm.eval()(x, BATCH)
    for twin in (copy.deepcopy(norm), pickle.loads(pickle.dumps(norm)), restored.eval()):
        assert torch.equal(twin(x, BATCH), right)
        assert repr(twin) == repr(norm)


def test_registry():
    assert repr(make_norm("graph", 64, act="relu")) == "GraphNorm(64, eps=1e-05, act='relu')"
    assert make_norm("instance", 3).weight is not None
    assert InstanceNorm(3).weight is None
    with pytest.raises(ValueError, match=r"unknown normalization 'Grpah'; did you mean 'graph'\?.*batch-running"):
        make_norm("Grpah", 3)


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("arguments", "error", "words"),
    [
        ((torch.randn(4, 3),), ValueError, r"5 channels, but x has shape \(4, 3\)"),
        ((torch.randn(5),), ValueError, "x must have shape"),
        ((torch.randn(2, 4, 5),), ValueError, "x must have shape"),
        (([[1.0]],), TypeError, "x must be a tensor"),
        (("abc",), TypeError, "x must be a tensor"),
        ((torch.ones(4, 5, dtype=torch.int64),), TypeError, r"x must hold floating-point.*x\.float\(\)"),
        ((torch.ones(4, 5).to_sparse(),), TypeError, r"x is a sparse tensor.*x\.to_dense\(\)"),
        ((torch.ones(4, 5).to_mkldnn(),), TypeError, r"x is an MKL-DNN tensor.*x\.to_dense\(\)"),
        ((torch.nested.nested_tensor([torch.ones(2, 5)], layout=torch.jagged),), TypeError, "x is a nested tensor"),
        ((torch.ones(4, 5).to(torch.float8_e4m3fn),), TypeError, r"x must hold floating-point.*x\.float\(\)"),
    ],
)
def test_wrong_features(name, arguments, error, words):
    with pytest.raises(error, match=words):
        make_norm(name, 5)(*arguments)


def test_wrong_width_without_parameters():
    for batch in (None, torch.tensor([0, 0, 1, 1]), Segments(sizes=[2, 2])):
        with pytest.raises(ValueError, match=r"5 channels, but x has shape \(4, 3\)"):
            InstanceNorm(5)(torch.randn(4, 3), batch)


@pytest.mark.parametrize("name", ["graph", "batch", "instance", "batch-alpha", "layer", "rms", "message"])
def test_parameters_on_another_device(name):
    norm = make_norm(name, 5).to("meta")
    with pytest.raises(ValueError, match=r"(weight|mean_scale|scale) is on meta, x is on cpu.*\.to"):
        norm(torch.randn(4, 5))


@pytest.mark.parametrize("name", sorted(BUILT_IN))
def test_nothing_but_shapes(name):
    """Where everything is on the device ``meta``, the shape and type of the result are known."""
    x = torch.empty(4, 5, device="meta")
    norm = make_norm(name, 5).to("meta")
    residual = x if name == "message" else None
    assert norm(x, Segments(sizes=torch.tensor([1, 3]).to("meta"), num_rows=4), residual=residual).shape == (4, 5)


def test_wrong_construction():
    for channels in (0, -1, 2.5, "8", None):
        with pytest.raises(ValueError, match="in_channels"):
            GraphNorm(channels)
    for act in ("gelu", torch.relu):
        with pytest.raises(ValueError, match="act is"):
            GraphNorm(3, act=act)
    for eps in (-1.0, float("nan"), "x", None):
        with pytest.raises(ValueError, match="eps is"):
            GraphNorm(3, eps=eps)


@pytest.mark.parametrize("name", NAMES)
def test_residual_of_another_shape(name):
    for shape in ((4, 1), (1, 5), (3, 5)):
        with pytest.raises(ValueError, match="residual has shape"):
            make_norm(name, 5)(torch.randn(4, 5), residual=torch.randn(shape))


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("batch", [None, torch.tensor([0, 0, 1, 1])])
def test_residual_that_is_no_tensor(name, batch):
    for residual in (1.0, [[0.0] * 5] * 4):
        with pytest.raises(TypeError, match=f"residual must be a tensor of features, got {type(residual).__name__}"):
            make_norm(name, 5)(torch.randn(4, 5), batch, residual=residual)


@pytest.mark.parametrize("name", NAMES)
def test_batch_of_another_length(name):
    """Also where a layer does not read it: every layer notices batches that were mixed up."""
    norm, x = make_norm(name, 2), torch.randn(4, 2)
    for module in (norm, norm.eval()):
        for batch in (torch.tensor([0, 0, 1]), Segments(sizes=[2, 1])):
            with pytest.raises(ValueError, match=r"x has 4 rows, but batch .* describes 3.*belongs to this x"):
                module(x, batch)
        with pytest.raises(TypeError, match="batch must be a tensor of integers, got list"):
            module(x, [0, 0, 1, 1])


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize(
    ("batch", "batch_size", "error", "words"),
    [
        (torch.tensor([0.0, 0, 1, 1]), None, TypeError, r"batch must hold integers.*batch\.long\(\)"),
        (torch.tensor([0, 0, 1, -1]), None, ValueError, "batch holds the negative id -1"),
        (torch.tensor([[0], [0], [1], [1]]), None, ValueError, "batch must be one-dimensional"),
        (torch.tensor([0, 0, 1, 1]).to_sparse(), None, TypeError, r"batch is a sparse tensor.*to_dense\(\)"),
        (torch.tensor([0, 0, 1, 1], device="meta"), 2, ValueError, r"on meta, x is on cpu.*\.to"),
        (torch.tensor([0, 0, 1, 3 * 10**8]), None, ValueError, "4 rows would form 300000001 graphs"),
        (torch.tensor([0, 0, 1, 1]), 3 * 10**8, ValueError, "4 rows would form 300000000 graphs"),
        (torch.tensor([0, 0, 1, 1]), 1, ValueError, "batch holds id 1, but batch_size is 1"),
        (torch.tensor([0, 0, 1, 1]), -1, ValueError, "batch_size is -1"),
        (torch.tensor([0, 0, 1, 1]), 2.0, TypeError, "batch_size must be an int"),
        (None, -1, ValueError, "batch_size is -1"),
        (Segments(sizes=[2, 2]), 7, ValueError, "batch_size is 7, but the segments hold 2"),
    ],
)
def test_every_layer_refuses_a_wrong_batch(name, batch, batch_size, error, words):
    """Also where it decides nothing."""
    with pytest.raises(error, match=words):
        make_norm(name, 2)(torch.randn(4, 2), batch, batch_size)


def test_number_of_channels_from_numpy():
    numpy = pytest.importorskip("numpy")
    assert GraphNorm(numpy.int64(3)).in_channels == 3


def test_fake_tensors():
    """Tensors without data, as memory estimators use them, never reach a kernel that reads addresses."""
    from torch._subclasses.fake_tensor import FakeTensorMode

    with FakeTensorMode():
        norm, x = GraphNorm(3), torch.randn(4, 3, requires_grad=True)
        y = norm(x, torch.zeros(4, dtype=torch.int64), 1)
        y.sum().backward()
    assert y.shape == x.grad.shape == (4, 3)


def test_nan_parameters_do_not_hang():
    norm = GraphNorm(3)
    nn.init.constant_(norm.mean_scale, float("nan"))
    y = norm(torch.randn(4, 3), torch.tensor([0, 0, 1, 1]))
    y.sum().backward()
    assert y.isnan().all()


def test_version_and_names():
    assert graphnorm.__version__
    assert all(hasattr(graphnorm, name) for name in graphnorm.__all__)
