"""The learned α of GraphNorm: how much of a graph's mean each channel of a trained network chose to take away."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from graphnorm.analysis.checkpoints import checkpoints, trial_on_all
from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Alphas", "alpha_along_training", "learned_alpha"]

NEAR = 0.1
"""An α this close to 1 or to 0 counts as InstanceNorm's full shift, or as none."""


@dataclass(frozen=True, eq=False)
class Alphas(Measurement):
    """α of each layer after each of E epochs, for each of S seeds."""

    layers: tuple[str, ...]
    epochs: Integers
    """(E,): 0 is the untrained model, where α = 1."""
    values: tuple[Floats, ...]
    """For each layer (E, S, C)."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Alphas:
        """What :meth:`to_dict` wrote."""
        arrays = tuple(np.array(value, np.float64) for value in values["values"])
        return cls(tuple(values["layers"]), np.array(values["epochs"], np.int64), arrays)

    def summary(self) -> dict[str, Any]:
        """Give, for each layer after the last epoch, quantiles over channels and seeds, and shares near 1 and 0."""
        quantiles = (0.05, 0.25, 0.5, 0.75, 0.95)
        return {
            layer: {
                "quantiles": dict(zip(map(str, quantiles), np.quantile(last, quantiles), strict=True)),
                "share_near_1": float((np.abs(last - 1) < NEAR).mean()),
                "share_near_0": float((np.abs(last) < NEAR).mean()),
                "median_distance_from_1": float(np.median(np.abs(last - 1))),
            }
            for layer, last in ((layer, values[-1]) for layer, values in zip(self.layers, self.values, strict=True))
        }


def learned_alpha(model: nn.Module) -> dict[str, Floats]:
    """Give α, (C,), of each GraphNorm layer of a model by the layer's name; also of PyTorch Geometric's.

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

    at: the epochs, all from 0 if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`, such as ``model``, ``norm="batch-alpha"`` and ``lr``.
    """
    trial = trial_on_all(graphs, **{"norm": "graph", "epochs": epochs} | settings)
    seen = [
        (epoch, [learned_alpha(model) for model in models])
        for epoch, models in checkpoints(graphs, trial, at=at, seeds=seeds, ids=ids, device=device, progress=progress)
    ]
    layers = tuple(seen[0][1][0])
    values = tuple(np.array([[alphas[layer] for alphas in models] for _, models in seen]) for layer in layers)
    return Alphas(layers, np.array([epoch for epoch, _ in seen]), values)
