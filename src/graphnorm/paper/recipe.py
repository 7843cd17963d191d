"""What a recipe is: the trainings and datasets that a table or figure of the paper is made of, and parts of them.

:mod:`graphnorm.paper.recipes` lists those of the paper; :mod:`graphnorm.paper.laboratory` provides what they need, and
a maker turns that into a :class:`~graphnorm.paper.products.Product`. Trials are named by their content, so those that
several items need are trained once.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, NamedTuple

from graphnorm.data.catalog import find
from graphnorm.errors import StudyError
from graphnorm.paper.narrowing import Narrowing, describe, narrowing
from graphnorm.study.baselines import BASELINES
from graphnorm.study.grid import GRIDS, Grid
from graphnorm.study.protocol import find_protocol

__all__ = [
    "CURVES",
    "FIVE",
    "IMAGES",
    "MOLHIV",
    "NARROWED_BY",
    "QUICK",
    "TU",
    "Beside",
    "Learning",
    "NothingLeftError",
    "Recipe",
    "Trainings",
    "Watched",
    "Watching",
    "is_quick",
]

TU = ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-BINARY", "REDDIT-BINARY", "COLLAB")
MOLHIV = "ogbg-molhiv"
IMAGES = "CIFAR-10"
FIVE = ("none", "layer", "batch", "instance", "graph")

CURVES = GRIDS["curves"]
"""The setting of the paper's training curves: one configuration of its grid."""


@dataclass(frozen=True)
class Quick:
    """What is left of a recipe in a quick pass: minutes on two cores."""

    datasets: tuple[str, ...] = ("MUTAG", "PROTEINS", "IMDB-BINARY")
    grid: str = "quick"
    """The name of every grid."""
    epochs: int = 10
    batch_sizes: tuple[int, ...] = (16, 64)
    """Where a recipe compares several."""
    folds: int = 3
    baselines: tuple[str, ...] = ("wl",)
    baseline_datasets: tuple[str, ...] = ("MUTAG",)


QUICK = Quick()


def is_quick(spec: Mapping[str, Any]) -> bool:
    """Whether a study, by the spec in its store, is of a quick pass: of its grid, or a baseline, on so few folds.

    >>> is_quick({"model": "gin", "grid": {"name": "quick"}, "folds": 3})
    True
    """
    quick_grid = spec.get("grid", {}).get("name") == QUICK.grid
    return spec.get("folds") == QUICK.folds and (quick_grid or spec.get("model") in BASELINES)


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """A grid for each dataset, model and protocol: one study for each of these."""

    datasets: tuple[str, ...] = TU
    models: tuple[str, ...] = ("gin",)
    norms: tuple[str, ...] = FIVE
    protocols: tuple[str, ...] = ("paper",)
    grid: Grid = CURVES
    hidden: int = 64
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Trainings:
        """What a quick pass trains instead: of the grid only the configuration of the curves, for fewer epochs.

        It has no dataset where none of its own is small.
        """
        axes = {
            name: tuple(value for value in values if value in CURVES.axes.get(name, ()))
            for name, values in self.grid.axes.items()
        }
        axes["epochs"] = (QUICK.epochs,)
        axes["batch_size"] = axes["batch_size"] or QUICK.batch_sizes
        datasets = tuple(name for name in self.datasets if name in QUICK.datasets)
        return replace(self, datasets=datasets, grid=Grid(QUICK.grid, axes), folds=QUICK.folds)

    @property
    def takes_grid(self) -> bool:
        """Whether another grid can take the place of its own; those of ogbg-molhiv are fixed."""
        return find_protocol(self.protocols[0]).unit == "fold"

    def settings(self, dataset: str, model: str) -> dict[str, Any]:
        """What all trials of a study share: the readout of the dataset, and the self-loops of the authors' data."""
        return {"readout": find(dataset).readout, "self_loops": model == "gin", "hidden": self.hidden}


class Watching(NamedTuple):
    """One training whose norm layers are watched."""

    dataset: str
    batch_size: int = 128
    epochs: int = 100


@dataclass(frozen=True, kw_only=True)
class Beside:
    """Other methods, each with settings of its own: one study for each of them, dataset and protocol."""

    baselines: tuple[str, ...]
    datasets: tuple[str, ...] = TU
    protocols: tuple[str, ...] = ("paper",)
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Beside:
        """What a quick pass has of them."""
        return replace(self.kept(datasets=QUICK.baseline_datasets, baselines=QUICK.baselines), folds=QUICK.folds)

    def kept(self, **wanted: Sequence[str]) -> Beside:
        """Only what is named of ``baselines``, ``datasets`` and ``protocols``."""
        changes: dict[str, Any] = {name: _in_both(getattr(self, name), values) for name, values in wanted.items()}
        return replace(self, **changes)

    def __bool__(self) -> bool:
        return bool(self.baselines and self.datasets and self.protocols)


def _in_both(values: Sequence[str], wanted: Sequence[str]) -> tuple[str, ...]:
    return tuple(value for value in values if value in wanted)


