"""Losses and metrics of stacked members, against scikit-learn and torch one member at a time."""

from __future__ import annotations

import numpy as np
import pytest
import torch

from graphnorm.data import synthetic
from graphnorm.training import TASKS
from graphnorm.training.task import accuracy, binary_loss, class_loss, roc_auc, select

torch.manual_seed(0)
LABELS = torch.randint(0, 2, (3, 40))
LABELS[1, 30:] = -1
LABELS[2, 5:12] = -1


def members(scores):
    return [(scores[m][LABELS[m] >= 0], LABELS[m][LABELS[m] >= 0]) for m in range(3)]


def test_losses_are_means_over_the_real_places():
    scores = torch.randn(3, 40, 2)
    expected = torch.stack([torch.nn.functional.cross_entropy(*member) for member in members(scores)])
    torch.testing.assert_close(class_loss(scores, LABELS), expected)
    odds = torch.randn(3, 40, 1)
    each = [torch.nn.functional.binary_cross_entropy_with_logits(s[:, 0], y.float()) for s, y in members(odds)]
    torch.testing.assert_close(binary_loss(odds, LABELS), torch.stack(each))
    assert class_loss(scores, torch.full_like(LABELS, -1)).tolist() == [0, 0, 0]


def test_accuracy():
    scores = torch.randn(3, 40, 2)
    expected = [float((s.argmax(1) == y).float().mean()) for s, y in members(scores)]
    assert accuracy(scores, LABELS).tolist() == pytest.approx(expected)
    scores[0, 3, 1] = torch.nan
    scores[1, 35] = torch.nan  # an empty place
    assert accuracy(scores, LABELS).isnan().tolist() == [True, False, False]


@pytest.mark.parametrize("ties", [False, True])
def test_area_under_the_roc_curve(ties):
    roc_auc_score = pytest.importorskip("sklearn.metrics").roc_auc_score
    scores = torch.randn(3, 40, 1)
    scores = (3 * scores).round() if ties else scores
    expected = [roc_auc_score(y.numpy(), s[:, 0].numpy()) for s, y in members(scores)]
    np.testing.assert_allclose(roc_auc(scores, LABELS).numpy(), expected, rtol=1e-6)


def test_select():
    values = torch.arange(12).view(2, 6)
    assert select(values, torch.tensor([[5, 0], [1, -1]]))[:, :1].tolist() == [[5], [7]]
    assert select(values[..., None].expand(2, 6, 3), torch.tensor([[2], [4]])).shape == (2, 1, 3)


TREES = synthetic.trees(num_graphs=50, seed=0)


@pytest.mark.parametrize("name", TASKS)
def test_the_table_of_tasks(name):
    """Loss, metric and chance of each row by scikit-learn, from the probabilities that it gives."""
    metrics = pytest.importorskip("sklearn.metrics")
    task = TASKS[name]
    outputs, labels = task.outputs(TREES), torch.randint(0, 2, (1, 40))
    scores = torch.randn(1, 40, outputs)
    probabilities = task.probabilities(scores[0].double()).numpy()
    np.testing.assert_allclose(probabilities.sum(1), 1, rtol=1e-6)
    known = {
        "accuracy": lambda: metrics.accuracy_score(labels[0], probabilities.argmax(1)),
        "ROC-AUC": lambda: metrics.roc_auc_score(labels[0], probabilities[:, 1]),
    }
    assert task.score(scores, labels).item() == pytest.approx(known[task.metric]())
    assert task.loss(scores, labels).item() == pytest.approx(metrics.log_loss(labels[0], probabilities), rel=1e-5)
    blind = torch.zeros(1, TREES.num_graphs, outputs)
    if outputs > 1:
        blind[..., TREES.labels.bincount().argmax()] = 1
    assert task.score(blind, TREES.labels[None].long()).item() == pytest.approx(task.chance(TREES))
