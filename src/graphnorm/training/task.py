"""Tasks: the loss to train with, the metric to report, and whether higher is better.

Losses and metrics are computed for all members of a fleet at once, without waiting for the device.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor
from torch.nn import functional

from graphnorm.data.packed import PackedGraphs

__all__ = ["TASKS", "Metric", "Task", "accuracy", "binary_loss", "class_loss", "find_task", "roc_auc", "select"]

Metric = Callable[[Tensor, Tensor], Tensor]
"""metric(scores (M, n, K), labels (M, n)) -> (M,); a label of -1 marks an empty place."""


@dataclass(frozen=True)
class Task:
    """One kind of target."""

    metric: str
    outputs: Callable[[PackedGraphs], int]
    """The number of scores that a model gives each graph."""
    loss: Metric
    """The mean loss of each member; 0 for an empty batch."""
    score: Metric
    """The metric of each member; NaN if a score is NaN."""
    probabilities: Callable[[Tensor], Tensor]
    """(G, outputs) scores to (G, classes) probabilities."""
    chance: Callable[[PackedGraphs], float]
    """The metric without a model: that of the largest class, or of random scores."""
    scale: float = 100.0
    unit: str = "%"
    """The metric is shown as ``scale`` times its value, followed by the unit."""
    higher_is_better: bool = True


def class_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each member: (M, B, K) scores and (M, B) labels to (M,)."""
    each = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-1)
    return each.view(labels.shape).sum(1) / (labels >= 0).sum(1).clamp(min=1)


def binary_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean binary cross-entropy of each member: (M, B, 1) log-odds and (M, B) labels to (M,)."""
    real = labels >= 0
    wanted = labels.clamp(min=0).to(scores.dtype)
    each = functional.binary_cross_entropy_with_logits(scores[..., 0], wanted, reduction="none")
    return (each * real).sum(1) / real.sum(1).clamp(min=1)


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """The share of graphs whose highest score is that of their class."""
    real = labels >= 0
    right = (scores.argmax(-1) == labels) & real
    return torch.where(_has_nan(scores, real), torch.nan, right.sum(1) / real.sum(1))


def roc_auc(scores: Tensor, labels: Tensor) -> Tensor:
    """The area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    With average ranks r in 1 … n, P positives and Q negatives it is (Σ r over positives - P(P+1)/2) / (P·Q).
    """
    value, real, positive = scores[..., 0], labels >= 0, labels == 1
    value = torch.where(real, value, torch.inf)  # empty places rank last
    ordered = value.sort(dim=1).values
    below = torch.searchsorted(ordered, value.contiguous())
    upto = torch.searchsorted(ordered, value.contiguous(), right=True)
    rank = (below + upto + 1).to(torch.float64) / 2
    positives, negatives = positive.sum(1).to(torch.float64), (real & ~positive).sum(1).to(torch.float64)
    area = ((rank * positive).sum(1) - positives * (positives + 1) / 2) / (positives * negatives)
    return torch.where(_has_nan(scores, real), torch.nan, area).to(torch.float32)


def _has_nan(scores: Tensor, real: Tensor) -> Tensor:
    """(M,) bool: whether any of a member's scores is NaN."""
    return (scores.isnan().any(-1) & real).any(1)


def select(values: Tensor, ids: Tensor) -> Tensor:
    """values (M, G, ...) at ids (M, n). Where an id is -1 the value is arbitrary."""
    index = ids.clamp(min=0)
    index = index.view(*index.shape, *(1,) * (values.ndim - 2)).expand(*ids.shape, *values.shape[2:])
    return values.gather(1, index)


def _largest_class(graphs: PackedGraphs) -> float:
    return float(graphs.labels.bincount().max()) / graphs.num_graphs


def _two_classes(scores: Tensor) -> Tensor:
    positive = scores.sigmoid()
    return torch.cat([1 - positive, positive], dim=1)


TASKS: dict[str, Task] = {
    "classes": Task(
        metric="accuracy",
        outputs=lambda graphs: graphs.num_classes,
        loss=class_loss,
        score=accuracy,
        probabilities=lambda scores: scores.softmax(dim=1),
        chance=_largest_class,
    ),
    "binary": Task(
        metric="ROC-AUC",
        outputs=lambda graphs: 1,
        loss=binary_loss,
        score=roc_auc,
        probabilities=_two_classes,
        chance=lambda graphs: 0.5,
    ),
}


def find_task(protocol: str) -> Task:
    """The task of a protocol: two classes with ROC-AUC under ``ogb``, else classes with accuracy.

    >>> find_task("ogb").metric, find_task("paper").metric
    ('ROC-AUC', 'accuracy')
    """
    return TASKS["binary" if protocol == "ogb" else "classes"]
