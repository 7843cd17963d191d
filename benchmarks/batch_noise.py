"""Batch noise of graphs and of images (the paper's Figures 4 and 8 to 10):

    GRAPHNORM_DATA=folder python -m benchmarks.batch_noise --device cuda --minutes 3 --out FILE.json

GIN with BatchNorm on PROTEINS, with batches of 128 and of 8 to 64, and on four more datasets; ResNet18 with the paper's
setting (batches of 128, learning rate 0.1, momentum 0.9, weight decay 5e-4, crops and flips) on CIFAR-10 for as many
epochs as the minutes allow. For the first and the last norm layer: the relative deviation of batch statistics from the
dataset's (see ``graphnorm.analysis.batch_noise``) along training, and the curves of one typical feature. A figure lies
beside the JSON. The minutes are those of the training of ResNet18; all else takes about as long again.
"""

from __future__ import annotations

import argparse
import json
import platform
import time
from collections.abc import Callable, Iterator
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.analysis.batch_noise import LayerNoise, along, batch_noise, layer_moments, noise_along_training
from graphnorm.analysis.checkpoints import dense_first
from graphnorm.analysis.plots import plot_noise
from graphnorm.analysis.results import plain
from graphnorm.data import load, load_cifar10, save_drawing
from graphnorm.models import ResNet18

BATCH = 128
GRAPH_LAYERS = ("convolutions.0.first_norm", "convolutions.3.second_norm")
IMAGE_LAYERS = ("stem_norm", "blocks.7.second_norm")
OTHERS = ("PTC", "NCI1", "MUTAG", "IMDB-BINARY")
BATCH_SIZES = (8, 16, 32, 64)
EVALUATED_AT_ONCE = 500


def described(noise: LayerNoise) -> dict[str, Any]:
    """The numbers of all features, and the curves of one."""
    feature = noise.typical_feature
    names = ("mean", "mean_low", "mean_high", "std", "std_low", "std_high")
    one = {name: getattr(noise, name)[:, feature] for name in names}
    return noise.summary() | {"feature": feature, "of_that_feature": one}


def crop_and_flip(images: Tensor, generator: torch.Generator) -> Tensor:
    """(B, C, H, W): each image moved by up to 4 pixels over zeros, and mirrored or not."""
    count, _, height, width = images.shape

    def draw(bound: int) -> Tensor:
        return torch.randint(bound, (count,), generator=generator, device=images.device)

    padded = nn.functional.pad(images, (4, 4, 4, 4))
    rows = draw(9)[:, None] + torch.arange(height, device=images.device)
    columns = draw(9)[:, None] + torch.arange(width, device=images.device)
    columns = torch.where(draw(2)[:, None] == 1, columns.flip(1), columns)
    image = torch.arange(count, device=images.device)[:, None, None]
    return padded[image, :, rows[:, :, None], columns[:, None, :]].permute(0, 3, 1, 2)


def train_epoch(
    model: nn.Module,
    optimizer: torch.optim.Optimizer,
    images: Tensor,
    labels: Tensor,
    generator: torch.Generator,
) -> float:
    """One pass over the images; gives the mean loss."""
    model.train()
    total = torch.zeros((), device=images.device)
    order = torch.randperm(len(images), generator=generator, device=images.device)
    steps = torch.split(order, BATCH)
    for ids in steps:
        batch = crop_and_flip(images[ids], generator).contiguous(memory_format=torch.channels_last)
        with torch.autocast(images.device.type, torch.bfloat16, enabled=images.device.type == "cuda"):
            loss = nn.functional.cross_entropy(model(batch), labels[ids])
        optimizer.zero_grad(set_to_none=True)
        torch.autograd.backward(loss)
        optimizer.step()
        total += loss.detach()
    return float(total) / len(steps)


def accuracy(model: nn.Module, images: Tensor, labels: Tensor) -> float:
    model.eval()
    with torch.no_grad():
        right = [
            (model(some).argmax(1) == label).sum()
            for some, label in zip(*(torch.split(array, EVALUATED_AT_ONCE) for array in (images, labels)), strict=True)
        ]
    return float(torch.stack(right).sum()) / len(images)


def image_noise(model: nn.Module, images: Tensor, epoch: int) -> list[LayerNoise]:
    def passes() -> Iterator[tuple[Callable[[], object], None, int]]:
        for some in torch.split(images, EVALUATED_AT_ONCE):
            yield partial(model, some), None, len(some)

    model.eval()
    moments = layer_moments({name: model.get_submodule(name) for name in IMAGE_LAYERS}, passes())
    return [batch_noise(moments[name], BATCH, layer=name, epoch=epoch) for name in IMAGE_LAYERS]


