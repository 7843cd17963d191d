"""The linear example: assumptions, closed forms, rates; the gradient formula; Fact 1."""

from __future__ import annotations

import json

import networkx as nx
import numpy as np
import pytest
import torch

from graphnorm import InstanceNorm
from graphnorm.analysis import (
    Aggregation,
    check_assumptions,
    check_weight_gradient,
    closest_instance_norm,
    convergence_rates,
    dense_q,
    gradient_descent,
    left_on_complete_graphs,
    left_on_regular_graphs,
    linear_task,
    theory,
    weight_gradient,
)
from graphnorm.data import from_networkx
from graphnorm.errors import GraphnormError
from graphnorm.layers.functional import graph_norm, instance_norm


@pytest.mark.parametrize("noise", [0.0, 0.1, 0.3])
def test_the_assumptions_hold(noise: float) -> None:
    task = linear_task(400, noise, seed=4)
    assumptions = check_assumptions(task)
    assert assumptions.hold
    assert assumptions.mean_rank_gap == pytest.approx(0.25)
    assert (assumptions.noise > 1e-3) == (noise > 0)
    mixed = task.features @ task.aggregation
    along = np.ones(10) @ np.linalg.inv(task.mean) @ mixed
    np.testing.assert_allclose(along, np.broadcast_to(along[:, :1], along.shape), atol=1e-10)  # 1ᵀY⁻¹XQN = 0
    np.testing.assert_allclose(task.aggregation, task.aggregation.transpose(0, 2, 1))
    np.testing.assert_allclose(task.aggregation.sum(2), 7.0)


def test_a_broken_assumption_is_noticed() -> None:
    task = linear_task(100, 0.1)
    crooked = task._replace(aggregation=task.aggregation + 0.1 * np.random.default_rng(0).random((100, 10, 10)))
    assert not check_assumptions(crooked).hold
    uneven = task._replace(readout=np.abs(task.readout))
    assert not check_assumptions(uneven).hold
    flat = task.mean.copy()
    flat[0] = flat[1] + 1e-9
    assert not check_assumptions(task._replace(mean=flat)).hold


def test_the_closed_form_of_the_second_moments() -> None:
    samples = 100_000
    task = linear_task(samples, 0.3, nodes=6, degree=2, seed=1)
    for shift, expected in ((False, task.second_moment), (True, task.second_moment_shifted)):
        combined = task.combined(shift)
        error = np.abs(combined @ combined.T / samples - expected).max() / np.abs(expected).max()
        assert error < 0.02
    mixed = task.features @ task.aggregation
    assert (np.abs(mixed.mean(0) - task.mean) < 5 * mixed.std(0) / samples**0.5).all()
    assert np.linalg.norm(np.linalg.inv(task.mean).T.sum(1) @ task.second_moment_shifted) < 1e-9


def test_more_samples_come_closer_to_the_limit() -> None:
    study = convergence_rates(noise=(0.1,), samples=(100, 20_000), seeds=(0, 1))
    few, many = (study.expected_error[study.samples == m].mean() for m in (100, 20_000))
    assert many < 0.03
    assert few > 2 * many


def test_rates_are_as_predicted() -> None:
    study = convergence_rates(noise=(0.0, 0.1, 0.2), samples=(200, 1000), seeds=(0, 1))
    assert study.assumptions_hold.all()
    assert study.error.max() < 0.02
    assert (study.measured[:, 1] < study.measured[:, 0]).all()
    assert (study.speedup > 1).all()
    assert json.loads(json.dumps(study.to_dict()))["samples"][:2] == [200, 200]
    assert study.summary()["shift_faster"] == 12


def test_descent_on_a_known_problem() -> None:
    """Z = diag(1, 2, 4): ρ = 1 − 1/16, exactly once the first direction is all that is left."""
    rate, steps = gradient_descent(np.diag([1.0, 2.0, 4.0]), np.array([1.0, 1.0, 1.0]))
    assert rate == pytest.approx(15 / 16, rel=1e-6)
    assert 300 < steps < 600
    with pytest.raises(GraphnormError, match="do not depend"):
        gradient_descent(np.diag([1.0, 0.0]), np.array([0.0, 1.0]))