@dataclass(frozen=True, kw_only=True)
class Watched:
    """Trainings of GIN with BatchNorm on all graphs, whose norm layers are watched: the paper's batch noise."""

    datasets: tuple[str, ...] = ("PROTEINS",)
    batch_sizes: tuple[int, ...] = (128,)
    layers: tuple[int, ...] = (0, 3)
    """The convolutions whose norm layers are looked at."""
    epochs: int = 100
    images: bool = False
    """Whether ResNet18 on CIFAR-10 is watched beside them."""

    @property
    def trainings(self) -> tuple[Watching, ...]:
        """Each of them, the images last."""
        graphs = [Watching(name, size, self.epochs) for name in self.datasets for size in self.batch_sizes]
        return (*graphs, *((Watching(IMAGES, epochs=self.epochs),) if self.images else ()))

    def quick(self) -> Watched:
        """What a quick pass watches: fewer datasets, no images."""
        datasets = tuple(name for name in self.datasets if name in QUICK.datasets)
        sizes = tuple(size for size in self.batch_sizes if size in QUICK.batch_sizes) or self.batch_sizes
        return replace(self, datasets=datasets, batch_sizes=sizes, epochs=QUICK.epochs, images=False)


@dataclass(frozen=True)
class Learning:
    """Trainings of GIN with GraphNorm on all graphs, whose α is read along the way."""

    datasets: tuple[str, ...]
    epochs: int = 400

    def quick(self) -> Learning:
        """What a quick pass reads."""
        return Learning(tuple(name for name in self.datasets if name in QUICK.datasets), QUICK.epochs)


class NothingLeftError(StudyError):
    """An item has nothing of what was chosen."""

    def __init__(self, item: str) -> None:
        super().__init__(f"nothing is left of {item}", remedy="leave out --datasets, --models or the like")


@dataclass(frozen=True, kw_only=True)
class Recipe:
    """One item of the paper."""

    item: str
    caption: str
    maker: str
    """The name of a function of :mod:`graphnorm.paper.makers`."""
    trained: tuple[Trainings, ...] = ()
    looked_at: tuple[str, ...] = ()
    """Datasets that are needed as they are."""
    watched: Watched | None = None
    beside: Beside | None = None
    learned: Learning | None = None
    narrow: Narrowing | None = None
    """How it differs from the whole item."""

    @property
    def title(self) -> str:
        """The caption, with what it is narrowed to."""
        return self.caption if self.narrow is None else f"{self.caption}. Narrowed to {describe(self.narrow)}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """All datasets of graphs of it, each once."""
        names = [name for part in self.trained for name in part.datasets]
        parts = [part.datasets for part in (self.watched, self.learned, self.beside) if part]
        return tuple(dict.fromkeys([*names, *self.looked_at, *(name for part in parts for name in part)]))

    @property
    def trains(self) -> bool:
        """Whether anything is trained for it."""
        return any((self.trained, self.watched, self.beside, self.learned))

    def quick(self) -> Recipe:
        """The item scaled down."""
        trained = tuple(part for given in self.trained if (part := given.quick()).datasets)
        looked_at = tuple(name for name in self.looked_at if name in QUICK.datasets)
        watched = None if self.watched is None else self.watched.quick()
        beside = None if self.beside is None else self.beside.quick()
        learned = None if self.learned is None else self.learned.quick()
        return replace(self, trained=trained, looked_at=looked_at, watched=watched, beside=beside, learned=learned)

    def narrowed(self, **choice: Any) -> Recipe:
        """A part of the item.

        choice: ``datasets``, ``models``, ``norms``, ``protocols`` and ``baselines`` name what is kept of each; ``grid``
        and ``seeds`` take the place of the recipe's own. What is None is left as it is, except that a choice of models
        or normalizations leaves out the baselines that it does not name.
        """
        given = {name: value for name, value in choice.items() if value is not None}
        if "datasets" in given:
            given["datasets"] = tuple(find(name).name for name in given["datasets"])
        trained = []
        for own in self.trained:
            changes: dict[str, Any] = {
                name: _in_both(getattr(own, name), wanted) for name, wanted in given.items() if name in NARROWED_BY
            }
            if "grid" in given and own.takes_grid:
                changes["grid"] = given["grid"]
            if "seeds" in given:
                changes["seeds"] = given["seeds"]
            left = replace(own, **changes)
            if all(getattr(left, name) for name in NARROWED_BY):
                trained.append(left)
        wanted = given.get("datasets", self.datasets)
        looked_at = tuple(name for name in self.looked_at if name in wanted)
        watched, learned = self.watched, self.learned
        if watched is not None:
            watched = replace(watched, datasets=tuple(name for name in watched.datasets if name in wanted))
        if learned is not None:
            learned = replace(learned, datasets=tuple(name for name in learned.datasets if name in wanted))
        beside = None if self.beside is None else _narrowed_beside(self.beside, given)
        part = replace(
            self, trained=tuple(trained), looked_at=looked_at, watched=watched, beside=beside, learned=learned
        )
        if self.datasets and not part.datasets:
            raise NothingLeftError(self.item)
        return replace(part, narrow=narrowing(self, part, given))


def _narrowed_beside(beside: Beside, given: dict[str, Any]) -> Beside:
    wanted = {name: given[name] for name in ("datasets", "protocols", "baselines") if name in given}
    if "models" in given or "norms" in given:
        wanted.setdefault("baselines", ())
    if unknown := [name for name in wanted.get("baselines", ()) if name not in (*BASELINES, "none")]:
        raise StudyError(
            f"there is no baseline {', '.join(map(repr, unknown))}; known: {', '.join(BASELINES)}",
            remedy="choose some, or none",
        )
    return replace(beside.kept(**wanted), seeds=given.get("seeds", beside.seeds))


NARROWED_BY = ("datasets", "models", "norms", "protocols")
