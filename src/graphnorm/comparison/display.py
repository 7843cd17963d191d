"""Progress for people: a live table in a terminal, plain lines anywhere else. It goes to standard error."""

from __future__ import annotations

import sys
from types import TracebackType
from typing import TYPE_CHECKING, Any, TextIO

from graphnorm.comparison.tally import NormTally, Tally, clock

if TYPE_CHECKING:
    from rich.live import Live
    from rich.table import Table

__all__ = ["Lines", "LiveTable", "Silence", "choose_display"]

BETWEEN_LINES = 10.0
"""Seconds."""


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

        self._live: Live = Live(
            console=Console(file=stream), get_renderable=self._table, refresh_per_second=4, transient=True
        )

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

        table = Table(box=None, pad_edge=False)
        for column in ("norm", "", "so far"):
            table.add_column(column)
        for name, norm in self.tally.norms.items():
            done = norm.state in ("done", "found")
            bar = ProgressBar(total=norm.work, completed=norm.finished, width=24)
            table.add_row(name, bar, _describe(norm), style=None if done or norm.state == "training" else "dim")
        total = ProgressBar(total=max(self.tally.work, 1), completed=self.tally.finished, width=24)
        times = f"{clock(self.tally.elapsed)} gone, {clock(self.tally.seconds_left)} left"
        table.add_row("all", total, times, style="bold")
        return table


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


def _describe(norm: NormTally) -> Any:
    if norm.state == "waiting":
        return "waiting"
    if norm.state == "training":
        return f"epoch {norm.epoch} of {norm.epochs}, validation {norm.accuracy:.1f} %"
    return norm.summary + (" (from an earlier run)" if norm.state == "found" else "")
