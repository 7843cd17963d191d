"""The learned α of GraphNorm: the share of the mean that each channel of a layer subtracts."""

from __future__ import annotations

from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np
import torch
from torch import nn

from graphnorm.analysis.along_training import Arrays, chosen_epochs, run_probe, trial_on_all
from graphnorm.analysis.measurement import Floats, Integers, Measurement, quantiles
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError

__all__ = ["AlphaProbe", "Alphas", "alpha_along_training", "learned_alpha"]

NEAR = 0.1
"""An α this close to 1 counts as InstanceNorm's full shift, and this close to 0 as none."""


@dataclass(frozen=True, eq=False)
class Alphas(Measurement):
    """α of each layer after E epochs, for each of S seeds."""

    layers: tuple[str, ...]
    epochs: Integers
    """(E,): 0 is the untrained model, where α = 1."""
    values: tuple[Floats, ...]
    """For each layer (E, S, C)."""

    @classmethod
    def from_looks(cls, probe: AlphaProbe, seeds: Sequence[Mapping[str, Floats]]) -> Alphas:
        """The result of a probe, from each seed's stacked looks, (E, C) for each layer."""
        values = tuple(np.stack([looks[layer] for looks in seeds], axis=1) for layer in seeds[0])
        return cls(tuple(seeds[0]), np.array(probe.at), values)

    def summary(self) -> dict[str, Any]:
        """For each layer after the last epoch: quantiles over channels and seeds, and shares near 1 and 0."""
        return {
            layer: {
                "quantiles": quantiles(values[-1]),
                "share_near_1": float((np.abs(values[-1] - 1) < NEAR).mean()),
                "share_near_0": float((np.abs(values[-1]) < NEAR).mean()),
                "median_distance_from_1": float(np.median(np.abs(values[-1] - 1))),
            }
            for layer, values in zip(self.layers, self.values, strict=True)
        }


@dataclass(frozen=True)
class AlphaProbe:
    """Reads the learned α. A look has, for each layer, (C,)."""

    at: tuple[int, ...]

    def look(self, model: nn.Module, graphs: PackedGraphs) -> Arrays:
        return dict(learned_alpha(model))


def learned_alpha(model: nn.Module) -> dict[str, Floats]:
    """α, (C,), of each GraphNorm layer of a model by the layer's name; also of PyTorch Geometric's GraphNorm.

    >>> from graphnorm import GraphNorm
    >>> learned_alpha(nn.Sequential(nn.Linear(2, 3), GraphNorm(3)))
    {'1': array([1., 1., 1.])}
    """
    found = {
        name: scale.detach().cpu().to(torch.float64).numpy()
        for name, module in model.named_modules()
        if isinstance(scale := getattr(module, "mean_scale", None), torch.Tensor)
    }
    if not found:
        raise GraphnormError("the model has no layer with a learned α", remedy="give a model with GraphNorm")
    return found


def alpha_along_training(
    graphs: PackedGraphs,
    *,
    epochs: int = 50,
    at: Iterable[int] | None = None,
    seeds: int = 3,
    ids: Integers | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
    **settings: Any,
) -> Alphas:
    """Train GIN with GraphNorm, and record α along the way.

    at: the epochs; all from 0 on if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`, such as ``model``, ``norm="batch-alpha"`` and ``lr``.
    """
    trial = trial_on_all(graphs, **{"norm": "graph", "epochs": epochs} | settings)
    probe = AlphaProbe(chosen_epochs(at, epochs))
    seen = run_probe(probe, graphs, trial, seeds=seeds, ids=ids, device=device, progress=progress)
    return Alphas.from_looks(probe, seen)
