"""Batch noise of graphs and of images: what the paper's Figures 4 and 8 to 10 show.

    GRAPHNORM_DATA=folder python -m benchmarks.batch_noise --device cuda --minutes 2 --out FILE.json

GIN with BatchNorm on PROTEINS, with batches of 128 and of 8 to 64, and on four more datasets; ResNet18 on CIFAR-10 for
as many of its 100 epochs as the minutes allow. FILE is written after each training, the most wanted first; run
again, it goes on with those that are not in it. ``graphnorm reproduce fig4 fig8 fig9 fig10 --no-train --noise FILE``
makes the figures of it. The minutes are those of training ResNet18.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import torch

from graphnorm.data import Images, load, load_cifar10
from graphnorm.paper.recipe import IMAGES, Watching
from graphnorm.paper.recipes import RECIPES
from graphnorm.paper.watching import Notebook, Seen, watch_graphs, watch_images
from graphnorm.training.fleet import default_device

FIGURES = ("fig4", "fig9", "fig10", "fig8")


def trainings() -> list[Watching]:
    """All that the figures need, each once: PROTEINS and the images first."""
    watched = [recipe.watched for name in FIGURES if (recipe := RECIPES[name])]
    return list(dict.fromkeys(training for part in watched if part for training in part.trainings))


def line(seen: Seen) -> str:
    """The deviation of a batch from the dataset after the last epoch, at the first and the last layer watched."""
    first, last = (seen.layers[depth].relative_deviation[-1] for depth in (0, -1))
    return (
        f"{seen.title}, batches of {seen.watching.batch_size}: {seen.trained} epochs in {seen.facts['seconds']} s; "
        f"relative deviation {first:.3f} at the first layer, {last:.3f} at the last"
    )


def main() -> None:
    """Train what the file lacks."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device")
    parser.add_argument("--minutes", type=float, default=2.0, help="of training ResNet18 (default: 2)")
    parser.add_argument("--epochs", type=int, help="for a trial run: other than the paper's 100")
    parser.add_argument("--images", type=int, help="for a trial run: only so many")
    parser.add_argument("--eager", action="store_true", help="train ResNet18 without a CUDA graph")
    parser.add_argument("--only", metavar="A,B", help="only these datasets")
    parser.add_argument("--out", type=Path, required=True)
    parser.add_argument("--data-root")
    options = parser.parse_args()
    device, notebook = default_device(options.device), Notebook(options.out)
    began = time.perf_counter()

    def say(text: str) -> None:
        print(f"{time.perf_counter() - began:6.1f} s  {text}", flush=True)

    for training in trainings():
        if options.only and training.dataset not in options.only.split(","):
            continue
        if options.epochs:
            training = training._replace(epochs=options.epochs)
        if notebook.find(training):
            continue
        if training.dataset == IMAGES:
            images = load_cifar10(options.data_root)
            say(f"read {len(images.train_images):,} images")
            if options.images:
                some = [part[: options.images] for part in images[:4]]
                images = Images._make([*some, images.lossy])
            captured = False if options.eager else None
            seconds = 60 * options.minutes
            seen = watch_images(images, training, device=device, seconds=seconds, captured=captured, say=say)
        else:
            seen = watch_graphs(load(training.dataset, options.data_root), training, device=device)
        notebook.add(seen)
        say(line(seen))
        if device.type == "cuda":
            torch.cuda.empty_cache()


if __name__ == "__main__":
    main()
