"""Curvature along training: what the paper argues of smoothness, measured for each normalization.

The loss is that of training on a fixed batch of graphs, with the statistics that each layer uses in training and
without dropout. Its largest Hessian eigenvalue bounds the step: plain gradient descent at rate η is stable only below
2/η. The smallest one is negative where the loss curves down.

Scales differ: a normalized layer does not change with the norm of its weights, and the Hessian falls with its square.
So compare norms as they are trained, along their own way, and read the eigenvalues together with the loss.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import nn

from graphnorm.analysis.checkpoints import checkpoints, dense_first, trial_on_all
from graphnorm.analysis.curvature import hessian_spectrum, module_loss
from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.models import Dropout, MolecularClassifier
from graphnorm.training.setup import Extremes, model_inputs

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["NORMS", "Curvature", "batch_curvature", "curvature_along_training"]

NORMS = ("none", "layer", "batch", "instance", "graph")


@dataclass(frozen=True, eq=False)
class Curvature(Measurement):
    """Extreme Hessian eigenvalues of K normalizations after each of E epochs, for each of S seeds: (K, E, S)."""

    norms: tuple[str, ...]
    epochs: Integers
    """(E,)"""
    largest: Floats
    smallest: Floats
    loss: Floats
    """On the same graphs."""
    converged: Any
    """bool: whether the Lanczos iterations met their tolerance; if not, the largest is a lower bound."""

    def summary(self) -> dict[str, Any]:
        """Give, for each normalization, medians over seeds for each epoch, and the median along the way."""
        return {
            norm: {
                "epochs": self.epochs,
                "largest": np.median(self.largest[k], axis=-1),
                "smallest": np.median(self.smallest[k], axis=-1),
                "loss": np.median(self.loss[k], axis=-1),
                "median_largest_when_trained": float(np.median(self.largest[k, self.epochs > 0])),
                "share_converged": float(self.converged[k].mean()),
            }
            for k, norm in enumerate(self.norms)
        }


def batch_curvature(
    model: nn.Module, graphs: PackedGraphs, ids: Integers, *, max_steps: int = 60, tolerance: float = 1e-2
) -> tuple[float, float, float, bool]:
    """Give the smallest and largest Hessian eigenvalue, the loss on the graphs ``ids``, and whether Lanczos converged.

    Computed in float64. The model comes back as it was, in training mode or not, but in float64.
    """
    from graphnorm.training.metrics import binary_loss, class_loss

    model.to(torch.float64)
    device = next(model.parameters()).device
    batch = graphs.batch(ids).to(device)
    inputs = model_inputs(graphs, batch, Extremes.of(graphs), may_pad=False)
    inputs["x"] = inputs["x"].to(torch.float64)
    if not isinstance(model, MolecularClassifier):
        inputs.pop("edge_attr", None)
    modes = {module: module.training for module in model.modules()}
    model.train()
    for module in model.modules():
        if isinstance(module, Dropout):
            module.eval()

    def loss(model: nn.Module) -> torch.Tensor:
        scores = model(**inputs)
        measure = binary_loss if scores.shape[-1] == 1 else class_loss
        return measure(scores[None], batch.labels[None])[0]

    try:
        function = module_loss(model, loss)
        parameters: dict[str, torch.Tensor] = dict(model.named_parameters())
        found = hessian_spectrum(function, parameters, max_steps=max_steps, tolerance=tolerance)
        with torch.no_grad():
            value = float(function(parameters))
    finally:
        for module, training in modes.items():
            module.training = training
    return found.smallest, found.largest, value, found.converged


def curvature_along_training(
    graphs: PackedGraphs,
    norms: Sequence[str] = NORMS,
    *,
    epochs: int = 30,
    at: Iterable[int] | None = None,
    seeds: int = 1,
    batch_size: int = 128,
    ids: Integers | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
    **settings: Any,
) -> Curvature:
    """Train GIN with each normalization, and compute the extreme Hessian eigenvalues on one batch along the way.

    The batch is the same for all, drawn at random.

    at: the epochs; eight of them, dense at first, if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`.
    """
    looks = sorted(set(dense_first(epochs) if at is None else at))
    trials = [
        trial_on_all(graphs, **{"norm": norm, "epochs": epochs, "batch_size": batch_size} | settings) for norm in norms
    ]
    chosen = np.arange(graphs.num_graphs) if ids is None else ids
    fixed = np.sort(np.random.default_rng(trials[0].seed).permutation(chosen)[:batch_size])
    found = np.array(
        [
            [
                [batch_curvature(model, graphs, fixed) for model in models]
                for _, models in checkpoints(
                    graphs, trial, at=looks, seeds=seeds, ids=ids, device=device, progress=progress
                )
            ]
            for trial in trials
        ],
        np.float64,
    )
    smallest, largest, loss, converged = np.moveaxis(found, -1, 0)
    return Curvature(tuple(norms), np.array(looks), largest, smallest, loss, converged.astype(bool))
