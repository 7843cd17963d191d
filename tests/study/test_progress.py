"""What a person, or a tracker, learns of a study under way."""

from __future__ import annotations

import io
import sys
from collections.abc import Sequence
from dataclasses import dataclass, field, replace
from itertools import chain
from pathlib import Path

import numpy as np
import pytest

from fakes import outcome
from graphnorm.study import Study
from graphnorm.study.progress import Callback, Callbacks, Display, TensorBoard
from graphnorm.training import Outcome, Progress, Trial

STUDY = Study(1, "trees", {}, "", 8)


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def members(norm: str, epochs: int = 100) -> list[Trial]:
    return [Trial(dataset="d", norm=norm, fold=fold, epochs=epochs) for fold in range(4)]


@dataclass
class TimedDisplay:
    """A display whose time passes as told."""

    screen: io.StringIO = field(default_factory=io.StringIO)
    now: float = 0.0

    def __post_init__(self) -> None:
        self.display = Display(self.screen, lambda: self.now)

    def advance(self, trials: Sequence[Trial], first: int, last: int, value: float = 0.8) -> None:
        """Tell of epochs all at once, as a worker does."""
        for epoch in range(first, last + 1):
            metrics = {"valid": np.full(len(trials), value)}
            self.display.on_epoch(Progress(tuple(trials), epoch, metrics, self.now))


def test_the_time_left_is_estimated_from_training_alone() -> None:
    timed, trials = TimedDisplay(), members("graph")
    timed.display.on_begin(STUDY, trials, trials)
    assert timed.display.seconds_left is None
    timed.now = 5.0  # until then workers started, and the first epochs took longer than the others
    timed.advance(trials, 1, 10)
    timed.now = 6.0
    timed.advance(trials, 11, 20)
    assert timed.display.seconds_left is None  # too little to say
    timed.now = 8.0
    timed.advance(trials, 21, 40)
    assert timed.display.seconds_left == pytest.approx(60 * 3 / 39)  # 39 epochs in three seconds, 60 are left


def test_an_epoch_alone_is_no_basis() -> None:
    timed, trials = TimedDisplay(), members("graph")
    timed.display.on_begin(STUDY, trials, trials)
    timed.now = 30.0
    timed.advance(trials, 1, 1)
    timed.now = 60.0
    assert timed.display.seconds_left is None
    timed.advance(trials, 2, 2)
    assert timed.display.seconds_left == pytest.approx(98 * 30)


def test_work_of_earlier_runs_and_dropped_work_take_no_time() -> None:
    timed, old, new = TimedDisplay(), members("none"), members("graph")
    timed.display.on_begin(STUDY, [*old, *new], new)
    timed.display.on_fleet(new, 40)  # from a checkpoint
    timed.advance(new, 41, 41)
    timed.now = 10.0
    timed.advance(new, 42, 51)
    assert timed.display.seconds_left == pytest.approx(49)
    timed.display.on_dropped(new[:2], 51)
    assert timed.display.seconds_left == pytest.approx(49 / 2)
    timed.display.on_outcomes([outcome(trial) for trial in new[2:]])
    timed.display.on_end(True)
    assert timed.screen.getvalue().splitlines()[-1].endswith("8 of 8 trials are done")


def test_lines_are_few_where_there_is_no_terminal() -> None:
    timed, trials = TimedDisplay(), members("none", 10)
    timed.display.on_begin(STUDY, trials, trials)
    for epoch in range(1, 11):
        timed.now += 3
        timed.advance(trials, epoch, epoch)
    timed.display.on_outcomes([outcome(trial) for trial in trials])
    timed.display.on_failure(trials[:1], "RuntimeError: gone\nTraceback", False)
    timed.display.on_stop()
    timed.display.on_end(True)
    lines = timed.screen.getvalue().splitlines()
    assert len(lines) == 6
    assert lines[0] == "trees: 4 trials"
    assert lines[1].startswith("none: 40 % of 4 trials, best validation 80.0 %; about ")
    assert lines[3].endswith("RuntimeError: gone")
    assert lines[4] == "stopping after the current epoch; Ctrl-C again stops at once"
    assert lines[5] == "finished after 30 s: 4 of 4 trials are done"


