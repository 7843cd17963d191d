"""Batch noise, the learned α and the curvature of models along training, and the probes that measure them."""

from __future__ import annotations

import json
import pickle
from concurrent.futures import ProcessPoolExecutor
from multiprocessing import get_context

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphnorm import BatchNorm, GraphNorm
from graphnorm.analysis import (
    AlphaProbe,
    CurvatureProbe,
    Moments,
    NoiseProbe,
    Probe,
    alpha_along_training,
    batch_noise,
    checkpoints,
    curvature_along_training,
    graph_moments,
    hessian_spectrum,
    lanczos,
    layer_moments,
    learned_alpha,
    log_spaced_epochs,
    module_loss,
    noise_along_training,
    run_probe,
    trial_on_all,
)
from graphnorm.analysis.along_training import readable_layer
from graphnorm.analysis.plots import plot_alpha, plot_curvature, plot_noise
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.files import plain
from graphnorm.models import ResNet18
from graphnorm.training.inputs import ModelInputs, build_model

SMALL = {"hidden": 6, "layers": 3}


@pytest.fixture(scope="module")
def trees() -> PackedGraphs:
    return synthetic.trees(60)


# ---- training and looking -------------------------------------------------------------------------------------------


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
    with pytest.raises(GraphnormError, match="name epochs 0 to 2"):
        next(checkpoints(trees, trial, at=[3], device="cpu"))


def test_log_spaced_epochs() -> None:
    assert log_spaced_epochs(100, 5) == (0, 2, 9, 31, 100)
    assert log_spaced_epochs(2, 8) == (0, 1, 2)
    with pytest.raises(GraphnormError, match="two looks"):
        log_spaced_epochs(5, 1)


PROBES: list[Probe] = [
    NoiseProbe((0, 2), 16, ("convolutions.1.second_norm",), batches=10, seed=3, ids=tuple(range(40))),
    AlphaProbe((0, 2)),
    CurvatureProbe((0, 2), tuple(range(16))),
]


@pytest.mark.parametrize("probe", PROBES, ids=lambda probe: type(probe).__name__)
def test_probes_are_values(trees: PackedGraphs, probe: Probe) -> None:
    """A probe survives pickling, leaves the model as it was, and always gives arrays of the same names and shapes."""
    assert pickle.loads(pickle.dumps(probe)) == probe
    trial = trial_on_all(trees, norm="graph", epochs=2, **SMALL)
    looks = []
    for _, (model,) in checkpoints(trees, trial, at=probe.at, device="cpu"):
        before = {name: value.clone() for name, value in model.state_dict().items()}
        looks.append(probe.look(model, trees))
        assert all(torch.equal(value, before[name]) for name, value in model.state_dict().items())
        assert not any(module.training for module in model.modules())
    assert [{name: array.shape for name, array in look.items()} for look in looks[1:]] == [
        {name: array.shape for name, array in looks[0].items()}
    ]
    (seen,) = run_probe(probe, trees, trial, device="cpu")
    for name, arrays in seen.items():
        np.testing.assert_array_equal(arrays, [look[name] for look in looks])


def test_a_probe_in_another_process(trees: PackedGraphs) -> None:
    model = build_model(trial_on_all(trees, **SMALL), trees).eval()
    with ProcessPoolExecutor(1, mp_context=get_context("spawn")) as pool:
        found = pool.submit(AlphaProbe((0,)).look, model, trees).result()
    assert (found["convolutions.0.first_norm"] == 1).all()


# ---- batch noise ----------------------------------------------------------------------------------------------------


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


# ---- the learned α --------------------------------------------------------------------------------------------------


def test_alpha(trees: PackedGraphs) -> None:
    found = alpha_along_training(trees, epochs=3, at=[3, 0], seeds=2, batch_size=8, device="cpu", **SMALL)
    assert found.layers[0] == "convolutions.0.first_norm"
    assert found.epochs.tolist() == [0, 3]
    assert len(found.layers) == 4
    assert all(values.shape == (2, 2, 6) for values in found.values)
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


