"""Losses, chances and the choice of a metric."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from torch.nn import functional

from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.training import TASKS, find_metric
from graphnorm.training.task import choose_metric, present, scale_of, select

TREES = synthetic.trees(num_graphs=50, seed=0)
torch.manual_seed(0)
LABELS = torch.randint(0, 2, (3, 40))
LABELS[1, 30:] = -1
LABELS[2, 5:12] = -1
TARGETS = torch.where(torch.rand(3, 40, 2) < 0.4, torch.nan, torch.randint(0, 2, (3, 40, 2)).float())


def with_targets(targets: torch.Tensor, task: str) -> PackedGraphs:
    names = tuple(f"t{k}" for k in range(targets.shape[1]))
    bare = {"labels": torch.zeros_like(TREES.labels), "classes": ("unknown",)}
    return replace(TREES, **bare, task=task, targets=targets, target_names=names)


def test_losses_are_means_over_what_is_there() -> None:
    scores = torch.randn(3, 40, 2)
    for name, wanted, loss in (
        ("classes", LABELS, functional.cross_entropy),
        ("binary", TARGETS, functional.binary_cross_entropy_with_logits),
        ("values", TARGETS, functional.mse_loss),
    ):
        expected = [loss(scores[m][present(wanted)[m]], wanted[m][present(wanted)[m]]) for m in range(3)]
        torch.testing.assert_close(TASKS[name].loss(scores, wanted), torch.stack(expected))
        nothing = torch.full_like(wanted, torch.nan if name != "classes" else -1)
        assert TASKS[name].loss(scores, nothing).tolist() == [0, 0, 0]


@pytest.mark.parametrize("name", ["binary", "values"])
def test_missing_targets_have_no_gradient(name: str) -> None:
    scores = torch.randn(3, 40, 2, requires_grad=True)
    TASKS[name].loss(scores, TARGETS).sum().backward()
    assert scores.grad is not None
    assert torch.equal(scores.grad != 0, ~TARGETS.isnan())


def test_select() -> None:
    values = torch.arange(12).view(2, 6)
    assert select(values, torch.tensor([[5, 0], [1, -1]]))[:, :1].tolist() == [[5], [7]]
    assert select(values[..., None].expand(2, 6, 3), torch.tensor([[2], [4]])).shape == (2, 1, 3)


def test_two_classes_are_a_binary_target_of_the_official_protocol() -> None:
    batch = TREES.batch([3, 1, -1])
    wanted = TASKS["binary"].wanted(batch)
    assert wanted[:2, 0].tolist() == TREES.labels[[3, 1]].tolist()
    assert wanted[2].isnan().all()


def test_chance_is_the_best_constant() -> None:
    assert TASKS["classes"].chance("accuracy", TREES.labels) == pytest.approx(float(TREES.labels.bincount().max()) / 50)
    for metric in ("balanced-accuracy", "roc-auc"):
        assert TASKS["classes"].chance(metric, TREES.labels) == 0.5
    assert TASKS["binary"].chance("roc-auc", TASKS["binary"].wanted(TREES)) == 0.5
    targets = torch.zeros(50, 2)
    targets[:10, 0], targets[:, 1], targets[:5, 1] = 1, 1, torch.nan
    assert TASKS["binary"].chance("average-precision", targets) == pytest.approx(0.2)
    assert TASKS["binary"].chance("accuracy", targets) == pytest.approx(0.8)
    assert TASKS["binary"].chance("f1", targets) == pytest.approx(2 * 0.2 / 1.2)
    values = torch.linspace(0, 1, 50)[:, None] ** 2
    assert TASKS["values"].chance("rmse", values) == pytest.approx(float(values.std(correction=0)))
    assert TASKS["values"].chance("mae", values) == pytest.approx(float((values - values.median()).abs().mean()))
    assert TASKS["values"].chance("r2", values) == pytest.approx(0, abs=1e-6)


def test_targets_are_standardized_by_the_training_part() -> None:
    targets = torch.randn(50, 3) * 7 + 100
    targets[::3, 1] = torch.nan
    targets[:, 2] = 5
    parts = [np.arange(0, 20), np.arange(10, 50)]
    scale = scale_of(targets, parts)
    for m, ids in enumerate(parts):
        some = targets[ids]
        np.testing.assert_allclose(scale.mean[m], np.nanmean(some, axis=0), rtol=1e-6)
        np.testing.assert_allclose(scale.std[m, :2], np.nanstd(some[:, :2].double(), axis=0), rtol=1e-6)
    assert scale.std[:, 2].tolist() == [1, 1]
    stacked = targets.expand(2, 50, 3)
    torch.testing.assert_close(scale.restore(scale.shrink(stacked)), stacked, equal_nan=True)


def test_the_default_metric_is_right_for_the_data() -> None:
    few = replace(TREES, labels=(torch.arange(50) < 8).long())
    binary, values = (with_targets(torch.zeros(50, 1), task) for task in ("binary", "values"))
    assert [choose_metric(graphs, "paper", None) for graphs in (TREES, few, binary, values)] == ["", "roc-auc", "", ""]
    assert choose_metric(few, "given", None) == ""
    assert choose_metric(few, "paper", "accuracy") == ""
    assert choose_metric(values, "paper", None, "mae") == "mae"
    assert choose_metric(values, "paper", "rmse", "mae") == ""
    assert [find_metric(*given).key for given in (("paper",), ("given",), ("fair", "values"))] == [
        "accuracy",
        "roc-auc",
        "rmse",
    ]
    with pytest.raises(GraphnormError, match=r"not for real values.*use rmse, mae, r2"):
        choose_metric(values, "paper", "accuracy")
    with pytest.raises(GraphnormError, match="use accuracy, balanced-accuracy, roc-auc"):
        choose_metric(TREES, "paper", "mae")
