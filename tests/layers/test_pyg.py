"""Every class that bears the name of one of PyTorch Geometric's takes its arguments and gives its results."""

from __future__ import annotations

import inspect
import warnings
from itertools import product
from typing import Any

import pytest
import torch
from torch import nn

import graphnorm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    pytest.importorskip("torch_geometric")
    import torch_geometric.nn as pyg
    from torch_geometric.nn import norm as pyg_norms

NAMES = [name for name in pyg_norms.__all__ if hasattr(graphnorm, name)]
BATCH = torch.tensor([0, 0, 0, 2, 2, 3, 3, 3, 3])
TYPES = torch.tensor([0, 1, 1, 0, 0, 2, 2, 1, 0])


def grid(**options: list[Any]) -> list[dict[str, Any]]:
    return [dict(zip(options, values, strict=True)) for values in product(*options.values())]


BOTH = [True, False]
CASES: dict[str, list[dict[str, Any]]] = {
    "BatchNorm": grid(in_channels=[6], momentum=[0.1, None], affine=BOTH, track_running_stats=BOTH)
    + grid(in_channels=[6], eps=[0.1], allow_single_element=[True]),
    "HeteroBatchNorm": grid(
        in_channels=[6], num_types=[4], momentum=[0.1, None], affine=BOTH, track_running_stats=BOTH
    ),
    "InstanceNorm": grid(in_channels=[6], momentum=[0.1, 0.3], affine=BOTH, track_running_stats=BOTH),
    "LayerNorm": grid(in_channels=[6], eps=[1e-5, 0.1], affine=BOTH, mode=["graph", "node"]),
    "HeteroLayerNorm": grid(in_channels=[6], num_types=[4], eps=[1e-5, 0.1], affine=BOTH),
    "GraphNorm": grid(in_channels=[6], eps=[1e-5, 0.1]),
    "GraphSizeNorm": [{}],
    "PairNorm": grid(scale=[1.0, 2.5], scale_individually=BOTH, eps=[1e-5, 0.1]),
    "MeanSubtractionNorm": [{}],
    "MessageNorm": grid(learn_scale=BOTH),
    "DiffGroupNorm": grid(in_channels=[6], groups=[4], lamda=[0.01, 1.0], affine=BOTH, track_running_stats=BOTH),
}
CALLS: dict[str, list[tuple[Any, ...]]] = {
    "BatchNorm": [()],
    "DiffGroupNorm": [()],
    "HeteroBatchNorm": [(TYPES,)],
    "HeteroLayerNorm": [(TYPES,), (None, [0, 2, 5, 5, 9])],
    "MessageNorm": [(torch.randn(9, 6).double(),), (torch.randn(9, 6).double(), 1.0)],
}


def test_none_is_missing() -> None:
    assert set(NAMES) == set(pyg_norms.__all__) == set(CASES)


@pytest.mark.parametrize("name", NAMES)
def test_arguments_have_the_same_order_and_defaults(name: str) -> None:
    for call in ("__init__", "forward"):
        theirs, ours = (
            [p for p in inspect.signature(getattr(of, call)).parameters.values() if p.kind is p.POSITIONAL_OR_KEYWORD]
            for of in (getattr(pyg, name), getattr(graphnorm, name))
        )
        assert [p.name for p in theirs] == [p.name for p in ours][: len(theirs)]
        for their, our in zip(theirs, ours, strict=False):
            assert their.default == our.default or their.default is inspect.Parameter.empty


@pytest.mark.parametrize(("name", "options"), [(name, options) for name in NAMES for options in CASES[name]])
def test_results_and_state_dicts(name: str, options: dict[str, Any]) -> None:
    """Two steps of training, then evaluation; the state goes from theirs to ours and back."""
    torch.manual_seed(0)
    theirs: nn.Module = getattr(pyg, name)(**options).double()
    with torch.no_grad():
        for parameter in theirs.parameters():
            parameter.uniform_(0.3, 1.2)
    ours: nn.Module = getattr(graphnorm, name)(**options).double()
    ours.load_state_dict(theirs.state_dict())
    for arguments in CALLS.get(name, [(), (BATCH,), (BATCH, 4), (BATCH, 6)]):
        if (name, arguments, options.get("eps")) == ("LayerNorm", (), 0.1):
            continue  # theirs divides by σ + ε there, as our docstring says
        for mode in (True, True, False):
            values = torch.randn(9, 6).double()
            y, right, gradients, right_gradients = [], [], [], []
            for layer, output, found in ((ours, y, gradients), (theirs, right, right_gradients)):
                layer.train(mode).zero_grad()
                x = values.clone().requires_grad_()
                output.append(layer(x, *arguments))
                output[0].square().sum().backward()
                found += [x.grad, *(p.grad for p in layer.parameters() if p.requires_grad)]
                for average in layer.buffers():
                    average.detach_()  # those of their InstanceNorm hold on to the graph
            tolerance = 1e-4 if name == "LayerNorm" and not arguments else 1e-9
            assert torch.allclose(y[0], right[0], rtol=tolerance, atol=tolerance)
            for found, expected in zip(gradients, right_gradients, strict=True):
                assert torch.allclose(found, expected, rtol=tolerance, atol=10 * tolerance)
    theirs_again = getattr(pyg, name)(**options).double()
    theirs_again.load_state_dict(ours.state_dict())
    for key, value in theirs.state_dict().items():
        assert torch.allclose(theirs_again.state_dict()[key], value), key


