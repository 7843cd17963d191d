"""Batch noise of images, beside that of graphs: ResNet18 on CIFAR-10, trained as the paper says.

Batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4; images are moved by up to 4 pixels and mirrored.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator, Sequence
from functools import partial

import torch
from torch import Tensor, nn

from graphnorm.analysis.batch_noise import LayerNoise, along, batch_noise, layer_moments
from graphnorm.data import Images
from graphnorm.models import ResNet18

__all__ = ["image_layers", "image_noise_along_training"]

BATCH_SIZE = 128
AT_ONCE = 500
"""Images of one pass in evaluation."""
SHIFT = 4


def image_layers(count: int) -> list[str]:
    """Names of so many norm layers of ResNet18, evenly from the first to the last.

    >>> image_layers(2)
    ['stem_norm', 'blocks.7.second_norm']
    """
    names = ["stem_norm", *(f"blocks.{k}.second_norm" for k in range(8))]
    return [names[round(k * (len(names) - 1) / max(count - 1, 1))] for k in range(count)]


def image_noise_along_training(
    data: Images,
    *,
    epochs: int,
    at: Iterable[int],
    watch: Sequence[str],
    device: torch.device,
    progress: bool = False,
    seed: int = 0,
) -> list[LayerNoise]:
    """Train ResNet18, and measure the noise of some norm layers after the epochs ``at``."""
    from tqdm import tqdm

    images = data.train_images.to(device).float() / 255
    images = (images - images.mean((0, 2, 3), keepdim=True)) / images.std((0, 2, 3), keepdim=True)
    labels = data.train_labels.to(device)
    with torch.random.fork_rng(devices=[]):
        torch.manual_seed(seed)
        model = ResNet18().to(device)
    generator = torch.Generator(device).manual_seed(seed)
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    wanted, found = set(at), []
    for epoch in tqdm(range(epochs + 1), desc="ResNet18", unit=" epochs", disable=not progress, delay=1.0):
        if epoch:
            _train_epoch(model, optimizer, images, labels, generator)
        if epoch in wanted:
            found.append(_measure(model, images, watch, epoch))
    return [along(parts) for parts in zip(*found, strict=True)]


def _train_epoch(
    model: nn.Module, optimizer: torch.optim.Optimizer, images: Tensor, labels: Tensor, generator: torch.Generator
) -> None:
    model.train()
    order = torch.randperm(len(images), generator=generator, device=images.device)
    for ids in torch.split(order, BATCH_SIZE):
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(_moved(images[ids], generator)), labels[ids])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()


def _moved(images: Tensor, generator: torch.Generator) -> Tensor:
    """(B, C, H, W): each image moved over zeros, and mirrored or not."""
    count, _, height, width = images.shape

    def draw(bound: int) -> Tensor:
        return torch.randint(bound, (count, 1), generator=generator, device=images.device)

    padded = nn.functional.pad(images, (SHIFT, SHIFT, SHIFT, SHIFT))
    rows = draw(2 * SHIFT + 1) + torch.arange(height, device=images.device)
    columns = draw(2 * SHIFT + 1) + torch.arange(width, device=images.device)
    columns = torch.where(draw(2) == 1, columns.flip(1), columns)
    which = torch.arange(count, device=images.device)[:, None, None]
    return padded[which, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2).contiguous()


def _measure(model: nn.Module, images: Tensor, watch: Sequence[str], epoch: int) -> list[LayerNoise]:
    model.eval()
    size = min(BATCH_SIZE, len(images))

    def passes() -> Iterator[tuple[Callable[[], object], None, int]]:
        for some in torch.split(images, AT_ONCE):
            yield partial(model, some), None, len(some)

    moments = layer_moments({name: model.get_submodule(name) for name in watch}, passes())
    return [batch_noise(moments[name], size, layer=name, epoch=epoch) for name in watch]
