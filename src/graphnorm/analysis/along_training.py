"""Models during their training, and what is measured on them.

A *probe* looks at one model and returns arrays. :func:`run_probe` trains a model and applies a probe after some epochs.
The probes are in :mod:`~graphnorm.analysis.noise`, :mod:`~graphnorm.analysis.alpha` and
:mod:`~graphnorm.analysis.curvature`, each with a function that trains and measures with the paper's settings.
"""

from __future__ import annotations

import inspect
import re
from collections.abc import Iterable, Iterator
from dataclasses import replace
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import nn
from tqdm import tqdm

from graphnorm.analysis.measurement import Integers
from graphnorm.data import GraphBatch, PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.study.folds import make_splits
from graphnorm.training import Fleet, ModelInputs, Split, Trial

__all__ = ["Probe", "brief_layer", "checkpoints", "log_spaced_epochs", "readable_layer", "run_probe", "trial_on_all"]

Arrays = dict[str, npt.NDArray[Any]]


class Probe(Protocol):
    """Looks at a model after some epochs of its training.

    Probes are frozen dataclasses of plain values, so they can be pickled and run in a worker process. The classmethods
    ``from_looks`` of ``LayerNoise``, ``Alphas`` and ``Curvature`` turn stacked looks into results.
    """

    @property
    def at(self) -> tuple[int, ...]:
        """The epochs after which it looks, ascending; 0 is the untrained model."""

    def look(self, model: nn.Module, graphs: PackedGraphs) -> Arrays:
        """Measure one model, in evaluation mode. Every look has arrays of the same names and shapes."""


def trial_on_all(graphs: PackedGraphs, **settings: Any) -> Trial:
    """A trial that trains on all graphs; ``settings`` are those of :class:`graphnorm.training.Trial`."""
    shared: dict[str, Any] = {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "protocol": "all", "folds": 1}
    return Trial(**shared | settings)


def log_spaced_epochs(epochs: int, count: int = 8) -> tuple[int, ...]:
    """Up to ``count`` epochs from 0 to ``epochs``, dense at the start, where most happens.

    >>> log_spaced_epochs(30, 6)
    (0, 1, 3, 7, 15, 30)
    """
    if epochs < 1 or count < 2:
        raise GraphnormError(
            f"{epochs} epochs cannot have {count} looks", remedy="ask for one epoch and two looks, or more"
        )
    return tuple(np.unique(np.rint(np.geomspace(1, epochs + 1, count) - 1).astype(int)).tolist())


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
    """Train a trial, and yield (epoch, models) after each of the epochs ``at``; all from 0 on if left out.

    There is one model for each seed: an ordinary module in evaluation mode, on the device of the training, which the
    caller may change. Training uses the graphs ``ids``, or all. It stops at the last epoch of ``at``, but the learning
    rate follows the trial's own number of epochs.

    >>> from graphnorm.data import load
    >>> graphs = load("synthetic:regular")
    >>> trial = trial_on_all(graphs, epochs=2, hidden=8, layers=3)
    >>> [epoch for epoch, (model,) in checkpoints(graphs, trial, device="cpu")]
    [0, 1, 2]
    """
    wanted = chosen_epochs(at, trial.epochs)
    if not wanted or wanted[0] < 0 or wanted[-1] > trial.epochs:
        raise GraphnormError(f"there is no model after the epochs {wanted}", remedy=f"name epochs 0 to {trial.epochs}")
    trials = [replace(trial, seed=trial.seed + k) for k in range(seeds)]
    splits = make_splits(graphs, trials) if ids is None else [Split(ids, ids)] * seeds
    fleet = Fleet(graphs, trials, splits, device=device)
    label = f"training {trial.norm}"
    with tqdm(
        total=wanted[-1], desc=label, unit=" epochs", disable=not progress or None, delay=1.0, leave=False
    ) as bar:
        for epoch in wanted:
            bar.update(epoch - fleet.epoch)
            fleet.advance(epoch - fleet.epoch)
            if epoch and not np.isfinite([outcome.curves["loss"][-1] for outcome in fleet.outcomes()]).all():
                raise GraphnormError(f"the training with {trial.norm} diverged", remedy="lower the learning rate")
            yield epoch, [fleet.model(member) for member in range(seeds)]


def run_probe(probe: Probe, graphs: PackedGraphs, trial: Trial, *, seeds: int = 1, **options: Any) -> list[Arrays]:
    """Train a trial and apply a probe after each of its E epochs: for each seed, arrays (E, …) by name.

    options: ``ids``, ``device`` and ``progress`` of :func:`checkpoints`.
    """
    looks = [
        [probe.look(model, graphs) for model in models]
        for _, models in checkpoints(graphs, trial, at=probe.at, seeds=seeds, **options)
    ]
    return [
        {name: np.stack([look[name] for look in of_seed]) for name in of_seed[0]}
        for of_seed in zip(*looks, strict=True)
    ]


def chosen_epochs(at: Iterable[int] | None, epochs: int) -> tuple[int, ...]:
    return tuple(range(epochs + 1) if at is None else sorted(set(at)))


def model_inputs(model: nn.Module, graphs: PackedGraphs, ids: Integers) -> tuple[GraphBatch, dict[str, Any]]:
    """The graphs ``ids`` as a batch on the model's device, and as keyword arguments of the model."""
    batch = graphs.batch(ids).to(next(model.parameters()).device)
    inputs = ModelInputs(graphs)(batch, may_pad=False)
    if "edge_attr" not in inspect.signature(model.forward).parameters:
        inputs.pop("edge_attr", None)
    return batch, inputs


def readable_layer(name: str) -> str:
    """The name of a norm layer for people. Convolutions and blocks count from 0, as in the paper.

    >>> [readable_layer(name) for name in ("convolutions.0.first_norm", "blocks.7.second_norm", "stem_norm", "mine.0")]
    ['convolution 0, first norm', 'block 7, second norm', 'stem norm', 'mine.0']
    """
    found = re.fullmatch(r"(?:(convolution|block)s\.(\d+)\.)?(?:([a-z]+)_)?norm", name)
    if found is None:
        return name
    kind, number, which = found.groups()
    return ", ".join([*([f"{kind} {number}"] if kind else []), *([f"{which} norm"] if which else [])]) or name


def brief_layer(name: str) -> str:
    """A shorter form of :func:`readable_layer`, for legends.

    >>> brief_layer("convolutions.0.first_norm")
    '0, first'
    """
    return readable_layer(name).removeprefix("convolution ").removesuffix(" norm")
