r"""Batch noise: how far the statistics of batches are from those of the dataset.

BatchNorm uses the mean and standard deviation of a batch in place of the dataset's. A norm layer sees, for each
feature, all nodes of a batch of graphs (or all pixels of a batch of images). Let m_b and s_b be the mean and standard
deviation of batch b, and m and s those of the whole dataset. The **relative deviation** of a feature is

.. math:: \sqrt{\mathrm{E}_b\big[(m_b - m)^2 + (s_b - s)^2\big]} \,/\, s

and that of a layer is the median over its features. It is the Wasserstein distance between normal distributions with
these moments, in standard deviations: 0 if all batches are alike, and 0.1 if BatchNorm's zero moves by about a tenth
of the spread from batch to batch. Its two parts, of the mean and of the standard deviation, are given too.

The model is in evaluation mode, so every batch goes through the same function. Then the statistics of a batch follow
from the moments of its graphs, and one pass over the data serves all batches and batch sizes.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from functools import partial
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn

from graphnorm.analysis.along_training import Arrays, chosen_epochs, model_inputs, run_probe, trial_on_all
from graphnorm.analysis.measurement import Floats, Integers, Measurement, finite_median
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.layers import Norm

__all__ = ["LayerNoise", "Moments", "NoiseProbe", "batch_noise", "compare_batches", "graph_moments", "layer_moments"]
__all__ += ["noise_along_training"]

BATCHES = 100
"""Batches to draw. All measurements use the same number, because the largest and smallest values depend on it."""
ROWS = 1 << 16
"""Nodes that go through a model at once."""


@dataclass(frozen=True, eq=False)
class Moments(Measurement):
    """The moments of G graphs (or images) at a layer, for each of C features."""

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
        square = (self.mean - mean) ** 2
        square += self.variance
        return mean, np.sqrt(self.count @ square / total)


@dataclass(frozen=True, eq=False)
class LayerNoise(Measurement):
    """Batches against the dataset at one norm layer, after E epochs, for each of C features: (E, C) arrays."""

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
    def from_looks(cls, probe: NoiseProbe, layer: str, looks: Floats) -> LayerNoise:
        """The result of a probe at one layer, from its stacked looks, (E, 8, C)."""
        return cls(layer, probe.batch_size, probe.batches, np.array(probe.at), *np.moveaxis(looks, 1, 0))

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
        """The feature with the median relative deviation after the last epoch; the lower of two."""
        last = self.deviation[-1]
        known = np.flatnonzero(np.isfinite(last))
        return int(known[np.argsort(last[known], kind="stable")[(len(known) - 1) // 2]]) if len(known) else 0

    def summary(self) -> dict[str, Any]:
        """The relative deviation and its two parts, for each epoch."""
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
    return np.array([finite_median(row) for row in values])


@dataclass(frozen=True)
class NoiseProbe:
    """Compares batches with the dataset at norm layers. A look has, for each layer, the 8 arrays of
    :class:`LayerNoise`: (8, C)."""

    at: tuple[int, ...]
    batch_size: int
    layers: tuple[str, ...] | None = None
    """Names of layers; None for all norm layers."""
    batches: int = BATCHES
    seed: int = 0
    ids: tuple[int, ...] | None = None
    """Which graphs; None for all."""

    def look(self, model: nn.Module, graphs: PackedGraphs) -> Arrays:
        moments = graph_moments(model, graphs, self.layers, self.ids)
        return {
            name: compare_batches(layer, self.batch_size, self.batches, self.seed) for name, layer in moments.items()
        }


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

    The model is trained and measured with the same batch size.

    at: the epochs; all from 0 on if left out.
    watch: names of layers; all norm layers if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`, such as ``model``, ``norm``, ``lr`` and ``seed``.
    """
    trial = trial_on_all(graphs, **{"norm": "batch", "batch_size": batch_size, "epochs": epochs} | settings)
    probe = NoiseProbe(
        chosen_epochs(at, epochs),
        batch_size,
        None if watch is None else tuple(watch),
        batches,
        trial.seed,
        None if ids is None else tuple(ids.tolist()),
    )
    (seen,) = run_probe(probe, graphs, trial, ids=ids, device=device, progress=progress)
    return [LayerNoise.from_looks(probe, layer, looks) for layer, looks in seen.items()]


def batch_noise(moments: Moments, batch_size: int = 128, *, batches: int = BATCHES, seed: int = 0) -> LayerNoise:
    """Draw batches at random, and compare their statistics with those of all graphs.

    Batches come from shuffled passes over the graphs, as in training. A last batch that is not full is left out.

    >>> apart = Moments(np.ones(200), np.repeat([[0.0], [2.0]], 100, axis=0), np.zeros((200, 1)))
    >>> noise = batch_noise(apart, batch_size=50)  # zeros and twos: a mean of 50 draws deviates by √(150/200/50)
    >>> bool(0.09 < noise.mean_deviation[0, 0] < 0.15)
    True
    """
    found = compare_batches(moments, batch_size, batches, seed)
    return LayerNoise("", batch_size, batches, np.array([0]), *found[:, None])