# ---- curvature ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("norm", ["graph", "batch", "none"])
def test_curvature_is_that_of_the_dense_hessian(trees: PackedGraphs, norm: str) -> None:
    trial = trial_on_all(trees, norm=norm, hidden=3, layers=2)
    model = build_model(trial, trees)
    model.convolutions[0].xi.data.fill_(0.1)  # type: ignore[index, union-attr]
    ids = np.arange(6)
    found = CurvatureProbe((0,), tuple(ids), max_steps=100, tolerance=1e-8).look(model, trees)
    assert found["converged"]

    model.double()
    batch = trees.batch(ids)
    inputs = ModelInputs(trees)(batch, may_pad=False)
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
    assert found["loss"] == pytest.approx(float(function(*values)))
    assert found["largest"] == pytest.approx(float(exact[-1]), rel=1e-5)
    assert found["smallest"] == pytest.approx(float(exact[0]), rel=1e-5)


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


# ---- extreme eigenvalues of a Hessian -------------------------------------------------------------------------------


def small_problem(norm: torch.nn.Module, dtype: torch.dtype):  # type: ignore[no-untyped-def]
    model = torch.nn.ModuleList([torch.nn.Linear(4, 6), norm, torch.nn.Linear(6, 2)]).to(dtype)
    x, batch, labels = torch.randn(24, 4, dtype=dtype), torch.arange(24) // 6, torch.randint(0, 2, (24,))

    def loss(layers: torch.nn.Module) -> Tensor:
        first, middle, last = layers  # type: ignore[misc]
        return cross_entropy(last(torch.tanh(middle(first(x), batch))), labels)

    return model, module_loss(model, loss)


def dense_eigenvalues(function, parameters: dict[str, Tensor]) -> np.ndarray:  # type: ignore[no-untyped-def]
    sizes = [value.numel() for value in parameters.values()]

    def flat(vector: Tensor) -> Tensor:
        parts = zip(parameters.items(), vector.split(sizes), strict=True)
        return function({name: part.reshape(value.shape) for (name, value), part in parts})

    start = torch.cat([value.detach().reshape(-1) for value in parameters.values()])
    return np.linalg.eigvalsh(torch.autograd.functional.hessian(flat, start).double().numpy())


@pytest.mark.parametrize("norm", [GraphNorm, BatchNorm, torch.nn.Identity])
def test_against_a_dense_hessian(norm: type[torch.nn.Module]) -> None:
    layer = norm(6)
    if norm is torch.nn.Identity:
        layer.forward = lambda x, batch: x  # type: ignore[method-assign]
    model, function = small_problem(layer, torch.float64)
    parameters = dict(model.named_parameters())
    before = {name: value.clone() for name, value in model.state_dict().items()}
    exact = dense_eigenvalues(function, parameters)
    result = hessian_spectrum(function, parameters, tolerance=1e-8)
    assert result.converged
    assert result.steps < sum(value.numel() for value in parameters.values())
    assert result.largest == pytest.approx(exact[-1], rel=1e-8)
    assert result.smallest == pytest.approx(exact[0], abs=1e-8 * exact[-1])
    after = model.state_dict()
    assert all(torch.equal(before[name], after[name]) for name in before)  # buffers too
    assert all(value.grad is None for value in parameters.values())


def test_single_precision() -> None:
    model, function = small_problem(GraphNorm(6), torch.float32)
    parameters = dict(model.named_parameters())
    exact = dense_eigenvalues(function, parameters)
    result = hessian_spectrum(function, parameters)
    assert result.converged
    assert result.largest == pytest.approx(exact[-1], rel=1e-3)
    assert result.smallest == pytest.approx(exact[0], abs=1e-3 * np.abs(exact).max())


