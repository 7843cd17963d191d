"""What items are made of: studies as planned and as measured, and what else a maker may ask for."""

from __future__ import annotations

import datetime
import platform
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import torch

from graphnorm._version import exact_version
from graphnorm.data import PackedGraphs
from graphnorm.errors import StudyError
from graphnorm.paper.products import Product
from graphnorm.paper.recipe import Recipe, Watching
from graphnorm.paper.watching import Learned, Seen
from graphnorm.study.baselines import BASELINES
from graphnorm.study.plan import Plan
from graphnorm.study.results import NormResult
from graphnorm.study.store import Record, Store, Study

if TYPE_CHECKING:
    from graphnorm.paper.laboratory import Laboratory

__all__ = ["LeftOutError", "Material", "Measured", "NoGraphsError", "NothingThereError", "Planned", "in_words"]


class LeftOutError(StudyError):
    """An item that cannot be made where nothing may be trained or fetched."""


class NoGraphsError(LeftOutError):
    """An item needs graphs that are not on this machine."""

    def __init__(self, item: str, names: Sequence[str]) -> None:
        super().__init__(
            f"{item} is made of the graphs themselves, and these are not on this machine: {', '.join(names)}",
            remedy="name their folder with --data-root or GRAPHNORM_DATA, or allow downloads: leave out --no-train",
        )


class NothingThereError(LeftOutError):
    """There is nothing of an item, and nothing may be trained for it."""

    def __init__(self, item: str, where: Path) -> None:
        super().__init__(f"there is nothing of {item} in it", where=where, remedy="leave out --no-train")


@dataclass(frozen=True)
class Planned:
    """A study that a recipe needs."""

    dataset: str
    model: str
    protocol: str
    plan: Plan


@dataclass(frozen=True)
class Measured:
    """A study as far as it is trained."""

    dataset: str
    model: str
    protocol: str
    study: Study
    results: tuple[NormResult, ...]
    store: Path

    @property
    def is_baseline(self) -> bool:
        """Whether it is of a method beside the normalized models."""
        return self.model in BASELINES

    def records(self, curves: Sequence[str] = ("train", "valid")) -> list[Record]:
        """Its trials that are there, with these curves."""
        with Store(self.store, writable=False) as store:
            return store.records(self.study, curves=curves)


@dataclass(frozen=True)
class Material:
    """What a maker works with."""

    recipe: Recipe
    quick: bool
    studies: tuple[Measured, ...]
    laboratory: Laboratory
    train: bool = True
    """Whether what is missing may be trained."""
    absent: tuple[str, ...] = ()
    """Studies of which there is no trial, in words."""

    def graphs(self, name: str) -> PackedGraphs:
        """A dataset of the recipe."""
        return self.laboratory.graphs(name)

    def watch(self, training: Watching) -> Seen | None:
        """What was seen of a training, now or before; None if it is not there and may not be trained."""
        return self.laboratory.watch(training, train=self.train)

    def learned(self, dataset: str, epochs: int) -> Learned | None:
        """The α of a training, now or before; None if it is not there and may not be trained."""
        return self.laboratory.learned(dataset, epochs, train=self.train)

    def product(self, *, apart: Sequence[Mapping[str, Any]] = (), **parts: Any) -> Product:
        """A product of this recipe, with what was measured where and when added to its facts.

        apart: the facts of trainings that are not in the store.
        """
        narrow = None if self.recipe.narrow is None else dict(self.recipe.narrow)
        facts = {"narrowed": narrow} | parts.pop("facts", {}) | self._provenance(apart)
        return Product(self.recipe.item, self.recipe.title, self.quick, facts=facts, **parts)

    def _provenance(self, apart: Sequence[Mapping[str, Any]]) -> dict[str, Any]:
        records = [record for measured in self.studies for record in measured.records(curves=())]
        codes = [f"graphnorm {one['graphnorm']}, torch {one['torch']}" for one in apart]
        return {
            "made": datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds"),
            "graphnorm": exact_version(),
            "torch": torch.__version__,
            "python": platform.python_version(),
            "trained_with": sorted({record.code for record in records} | set(codes)),
            "trained_on": sorted(
                {record.device for record in records if record.device} | {one["device"] for one in apart}
            ),
            "training_seconds": round(
                sum(record.seconds for record in records) + sum(one["seconds"] for one in apart), 1
            ),
            "studies": [
                {
                    "name": measured.study.name,
                    "trials": measured.study.trials,
                    "finished": measured.study.finished,
                    "spec": dict(measured.study.spec),
                }
                for measured in self.studies
            ],
        }


def in_words(absent: Sequence[Planned]) -> tuple[str, ...]:
    """Studies, those of one protocol and the same datasets together."""
    datasets: dict[tuple[str, str], list[str]] = {}
    for planned in absent:
        datasets.setdefault((planned.protocol, planned.model), []).append(planned.dataset)
    models: dict[tuple[str, ...], list[str]] = {}
    for (protocol, model), names in datasets.items():
        models.setdefault((protocol, *names), []).append(model)
    return tuple(f"{', '.join(of)} under {protocol} on {', '.join(on)}" for (protocol, *on), of in models.items())
