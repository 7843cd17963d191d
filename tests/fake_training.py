"""A stand-in for the training engine: curves by formula, in no time."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import numpy as np

from graphnorm.training import Outcome, Progress, Split, Trial

LEVEL = {"none": 0.70, "layer": 0.72, "batch": 0.80, "instance": 0.81, "graph": 0.90, "size": 0.5}
"""What each normalization ends with."""


class FakeTraining:
    """Gives outcomes whose validation rises to the norm's level, a little different on every fold.

    diverging: (norm, fold) pairs. stop_at: (norm, epoch) at which Ctrl-C is pressed.
    """

    def __init__(self, diverging: Sequence[tuple[str, int]] = (), stop_at: tuple[str, int] | None = None) -> None:
        self.diverging, self.stop_at = set(diverging), stop_at
        self.trained: list[str] = []
        self.keywords: dict[str, Any] = {}

    def __call__(
        self,
        graphs: Any,
        trials: Sequence[Trial],
        splits: Sequence[Split],
        *,
        on_epoch: Callable[[Progress], None] | None = None,
        on_outcomes: Callable[[list[Outcome]], None] | None = None,
        **keywords: Any,
    ) -> list[Outcome]:
        assert len(trials) == len(splits)
        self.keywords = keywords
        found: dict[int, Outcome] = {}
        for shape in dict.fromkeys(trial.shape for trial in trials):
            members = [k for k, trial in enumerate(trials) if trial.shape == shape]
            outcomes = self._fleet([trials[k] for k in members], [splits[k] for k in members], on_epoch)
            found |= dict(zip(members, outcomes, strict=True))
            if on_outcomes is not None:
                on_outcomes(outcomes)
        return [found[k] for k in range(len(trials))]

    def _fleet(
        self, trials: Sequence[Trial], splits: Sequence[Split], on_epoch: Callable[[Progress], None] | None
    ) -> list[Outcome]:
        outcomes = [self._outcome(trial, split) for trial, split in zip(trials, splits, strict=True)]
        for epoch in range(1, trials[0].epochs + 1):
            metrics = {name: np.array([o.curves[name][epoch - 1] for o in outcomes]) for name in outcomes[0].curves}
            if on_epoch is not None:
                on_epoch(Progress(tuple(trials), epoch, metrics, 0.1 * epoch))
            if self.stop_at == (trials[0].norm, epoch):
                raise KeyboardInterrupt
        self.trained += [trial.norm for trial in trials]
        return outcomes

    def _outcome(self, trial: Trial, split: Split) -> Outcome:
        level = LEVEL[trial.norm]
        noise = np.random.default_rng([trial.fold, trial.seed, len(trial.norm)]).normal(0, 0.015)
        rise = 1 - np.exp(-np.arange(1, trial.epochs + 1) * level * 4 / trial.epochs)
        curves = {"loss": 1 - rise, "train": 0.5 + (level - 0.45) * rise, "valid": 0.5 + (level - 0.5 + noise) * rise}
        if len(split.test):
            curves["test"] = curves["valid"] - 0.03
        diverged = (trial.norm, trial.fold) in self.diverging
        if diverged:
            curves = {name: np.where(np.arange(trial.epochs) > 2, np.nan, curve) for name, curve in curves.items()}
        arrays = {name: curve.astype(np.float32) for name, curve in curves.items()}
        return Outcome(trial, arrays, "diverged" if diverged else "done", seconds=0.5, device="fake")
