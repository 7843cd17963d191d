"""Batch noise of images, beside that of graphs: ResNet18 on CIFAR-10, trained as the paper says.

Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4; images are moved by up to 4 pixels and mirrored. The
last batch of an epoch is left out where it is not full. On a GPU a step is one CUDA graph, in bfloat16.
"""

from __future__ import annotations

import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial
from typing import NamedTuple

import torch
from torch import Tensor, nn

from graphnorm.analysis import LayerNoise, batch_noise, join_epochs, layer_moments
from graphnorm.data import Images
from graphnorm.models import ResNet18
from graphnorm.training.capture import record

__all__ = ["ImageNoise", "image_layers", "image_noise_along_training"]

BATCH_SIZE = 128
AT_ONCE = 500
"""Images of one pass in evaluation."""
SHIFT = 4
WARM_UP = 3


def image_layers(count: int) -> list[str]:
    """Names of so many norm layers of ResNet18, evenly from the first to the last.

    >>> image_layers(2)
    ['stem_norm', 'blocks.7.second_norm']
    """
    names = ["stem_norm", *(f"blocks.{k}.second_norm" for k in range(8))]
    return [names[round(k * (len(names) - 1) / max(count - 1, 1))] for k in range(count)]


class ImageNoise(NamedTuple):
    """What came of a training on images."""

    layers: list[LayerNoise]
    losses: list[float]
    """Of each epoch that was trained."""
    seconds: float
    """Of training alone."""
    test_accuracy: float


def image_noise_along_training(
    data: Images,
    *,
    epochs: int,
    at: Iterable[int],
    watch: Sequence[str],
    device: torch.device,
    seconds: float = float("inf"),
    captured: bool | None = None,
    say: Callable[[str], None] = lambda _: None,
    seed: int = 0,
) -> ImageNoise:
    """Train ResNet18, and measure the noise of some norm layers after the epochs ``at`` and after the last one.

    seconds: begin no epoch that would end later, counting the training alone.
    captured: whether to step by a CUDA graph; where there is a GPU if left out.
    say: is told about every epoch.
    """
    mean, std = _colours(data.train_images.to(device))
    images = (data.train_images.to(device).float() / 255 - mean) / std
    training = _Training(images, data.train_labels.to(device), seed)
    if captured is None:
        captured = device.type == "cuda"
    if captured:
        training.capture()
    wanted, found = set(at), []
    losses: list[float] = []
    spent = longest = 0.0
    if 0 in wanted:
        found.append(_measure(training.model, images, watch, 0))
    while len(losses) < epochs and spent + longest <= seconds:
        began = time.perf_counter()
        losses.append(training.epoch())
        longest = max(longest, time.perf_counter() - began)
        spent += time.perf_counter() - began
        if len(losses) in wanted:
            found.append(_measure(training.model, images, watch, len(losses)))
        say(f"ResNet18: epoch {len(losses)} of {epochs}, loss {losses[-1]:.3f}, {spent:.0f} s of training")
    if not found or found[-1][0].epochs[-1] != len(losses):
        found.append(_measure(training.model, images, watch, len(losses)))
    test = (data.test_images.to(device).float() / 255 - mean) / std
    accuracy = _accuracy(training.model, test, data.test_labels.to(device))
    return ImageNoise([join_epochs(parts) for parts in zip(*found, strict=True)], losses, spent, accuracy)


def _colours(pixels: Tensor) -> tuple[Tensor, Tensor]:
    """(1, 3, 1, 1) each: mean and standard deviation of images, (N, 3, H, W) uint8, as values of 0 to 1."""
    values = pixels.float() / 255
    return values.mean((0, 2, 3), keepdim=True), values.std((0, 2, 3), keepdim=True)


class _Training:
    """ResNet18 and all that one step of its training reads and writes, at fixed places."""

    def __init__(self, images: Tensor, labels: Tensor, seed: int) -> None:
        self._images, self._labels = images, labels
        device, self._size = images.device, min(BATCH_SIZE, len(images))
        with torch.random.fork_rng(devices=[]):
            torch.manual_seed(seed)
            model = ResNet18()
        self.model = model.to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
        self._generator = torch.Generator(device).manual_seed(seed)
        self._optimizer = torch.optim.SGD(self.model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
        self._ids = torch.arange(self._size, device=device)
        self._moves = torch.zeros(3, self._size, dtype=torch.int64, device=device)
        self._total = torch.zeros((), device=device)
        self._graph: torch.cuda.CUDAGraph | None = None

    def epoch(self) -> float:
        """One pass over the images; gives the mean loss, which waits for the device."""
        self.model.train()
        self._total.zero_()
        steps = len(self._images) // self._size
        order = self._draw(steps)
        moves = self._draw_moves(steps)
        for step in range(steps):
            self._ids.copy_(order[step])
            self._moves.copy_(moves[step])
            if self._graph is None:
                self._step()
            else:
                self._graph.replay()
        return float(self._total) / steps

    def capture(self) -> None:
        """Record the step as a CUDA graph. Steps that warm up are taken back."""
        self.model.train()
        before = {name: value.clone() for name, value in self.model.state_dict().items()}
        self._graph = record(self._step, warm_up=WARM_UP)
        self.model.load_state_dict(before)
        for state in self._optimizer.state.values():
            state["momentum_buffer"].zero_()

    def _step(self) -> None:
        """Train on the images of ``_ids``, moved by ``_moves``."""
        kind = self._images.device.type
        batch = _moved(self._images[self._ids], self._moves)
        with torch.autocast(kind, torch.bfloat16, enabled=kind == "cuda", cache_enabled=False):
            loss = nn.functional.cross_entropy(self.model(batch), self._labels[self._ids])
        self._optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        self._optimizer.step()
        self._total += loss.detach()

    def _draw(self, steps: int) -> Tensor:
        """(steps, B): images in a random order."""
        order = torch.randperm(len(self._images), generator=self._generator, device=self._images.device)
        return order[: steps * self._size].reshape(steps, -1)

    def _draw_moves(self, steps: int) -> Tensor:
        """(steps, 3, B): by how many rows and columns an image is moved, and whether it is mirrored."""
        bounds = (2 * SHIFT + 1, 2 * SHIFT + 1, 2)
        shape, device = (steps, self._size), self._images.device
        draws = [torch.randint(bound, shape, generator=self._generator, device=device) for bound in bounds]
        return torch.stack(draws, dim=1)


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


def _measure(model: nn.Module, images: Tensor, watch: Sequence[str], epoch: int) -> list[LayerNoise]:
    model.eval()
    size = min(BATCH_SIZE, len(images))

    def passes() -> Iterator[tuple[Callable[[], object], None, int]]:
        for some in torch.split(images, AT_ONCE):
            yield partial(model, some), None, len(some)

    moments = layer_moments({name: model.get_submodule(name) for name in watch}, passes())
    return [batch_noise(moments[name], size, layer=name, epoch=epoch) for name in watch]


@torch.no_grad()
def _accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    chosen = torch.cat([model(some).argmax(1) for some in torch.split(images, AT_ONCE)])
    return float((chosen == labels).float().mean())
