"""Trainings that are looked at along the way: batch noise of graphs and of images, and the learned α.

Batch noise: GIN with BatchNorm on all graphs of a dataset, or ResNet18 on CIFAR-10. All four depths that Figure 9 shows
are looked at, so that one training serves every figure. The learned α: GIN with GraphNorm on all graphs, three seeds.
Each is a plan with a probe, and goes through the runner and the store like any other.
"""

from __future__ import annotations

import time
from collections.abc import Sequence
from dataclasses import dataclass, replace
from functools import partial
from pathlib import Path
from typing import Any

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
from graphnorm.study.plan import Dataset, Plan
from graphnorm.study.store import Record, Store, Study
from graphnorm.training import OnEpoch, Outcome, Progress, Trial, device_name
from graphnorm.training.fleet import record_cuda_graph

__all__ = [
    "IMAGES",
    "AlphaRun",
    "ImageFleet",
    "LeftOutError",
    "NoiseRun",
    "NothingThereError",
    "alpha_plan",
    "alpha_runs",
    "image_plan",
    "noise_plan",
    "noise_runs",
    "read_alpha",
    "read_noise",
]

IMAGES = "CIFAR-10"
LOOKS = 20
"""At so many epochs a model is looked at."""
SEEDS = 3
"""Of the trainings whose α is read."""


class LeftOutError(StudyError):
    """An item that cannot be made where nothing may be trained or fetched."""


class NothingThereError(LeftOutError):
    """There is nothing of an item, and nothing may be trained for it."""

    def __init__(self, item: str, where: Path) -> None:
        super().__init__(
            f"there is nothing of {item} in it",
            where=where,
            remedy="leave out --no-train; add --retry-failed if it failed",
        )


# Plans

GRAPH_LAYERS = tuple(f"convolutions.{k}.{'second' if k else 'first'}_norm" for k in range(4))
"""The first norm layer is that of the first linear map; of the others, the one that ends the convolution."""
IMAGE_LAYERS = ("stem_norm", "blocks.2.second_norm", "blocks.4.second_norm", "blocks.7.second_norm")
"""Four norm layers of ResNet18, evenly from the first to the last."""


def noise_plan(graphs: PackedGraphs | Dataset, batch_size: int, epochs: int, **settings: Any) -> Plan:
    """GIN with BatchNorm on all graphs, whose batches are compared with the dataset."""
    trial = _trial(graphs, norm="batch", batch_size=batch_size, epochs=epochs, **settings)
    return _plan("noise", [trial], NoiseProbe(log_spaced_epochs(epochs, LOOKS), batch_size, GRAPH_LAYERS))


def alpha_plan(graphs: PackedGraphs | Dataset, epochs: int, **settings: Any) -> Plan:
    """GIN with GraphNorm on all graphs, whose α is read along the way."""
    trial = _trial(graphs, norm="graph", epochs=epochs, **settings)
    trials = [replace(trial, seed=seed) for seed in range(SEEDS)]
    return _plan("alpha", trials, AlphaProbe(log_spaced_epochs(epochs, LOOKS)))


def image_plan(epochs: int, images: Images | None = None) -> Plan:
    """ResNet18 on CIFAR-10, whose batches are compared with the dataset."""
    trial = Trial(
        dataset=IMAGES,
        model="resnet18",
        norm="batch",
        protocol="all",
        folds=1,
        epochs=epochs,
        batch_size=BATCH_SIZE,
        lr=0.1,
        weight_decay=5e-4,
        dropout=0.0,
    )
    probe = ImageNoiseProbe(log_spaced_epochs(epochs, LOOKS), BATCH_SIZE, IMAGE_LAYERS)
    plan = _plan("noise", [trial], probe)
    about = {} if images is None else {"lossy": images.lossy, "images": len(images.train_images)}
    return replace(plan, spec={**plan.spec, **about}, make_fleet=ImageFleet)


def _trial(graphs: PackedGraphs | Dataset, **settings: Any) -> Trial:
    """On all graphs, with the readout of the dataset and the self-loops of the authors' data."""
    about: dict[str, Any] = {"dataset": graphs.name, "fingerprint": graphs.fingerprint, "protocol": "all", "folds": 1}
    return Trial(**about | {"readout": find(graphs.name).readout, "self_loops": True} | settings)


