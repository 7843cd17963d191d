"""One sentence of verdict, which claims no more than the tests do."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from graphnorm.comparison.result import Comparison

__all__ = ["listing", "pronounce"]

SAME = 1e-4
"""Means that differ by less percentage points than this are equal."""


def pronounce(comparison: Comparison) -> str:
    """Say which normalization is best, over which others that is significant, and where it is not."""
    metric, ranking = comparison.protocol.metric, comparison.ranking
    where = f"on {comparison.dataset} with {comparison.settings.model} and these settings"
    if not ranking:
        return f"Nothing can be said: no training {where} came to its end."
    best, *others = ranking
    top = comparison.norms[best]
    score = f"{top.mean:.1f} %" if top.std != top.std else f"{top.mean:.1f} ± {top.std:.1f} %"
    if not others:
        return f"Only {best} has a result ({metric} {score} {where}): there is nothing to compare it with."
    tied = [best] + [name for name in others if top.mean - comparison.norms[name].mean < SAME]
    if len(tied) > 1:
        return f"No clear winner: {listing(tied)} share the highest {metric} {where}, {score}."
    highest = f"{best} has the highest {metric} {where}, {score}"
    tests = {name: comparison.pair(best, name) for name in others}
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


def listing(names: Sequence[str], word: str = "and") -> str:
    """Names as people list them.

    >>> listing(["none", "layer", "batch"])
    'none, layer and batch'
    """
    return names[0] if len(names) == 1 else f"{', '.join(names[:-1])} {word} {names[-1]}"
