"""The progress of a study, for people: one line that is written over in a terminal, lines now and then elsewhere."""

from __future__ import annotations

import sys
import time
from collections.abc import Sequence
from typing import TextIO

import numpy as np

from graphnorm.study.callbacks import Callback
from graphnorm.study.store import Study
from graphnorm.training import Outcome, Progress, Trial

__all__ = ["Display", "clock"]

BETWEEN_REFRESHES, BETWEEN_LINES = 0.5, 10.0
BASIS_SECONDS = 2.0
"""Of training, that an estimate is made from."""


class Display(Callback):
    """Says how far a study is, how long it will take, and what went wrong."""

    def __init__(self, stream: TextIO | None = None) -> None:
        self._stream = stream or sys.stderr
        self._live = self._stream.isatty()
        self._began = self._shown = time.monotonic()
        self._epochs: dict[str, int] = {}
        self._ends: dict[str, int] = {}
        self._trained = 0
        self._basis: tuple[float, int] | None = None
        self._finished = self._trials = 0
        self._last = ""

    def on_begin(self, study: Study, missing: Sequence[Trial]) -> None:
        """Say what there is to do."""
        self._trials, self._finished = study.trials, study.trials - len(missing)
        self._ends = {trial.key: trial.epochs for trial in missing}
        known = f", {self._finished:,} of them done before" if self._finished else ""
        self._line(f"{study.name}: {study.trials:,} trials{known}")

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        """Take note of where a fleet begins."""
        self._epochs |= dict.fromkeys((trial.key for trial in trials), epoch)

    def on_epoch(self, progress: Progress) -> None:
        """Show the progress, unless that was only just done."""
        self._epochs |= dict.fromkeys((trial.key for trial in progress.trials), progress.epoch)
        self._trained += len(progress.trials)
        if self._basis is None:  # before it, workers started and the first epochs warmed up
            self._basis = time.monotonic(), self._trained
        trial = progress.trials[0]
        best = 100 * float(np.nanmax(np.append(progress.metrics["valid"], 0.0)))
        self._last = f"{trial.norm}: epoch {progress.epoch} of {trial.epochs}, best validation {best:.1f} %"
        self._refresh()

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Count finished trials."""
        self._finished += len(outcomes)
        self._refresh()

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        """Say that a search gives up some trials."""
        self._finished += len(trials)
        self._ends |= {trial.key: epoch for trial in trials}
        if trials:
            self._line(f"{trials[0].norm}: {len(trials)} trials given up after epoch {epoch}")

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        """Say what failed."""
        after = "recorded as failed" if final else "tried again"
        self._line(f"a fleet of {len(trials)} ({trials[0].norm}) failed, {after}: {error.splitlines()[0]}")

    def on_end(self, finished: bool) -> None:
        """Clear the line."""
        seconds = time.monotonic() - self._began
        how = "finished" if finished else "stopped"
        self._line(f"{how} after {clock(seconds)}: {self._finished:,} of {self._trials:,} trials are done")

    def _refresh(self) -> None:
        now = time.monotonic()
        if now - self._shown < (BETWEEN_REFRESHES if self._live else BETWEEN_LINES):
            return
        self._shown = now
        text = f"{self._finished:,} of {self._trials:,} trials, {self._time_left(now)}; {self._last}"
        if self._live:
            print(f"\r\x1b[2K{text}", end="", file=self._stream, flush=True)
        else:
            print(text, file=self._stream, flush=True)

    def _time_left(self, now: float) -> str:
        since, before = self._basis or (now, self._trained)
        if now - since < BASIS_SECONDS or self._trained == before:
            return "estimating the time left"
        left = sum(self._ends.values()) - sum(self._epochs.values())
        return f"about {clock(left * (now - since) / (self._trained - before))} left"

    def _line(self, text: str) -> None:
        print(f"\r\x1b[2K{text}" if self._live else text, file=self._stream, flush=True)


def clock(seconds: float) -> str:
    """Give a time as people read it.

    >>> clock(75), clock(7384), clock(0.4)
    ('1 min 15 s', '2 h 3 min', '0 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
