"""Callbacks: what else learns of a study's progress.

A tracker is a :class:`Callback` whose methods do something; those of the base class do nothing. They are called in the
driver's process, one after the other. A callback that raises is left out from then on with a warning: no tracker is
worth a study.
"""

from __future__ import annotations

import os
import warnings
from collections.abc import Callable, Sequence

from graphnorm.errors import MissingDependencyError
from graphnorm.study.store import Study
from graphnorm.training import Outcome, Progress, Trial

__all__ = ["Callback", "Callbacks", "TensorBoard"]


class Callback:
    """Learns of a study's progress."""

    def on_begin(self, study: Study, missing: Sequence[Trial]) -> None:
        """The study begins, or goes on; ``missing`` is to be trained."""

    def on_fleet(self, trials: Sequence[Trial], epoch: int) -> None:
        """These trials are taken up together, after so many epochs."""

    def on_epoch(self, progress: Progress) -> None:
        """A fleet finished an epoch."""

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """These trials are finished, and saved."""

    def on_dropped(self, trials: Sequence[Trial], epoch: int) -> None:
        """A search gives up these trials after an epoch."""

    def on_failure(self, trials: Sequence[Trial], error: str, final: bool) -> None:
        """A fleet failed; unless that is final, it is tried again."""

    def on_end(self, finished: bool) -> None:
        """The study is finished, or was interrupted."""


class Callbacks:
    """Several callbacks, told of the same events."""

    def __init__(self, callbacks: Sequence[Callback]) -> None:
        self._callbacks = list(callbacks)

    def tell(self, event: Callable[[Callback], None]) -> None:
        """Let every callback know; one that raises is left out from then on."""
        for callback in tuple(self._callbacks):
            try:
                event(callback)
            except Exception as error:
                self._callbacks.remove(callback)
                name = type(callback).__name__
                warnings.warn(f"{name} is left out from here on: {type(error).__name__}: {error}", stacklevel=2)


class TensorBoard(Callback):
    """Writes every trial's curves for TensorBoard, a run for each trial, when it is finished."""

    def __init__(self, folder: str | os.PathLike[str]) -> None:
        try:
            from torch.utils.tensorboard import SummaryWriter
        except ImportError as error:
            raise MissingDependencyError("tensorboard", "writing for TensorBoard", "tracking") from error
        self._folder, self._writer = os.fspath(folder), SummaryWriter

    def on_outcomes(self, outcomes: Sequence[Outcome]) -> None:
        """Write the curves; a trial's run is named by what tells it from others."""
        for outcome in outcomes:
            trial = outcome.trial
            run = f"{trial.dataset}-{trial.model}-{trial.norm}/fold{trial.fold}-seed{trial.seed}-{trial.key}"
            with self._writer(os.path.join(self._folder, run)) as writer:  # noqa: PTH118
                for name, curve in outcome.curves.items():
                    for epoch, value in enumerate(curve.tolist(), 1):
                        writer.add_scalar(name, value, epoch)
                settings = {k: v for k, v in trial.to_dict().items() if isinstance(v, (bool, int, float, str))}
                best = float(outcome.curves["valid"].max())
                writer.add_hparams(settings, {"best/valid": best}, run_name=".")
