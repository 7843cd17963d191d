"""Batch statistics from the moments of graphs, and their deviation from the dataset's."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphnorm.analysis import batch_noise, graph_moments, noise_along_training
from graphnorm.analysis.batch_noise import Moments, along, layer_moments, norm_layers
from graphnorm.analysis.checkpoints import checkpoints, dense_first, trial_on_all
from graphnorm.analysis.plots import plot_noise
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.files import plain
from graphnorm.models import ResNet18
from graphnorm.training import build_model

SMALL = {"hidden": 6, "layers": 3}


@pytest.fixture(scope="module")
def trees() -> PackedGraphs:
    return synthetic.trees(60)


def test_moments_are_those_of_what_the_layer_sees(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, norm="batch", **SMALL), trees)
    moments = graph_moments(model, trees)
    assert list(moments) == norm_layers(model)
    assert len(moments) == 4
    assert model.training
    first = moments["convolutions.0.first_norm"]
    batch = trees.batch(np.arange(60))
    adjacency = torch.eye(batch.num_rows).index_put_((batch.row, batch.col), torch.ones(()), accumulate=True)
    convolution: torch.nn.Module = model.get_submodule("convolutions.0")
    seen = convolution.first(adjacency @ trees.features(batch)).detach().double()  # type: ignore[operator]
    for graph in (0, 7, 59):
        rows = seen[batch.ptr[graph] : batch.ptr[graph + 1]].numpy()
        assert first.count[graph] == len(rows)
        np.testing.assert_allclose(first.mean[graph], rows.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(first.variance[graph], rows.var(0), rtol=1e-4, atol=1e-6)
    groups = np.array([[3, 8, 20], [59, 1, 2]])
    mean, std = first.pooled(groups)
    for k, group in enumerate(groups):
        rows = np.concatenate([seen[batch.ptr[g] : batch.ptr[g + 1]].numpy() for g in group])
        np.testing.assert_allclose(mean[k], rows.mean(0), rtol=1e-5, atol=1e-6)
        np.testing.assert_allclose(std[k], rows.std(0), rtol=1e-4, atol=1e-6)
    some = graph_moments(model, trees, ["convolutions.0.first_norm"], np.array([7, 0]))
    np.testing.assert_allclose(some["convolutions.0.first_norm"].mean, first.mean[[7, 0]], rtol=1e-5, atol=1e-7)


def test_images() -> None:
    torch.manual_seed(0)
    model, images = ResNet18().eval(), torch.randn(4, 3, 32, 32)
    moments = layer_moments({"stem_norm": model.stem_norm}, [(lambda: model(images), None, 4)])["stem_norm"]
    seen = model.stem(images).detach().double().flatten(2).numpy()
    assert (moments.count == 1024).all()
    np.testing.assert_allclose(moments.mean, seen.mean(2), atol=1e-6)
    np.testing.assert_allclose(moments.variance, seen.var(2), atol=1e-6)
    assert not model.stem_norm._forward_pre_hooks
    assert sum(parameter.numel() for parameter in model.parameters()) == 11_173_962  # the usual ResNet18 of CIFAR-10


def test_deviation_is_what_sampling_theory_says() -> None:
    """Means of B of G independent values deviate by s·√((1/B)(G-B)/(G-1))."""
    random = np.random.default_rng(0)
    values = random.standard_normal((5000, 40)) * random.uniform(0.1, 10, 40) + random.uniform(-50, 50, 40)
    moments = Moments(np.ones(5000), values, np.zeros((5000, 40)))
    for size in (16, 256):
        noise = batch_noise(moments, size, batches=400)
        expected = np.sqrt((5000 - size) / 4999 / size)
        assert np.median(noise.mean_deviation) == pytest.approx(expected, rel=0.05)
        assert np.median(noise.std_deviation) == pytest.approx(expected / np.sqrt(2), rel=0.1)
        assert noise.relative_deviation[0] == pytest.approx(expected * np.sqrt(1.5), rel=0.07)
        assert (noise.mean_low < noise.mean).all()
        assert (noise.mean < noise.mean_high).all()
        np.testing.assert_allclose(noise.mean[0], values.mean(0))
        np.testing.assert_allclose(noise.std[0], values.std(0))


def test_batches_without_noise() -> None:
    alike = Moments(np.full(20, 9.0), np.tile([[1.0, 3.0]], (20, 1)), np.tile([[4.0, 0.0]], (20, 1)))
    noise = batch_noise(alike, 5, batches=7)
    assert noise.deviation[0, 0] == pytest.approx(0, abs=1e-12)
    assert np.isnan(noise.deviation[0, 1])  # a constant has no spread to compare with
    assert noise.relative_deviation[0] == pytest.approx(0, abs=1e-12)
    assert noise.typical_feature == 0
    constant = batch_noise(Moments(np.ones(4), np.ones((4, 1)), np.zeros((4, 1))), 2)
    assert np.isnan(constant.relative_deviation[0])
    assert constant.typical_feature == 0
    with pytest.raises(GraphnormError, match="batches of 21 cannot be drawn from 20"):
        batch_noise(alike, 21)


def test_along_training(trees: PackedGraphs) -> None:
    layers = noise_along_training(trees, batch_size=16, epochs=3, at=[0, 3], batches=10, device="cpu", **SMALL)
    assert [noise.layer for noise in layers][::3] == ["convolutions.0.first_norm", "convolutions.1.second_norm"]
    for noise in layers:
        assert noise.epochs.tolist() == [0, 3]
        assert noise.mean.shape == noise.std_deviation.shape == (2, 6)
        assert (noise.relative_deviation > 0).all()
    assert not np.allclose(layers[-1].mean[0], layers[-1].mean[1])  # it was trained
    json.dumps(plain([noise.summary() for noise in layers]))
    with pytest.raises(ValueError, match="one layer"):
        along([layers[0], layers[1]])
    figure = plot_noise(layers[:2], title="trees")
    feature = layers[1].typical_feature
    np.testing.assert_array_equal(figure.axes[1].lines[0].get_ydata(), layers[1].mean_high[:, feature])
    np.testing.assert_array_equal(figure.axes[3].lines[2].get_ydata(), layers[1].std_low[:, feature])
    np.testing.assert_allclose(figure.axes[5].lines[0].get_ydata(), layers[1].relative_deviation)
    with pytest.raises(GraphnormError, match="no layer"):
        plot_noise([])


def test_checkpoints_are_those_of_the_training(trees: PackedGraphs) -> None:
    trial = trial_on_all(trees, epochs=2, **SMALL)
    every = dict(checkpoints(trees, trial, seeds=2, device="cpu"))
    assert list(every) == [0, 1, 2]
    fresh = build_model(trial, trees).state_dict()
    assert all(torch.equal(value, fresh[name]) for name, value in every[0][0].state_dict().items())
    assert not torch.equal(every[0][0].head.weight, every[0][1].head.weight)
    last = dict(checkpoints(trees, trial, at=[2], seeds=2, device="cpu"))[2]
    for first, second in zip(every[2], last, strict=True):
        assert not first.training
        assert torch.equal(first.head.weight, second.head.weight)
    with pytest.raises(GraphnormError, match="name 0 to 2"):
        next(checkpoints(trees, trial, at=[3], device="cpu"))
    assert dense_first(100, 5) == [0, 2, 9, 31, 100]
    assert dense_first(2, 8) == [0, 1, 2]
    with pytest.raises(GraphnormError, match="two looks"):
        dense_first(5, 1)


def test_mistakes(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, norm="batch", **SMALL), trees)
    with pytest.raises(GraphnormError, match=r"no layer x\.y"):
        graph_moments(model, trees, ["x.y"])
    with pytest.raises(GraphnormError, match="no norm layer"):
        graph_moments(torch.nn.Linear(2, 2), trees)
