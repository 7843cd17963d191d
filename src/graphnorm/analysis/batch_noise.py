r"""How far the statistics of a batch are from those of the whole dataset: the noise that BatchNorm brings.

A norm layer sees, for each feature, all nodes of a batch of graphs (all pixels of a batch of images). Let m_b and s_b
be the mean and standard deviation of batch b, m and s those of the whole dataset. The **relative deviation** is

.. math:: \sqrt{\mathrm{E}_b\big[(m_b - m)^2 + (s_b - s)^2\big]} \,/\, s

for one feature, and the median over the features for a layer. It is the distance (Wasserstein, of normal distributions)
that a batch's statistics are away from the dataset's, in standard deviations: 0 if batches are all alike, and 0.1 if
what BatchNorm calls 0 moves by about a tenth of the spread from batch to batch. Its two parts, of the mean and of
the standard deviation, are given too.

The model is in evaluation mode, so that every batch goes through the same function. Then a batch's statistics follow
from the moments of its graphs: one pass over the data serves for all batches and batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, fields
from functools import partial
from typing import TYPE_CHECKING, Any

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm.analysis.checkpoints import checkpoints, trial_on_all
from graphnorm.analysis.results import Floats, Integers, Result
from graphnorm.errors import GraphnormError
from graphnorm.layers import Norm
from graphnorm.models import MolecularClassifier
from graphnorm.training.setup import Extremes, model_inputs

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["LayerNoise", "Moments", "along", "batch_noise", "graph_moments", "layer_moments", "noise_along_training"]

BATCHES = 100
"""How many batches are drawn: the largest and smallest value depend on it, so it is the same everywhere."""
ROWS = 1 << 16
"""Nodes of one pass through a model."""


@dataclass(frozen=True, eq=False)
class Moments(Result):
    """What a layer sees of each of G graphs (or images), for each of C features."""

    count: Floats
    """(G,): nodes (or pixels)."""
    mean: Floats
    """(G, C)."""
    variance: Floats
    """(G, C)."""

    def pooled(self, groups: Integers) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (K, C) each, over the nodes of groups of graphs, (K, B)."""
        count = self.count[groups][..., None]
        total = count.sum(1)
        own = self.mean[groups]
        mean = (count * own).sum(1) / total
        square = self.variance[groups] + (own - mean[:, None]) ** 2
        return mean, np.sqrt((count * square).sum(1) / total)

    def overall(self) -> tuple[Floats, Floats]:
        """Mean and standard deviation, (C,) each, over the nodes of all graphs."""
        total = self.count.sum()
        mean = self.count @ self.mean / total
        square = self.mean - mean
        square *= square
        square += self.variance
        return mean, np.sqrt(self.count @ square / total)