def _plan(kind: str, trials: Sequence[Trial], probe: Any) -> Plan:
    first = trials[0]
    spec = {
        "kind": kind,
        "dataset": first.dataset,
        "fingerprint": first.fingerprint,
        "model": first.model,
        "norms": [first.norm],
        "protocol": first.protocol,
        "folds": first.folds,
        "seeds": len(trials),
        "epochs": first.epochs,
        "batch_size": first.batch_size,
    }
    return Plan(f"{first.dataset}-{first.model}-{kind}-{first.batch_size}-{first.epochs}", spec, tuple(trials), probe)


@dataclass(frozen=True)
class ImageNoiseProbe:
    """:class:`graphnorm.analysis.NoiseProbe` for images."""

    at: tuple[int, ...]
    batch_size: int
    layers: tuple[str, ...]
    batches: int = 100
    seed: int = 0

    def look(self, model: nn.Module, data: Images) -> dict[str, npt.NDArray[Any]]:
        """For each layer the arrays of :class:`LayerNoise`, (8, C)."""
        images, _ = normalized(data)
        passes = ((partial(model, some), None, len(some)) for some in torch.split(images, AT_ONCE))
        moments = layer_moments({name: model.get_submodule(name) for name in self.layers}, passes)
        size = min(self.batch_size, len(images))
        return {name: compare_batches(of, size, self.batches, self.seed) for name, of in moments.items()}


# What there is of them


@dataclass(frozen=True, eq=False)
class NoiseRun:
    """Batch noise along one training."""

    plan: Plan
    record: Record
    layers: list[LayerNoise]
    """Four depths."""

    @property
    def trial(self) -> Trial:
        """What was trained."""
        return self.plan.trials[0]

    @property
    def dataset(self) -> str:
        """The name of the graphs, or images."""
        return self.trial.dataset

    @property
    def fingerprint(self) -> str:
        """Of the graphs."""
        return self.trial.fingerprint

    @property
    def batch_size(self) -> int:
        """Graphs, or images, of one batch."""
        return self.trial.batch_size

    @property
    def epochs(self) -> int:
        """As planned."""
        return self.trial.epochs

    @property
    def trained(self) -> int:
        """Fewer where an earlier version ran out of time."""
        return self.record.epochs

    @property
    def lossy(self) -> bool:
        """Whether images went through JPEG."""
        return bool(self.plan.spec.get("lossy", False))

    @property
    def title(self) -> str:
        """Dataset and model."""
        return f"{self.dataset}, {'ResNet18' if self.dataset == IMAGES else 'GIN'}"

    @property
    def facts(self) -> dict[str, Any]:
        """Where and when it was trained."""
        return {"epochs": self.trained, **_facts(self.record)}


@dataclass(frozen=True, eq=False)
class AlphaRun:
    """The α that GraphNorm learned on a dataset, with three seeds."""

    plan: Plan
    records: list[Record]
    alphas: Alphas

    @property
    def dataset(self) -> str:
        """The name of the graphs."""
        return self.plan.trials[0].dataset

    @property
    def fingerprint(self) -> str:
        """Of the graphs."""
        return self.plan.trials[0].fingerprint

    @property
    def epochs(self) -> int:
        """Of the trainings."""
        return self.plan.trials[0].epochs

    @property
    def facts(self) -> dict[str, Any]:
        """Where and when it was trained."""
        return _facts(self.records[0]) | {"seconds": round(sum(record.seconds for record in self.records), 1)}


def _facts(record: Record) -> dict[str, Any]:
    return {
        "finished": record.finished,
        "code": record.code,
        "device": record.device,
        "seconds": round(record.seconds, 1),
        "fingerprint": record.trial.fingerprint,
    }


def read_noise(store: Store, plan: Plan) -> NoiseRun | None:
    """What a store has of a training of :func:`noise_plan` or :func:`image_plan`."""
    records, seen = store.records(plan), store.seen(plan.trials[0])
    if not records or not seen:
        return None
    probe = replace(plan.probe, at=tuple(seen.pop("epochs").tolist()))
    layers = [LayerNoise.from_looks(probe, name, seen[name].astype(np.float64)) for name in probe.layers]
    return NoiseRun(plan, records[0], layers)


