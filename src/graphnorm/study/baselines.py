"""Baselines on the folds of a protocol: which there are, their settings, and one way to train either kind.

Kernels choose among their own candidates; networks are trained as members of fleets, with the training settings that
they are handed and the shape, and where it matters the learning rate, of their own papers.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

import torch

from graphnorm import training
from graphnorm.data import PackedGraphs
from graphnorm.study.grid import Grid
from graphnorm.study.kernels import KERNELS, KernelFleet, candidates
from graphnorm.study.plan import Plan, Remembered, make_plan
from graphnorm.training import OnEpoch, Outcome, Split, Trial
from graphnorm.training.run import available_cores
from graphnorm.training.setup import BASELINE_MODELS

__all__ = ["BASELINES", "OWN_SETTINGS", "SETTING", "baseline_plan", "baseline_trials", "train_baseline"]

BASELINES: tuple[str, ...] = (*KERNELS, *BASELINE_MODELS)
"""The baselines by name."""

SETTING: dict[str, Any] = {"epochs": 100, "batch_size": 50, "dropout": 0.5, "weight_decay": 0.0, "lr": 1e-2}
"""The one configuration that networks are measured with, where they are not trained beside others."""
_OGB: dict[str, Any] = {"hidden": 300, "layers": 6, "lr": 1e-3, "batch_size": 32, "readout": "mean"}
OWN_SETTINGS: dict[str, dict[str, Any]] = {
    "mlp": {"hidden": 64, "layers": 3},
    "dcnn": {"layers": 5},
    "dgcnn": {"hidden": 32, "layers": 5, "lr": 1e-3},
    "ogb-gin": _OGB,
    "ogb-gcn": _OGB,
    "ogb-gin-virtual": _OGB,
    "ogb-gcn-virtual": _OGB,
}
"""What a network sets for itself, whatever it is trained beside."""


def baseline_trials(graphs: PackedGraphs, name: str, *, folds: int, seeds: int = 1, **settings: Any) -> list[Trial]:
    """One trial for every fold and, of a network, every seed; a kernel has nothing random.

    settings: further fields of a :class:`Trial`.
    """
    own = OWN_SETTINGS.get(name, {})
    if name in KERNELS:
        own, seeds = {"epochs": len(candidates(name))}, 1
    shared = settings | own | {"model": name, "norm": "none", "folds": folds}
    return [
        Trial(dataset=graphs.name, fingerprint=graphs.fingerprint, fold=fold, seed=seed, **shared)
        for fold in range(folds)
        for seed in range(seeds)
    ]


def baseline_plan(
    graphs: PackedGraphs | Remembered,
    name: str,
    *,
    protocol: str,
    folds: int = 10,
    seeds: int = 1,
    epochs: int | None = None,
) -> Plan:
    """A study of one baseline, with :data:`SETTING` and its own settings.

    epochs: of a network, others than those.

    >>> from graphnorm.data import load
    >>> plan = baseline_plan(load("synthetic:trees"), "wl", protocol="fair", folds=5)
    >>> len(plan.trials), plan.trials[0].epochs
    (5, 42)
    """
    shared = SETTING | OWN_SETTINGS.get(name, {}) | ({} if epochs is None else {"epochs": epochs})
    if name in KERNELS:
        shared, seeds = {"epochs": len(candidates(name))}, 1
    own = Grid("own", {axis: (shared.pop(axis),) for axis in SETTING if axis in shared})
    return make_plan(graphs, own, norms=["none"], model=name, protocol=protocol, folds=folds, seeds=seeds, **shared)


def train_baseline(
    graphs: PackedGraphs,
    trials: Sequence[Trial],
    splits: Sequence[Split],
    *,
    device: torch.device | str | None = None,
    on_epoch: OnEpoch | None = None,
    workers: int | None = None,
) -> list[Outcome]:
    """Train the trials of one baseline; gives their outcomes, in order."""
    if trials[0].model in KERNELS:
        fleet = KernelFleet(graphs, trials, splits, workers=workers or available_cores())
        fleet.advance(on_epoch=on_epoch)
        return fleet.outcomes()
    return training.train(graphs, trials, splits, device=device, on_epoch=on_epoch, workers=workers)
