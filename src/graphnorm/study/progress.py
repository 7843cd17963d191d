"""Progress of a running study: a display for the terminal, TensorBoard, or your own tracker.

A tracker is a subclass of :class:`Callback` that overrides some of its methods. They are called one after the other in
the driver's process; only ``on_stop`` may interrupt another. A callback that raises is dropped with a warning, so that
no tracker can end a study.
"""

from __future__ import annotations

import os
import sys
import time
import warnings
from collections.abc import Callable, Sequence
from dataclasses import astuple, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TextIO

import numpy as np

from graphnorm.errors import need
from graphnorm.study.plan import role
from graphnorm.study.render import clock, counted
from graphnorm.study.selection import best_of
from graphnorm.training import METRICS, Outcome, Progress, Trial, metric_of

if TYPE_CHECKING:
    from rich.table import Table

    from graphnorm.study.store import Study

__all__ = ["Callback", "Callbacks", "Display", "TensorBoard"]

BETWEEN_LINES = 10.0
"""Seconds between two lines without a terminal."""
BASIS_SECONDS = 2.0
"""Seconds of training before the time left is estimated."""


class Callback:
    """Informed of the events of a study; override what you need."""

    def on_begin(self, study: Study, trials: Sequence[Trial], missing: Sequence[Trial]) -> None:
        """The study starts or continues; ``missing`` are the trials to train."""

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        """A fleet of trials starts, or continues after an epoch."""

    def on_epoch(self, progress: Progress) -> None:
        """A fleet finished an epoch."""

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """These trials are finished and saved."""

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        """An adaptive search drops these trials after an epoch."""

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        """A fleet failed; unless ``final``, it is tried again."""

    def on_stop(self) -> None:
        """Ctrl-C or SIGTERM: no more epochs are begun. It may interrupt another method."""

    def on_end(self, finished: bool) -> None:
        """The study is finished, or was interrupted."""


class Callbacks:
    """Several callbacks that get the same events."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = list(callbacks)

    def tell(self, event: Callable[..., None], *arguments: Any) -> None:
        """Call the method ``event`` of every callback; drop a callback that raises."""
        for callback in tuple(self._callbacks):
            try:
                getattr(callback, event.__name__)(*arguments)
            except Exception as error:
                self._callbacks = [one for one in self._callbacks if one is not callback]  # it may be gone already
                name = type(callback).__name__
                warnings.warn(f"{name} is dropped: {type(error).__name__}: {error}", stacklevel=2)


class TensorBoard(Callback):
    """Writes the curves of every finished trial for TensorBoard, one run for each."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        need("tensorboard", "writing for TensorBoard", "tracking")
        from torch.utils.tensorboard import SummaryWriter

        self._folder, self._writer = folder, SummaryWriter

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            trial = outcome.trial
            run = f"{trial.dataset}-{trial.model}-{trial.norm}/fold{trial.fold}-seed{trial.seed}-{trial.key}"
            with self._writer(Path(self._folder, run)) as writer:
                for name, curve in outcome.curves.items():
                    for epoch, value in enumerate(curve.tolist(), 1):
                        writer.add_scalar(name, value, epoch)
                settings = {k: v for k, v in trial.to_dict().items() if isinstance(v, (bool, int, float, str))}
                best = best_of(outcome.curves["valid"], metric_of(trial).sign)
                writer.add_hparams(settings, {"best/valid": best}, run_name=".")


@dataclass
class _Row:
    """Progress of one normalization or baseline."""

    work: int = 0
    """Epochs of all its trials."""
    epochs: int = 0
    """Epochs trained so far, in this run or before."""
    trials: int = 0
    before: int = 0
    """Trials that an earlier run finished."""
    finished: int = 0
    """Trials that this run finished."""
    best: float = float("nan")
    """The best validation metric so far."""

    @property
    def done(self) -> int:
        return self.before + self.finished


