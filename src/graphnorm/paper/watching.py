"""Trainings whose norm layers are watched, and the file that keeps what was seen.

Batch noise: GIN with BatchNorm on all graphs of a dataset, or ResNet18 on CIFAR-10. All four depths that Figure 9 asks
for are watched, so that one training serves every figure. The learned α: GIN with GraphNorm on all graphs, three seeds.
"""

from __future__ import annotations

import datetime
import json
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from graphnorm._version import exact_version
from graphnorm.analysis import Alphas, LayerNoise, alpha_along_training, log_spaced_epochs, noise_along_training
from graphnorm.errors import StudyError
from graphnorm.files import replacing
from graphnorm.paper.images import image_layers, image_noise_along_training
from graphnorm.paper.recipe import IMAGES, Trainings, Watching
from graphnorm.training.fleet import device_name

if TYPE_CHECKING:
    from graphnorm.data import Images, PackedGraphs

__all__ = ["Learned", "Notebook", "Seen", "learn_alpha", "watch_graphs", "watch_images"]

LOOKS = 20
"""At so many epochs batches are compared with the dataset."""
DIGITS = 6
"""Significant ones, in the file."""


@dataclass(frozen=True, eq=False)
class Seen:
    """What was seen of one training."""

    watching: Watching
    trained: int
    """Epochs; fewer than asked for where time ran out."""
    layers: tuple[LayerNoise, ...]
    facts: dict[str, Any]
    """Where and when, and other numbers of the training."""

    @property
    def title(self) -> str:
        """Dataset and model."""
        return f"{self.watching.dataset}, {'ResNet18' if self.watching.dataset == IMAGES else 'GIN'}"

    @property
    def cut_short(self) -> str:
        """What is kept of a training that time cut short, and what going on would take; '' for a whole one."""
        asked = self.watching.epochs
        if self.trained == asked:
            return ""
        seconds = self.facts["seconds"]
        return (
            f"{self.title}: {self.trained} of {asked} epochs are kept, without weights; training begins anew "
            f"and takes about {seconds / self.trained * asked:.0f} s on {self.facts['device']}, where these took "
            f"{seconds:.0f} s (--no-train takes them as they are)"
        )

    def at_depths(self, depths: tuple[int, ...]) -> list[LayerNoise]:
        """Some of the four depths, 0 to 3."""
        return [self.layers[depth] for depth in depths]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        layers = [_short(layer.to_dict()) for layer in self.layers]
        return self.watching._asdict() | {"trained": self.trained, "facts": self.facts, "layers": layers}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Seen:
        """What :meth:`to_dict` gave."""
        watching = Watching(values["dataset"], values["batch_size"], values["epochs"])
        layers = tuple(LayerNoise.from_dict(layer) for layer in values["layers"])
        return cls(watching, values["trained"], layers, dict(values["facts"]))


@dataclass(frozen=True, eq=False)
class Learned:
    """The α that GraphNorm learned on a dataset."""

    dataset: str
    epochs: int
    alphas: Alphas
    facts: dict[str, Any]

    def to_dict(self) -> dict[str, Any]:
        """Plain JSON values."""
        alphas = _short(self.alphas.to_dict())
        return {"dataset": self.dataset, "epochs": self.epochs, "facts": self.facts, "alphas": alphas}

    @classmethod
    def from_dict(cls, values: dict[str, Any]) -> Learned:
        """What :meth:`to_dict` gave."""
        return cls(values["dataset"], values["epochs"], Alphas.from_dict(values["alphas"]), dict(values["facts"]))


