"""The corrected paired t-test and Welch's: against SciPy, against simulation, and where there is nothing to test."""

from __future__ import annotations

import math

import numpy as np
import pytest
from scipy import stats

from graphnorm.study.significance import compare_all, holm, paired_test, welch_test


def by_fold(values: list[float] | np.ndarray) -> dict[int, float]:
    return dict(enumerate(np.asarray(values, dtype=float).tolist()))


def test_without_correction_it_is_the_paired_t_test() -> None:
    rng = np.random.default_rng(0)
    a, b = rng.normal(0.8, 0.05, (2, 10))
    test, known = paired_test(by_fold(a), by_fold(b), overlap=0.0), stats.ttest_rel(a, b)
    assert test.t == pytest.approx(known.statistic)
    assert test.p == pytest.approx(known.pvalue)
    interval = known.confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
    assert test.difference == pytest.approx((a - b).mean())
    assert test.effect == pytest.approx((a - b).mean() / (a - b).std(ddof=1))


def test_the_correction() -> None:
    """For ten folds the variance is that of (1/10 + 1/9), so t shrinks by √(0.1 / 0.2111) = 0.688."""
    rng = np.random.default_rng(1)
    a, b = rng.normal(0.8, 0.05, (2, 10))
    plain, corrected = (paired_test(by_fold(a), by_fold(b), overlap=r) for r in (0.0, 1 / 9))
    assert plain.t is not None
    assert corrected.t is not None
    assert corrected.t / plain.t == pytest.approx(math.sqrt(0.1 / (0.1 + 1 / 9)))
    assert corrected.p == pytest.approx(2 * stats.t.sf(abs(corrected.t), 9))


def test_the_level_under_overlap() -> None:
    """Differences with the correlation n₂/(n₁+n₂) that the correction assumes: the usual test errs far too often."""
    rng = np.random.default_rng(2)
    rho, runs = 0.1, 2000
    differences = math.sqrt(rho) * rng.normal(size=(runs, 1)) + math.sqrt(1 - rho) * rng.normal(size=(runs, 10))
    rates = {
        ratio: np.mean([paired_test(by_fold(d), by_fold(np.zeros(10)), overlap=ratio).p < 0.05
                        for d in differences])
        for ratio in (0.0, 1 / 9)
    }  # fmt: skip
    assert rates[0.0] > 0.12
    assert rates[1 / 9] == pytest.approx(0.05, abs=0.015)


def test_folds_without_a_partner_are_left_out() -> None:
    nan = float("nan")
    test = paired_test({0: 0.9, 1: nan, 2: 0.8, 3: 0.7}, {0: 0.8, 1: 0.7, 2: 0.75, 4: 0.1}, overlap=0.1)
    assert test.pairs == 2
    assert test.difference == pytest.approx(0.075)
    assert test.p is not None


NAN = float("nan")


@pytest.mark.parametrize(
    ("paired", "first", "second", "difference", "p", "note"),
    [
        (True, [], [0.1], None, None, "no common score"),
        (True, [NAN], [0.1], None, None, "no common score"),
        (True, [0.9], [0.8], 0.1, None, "one common score"),
        (True, [0.9, 0.8], [0.9, 0.8], 0.0, 1.0, "equal"),
        (True, [0.0, 0.0], [0.0, 0.0], 0.0, 1.0, "equal"),
        (True, [0.9, 0.8, 0.7], [0.8, 0.7, 0.6], 0.1, 0.25, "no variance"),
        (True, np.float32([0.9, 0.8, 0.7]), np.float32([0.8, 0.7, 0.6]), 0.1, 0.25, "no variance"),
        (False, [], [0.1], None, None, "no score on one side"),
        (False, [NAN], [0.1, 0.2], None, None, "no score on one side"),
        (False, [0.9], [0.8, 0.7], 0.15, None, "one score on one side"),
        (False, [0.9, 0.9], [0.9, 0.9, 0.9], 0.0, 1.0, "equal"),
        (False, [0.9, 0.9, 0.9], [0.8, 0.8, 0.8], 0.1, 2 / 20, "permutations"),
    ],
)
def test_degenerate(
    paired: bool, first: list[float], second: list[float], difference: float | None, p: float | None, note: str
) -> None:
    scores = {"a": by_fold(first), "b": by_fold(second)}
    (test,) = compare_all(scores, overlap=1 / 9, paired=paired)
    assert test.difference == (None if difference is None else pytest.approx(difference))
    assert (test.p, test.paired, test.significant) == (p, paired, False)
    assert note in test.note


