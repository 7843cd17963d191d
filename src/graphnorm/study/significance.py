r"""Significance: whether a difference between normalizations is more than the chance of the folds.

The folds of a cross-validation share most of their training graphs, so their scores are not independent, and the usual
paired t-test calls far too many differences significant. Nadeau and Bengio's correction ("Inference for the
generalization error", 2003) enlarges the variance by the share of graphs tested to graphs trained on. For paired
differences :math:`d_1 … d_J` with mean :math:`\bar d` and sample variance :math:`s^2`,

.. math:: t = \frac{\bar d}{\sqrt{(1/J + n_2/n_1)\, s^2}}, \qquad t \sim \mathrm{Student}(J - 1).

Seeds on one split share nothing but that split: seed 3 of one normalization has no more to do with seed 3 of another
than with its seed 4. They are compared by Welch's test, which pairs nothing and allows for other numbers and other
variances on both sides; with :math:`e_i = s_i^2/J_i`

.. math:: t = \frac{\bar x_1 - \bar x_2}{\sqrt{e_1 + e_2}}, \qquad
   t \sim \mathrm{Student}\!\left(\frac{(e_1 + e_2)^2}{e_1^2/(J_1 - 1) + e_2^2/(J_2 - 1)}\right).

Several pairs are several chances to be wrong: the p-values of all pairs are adjusted by Holm's step-down rule, which
keeps the probability of one false claim or more below the level.
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
"""Of the intervals; they are those of each pair by itself."""
SAME = 1e-6
"""What spreads by less than this share of the scores is equal: scores are float32."""


@dataclass(frozen=True)
class PairTest:
    """One pair of normalizations, ``first`` minus ``second``, in the unit of the scores.

    What cannot be computed is None, and ``note`` says why.
    """

    first: str
    second: str
    pairs: int
    """Folds that both have a score for; where they are not paired, the scores of the side that has fewer."""
    difference: float | None
    low: float | None
    high: float | None
    """The confidence interval of the difference."""
    effect: float | None
    """The difference in standard deviations (Cohen's d): of the paired differences, or else of the two sides' average
    variance."""
    t: float | None
    p: float | None
    p_adjusted: float | None = None
    """After Holm's rule over all pairs of one comparison."""
    note: str = ""
    paired: bool = True
    """Whether it is of pairs, or Welch's of two sets of scores."""

    @property
    def significant(self) -> bool:
        """Whether the adjusted p-value is below :data:`ALPHA`."""
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
        """Plain values, for JSON."""
        return asdict(self) | {"significant": self.significant}


def paired_test(
    first: Mapping[int, float],
    second: Mapping[int, float],
    *,
    overlap: float,
    names: tuple[str, str] = ("first", "second"),
) -> PairTest:
    """Compare two sets of scores, paired by their keys (folds); scores that are NaN are left out with their partner.

    overlap: n₂/n₁, 1/9 for ten folds; 0 gives the usual paired t-test.

    * No common fold: nothing is known. One: the difference, without a test.
    * All differences zero: p is 1. All equal but not zero: there is no variance to measure them by, and p is that of
      the sign test, 2^(1−J), rather than certainty from a handful of folds.

    >>> test = paired_test({0: 0.9, 1: 0.8, 2: 0.85}, {0: 0.7, 1: 0.75, 2: 0.7}, overlap=1 / 2)
    >>> round(test.difference, 3), round(test.p, 3)
    (0.133, 0.196)
    """
    stats = need("scipy.stats", "a test of significance", "study")
    common = [k for k in first if k in second and math.isfinite(first[k]) and math.isfinite(second[k])]
    a, b = (np.array([scores[k] for k in common], dtype=np.float64) for scores in (first, second))
    differences = a - b
    count = len(common)

    def result(note: str = "", **values: float | None) -> PairTest:
        keys: dict[str, Any] = dict.fromkeys(("low", "high", "effect", "t", "p"))
        keys["difference"] = float(differences.mean()) if count else None
        return PairTest(*names, pairs=count, note=note, **keys | values)

    if count < 2:
        return result("no common score" if count == 0 else "one common score: chance cannot be measured")
    if np.ptp(differences) <= SAME * np.abs([a, b]).max():
        if abs(differences.mean()) <= SAME * np.abs([a, b]).max():
            return result("the scores are equal", difference=0.0, low=0.0, high=0.0, effect=0.0, t=0.0, p=1.0)
        return result("all differences are equal: no variance, so p is that of the sign test", p=2.0 ** (1 - count))
    mean, spread = float(differences.mean()), float(differences.std(ddof=1))
    error_of_mean = spread * math.sqrt(1 / count + overlap)
    student = stats.t(count - 1)
    reach = float(student.ppf((1 + CONFIDENCE) / 2)) * error_of_mean
    t = mean / error_of_mean
    return result(low=mean - reach, high=mean + reach, effect=mean / spread, t=t, p=float(2 * student.sf(abs(t))))


def welch_test(
    first: Sequence[float], second: Sequence[float], *, names: tuple[str, str] = ("first", "second")
) -> PairTest:
    """Compare two sets of scores that nothing pairs, of any numbers; scores that are NaN are left out.

    * A side with no score: nothing is known. With one: the difference, without a test.
    * No variance on either side: p is 1 where they are equal, and else that of the exact test by permutations,
      2 over the number of ways to choose the first side, rather than certainty from a handful of scores.

    >>> test = welch_test([0.9, 0.8, 0.85], [0.7, 0.75, 0.7, 0.72])
    >>> round(test.difference, 3), round(test.p, 3)
    (0.133, 0.03)
    """
    stats = need("scipy.stats", "a test of significance", "study")
    a, b = (np.array([score for score in side if math.isfinite(score)], dtype=np.float64) for side in (first, second))
    count = min(len(a), len(b))
    difference = float(a.mean() - b.mean()) if count else None

    def result(note: str = "", **values: float | None) -> PairTest:
        keys: dict[str, Any] = dict.fromkeys(("low", "high", "effect", "t", "p")) | {"difference": difference}
        return PairTest(*names, pairs=count, note=note, paired=False, **keys | values)

    if difference is None or count < 2:
        return result("no score on one side" if not count else "one score on one side: chance cannot be measured")
    size = SAME * max(np.abs(a).max(), np.abs(b).max())
    if max(np.ptp(a), np.ptp(b)) <= size:
        if abs(difference) <= size:
            return result("the scores are equal", difference=0.0, low=0.0, high=0.0, effect=0.0, t=0.0, p=1.0)
        ways = math.comb(len(a) + len(b), len(a))
        return result("neither side has a variance, so p is that of permutations", p=2 / ways)
    variances, counts = np.array([a.var(ddof=1), b.var(ddof=1)]), np.array([len(a), len(b)])
    errors = variances / counts
    student = stats.t(errors.sum() ** 2 / (errors**2 / (counts - 1)).sum())
    error = math.sqrt(errors.sum())
    reach = float(student.ppf((1 + CONFIDENCE) / 2)) * error
    t = difference / error
    return result(
        low=difference - reach,
        high=difference + reach,
        effect=difference / math.sqrt(variances.mean()),
        t=t,
        p=float(2 * student.sf(abs(t))),
    )


def compare_all(scores: Mapping[str, Mapping[int, float]], *, overlap: float, paired: bool = True) -> list[PairTest]:
    """Test every pair of normalizations, with p-values adjusted for their number.

    paired: whether equal keys belong together (folds); where they do not (seeds), overlap has no part in it.
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
    """Adjust p-values by Holm's step-down rule: the k-th smallest of m times m − k + 1, never falling, at most 1.

    >>> holm([0.01, 0.04, 0.03])
    [0.03, 0.06, 0.06]
    """
    adjusted = [0.0] * len(values)
    floor = 0.0
    for rank, place in enumerate(sorted(range(len(values)), key=values.__getitem__)):
        floor = max(floor, min(1.0, values[place] * (len(values) - rank)))
        adjusted[place] = floor
    return adjusted
