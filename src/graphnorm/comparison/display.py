"""Progress for people: a live table in a terminal, plain lines anywhere else. It goes to standard error."""

from __future__ import annotations

import itertools
import sys
from collections.abc import Sequence
from types import TracebackType
from typing import TYPE_CHECKING, NamedTuple, TextIO

from graphnorm.comparison.tally import NormTally, Tally, clock

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = ["Lines", "LiveTable", "Silence", "choose_display"]

BETWEEN_LINES = 10.0
"""Seconds."""
GAP = 2
"""Spaces between columns."""
BARS = (24, 8)
"""How long bars are, and how long where there is little room."""


class Layout(NamedTuple):
    """Columns of the live table, with gaps between them, and the words of the last one."""

    name: int
    bar: int
    text: int
    words: Sequence[str]


class Silence:
    """Shows nothing; what the other displays have in common."""

    def __init__(self, tally: Tally) -> None:
        self.tally = tally

    def __enter__(self) -> Silence:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        return None

    def refresh(self, name: str) -> None:
        """Show what the tally has become; ``name`` is what it changed for."""


class Lines(Silence):
    """One line now and then, and one for every normalization that is done."""

    def __init__(self, tally: Tally, stream: TextIO) -> None:
        super().__init__(tally)
        self._stream, self._last = stream, 0.0

    def refresh(self, name: str) -> None:
        """Print a line, unless the last one is only just past."""
        norm = self.tally.norms[name]
        if norm.state == "training" and self.tally.elapsed - self._last < BETWEEN_LINES:
            return
        self._last = self.tally.elapsed
        left = f", {clock(self.tally.seconds_left)} left" if self.tally.work > self.tally.finished else ""
        print(f"{name}: {_describe(norm)}{left}", file=self._stream, flush=True)


class LiveTable(Silence):
    """A table that is drawn again and again, with a bar and the time left (rich)."""

    def __init__(self, tally: Tally, stream: TextIO) -> None:
        super().__init__(tally)
        from rich.console import Console
        from rich.live import Live

        self._console = Console(file=stream)
        self._live: Live = Live(console=self._console, get_renderable=self._table, refresh_per_second=4, transient=True)

    def __enter__(self) -> LiveTable:
        self._live.__enter__()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._live.__exit__(kind, error, trace)

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        norms = self.tally.norms
        times = f"{clock(self.tally.elapsed)} gone, {clock(self.tally.seconds_left)} left"
        layout = _lay_out(
            self._console.width,
            names=[*norms, "norm"],
            full=[*map(_describe, norms.values()), times],
            brief=[*map(_describe_briefly, norms.values()), times],
        )
        table = Table(box=None, pad_edge=False)
        for column, width in (("norm", layout.name), ("", layout.bar), ("so far", layout.text)):
            table.add_column(column, width=width, no_wrap=True, overflow="ellipsis")
        for (name, norm), words in zip(norms.items(), layout.words, strict=False):
            waiting = norm.state == "waiting"
            bar = ProgressBar(total=norm.work, completed=norm.finished, width=layout.bar)
            table.add_row(Text(name), bar, Text(words), style="dim" if waiting else None)
        total = ProgressBar(total=max(self.tally.work, 1), completed=self.tally.finished, width=layout.bar)
        table.add_row("all", total, times, style="bold")
        return table


def _lay_out(width: int, names: Sequence[str], full: Sequence[str], brief: Sequence[str]) -> Layout:
    """The longest bar and words for which every row is one line of the terminal; what is still too long is cut off.

    >>> _lay_out(80, ["graph"], ["epoch 5 of 10"], ["5/10"])
    Layout(name=5, bar=24, text=47, words=['epoch 5 of 10'])
    >>> _lay_out(22, ["graph"], ["epoch 5 of 10"], ["5/10"])
    Layout(name=5, bar=8, text=5, words=['5/10'])
    """
    name = min(max(map(len, names)), width // 2)
    for words, bar in itertools.product((full, brief), BARS):
        text = width - name - bar - 2 * GAP
        if text >= max(map(len, words)):
            break
    return Layout(name, bar, max(text, 1), words)


def choose_display(tally: Tally, show: bool, stream: TextIO | None = None) -> Silence:
    """A live table where there is a terminal and rich to draw it, lines elsewhere, silence where asked for."""
    stream = stream or sys.stderr
    if not show:
        return Silence(tally)
    if stream.isatty() and _has_rich():
        return LiveTable(tally, stream)
    return Lines(tally, stream)


def _has_rich() -> bool:
    try:
        import rich.live  # noqa: F401
    except ImportError:
        return False
    return True


def _describe(norm: NormTally) -> str:
    if norm.state == "waiting":
        return "waiting"
    if norm.state == "training":
        return f"epoch {norm.epoch} of {norm.epochs}, validation {norm.accuracy:.1f} %"
    return norm.summary + (" (from an earlier run)" if norm.state == "found" else "")


def _describe_briefly(norm: NormTally) -> str:
    if norm.state == "training":
        return f"{norm.epoch}/{norm.epochs}, {norm.accuracy:.1f} %"
    return norm.summary + " (earlier)" if norm.state == "found" else _describe(norm)
