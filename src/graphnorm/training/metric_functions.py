"""Metrics computed on tensors, for all members of a fleet at once.

Nothing waits for the device, so that an evaluation can be captured in a CUDA graph. Scores and targets have the shape
(M, n, T): members, graphs, targets. NaN marks a missing target. A function gives one number for each member and target,
(M, T), and NaN where it is not defined: a ranking needs both classes, R² two different values.
"""

from __future__ import annotations

from collections.abc import Callable

import torch
from torch import Tensor

__all__ = ["Columns", "accuracy", "average_precision", "balanced_accuracy", "f1", "log_odds"]
__all__ += ["mean_absolute_error", "r2", "recall_of_classes", "right_share", "roc_auc", "root_mean_squared_error"]

Columns = Callable[[Tensor, Tensor], Tensor]
"""f(scores (M, n, T), targets (M, n, T)) -> (M, T)."""
EXACT = 1e-24
"""A variance that is a smaller share of the squared mean is rounding."""


# Classes: scores (M, n, K) and labels (M, n); a label of -1 marks an empty place


def accuracy(scores: Tensor, labels: Tensor) -> Tensor:
    """(M, 1): the share of graphs whose highest score is that of their class."""
    real = labels >= 0
    right = (scores.argmax(-1) == labels) & real
    return (right.sum(1) / real.sum(1))[:, None]


def recall_of_classes(scores: Tensor, labels: Tensor) -> Tensor:
    """(M, K): the share of each class that is recognised; NaN for a class without graphs. Its mean is the balanced
    accuracy."""
    classes = torch.arange(scores.shape[-1], device=scores.device)
    of_class = labels[..., None] == classes
    right = of_class & (scores.argmax(-1, keepdim=True) == classes)
    return right.sum(1) / of_class.sum(1)


def log_odds(scores: Tensor) -> Tensor:
    """(M, n, K), in double: log(p / (1 - p)) of each class. A probability that rounds to 1 keeps its rank."""
    scores = scores.double()
    log_p = scores.log_softmax(-1)
    top = scores.argmax(-1, keepdim=True)
    rest = scores.scatter(-1, top, -torch.inf).logsumexp(-1, keepdim=True)
    return (log_p - torch.log1p(-log_p.exp())).scatter(-1, top, scores.gather(-1, top) - rest)


# Binary targets: scores are log-odds


def right_share(scores: Tensor, targets: Tensor) -> Tensor:
    """The accuracy of each target."""
    real = ~targets.isnan()
    return (((scores > 0) == (targets == 1)) & real).sum(1) / real.sum(1)


def balanced_accuracy(scores: Tensor, targets: Tensor) -> Tensor:
    """The mean of the shares of positives and of negatives that are recognised."""
    positive, negative, chosen = targets == 1, targets == 0, scores > 0
    of_positives = (chosen & positive).sum(1) / positive.sum(1)
    return (of_positives + (~chosen & negative).sum(1) / negative.sum(1)) / 2


def f1(scores: Tensor, targets: Tensor) -> Tensor:
    """2·TP / (2·TP + FP + FN); 0 if there is nothing to find and nothing was found."""
    positive, chosen = targets == 1, (scores > 0) & ~targets.isnan()
    return 2 * (positive & chosen).sum(1) / (positive.sum(1) + chosen.sum(1)).clamp(min=1)


def roc_auc(scores: Tensor, targets: Tensor) -> Tensor:
    """The area under the ROC curve: the chance that a positive scores above a negative, ties counting half.

    With average ranks r in 1 … n, P positives and Q negatives it is (Σ r over positives - P(P+1)/2) / (P·Q).
    """
    value, positive, negative = _by_target(scores, targets)
    ordered = value.sort(dim=-1).values
    below = torch.searchsorted(ordered, value)
    upto = torch.searchsorted(ordered, value, right=True)
    rank = (below + upto + 1).to(torch.float64) / 2
    positives, negatives = positive.sum(-1).to(torch.float64), negative.sum(-1).to(torch.float64)
    area = ((rank * positive).sum(-1) - positives * (positives + 1) / 2) / (positives * negatives)
    return area.to(torch.float32)


def average_precision(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean, over the positives, of the precision among all graphs that score at least as high."""
    value, positive, negative = _by_target(scores, targets)
    of_positives = torch.where(positive, value, torch.inf).sort(dim=-1).values
    real, found = (positive | negative).sum(-1, keepdim=True), positive.sum(-1, keepdim=True)
    at_least = real - torch.searchsorted(value.sort(dim=-1).values, value)
    positives_at_least = found - torch.searchsorted(of_positives, value)
    precision = positives_at_least.to(torch.float64) / at_least.clamp(min=1)
    mean = (precision * positive).sum(-1) / found[..., 0]
    return mean.to(torch.float32)


def _by_target(scores: Tensor, targets: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    """(M, T, n): the scores, infinite where a target is missing, so that these rank last; positives; negatives."""
    finite = scores.clamp(max=torch.finfo(scores.dtype).max)
    value = torch.where(targets.isnan(), torch.inf, finite).transpose(1, 2).contiguous()
    wanted = targets.transpose(1, 2).contiguous()
    return value, wanted == 1, wanted == 0


# Real values


def mean_absolute_error(scores: Tensor, targets: Tensor) -> Tensor:
    return _mean(_errors(scores, targets).abs(), targets).to(torch.float32)


def root_mean_squared_error(scores: Tensor, targets: Tensor) -> Tensor:
    return _mean(_errors(scores, targets).square(), targets).sqrt().to(torch.float32)


def r2(scores: Tensor, targets: Tensor) -> Tensor:
    """1 minus the mean squared error over the variance of the targets; NaN if they do not vary."""
    wanted = targets.double()
    mean = _mean(wanted.nan_to_num(), targets)[:, None]
    variance = _mean((wanted - mean).square().nan_to_num(), targets)
    error = _mean(_errors(scores, targets).square(), targets)
    return torch.where(variance > EXACT * mean[:, 0].square(), 1 - error / variance, torch.nan).to(torch.float32)


def _errors(scores: Tensor, targets: Tensor) -> Tensor:
    """float64, because the targets may be large; 0 where a target is missing."""
    return torch.where(targets.isnan(), 0.0, scores.double() - targets.double())


def _mean(each: Tensor, targets: Tensor) -> Tensor:
    return each.sum(1) / (~targets.isnan()).sum(1)
