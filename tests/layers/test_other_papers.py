"""Normalizations of other papers against PyTorch Geometric's layers of the same names."""

import warnings

import pytest
import torch

from graphnorm import Segments, make_norm

with warnings.catch_warnings():
    warnings.simplefilter("ignore")  # torch_geometric's own, at import
    pyg = pytest.importorskip("torch_geometric.nn.norm")

BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 1, 3, 3, 3, 3, 3, 4])
CHANNELS = 6


def features(seed=0):
    generator = torch.Generator().manual_seed(seed)
    return torch.randn(len(BATCH), CHANNELS, dtype=torch.float64, generator=generator)


def both(ours, theirs):
    """Values and gradients of the input, weighted unevenly, of two functions."""
    x = features()
    weight = features(1)
    results = []
    for function in (ours, theirs):
        x = x.detach().requires_grad_()
        y = function(x)
        results.append((y.detach(), *torch.autograd.grad((y * weight).sum(), x)))
    return results


def close(ours, theirs):
    return all(torch.allclose(a, b, rtol=1e-9, atol=1e-11) for a, b in zip(*both(ours, theirs), strict=True))


@pytest.mark.parametrize("batch", [None, BATCH, BATCH.flip(0)], ids=["one graph", "sorted", "unsorted"])
@pytest.mark.parametrize(("name", "make"), [("pair", "PairNorm"), ("mean-subtraction", "MeanSubtractionNorm")])
def test_layers_by_graph_equal_pytorch_geometric(name, make, batch):
    ours, theirs = make_norm(name, CHANNELS).double(), getattr(pyg, make)()
    assert close(lambda x: ours(x, batch), lambda x: theirs(x, batch))


def test_message_norm_equals_pytorch_geometric_with_the_residual_as_the_state():
    state = features(2)
    ours, theirs = make_norm("message", CHANNELS).double(), pyg.MessageNorm(learn_scale=True).double()
    with torch.no_grad():
        theirs.scale.fill_(0.7)
    ours.load_state_dict(theirs.state_dict())
    assert close(lambda x: ours(x, residual=state), lambda x: theirs(state, x) + state)
    assert close(lambda x: ours(x), lambda x: theirs(x, x))


@pytest.mark.parametrize("training", [True, False])
def test_diff_group_norm_equals_pytorch_geometric(training):
    theirs = pyg.DiffGroupNorm(CHANNELS, groups=10).double()
    theirs(features(3))
    ours = make_norm("diff-group", CHANNELS).double()
    ours.load_state_dict(theirs.state_dict())
    ours.train(training), theirs.train(training)
    assert close(lambda x: ours(x, BATCH), theirs)
    for name, value in theirs.state_dict().items():
        assert torch.allclose(ours.state_dict()[name], value), name


@pytest.mark.parametrize("name", ["pair", "mean-subtraction", "message", "diff-group"])
def test_activation_residual_and_rows_of_no_graph(name):
    norm = make_norm(name, CHANNELS, act="relu").double()
    plain = make_norm(name, CHANNELS).double()
    plain.load_state_dict(norm.state_dict())
    x, residual = features(), features(4)
    padded = Segments(ptr=torch.tensor([0, 3, 9]), num_rows=len(BATCH))
    exact = Segments(sizes=[3, 6])
    if name != "message":
        right = plain(x[:9], exact).relu() + residual[:9]
        plain.load_state_dict(norm.state_dict())
    else:
        right = (plain(x[:9], exact, residual=residual[:9]) - residual[:9]).relu() + residual[:9]
    found = norm(x, padded, residual=residual)
    assert torch.allclose(found[:9], right)
    if name in ("pair", "mean-subtraction"):
        assert torch.equal(found[9:], residual[9:])
