"""Trainings that are measured along the way: batch noise of graphs and of images, and the learned α.

Batch noise: GIN with BatchNorm on all graphs of a dataset, or ResNet18 on CIFAR-10. All four depths that Figure 9 shows
are measured, so that one training serves every figure. The learned α: GIN with GraphNorm on all graphs, three seeds.
Each is a plan with a probe, run and stored like any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphnorm.analysis import (
    AlphaProbe,
    Alphas,
    LayerNoise,
    NoiseProbe,
    compare_batches,
    layer_moments,
    log_spaced_epochs,
)
from graphnorm.data import Images, PackedGraphs, find
from graphnorm.errors import StudyError
from graphnorm.models import ResNet18
from graphnorm.study.plan import Plan
from graphnorm.study.planning import Dataset
from graphnorm.study.store import Record, Store
from graphnorm.training import OnEpoch, Outcome, Progress, Trial, device_name
from graphnorm.training.fleet import record_cuda_graph

__all__ = ["IMAGES", "AlphaRun", "ImageFleet", "LeftOutError", "NoiseRun", "NothingThereError", "alpha_plan"]
__all__ += ["alpha_runs", "image_plan", "noise_plan", "noise_runs", "origin", "read_alpha", "read_noise"]

IMAGES = "CIFAR-10"
LOOKS = 20
"""How many times a model is measured along its training."""
ALPHA_SEEDS = 3


class LeftOutError(StudyError):
    """An item cannot be made without training or downloads."""


class NothingThereError(LeftOutError):
    """The store has nothing for an item."""

    def __init__(self, item: str, where: Path) -> None:
        super().__init__(
            f"this store has no results for {item}",
            where=where,
            remedy="leave out --no-train; add --retry-failed if it failed",
        )


# Plans

GRAPH_LAYERS = tuple(f"convolutions.{k}.{'second' if k else 'first'}_norm" for k in range(4))
"""In the first convolution the norm after the first linear map, in the others the norm that ends the convolution."""
IMAGE_LAYERS = ("stem_norm", "blocks.2.second_norm", "blocks.4.second_norm", "blocks.7.second_norm")
"""Four norm layers of ResNet18, evenly spaced from the first to the last."""


def noise_plan(graphs: PackedGraphs | Dataset, batch_size: int, epochs: int, seed: int = 0) -> Plan:
    """GIN with BatchNorm on all graphs; its batches are compared with the dataset."""
    probe = NoiseProbe(log_spaced_epochs(epochs, LOOKS), batch_size, GRAPH_LAYERS)
    return _plan("noise", probe, (seed,), **_gin(graphs), norm="batch", batch_size=batch_size, epochs=epochs)


def alpha_plan(graphs: PackedGraphs | Dataset, epochs: int) -> Plan:
    """GIN with GraphNorm on all graphs; its α is read along the way."""
    probe = AlphaProbe(log_spaced_epochs(epochs, LOOKS))
    return _plan("alpha", probe, range(ALPHA_SEEDS), **_gin(graphs), norm="graph", epochs=epochs)


def image_plan(epochs: int, images: Images | None = None, seed: int = 0) -> Plan:
    """ResNet18 on CIFAR-10; its batches are compared with the dataset.

    images: the spec then says how many there are, and whether they went through JPEG.
    """
    probe = ImageNoiseProbe(log_spaced_epochs(epochs, LOOKS), BATCH_SIZE, IMAGE_LAYERS)
    return _plan(
        "noise",
        probe,
        (seed,),
        fleet=ImageFleet,
        about={} if images is None else {"lossy": images.lossy, "images": len(images.train_images)},
        dataset=IMAGES,
        model="resnet18",
        norm="batch",
        epochs=epochs,
        batch_size=BATCH_SIZE,
        lr=0.1,
        weight_decay=5e-4,
        dropout=0.0,
    )


def _gin(graphs: PackedGraphs | Dataset) -> dict[str, Any]:
    """The graphs, with the paper's readout and the self-loops of the authors' data."""
    readout = find(graphs.name).readout
    return {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "readout": readout, "self_loops": True}


def _plan(
    kind: str,
    probe: Any,
    seeds: Sequence[int],
    *,
    fleet: Any = None,
    about: dict[str, Any] | None = None,
    **settings: Any,
) -> Plan:
    trials = tuple(Trial(protocol="all", folds=1, seed=seed, **settings) for seed in seeds)
    first = trials[0]
    spec = {
        "kind": kind,
        "dataset": first.dataset,
        "fingerprint": first.fingerprint,
        "model": first.model,
        "norms": [first.norm],
        "protocol": first.protocol,
        "folds": first.folds,
        "seeds": len(seeds),
        "epochs": first.epochs,
        "batch_size": first.batch_size,
        **(about or {}),
    }
    name = f"{first.dataset}-{first.model}-{kind}-{first.batch_size}-{first.epochs}"
    name += f"-seed-{first.seed}" if first.seed else ""
    return Plan(name, spec, trials, probe, fleet)


class ImageNoiseProbe(NoiseProbe):
    """:class:`graphnorm.analysis.NoiseProbe` for images."""

    def look(self, model: nn.Module, data: Images) -> dict[str, npt.NDArray[Any]]:  # type: ignore[override]
        images, _ = normalized(data)
        passes = ((partial(model, some), None, len(some)) for some in torch.split(images, EVALUATION_BATCH))
        moments = layer_moments({name: model.get_submodule(name) for name in self.layers or ()}, passes)
        size = min(self.batch_size, len(images))
        return {name: compare_batches(of, size, self.batches, self.seed) for name, of in moments.items()}


# Reading from a store


class NoiseRun(NamedTuple):
    """Batch noise along one training."""

    record: Record
    layers: list[LayerNoise]
    """At four depths."""
    lossy: bool
    """Whether images went through JPEG."""

    @property
    def trial(self) -> Trial:
        return self.record.trial


class AlphaRun(NamedTuple):
    """The α that GraphNorm learned on a dataset, over three seeds."""

    records: list[Record]
    alphas: Alphas

    @property
    def trial(self) -> Trial:
        """That of the first seed."""
        return self.records[0].trial


def origin(records: Sequence[Record]) -> dict[str, Any]:
    """When, where and with which code a training ran, for JSON."""
    first = records[0]
    return {
        "finished": first.finished,
        "code": first.code,
        "device": first.device,
        "seconds": round(sum(record.seconds for record in records), 1),
        "fingerprint": first.trial.fingerprint,
    }


def read_noise(store: Store, plan: Plan) -> NoiseRun | None:
    """The training of :func:`noise_plan` or :func:`image_plan`.

    If the store lacks it, the longest one that differs in having fewer epochs; None if there is none.
    """
    wanted = plan.trials[0]
    if not store.seen(wanted):
        kinds = [study for study in store.studies() if study.spec.get("kind") == "noise"]
        shorter = [
            other
            for other in map(store.plan, kinds)
            if store.seen(other.trials[0])
            and other.trials[0].epochs < wanted.epochs
            and replace(other.trials[0], epochs=wanted.epochs) == wanted
        ]
        if not shorter:
            return None
        plan = max(shorter, key=lambda other: other.trials[0].epochs)
    trial = plan.trials[0]
    records, seen = store.records(plan), store.seen(trial)
    if not records or not seen:
        return None
    names = IMAGE_LAYERS if trial.dataset == IMAGES else GRAPH_LAYERS
    probe = NoiseProbe(tuple(seen["epochs"].tolist()), trial.batch_size, names)
    layers = [LayerNoise.from_looks(probe, name, seen[name].astype(np.float64)) for name in names]
    return NoiseRun(records[0], layers, bool(plan.spec.get("lossy")))


def read_alpha(store: Store, plan: Plan) -> AlphaRun | None:
    """The trainings of :func:`alpha_plan`; None if the store lacks one."""
    records = store.records(plan)
    looks = [store.seen(trial) for trial in plan.trials]
    if len(records) < len(plan.trials) or not all(looks):
        return None
    epochs = [tuple(look.pop("epochs").tolist()) for look in looks]
    seeds = [{name: values.astype(np.float64) for name, values in look.items()} for look in looks]
    return AlphaRun(records, Alphas.from_looks(AlphaProbe(epochs[0]), seeds))


def noise_runs(store: Store) -> list[NoiseRun]:
    """All trainings of a store that measured batch noise."""
    plans = [store.plan(study) for study in store.studies() if study.spec.get("kind") == "noise"]
    return [run for plan in plans if (run := read_noise(store, plan)) is not None]


def alpha_runs(store: Store) -> list[AlphaRun]:
    """All trainings of a store that measured α."""
    plans = [store.plan(study) for study in store.studies() if study.spec.get("kind") == "alpha"]
    return [run for plan in plans if (run := read_alpha(store, plan)) is not None]


# Training on images

BATCH_SIZE = 128
EVALUATION_BATCH = 500
SHIFT = 4
"""The most pixels by which an image is moved."""
WARM_UP = 3


class ImageFleet:
    """ResNet18 on CIFAR-10 as the paper trains it, with the interface of :class:`graphnorm.training.Fleet`.

    Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4; images are moved by up to 4 pixels and mirrored.
    A last batch that is not full is skipped. On a GPU a step is one CUDA graph, in bfloat16.
    """

    def __init__(self, data: Images, trials: Sequence[Trial], splits: Any, device: torch.device) -> None:
        (trial,) = self.trials = tuple(trials)
        self.epoch, self.seconds = 0, 0.0
        self._history: list[tuple[float, float]] = []
        self._data, self._device = data, device
        self._images, self._test = normalized(data)
        self._size = min(trial.batch_size, len(self._images))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(trial.seed)
            model = ResNet18()
        self._model: nn.Module = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._generator = torch.Generator(device).manual_seed(trial.seed)
        self._optimizer = torch.optim.SGD(
            self._model.parameters(), lr=trial.lr, momentum=0.9, weight_decay=trial.weight_decay
        )
        self._ids = torch.arange(self._size, device=device)
        self._moves = torch.zeros(3, self._size, dtype=torch.int64, device=device)
        self._total = torch.zeros((), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def advance(self, epochs: int | None = None, on_epoch: OnEpoch | None = None) -> None:
        """Train for so many more epochs, or to the end."""
        last = self.trials[0].epochs
        end = last if epochs is None else min(self.epoch + epochs, last)
        if self._device.type == "cuda" and self._graph is None and self.epoch < end:
            self._capture()
        while self.epoch < end:
            began = time.perf_counter()
            loss = self._train_epoch()
            self._history.append((loss, self._accuracy()))
            self.epoch, self.seconds = self.epoch + 1, self.seconds + time.perf_counter() - began
            if on_epoch is not None:
                row = dict(zip(("loss", "valid"), np.array(self._history[-1:], np.float32).T, strict=True))
                on_epoch(Progress(self.trials, self.epoch, row, self.seconds))

    def model(self, member: int) -> nn.Module:
        """The model in evaluation mode; not a copy."""
        self._model.eval()
        return self._model

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        """The loss of each epoch, and the accuracy on the test images after it."""
        history = np.array(self._history, np.float32).reshape(-1, 2)
        curves = {"loss": history[:, 0].copy(), "valid": history[:, 1].copy()}
        state = {name: value.cpu() for name, value in self._model.state_dict().items()} if keep_state else {}
        device = device_name(self._device)
        return [Outcome(self.trials[0], curves, seconds=self.seconds, device=device, state=state)]

    def keep(self, members: Sequence[int]) -> ImageFleet:
        return self

    def state_dict(self) -> dict[str, Any]:
        momentum = [self._optimizer.state[p]["momentum_buffer"].cpu() for p in self._model.parameters() if self.epoch]
        return {
            "epoch": self.epoch,
            "seconds": self.seconds,
            "history": torch.tensor(self._history, dtype=torch.float64),
            "model": {name: value.cpu() for name, value in self._model.state_dict().items()},
            "momentum": momentum,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])
        self._history = [tuple(row) for row in state["history"].tolist()]
        self._model.load_state_dict(state["model"])
        self._generator.set_state(state["generator"])
        for parameter, momentum in zip(self._model.parameters(), state["momentum"], strict=False):
            self._optimizer.state[parameter]["momentum_buffer"] = momentum.to(self._device)

    def _train_epoch(self) -> float:
        """The mean loss of one pass over the images; reading it waits for the device."""
        self._model.train()
        self._total.zero_()
        steps = len(self._images) // self._size
        draw = partial(torch.randint, generator=self._generator, device=self._device)
        order = torch.randperm(len(self._images), generator=self._generator, device=self._device)
        order = order[: steps * self._size].reshape(steps, -1)
        moves = torch.stack([draw(bound, (steps, self._size)) for bound in (2 * SHIFT + 1, 2 * SHIFT + 1, 2)], dim=1)
        for step in range(steps):
            self._ids.copy_(order[step])
            self._moves.copy_(moves[step])
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
        return float(self._total) / steps

    def _capture(self) -> None:
        """Record the step as a CUDA graph, and undo the warm-up steps."""
        self._model.train()
        before = {name: value.clone() for name, value in self._model.state_dict().items()}
        momentum = {
            parameter: state["momentum_buffer"].clone() for parameter, state in self._optimizer.state.items() if state
        }
        self._graph = record_cuda_graph(self._step, warm_up=WARM_UP)
        self._model.load_state_dict(before)
        for parameter, state in self._optimizer.state.items():
            buffer = state["momentum_buffer"]
            buffer.copy_(momentum[parameter]) if parameter in momentum else buffer.zero_()

    def _step(self) -> None:
        """Train on the images of ``_ids``, moved by ``_moves``."""
        kind = self._device.type
        batch = _moved(self._images[self._ids], self._moves)
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False):
            loss = nn.functional.cross_entropy(self._model(batch), self._data.train_labels[self._ids])
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._total += loss.detach()

    @torch.no_grad()
    def _accuracy(self) -> float:
        self._model.eval()
        chosen = torch.cat([self._model(some).argmax(1) for some in torch.split(self._test, EVALUATION_BATCH)])
        return float((chosen == self._data.test_labels).float().mean())


def normalized(data: Images) -> tuple[Tensor, Tensor]:
    """Training and test images, (N, 3, H, W) float32, standardized by the colours of the training images."""
    values = data.train_images.float() / 255
    mean, std = values.mean((0, 2, 3), keepdim=True), values.std((0, 2, 3), keepdim=True)
    return (values - mean) / std, (data.test_images.float() / 255 - mean) / std


def _moved(images: Tensor, moves: Tensor) -> Tensor:
    """Images, (B, C, H, W) in channels-last order, moved over zeros and mirrored by ``moves``, (3, B)."""
    count, _, height, width = images.shape
    down, right, mirrored = moves[..., None]
    padded = nn.functional.pad(images, (SHIFT, SHIFT, SHIFT, SHIFT))
    rows = down + torch.arange(height, device=images.device)
    columns = right + torch.arange(width, device=images.device)
    columns = torch.where(mirrored == 1, columns.flip(1), columns)
    which = torch.arange(count, device=images.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
