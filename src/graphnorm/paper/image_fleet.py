"""ResNet18 on CIFAR-10 as the paper trains it: its batch noise is compared with that of graphs."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphnorm.analysis import NoiseProbe, compare_batches, layer_moments
from graphnorm.data import Images
from graphnorm.models import ResNet18
from graphnorm.randomness import seeded
from graphnorm.training import Outcome, Trial, device_name
from graphnorm.training.base_fleet import BaseFleet
from graphnorm.training.cuda_graph import record_cuda_graph

__all__ = ["BATCH_SIZE", "IMAGES", "IMAGE_LAYERS", "ImageFleet", "ImageNoiseProbe", "normalized"]

IMAGES = "CIFAR-10"
IMAGE_LAYERS = ("stem_norm", "blocks.2.second_norm", "blocks.4.second_norm", "blocks.7.second_norm")
"""Four norm layers of ResNet18, evenly spaced from the first to the last."""
BATCH_SIZE = 128
EVALUATION_BATCH = 500
SHIFT = 4
"""The most pixels by which an image is moved."""
WARM_UP = 3


class ImageNoiseProbe(NoiseProbe):
    """:class:`graphnorm.analysis.NoiseProbe` for images."""

    def look(self, model: nn.Module, data: Images) -> dict[str, npt.NDArray[Any]]:  # type: ignore[override]
        images, _ = normalized(data)
        passes = ((partial(model, part), None, len(part)) for part in torch.split(images, EVALUATION_BATCH))
        moments = layer_moments({name: model.get_submodule(name) for name in self.layers or ()}, passes)
        size = min(self.batch_size, len(images))
        return {name: compare_batches(layer, size, self.batches, self.seed) for name, layer in moments.items()}


class ImageFleet(BaseFleet):
    """ResNet18 on CIFAR-10 as the paper trains it: a fleet of one member.

    Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4; images are moved by up to 4 pixels and mirrored.
    A last batch that is not full is skipped. On a GPU a step is one CUDA graph, in bfloat16.
    """

    def __init__(self, data: Images, trials: Sequence[Trial], splits: Any, device: torch.device) -> None:
        (trial,) = trials
        super().__init__(trials, ("loss", "valid"))
        self._data, self._device = data, device
        self._images, self._test = normalized(data)
        self._size = min(trial.batch_size, len(self._images))
        with seeded(trial.seed):
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

    def _prepare(self) -> None:
        if self._device.type == "cuda" and self._graph is None:
            self._capture()

    def _train(self, end: int) -> Iterator[npt.NDArray[np.float32]]:
        while self.epoch < end:
            yield np.array([[self._train_epoch(), self._accuracy()]], np.float32)

    def model(self, member: int) -> nn.Module:
        """The model in evaluation mode; not a copy."""
        self._model.eval()
        return self._model

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        """The loss of each epoch, and the accuracy on the test images after it."""
        state = {name: value.cpu() for name, value in self._model.state_dict().items()} if keep_state else {}
        device = device_name(self._device)
        return [Outcome(self.trials[0], self.curves(0), seconds=self.seconds, device=device, state=state)]

    def state_dict(self) -> dict[str, Any]:
        momentum = [self._optimizer.state[p]["momentum_buffer"].cpu() for p in self._model.parameters() if self.epoch]
        return super().state_dict() | {
            "model": {name: value.cpu() for name, value in self._model.state_dict().items()},
            "momentum": momentum,
            "generator": self._generator.get_state(),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
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
        chosen = torch.cat([self._model(part).argmax(1) for part in torch.split(self._test, EVALUATION_BATCH)])
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
