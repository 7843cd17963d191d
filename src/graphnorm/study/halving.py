"""Successive halving: a search that repeatedly drops the weaker half of its configurations.

All configurations of a normalization train up to a first rung; the better half continues for twice as long, and so on.
The learning rate follows the schedule of the full training, so a trial that is trained to the end is exactly the trial
of the full grid. Configurations are compared on validation graphs, never on reported ones: under a nested protocol each
fold decides for itself, since its validation graphs are test graphs of other folds.
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.errors import StudyError
from graphnorm.study.grouping import by_key
from graphnorm.study.plan import Plan, Rung
from graphnorm.study.protocol import find_protocol
from graphnorm.training import Trial, metric_of

__all__ = ["Ladder", "adapt", "losers", "make_ladder"]

FIRST_RUNG = 4
"""The earliest epoch of a rung."""


class Ladder(NamedTuple):
    """The number of configurations at the start, and the rungs at which some are dropped."""

    configurations: int
    rungs: tuple[Rung, ...]

    def cost(self, epochs: int) -> int:
        """Epochs of all configurations together, for one fold and seed.

        >>> Ladder(4, (Rung(25, 2), Rung(50, 1))).cost(100)
        200
        """
        total, alive, before = 0, self.configurations, 0
        for epoch, keep in self.rungs:
            total += alive * (epoch - before)
            alive, before = keep, epoch
        return total + alive * (epochs - before)


def make_ladder(configurations: int, epochs: int, budget: float) -> Ladder:
    """The ladder with the fewest rungs whose cost is at most ``budget`` (epochs, for one fold and seed).

    If no ladder over all configurations is cheap enough, fewer configurations start.

    >>> make_ladder(60, 400, 60 * 400).rungs
    ()
    >>> make_ladder(60, 400, 8000)
    Ladder(configurations=60, rungs=(Rung(epoch=50, keep=30), Rung(epoch=100, keep=15), Rung(epoch=200, keep=8)))
    """
    if budget < epochs:
        raise StudyError(
            f"the budget is {budget / epochs:.2f} full trainings for every normalization, fold and seed; "
            "at least one is needed",
            remedy="give more time or trials, fewer folds or normalizations, or fewer epochs",
        )
    ladder = Ladder(configurations, ())
    for rungs in range(max(1, int(math.log2(epochs / FIRST_RUNG)) + 1)):
        ladder = _ladder(configurations, epochs, rungs)
        if ladder.cost(epochs) <= budget:
            return ladder
    while ladder.cost(epochs) > budget:
        configurations -= 1
        ladder = _ladder(configurations, epochs, len(ladder.rungs))
    return ladder


def _ladder(configurations: int, epochs: int, rungs: int) -> Ladder:
    steps: list[Rung] = []
    for left in range(rungs, 0, -1):
        keep = max(1, math.ceil(configurations / 2 ** (rungs - left + 1)))
        before = steps[-1].keep if steps else configurations
        if keep < before:
            steps.append(Rung(epochs // 2**left, keep))
    return Ladder(configurations, tuple(steps))


def losers(trials: Sequence[Trial], valid: Mapping[str, npt.NDArray[np.float32]], keep: int) -> list[Trial]:
    """The trials of one normalization that are dropped at a rung.

    valid: validation curves so far, by the trials' keys.
    """
    protocol, sign = find_protocol(trials[0].protocol), metric_of(trials[0]).sign
    lost: list[Trial] = []
    for unit in by_key(trials, lambda trial: trial.fold if protocol.nested else 0).values():
        groups = list(by_key(unit, lambda trial: trial.configuration).values())
        scores = [_score([sign * valid[t.key] for t in group], one_epoch=protocol.one_epoch) for group in groups]
        order = sorted(range(len(groups)), key=lambda k: (-scores[k], k))
        lost += [trial for place in order[keep:] for trial in groups[place]]
    return lost


def _score(curves: Sequence[npt.NDArray[np.float32]], *, one_epoch: bool) -> float:
    """The validation score of a configuration so far, where higher is better; −∞ if a member diverged."""
    stacked = np.stack(curves).astype(np.float64)
    if np.isnan(stacked).any():
        return -math.inf
    value = stacked.mean(0).max() if one_epoch else stacked.max(1).mean()
    return float(np.float32(value))  # curves are float32: smaller differences are rounding


def adapt(plan: Plan, full_trainings: float) -> Plan:
    """Turn a plan into a search by successive halving that costs about ``full_trainings``.

    If the budget is too small for all configurations, evenly spread ones start.
    """
    epochs = {trial.epochs for trial in plan.trials}
    if len(epochs) != 1:
        raise StudyError(
            "trials of different length cannot be halved", remedy="give one number of epochs, no baselines"
        )
    (length,) = epochs
    groups = plan.configurations()
    if any(kind == "baselines" for kind, _ in groups):
        raise StudyError("baselines have one configuration each, of which none can be dropped", remedy="leave them out")
    configurations = len(next(iter(groups.values())))
    members = len(plan.trials) / configurations  # normalizations, folds and seeds
    ladder = make_ladder(configurations, length, full_trainings * length / members)
    chosen = {round(k * (configurations - 1) / max(ladder.configurations - 1, 1)) for k in range(ladder.configurations)}
    kept = sorted(place for group in groups.values() for k in chosen for place in group[k])
    spec = {**plan.spec, "rungs": [list(rung) for rung in ladder.rungs], "configurations": ladder.configurations}
    return replace(plan, spec=spec, trials=tuple(plan.trials[place] for place in kept))
