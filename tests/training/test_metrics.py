"""Metrics of stacked members, against scikit-learn one member and one target at a time."""

from __future__ import annotations

import warnings

import numpy as np
import pytest
import torch

from graphnorm.settings import METRIC_NAMES
from graphnorm.training import METRICS, TASKS

sklearn = pytest.importorskip("sklearn.metrics")
MEMBERS, GRAPHS, TARGETS = 3, 60, 4
GENERATOR = torch.Generator().manual_seed(0)


def rand(*shape: int) -> torch.Tensor:
    return torch.rand(shape, generator=GENERATOR)


HOLES = rand(MEMBERS, GRAPHS, TARGETS) < 0.3
BINARY = torch.where(HOLES, torch.nan, (rand(MEMBERS, GRAPHS, TARGETS) < 0.3).float())
VALUES = torch.where(HOLES, torch.nan, 50 * rand(MEMBERS, GRAPHS, TARGETS))
LABELS = torch.randint(0, 3, (MEMBERS, GRAPHS), generator=GENERATOR)
LABELS[1, 30:] = -1
SCORES = rand(MEMBERS, GRAPHS, TARGETS) - 0.5

OF_BINARY = {
    "roc-auc": sklearn.roc_auc_score,
    "average-precision": sklearn.average_precision_score,
    "accuracy": lambda y, s: sklearn.accuracy_score(y, s > 0),
    "balanced-accuracy": lambda y, s: sklearn.balanced_accuracy_score(y, s > 0),
    "f1": lambda y, s: sklearn.f1_score(y, s > 0),
}
OF_VALUES = {
    "rmse": sklearn.root_mean_squared_error,
    "mae": sklearn.mean_absolute_error,
    "r2": sklearn.r2_score,
}


def test_the_options_are_the_metrics() -> None:
    assert tuple(METRICS) == METRIC_NAMES
    assert {key for task in TASKS.values() for key in task.metrics} == set(METRICS)


@pytest.mark.parametrize("ties", [False, True])
@pytest.mark.parametrize("metric", [*TASKS["binary"].metrics, *TASKS["values"].metrics])
def test_targets_with_missing_labels(metric: str, ties: bool) -> None:
    values = metric in OF_VALUES
    task, targets, known = TASKS["values" if values else "binary"], VALUES if values else BINARY, OF_VALUES | OF_BINARY
    scores = (8 * SCORES).round() / 8 if ties else SCORES
    found = task.each(metric, scores, targets)
    expected = np.empty((MEMBERS, TARGETS))
    for m in range(MEMBERS):
        for t in range(TARGETS):
            there = ~targets[m, :, t].isnan()
            expected[m, t] = known[metric](targets[m, there, t].numpy(), scores[m, there, t].numpy())
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)
    np.testing.assert_allclose(task.score(metric, scores, targets).numpy(), expected.mean(1), rtol=1e-5)


@pytest.mark.parametrize("classes", [2, 3])
@pytest.mark.parametrize("metric", TASKS["classes"].metrics)
def test_classes(metric: str, classes: int) -> None:
    labels, scores = LABELS.clamp(max=classes - 1), 3 * SCORES[..., :classes]
    found = TASKS["classes"].score(metric, scores, labels)
    expected = []
    for m in range(MEMBERS):
        y = labels[m][labels[m] >= 0].numpy()
        p = scores[m][labels[m] >= 0].softmax(-1).double().numpy()
        p /= p.sum(1, keepdims=True)
        one_hot, chosen = np.eye(classes)[y], p.argmax(1)
        expected.append(
            {
                "accuracy": lambda y=y, c=chosen: sklearn.accuracy_score(y, c),
                "balanced-accuracy": lambda y=y, c=chosen: sklearn.balanced_accuracy_score(y, c),
                "roc-auc": lambda y=y, p=p: sklearn.roc_auc_score(y, p[:, 1] if classes == 2 else p, multi_class="ovr"),
                "average-precision": lambda y=y, p=p, o=one_hot: sklearn.average_precision_score(
                    y if classes == 2 else o, p[:, 1] if classes == 2 else p
                ),
                "f1": lambda y=y, c=chosen: sklearn.f1_score(y, c, average="binary" if classes == 2 else "macro"),
            }[metric]()
        )
    np.testing.assert_allclose(found.numpy(), expected, rtol=1e-5)