def read_alpha(store: Store, plan: Plan) -> AlphaRun | None:
    """What a store has of the trainings of :func:`alpha_plan`."""
    records = store.records(plan)
    looks = [store.seen(trial) for trial in plan.trials]
    if len(records) < len(plan.trials) or not all(looks):
        return None
    epochs = [tuple(of.pop("epochs").tolist()) for of in looks]
    seeds = [{name: values.astype(np.float64) for name, values in of.items()} for of in looks]
    return AlphaRun(plan, records, Alphas.from_looks(replace(plan.probe, at=epochs[0]), seeds))


def noise_runs(store: Store) -> list[NoiseRun]:
    """All trainings of a store whose batches were looked at."""
    found = []
    for study in _studies(store, "noise"):
        spec, dataset = study.spec, Dataset(study.spec["dataset"], study.spec["fingerprint"])
        plan = image_plan(spec["epochs"])
        if dataset.name != IMAGES:
            plan = noise_plan(dataset, spec["batch_size"], spec["epochs"])
        found.append(read_noise(store, replace(plan, name=study.name, spec=spec)))
    return [run for run in found if run is not None]


def alpha_runs(store: Store) -> list[AlphaRun]:
    """All trainings of a store whose α was read."""
    found = []
    for study in _studies(store, "alpha"):
        plan = alpha_plan(Dataset(study.spec["dataset"], study.spec["fingerprint"]), study.spec["epochs"])
        found.append(read_alpha(store, replace(plan, name=study.name, spec=study.spec)))
    return [run for run in found if run is not None]


def _studies(store: Store, kind: str) -> list[Study]:
    return [study for study in store.studies() if study.spec.get("kind") == kind]


# Training on images


BATCH_SIZE = 128
AT_ONCE = 500
"""Images of one pass in evaluation."""
SHIFT = 4
"""Pixels by which an image may be moved."""
WARM_UP = 3


class ImageFleet:
    """ResNet18 on CIFAR-10 as the paper trains it: a fleet of one, see :class:`graphnorm.training.Fleet`.

    Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4; images are moved by up to 4 pixels and mirrored.
    The last batch of an epoch is left out where it is not full. On a GPU a step is one CUDA graph, in bfloat16.
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
        """Go on for so many epochs, or to the end."""
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
        """The same: there is one member."""
        return self

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint."""
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
        """Go back, or on, to a checkpoint."""
        self.epoch, self.seconds = int(state["epoch"]), float(state["seconds"])
        self._history = [tuple(row) for row in state["history"].tolist()]
        self._model.load_state_dict(state["model"])
        self._generator.set_state(state["generator"])
        for parameter, momentum in zip(self._model.parameters(), state["momentum"], strict=False):
            self._optimizer.state[parameter]["momentum_buffer"] = momentum.to(self._device)

    def _train_epoch(self) -> float:
        """One pass over the images; gives the mean loss, which waits for the device."""
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
        """Record the step as a CUDA graph. Steps that warm up are taken back."""
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
        chosen = torch.cat([self._model(some).argmax(1) for some in torch.split(self._test, AT_ONCE)])
        return float((chosen == self._data.test_labels).float().mean())


def normalized(data: Images) -> tuple[Tensor, Tensor]:
    """Training and test images, (N, 3, H, W) float32, with the mean and standard deviation of the former's colours."""
    values = data.train_images.float() / 255
    mean, std = values.mean((0, 2, 3), keepdim=True), values.std((0, 2, 3), keepdim=True)
    return (values - mean) / std, (data.test_images.float() / 255 - mean) / std


def _moved(images: Tensor, moves: Tensor) -> Tensor:
    """(B, C, H, W), in channels-last order: each image moved over zeros, and mirrored or not; moves: (3, B)."""
    count, _, height, width = images.shape
    down, right, mirrored = moves[..., None]
    padded = nn.functional.pad(images, (SHIFT, SHIFT, SHIFT, SHIFT))
    rows = down + torch.arange(height, device=images.device)
    columns = right + torch.arange(width, device=images.device)
    columns = torch.where(mirrored == 1, columns.flip(1), columns)
    which = torch.arange(count, device=images.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)
