"""What an item of the paper is: what it trains, how it is made, and how a part of it is chosen.

The items themselves are in :mod:`graphnorm.paper.items`. They share trials, since a trial is named by its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from itertools import product
from typing import TYPE_CHECKING, Any, Self

from graphnorm.data.catalog import find
from graphnorm.errors import StudyError, unknown
from graphnorm.files import plain
from graphnorm.models import BASELINES, MODELS
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.noise_and_alpha import alpha_plan, image_plan, noise_plan
from graphnorm.settings import DEFAULT_NORMS, GRIDS, Grid, Settings
from graphnorm.study.paper_numbers import TU
from graphnorm.study.plan_from_settings import Dataset, baseline_plan, make_plan
from graphnorm.study.protocol import find_protocol

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.paper.claims import Claim
    from graphnorm.paper.output import Output
    from graphnorm.paper.reproduce import Work
    from graphnorm.study.plan import Plan

__all__ = ["CURVES", "QUICK", "AlphaRuns", "Baselines", "ImageRuns", "Item", "NoiseRuns", "NothingLeftError", "Part"]
__all__ += ["Trainings", "covers", "describe_narrow", "is_quick"]

GraphsOf = Callable[[str], "PackedGraphs | Dataset"]
"""Gives a dataset by its name."""
CURVES = GRIDS["curves"]


@dataclass(frozen=True)
class Quick:
    """How far a quick pass scales an item down: to minutes on two cores."""

    datasets: tuple[str, ...] = ("MUTAG", "PROTEINS", "IMDB-BINARY")
    grid: str = "quick"
    """The name of every grid."""
    epochs: int = 10
    batch_sizes: tuple[int, ...] = (16, 64)
    """Where an item compares several."""
    folds: int = 3
    baselines: tuple[str, ...] = ("wl",)
    baseline_datasets: tuple[str, ...] = ("MUTAG",)


QUICK = Quick()


def is_quick(spec: Mapping[str, Any]) -> bool:
    """Whether a study belongs to a quick pass, by its spec.

    >>> is_quick({"model": "gin", "grid": {"name": "quick"}, "folds": 3})
    True
    """
    quick_grid = spec.get("grid", {}).get("name") == QUICK.grid
    return spec.get("folds") == QUICK.folds and (quick_grid or spec.get("model") in BASELINES)


def _in_both(values: Sequence[Any], wanted: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if value in wanted)


# What an item trains

LISTS = ("datasets", "models", "norms", "protocols", "baselines")
"""Of these a choice keeps a part of an item's own. ``more_norms`` are added to its own."""
REPLACED = ("grid", "seeds", "as_authors")
"""Of these a choice replaces an item's own."""


@dataclass(frozen=True)
class Part:
    """Base of what an item can train. A part with an empty list trains nothing, and is false."""

    datasets: tuple[str, ...] = TU

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        """Its studies, dataset by dataset."""
        raise NotImplementedError

    def quick(self) -> Self:
        """It scaled down."""
        raise NotImplementedError

    def narrowed(self, chosen: Mapping[str, Any]) -> Self:
        """What a choice leaves of it; see :meth:`Item.narrowed`."""
        own = [name for name in chosen if hasattr(self, name)]
        changes = {name: _in_both(getattr(self, name), chosen[name]) for name in own if name in LISTS}
        return replace(self, **changes, **{name: chosen[name] for name in own if name in REPLACED})

    def __bool__(self) -> bool:
        return all(getattr(self, name, True) for name in LISTS)


@dataclass(frozen=True, kw_only=True)
class Trainings(Part):
    """A grid of configurations for each dataset, model and protocol; each of these is a study."""

    models: tuple[str, ...] = ("gin",)
    norms: tuple[str, ...] = DEFAULT_NORMS
    protocols: tuple[str, ...] = ("paper",)
    grid: Grid = CURVES
    hidden: int = 64
    folds: int = 10
    seeds: int = 1
    as_authors: bool = False
    """Whether ξ, ε and the first weights are those of the authors' code."""

    def quick(self) -> Self:
        """Only small datasets, and of the grid only the configuration of the curves, for fewer epochs."""
        axes = {name: _in_both(values, CURVES.axes.get(name, ())) for name, values in self.grid.axes.items()}
        axes["epochs"] = (QUICK.epochs,)
        axes["batch_size"] = axes["batch_size"] or QUICK.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, grid=Grid(QUICK.grid, axes), folds=QUICK.folds)

    def narrowed(self, chosen: Mapping[str, Any]) -> Self:
        part = super().narrowed(chosen)
        grid = part.grid if self.takes_grid else self.grid
        return replace(part, norms=(*part.norms, *chosen.get("more_norms", ())), grid=grid)

    @property
    def takes_grid(self) -> bool:
        """Whether another grid can replace its own; that of ogbg-molhiv is fixed."""
        return find_protocol(self.protocols[0]).unit == "fold"

    def members(self, protocol: str) -> int:
        """Trainings of each configuration."""
        return self.seeds if find_protocol(protocol).unit == "seed" else self.folds * self.seeds

    @property
    def planned(self) -> int:
        """How many trials it has."""
        members = sum(map(self.members, self.protocols))
        return len(self.datasets) * len(self.models) * len(self.norms) * len(self.grid) * members

    def settings(self, dataset: str, model: str, protocol: str = "paper") -> Settings:
        """The settings of one study: the paper's readout for the dataset, and the self-loops of the authors' data."""
        return Settings(
            model=model,
            norms=self.norms,
            protocol=protocol,
            folds=self.folds,
            seeds=self.seeds,
            readout=find(dataset).readout,
            self_loops=model == "gin",
            as_authors=self.as_authors,
            hidden=self.hidden,
        )

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        for dataset, model, protocol in product(self.datasets, self.models, self.protocols):
            yield make_plan(graphs_of(dataset), self.settings(dataset, model, protocol), self.grid)