@pytest.mark.parametrize("metric", TASKS["binary"].metrics)
def test_the_mean_is_over_targets_that_have_both_classes(metric: str) -> None:
    targets = BINARY.clone()
    targets[0, :, 1] = 1
    targets[0, :, 2] = torch.nan
    task = TASKS["binary"]
    each = task.each(metric, SCORES, targets)
    assert each[0].isnan().tolist() == [False, True, True, False]
    assert task.score(metric, SCORES, targets)[0].item() == pytest.approx(float(each[0, [0, 3]].mean()))
    assert task.score(metric, SCORES, torch.ones_like(targets)).isnan().all()


@pytest.mark.parametrize("name", TASKS)
def test_a_score_of_nan_counts_only_where_a_target_is(name: str) -> None:
    task, wanted = TASKS[name], {"classes": LABELS, "binary": BINARY, "values": VALUES}[name]
    scores = SCORES[..., :3].clone() if name == "classes" else SCORES.clone()
    scores[1, 40, 0] = torch.nan
    if name != "classes":
        wanted = wanted.clone()
        wanted[1, 40, 0] = torch.nan
    for metric in task.metrics:
        assert not task.score(metric, scores, wanted).isnan().any()
    scores[2, 3, 0] = torch.nan
    if name != "classes":
        wanted[2, 3, 0] = 1
    for metric in task.metrics:
        assert task.score(metric, scores, wanted).isnan().tolist() == [False, False, True]


def test_many_targets_are_taken_in_parts(monkeypatch: pytest.MonkeyPatch) -> None:
    whole = TASKS["binary"].each("roc-auc", SCORES, BINARY)
    monkeypatch.setattr("graphnorm.training.task.TARGETS_AT_ONCE", 3)
    assert torch.equal(TASKS["binary"].each("roc-auc", SCORES, BINARY), whole)


def test_large_values_keep_their_precision() -> None:
    targets = 1e6 + VALUES
    expected = sklearn.r2_score(np.array([1e6, 1e6 + 1, 1e6 + 3]), np.array([1e6, 1e6 + 2, 1e6 + 3]))
    three = torch.tensor([[[1e6], [1e6 + 1], [1e6 + 3]]])
    assert TASKS["values"].score("r2", three + torch.tensor([[[0.0], [1], [0]]]), three).item() == pytest.approx(
        expected
    )
    assert TASKS["values"].score("r2", targets, torch.full_like(targets, 0.1)).isnan().all()


def test_directions_and_texts() -> None:
    assert [key for key, metric in METRICS.items() if not metric.higher_is_better] == ["mae", "rmse"]
    assert METRICS["rmse"].better(1.0, 2.0) == 1.0
    assert METRICS["rmse"].text(0.001234, like=0.5) == "0.001"
    assert METRICS["rmse"].text(0) == "0.00"
    assert METRICS["mae"].text(1.5e-9) == "1.50e-09"
    assert METRICS["accuracy"].with_unit(75) == "75.0 %"


@pytest.fixture(autouse=True)
def _no_warnings():
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        yield


@pytest.mark.parametrize("metric", ["roc-auc", "average-precision"])
def test_infinite_scores_do_not_tie_with_missing_targets(metric: str) -> None:
    scores = torch.tensor([1.0, 2.0, torch.inf, 0.0, torch.inf])
    targets = torch.tensor([0.0, 0.0, 1.0, torch.nan, torch.nan])
    assert TASKS["binary"].each(metric, scores[None, :, None], targets[None, :, None]).item() == 1


@pytest.mark.parametrize("metric", ["roc-auc", "average-precision"])
def test_confident_classes_keep_their_ranks(metric: str) -> None:
    """In single precision most of these probabilities are 0 or 1."""
    scores = 200 * rand(GRAPHS, 3)
    labels = torch.randint(0, 3, (GRAPHS,), generator=GENERATOR)
    odds = [scores[:, k] - scores[:, [j for j in range(3) if j != k]].double().logsumexp(1) for k in range(3)]
    expected = np.mean([OF_BINARY[metric](labels == k, odds[k].numpy()) for k in range(3)])
    assert TASKS["classes"].score(metric, scores[None], labels[None]).item() == pytest.approx(expected, abs=1e-6)