def test_what_is_not_finished_is_less_than_100_percent() -> None:
    timed, trials = TimedDisplay(), members("graph")
    timed.display.on_begin(STUDY, trials, trials)
    timed.advance(trials[:3], 1, 100)
    timed.advance(trials[3:], 1, 98)
    timed.now = 20.0
    timed.advance(trials[3:], 99, 99)
    assert timed.screen.getvalue().splitlines()[-1].startswith("graph: 99 % of 4 trials")


def test_a_callback_that_fails_again_while_it_fails_is_left_out() -> None:
    """Ctrl-C in the middle of another method."""

    class Broken(Callback):
        def on_end(self, finished: bool) -> None:
            callbacks.tell(Callback.on_stop)
            raise OSError("the tracker is away")

        def on_stop(self) -> None:
            raise OSError("the tracker is away")

    callbacks = Callbacks([Broken()])
    with pytest.warns(UserWarning, match="Broken is dropped"):
        callbacks.tell(Callback.on_end, True)


def test_a_live_table_in_a_terminal() -> None:
    pytest.importorskip("rich")
    timed, old, new = TimedDisplay(Terminal()), members("graph"), members("none")
    timed.display.on_begin(STUDY, [*old, *new], new)
    timed.now = 30.0
    timed.advance(new, 1, 5)
    timed.display._live.refresh()
    timed.display.on_end(False)
    shown = timed.screen.getvalue()
    assert "80.0 %" in shown
    assert "earlier" in shown
    assert "30 s elapsed" in shown


@pytest.mark.parametrize("width", [30, 40, 60, 90])
def test_rows_of_the_live_table_are_lines(width: int, monkeypatch: pytest.MonkeyPatch) -> None:
    pytest.importorskip("rich")
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["none", "instance", "graph", "my-[norm]"]
    trials = {name: members(name, 400) for name in names}
    baseline = [replace(trial, model="mlp") for trial in members("none")]
    timed = TimedDisplay(Terminal())
    missing = [*trials["none"], *trials["instance"], *baseline]
    timed.display.on_begin(STUDY, [*chain(*trials.values()), *baseline], missing)
    timed.now = 4000.0
    timed.advance(trials["instance"], 1, 100)
    console = timed.display._live.console
    lines = ["".join(part.text for part in line) for line in console.render_lines(timed.display._table())]
    timed.display.on_end(False)
    assert all(len(line) <= width for line in lines)
    rows = [line.split() for line in lines[1 : len(names) + 3]]
    if width > 30:
        assert [row[0] for row in rows] == [*names, "baseline", "all"]
        assert rows[1][-3:] == ["0/4", "80.0", "%"]
        assert rows[-1][-1] == "8/20"
        assert "1 h 6 min" in " ".join(lines[len(names) + 3 :])


def test_without_rich_there_are_lines(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "rich.live", None)
    timed, trials = TimedDisplay(Terminal()), members("none")
    timed.display.on_begin(STUDY, trials, trials)
    assert timed.display._live is None
    timed.now = 11.0
    timed.advance(trials, 1, 1)
    assert len(timed.screen.getvalue().splitlines()) == 2


@pytest.mark.filterwarnings("ignore::DeprecationWarning")
def test_tensorboard(tmp_path: Path) -> None:
    pytest.importorskip("tensorboard", reason="TensorBoard is not installed")
    from tensorboard.backend.event_processing.event_accumulator import EventAccumulator

    trial = Trial(dataset="MUTAG", fold=2, epochs=3)
    curve = np.array([0.25, 0.5, 0.75], np.float32)
    TensorBoard(tmp_path).on_outcomes([Outcome(trial, {"loss": 1 - curve, "valid": curve})])
    (run,) = (tmp_path / "MUTAG-gin-graph").iterdir()
    events = EventAccumulator(str(run)).Reload()
    assert [(e.step, e.value) for e in events.Scalars("valid")] == [(1, 0.25), (2, 0.5), (3, 0.75)]
