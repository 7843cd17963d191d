"""The verdict on a result, and what its readers must know; neither claims more than the tests show."""

from __future__ import annotations

import math
from collections.abc import Collection
from typing import TYPE_CHECKING

from graphnorm.study.render import counted, listing
from graphnorm.study.reported import unlike_the_paper
from graphnorm.study.significance import ALPHA

if TYPE_CHECKING:
    from graphnorm.study.result import Result

__all__ = ["ABOUT_BASELINES", "cautions", "explanations", "judge", "note_on_last_batch"]

SAME = 1e-6
"""Means that differ by a smaller share count as equal: curves are float32."""
SMALL_LAST_BATCH = 8
"""A last batch is small if it has less than an eighth of a full one. A sixteenth was seen to slow training."""
ABOUT_BASELINES = "baselines have the same folds and their own settings; they are neither ranked nor tested"


def judge(result: Result) -> str:
    """Name the best normalization, those it beats significantly, and those it does not."""
    metric = result.metric
    where = f"on {result.dataset} with {result.model} and these settings"
    if not result.ranking:
        if result.baselines and not result.norms:
            return f"{listing(list(result.baselines))} is a baseline and is not ranked."
        return f"Nothing can be concluded: no training {where} was finished."
    best, *others = result.ranking
    mean = result.norms[best].mean
    score = f"{result.norms[best].shown} {metric.unit}".rstrip()
    if result.chance is not None and not metric.learned(mean, result.chance):
        return (
            f"Nothing can be concluded: the {metric.best} {metric.name} {where} is {score} ({best}), and chance is "
            f"{metric.with_unit(result.chance)}. Train for longer."
        )
    if not others:
        return f"Only {best} has a result ({metric.name} {score} {where}): there is nothing to compare it with."
    tied = [best] + [name for name in others if metric.better(mean, result.norms[name].mean) <= SAME * abs(mean)]
    if len(tied) > 1:
        return f"No clear winner: {listing(tied)} share the {metric.best} {metric.name} {where}, {score}."
    highest = f"{best} has the {metric.best} {metric.name} {where}, {score}"
    tests = {name: result.pair(best, name) for name in others}
    if all(test.p_adjusted is None for test in tests.values()):
        return f"No clear winner: {highest}, but there are too few scores to tell that from chance."
    beaten = [name for name in others if tests[name].significant and metric.sign * (tests[name].difference or 0) > 0]
    equals = [name for name in others if name not in beaten]
    if not equals:
        everyone = "the only other one" if len(others) == 1 else "every other one"
        return f"{highest}, significantly better than {everyone} ({listing(beaten)})."
    if not beaten:
        return f"No clear winner: {highest}, but not significantly better than {listing(equals, 'or')}."
    return (
        f"No clear winner: {highest}, significantly better than {listing(beaten)}, "
        f"but not than {listing(equals, 'or')}."
    )


def cautions(result: Result) -> list[str]:
    """What makes the numbers doubtful."""
    protocol, spec = result.protocol, result.spec
    found = [
        f"{name}: {score.diverged} of {len(score.choices)} trainings diverged and are left out"
        for name, score in result.norms.items()
        if score.diverged
    ]
    metric, chance = result.metric, result.chance
    low = [name for name in result.ranking if not metric.learned(result.norms[name].mean, chance)]
    if low and chance is not None:
        found.append(f"{listing(low)}: no better than chance ({metric.with_unit(chance)})")
    found += [
        f"{name}: only {score.finished:,} of {counted(score.trials, 'training')} finished"
        for name, score in result.norms.items()
        if score.choices and score.finished < score.trials
    ]
    if result.unfinished:
        found.append(f"not trained: {', '.join(result.unfinished)}")
    if failed := result.counts.get("failed"):
        found.append(f"{counted(failed, 'trial')} failed: `graphnorm runs show` tells why, --retry-failed tries again")
    if result.norms and protocol.name == "paper":
        found.append("protocol paper: the same folds choose the epoch and are reported, so numbers are optimistic")
    if result.norms and len(sizes := result.values_of("batch_size")) == 1:
        found += note_on_last_batch(spec.get("train_sizes") or (), sizes[0])
    compared = [score.compared for score in result.norms.values() if score.choices]
    if len(set(compared)) > 1:
        found.append("the numbers of trained configurations differ: a larger choice is an advantage")
    if protocol.unit == "fold" and any(score.paper for score in result.norms.values()):
        found += unlike_the_paper(spec["folds"], max(result.values_of("epochs")), max(compared, default=0))
    if protocol.unit == "seed" and result.norms:
        found.append("significance is over seeds on one split and does not extend to other splits")
    return found


def explanations(result: Result) -> list[str]:
    """How to read the table."""
    found = [ABOUT_BASELINES] if result.baselines and result.norms else []
    if any(test.p_adjusted is not None for test in result.tests):
        found.append(_about_tests(result))
    return found


def _about_tests(result: Result) -> str:
    protocol = result.protocol
    test = f"paired over {protocol.unit}s" if protocol.paired else f"Welch's test of unpaired {protocol.unit}s"
    correction = " for overlapping training sets and" if protocol.paired and result.overlap else ""
    return (
        f"[95 %]: interval of a difference by itself; p: {test}, corrected{correction} for the number of pairs; "
        f"* below {ALPHA}"
    )


def note_on_last_batch(train_sizes: Collection[int], batch_size: int) -> list[str]:
    """Warn if the last mini-batch of an epoch is small, and name a batch size that leaves more graphs for it.

    train_sizes: numbers of training graphs.

    >>> print(*note_on_last_batch([3329], 128))
    the last mini-batch has 1 graph (others 128), which can slow training; --batch-size 129 leaves 104
    >>> note_on_last_batch([3699], 128)
    []
    """
    if not train_sizes or max(train_sizes) <= batch_size:
        return []

    def smallest(size: int) -> int:
        return min((graphs - 1) % size + 1 for graphs in train_sizes)

    if smallest(batch_size) * SMALL_LAST_BATCH >= batch_size:
        return []
    nearby = range(math.ceil(batch_size / 2), min(2 * batch_size, *train_sizes))
    better = [size for size in sorted(nearby, key=lambda size: abs(size - batch_size)) if 2 * smallest(size) >= size]
    remedy = f"; --batch-size {better[0]} leaves {smallest(better[0])}" if better else ""
    few = counted(smallest(batch_size), "graph")
    return [f"the last mini-batch has {few} (others {batch_size}), which can slow training{remedy}"]
