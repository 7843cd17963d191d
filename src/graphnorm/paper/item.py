"""What an item of the paper is: what it trains, how it is made, and how a part of it is chosen.

The items themselves are in :mod:`graphnorm.paper.items`. They share trials, since a trial is named by its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from itertools import product
from typing import TYPE_CHECKING, Any, TypeVar

from graphnorm.data.catalog import find
from graphnorm.errors import StudyError, unknown
from graphnorm.files import plain
from graphnorm.models import BASELINES, MODELS
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

__all__ = ["CURVES", "QUICK", "AlphaRuns", "Baselines", "Item", "NoiseRuns", "NothingLeftError", "Trainings", "covers"]
__all__ += ["describe_narrow", "is_quick"]

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


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """A grid of configurations for each dataset, model and protocol; each of these is a study."""

    datasets: tuple[str, ...] = TU
    models: tuple[str, ...] = ("gin",)
    norms: tuple[str, ...] = DEFAULT_NORMS
    protocols: tuple[str, ...] = ("paper",)
    grid: Grid = CURVES
    hidden: int = 64
    folds: int = 10
    seeds: int = 1
    as_authors: bool = False
    """Whether ξ, ε and the first weights are those of the authors' code."""

    def quick(self) -> Trainings:
        """Only small datasets, and of the grid only the configuration of the curves, for fewer epochs."""
        axes = {name: _in_both(values, CURVES.axes.get(name, ())) for name, values in self.grid.axes.items()}
        axes["epochs"] = (QUICK.epochs,)
        axes["batch_size"] = axes["batch_size"] or QUICK.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, grid=Grid(QUICK.grid, axes), folds=QUICK.folds)

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
        """Its studies, dataset by dataset."""
        for dataset, model, protocol in product(self.datasets, self.models, self.protocols):
            yield make_plan(graphs_of(dataset), self.settings(dataset, model, protocol), self.grid)

    def __bool__(self) -> bool:
        return bool(self.datasets and self.models and self.norms and self.protocols)


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Other methods with their own settings, for each dataset and protocol; each of these is a study."""

    baselines: tuple[str, ...] = ()
    datasets: tuple[str, ...] = TU
    protocols: tuple[str, ...] = ("paper",)
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Baselines:
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

    def __bool__(self) -> bool:
        return bool(self.baselines and self.datasets and self.protocols)


@dataclass(frozen=True, kw_only=True)
class NoiseRuns:
    """Trainings of GIN with BatchNorm on all graphs; the statistics of batches are compared with the dataset's."""

    datasets: tuple[str, ...] = ("PROTEINS",)
    batch_sizes: tuple[int, ...] = (128,)
    layers: tuple[int, ...] = (0, 3)
    """The convolutions whose norm layers are shown; all four are measured."""
    epochs: int = 400
    images: int = 0
    """Epochs of ResNet18 on CIFAR-10, which is shown for comparison; 0 leaves it out."""
    seeds: int = 3

    def quick(self) -> NoiseRuns:
        """Fewer datasets, one seed, no images."""
        sizes = _in_both(self.batch_sizes, QUICK.batch_sizes) or self.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, batch_sizes=sizes, epochs=QUICK.epochs, images=0, seeds=1)

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        """Each training is a study; the images come last."""
        for name, size, seed in product(self.datasets, self.batch_sizes, range(self.seeds)):
            yield noise_plan(graphs_of(name), size, self.epochs, seed)
        for seed in range(self.seeds if self.images else 0):
            yield image_plan(self.images, seed=seed)


@dataclass(frozen=True)
class AlphaRuns:
    """Trainings of GIN with GraphNorm on all graphs; α is read along the way."""

    datasets: tuple[str, ...]
    epochs: int = 400

    def quick(self) -> AlphaRuns:
        return AlphaRuns(_in_both(self.datasets, QUICK.datasets), QUICK.epochs)

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        for name in self.datasets:
            yield alpha_plan(graphs_of(name), self.epochs)


Part = TypeVar("Part", Trainings, Baselines, NoiseRuns, AlphaRuns)
LISTS = ("datasets", "models", "norms", "protocols", "baselines")
"""Of these a choice keeps a part of an item's own. ``more_norms`` are added to its own."""
REPLACED = ("grid", "seeds", "as_authors")
"""Of these a choice replaces an item's own."""


