r"""Significance: whether a difference between normalizations is more than chance.

The folds of a cross-validation share most of their training graphs, so their scores are not independent, and the usual
paired t-test calls far too many differences significant. Nadeau and Bengio's correction ("Inference for the
generalization error", 2003) enlarges the variance by the ratio of test graphs to training graphs. For paired
differences :math:`d_1, \ldots, d_J` with mean :math:`\bar d` and sample variance :math:`s^2`,

.. math:: t = \frac{\bar d}{\sqrt{(1/J + n_2/n_1)\, s^2}}, \qquad t \sim \mathrm{Student}(J - 1).

Seeds on one split are independent: seed 3 of one normalization has nothing in common with seed 3 of another. They are
compared by Welch's unpaired test, which allows different numbers of scores and different variances. With
:math:`e_i = s_i^2/J_i`

.. math:: t = \frac{\bar x_1 - \bar x_2}{\sqrt{e_1 + e_2}}, \qquad
   t \sim \mathrm{Student}\!\left(\frac{(e_1 + e_2)^2}{e_1^2/(J_1 - 1) + e_2^2/(J_2 - 1)}\right).

With several pairs, the p-values are adjusted by Holm's step-down rule, which keeps the probability of any false claim
below the level.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import asdict, dataclass, replace
from itertools import combinations
from typing import Any

import numpy as np

from graphnorm.errors import need

__all__ = ["ALPHA", "CONFIDENCE", "PairTest", "compare_all", "holm", "paired_test", "welch_test"]

ALPHA = 0.05
"""The level: the accepted probability of calling a difference significant where there is none."""
CONFIDENCE = 0.95
"""Level of the confidence intervals, which are not adjusted for the number of pairs."""
SAME = 1e-6
"""Scores are float32: values whose range is below this share of them count as equal."""


@dataclass(frozen=True)
class PairTest:
    """The test of two normalizations, ``first`` minus ``second``, in the unit of the scores.

    A value that cannot be computed is None, and ``note`` says why.
    """

    first: str
    second: str
    pairs: int
    """Number of common folds; if unpaired, the number of scores of the smaller side."""
    difference: float | None = None
    low: float | None = None
    high: float | None = None
    """The confidence interval of the difference."""
    effect: float | None = None
    """The difference in standard deviations (Cohen's d): of the paired differences, or of the two sides' mean
    variance."""
    t: float | None = None
    p: float | None = None
    p_adjusted: float | None = None
    """After Holm's rule over all pairs of one comparison."""
    note: str = ""
    paired: bool = True
    """Whether this is the paired test or Welch's."""

    @property
    def significant(self) -> bool:
        return self.p_adjusted is not None and self.p_adjusted < ALPHA

    def seen_from(self, name: str) -> PairTest:
        """The same test with ``name`` as the first of the two."""
        if name == self.first:
            return self

        def turned(value: float | None) -> float | None:
            return None if value is None else -value

        return replace(
            self,
            first=self.second,
            second=self.first,
            difference=turned(self.difference),
            low=turned(self.high),
            high=turned(self.low),
            effect=turned(self.effect),
            t=turned(self.t),
        )

    def to_dict(self) -> dict[str, Any]:
        return asdict(self) | {"significant": self.significant}


def paired_test(
    first: Mapping[int, float],
    second: Mapping[int, float],
    *,
    overlap: float,
    names: tuple[str, str] = ("first", "second"),
) -> PairTest:
    """Compare two sets of scores, paired by their keys (folds); a fold with a NaN is left out.

    overlap: n₂/n₁, 1/9 for ten folds; 0 gives the usual paired t-test.

    * With one common fold there is a difference but no test; with none, neither.
    * If all differences are 0, p is 1. If all are equal but not 0, there is no variance to compare them with, and p is
      that of the sign test, 2^(1−J).

    >>> test = paired_test({0: 0.9, 1: 0.8, 2: 0.85}, {0: 0.7, 1: 0.75, 2: 0.7}, overlap=1 / 2)
    >>> round(test.difference, 3), round(test.p, 3)
    (0.133, 0.196)
    """
    common = [k for k in first if k in second and math.isfinite(first[k]) and math.isfinite(second[k])]
    a, b = (np.array([scores[k] for k in common], dtype=np.float64) for scores in (first, second))
    count, differences = len(common), a - b
    if not count:
        return PairTest(*names, 0, note="no common score")
    mean = float(differences.mean())
    if count == 1:
        return PairTest(*names, 1, mean, note="one common score: chance cannot be measured")
    smallest = SAME * np.abs([a, b]).max()
    if np.ptp(differences) <= smallest:
        if abs(mean) <= smallest:
            return PairTest(*names, count, **EQUAL)
        note = "all differences are equal: no variance, so p is that of the sign test"
        return PairTest(*names, count, mean, p=2.0 ** (1 - count), note=note)
    spread = float(differences.std(ddof=1))
    tested = _student(mean, spread * math.sqrt(1 / count + overlap), count - 1)
    return PairTest(*names, count, mean, effect=mean / spread, **tested)


def welch_test(
    first: Sequence[float], second: Sequence[float], *, names: tuple[str, str] = ("first", "second")
) -> PairTest:
    """Compare two sets of unpaired scores, of any numbers; NaN are left out.

    * If a side has one score, there is a difference but no test; if it has none, neither.
    * If neither side has a variance, p is 1 for equal scores, and otherwise that of the exact permutation test, 2 over
      the number of ways to choose the first side.

    >>> test = welch_test([0.9, 0.8, 0.85], [0.7, 0.75, 0.7, 0.72])
    >>> round(test.difference, 3), round(test.p, 3)
    (0.133, 0.03)
    """
    a, b = (np.array([score for score in side if math.isfinite(score)], dtype=np.float64) for side in (first, second))
    count = min(len(a), len(b))
    if not count:
        return PairTest(*names, 0, note="no score on one side", paired=False)
    difference = float(a.mean() - b.mean())
    if count == 1:
        return PairTest(*names, 1, difference, note="one score on one side: chance cannot be measured", paired=False)
    smallest = SAME * max(np.abs(a).max(), np.abs(b).max())
    if max(np.ptp(a), np.ptp(b)) <= smallest:
        if abs(difference) <= smallest:
            return PairTest(*names, count, **EQUAL, paired=False)
        note = "neither side has a variance, so p is that of permutations"
        return PairTest(*names, count, difference, p=2 / math.comb(len(a) + len(b), len(a)), note=note, paired=False)
    variances, counts = np.array([a.var(ddof=1), b.var(ddof=1)]), np.array([len(a), len(b)])
    errors = variances / counts
    degrees = errors.sum() ** 2 / (errors**2 / (counts - 1)).sum()
    tested = _student(difference, math.sqrt(errors.sum()), degrees)
    return PairTest(*names, count, difference, effect=difference / math.sqrt(variances.mean()), paired=False, **tested)


EQUAL: dict[str, Any] = dict.fromkeys(("difference", "low", "high", "effect", "t"), 0.0)
EQUAL |= {"p": 1.0, "note": "the scores are equal"}


def _student(difference: float, error: float, degrees: float) -> dict[str, Any]:
    """Interval, t and p of a difference with this standard error."""
    special = need(
        "scipy.special", "a test of significance", "study"
    )  # scipy.stats takes three times as long to import
    reach, t = float(special.stdtrit(degrees, (1 + CONFIDENCE) / 2)) * error, difference / error
    p = float(2 * special.stdtr(degrees, -abs(t)))
    return {"low": difference - reach, "high": difference + reach, "t": t, "p": p}


def compare_all(scores: Mapping[str, Mapping[int, float]], *, overlap: float, paired: bool = True) -> list[PairTest]:
    """Test every pair of normalizations, with p-values adjusted for their number.

    paired: whether equal keys belong together (folds) or not (seeds); ``overlap`` applies to pairs only.
    """

    def test(first: str, second: str) -> PairTest:
        names = (first, second)
        if paired:
            return paired_test(scores[first], scores[second], overlap=overlap, names=names)
        return welch_test([*scores[first].values()], [*scores[second].values()], names=names)

    tests = [test(first, second) for first, second in combinations(scores, 2)]
    adjusted = iter(holm([test.p for test in tests if test.p is not None]))
    return [test if test.p is None else replace(test, p_adjusted=next(adjusted)) for test in tests]


def holm(values: Sequence[float]) -> list[float]:
    """Adjust p-values by Holm's step-down rule: the k-th smallest of m is multiplied by m − k + 1.

    Adjusted values never fall with k, and are at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(values)
    floor = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        floor = max(floor, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = floor
    return adjusted
