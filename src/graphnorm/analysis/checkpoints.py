"""Models as they are along a training: what the tools look at that need trained weights."""

from __future__ import annotations

import copy
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from graphnorm.analysis.measurement import Integers
from graphnorm.errors import GraphnormError
from graphnorm.study.protocol import make_splits
from graphnorm.training import Fleet, Split, Trial, build_model

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["checkpoints", "dense_first", "trial_on_all"]


def trial_on_all(graphs: PackedGraphs, **settings: Any) -> Trial:
    """A training on all graphs of a dataset; ``settings`` are those of :class:`graphnorm.training.Trial`."""
    shared: dict[str, Any] = {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "protocol": "all", "folds": 1}
    return Trial(**shared | settings)


def dense_first(epochs: int, count: int = 8) -> list[int]:
    """Some epochs of a training, 0 and the last among them; dense at first, where most happens.

    >>> dense_first(30, 6)
    [0, 1, 3, 7, 15, 30]
    """
    if epochs < 1 or count < 2:
        raise GraphnormError(
            f"{count} looks at {epochs} epochs", remedy="give one epoch or more, and two looks or more"
        )
    return sorted({round((epochs + 1) ** (k / (count - 1)) - 1) for k in range(count)})


def checkpoints(
    graphs: PackedGraphs,
    trial: Trial,
    *,
    at: Iterable[int] | None = None,
    seeds: int = 1,
    ids: Integers | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
) -> Iterator[tuple[int, list[nn.Module]]]:
    """Train a trial, and give its models after the epochs ``at``: all from 0, the untrained one, if left out.

    Each time comes the epoch and one ordinary model for each seed, in evaluation mode, on the device of the training.
    They are trained on the graphs ``ids``, or all. The models are the caller's to change. Training stops at the last
    epoch of ``at``; the learning rate falls as the trial's own number of epochs says.

    >>> from graphnorm.data import load
    >>> graphs = load("synthetic:regular")
    >>> trial = trial_on_all(graphs, epochs=2, hidden=8, layers=3)
    >>> [epoch for epoch, (model,) in checkpoints(graphs, trial, device="cpu")]
    [0, 1, 2]
    """
    from tqdm import tqdm

    wanted = sorted(set(range(trial.epochs + 1) if at is None else at))
    if not wanted or wanted[0] < 0 or wanted[-1] > trial.epochs:
        raise GraphnormError(f"there is nothing to see after the epochs {wanted}", remedy=f"name 0 to {trial.epochs}")
    trials = [replace(trial, seed=trial.seed + k) for k in range(seeds)]
    splits = make_splits(graphs, trials) if ids is None else [Split(ids, ids)] * seeds
    fleet = Fleet(graphs, trials, splits, device=device)
    skeleton = build_model(trial, graphs).to(fleet.device).eval()
    label = f"training {trial.norm}"
    with tqdm(total=wanted[-1], desc=label, unit=" epochs", disable=not progress, delay=1.0, leave=False) as bar:
        for epoch in wanted:
            bar.update(epoch - fleet.epoch)
            fleet.advance(epoch - fleet.epoch)
            if epoch and not np.isfinite([outcome.curves["loss"][-1] for outcome in fleet.outcomes()]).all():
                raise GraphnormError(f"the training with {trial.norm} diverged", remedy="lower the learning rate")
            models = []
            for member in range(seeds):
                model = copy.deepcopy(skeleton)
                model.load_state_dict(fleet.model_state(member))
                models.append(model)
            yield epoch, models
