"""A fleet that trains nothing and takes no time: its curves are a function of the trial and the epoch.

And the paper's source, where there is one.
"""

from __future__ import annotations

import hashlib
import os
from collections.abc import Callable, Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import nn

import graphnorm
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.study import Result
from graphnorm.study.plan import Plan
from graphnorm.study.store import Store, Study
from graphnorm.training import Outcome, Progress, Split, Trial

LEVEL = {"none": 0.70, "layer": 0.72, "batch": 0.80, "instance": 0.81, "graph": 0.90, "size": 0.5}
"""What each normalization ends with."""
Values = Callable[[Trial, int], dict[str, float]]
"""The loss and the metrics of a trial after an epoch; ``test`` is left out where the trial has no test part."""


def rising(trial: Trial, epoch: int) -> dict[str, float]:
    """Validation rises to the normalization's level, a little different on every fold."""
    level = LEVEL[trial.norm]
    noise = np.random.default_rng([trial.fold, trial.seed, len(trial.norm)]).normal(0, 0.015)
    rise = 1 - np.exp(-epoch * level * 4 / trial.epochs)
    valid = 0.5 + (level - 0.5 + noise) * rise
    return {"loss": 1 - rise, "train": 0.5 + (level - 0.45) * rise, "valid": valid, "test": valid - 0.03}


def scattered(trial: Trial, epoch: int) -> dict[str, float]:
    """Counts of 50 by a hash of the trial and the epoch: ties and ups and downs."""
    numbers = hashlib.sha256(f"{trial.key} {epoch}".encode()).digest()
    valid, test = numbers[0] % 51 / 50, numbers[1] % 51 / 50
    return {"loss": 1 - valid, "train": valid, "valid": valid, "test": test}


def outcome(trial: Trial, values: Values = rising, *, epochs: int | None = None, **changes: Any) -> Outcome:
    """What a trial gives."""
    rows = [values(trial, epoch) for epoch in range(1, (epochs or trial.epochs) + 1)]
    names = [name for name in rows[0] if name != "test" or trial.protocol in ("fair", "given")]
    curves = {name: np.array([row[name] for row in rows], np.float32) for name in names}
    return Outcome(**{"trial": trial, "curves": curves, "seconds": 0.5, "device": "fake"} | changes)


def with_targets(task: str, columns: int) -> PackedGraphs:
    """Trees whose number of nodes decides the targets; one in five is missing where there are several."""
    trees = synthetic.trees(num_graphs=90, seed=0)
    random = torch.Generator().manual_seed(0)
    sizes = trees.sizes.float()[:, None] + torch.randn(90, columns, generator=random)
    values = 1000 + 50 * sizes if task == "values" else (sizes > sizes.median(0).values).float()
    if columns > 1:
        values[torch.rand(90, columns, generator=random) < 0.2] = torch.nan
    bare = {"labels": torch.zeros_like(trees.labels), "classes": ("unknown",)}
    names = tuple(f"t{k}" for k in range(columns))
    return replace(trees, **bare, name=f"{columns}-{task}", task=task, targets=values, target_names=names)


def fill(
    store: Store, plan: Plan, trained: Callable[[Trial], bool] = lambda trial: True, values: Values = rising
) -> Study:
    """Enter a plan as a study, and what some of its trials gave."""
    study = store.add(plan, [range(len(plan.trials))])
    there = store.statuses(study)
    new = [outcome(trial, values) for trial in plan.trials if trained(trial) and trial.key not in there]
    store.save(store.begin_session(study, "local"), new)
    return store.study(plan.name)