class Display(Callback):
    """Shows progress and the time left: a live table in a terminal, otherwise a line every ten seconds.

    now: returns the time in seconds.
    """

    def __init__(self, stream: TextIO | None = None, now: Callable[[], float] = time.monotonic) -> None:
        self._stream = stream or sys.stderr
        self._now = now
        self._began = self._shown = now()
        self._rows: dict[str, _Row] = {}
        self._epochs: dict[str, int] = {}
        self._metric = METRICS["accuracy"]
        self._basis: tuple[float, int] | None = None
        self._trained = 0
        self._live: Any = None

    # Events

    def on_begin(self, study: Study, trials: Sequence[Trial], missing: Sequence[Trial]) -> None:
        left = {trial.key for trial in missing}
        self._began, self._metric = self._now(), metric_of(trials[0])
        for trial in trials:
            row = self._rows.setdefault(_label(trial), _Row())
            row.work, row.trials = row.work + trial.epochs, row.trials + 1
            if trial.key not in left:
                row.epochs, row.before = row.epochs + trial.epochs, row.before + 1
        before = sum(row.before for row in self._rows.values())
        known = f", {before:,} of them trained before" if before else ""
        self._line(f"{study.name}: {counted(len(trials), 'trial')}{known}")
        if missing and self._stream.isatty():
            self._start_live()

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        for trial in trials:
            self._count(trial, epoch)

    def on_epoch(self, progress: Progress) -> None:
        for trial in progress.trials:
            self._count(trial, progress.epoch)
        self._trained += len(progress.trials)
        if self._basis is None:  # the time until here went into starting workers and warming up
            self._basis = self._now(), self._trained
        row = self._rows[_label(progress.trials[0])]
        sign = self._metric.sign
        row.best = sign * float(np.nanmax([sign * row.best, *(sign * progress.metrics["valid"]), -np.inf]))
        self._refresh(_label(progress.trials[0]))

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        for outcome in outcomes:
            self._rows[_label(outcome.trial)].finished += 1

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        for trial in trials:
            row = self._rows[_label(trial)]
            row.finished += 1
            row.work -= trial.epochs - epoch  # these are not trained
        if trials:
            self._line(f"{_label(trials[0])}: {counted(len(trials), 'trial')} dropped after epoch {epoch}")

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        after = "recorded as failed" if final else "tried again"
        self._line(f"a fleet of {len(trials)} ({_label(trials[0])}) failed, {after}: {error.splitlines()[0]}")

    def on_stop(self) -> None:
        self._line("stopping after the current epoch; Ctrl-C again stops at once")

    def on_end(self, finished: bool) -> None:
        if self._live is not None:
            self._live.stop()
            self._live = None
        done = sum(row.done for row in self._rows.values())
        trials = sum(row.trials for row in self._rows.values())
        how = "finished" if finished else "stopped"
        self._line(f"{how} after {clock(self._now() - self._began)}: {done:,} of {trials:,} trials are done")

    # Numbers

    def _count(self, trial: Trial, epoch: int) -> None:
        row = self._rows[_label(trial)]
        row.epochs += epoch - self._epochs.get(trial.key, 0)
        self._epochs[trial.key] = epoch

    @property
    def seconds_left(self) -> float | None:
        """Estimated from the pace so far; None before there is one."""
        now = self._now()
        since, before = self._basis or (now, self._trained)
        if now - since < BASIS_SECONDS or self._trained == before:
            return None
        left = sum(row.work - row.epochs for row in self._rows.values())
        return left * (now - since) / (self._trained - before)

    def _time_left(self) -> str:
        left = self.seconds_left
        return "estimating the time left" if left is None else f"about {clock(left)} left"

    # Lines

    def _refresh(self, label: str) -> None:
        if self._live is not None or self._now() - self._shown < BETWEEN_LINES:
            return
        self._shown = self._now()
        row = self._rows[label]
        best = f", best validation {self._shown_best(row)}" if np.isfinite(row.best) else ""
        share = f"{100 * row.epochs // max(row.work, 1)} % of {counted(row.trials, 'trial')}"
        self._line(f"{label}: {share}{best}; {self._time_left()}")

    def _shown_best(self, row: _Row) -> str:
        return self._metric.with_unit(self._metric.scale * row.best)

    def _line(self, text: str) -> None:
        if self._live is not None:
            self._live.console.print(text, markup=False, highlight=False)
        else:
            print(text, file=self._stream, flush=True)

    # A table in a terminal

    def _start_live(self) -> None:
        try:
            from rich.console import Console
            from rich.live import Live
        except ImportError:
            return
        console = Console(file=self._stream)
        self._live = Live(console=console, get_renderable=self._table, refresh_per_second=4, transient=True)
        self._live.start()

    def _table(self) -> Table:
        from rich.progress_bar import ProgressBar
        from rich.table import Table
        from rich.text import Text

        table = Table(box=None, pad_edge=False, caption_justify="left")
        table.add_column("norm", no_wrap=True, overflow="ellipsis")
        table.add_column("", max_width=24)  # shrinks first in a narrow terminal
        table.add_column("trials", no_wrap=True, overflow="ellipsis", justify="right")
        table.add_column("best trial", no_wrap=True, overflow="ellipsis")
        counts = (astuple(row)[:-1] for row in self._rows.values())  # all fields but the best metric
        total = _Row(*map(sum, zip(*counts, strict=True)))
        for label, row in (*self._rows.items(), ("all", total)):
            best = self._shown_best(row) if np.isfinite(row.best) else "earlier" if row.before == row.trials else ""
            table.add_row(
                Text(label),
                ProgressBar(total=max(row.work, 1), completed=row.epochs),
                f"{row.done:,}/{row.trials:,}",
                best,
                style="bold" if row is total else None if row.epochs else "dim",
            )
        table.caption = f"{clock(self._now() - self._began)} elapsed, {self._time_left()}"
        return table


def _label(trial: Trial) -> str:
    kind, name = role(trial)
    return name if kind == "norms" else f"baseline {name}"