@dataclass(frozen=True, eq=False)
class LayerNoise(Result):
    """Batches against the dataset, at one norm layer, after each of E epochs, for each of C features: (E, C) arrays."""

    layer: str
    batch_size: int
    batches: int
    epochs: Integers
    """(E,): 0 is the untrained model."""
    mean: Floats
    """Of the whole dataset."""
    std: Floats
    mean_low: Floats
    """The smallest of all batches."""
    mean_high: Floats
    std_low: Floats
    std_high: Floats
    mean_deviation: Floats
    """√E[(m_b - m)²] / s; NaN where s = 0."""
    std_deviation: Floats
    """√E[(s_b - s)²] / s."""

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> LayerNoise:
        """What :meth:`to_dict` wrote; None becomes NaN."""
        given: dict[str, Any] = {name: values[name] for name in ("layer", "batch_size", "batches")}
        given["epochs"] = np.array(values["epochs"], np.int64)
        arrays = [field.name for field in fields(cls) if field.name not in given]
        return cls(**given | {name: np.array(values[name], np.float64) for name in arrays})

    @property
    def deviation(self) -> Floats:
        """(E, C): the relative deviation of each feature."""
        return np.hypot(self.mean_deviation, self.std_deviation)

    @property
    def relative_deviation(self) -> Floats:
        """(E,): the relative deviation of the layer, the median over features; NaN where no feature varies."""
        return _median(self.deviation)

    @property
    def typical_feature(self) -> int:
        """The feature whose relative deviation, after the last epoch, is the median one; the lower of two."""
        last = self.deviation[-1]
        known = np.flatnonzero(np.isfinite(last))
        return int(known[np.argsort(last[known], kind="stable")[(len(known) - 1) // 2]]) if len(known) else 0

    def summary(self) -> dict[str, Any]:
        """Give the one number and its two parts, for each epoch."""
        return {
            "layer": self.layer,
            "batch_size": self.batch_size,
            "batches": self.batches,
            "epochs": self.epochs,
            "relative_deviation": self.relative_deviation,
            "of_mean": _median(self.mean_deviation),
            "of_std": _median(self.std_deviation),
        }


def _median(values: Floats) -> Floats:
    """(E,): over the features that have a value."""
    return np.array([np.median(row[np.isfinite(row)]) if np.isfinite(row).any() else np.nan for row in values])


def batch_noise(
    moments: Moments, batch_size: int = 128, *, batches: int = BATCHES, seed: int = 0, layer: str = "", epoch: int = 0
) -> LayerNoise:
    """Draw batches at random, and compare their statistics with those of all graphs.

    Batches come from shuffled passes over the graphs, as in training; a last one that is not full is left out.

    >>> apart = Moments(np.ones(200), np.repeat([[0.0], [2.0]], 100, axis=0), np.zeros((200, 1)))
    >>> noise = batch_noise(apart, batch_size=50)  # zeros and twos: a mean of 50 draws deviates by √(150/200/50)
    >>> bool(0.09 < noise.mean_deviation[0, 0] < 0.15)
    True
    """
    graphs = len(moments.count)
    if not 1 <= batch_size <= graphs or batches < 1:
        raise GraphnormError(
            f"{batches} batches of {batch_size} cannot be drawn from {graphs} graphs",
            remedy="draw one batch or more, each of at most all graphs",
        )
    random = np.random.default_rng(seed)
    full = graphs // batch_size
    passes = [random.permutation(graphs)[: full * batch_size].reshape(full, -1) for _ in range(-(-batches // full))]
    ids = np.concatenate(passes)[:batches]
    mean, std = moments.overall()
    drawn = [moments.pooled(some) for some in np.array_split(ids, -(-batches // 16))]
    batch_mean, batch_std = (np.concatenate(values) for values in zip(*drawn, strict=True))
    # What rounding leaves of a constant is no spread.
    spread = np.where(std > 1e-6 * np.abs(mean), std, np.nan)

    def row(values: Floats) -> Floats:
        return np.asarray(values, np.float64)[None]

    return LayerNoise(
        layer=layer,
        batch_size=batch_size,
        batches=batches,
        epochs=np.array([epoch]),
        mean=row(mean),
        std=row(std),
        mean_low=row(batch_mean.min(0)),
        mean_high=row(batch_mean.max(0)),
        std_low=row(batch_std.min(0)),
        std_high=row(batch_std.max(0)),
        mean_deviation=row(np.sqrt(((batch_mean - mean) ** 2).mean(0)) / spread),
        std_deviation=row(np.sqrt(((batch_std - std) ** 2).mean(0)) / spread),
    )


def along(checkpoints: Sequence[LayerNoise]) -> LayerNoise:
    """Join what was measured of one layer after several epochs."""
    first = checkpoints[0]
    if any((one.layer, one.batch_size) != (first.layer, first.batch_size) for one in checkpoints):
        raise ValueError("these are not all of one layer and batch size")
    arrays = {
        field.name: np.concatenate([getattr(one, field.name) for one in checkpoints])
        for field in fields(LayerNoise)
        if isinstance(getattr(first, field.name), np.ndarray)
    }
    return LayerNoise(layer=first.layer, batch_size=first.batch_size, batches=first.batches, **arrays)


def layer_moments(
    layers: Mapping[str, nn.Module], passes: Iterable[tuple[Callable[[], object], Tensor | None, int]]
) -> dict[str, Moments]:
    """Run a model, and record what goes into some of its layers.

    - layers: the layers by name.
    - passes: (run, owner, count) for each chunk of data. ``run()`` calls the model; ``owner``, (rows,) int64, says
      which of the chunk's ``count`` graphs each row belongs to; it is None for images, (count, C, H, W).

    Sums are in float64.
    """
    seen: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {name: [] for name in layers}
    for run, owner, number in passes:

        def record(name: str, x: Tensor, owner: Tensor | None = owner, number: int = number) -> None:
            seen[name].append(_image_moments(x) if owner is None else _row_moments(x, owner, number))

        handles = [
            layer.register_forward_pre_hook(
                lambda _, inputs, name=name, record=record: record(name, inputs[0].detach())
            )
            for name, layer in layers.items()
        ]
        try:
            with torch.no_grad():
                run()
        finally:
            for handle in handles:
                handle.remove()
    return {
        name: Moments(*(torch.cat(values).cpu().numpy() for values in zip(*parts, strict=True)))
        for name, parts in seen.items()
    }


def _row_moments(x: Tensor, owner: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    x = x.to(torch.float64)
    count = torch.zeros(number, dtype=torch.float64, device=x.device).index_add_(
        0, owner, torch.ones_like(owner, dtype=torch.float64)
    )

    def average(values: Tensor) -> Tensor:
        return values.new_zeros(number, values.shape[1]).index_add_(0, owner, values) / count.clamp(min=1)[:, None]

    mean = average(x)
    return count, mean, average((x - mean[owner]) ** 2)


def _image_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    flat = x.flatten(2)
    count = torch.full((len(x),), float(flat.shape[2]), dtype=torch.float64, device=x.device)
    variance, mean = torch.var_mean(flat.to(torch.float64), dim=2, correction=0)
    return count, mean, variance


def norm_layers(model: nn.Module) -> list[str]:
    """Names of the norm layers of a model, in their order."""
    return [name for name, module in model.named_modules() if isinstance(module, Norm)]


def graph_moments(
    model: nn.Module, graphs: PackedGraphs, watch: Sequence[str] | None = None, ids: Integers | None = None
) -> dict[str, Moments]:
    """Record what each norm layer of a model sees of each graph, in evaluation mode.

    model: one of :data:`graphnorm.training.MODELS`, made for these graphs, on any device.
    watch: names of layers; all norm layers if left out.
    ids: which graphs; all if left out.
    """
    modules = dict(model.named_modules())
    names = norm_layers(model) if watch is None else list(watch)
    if unknown := [name for name in names if name not in modules]:
        raise GraphnormError(f"the model has no layer {', '.join(unknown)}", remedy="see model.named_modules()")
    if not names:
        raise GraphnormError("the model has no norm layer", remedy="name the layers to look at")
    device = next(model.parameters()).device
    extremes = Extremes.of(graphs)
    chosen = np.arange(graphs.num_graphs) if ids is None else ids
    was_training = model.training
    model.eval()

    def passes() -> Iterable[tuple[Callable[[], object], Tensor, int]]:
        rows = np.cumsum(graphs.sizes.cpu().numpy()[chosen]) // ROWS
        for some in np.split(chosen, np.flatnonzero(np.diff(rows)) + 1):
            batch = graphs.batch(some).to(device)
            inputs = model_inputs(graphs, batch, extremes, may_pad=False)
            if not isinstance(model, MolecularClassifier):
                inputs.pop("edge_attr", None)
            yield partial(model, **inputs), batch.batch, batch.num_graphs

    try:
        return layer_moments({name: modules[name] for name in names}, passes())
    finally:
        model.train(was_training)


def noise_along_training(
    graphs: PackedGraphs,
    *,
    batch_size: int = 128,
    epochs: int = 50,
    at: Iterable[int] | None = None,
    watch: Sequence[str] | None = None,
    batches: int = BATCHES,
    ids: Integers | None = None,
    device: torch.device | str | None = None,
    progress: bool = False,
    **settings: Any,
) -> list[LayerNoise]:
    """Train GIN with BatchNorm, and measure the noise of each norm layer along the way (Figures 4 and 8 to 10).

    The model is trained and looked at with the same batch size.

    at: the epochs, all from 0 if left out.
    watch: names of layers; all norm layers if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`, such as ``model``, ``norm``, ``lr`` and ``seed``.
    """
    trial = trial_on_all(graphs, **{"norm": "batch", "batch_size": batch_size, "epochs": epochs} | settings)
    found: dict[str, list[LayerNoise]] = {}
    for epoch, (model,) in checkpoints(graphs, trial, at=at, ids=ids, device=device, progress=progress):
        for name, moments in graph_moments(model, graphs, watch, ids).items():
            noise = batch_noise(moments, batch_size, batches=batches, seed=trial.seed, layer=name, epoch=epoch)
            found.setdefault(name, []).append(noise)
    return [along(parts) for parts in found.values()]