class Notebook:
    """A JSON file of what was seen, written after each training.

    >>> import tempfile
    >>> Notebook(Path(tempfile.mkdtemp()) / "noise.json").find(Watching("PROTEINS", 128, 100)) is None
    True
    """

    def __init__(self, path: Path) -> None:
        self.path = path

    def watched(self) -> list[Seen]:
        """All batch noise in it."""
        return self._read()[0]

    def learned(self) -> list[Learned]:
        """All learned α in it."""
        return self._read()[1]

    def find(self, watching: Watching) -> Seen | None:
        """What it has of a training."""
        return next((seen for seen in self.watched() if seen.watching == watching), None)

    def find_learned(self, dataset: str, epochs: int) -> Learned | None:
        """What it has of α on a dataset."""
        return next((one for one in self.learned() if (one.dataset, one.epochs) == (dataset, epochs)), None)

    def add(self, new: Seen | Learned) -> None:
        """Keep it, in place of what was there of the same training."""
        watched, learned = self._read()
        if isinstance(new, Seen):
            watched = [*(one for one in watched if one.watching != new.watching), new]
        else:
            others = [one for one in learned if (one.dataset, one.epochs) != (new.dataset, new.epochs)]
            learned = [*others, new]
        content = {"watched": [one.to_dict() for one in watched], "learned": [one.to_dict() for one in learned]}
        with replacing(self.path) as fresh:
            fresh.write_text(json.dumps(content, ensure_ascii=False) + "\n", encoding="utf-8")

    def _read(self) -> tuple[list[Seen], list[Learned]]:
        if not self.path.exists():
            return [], []
        try:
            content = json.loads(self.path.read_text(encoding="utf-8"))
            watched = [Seen.from_dict(entry) for entry in content["watched"]]
            return watched, [Learned.from_dict(entry) for entry in content["learned"]]
        except (KeyError, TypeError, ValueError) as error:
            raise StudyError(
                f"this is no file of batch noise ({error})", where=self.path, remedy="name another, or remove it"
            ) from None


def watch_graphs(
    graphs: PackedGraphs, watching: Watching, *, device: torch.device, progress: bool = False, **settings: Any
) -> Seen:
    """Train GIN with BatchNorm, with the settings of the recipes, and watch."""
    began = time.perf_counter()
    # The first norm layer is that of the first linear map; of the others, the one that ends the convolution.
    names = [f"convolutions.{k}.{'second' if k else 'first'}_norm" for k in range(4)]
    layers = noise_along_training(
        graphs,
        batch_size=watching.batch_size,
        epochs=watching.epochs,
        at=log_spaced_epochs(watching.epochs, LOOKS),
        watch=names,
        device=device,
        progress=progress,
        **Trainings().settings(watching.dataset, "gin") | settings,
    )
    facts = _provenance(device) | {"seconds": round(time.perf_counter() - began, 1), "fingerprint": graphs.fingerprint}
    return Seen(watching, watching.epochs, tuple(layers), facts)


def learn_alpha(graphs: PackedGraphs, epochs: int, *, device: torch.device, progress: bool = False) -> Learned:
    """Train GIN with GraphNorm, with the settings of the recipes and three seeds, and record α along the way."""
    began = time.perf_counter()
    alphas = alpha_along_training(
        graphs,
        epochs=epochs,
        at=log_spaced_epochs(epochs, LOOKS),
        device=device,
        progress=progress,
        **Trainings().settings(graphs.name, "gin"),
    )
    facts = _provenance(device) | {"seconds": round(time.perf_counter() - began, 1), "fingerprint": graphs.fingerprint}
    return Learned(graphs.name, epochs, alphas, facts)


def watch_images(
    images: Images,
    watching: Watching,
    *,
    device: torch.device,
    seconds: float = float("inf"),
    captured: bool | None = None,
    say: Callable[[str], None] = lambda _: None,
) -> Seen:
    """Train ResNet18, for at most so many seconds, and watch."""
    began = time.perf_counter()
    found = image_noise_along_training(
        images,
        epochs=watching.epochs,
        at=log_spaced_epochs(watching.epochs, LOOKS),
        watch=image_layers(4),
        device=device,
        seconds=seconds,
        captured=captured,
        say=say,
    )
    facts = _provenance(device) | {
        "seconds": round(time.perf_counter() - began, 1),
        "seconds_of_training": round(found.seconds, 1),
        "images": len(images.train_images),
        "lossy": images.lossy,
        "losses": [round(loss, 4) for loss in found.losses],
        "test_accuracy": found.test_accuracy,
    }
    return Seen(watching, len(found.losses), tuple(found.layers), facts)


def _provenance(device: torch.device) -> dict[str, Any]:
    return {
        "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
        "graphnorm": exact_version(),
        "torch": torch.__version__,
        "device": device_name(device),
    }


def _short(value: Any) -> Any:
    """With so many digits as matter."""
    if isinstance(value, dict):
        return {name: _short(entry) for name, entry in value.items()}
    if isinstance(value, list):
        return [_short(entry) for entry in value]
    return float(f"{value:.{DIGITS}g}") if isinstance(value, float) else value
