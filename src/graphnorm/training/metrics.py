"""The metrics of classes, binary targets and real values: their names, units and directions.

How they are computed is in :mod:`graphnorm.training.metric_functions`; stored scores are read and shown without it.
"""

from __future__ import annotations

import math
from dataclasses import dataclass

__all__ = ["METRICS", "Metric", "find_metric", "implied_task"]

LEARNED = 0.01
"""A model has learned something if it beats a constant by one percentage point, an R² of 0.01, or one hundredth of the
constant's error."""


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
        >>> METRICS["r2"].text(-0.0001), METRICS["r2"].text(-1.5), METRICS["rmse"].text(2764351829)
        ('0.000', '−1.500', '2.76e+09')
        """
        if self.higher_is_better or not math.isfinite(value):
            text = f"{value:z.1f}" if self.unit else f"{value:z.3f}"
        else:
            size = abs(value if like is None else like)
            digits = 2 - math.floor(math.log10(size)) if size > 0 else 2
            text = f"{value:.{max(0, digits)}f}" if -7 < digits < 7 else f"{value:.2e}" if value else "0"
        return f"−{text[1:]}" if text.startswith("-") else text

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
USUAL = {"classes": "accuracy", "binary": "roc-auc", "values": "rmse"}
"""The default metric of each task."""


def implied_task(protocol: str) -> str:
    """The task of a trial that names none: classes, or under ``given`` two of them as one binary target."""
    return "binary" if protocol == "given" else "classes"


def find_metric(protocol: str, task: str = "", metric: str = "") -> Metric:
    """The metric of a trial, from its ``protocol``, ``task`` and ``metric``.

    >>> find_metric("given").name, find_metric("paper", metric="f1").name
    ('ROC-AUC', 'F1')
    """
    return METRICS[metric or USUAL[task or implied_task(protocol)]]
