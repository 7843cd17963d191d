"""The verdict on a result and its findings: who leads, whom to avoid, what to doubt and what to do next.

Neither claims more than the tests show.
"""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from graphnorm.errors import listing
from graphnorm.study.notes import cautions, guessing
from graphnorm.study.protocol import ALL_GRAPHS
from graphnorm.study.render import counted
from graphnorm.study.significance import CONFIDENCE

if TYPE_CHECKING:
    from graphnorm.study.result import Result

__all__ = ["Finding", "after_failures", "findings", "judge"]

SAME = 1e-6
"""Means that differ by a smaller share count as equal: curves are float32."""
Kind = Literal["BEST", "TIED", "AVOID", "SPEED", "CAUTION", "NEXT"]

EPOCHS = (100, 400)
"""Numbers of epochs that are suggested."""
LATE = 0.9
"""A norm whose median epoch is in the last tenth may still improve."""
SEEDS, FOLDS = 3, 10
"""The numbers of seeds for each fold, and of folds, that are suggested."""
MOST_SEEDS = 100
"""More seeds of one split are not suggested."""


def judge(result: Result) -> str:
    """Name those that lead, how far the others are behind, and which of that is proven."""
    metric = result.metric
    where = f"on {result.dataset} with {result.model} and these settings"
    if result.protocol is ALL_GRAPHS:
        return "All graphs train, and none is left to score by. This study measures something else during training."
    if not result.ranking:
        if result.baselines and not result.norms:
            return f"{listing(list(result.baselines))} is a baseline and is not ranked."
        return f"Nothing can be concluded: no training {where} was finished."
    best, *others = result.ranking
    mean = result.norms[best].mean
    score = f"{result.norms[best].shown} {metric.unit}".rstrip()
    if result.chance is not None and not result.learned:
        return (
            f"Nothing can be concluded: the {metric.best} {metric.name} {where} is {score} ({best}), and chance is "
            f"{metric.with_unit(result.chance)}. Train for longer."
        )
    if not others:
        return f"Only {best} has a result ({metric.name} {score} {where}): there is nothing to compare it with."
    highest = f"{best} has the {metric.best} {metric.name} {where}, {score}"
    tied = [name for name in others if metric.better(mean, result.norms[name].mean) <= SAME * abs(mean)]
    if tied:
        return f"No clear winner: {listing([best, *tied])} share the {metric.best} {metric.name} {where}, {score}."
    if all(result.pair(best, name).p_adjusted is None for name in others):
        return f"No clear winner: {highest}, but there are too few scores to tell that from chance."
    equals, worse = result.groups[0], result.worse
    if len(equals) == 1:
        return f"{highest}, significantly better than every other one: {listing(worse)} {_behind(result, worse)}."
    lead = _leading(result)
    unsettled = [name for name in equals if name not in lead]
    said = []
    if unsettled:
        said.append(f"{listing(unsettled)} {_behind(result, unsettled)}, which {_units(result)} cannot settle")
    if worse:
        said.append(f"{listing(worse)} {_behind(result, worse)}, significantly")
    if len(lead) == 1:
        return f"No clear winner: {highest}; {'; '.join(said)}."
    within = f"{listing(lead)} are within {_width(result, lead)}"
    return f"No clear winner: {highest}; {'; '.join([f'{within}, which {_units(result)} cannot settle', *said])}."


def _leading(result: Result) -> list[str]:
    """The best, and those after it up to the first whose difference to it has an interval without 0.

    These intervals are not corrected for the number of pairs. So a norm outside of this group may still be not
    significantly worse.
    """
    best = result.ranking[0]
    ps = [result.pair(best, name).p for name in result.ranking[1:]]
    apart = (place for place, p in enumerate(ps, start=1) if p is not None and p < 1 - CONFIDENCE)
    return [name for name in result.ranking[: next(apart, len(result.ranking))] if name in result.groups[0]]


def _width(result: Result, lead: Sequence[str]) -> str:
    """How far the last of the leading norms is from the first."""
    difference = result.pair(lead[0], lead[-1]).difference or 0.0
    return result.metric.distance(difference, result.norms[lead[0]].mean)


def _units(result: Result) -> str:
    """The number of scores of the best, with their noun."""
    return counted(len(result.norms[result.ranking[0]].scores), result.protocol.unit)


def _behind(result: Result, names: Sequence[str]) -> str:
    """How far these are behind the best; for one, with the interval of the difference."""
    metric, best = result.metric, result.ranking[0]
    mean = result.norms[best].mean
    tests = [result.pair(best, name) for name in names]
    least, most = (metric.distance(tests[k].difference or 0.0, mean) for k in (0, -1))
    apart = most if least == most else f"{least.removesuffix(' points')} to {most}"
    interval = ""
    if len(tests) == 1 and tests[0].low is not None:
        low, high = sorted(metric.sign * (end or 0.0) for end in (tests[0].low, tests[0].high))
        interval = (
            f" (95 % interval {'−' if low < 0 else ''}{metric.text(abs(low), mean)} to {metric.text(high, mean)})"
        )
    lower = "lower" if metric.higher_is_better else "higher"
    return f"{'is' if len(tests) == 1 else 'are'} {apart} {lower}{interval}"


class Finding(NamedTuple):
    """A sentence with its label."""

    kind: Kind
    text: str
    options: tuple[str, ...] = ()
    """Of NEXT: what the same command gets in addition, such as ``("--epochs", "100")``."""


