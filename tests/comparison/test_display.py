"""Progress: what is counted, and what is shown."""

from __future__ import annotations

import io
from dataclasses import replace

import numpy as np
import pytest

from graphnorm.comparison.display import Lines, LiveTable, Silence, choose_display
from graphnorm.comparison.tally import Tally
from graphnorm.training import Progress, Trial


class Clock:
    def __init__(self) -> None:
        self.time = 100.0

    def __call__(self) -> float:
        return self.time


class Terminal(io.StringIO):
    def isatty(self) -> bool:
        return True


def trials(norm: str) -> list[Trial]:
    return [Trial(dataset="d", norm=norm, fold=f, epochs=10) for f in range(4)]


def advance(tally: Tally, some: list[Trial], epoch: int, value: float = 0.8) -> None:
    tally.update(Progress(tuple(some), epoch, {"valid": np.full(len(some), value)}, 1.0))


def test_tally() -> None:
    clock = Clock()
    tally = Tally({"none": trials("none"), "graph": trials("graph")}, clock)
    assert (tally.work, tally.finished, tally.seconds_left) == (80, 0, None)
    clock.time += 10
    advance(tally, trials("graph")[:2], 5)
    advance(tally, trials("graph")[2:], 2, float("nan"))
    assert tally.finished == 14
    assert tally.seconds_left == pytest.approx(10 / 14 * 66)
    assert tally.norms["graph"].epoch == 2
    assert tally.norms["graph"].accuracy == pytest.approx(80)
    tally.finish("none", "70 %", found=True)
    assert tally.work == 40  # what an earlier run trained takes no time
    tally.finish("graph", "80 %")
    assert tally.seconds_left == 0


def test_lines_are_few() -> None:
    clock, stream = Clock(), io.StringIO()
    tally = Tally({"none": trials("none"), "graph": trials("graph")}, clock)
    with Lines(tally, stream) as display:
        for epoch in range(1, 11):
            clock.time += 3
            advance(tally, trials("none"), epoch)
            display.refresh("none")
        tally.finish("none", "70.0 ± 1.0 %")
        display.refresh("none")
    lines = stream.getvalue().splitlines()
    assert lines == [
        "none: epoch 4 of 10, validation 80.0 %, 0:48 left",
        "none: epoch 8 of 10, validation 80.0 %, 0:36 left",
        "none: 70.0 ± 1.0 %, 0:30 left",
    ]


def test_live_table() -> None:
    clock, stream = Clock(), Terminal()
    tally = Tally({"none": trials("none"), "graph": trials("graph")}, clock)
    with choose_display(tally, True, stream) as display:
        assert isinstance(display, LiveTable)
        clock.time += 30
        advance(tally, trials("none"), 5)
        display.refresh("none")
        tally.finish("graph", "90.0 %", found=True)
        display._live.refresh()
    shown = stream.getvalue()
    assert "epoch 5 of 10, validation 80.0 %" in shown
    assert "0:30 gone, 0:30 left" in shown
    assert "90.0 % (from an earlier run)" in shown


@pytest.mark.parametrize(
    ("width", "training"),
    [
        (30, "10…"),
        (40, "100/400, 80…"),
        (50, "100/400, 80.0 %"),
        (60, "100/400, 80.0 %"),
        (90, "epoch 100 of 400, validation 80.0 %"),
        (120, "epoch 100 of 400, validation 80.0 %"),
    ],
)
def test_rows_of_the_live_table_are_lines(width: int, training: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("COLUMNS", str(width))
    names = ["none", "instance", "graph", "a-norm-[of]-mine"]
    clock = Clock()
    tally = Tally({name: [replace(trial, epochs=400) for trial in trials(name)] for name in names}, clock)
    clock.time += 4000
    advance(tally, [replace(trial, epochs=400) for trial in trials("instance")], 100)
    tally.finish("graph", "88.8 ± 10.2 %, 10 diverged, 1234.5 s", found=True)
    tally.finish("a-norm-[of]-mine", "88.8 ± 10.2 %, 1234.5 s")
    display = LiveTable(tally, Terminal())
    console = display._live.console
    assert console.width == width
    lines = ["".join(part.text for part in line) for line in console.render_lines(display._table())]
    shown = [*names[:3], "a-norm-[of]-mi…" if width == 30 else names[3]]
    assert [line.split(" ")[0] for line in lines] == ["norm", *shown, "all"]
    assert lines[2].rstrip().endswith(training)
    assert width < 50 or " 88.8 ± 10.2 %" in lines[3]
    assert all(len(line) <= width for line in lines)
    assert width < 50 or "1:06:40 gone" in lines[5]


def test_choice(monkeypatch: pytest.MonkeyPatch) -> None:
    tally = Tally({"none": trials("none")})
    assert type(choose_display(tally, False, Terminal())) is Silence
    assert type(choose_display(tally, True, io.StringIO())) is Lines
    monkeypatch.setitem(__import__("sys").modules, "rich.live", None)
    assert type(choose_display(tally, True, Terminal())) is Lines