@pytest.mark.parametrize("name", ["BatchNorm", "InstanceNorm", "HeteroBatchNorm"])
def test_running_averages_are_reset(name: str) -> None:
    options = {"num_types": 4} if name == "HeteroBatchNorm" else {}
    norm = getattr(graphnorm, name)(6, track_running_stats=True, **options)
    fresh = {key: value.clone() for key, value in norm.state_dict().items()}
    norm(torch.randn(9, 6), TYPES)
    assert not torch.equal(norm.running_mean, torch.zeros_like(norm.running_mean))
    norm.reset_running_stats()
    assert all(torch.equal(fresh[key], value) for key, value in norm.state_dict().items())


@pytest.mark.parametrize("mode", BOTH)
@pytest.mark.parametrize("parameters", [torch.float32, torch.float64])
@pytest.mark.parametrize("features", [torch.float16, torch.bfloat16, torch.float32, torch.float64])
@pytest.mark.parametrize("name", NAMES)
def test_the_output_has_the_type_of_the_features(
    name: str, features: torch.dtype, parameters: torch.dtype, mode: bool
) -> None:
    layer = getattr(graphnorm, name)(**CASES[name][0]).to(parameters).train(mode)
    x = torch.randn(9, 6, dtype=features)
    arguments = (x,) if name == "MessageNorm" else CALLS.get(name, [(BATCH,)])[0]
    assert layer(x, *arguments).dtype == features
    with torch.autocast("cpu", dtype=torch.bfloat16):
        assert layer(x, *arguments).dtype == features


def test_a_batch_of_one_row() -> None:
    ours, theirs = (of.BatchNorm(6, allow_single_element=True) for of in (graphnorm, pyg))
    x = torch.randn(1, 6)
    assert torch.allclose(ours(x), theirs(x))
    assert ours.num_batches_tracked == 0
    with pytest.raises(ValueError, match="track_running_stats"):
        graphnorm.BatchNorm(6, allow_single_element=True, track_running_stats=False)


@pytest.mark.parametrize("name", [name for name in NAMES if not name.startswith(("Hetero", "Message"))])
def test_inside_a_model_of_pytorch_geometric(name: str) -> None:
    """Models take a layer of ours where they take their own."""
    options = {**CASES[name][0]}
    options.update({"in_channels": 8} if "in_channels" in options else {})
    edges = torch.tensor([[0, 1, 3, 4, 5, 6], [1, 0, 4, 3, 6, 5]])
    x = torch.randn(9, 3)
    theirs, ours = (pyg.GCN(3, 8, num_layers=2, norm=getattr(of, name)(**options)) for of in (pyg, graphnorm))
    ours.load_state_dict(theirs.state_dict())
    y, right = (model(x, edges, batch=BATCH, batch_size=4) for model in (ours, theirs))
    assert torch.allclose(y, right, atol=1e-5)


def test_distance_ratio_of_groups() -> None:
    x, y = torch.randn(6, 16), torch.tensor([0, 1, 0, 1, 1, 1])
    ours, theirs = (of.DiffGroupNorm.group_distance_ratio(x, y) for of in (graphnorm, pyg))
    assert ours == pytest.approx(theirs, rel=1e-5)


# ---- tools of torch that look for its BatchNorm ---------------------------------------------------------------------


def test_averages_are_taken_again_for_averaged_weights() -> None:
    batches = [torch.randn(9, 6) for _ in range(4)]
    ours, torchs = nn.Sequential(graphnorm.BatchNorm(6)), nn.Sequential(nn.BatchNorm1d(6))
    for model in (ours, torchs):
        model(torch.randn(9, 6))
        torch.optim.swa_utils.update_bn(batches, model)
    assert torch.allclose(ours[0].running_mean, torchs[0].running_mean, atol=1e-6)
    assert torch.allclose(ours[0].running_var, torchs[0].running_var, atol=1e-6)
    assert ours[0].momentum == 0.1


def test_synchronised_averages() -> None:
    model = nn.SyncBatchNorm.convert_sync_batchnorm(nn.Sequential(graphnorm.BatchNorm(6, act="relu")))
    assert isinstance(model[0].module, nn.SyncBatchNorm)
    assert (model.eval()(torch.randn(9, 6)) >= 0).all()
    with pytest.raises(TypeError, match="synchronised"):
        nn.SyncBatchNorm.convert_sync_batchnorm(graphnorm.AlphaBatchNorm(6))(torch.randn(9, 6))


@pytest.mark.parametrize("kind", [graphnorm.BatchNorm, graphnorm.AlphaBatchNorm, graphnorm.RunningBatchNorm])
def test_averages_may_move_before_backward(kind: type[graphnorm.BatchNorm]) -> None:
    norm, x = kind(6).double(), torch.randn(9, 6, dtype=torch.float64, requires_grad=True)
    norm(torch.randn(9, 6).double())
    (expected,) = torch.autograd.grad(norm.eval()(x).square().sum(), x)
    y = norm(x)
    norm.train()(torch.randn(9, 6).double())
    norm(torch.randn(9, 6).double())
    (found,) = torch.autograd.grad(y.square().sum(), x)
    assert torch.equal(found, expected)
    norm.train()
    (norm(x).sum() + norm(2 * x).square().sum()).backward()


def test_torchs_state_dict_loads() -> None:
    theirs = nn.BatchNorm1d(6)
    theirs(torch.randn(9, 6))
    ours = graphnorm.BatchNorm(6)
    ours.load_state_dict(theirs.state_dict())
    assert torch.equal(ours.running_var, theirs.running_var)
