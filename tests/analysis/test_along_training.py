"""The learned α and the curvature along training."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphnorm.analysis import alpha_along_training, curvature_along_training, learned_alpha
from graphnorm.analysis.checkpoints import trial_on_all
from graphnorm.analysis.plots import plot_alpha, plot_curvature
from graphnorm.analysis.smoothness import batch_curvature
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.training import build_model
from graphnorm.training.setup import Extremes, model_inputs

SMALL = {"hidden": 4, "layers": 3}


@pytest.fixture(scope="module")
def trees() -> PackedGraphs:
    return synthetic.trees(40)


def test_alpha(trees: PackedGraphs) -> None:
    found = alpha_along_training(trees, epochs=3, at=[0, 3], seeds=2, batch_size=8, device="cpu", **SMALL)
    assert found.layers[0] == "convolutions.0.first_norm"
    assert len(found.layers) == 4
    assert all(values.shape == (2, 2, 4) for values in found.values)
    assert all((values[0] == 1).all() for values in found.values)
    assert all((values[1] != 1).any() for values in found.values)
    assert not np.allclose(found.values[0][1, 0], found.values[0][1, 1])  # seeds differ
    summary = found.summary()["convolutions.0.first_norm"]
    last = found.values[0][1]
    assert summary["quantiles"]["0.5"] == np.median(last)
    assert summary["share_near_1"] == (np.abs(last - 1) < 0.1).mean()
    figure = plot_alpha(found, title="trees")
    drawn = sum(patch.get_height() for patch in figure.axes[0].patches)
    assert drawn == pytest.approx(1)
    np.testing.assert_allclose(figure.axes[-1].lines[0].get_ydata(), np.median(found.values[0], axis=(1, 2)))
    with pytest.raises(GraphnormError, match="no layer with a learned α"):
        learned_alpha(torch.nn.Linear(2, 2))


@pytest.mark.parametrize("norm", ["graph", "batch", "none"])
def test_curvature_is_that_of_the_dense_hessian(trees: PackedGraphs, norm: str) -> None:
    trial = trial_on_all(trees, norm=norm, hidden=3, layers=2)
    model = build_model(trial, trees)
    model.convolutions[0].xi.data.fill_(0.1)  # type: ignore[index, union-attr]
    before = {name: value.clone() for name, value in model.state_dict().items()}
    ids = np.arange(6)
    smallest, largest, loss, converged = batch_curvature(model, trees, ids, max_steps=100, tolerance=1e-8)
    assert converged
    after = model.state_dict()
    assert all(torch.allclose(value, after[name].to(value.dtype)) for name, value in before.items())
    assert model.training
    assert model.dropout.training

    batch = trees.batch(ids)
    inputs = model_inputs(trees, batch, Extremes.of(trees), may_pad=False)
    inputs["x"] = inputs["x"].double()
    model.dropout.eval()  # type: ignore[union-attr]
    names = [name for name, _ in model.named_parameters()]
    buffers = dict(model.named_buffers())

    def function(*values: torch.Tensor) -> torch.Tensor:
        state = dict(zip(names, values, strict=True)) | {name: b.clone() for name, b in buffers.items()}
        scores = torch.func.functional_call(model, state, (), inputs)
        return torch.nn.functional.cross_entropy(scores, batch.labels)

    values = tuple(parameter.detach() for parameter in model.parameters())
    rows = torch.autograd.functional.hessian(function, values)
    blocks = [
        torch.cat([block.reshape(a.numel(), b.numel()) for block, b in zip(row, values, strict=True)], 1)
        for row, a in zip(rows, values, strict=True)
    ]
    exact = torch.linalg.eigvalsh(torch.cat(blocks))
    assert loss == pytest.approx(float(function(*values)))
    assert largest == pytest.approx(float(exact[-1]), rel=1e-5)
    assert smallest == pytest.approx(float(exact[0]), rel=1e-5)


def test_curvature_along_training(trees: PackedGraphs) -> None:
    found = curvature_along_training(
        trees, ("graph", "none"), epochs=2, at=[0, 2], seeds=2, batch_size=16, device="cpu", hidden=3, layers=2
    )
    assert found.largest.shape == found.converged.shape == (2, 2, 2)
    assert (found.largest >= found.smallest).all()
    assert (found.loss > 0).all()
    summary = found.summary()
    assert list(summary) == ["graph", "none"]
    np.testing.assert_allclose(summary["none"]["largest"], np.median(found.largest[1], axis=1))
    figure = plot_curvature(found, title="trees")
    np.testing.assert_allclose(figure.axes[0].lines[1].get_ydata(), summary["none"]["largest"])
    assert len(figure.axes) == 3