@dataclass(frozen=True, kw_only=True)
class Baselines(Part):
    """Other methods with their own settings, for each dataset and protocol; each of these is a study."""

    baselines: tuple[str, ...]
    protocols: tuple[str, ...] = ("paper",)
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Self:
        return replace(
            self,
            datasets=_in_both(self.datasets, QUICK.baseline_datasets),
            baselines=_in_both(self.baselines, QUICK.baselines),
            folds=QUICK.folds,
        )

    @property
    def planned(self) -> int:
        """How many trials it has; a kernel has one seed, since nothing in it is random."""
        seeds = sum(1 if MODELS[name].kernel else self.seeds for name in self.baselines)
        folds = sum(1 if find_protocol(name).unit == "seed" else self.folds for name in self.protocols)
        return len(self.datasets) * seeds * folds

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        for dataset, name, protocol in product(self.datasets, self.baselines, self.protocols):
            yield baseline_plan(graphs_of(dataset), name, protocol=protocol, folds=self.folds, seeds=self.seeds)


@dataclass(frozen=True, kw_only=True)
class NoiseRuns(Part):
    """Trainings of GIN with BatchNorm on all graphs; the statistics of batches are compared with the dataset's."""

    datasets: tuple[str, ...] = ("PROTEINS",)
    models: tuple[str, ...] = ("gin",)
    batch_sizes: tuple[int, ...] = (128,)
    layers: tuple[int, ...] = (0, 3)
    """The convolutions whose norm layers are shown; all four are measured."""
    epochs: int = 400
    seeds: int = 3

    def quick(self) -> Self:
        """Fewer datasets, one seed."""
        sizes = _in_both(self.batch_sizes, QUICK.batch_sizes) or self.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, batch_sizes=sizes, epochs=QUICK.epochs, seeds=1)

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        """Each training is a study."""
        for name, size, seed in product(self.datasets, self.batch_sizes, range(self.seeds)):
            yield noise_plan(graphs_of(name), size, self.epochs, seed)


@dataclass(frozen=True, kw_only=True)
class ImageRuns(NoiseRuns):
    """Trainings of ResNet18 on CIFAR-10, with which those on graphs are compared. A quick pass has none."""

    datasets: tuple[str, ...] = (IMAGES,)
    models: tuple[str, ...] = ("resnet18",)
    epochs: int = 100

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        for seed in range(self.seeds):
            yield image_plan(self.epochs, seed=seed)


@dataclass(frozen=True)
class AlphaRuns(Part):
    """Trainings of GIN with GraphNorm on all graphs; α is read along the way."""

    epochs: int = 400
    models: tuple[str, ...] = ("gin",)

    def quick(self) -> Self:
        return replace(self, datasets=_in_both(self.datasets, QUICK.datasets), epochs=QUICK.epochs)

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        for name in self.datasets:
            yield alpha_plan(graphs_of(name), self.epochs)


# Items