def compare_batches(moments: Moments, batch_size: int, batches: int, seed: int) -> Floats:
    """(8, C): the arrays of :class:`LayerNoise` after one epoch, in their order."""
    graphs = len(moments.count)
    if not 1 <= batch_size <= graphs or batches < 1:
        raise GraphnormError(
            f"{batches} batches of {batch_size} cannot be drawn from {graphs} graphs",
            remedy="draw at least one batch, of no more graphs than there are",
        )
    random = np.random.default_rng(seed)
    full = graphs // batch_size
    passes = [random.permutation(graphs)[: full * batch_size].reshape(full, -1) for _ in range(-(-batches // full))]
    ids = np.concatenate(passes)[:batches]
    mean, std = moments.overall()
    drawn = [moments.pooled(part) for part in np.array_split(ids, -(-batches // 16))]
    batch_mean, batch_std = (np.concatenate(values) for values in zip(*drawn, strict=True))
    spread = np.where(std > 1e-6 * np.abs(mean), std, np.nan)  # rounding leaves a tiny spread of a constant
    return np.stack(
        [
            mean,
            std,
            batch_mean.min(0),
            batch_mean.max(0),
            batch_std.min(0),
            batch_std.max(0),
            np.sqrt(((batch_mean - mean) ** 2).mean(0)) / spread,
            np.sqrt(((batch_std - std) ** 2).mean(0)) / spread,
        ]
    )


def graph_moments(
    model: nn.Module,
    graphs: PackedGraphs,
    layers: Sequence[str] | None = None,
    ids: Sequence[int] | Integers | None = None,
) -> dict[str, Moments]:
    """The moments of each graph at each norm layer of a model, in evaluation mode.

    model: one of :data:`graphnorm.models.MODELS`, made for these graphs, on any device.
    layers: names of layers; all norm layers if left out.
    ids: which graphs; all if left out.
    """
    modules = dict(model.named_modules())
    names = [name for name, module in modules.items() if isinstance(module, Norm)] if layers is None else list(layers)
    if unknown := [name for name in names if name not in modules]:
        raise GraphnormError(f"the model has no layer {', '.join(unknown)}", remedy="see model.named_modules()")
    if not names:
        raise GraphnormError("the model has no norm layer", remedy="name the layers to look at")
    chosen = np.arange(graphs.num_graphs) if ids is None else np.asarray(ids)

    def passes() -> Iterator[tuple[Callable[[], object], Tensor, int]]:
        chunk = np.cumsum(graphs.sizes.cpu().numpy()[chosen]) // ROWS
        for part in np.split(chosen, np.flatnonzero(np.diff(chunk)) + 1):
            batch, inputs = model_inputs(model, graphs, part)
            yield partial(model, **inputs), batch.batch, batch.num_graphs

    was_training = model.training
    model.eval()
    try:
        return layer_moments({name: modules[name] for name in names}, passes())
    finally:
        model.train(was_training)


def layer_moments(
    layers: Mapping[str, nn.Module], passes: Iterable[tuple[Callable[[], object], Tensor | None, int]]
) -> dict[str, Moments]:
    """Run a model, and record the moments of the inputs of some of its layers.

    - layers: the layers by name.
    - passes: (run, owner, count) for each chunk of data. ``run()`` calls the model. ``owner``, (rows,) int64, says
      which of the chunk's ``count`` graphs each row belongs to. It is None for images, (count, C, H, W).

    Sums are in float64.
    """
    seen: dict[str, list[tuple[Tensor, Tensor, Tensor]]] = {name: [] for name in layers}

    def record(name: str, x: Tensor) -> None:
        seen[name].append(_image_moments(x) if owner is None else _row_moments(x, owner, count))

    hooks = [
        layer.register_forward_pre_hook(lambda _, inputs, name=name: record(name, inputs[0]))
        for name, layer in layers.items()
    ]
    try:
        with torch.no_grad():
            for run, owner, count in passes:  # noqa: B007 (record reads them)
                run()
    finally:
        for hook in hooks:
            hook.remove()
    return {
        name: Moments(*(torch.cat(values).cpu().numpy() for values in zip(*parts, strict=True)))
        for name, parts in seen.items()
    }


def _row_moments(x: Tensor, owner: Tensor, number: int) -> tuple[Tensor, Tensor, Tensor]:
    x = x.to(torch.float64)
    count = torch.bincount(owner, minlength=number).to(torch.float64)

    def average(values: Tensor) -> Tensor:
        return values.new_zeros(number, values.shape[1]).index_add_(0, owner, values) / count.clamp(min=1)[:, None]

    mean = average(x)
    return count, mean, average((x - mean[owner]) ** 2)


def _image_moments(x: Tensor) -> tuple[Tensor, Tensor, Tensor]:
    flat = x.flatten(2).to(torch.float64)
    variance, mean = torch.var_mean(flat, dim=2, correction=0)
    return mean.new_full((len(x),), flat.shape[2]), mean, variance