class FakeFleet:
    """What a study needs of a fleet. Tests change the class that the fixture ``fleets`` makes for each of them."""

    values: Values = staticmethod(rising)
    diverging: frozenset[tuple[str, int]] = frozenset()
    """Normalization and fold of members whose curves end after three epochs."""
    trouble: Callable[[FakeFleet], None] = staticmethod(lambda fleet: None)
    """Called before every epoch."""
    made: list[FakeFleet]
    """Every fleet of this class."""

    def __init__(self, graphs: Any, trials: Sequence[Trial], splits: Sequence[Split], device: Any = None) -> None:
        assert len({trial.shape for trial in trials}) == 1
        assert len(trials) == len(splits)
        self.trials, self.splits, self.epoch, self.seconds = tuple(trials), tuple(splits), 0, 0.0
        self.names = [name for name in ("loss", "train", "valid", "test") if name != "test" or len(splits[0].test)]
        self._history = np.zeros((0, len(trials), len(self.names)), np.float32)
        self.made.append(self)

    def advance(self, epochs: int | None = None, on_epoch: Callable[[Progress], None] | None = None) -> None:
        end = self.trials[0].epochs if epochs is None else min(self.epoch + epochs, self.trials[0].epochs)
        while self.epoch < end:
            self.trouble(self)
            self.epoch, self.seconds = self.epoch + 1, self.seconds + 0.5
            rows = np.array([self._row(trial) for trial in self.trials], np.float32)
            self._history = np.concatenate([self._history, rows[None]])
            if on_epoch is not None:
                on_epoch(Progress(self.trials, self.epoch, dict(zip(self.names, rows.T, strict=True)), self.seconds))

    def _row(self, trial: Trial) -> list[float]:
        values = self.values(trial, self.epoch)
        if self._diverges(trial) and self.epoch > 3:
            values = dict.fromkeys(values, np.nan)
        return [values[name] for name in self.names]

    def _diverges(self, trial: Trial) -> bool:
        return (trial.norm, trial.fold) in self.diverging

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        return [
            Outcome(
                trial,
                dict(zip(self.names, self._history[:, member].T.copy(), strict=True)),
                "diverged" if self._diverges(trial) else "done",
                seconds=0.5,
                device="fake",
                state={"weight": torch.full((1,), float(self.epoch))} if keep_state else {},
            )
            for member, trial in enumerate(self.trials)
        ]

    def model(self, member: int) -> nn.Module:
        """Its one weight is the number of epochs behind it."""
        model = nn.Linear(1, 1, bias=False)
        nn.init.constant_(model.weight, float(len(self._history)))
        return model

    def state_dict(self) -> dict[str, Any]:
        return {"epoch": self.epoch, "seconds": self.seconds, "history": torch.from_numpy(self._history.copy())}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.seconds, self._history = state["epoch"], state["seconds"], state["history"].numpy()
        assert self._history.shape[1] == len(self.trials)

    def keep(self, members: Sequence[int]) -> FakeFleet:
        smaller = type(self)(None, [self.trials[k] for k in members], [self.splits[k] for k in members])
        smaller.load_state_dict(self.state_dict() | {"history": torch.from_numpy(self._history[:, list(members)])})
        return smaller


class Weights:
    """A probe that sees the first weight of each parameter."""

    at = (0, 2, 6)

    def look(self, model: nn.Module, graphs: Any) -> dict[str, Any]:
        return {"first": np.array([parameter.flatten()[0].item() for parameter in model.parameters()])}


def compare(data: Any = "synthetic:trees", **options: Any) -> Result:
    """``graphnorm.compare`` in this process, without a display."""
    given = {"epochs": 20, "workers": 1, "device": "cpu", "progress": False} | options
    return graphnorm.compare(data, **given)


def paper_source() -> str:
    """The paper's LaTeX, from the folder ``paper`` beside the datasets; the test is skipped where there is none."""
    path = Path(os.environ.get("GRAPHNORM_DATA", "none"), "..", "paper", "graphnorm-icml2021.tex")
    if not path.exists():
        pytest.skip("the paper's source is not beside the datasets ($GRAPHNORM_DATA/../paper)")
    return path.read_text(encoding="utf-8")
