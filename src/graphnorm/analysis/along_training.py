r"""A model during its training: batch noise, the learned α of GraphNorm, and the curvature of the loss.

A *probe* looks at one model and returns arrays. :func:`run_probe` trains a model and applies a probe after some epochs.
``noise_along_training``, ``alpha_along_training`` and ``curvature_along_training`` do this with the paper's settings.

**Batch noise.** BatchNorm uses the mean and standard deviation of a batch in place of the dataset's. A norm layer
sees, for each feature, all nodes of a batch of graphs (or all pixels of a batch of images). Let m_b and s_b be the
mean and standard deviation of batch b, and m and s those of the whole dataset. The **relative deviation** of a
feature is

.. math:: \sqrt{\mathrm{E}_b\big[(m_b - m)^2 + (s_b - s)^2\big]} \,/\, s

and that of a layer is the median over its features. It is the Wasserstein distance between normal distributions with
these moments, in standard deviations: 0 if all batches are alike, and 0.1 if BatchNorm's zero moves by about a tenth
of the spread from batch to batch. Its two parts, of the mean and of the standard deviation, are given too. The model
is in evaluation mode, so every batch goes through the same function. Then the statistics of a batch follow from the
moments of its graphs, and one pass over the data serves all batches and batch sizes.

**Curvature.** "Smoother" means smaller eigenvalues of the Hessian of the loss. The loss is that of training on one
fixed batch, with the statistics that each layer uses in training and without dropout. Gradient descent with learning
rate η is stable only if the largest eigenvalue is below 2/η. The smallest one is negative where the loss curves down.
A normalized layer ignores the scale of its weights, and the Hessian falls with the square of that scale. So compare
eigenvalues only together with the loss.
"""

from __future__ import annotations

import copy
import inspect
import re
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any, Protocol

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn
from tqdm import tqdm

from graphnorm.analysis.hessian import hessian_spectrum, module_loss
from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement, finite_median, quantiles
from graphnorm.data import GraphBatch, PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.layers import Norm
from graphnorm.models import Dropout
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.study.splits import make_splits
from graphnorm.training import TASKS, Fleet, ModelInputs, Split, Trial

__all__ = ["AlphaProbe", "Alphas", "Curvature", "CurvatureProbe", "LayerNoise", "Moments", "NoiseProbe", "Probe"]
__all__ += ["alpha_along_training", "batch_noise", "brief_layer", "checkpoints", "compare_batches"]
__all__ += ["curvature_along_training", "graph_moments", "layer_moments", "learned_alpha", "log_spaced_epochs"]
__all__ += ["noise_along_training", "readable_layer", "run_probe", "trial_on_all"]

BATCHES = 100
"""Batches to draw. All measurements use the same number, because the largest and smallest values depend on it."""
ROWS = 1 << 16
"""Nodes that go through a model at once."""
Arrays = dict[str, npt.NDArray[Any]]


# ---- training and looking -------------------------------------------------------------------------------------------


