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
from graphnorm.study.kernels import KERNELS, candidates, train_kernel
from graphnorm.training import OnEpoch, Outcome, Split, Trial
from graphnorm.training.setup import BASELINE_MODELS

__all__ = ["BASELINES", "OWN_SETTINGS", "baseline_trials", "train_baseline"]

BASELINES: tuple[str, ...] = (*KERNELS, *BASELINE_MODELS)
"""The baselines by name."""

_OGB: dict[str, Any] = {"hidden": 300, "layers": 6, "lr": 1e-3, "batch_size": 32}
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
        return train_kernel(graphs, trials, splits, on_epoch=on_epoch, workers=workers)
    return training.train(graphs, trials, splits, device=device, on_epoch=on_epoch, workers=workers)