def cifar(options: argparse.Namespace) -> tuple[dict[str, Any], list[LayerNoise]]:
    data = load_cifar10(options.data_root)
    device = torch.device(options.device)
    sets = [(data.train_images, data.train_labels), (data.test_images, data.test_labels)]
    (images, labels), (test, test_labels) = (
        (pixels[: options.images].to(device).float() / 255, classes[: options.images].to(device))
        for pixels, classes in sets
    )
    mean, std = images.mean((0, 2, 3), keepdim=True), images.std((0, 2, 3), keepdim=True)
    images, test = (images - mean) / std, (test - mean) / std
    torch.manual_seed(0)
    generator = torch.Generator(device).manual_seed(0)
    model = ResNet18().to(device, memory_format=torch.channels_last)  # type: ignore[call-overload]
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1, momentum=0.9, weight_decay=5e-4)
    found = [image_noise(model, images, 0)]
    losses: list[float] = []
    spent = longest = 0.0
    while spent + longest < 60 * options.minutes and len(losses) < options.epochs:
        began = time.perf_counter()
        losses.append(train_epoch(model, optimizer, images, labels, generator))  # waits for the device
        longest = max(longest, time.perf_counter() - began)
        spent += time.perf_counter() - began
        found.append(image_noise(model, images, len(losses)))
        print(f"CIFAR-10: epoch {len(losses)}, loss {losses[-1]:.3f}, {spent:.0f} s of training", flush=True)
    layers = [along(parts) for parts in zip(*found, strict=True)]
    return {
        "images": len(images),
        "lossy": data.lossy,
        "epochs": len(losses),
        "epochs_of_the_paper": 100,
        "seconds_of_training": round(spent, 1),
        "loss": losses,
        "test_accuracy": accuracy(model, test, test_labels),
        "layers": [described(noise) for noise in layers],
    }, layers


def on_graphs(options: argparse.Namespace, name: str, batch_size: int, looks: int) -> list[LayerNoise]:
    start = time.perf_counter()
    noise = noise_along_training(
        load(name, options.data_root),
        batch_size=batch_size,
        epochs=options.epochs,
        at=dense_first(options.epochs, looks) if looks <= options.epochs else None,
        watch=GRAPH_LAYERS,
        device=options.device,
    )
    print(f"{name}, batches of {batch_size}: {time.perf_counter() - start:.0f} s", flush=True)
    return noise


def last_numbers(layers: list[LayerNoise]) -> dict[str, Any]:
    """What the layers come to after the last epoch."""
    names = ("relative_deviation", "of_mean", "of_std")
    return {noise.layer: {name: noise.summary()[name][-1] for name in names} for noise in layers}


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--minutes", type=float, default=3.0, help="of training ResNet18")
    parser.add_argument("--epochs", type=int, default=100, help="at most (default: the paper's 100)")
    parser.add_argument("--images", type=int, help="only so many, for a trial run")
    parser.add_argument("--only-proteins", action="store_true", help="leave the other graphs and batch sizes out")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-root")
    options = parser.parse_args()
    proteins = on_graphs(options, "PROTEINS", BATCH, options.epochs + 1)
    more = [] if options.only_proteins else [("PROTEINS", size) for size in BATCH_SIZES] + [(n, BATCH) for n in OTHERS]
    others = {f"{name}, batches of {size}": on_graphs(options, name, size, 12) for name, size in more}
    images, image_layers = cifar(options)
    device = torch.device(options.device)
    result = {
        "date": datetime.now(UTC).isoformat(timespec="seconds"),
        "device": torch.cuda.get_device_name(device) if device.type == "cuda" else f"cpu, {platform.machine()}",
        "torch": torch.__version__,
        "after_the_last_epoch": {
            "PROTEINS": last_numbers(proteins),
            "CIFAR-10": last_numbers(image_layers),
            **{name: last_numbers(layers) for name, layers in others.items()},
        },
        "PROTEINS": {"epochs": options.epochs, "layers": [described(noise) for noise in proteins]},
        "CIFAR-10": images,
        "others": {name: [described(noise) for noise in layers] for name, layers in others.items()},
    }
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(plain(result), indent=1, ensure_ascii=False) + "\n", encoding="utf-8")
    figure = plot_noise([*proteins, *image_layers], title="GIN on PROTEINS, ResNet18 on CIFAR-10")
    save_drawing(figure, options.out.with_suffix(".png"))
    print(json.dumps(plain(result["after_the_last_epoch"]), indent=1))


if __name__ == "__main__":
    main()