class Probe(Protocol):
    """Looks at a model after some epochs of its training.

    Probes are frozen dataclasses of plain values, so they can be pickled and run in a worker process. The classmethods
    ``from_looks`` of :class:`LayerNoise`, :class:`Alphas` and :class:`Curvature` turn stacked looks into results.
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
    wanted = _epochs(at, trial.epochs)
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
    return [{name: np.stack([look[name] for look in of]) for name in of[0]} for of in zip(*looks, strict=True)]


def _epochs(at: Iterable[int] | None, epochs: int) -> tuple[int, ...]:
    return tuple(range(epochs + 1) if at is None else sorted(set(at)))


def _inputs(model: nn.Module, graphs: PackedGraphs, ids: Integers) -> tuple[GraphBatch, dict[str, Any]]:
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


# ---- batch noise ----------------------------------------------------------------------------------------------------


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
        return {name: compare_batches(of, self.batch_size, self.batches, self.seed) for name, of in moments.items()}


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
        _epochs(at, epochs),
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
    drawn = [moments.pooled(some) for some in np.array_split(ids, -(-batches // 16))]
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
    names = [name for name, of in modules.items() if isinstance(of, Norm)] if layers is None else list(layers)
    if unknown := [name for name in names if name not in modules]:
        raise GraphnormError(f"the model has no layer {', '.join(unknown)}", remedy="see model.named_modules()")
    if not names:
        raise GraphnormError("the model has no norm layer", remedy="name the layers to look at")
    chosen = np.arange(graphs.num_graphs) if ids is None else np.asarray(ids)

    def passes() -> Iterator[tuple[Callable[[], object], Tensor, int]]:
        part = np.cumsum(graphs.sizes.cpu().numpy()[chosen]) // ROWS
        for some in np.split(chosen, np.flatnonzero(np.diff(part)) + 1):
            batch, inputs = _inputs(model, graphs, some)
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


# ---- the learned α --------------------------------------------------------------------------------------------------

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
    probe = AlphaProbe(_epochs(at, epochs))
    seen = run_probe(probe, graphs, trial, seeds=seeds, ids=ids, device=device, progress=progress)
    return Alphas.from_looks(probe, seen)


# ---- curvature ------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Curvature(Measurement):
    """Extreme Hessian eigenvalues of K normalizations after E epochs, for each of S seeds: (K, E, S) arrays."""

    norms: tuple[str, ...]
    epochs: Integers
    """(E,)"""
    largest: Floats
    smallest: Floats
    loss: Floats
    """On the same graphs."""
    converged: Booleans
    """Whether both ends met the tolerance of :func:`~graphnorm.analysis.hessian.lanczos`; if not, they lie inside the
    true range."""

    @classmethod
    def from_looks(cls, probe: CurvatureProbe, looks: Mapping[str, Sequence[Arrays]]) -> Curvature:
        """The result of a probe, from the stacked looks, (E,) by name, of each normalization and seed."""
        arrays = {
            name: np.array([[of[name] for of in seeds] for seeds in looks.values()]).swapaxes(1, 2)
            for name in ("largest", "smallest", "loss", "converged")
        }
        return cls(tuple(looks), np.array(probe.at), **arrays)

    def summary(self) -> dict[str, Any]:
        """For each normalization: medians over seeds after each epoch, and the median of all trained models."""
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


@dataclass(frozen=True)
class CurvatureProbe:
    """Computes the extreme Hessian eigenvalues of the loss on one batch, in float64. A look has four numbers."""

    at: tuple[int, ...]
    batch: tuple[int, ...]
    """Ids of the graphs."""
    max_steps: int = 60
    tolerance: float = 1e-2

    def look(self, model: nn.Module, graphs: PackedGraphs) -> Arrays:
        model = copy.deepcopy(model).to(torch.float64).train()
        for module in model.modules():
            if isinstance(module, Dropout):
                module.eval()
        batch, inputs = _inputs(model, graphs, np.array(self.batch))
        inputs["x"] = inputs["x"].to(torch.float64)

        def loss(model: nn.Module) -> Tensor:
            scores = model(**inputs)
            one_score = graphs.task == "classes" and scores.shape[-1] == 1
            task = TASKS["binary" if one_score else graphs.task]
            return task.loss(scores[None], task.wanted(batch)[None])[0]

        function = module_loss(model, loss)
        parameters: dict[str, Tensor] = dict(model.named_parameters())
        found = hessian_spectrum(function, parameters, max_steps=self.max_steps, tolerance=self.tolerance)
        with torch.no_grad():
            value = float(function(parameters))
        look = {"smallest": found.smallest, "largest": found.largest, "loss": value, "converged": found.converged}
        return {name: np.asarray(number) for name, number in look.items()}


def curvature_along_training(
    graphs: PackedGraphs,
    norms: Sequence[str] = DEFAULT_NORMS,
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

    The batch is drawn at random, and is the same for all.

    at: the epochs; eight of them, dense at first, if left out.
    ids: which graphs; all if left out.
    settings: others of :class:`graphnorm.training.Trial`.
    """
    trials = [
        trial_on_all(graphs, **{"norm": norm, "epochs": epochs, "batch_size": batch_size} | settings) for norm in norms
    ]
    chosen = np.arange(graphs.num_graphs) if ids is None else ids
    batch = np.sort(np.random.default_rng(trials[0].seed).permutation(chosen)[:batch_size])
    probe = CurvatureProbe(_epochs(log_spaced_epochs(epochs) if at is None else at, epochs), tuple(batch.tolist()))
    looks = {
        trial.norm: run_probe(probe, graphs, trial, seeds=seeds, ids=ids, device=device, progress=progress)
        for trial in trials
    }
    return Curvature.from_looks(probe, looks)