def findings(result: Result) -> list[Finding]:
    """The lines, in the order in which they are read."""
    if result.protocol is ALL_GRAPHS:
        return [Finding("CAUTION", result.verdict)]
    late = [name for name in result.ranking if _is_late(result, name)]
    who = f"{late[0]}:" if len(late) == 1 else f"{len(late)} of {len(result.ranking)} norms were"
    doubts = [*([f"{who} best near the last epoch"] if late else []), *cautions(result)]
    return [
        *_leaders(result),
        *_speed(result),
        *(Finding("CAUTION", text) for text in doubts),
        *_next(result, 2 * len({*late, *guessing(result)}) >= len(result.ranking)),
    ]


def _leaders(result: Result) -> list[Finding]:
    if not result.learned:
        return [Finding("CAUTION", result.verdict)]
    (best, *equals), worse = result.groups[0], result.worse
    score = f"{result.norms[best].shown} {result.metric.unit}".rstrip()
    if equals:
        tested = all(result.pair(best, name).p_adjusted is not None for name in equals)
        lead = _leading(result)
        lower = [name for name in equals if name not in lead]
        if not tested:
            text = f"{listing([best, *equals])}: too few {result.protocol.unit}s for a test"
        elif lower:
            text = f"{listing(lead)} lead{'' if len(lead) > 1 else 's'}; {listing(lower)} {_behind(result, lower)}"
            text += f"; {_units(result)} cannot settle it"
        else:
            text = f"{listing(lead)}: within {_width(result, lead)}; {_units(result)} do not tell them apart"
        found = [Finding("TIED", text)]
    elif worse:
        found = [Finding("BEST", f"{best}: {score}, significantly better than every other")]
    else:
        found = [Finding("BEST", f"{best}: {score}; there is nothing to compare it with")]
    if worse:
        lost = {name: result.metric.sign * (result.pair(best, name).difference or 0.0) for name in worse}
        names = listing([f"{name} ({result.metric.worse_by(difference)})" for name, difference in lost.items()])
        found += [Finding("AVOID", f"{names}: significantly worse than {best}")]
    return found


def _speed(result: Result) -> list[Finding]:
    convergence = result.convergence
    if len(set(convergence.epochs.values())) < 2 or convergence.target is None or not result.learned:
        return []
    fastest = sorted(
        (name for name in result.ranking if name in convergence.epochs), key=convergence.epochs.__getitem__
    )
    reached = [f"{name} {convergence.epochs[name]}" for name in fastest]
    goal = f"{result.metric.with_unit(convergence.target)} training {result.metric.name}, which all norms reach"
    return [Finding("SPEED", f"epochs to {goal}: {', '.join(reached)}")]


def _is_late(result: Result, name: str) -> bool:
    score = result.norms[name]
    return statistics.median(score.epochs) > LATE * len(score.curves["valid"][0]) if score.epochs else False


def _next(result: Result, too_short: bool) -> list[Finding]:
    """One command that is worth running after this one.

    too_short: whether half of the norms are best near the last epoch or no better than chance.
    """
    spec = result.spec
    if result.unfinished and result.counts.get("failed"):
        return [Finding("NEXT", after_failures(result))]
    if result.unfinished:
        goes_on = "the same command goes on from here" if result.store else "a command with --out DIR can be continued"
        return [Finding("NEXT", f"train the rest: {goes_on}")]
    epochs = max(result.values_of("epochs"))
    if too_short or not result.learned:
        more = next((number for number in EPOCHS if number >= 2 * epochs), 2 * epochs)
        return [Finding("NEXT", "train longer", ("--epochs", str(more)))]
    tied, of_folds = len(result.groups[0]) > 1, result.protocol.unit == "fold"
    if tied and of_folds and spec["seeds"] < SEEDS:
        return [Finding("NEXT", "repeat each fold with other seeds", ("--seeds", str(SEEDS)))]
    if tied and of_folds and spec["folds"] < FOLDS:
        return [Finding("NEXT", "more folds", ("--folds", str(FOLDS)))]
    if tied and not of_folds and (seeds := _seeds_that_tell(result)):
        return [Finding("NEXT", "about as many seeds as this difference needs", ("--seeds", str(seeds)))]
    if result.protocol.name == "paper":
        return [Finding("NEXT", "scores that are not optimistic", ("--protocol", "fair"))]
    return []


def _seeds_that_tell(result: Result) -> int | None:
    """Seeds of one split that would tell the best from the next in 4 of 5 cases; None if they are too many.

    For a difference of d standard deviations these are about 2 (2.8 / d)² on each side.
    """
    best, second = result.ranking[:2]
    effect = abs(result.pair(best, second).effect or 0.0)
    wanted = math.ceil(2 * (2.8 / effect) ** 2) if effect else MOST_SEEDS + 1
    return max(wanted, int(result.spec["seeds"]) + 2) if wanted <= MOST_SEEDS else None


def after_failures(result: Result) -> str:
    """What to do where trials failed; what is not stored is trained again by itself."""
    same = "correct the cause, and give the same command again"
    if not result.store:
        return same
    if "@" in result.model:  # corrected code is another model
        return f"{same}; add --retry-failed if the source of the model stays as it is"
    return f"{same} with --retry-failed"