@pytest.mark.parametrize(
    "options", [{"noise": 1.0}, {"noise": -0.1}, {"samples": 5}, {"degree": 3}, {"nodes": 4, "degree": 4}]
)
def test_mistakes(options: dict[str, float]) -> None:
    with pytest.raises(GraphnormError, match="do not make the example"):
        linear_task(**{"samples": 100, "noise": 0.1} | options)  # type: ignore[arg-type]


def test_a_singular_mean_aggregation() -> None:
    with pytest.raises(GraphnormError, match="another ξ"):
        linear_task(100, 0.0, nodes=6, degree=2, xi=0.0)  # a ring of six has the eigenvalue −1


@pytest.mark.parametrize("seed", range(3))
def test_the_gradient_formula(seed: int) -> None:
    check = check_weight_gradient(seed=seed)
    assert max(check.fixed_scale, check.whole, check.kronecker, check.without_norm) < 1e-12
    assert check.part_through_scale > 0.1  # the paper's formula is not the whole gradient


def test_the_gradient_formula_against_the_layer() -> None:
    """The same for the library's own InstanceNorm, with its eps."""
    weight = torch.randn(3, 5, dtype=torch.float64, requires_grad=True)
    h, q, g = (torch.randn(*shape, dtype=torch.float64) for shape in ((5, 8), (8, 8), (3, 8)))
    norm = InstanceNorm(3).double()
    z = norm((weight @ h @ q).T).T
    (expected,) = torch.autograd.grad((z * g).sum(), weight)
    with torch.no_grad():
        formula = weight_gradient(weight, h, q, g, eps=norm.eps)
    torch.testing.assert_close(formula, expected, rtol=1e-10, atol=1e-12)


def test_fact_1() -> None:
    distances = [closest_instance_norm(alpha).distance for alpha in (-1.0, 0.0, 0.5, 0.9, 1.0, 1.1)]
    assert distances[4] < 1e-12
    assert min(distances[:4] + distances[5:]) > 0.05
    witness = closest_instance_norm(0.3)
    rows = torch.from_numpy(witness.x)
    for row, output in zip(rows, witness.graph_norm, strict=True):
        expected = graph_norm(row[:, None], mean_scale=torch.tensor([0.3], dtype=torch.float64), eps=0.0)
        np.testing.assert_allclose(output, expected[:, 0])
    first, second = (instance_norm(row[:, None]) for row in rows)
    torch.testing.assert_close(first, second)  # every InstanceNorm: the same on both graphs
    np.testing.assert_allclose(witness.closest[0], witness.closest[1], atol=1e-12)
    with pytest.raises(GraphnormError, match="agree on equal graphs"):
        closest_instance_norm(0.5, shift=0)


def test_what_the_shift_leaves_on_complete_and_on_regular_graphs() -> None:
    """Propositions 1 and 2, on the graphs that they are about and on no others."""
    shapes = [nx.complete_graph(5), nx.path_graph(5), nx.complete_graph(2), nx.cycle_graph(6), nx.star_graph(4)]
    graphs = from_networkx(shapes, labels=[0, 1, 0, 1, 0])
    for xi in (0.0, 0.3, -1.5):
        left = left_on_complete_graphs(graphs, xi)
        assert len(left) == 2
        assert left.max() < 1e-15
    regular = left_on_regular_graphs(graphs)
    assert len(regular) == 3
    assert regular.max() < 1e-12


def test_a_wrong_q_would_be_noticed(monkeypatch: pytest.MonkeyPatch) -> None:
    graphs = from_networkx([nx.complete_graph(5), nx.path_graph(5)], labels=[0, 1])
    q = dense_q(graphs.batch([0]), Aggregation(xi=0.5))
    monkeypatch.setattr(theory, "dense_q", lambda *_: q)
    assert left_on_complete_graphs(graphs, 0.1) > 0.05
    monkeypatch.setattr(theory, "sparse_q", lambda *_: np.diag(np.arange(5.0)))
    assert left_on_regular_graphs(graphs) > 0.1
