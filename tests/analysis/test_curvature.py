"""Extreme eigenvalues of Hessians, against dense ones, of any loss and along training."""

from __future__ import annotations

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.nn.functional import cross_entropy

from graphnorm import BatchNorm, GraphNorm
from graphnorm.analysis import (
    CurvatureProbe,
    curvature_along_training,
    hessian_spectrum,
    lanczos,
    module_loss,
    trial_on_all,
)
from graphnorm.analysis.plots import plot_curvature
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.training.inputs import ModelInputs, build_model

# ---- along training -------------------------------------------------------------------------------------------------


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


# ---- of any loss ----------------------------------------------------------------------------------------------------


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