class NothingLeftError(StudyError):
    """A choice leaves nothing of an item."""

    def __init__(self, item: str) -> None:
        super().__init__(f"nothing is left of {item}", remedy="leave out --datasets, --models or the like")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table or figure of the paper."""

    name: str
    caption: str
    make: Callable[[Work], Output]
    """Makes it from what was trained."""
    parts: tuple[Part, ...] = ()
    """What it trains. Baselines follow the normalizations; trainings with a probe come last."""
    graphs: tuple[str, ...] = ()
    """Datasets whose graphs it shows or counts."""
    claims: tuple[Claim, ...] = ()
    narrow: Mapping[str, Any] | None = None
    """How it differs from the whole: the :data:`LISTS` that are shorter, another grid or seeds, more normalizations."""
    whole: Item | None = field(default=None, repr=False)
    """The item that it was narrowed from."""

    @property
    def title(self) -> str:
        """The caption, and how it differs from the whole."""
        return self.caption if self.narrow is None else f"{self.caption}. Here: {describe_narrow(self.narrow)}"

    def _values(self, name: str) -> list[str]:
        """One of :data:`LISTS`, over all parts."""
        values = [value for part in self.parts for value in getattr(part, name, ())]
        return list(dict.fromkeys([*values, *(self.graphs if name == "datasets" else ())]))

    @property
    def datasets(self) -> tuple[str, ...]:
        """All its datasets."""
        return tuple(self._values("datasets"))

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(self._values("protocols"))

    @property
    def trained(self) -> tuple[Trainings, ...]:
        """The parts that train normalizations over a grid."""
        return tuple(part for part in self.parts if isinstance(part, Trainings))

    @property
    def planned(self) -> int:
        """How many trials its studies of normalizations and baselines have."""
        return sum(part.planned for part in self.parts if isinstance(part, Trainings | Baselines))

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        """The studies of all that it trains."""
        for part in self.parts:
            yield from part.plans(graphs_of)

    def quick(self) -> Item:
        """The item scaled down."""
        parts = tuple(filter(None, (part.quick() for part in self.parts)))
        return replace(self, parts=parts, graphs=_in_both(self.graphs, QUICK.datasets))

    def narrowed(self, **choice: Any) -> Item:
        """What a choice leaves of the item.

        choice: ``datasets``, ``models``, ``norms``, ``protocols`` and ``baselines`` name what is kept; ``grid`` and
        ``seeds`` replace the item's own; ``more_norms`` are trained besides. None changes nothing. A choice of models
        or normalizations leaves out the baselines that it does not name.
        """
        chosen = {name: value for name, value in choice.items() if value is not None}
        if "datasets" in chosen:
            chosen["datasets"] = tuple(find(name).name for name in chosen["datasets"])
        if "models" in chosen or "norms" in chosen:
            chosen.setdefault("baselines", ())
        for name in chosen.get("baselines", ()):
            if name not in (*BASELINES, "none"):
                raise unknown("baseline", name, (*BASELINES, "none"), StudyError)
        kept = [(part, left) for part in self.parts if (left := part.narrowed(chosen))]
        graphs = _in_both(self.graphs, chosen.get("datasets", self.graphs))
        item = replace(self, parts=tuple(left for _, left in kept), graphs=graphs)
        if self.datasets and not item.datasets:
            raise NothingLeftError(self.name)
        narrow: dict[str, Any] = {}
        more_norms = chosen.get("more_norms", ())
        for name in LISTS:
            values = [value for value in item._values(name) if value not in more_norms]
            if name in (*chosen, "baselines") and values != self._values(name):
                narrow[name] = values
        for name in REPLACED:
            if any(getattr(part, name, None) != getattr(left, name, None) for part, left in kept):
                narrow[name] = plain(chosen[name])
        if item.trained and more_norms:
            narrow["more_norms"] = list(more_norms)
        return replace(item, narrow=narrow or None, whole=self.whole or self)


def describe_narrow(narrow: Mapping[str, Any]) -> str:
    """A choice, for people.

    >>> describe_narrow({"datasets": ["MUTAG", "PTC"], "baselines": [], "grid": {"name": "twelve"}, "seeds": 3})
    'datasets MUTAG, PTC; baselines none; grid twelve; seeds 3'
    """
    texts = {name: ", ".join(value) or "none" if name in LISTS else value for name, value in narrow.items()}
    if "grid" in narrow:
        texts["grid"] = narrow["grid"]["name"]
    if "more_norms" in narrow:
        texts["with"] = f"{', '.join(texts.pop('more_norms'))} added"
    if texts.pop("as_authors", False):
        texts["as"] = "in the authors' code"
    return "; ".join(f"{name} {text}" for name, text in texts.items())


def covers(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None) -> bool:
    """Whether an item narrowed by ``new`` has everything that it has narrowed by ``old``; None is the whole item.

    >>> covers(None, {"datasets": ["PTC"]}), covers({"datasets": ["PTC"]}, None)
    (True, False)
    >>> covers({"datasets": ["MUTAG", "PTC"]}, {"datasets": ["PTC"], "seeds": 3})
    True
    >>> covers({"more_norms": ["mine"]}, None), covers(None, {"more_norms": ["mine"]})
    (True, False)
    """
    asked, held = dict(new or {}), dict(old or {})
    if not set(held.pop("more_norms", ())) <= set(asked.pop("more_norms", ())):
        return False
    return all(
        name in held and (set(held[name]) <= set(value) if name in LISTS else held[name] == value)
        for name, value in asked.items()
    )