def test_the_same_difference_on_every_fold() -> None:
    """A perfect score against a coin's: six folds are enough to say so, five are not."""
    for folds, significant in ((5, False), (6, True)):
        scores = {"a": by_fold([1.0] * folds), "b": by_fold([0.5] * folds)}
        (test,) = compare_all(scores, overlap=1 / (folds - 1))
        assert test.p == 2 ** (1 - folds)
        assert test.significant is significant
        assert test.low is None


def test_two_folds_claim_little() -> None:
    """One degree of freedom: even 10 points to 8 points are not significant."""
    test = paired_test(by_fold([0.9, 0.9]), by_fold([0.8, 0.82]), overlap=1.0)
    assert test.p is not None
    assert test.p > 0.05
    assert test.low < 0 < test.high  # type: ignore[operator]


def test_holm() -> None:
    assert holm([]) == []
    assert holm([0.01, 0.02, 0.03, 0.04]) == pytest.approx([0.04, 0.06, 0.06, 0.06])
    assert holm([0.9, 0.001]) == pytest.approx([0.9, 0.002])
    assert holm([0.6, 0.7]) == [1.0, 1.0]


def test_all_pairs() -> None:
    rng = np.random.default_rng(3)
    scores = {name: by_fold(rng.normal(mean, 0.02, 10)) for name, mean in (("a", 0.9), ("b", 0.7), ("c", 0.7))}
    scores["d"] = by_fold([float("nan")] * 10)
    tests = {(t.first, t.second): t for t in compare_all(scores, overlap=1 / 9)}
    assert len(tests) == 6
    assert tests["a", "b"].significant
    assert tests["a", "c"].significant
    assert not tests["b", "c"].significant
    assert tests["a", "d"].p_adjusted is None
    assert tests["a", "b"].p_adjusted >= 2 * tests["a", "b"].p  # type: ignore[operator]
    assert tests["a", "b"].to_dict()["significant"] is True


def test_unpaired_it_is_that_of_welch() -> None:
    rng = np.random.default_rng(4)
    a, b = rng.normal(0.8, 0.05, 3), rng.normal(0.7, 0.01, 10)
    test, known = welch_test([*a, float("nan")], [*b]), stats.ttest_ind(a, b, equal_var=False)
    assert (test.t, test.p) == pytest.approx((known.statistic, known.pvalue))
    interval = known.confidence_interval(0.95)
    assert (test.low, test.high) == pytest.approx((interval.low, interval.high))
    assert test.effect == pytest.approx((a.mean() - b.mean()) / math.sqrt((a.var(ddof=1) + b.var(ddof=1)) / 2))
    assert (test.pairs, test.paired) == (3, False)


def test_keys_pair_nothing_where_seeds_are_compared() -> None:
    """The same scores under other seeds are the same evidence; under other folds they are not."""
    scores = by_fold([0.1, 0.2, 0.3, 0.4]), by_fold([0.11, 0.21, 0.32, 0.41])
    turned = by_fold([0.41, 0.32, 0.21, 0.11])

    def p(second: dict[int, float], paired: bool) -> float | None:
        return compare_all({"a": scores[0], "b": second}, overlap=0.0, paired=paired)[0].p_adjusted

    assert p(scores[1], paired=False) == pytest.approx(p(turned, paired=False))
    assert p(scores[1], paired=True) < 0.05 < p(turned, paired=True)  # type: ignore[operator]
