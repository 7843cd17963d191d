"""Metrics of classes, binary targets and real values, for all members of a fleet at once.

Nothing waits for the device, so that an evaluation can be captured in a CUDA graph. Scores and targets have the shape
(M, n, T): members, graphs, targets. NaN marks a missing target. A function gives one number for each member and target,
(M, T), and NaN where it is not defined: a ranking needs both classes, R² two different values.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass

import torch
from torch import Tensor

__all__ = ["METRICS", "Metric", "accuracy", "average_precision", "balanced_accuracy", "f1"]
__all__ += ["mean_absolute_error", "r2", "recall_of_classes", "right_share", "roc_auc", "root_mean_squared_error"]

Columns = Callable[[Tensor, Tensor], Tensor]
"""f(scores (M, n, T), targets (M, n, T)) -> (M, T)."""
LEARNED = 0.01
"""A model has learned something if it beats a constant by one percentage point, an R² of 0.01, or one hundredth of the
constant's error."""

EXACT = 1e-24
"""A variance that is a smaller share of the squared mean is rounding."""


@dataclass(frozen=True)
class Metric:
    """A metric's name, scale and direction."""

    key: str
    """Its name as an option."""
    name: str
    """Its name in tables."""
    higher_is_better: bool = True
    scale: float = 100.0
    """It is shown as ``scale`` times its value, followed by the unit."""
    unit: str = "%"
    """Empty for a metric in the unit of its target, and for R²."""

    @property
    def title(self) -> str:
        """The heading of its column.

        >>> METRICS["roc-auc"].title, METRICS["rmse"].title
        ('ROC-AUC %', 'RMSE')
        """
        return f"{self.name} {self.unit}".rstrip()

    @property
    def label(self) -> str:
        """The label of an axis.

        >>> METRICS["accuracy"].label, METRICS["rmse"].label
        ('accuracy (%)', 'RMSE')
        """
        return f"{self.name} ({self.unit})" if self.unit else self.name

    @property
    def ends(self) -> tuple[float, float]:
        """The smallest and the largest value that there can be, as shown."""
        return (0.0 if self.unit or not self.higher_is_better else -math.inf), (
            self.scale if self.higher_is_better else math.inf
        )

    @property
    def sign(self) -> int:
        """1 or -1: ``sign`` times a value is higher for the better."""
        return 1 if self.higher_is_better else -1

    @property
    def best(self) -> str:
        return "highest" if self.higher_is_better else "lowest"

    def better(self, first: float, second: float) -> float:
        """By how much ``first`` is better than ``second``; negative if it is worse."""
        return self.sign * (first - second)

    def learned(self, score: float, chance: float | None) -> bool:
        """Whether a shown score is better than chance; True if chance is unknown.

        >>> METRICS["accuracy"].learned(50.9, 50.0), METRICS["accuracy"].learned(51.0, 50.0)
        (False, True)
        >>> METRICS["rmse"].learned(1.99, 2.0), METRICS["rmse"].learned(1.9, 2.0), METRICS["rmse"].learned(3.0, None)
        (False, True, True)
        """
        if chance is None:
            return True
        margin = LEARNED * (self.scale if self.higher_is_better else chance)
        return self.better(score, chance) >= margin

    def worse_by(self, difference: float) -> str:
        """How much worse a score is, in words.

        >>> METRICS["accuracy"].worse_by(2.5), METRICS["rmse"].worse_by(0.25), METRICS["rmse"].worse_by(-0.25)
        ('2.5 points less', '0.250 more', '0.250 less')
        """
        direction = "less" if self.sign * difference > 0 else "more"
        return f"{self.distance(difference)} {direction}"

    def distance(self, difference: float, like: float | None = None) -> str:
        """The size of a difference; for ``like`` see :meth:`text`.

        >>> METRICS["accuracy"].distance(-2.54), METRICS["rmse"].distance(0.25)
        ('2.5 points', '0.250')
        """
        return f"{self.text(abs(difference), like)}{' points' if self.unit else ''}"

    def signed(self, difference: float, like: float | None = None) -> str:
        """A difference of two scores with its sign, if a digit is not 0; for ``like`` see :meth:`text`.

        >>> METRICS["accuracy"].signed(-2.54), METRICS["accuracy"].signed(-0.04), METRICS["rmse"].signed(0.25)
        ('−2.5', '0.0', '+0.250')
        """
        size = self.text(abs(difference), like)
        return (("−" if difference < 0 else "+") if size.strip("0.") else "") + size

    def text(self, value: float, like: float | None = None) -> str:
        """A shown value as text, with as many decimals as ``like`` (by default the value itself) needs.

        >>> METRICS["accuracy"].text(75.123), METRICS["rmse"].text(0.58321), METRICS["mae"].text(72.31)
        ('75.1', '0.583', '72.3')
        >>> METRICS["r2"].text(-0.0001)
        '0.000'
        """
        if self.higher_is_better or not math.isfinite(value):
            return f"{value:z.1f}" if self.unit else f"{value:z.3f}"
        size = abs(value if like is None else like)
        digits = max(0, 2 - math.floor(math.log10(size))) if size > 0 else 2
        return f"{value:.{digits}f}" if digits < 7 else f"{value:.2e}" if value else "0"

    def with_unit(self, value: float) -> str:
        return f"{self.text(value)} {self.unit}".rstrip()


_ALL = (
    Metric("accuracy", "accuracy"),
    Metric("balanced-accuracy", "balanced accuracy"),
    Metric("roc-auc", "ROC-AUC"),
    Metric("average-precision", "average precision"),
    Metric("f1", "F1"),
    Metric("mae", "MAE", higher_is_better=False, scale=1.0, unit=""),
    Metric("rmse", "RMSE", higher_is_better=False, scale=1.0, unit=""),
    Metric("r2", "R²", scale=1.0, unit=""),
)
METRICS: dict[str, Metric] = {metric.key: metric for metric in _ALL}


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
    value = torch.where(targets.isnan(), torch.inf, scores).transpose(1, 2).contiguous()
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
