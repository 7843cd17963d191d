"""One sentence of verdict, which claims no more than the tests do."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from typing import TYPE_CHECKING

from graphnorm.study.guessing import has_learned
from graphnorm.study.significance import PairTest
from graphnorm.wording import listing

if TYPE_CHECKING:
    from graphnorm.comparison.result import Comparison

__all__ = ["judge", "name_guessers", "pronounce"]

SAME = 1e-4
"""Means that differ by less percentage points than this are equal."""


def pronounce(comparison: Comparison) -> str:
    """Say which normalization is best, over which others that is significant, and where it is not."""
    where = f"on {comparison.dataset} with {comparison.settings.model} and these settings"
    scores = {name: (comparison.norms[name].mean, comparison.norms[name].std) for name in comparison.ranking}
    return judge(scores, comparison.pair, comparison.protocol.metric, where, comparison.guessing)


def judge(
    scores: Mapping[str, tuple[float, float]],
    pair: Callable[[str, str], PairTest],
    metric: str,
    where: str,
    guessing: float | None,
) -> str:
    """Say the same of scores, mean and standard deviation in percent, the highest first.

    pair: the test of two of them, its difference seen from the first. guessing: the score that needs no model;
    None where it is not known.
    """
    if not scores:
        return f"Nothing can be said: no training {where} came to its end."
    best, *others = scores
    mean, std = scores[best]
    score = f"{mean:.1f} %" if std != std else f"{mean:.1f} ± {std:.1f} %"
    if not has_learned(mean, guessing):
        return (
            f"Nothing can be said: the highest {metric} {where} is that of {best}, {score}, and guessing has "
            f"{guessing:.1f} %. Train for longer."
        )
    if not others:
        return f"Only {best} has a result ({metric} {score} {where}): there is nothing to compare it with."
    tied = [best] + [name for name in others if mean - scores[name][0] < SAME]
    if len(tied) > 1:
        return f"No clear winner: {listing(tied)} share the highest {metric} {where}, {score}."
    highest = f"{best} has the highest {metric} {where}, {score}"
    tests = {name: pair(best, name) for name in others}
    if all(test.p_adjusted is None for test in tests.values()):
        return f"No clear winner: {highest}, but there are too few scores to tell that from chance."
    beaten = [name for name in others if tests[name].significant and (tests[name].difference or 0) > 0]
    if len(beaten) == len(others):
        everyone = "the only other one" if len(others) == 1 else "every other one"
        return f"{highest}, significantly better than {everyone} ({listing(beaten)})."
    equals = [name for name in others if name not in beaten]
    if not beaten:
        return f"No clear winner: {highest}, but not significantly better than {listing(equals, 'or')}."
    return (
        f"No clear winner: {highest}, significantly better than {listing(beaten)}, "
        f"but not than {listing(equals, 'or')}."
    )


def name_guessers(means: Mapping[str, float], guessing: float | None) -> list[str]:
    """A note that names those whose mean, in percent, is no better than guessing; none where there are none.

    >>> name_guessers({"graph": 81.5, "none": 66.5, "size": 60.0}, 66.5)
    ['none and size: no better than guessing (66.5 %)']
    """
    names = [name for name, mean in means.items() if not has_learned(mean, guessing)]
    return [f"{listing(names)}: no better than guessing ({guessing:.1f} %)"] if names else []
