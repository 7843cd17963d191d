"""Modules of other people, registered as normalizations."""

import json
import sys

import numpy as np
import pytest
import torch
from torch import nn

import graphnorm
from graphnorm import GraphNorm, Segments, cli, make_norm, register_norm
from graphnorm.data import synthetic
from graphnorm.errors import GraphnormError
from graphnorm.layers import CustomNorm
from graphnorm.training import Fleet, Split, Trial

BATCH = torch.tensor([0, 0, 0, 1, 1])


@pytest.fixture(autouse=True)
def _forget():
    yield
    sys.modules.pop("my_norms", None)


class Centred(nn.Module):
    """Takes the mean of each graph away, by a loop, and reads values: neither vmap nor capture bear it."""

    def __init__(self, channels):
        super().__init__()
        self.weight = nn.Parameter(torch.ones(channels))

    def forward(self, x, batch, batch_size):
        assert int(batch.max()) < batch_size
        out = torch.zeros_like(x)
        for graph in range(batch_size):
            rows = (batch == graph).nonzero()[:, 0]
            if len(rows):
                out = out.index_copy(0, rows, x[rows] - x[rows].mean(0))
        return out * self.weight


def test_activation_and_residual_are_applied_around_the_module():
    register_norm("centred", Centred)
    x, residual = torch.randn(2, 5, 3)
    norm = make_norm("centred", 3, act="relu")
    assert torch.allclose(norm(x, BATCH, residual=residual), Centred(3)(x, BATCH, 2).relu() + residual)
    assert [name for name, _ in norm.named_parameters()] == ["module.weight"]


@pytest.mark.parametrize("factory", [nn.LayerNorm, lambda channels: nn.BatchNorm1d(channels), nn.Identity])
def test_modules_that_take_x_alone(factory):
    register_norm("mine", factory)
    x = torch.randn(5, 3)
    assert torch.equal(make_norm("mine", 3)(x, BATCH), factory(3)(x))


def test_what_takes_act_and_residual_gets_them():
    class Own(nn.Module):
        def __init__(self, channels, act=None):
            super().__init__()
            self.act = act

        def forward(self, x, batch=None, batch_size=None, residual=None):
            return (x if self.act is None else 10 * x) + (0 if residual is None else 100 * residual)

    register_norm("own", Own)
    x = torch.ones(5, 3)
    assert torch.equal(make_norm("own", 3, act="relu")(x, BATCH, residual=x), 110 * x)
    register_norm("ours", GraphNorm)
    assert type(make_norm("ours", 3, act="relu")) is GraphNorm


def test_rows_of_no_graph_are_not_shown():
    register_norm("batch1d", nn.BatchNorm1d)
    x = torch.randn(8, 3)
    found = make_norm("batch1d", 3)(x, Segments(ptr=torch.tensor([0, 3, 5]), num_rows=8))
    assert torch.equal(found, torch.cat([nn.BatchNorm1d(3)(x[:5]), torch.zeros(3, 3)]))


def test_trained_in_a_fleet_as_the_layer_it_copies():
    """torch's BatchNorm1d and the package's own learn the same, running averages included."""
    register_norm("batch1d", nn.BatchNorm1d)
    graphs = synthetic.trees(num_graphs=60, seed=0)
    ids = np.arange(60)
    splits = [Split(ids[ids % 5 != k], ids[ids % 5 == k]) for k in range(3)]
    curves = {}
    for norm in ("batch1d", "batch"):
        trials = [
            Trial(dataset="t", norm=norm, fold=k, seed=k, epochs=3, hidden=8, layers=3, batch_size=13, lr=3e-3)
            for k in range(3)
        ]
        fleet = Fleet(graphs, trials, splits, device="cpu")
        fleet.advance()
        curves[norm] = np.stack([outcome.curves["loss"] for outcome in fleet.outcomes()])
    np.testing.assert_allclose(curves["batch1d"], curves["batch"], rtol=2e-3)


