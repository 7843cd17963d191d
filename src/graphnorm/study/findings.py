"""What follows from a result: who leads, whom to avoid, who trains fast, what to doubt and what to do next."""

from __future__ import annotations

import math
import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from graphnorm.errors import listing
from graphnorm.study import verdict
from graphnorm.study.protocol import ALL_GRAPHS

if TYPE_CHECKING:
    from graphnorm.study.result import Result

__all__ = ["Finding", "findings"]

Kind = Literal["BEST", "TIED", "AVOID", "SPEED", "CAUTION", "NEXT"]

EPOCHS = (100, 400)
"""Numbers of epochs that are suggested."""
LATE = 0.9
"""A norm whose median epoch is in the last tenth may still improve."""
SEEDS, FOLDS = 3, 10
"""The numbers of seeds for each fold, and of folds, that are suggested."""
MOST_SEEDS = 100
"""More seeds of one split are not suggested."""


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
    cautions = [f"{who} best near the last epoch"] if late else []
    cautions += verdict.cautions(result)
    return [
        *_leaders(result),
        *_speed(result),
        *(Finding("CAUTION", text) for text in cautions),
        *_next(result, 2 * len(late) >= len(result.ranking)),
    ]


def _leaders(result: Result) -> list[Finding]:
    if not result.learned:
        return [Finding("CAUTION", result.verdict)]
    (best, *equals), worse, guessing = result.groups[0], result.worse, result.guessing
    score = f"{result.norms[best].shown} {result.metric.unit}".rstrip()
    if equals:
        tested = all(result.pair(best, name).p_adjusted is not None for name in equals)
        lead = verdict.leading(result)
        lower = [name for name in equals if name not in lead]
        if not tested:
            text = f"{listing([best, *equals])}: too few {result.protocol.unit}s for a test"
        elif lower:
            text = (
                f"{listing(lead)} lead{'' if len(lead) > 1 else 's'}; {listing(lower)} {verdict.behind(result, lower)}"
            )
            text += f"; {verdict.units(result)} cannot settle it"
        else:
            text = f"{listing(lead)}: {verdict.units(result)} do not tell them apart"
        found = [Finding("TIED", text)]
    elif worse or guessing:
        why = f"significantly better than {listing(worse)}" if worse else "no other is better than chance"
        why = why if guessing else "significantly better than every other"
        found = [Finding("BEST", f"{best}: {score}, {why}")]
    else:
        found = [Finding("BEST", f"{best}: {score}; there is nothing to compare it with")]
    found += [Finding("AVOID", f"{_behind(result, worse)}: significantly worse than {best}")] if worse else []
    return found + ([Finding("AVOID", f"{listing(guessing)}: no better than chance")] if guessing else [])


def _behind(result: Result, names: Sequence[str]) -> str:
    """Names with their distance to the best."""
    best = result.groups[0][0]
    differences = {name: result.metric.sign * (result.pair(best, name).difference or 0.0) for name in names}
    return listing([f"{name} ({result.metric.worse_by(difference)})" for name, difference in differences.items()])


def _speed(result: Result) -> list[Finding]:
    convergence = result.convergence
    if len(convergence.epochs) < 2 or convergence.target is None or not result.learned:
        return []
    fastest = sorted(
        (name for name in result.ranking if name in convergence.epochs), key=convergence.epochs.__getitem__
    )
    reached = [f"{name} {convergence.epochs[name]}" for name in fastest]
    goal = f"{result.metric.with_unit(convergence.target)} training {result.metric.name}, which all norms reach"
    return [Finding("SPEED", f"epochs to {goal}: {', '.join(reached)}")]


def _is_late(result: Result, name: str) -> bool:
    score = result.norms[name]
    return statistics.median(score.epochs) > LATE * len(score.curves["train"][0]) if score.epochs else False


def _next(result: Result, late: bool) -> list[Finding]:
    """One command that is worth running after this one."""
    spec = result.spec
    if result.unfinished:
        return [Finding("NEXT", "train the rest: the same command goes on from here")]
    epochs = max(result.values_of("epochs"))
    if late or not result.learned:
        more = next((number for number in EPOCHS if number >= 2 * epochs), 2 * epochs)
        return [Finding("NEXT", "train longer", ("--epochs", str(more)))]
    if len(result.groups[0]) > 1 and result.protocol.unit == "fold" and spec["seeds"] < SEEDS:
        return [Finding("NEXT", "repeat each fold with other seeds", ("--seeds", str(SEEDS)))]
    if len(result.groups[0]) > 1 and result.protocol.unit == "fold" and spec["folds"] < FOLDS:
        return [Finding("NEXT", "more folds", ("--folds", str(FOLDS)))]
    if len(result.groups[0]) > 1 and result.protocol.unit == "seed" and (seeds := _seeds_that_tell(result)):
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