def test_residuals_bound_the_error() -> None:
    random = np.random.default_rng(0)
    exact = np.sort(random.standard_normal(200))
    vectors = np.linalg.qr(random.standard_normal((200, 200)))[0]
    matrix = torch.from_numpy(vectors * exact @ vectors.T)
    start = torch.from_numpy(random.standard_normal(200))
    result = lanczos(lambda v: matrix @ v, start, max_steps=15, tolerance=1e-12)
    assert not result.converged
    assert result.steps == 15
    for value, residual in zip(result.eigenvalues, result.residuals, strict=True):
        assert np.abs(exact - value).min() <= residual + 1e-12
    assert exact[0] <= result.smallest < result.largest <= exact[-1]
    assert result.weights.sum() == pytest.approx(1)
    # Quadrature: exact for the quadratic form of the start vector.
    unit = start / start.norm()
    assert result.weights @ result.eigenvalues**3 == pytest.approx(float(unit @ matrix @ matrix @ matrix @ unit))


def test_many_steps_stay_orthogonal() -> None:
    """Without full orthogonalization the largest eigenvalue comes up again and again."""
    exact = np.concatenate((np.linspace(0, 1, 99), [1000.0]))
    diagonal = torch.from_numpy(exact)
    result = lanczos(lambda v: diagonal * v, torch.ones(100, dtype=torch.float64), max_steps=100, tolerance=0.0)
    assert (result.eigenvalues > 500).sum() == 1
    np.testing.assert_allclose(result.eigenvalues, exact, atol=1e-8)


@pytest.mark.parametrize("sign", [1, -1])
def test_the_smaller_end_has_its_own_accuracy(sign: int) -> None:
    exact = sign * np.concatenate(([-0.5], np.linspace(0, 0.3, 98), [1000.0]))
    diagonal, start = torch.from_numpy(exact), torch.ones(100, dtype=torch.float64)
    result = lanczos(lambda v: diagonal * v, start, tolerance=1e-2)
    assert result.converged
    assert result.smallest == pytest.approx(exact.min(), rel=1e-2)
    assert result.largest == pytest.approx(exact.max(), rel=1e-2)
    short = lanczos(lambda v: diagonal * v, start, max_steps=3, tolerance=1e-2)
    assert not short.converged  # only the larger end is exact


def test_hessians_in_corner_cases() -> None:
    linear = hessian_spectrum(lambda p: (2 * p["w"]).sum(), {"w": torch.ones(5)})
    assert (linear.smallest, linear.largest, linear.converged) == (0, 0, True)
    used, unused = torch.ones(1, dtype=torch.float64), torch.ones(4, dtype=torch.float64)
    partly = hessian_spectrum(lambda p: (3 * p["a"] ** 2).sum(), {"a": used, "b": unused})
    assert (partly.smallest, partly.largest) == pytest.approx((0, 6), abs=1e-12)
    identity = hessian_spectrum(lambda p: (p["w"] ** 2).sum(), {"w": torch.ones(5, dtype=torch.float64)})
    assert identity.converged
    assert identity.largest == pytest.approx(2)
    one = hessian_spectrum(lambda p: 4 * p["w"] ** 2, {"w": torch.tensor(1.0)})
    assert one.largest == one.smallest == pytest.approx(8)
    assert one.converged
    assert set(one.to_dict()) == {"eigenvalues", "residuals", "weights", "converged"}
    same = [hessian_spectrum(lambda p: (p["w"] ** 4).sum(), {"w": torch.arange(9.0)}, seed=3).largest for _ in range(2)]
    assert same[0] == same[1]


@pytest.mark.parametrize(
    ("loss", "parameters", "message"),
    [
        (lambda p: torch.zeros(()), {}, "no parameters"),
        (lambda p: p["w"] ** 2, {"w": torch.ones(2)}, r"shape \(2,\)"),
        (lambda p: (p["w"] ** 0.5).sum(), {"w": torch.zeros(2)}, "not finite"),
    ],
)
def test_losses_without_a_hessian(loss: object, parameters: dict[str, Tensor], message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        hessian_spectrum(loss, parameters)  # type: ignore[arg-type]
    with pytest.raises(GraphnormError, match="one step or more"):
        lanczos(lambda v: v, torch.ones(2), max_steps=0)