def test_compared_with_the_packages_own(tmp_path):
    register_norm("centred", Centred)
    comparison = graphnorm.compare(
        synthetic.trees(num_graphs=40, seed=0), norms="centred,pair", epochs=1, folds=2, hidden=4, layers=2,
        progress=False, device="cpu", out=tmp_path / "out", workers=1,
    )  # fmt: skip
    assert set(comparison.norms) == {"centred", "pair"}
    assert all(np.isfinite(result.mean) for result in comparison.norms.values())


def raising(*_):
    raise RuntimeError("not today")


class Failing(nn.Module):
    def __init__(self, forward):
        super().__init__()
        self.forward = forward


@pytest.mark.parametrize(
    ("factory", "words"),
    [
        (raising, "its factory, with 4 channels, raised RuntimeError: not today. Remedy: "),
        (lambda: nn.Identity(), "its factory, with 4 channels, raised TypeError: "),
        (lambda channels: "text", "'mine' gave a str. Remedy: "),
        (lambda channels: Failing(raising), r"its module, with x of shape \(5, 4\) .* raised RuntimeError: not today"),
        (lambda channels: nn.LayerNorm(channels + 1), "its module, .* raised RuntimeError: Given normalized_shape"),
        (lambda channels: nn.Linear(channels, 2), r"its module, .* gave a result of shape \(5, 2\) and type "),
        (lambda channels: Failing(lambda x: x.double()), r"its module, .* shape \(5, 4\) and type torch.float64"),
        (sys.exit, "its factory, with 4 channels, raised SystemExit: 4"),
        (lambda channels: Failing(lambda x: (x, x)), "its module, .* raised TypeError: .*tuple"),
        (lambda channels, act: Failing(lambda x: (x, x)), "its module, .* gave a result of type tuple"),
    ],
)
def test_what_fails_is_refused_before_anything_is_trained(factory, words, tmp_path, monkeypatch):
    register_norm("mine", factory)
    monkeypatch.setattr("graphnorm.study.api.train_missing", raising)
    with pytest.raises(GraphnormError, match=words):
        graphnorm.compare(
            synthetic.trees(num_graphs=40, seed=0), norms="none,mine", folds=2, hidden=4, device="cpu",
            out=tmp_path / "out",
        )  # fmt: skip
    assert not (tmp_path / "out").exists()


@pytest.mark.parametrize("name", ["graph", "a,b", "../x", "", "-x"])
def test_names_that_cannot_be(name):
    with pytest.raises(GraphnormError, match="Remedy"):
        register_norm(name, nn.LayerNorm)


def test_factories_that_make_no_module():
    register_norm("none-at-all", lambda channels: None)
    with pytest.raises(GraphnormError, match="NoneType"):
        make_norm("none-at-all", 3)
    with pytest.raises(GraphnormError, match="cannot be called"):
        register_norm("nothing", 3)


def test_parameters_are_reset_by_the_module():
    norm = CustomNorm(nn.LayerNorm(3), 3)
    with torch.no_grad():
        norm.module.weight.fill_(5)
    norm.reset_parameters()
    assert (norm.module.weight == 1).all()


def test_named_on_the_command_line(tmp_path, monkeypatch, capsys):
    (tmp_path / "my_norms.py").write_text("from torch.nn import LayerNorm\n")
    (tmp_path / "my_slip.py").write_text("LayerNorm = [].layer\n")
    monkeypatch.chdir(tmp_path)
    options = ["--norms", "none", "--epochs", "1", "--folds", "2", "--hidden", "4", "--layers", "2", "--device", "cpu"]
    code = cli.main(["compare", "synthetic:trees", "--norm-module", "mine=my_norms.py:LayerNorm", "--json", *options])
    assert code == 0
    assert list(json.loads(capsys.readouterr().out)["norms"]) == ["none", "mine"]
    for wrong, words in (
        ("mine", "NAME=FILE.py:FACTORY"),
        ("mine=no_such_module:Norm", "no module 'no_such_module'"),
        ("mine=my_norms:Norm", "Norm does not exist there"),
        ("mine=my_slip.py:LayerNorm", "my_slip.py:1: it cannot be imported: AttributeError: 'list' object"),
    ):
        assert cli.main(["compare", "synthetic:trees", "--norm-module", wrong]) == 2
        assert words in capsys.readouterr().err
