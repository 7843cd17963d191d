"""What a person sees of a study under way."""

from __future__ import annotations

import io
from dataclasses import dataclass, field
from types import SimpleNamespace

import numpy as np
import pytest

from graphnorm.study import display
from graphnorm.study.display import Display
from graphnorm.study.store import Study
from graphnorm.training import Progress, Trial

TRIALS = [
    Trial(dataset="trees", fingerprint="0", norm="graph", protocol="paper", folds=2, fold=fold, epochs=100)
    for fold in range(2)
]


class Terminal(io.StringIO):
    """Text that is written over."""

    def isatty(self) -> bool:
        return True


@dataclass
class Watched:
    """A study whose time passes as told."""

    now: float = 0.0
    screen: Terminal = field(default_factory=Terminal)

    def begin(self) -> None:
        self.display = Display(self.screen)
        self.display.on_begin(Study(1, "trees", {}, "", len(TRIALS), {}, 0.0), TRIALS)

    def answer(self, first: int, last: int) -> str:
        """Tell of epochs, all at once as a worker does, and give what is on the screen."""
        for epoch in range(first, last + 1):
            self.display.on_epoch(Progress(tuple(TRIALS), epoch, {"valid": np.array([0.5, 0.5])}, self.now))
        return self.screen.getvalue().rpartition("\x1b[2K")[2]


@pytest.fixture
def watched(monkeypatch: pytest.MonkeyPatch) -> Watched:
    watched = Watched()
    monkeypatch.setattr(display, "time", SimpleNamespace(monotonic=lambda: watched.now))
    watched.begin()
    return watched


def test_the_time_left_is_estimated_from_training_alone(watched: Watched) -> None:
    watched.now = 5.0  # until then workers started, and the first epochs took longer than the others
    shown = watched.answer(1, 10)
    assert shown == "0 of 2 trials, estimating the time left; graph: epoch 1 of 100, best validation 50.0 %"
    watched.now = 6.0
    assert "estimating the time left; graph: epoch 11" in watched.answer(11, 20)
    watched.now = 7.0
    assert "about 8 s left; graph: epoch 21" in watched.answer(21, 30)  # ten epochs a second
    watched.now = 8.0
    assert "about 7 s left; graph: epoch 31" in watched.answer(31, 40)


def test_an_epoch_alone_is_no_basis(watched: Watched) -> None:
    watched.now = 30.0
    watched.answer(1, 1)
    watched.now = 40.0
    watched.display.on_outcomes([])
    assert "estimating" in watched.screen.getvalue().rpartition("\x1b[2K")[2]
    watched.now = 60.0
    assert "about 49 min 0 s left" in watched.answer(2, 2)
