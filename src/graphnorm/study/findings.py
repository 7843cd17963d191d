"""What follows from a result: who leads, whom to avoid, who trains fast, what to doubt and what to do next."""

from __future__ import annotations

import statistics
from collections.abc import Sequence
from typing import TYPE_CHECKING, Literal, NamedTuple

from graphnorm.errors import listing
from graphnorm.study import verdict
from graphnorm.study.render import counted

if TYPE_CHECKING:
    from graphnorm.study.result import Result

__all__ = ["Finding", "findings"]

Kind = Literal["BEST", "TIED", "AVOID", "SPEED", "CAUTION", "NEXT"]

EPOCHS = (25, 100, 400)
"""Numbers of epochs that are suggested."""
LATE = 0.9
"""A norm whose median epoch is in the last tenth may still improve."""
SEEDS = 3
"""The number of seeds for each fold that is suggested."""


class Finding(NamedTuple):
    """A sentence with its label."""

    kind: Kind
    text: str
    options: tuple[str, ...] = ()
    """Of NEXT: what the same command gets in addition, such as ``("--epochs", "100")``."""


def findings(result: Result) -> list[Finding]:
    """The lines, in the order in which they are read."""
    late = [name for name in result.ranking if _is_late(result, name)]
    who = f"{late[0]} was" if len(late) == 1 else f"{len(late)} of {len(result.ranking)} norms were"
    cautions = [f"{who} best near the last epoch"] if late else []
    cautions += verdict.cautions(result)
    return [
        *_leaders(result),
        *_speed(result),
        *(Finding("CAUTION", text) for text in cautions),
        *_next(result, 2 * len(late) >= len(result.ranking)),
    ]


def _leaders(result: Result) -> list[Finding]:
    if not result.groups or not result.learned:
        return [Finding("CAUTION", result.verdict)]
    (best, *equals), *rest = result.groups
    score = f"{result.norms[best].shown} {result.metric.unit}".rstrip()
    if equals:
        tested = all(result.pair(best, name).p_adjusted is not None for name in equals)
        unit = result.protocol.unit
        units = counted(len(result.norms[best].scores), unit)
        why = f"{units} do not tell them apart" if tested else f"too few {unit}s for a test"
        found = [Finding("TIED", f"{listing([best, *equals])}: {why}")]
    elif rest:
        found = [Finding("BEST", f"{best}: {score}, significantly better than every other")]
    else:
        found = [Finding("BEST", f"{best}: {score}; there is nothing to compare it with")]
    return found + [Finding("AVOID", f"{_behind(result, group)}: significantly worse than {best}") for group in rest]


def _behind(result: Result, names: Sequence[str]) -> str:
    """Names with their distance to the best."""
    best = result.groups[0][0]
    differences = {name: result.pair(best, name).difference or 0 for name in names}
    return listing([f"{name} ({result.metric.worse_by(difference)})" for name, difference in differences.items()])


def _speed(result: Result) -> list[Finding]:
    convergence = result.convergence
    if len(convergence.epochs) < 2 or convergence.target is None:
        return []
    fastest = sorted(
        (name for name in result.ranking if name in convergence.epochs), key=convergence.epochs.__getitem__
    )
    reached = [f"{name} {convergence.epochs[name]}" for name in fastest]
    goal = f"{result.metric.with_unit(convergence.target)} in training, which all norms reach"
    return [Finding("SPEED", f"epochs to {goal}: {', '.join(reached)}")]


def _is_late(result: Result, name: str) -> bool:
    score = result.norms[name]
    return statistics.median(score.epochs) > LATE * len(score.curves["train"][0]) if score.epochs else False


def _next(result: Result, late: bool) -> list[Finding]:
    """One command that is worth running after this one."""
    spec = result.spec
    epochs = max(result.values_of("epochs"))
    if late or not result.learned:
        more = next((number for number in EPOCHS if number >= 2 * epochs), 2 * epochs)
        return [Finding("NEXT", "train longer", ("--epochs", str(more)))]
    if len(result.groups[0]) > 1 and result.protocol.unit == "fold" and spec["seeds"] < SEEDS:
        return [Finding("NEXT", "repeat each fold with other seeds", ("--seeds", str(SEEDS)))]
    if result.protocol.name == "paper":
        return [Finding("NEXT", "scores that are not optimistic", ("--protocol", "fair"))]
    return []