def _narrowed(part: Part, chosen: Mapping[str, Any]) -> Part:
    changes: dict[str, Any] = {
        name: chosen[name] for name in (*LISTS, *REPLACED) if name in chosen and hasattr(part, name)
    }
    changes |= {name: _in_both(getattr(part, name), changes[name]) for name in LISTS if name in changes}
    if isinstance(part, Trainings):
        changes["norms"] = (*changes.get("norms", part.norms), *chosen.get("more_norms", ()))
        changes["grid"] = changes.get("grid", part.grid) if part.takes_grid else part.grid
    return replace(part, **changes)


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
    trained: tuple[Trainings, ...] = ()
    baselines: Baselines = Baselines()
    noise: NoiseRuns | None = None
    alpha: AlphaRuns | None = None
    graphs: tuple[str, ...] = ()
    """Datasets whose graphs it shows or counts."""
    claims: tuple[Claim, ...] = ()
    narrow: Mapping[str, Any] | None = None
    """How it differs from the whole: the :data:`LISTS` that are shorter, another grid or seeds, more normalizations."""

    @property
    def title(self) -> str:
        """The caption, and how it differs from the whole."""
        return self.caption if self.narrow is None else f"{self.caption}. Here: {describe_narrow(self.narrow)}"

    def _parts(self) -> Iterator[Any]:
        yield from (part for part in (*self.trained, self.baselines, self.noise, self.alpha) if part)

    def _values(self, name: str) -> list[str]:
        """One of :data:`LISTS`, over all parts."""
        values = [value for part in self._parts() for value in getattr(part, name, ())]
        return list(dict.fromkeys([*values, *(self.graphs if name == "datasets" else ())]))

    @property
    def datasets(self) -> tuple[str, ...]:
        """All its datasets of graphs."""
        return tuple(self._values("datasets"))

    @property
    def protocols(self) -> tuple[str, ...]:
        return tuple(self._values("protocols"))

    @property
    def trains(self) -> bool:
        return any(self._parts())

    @property
    def planned(self) -> int:
        """How many trials its studies of normalizations and baselines have."""
        return sum(part.planned for part in self.trained) + self.baselines.planned

    def plans(self, graphs_of: GraphsOf) -> Iterator[Plan]:
        """The studies of all that it trains. Baselines follow the normalizations; trainings with a probe come last."""
        for part in self._parts():
            yield from part.plans(graphs_of)

    def quick(self) -> Item:
        """The item scaled down."""
        return self._changed(lambda part: part.quick(), QUICK.datasets)

    def _changed(self, change: Callable[[Any], Any], datasets: Sequence[str]) -> Item:
        """Change every part, and keep the graphs of these datasets."""
        return replace(
            self,
            trained=tuple(filter(None, map(change, self.trained))),
            baselines=change(self.baselines),
            noise=self.noise and change(self.noise),
            alpha=self.alpha and change(self.alpha),
            graphs=_in_both(self.graphs, datasets),
        )

    def narrowed(self, **choice: Any) -> Item:
        """A part of the item.

        choice: ``datasets``, ``models``, ``norms``, ``protocols`` and ``baselines`` name what is kept; ``grid`` and
        ``seeds`` replace the item's own; ``more_norms`` are trained besides. None changes nothing. A choice of models
        or normalizations leaves out the baselines that it does not name.
        """
        chosen = {name: value for name, value in choice.items() if value is not None}
        more_norms = chosen.get("more_norms", ())
        if "datasets" in chosen:
            chosen["datasets"] = tuple(find(name).name for name in chosen["datasets"])
        if "models" in chosen or "norms" in chosen:
            chosen.setdefault("baselines", ())
        for name in chosen.get("baselines", ()):
            if name not in (*BASELINES, "none"):
                raise unknown("baseline", name, (*BASELINES, "none"), StudyError)
        part = self._changed(lambda one: _narrowed(one, chosen), chosen.get("datasets", self.graphs))
        if self.datasets and not part.datasets:
            raise NothingLeftError(self.name)
        kept = {name: [value for value in part._values(name) if value not in more_norms] for name in LISTS}
        narrow: dict[str, Any] = {
            name: values
            for name, values in kept.items()
            if name in (*chosen, "baselines") and values != self._values(name)
        }
        pairs = [(one, new) for one in self._parts() if (new := _narrowed(one, chosen))]
        for name in REPLACED:
            if any(getattr(one, name, None) != getattr(new, name, None) for one, new in pairs):
                narrow[name] = plain(chosen[name])
        if part.trained and more_norms:
            narrow["more_norms"] = list(more_norms)
        return replace(part, narrow=narrow or None)


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
