"""Shared by the tests of the paper: a reproduction in a store of its own, and trials that nothing has to train."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from fakes import outcome, rising
from graphnorm.paper.item import Item
from graphnorm.paper.output import Output
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import Running
from graphnorm.study.store import Store
from graphnorm.training import Trial

SLOW, FAST = 1e-3, 1e-2
Fill = Callable[..., None]


@pytest.fixture
def reproduction(tmp_path: Path) -> Reproduction:
    """One that trains in this process."""
    return Reproduction(tmp_path / "a.db", running=Running(device="cpu", workers=1), progress=False)


def better_when_fast(trial: Trial, epoch: int) -> dict[str, float]:
    """The larger learning rate is better by 5 points, on every fold and under every protocol."""
    bonus = 0.05 * (trial.lr == FAST)
    return {name: value + bonus for name, value in rising(trial, epoch).items()}


@pytest.fixture
def fill(reproduction: Reproduction) -> Fill:
    """Put those trials of an item that are ``trained`` into the store, in studies of their own.

    changes: of their outcomes.
    """

    def put(
        item: Item,
        trained: Callable[[Trial], bool] = lambda trial: True,
        values: Any = better_when_fast,
        **changes: Any,
    ) -> None:
        for plan in reproduction.plans(item):
            trials = tuple(filter(trained, plan.trials))
            if trials:
                part = replace(plan, name=f"part of {plan.name}, {changes}", trials=trials)
                with Store(reproduction.store) as store:
                    session = store.begin_session(store.add(part, [range(len(trials))]), "local")
                    store.save(session, [outcome(trial, values, **changes) for trial in trials])

    return put


@pytest.fixture
def made(reproduction: Reproduction, fill: Fill) -> Callable[..., Output]:
    """An item, made of a store that has those trials of it that are ``trained``."""

    def make(item: Item, *trained: Any, **options: Any) -> Output:
        fill(item, *trained, **options)
        return reproduction.make(item, train=False)

    return make
