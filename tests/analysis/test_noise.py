"""Batch noise: moments of what a layer sees, and batches against the dataset."""

from __future__ import annotations

import json

import numpy as np
import pytest
import torch

from graphnorm.analysis import (
    Moments,
    batch_noise,
    graph_moments,
    layer_moments,
    noise_along_training,
    readable_layer,
    trial_on_all,
)
from graphnorm.analysis.plots import plot_noise
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.files import plain
from graphnorm.models import ResNet18
from graphnorm.training.inputs import build_model

SMALL = {"hidden": 6, "layers": 3}


def test_moments_are_those_of_what_the_layer_sees(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, norm="batch", **SMALL), trees)
    moments = graph_moments(model, trees)
    assert list(moments) == [f"convolutions.{k}.{which}_norm" for k in (0, 1) for which in ("first", "second")]
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


def test_noise_along_training(trees: PackedGraphs) -> None:
    layers = noise_along_training(trees, batch_size=16, epochs=3, at=[0, 3], batches=10, device="cpu", **SMALL)
    assert [noise.layer for noise in layers][::3] == ["convolutions.0.first_norm", "convolutions.1.second_norm"]
    for noise in layers:
        assert noise.epochs.tolist() == [0, 3]
        assert noise.mean.shape == noise.std_deviation.shape == (2, 6)
        assert (noise.relative_deviation > 0).all()
    assert not np.allclose(layers[-1].mean[0], layers[-1].mean[1])  # it was trained
    json.dumps(plain([noise.summary() for noise in layers]))
    figure = plot_noise({"few": layers[:1], "two": layers[:2]}, title="trees")
    second = layers[1]
    feature = second.typical_feature
    mean, std = second.mean[:, feature], second.std[:, feature]
    of_mean, of_std, of_all = figure.axes[3:]
    np.testing.assert_allclose(of_mean.lines[3].get_ydata(), (second.mean_high[:, feature] - mean) / std)
    np.testing.assert_allclose(of_std.lines[2].get_ydata(), second.std_low[:, feature] / std)
    np.testing.assert_allclose(of_all.lines[1].get_ydata(), second.relative_deviation)
    assert [text.get_text() for text in of_all.texts] == [readable_layer(layer.layer) for layer in layers[:2]]
    for above, below in zip(figure.axes[:3], figure.axes[3:], strict=True):  # one scale, that holds all
        assert above.get_ylim() == below.get_ylim()
        for line in (*above.lines, *below.lines):
            assert np.min(line.get_ydata()) >= above.get_ylim()[0]
            assert np.max(line.get_ydata()) <= above.get_ylim()[1]
    for nothing in ({}, {"none": []}):
        with pytest.raises(GraphnormError, match="no layer"):
            plot_noise(nothing)


def test_layers_that_are_not_there(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, norm="batch", **SMALL), trees)
    with pytest.raises(GraphnormError, match=r"no layer x\.y"):
        graph_moments(model, trees, ["x.y"])
    with pytest.raises(GraphnormError, match="no norm layer"):
        graph_moments(torch.nn.Linear(2, 2), trees)
