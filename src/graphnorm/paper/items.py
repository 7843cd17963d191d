"""The items of the paper: for each table and figure what it trains, how it is made, and what is claimed of it.

To look something up, begin here: an item names the functions that make it and judge its claims. What several items
train alike is trained once, since trials are named by their content.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from graphnorm.data.catalog import find
from graphnorm.errors import StudyError
from graphnorm.models import BASELINES, MODELS
from graphnorm.paper import claims, figures, tables
from graphnorm.paper.claims import Claim
from graphnorm.settings import DEFAULT_NORMS, GRIDS, Grid, Settings
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reported import MOLHIV, TU

if TYPE_CHECKING:
    from graphnorm.paper.output import Output
    from graphnorm.paper.reproduce import Work

__all__ = [
    "ITEMS",
    "QUICK",
    "AlphaRuns",
    "Baselines",
    "Item",
    "NoiseRuns",
    "NothingLeftError",
    "Trainings",
    "covers",
    "describe_narrow",
    "find_items",
    "is_quick",
]

CURVES = GRIDS["curves"]
NARROWED_BY = ("datasets", "models", "norms", "protocols")


@dataclass(frozen=True)
class Quick:
    """What is left of an item in a quick pass: minutes on two cores."""

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
    """Whether a study, by its spec, is of a quick pass: of its grid, or a baseline, on so few folds.

    >>> is_quick({"model": "gin", "grid": {"name": "quick"}, "folds": 3})
    True
    """
    quick_grid = spec.get("grid", {}).get("name") == QUICK.grid
    return spec.get("folds") == QUICK.folds and (quick_grid or spec.get("model") in BASELINES)


def _in_both(values: Sequence[Any], wanted: Sequence[Any]) -> tuple[Any, ...]:
    return tuple(value for value in values if value in wanted)


@dataclass(frozen=True, kw_only=True)
class Trainings:
    """A grid for each dataset, model and protocol: one study for each of these."""

    datasets: tuple[str, ...] = TU
    models: tuple[str, ...] = ("gin",)
    norms: tuple[str, ...] = DEFAULT_NORMS
    protocols: tuple[str, ...] = ("paper",)
    grid: Grid = CURVES
    hidden: int = 64
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Trainings:
        """What a quick pass trains instead: of the grid only the configuration of the curves, for fewer epochs.

        It has no dataset where none of its own is small.
        """
        axes = {name: _in_both(values, CURVES.axes.get(name, ())) for name, values in self.grid.axes.items()}
        axes["epochs"] = (QUICK.epochs,)
        axes["batch_size"] = axes["batch_size"] or QUICK.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, grid=Grid(QUICK.grid, axes), folds=QUICK.folds)

    @property
    def takes_grid(self) -> bool:
        """Whether another grid can take the place of its own; those of ogbg-molhiv are fixed."""
        return find_protocol(self.protocols[0]).unit == "fold"

    def members(self, protocol: str) -> int:
        """Trainings of each configuration."""
        return self.seeds if find_protocol(protocol).unit == "seed" else self.folds * self.seeds

    @property
    def planned(self) -> int:
        """How many trials its studies have."""
        members = sum(map(self.members, self.protocols))
        return len(self.datasets) * len(self.models) * len(self.norms) * len(self.grid) * members

    def settings(self, dataset: str, model: str, protocol: str = "paper") -> Settings:
        """What a study is trained with: the readout of the dataset, and the self-loops of the authors' data."""
        return Settings(
            model=model,
            norms=self.norms,
            protocol=protocol,
            folds=self.folds,
            seeds=self.seeds,
            readout=find(dataset).readout,
            self_loops=model == "gin",
            hidden=self.hidden,
        )


@dataclass(frozen=True, kw_only=True)
class Baselines:
    """Other methods, each with settings of its own: one study for each of them, dataset and protocol."""

    baselines: tuple[str, ...] = ()
    datasets: tuple[str, ...] = TU
    protocols: tuple[str, ...] = ("paper",)
    folds: int = 10
    seeds: int = 1

    def quick(self) -> Baselines:
        """What a quick pass has of them."""
        return replace(
            self,
            datasets=_in_both(self.datasets, QUICK.baseline_datasets),
            baselines=_in_both(self.baselines, QUICK.baselines),
            folds=QUICK.folds,
        )

    def narrowed(self, choice: Mapping[str, Any]) -> Baselines:
        """A part of them; a choice of models or normalizations leaves out the baselines that it does not name."""
        wanted = {name: choice[name] for name in ("datasets", "protocols", "baselines") if name in choice}
        if "models" in choice or "norms" in choice:
            wanted.setdefault("baselines", ())
        if unknown := [name for name in wanted.get("baselines", ()) if name not in (*BASELINES, "none")]:
            raise StudyError(
                f"there is no baseline {', '.join(map(repr, unknown))}; known: {', '.join(BASELINES)}",
                remedy="choose some, or none",
            )
        changes: dict[str, Any] = {name: _in_both(getattr(self, name), values) for name, values in wanted.items()}
        return replace(self, **changes, seeds=choice.get("seeds", self.seeds))

    @property
    def planned(self) -> int:
        """How many trials their studies have; a kernel has one seed, since nothing of it is random."""
        seeds = sum(1 if MODELS[name].kernel else self.seeds for name in self.baselines)
        folds = sum(1 if find_protocol(name).unit == "seed" else self.folds for name in self.protocols)
        return len(self.datasets) * seeds * folds

    def __bool__(self) -> bool:
        return bool(self.baselines and self.datasets and self.protocols)


@dataclass(frozen=True, kw_only=True)
class NoiseRuns:
    """Trainings of GIN with BatchNorm on all graphs, whose batches' statistics are compared with the dataset's."""

    datasets: tuple[str, ...] = ("PROTEINS",)
    batch_sizes: tuple[int, ...] = (128,)
    layers: tuple[int, ...] = (0, 3)
    """The convolutions whose norm layers are shown, of the four that are looked at."""
    epochs: int = 100
    images: bool = False
    """Whether ResNet18 on CIFAR-10 stands beside them."""

    def quick(self) -> NoiseRuns:
        """What a quick pass has: fewer datasets, no images."""
        sizes = _in_both(self.batch_sizes, QUICK.batch_sizes) or self.batch_sizes
        datasets = _in_both(self.datasets, QUICK.datasets)
        return replace(self, datasets=datasets, batch_sizes=sizes, epochs=QUICK.epochs, images=False)


@dataclass(frozen=True)
class AlphaRuns:
    """Trainings of GIN with GraphNorm on all graphs, whose α is read along the way."""

    datasets: tuple[str, ...]
    epochs: int = 400

    def quick(self) -> AlphaRuns:
        """What a quick pass reads."""
        return AlphaRuns(_in_both(self.datasets, QUICK.datasets), QUICK.epochs)


class NothingLeftError(StudyError):
    """An item has nothing of what was chosen."""

    def __init__(self, item: str) -> None:
        super().__init__(f"nothing is left of {item}", remedy="leave out --datasets, --models or the like")


@dataclass(frozen=True, kw_only=True)
class Item:
    """One table or figure of the paper."""

    name: str
    caption: str
    make: Callable[[Work], Output]
    """Makes it of what was trained."""
    trained: tuple[Trainings, ...] = ()
    baselines: Baselines = Baselines()
    noise: NoiseRuns | None = None
    alpha: AlphaRuns | None = None
    graphs: tuple[str, ...] = ()
    """Datasets that are looked at as they are."""
    claims: tuple[Claim, ...] = ()
    narrow: Mapping[str, Any] | None = None
    """How it differs from the whole item: what is left (``datasets``, ``models``, ``norms``, ``protocols``,
    ``baselines``: lists) or took its place (``grid``, ``seeds``)."""

    @property
    def title(self) -> str:
        """The caption, with what it is narrowed to."""
        return self.caption if self.narrow is None else f"{self.caption}. Narrowed to {describe_narrow(self.narrow)}"

    @property
    def datasets(self) -> tuple[str, ...]:
        """All datasets of graphs of it, each once."""
        parts = (*self.trained, self.noise, self.alpha, *((self.baselines,) if self.baselines else ()))
        names = [name for part in parts if part for name in part.datasets]
        return tuple(dict.fromkeys([*names, *self.graphs]))

    @property
    def trains(self) -> bool:
        """Whether anything is trained for it."""
        return any((self.trained, self.noise, self.alpha, self.baselines))

    @property
    def planned(self) -> int:
        """How many trials its studies of normalizations and baselines have."""
        return sum(part.planned for part in self.trained) + self.baselines.planned

    def quick(self) -> Item:
        """The item scaled down."""
        return replace(
            self,
            trained=tuple(part for given in self.trained if (part := given.quick()).datasets),
            graphs=_in_both(self.graphs, QUICK.datasets),
            noise=self.noise and self.noise.quick(),
            baselines=self.baselines.quick(),
            alpha=self.alpha and self.alpha.quick(),
        )

    def narrowed(self, **choice: Any) -> Item:
        """A part of the item.

        choice: ``datasets``, ``models``, ``norms``, ``protocols`` and ``baselines`` name what is kept of each; ``grid``
        and ``seeds`` take the place of the item's own. What is None is left as it is, except that a choice of models or
        normalizations leaves out the baselines that it does not name.
        """
        given = {name: value for name, value in choice.items() if value is not None}
        if "datasets" in given:
            given["datasets"] = tuple(find(name).name for name in given["datasets"])
        trained = []
        for own in self.trained:
            changes: dict[str, Any] = {
                name: _in_both(getattr(own, name), given[name]) for name in NARROWED_BY if name in given
            }
            changes |= {"grid": given["grid"]} if "grid" in given and own.takes_grid else {}
            changes |= {"seeds": given["seeds"]} if "seeds" in given else {}
            left = replace(own, **changes)
            if all(getattr(left, name) for name in NARROWED_BY):
                trained.append(left)
        wanted = given.get("datasets", self.datasets)
        part = replace(
            self,
            trained=tuple(trained),
            graphs=_in_both(self.graphs, wanted),
            noise=self.noise and replace(self.noise, datasets=_in_both(self.noise.datasets, wanted)),
            alpha=self.alpha and replace(self.alpha, datasets=_in_both(self.alpha.datasets, wanted)),
            baselines=self.baselines.narrowed(given),
        )
        if self.datasets and not part.datasets:
            raise NothingLeftError(self.name)
        return replace(part, narrow=_narrowing(self, part, given))


# Parts of an item


def _narrowing(whole: Item, part: Item, choice: Mapping[str, Any]) -> dict[str, Any] | None:
    """How a part of an item differs from the whole by what was chosen of it; None if it does not."""
    before, after = _content(whole), _content(part)
    found: dict[str, Any] = {
        name: values for name, values in after.items() if name in (*choice, "baselines") and values != before[name]
    }
    grid: Grid | None = choice.get("grid")
    own_grids = [one.grid for one in whole.trained]
    if grid is not None and any(one.grid == grid and one.grid not in own_grids for one in part.trained):
        found["grid"] = grid.to_dict()
    seeds = choice.get("seeds")
    own_seeds = {one.seeds for one in whole.trained} | ({whole.baselines.seeds} if whole.baselines else set())
    if seeds is not None and own_seeds - {seeds}:
        found["seeds"] = seeds
    return found or None


def _content(item: Item) -> dict[str, list[str]]:
    beside = [item.baselines] if item.baselines else []
    parts: dict[str, Sequence[Any]] = {
        "models": item.trained,
        "norms": item.trained,
        "protocols": [*item.trained, *beside],
        "baselines": beside,
    }
    content = {"datasets": list(item.datasets)}
    for name, of in parts.items():
        content[name] = list(dict.fromkeys(value for part in of for value in getattr(part, name)))
    return content


def describe_narrow(narrow: Mapping[str, Any]) -> str:
    """In words.

    >>> describe_narrow({"datasets": ["MUTAG", "PTC"], "baselines": [], "grid": {"name": "twelve"}, "seeds": 3})
    'datasets MUTAG, PTC; baselines none; grid twelve; seeds 3'
    """
    words = []
    for name, value in narrow.items():
        text = value["name"] if name == "grid" else ", ".join(value) if isinstance(value, list) else value
        words.append(f"{name} {text if text != '' else 'none'}")
    return "; ".join(words)


def covers(new: Mapping[str, Any] | None, old: Mapping[str, Any] | None) -> bool:
    """Whether what is made under ``new`` has all of what was made under ``old``; None is the whole item.

    >>> covers(None, {"datasets": ["PTC"]}), covers({"datasets": ["PTC"]}, None)
    (True, False)
    >>> covers({"datasets": ["MUTAG", "PTC"]}, {"datasets": ["PTC"], "seeds": 3})
    True
    """
    held = old or {}
    return all(
        name in held and (set(held[name]) <= set(value) if isinstance(value, list) else held[name] == value)
        for name, value in (new or {}).items()
    )


# The items

_TABLE_2 = {
    model: Trainings(
        datasets=(MOLHIV,),
        models=(model,),
        protocols=("ogb",),
        grid=Grid("molhiv", {name: (MODELS[model].defaults[name],) for name in CURVES.axes}),
        hidden=MODELS[model].defaults["hidden"],
        seeds=MODELS[model].defaults["seeds"],
    )
    for model in ("molhiv-gin", "molhiv-gcn")
}
"""The setting of the authors' scripts for ogbg-molhiv, which Table 2 and the curves share."""

_CHOSEN = "As in the paper, the folds that choose configuration and epoch are those that are reported."
_NO_ALPHA = "The authors' code for this dataset has no α: what it calls GraphNorm is `instance` here."

_ITEMS = (
    Item(
        name="table1",
        caption="Table 1: accuracy (%) on graph classification",
        make=tables.scores,
        trained=(Trainings(models=("gin", "gcn"), protocols=("paper", "fair"), grid=GRIDS["paper"]),),
        baselines=Baselines(baselines=("wl", "awl", "dcnn", "dgcnn", "mlp"), protocols=("paper", "fair")),
        claims=(
            Claim(
                "Section 5, Table 1: GraphNorm “improves the generalization on most benchmarks”: the highest accuracy "
                "of GIN.",
                claims.scores_best("gin", "paper"),
                of_most=True,
                remark=_CHOSEN,
            ),
            Claim(
                "Not in the paper: the same of GCN, of which Table 1 has no numbers.",
                claims.scores_best("gcn", "paper"),
                of_most=True,
                remark=_CHOSEN,
            ),
            Claim("Table 1: the numbers, within one reported standard deviation.", claims.within_reported),
        ),
    ),
    Item(
        name="table2",
        caption="Table 2: test ROC-AUC (%) on ogbg-molhiv",
        make=tables.scores,
        trained=tuple(_TABLE_2.values()),
        baselines=Baselines(
            baselines=("ogb-gcn", "ogb-gcn-virtual", "ogb-gin", "ogb-gin-virtual"),
            datasets=(MOLHIV,),
            protocols=("ogb",),
            seeds=10,
        ),
        claims=(
            Claim(
                "Section 5, Table 2: GraphNorm has the highest test ROC-AUC of GIN on ogbg-molhiv.",
                claims.scores_best("molhiv-gin", "ogb"),
                remark=_NO_ALPHA,
            ),
            Claim("Section 5, Table 2: the same of GCN.", claims.scores_best("molhiv-gcn", "ogb"), remark=_NO_ALPHA),
            Claim("Table 2: the numbers, within one reported standard deviation.", claims.within_reported),
        ),
    ),
    Item(
        name="table3",
        caption="Dataset table: statistics of the datasets",
        make=tables.dataset_statistics,
        graphs=(*TU, MOLHIV),
        claims=(Claim("Appendix B: the dataset table.", claims.dataset_statistics),),
    ),
    Item(
        name="fig2",
        caption="Figure 2: training curves of GIN",
        make=figures.curves,
        trained=(Trainings(), _TABLE_2["molhiv-gin"]),
        claims=(
            Claim(
                "Section 5, Figure 2: GIN with GraphNorm has “the fastest convergence on all tasks”.",
                claims.trains("graph", "ahead", DEFAULT_NORMS),
            ),
            Claim(
                "Section 5: GraphNorm converges in “roughly 5000/500 iterations on NCI1 and PTC”, BatchNorm “does not "
                "even converge in 10000/1000 iterations”.",
                claims.converges_within({"NCI1": 5000, "PTC": 500}),
            ),
            Claim(
                "Figure 2: the convergence speed of InstanceNorm “dominates BatchNorm and LayerNorm in most tasks”.",
                claims.trains("instance", "ahead", ("batch", "layer")),
                of_most=True,
            ),
            Claim(
                "Section 3.1: LayerNorm “hardly improves the training process in most tasks”.",
                claims.trains("layer", "not ahead", ("none",)),
                of_most=True,
                remark="Read as: it is not ahead of no normalization, beyond noise.",
            ),
        ),
    ),
    Item(
        name="fig3",
        caption="Figure 3: singular values of Q and QN of sampled graphs",
        make=figures.singular_values,
        graphs=("PROTEINS", "NCI1", "IMDB-BINARY"),
    ),
    Item(
        name="fig4",
        caption="Figure 4: statistics of batches against the dataset's, GIN on PROTEINS and ResNet18 on CIFAR-10",
        make=figures.batch_noise,
        noise=NoiseRuns(images=True),
        claims=(
            Claim(
                "Section 3.3, Figure 4: batch statistics of graphs are noisier than those of images.",
                claims.noisier_than_images,
            ),
        ),
    ),
    Item(
        name="fig5",
        caption="Figure 5: GraphNorm and InstanceNorm on irregular (PROTEINS) and regular (IMDB-BINARY) graphs",
        make=figures.learned_shift,
        trained=(Trainings(datasets=("PROTEINS", "IMDB-BINARY"), models=("gin", "gcn"), norms=("instance", "graph")),),
        graphs=("PROTEINS", "IMDB-BINARY"),
        claims=(
            Claim(
                "Section 4, Figure 5: a learnable α would “significantly boost the training on IMDB-BINARY” (regular "
                "graphs).",
                claims.trains("graph", "ahead", ("instance",), panel="IMDB-BINARY"),
            ),
            Claim(
                "Section 4, Figure 5: it “slightly improves the convergence on PROTEINS” (irregular graphs).",
                claims.trains("graph", "ahead", ("instance",), panel="PROTEINS"),
                remark="The size of the difference is not judged.",
            ),
        ),
    ),
    Item(
        name="fig6",
        caption="Figure 6: training curves of GCN",
        make=figures.curves,
        trained=(Trainings(models=("gcn",)), _TABLE_2["molhiv-gcn"]),
        claims=(
            Claim(
                "Appendix D.3, Figure 6: GCN with GraphNorm has “the fastest convergence on all tasks”, too.",
                claims.trains("graph", "ahead", DEFAULT_NORMS),
            ),
            Claim(
                "Appendix D.3: GCN with InstanceNorm “even underperforms GCNs with other normalizations”.",
                claims.trains("instance", "behind", ("layer", "batch", "graph")),
                remark="Read as: it is behind each of them.",
            ),
        ),
    ),
    Item(
        name="fig7",
        caption="Figure 7: singular values of Q and QN on six datasets",
        make=figures.singular_values,
        graphs=("PROTEINS", "NCI1", "MUTAG", "PTC", "IMDB-BINARY", "COLLAB"),
    ),
    Item(
        name="fig8",
        caption="Figure 8: statistics of batches against the dataset's on four more datasets",
        make=figures.batch_noise,
        noise=NoiseRuns(datasets=("PTC", "NCI1", "MUTAG", "IMDB-BINARY")),
        claims=(
            Claim(
                "Appendix D.2, Figure 8: so they are on four more datasets.",
                claims.noisier_than_images,
                images_of="fig4",
            ),
        ),
    ),
    Item(
        name="fig9",
        caption="Figure 9: statistics of batches against the dataset's by depth",
        make=figures.batch_noise,
        noise=NoiseRuns(layers=(0, 1, 2, 3), images=True),
        claims=(Claim("Appendix D.2, Figure 9: so they are at every depth.", claims.noisier_than_images),),
    ),
    Item(
        name="fig10",
        caption="Figure 10: statistics of batches against the dataset's by batch size",
        make=figures.batch_noise,
        noise=NoiseRuns(batch_sizes=(8, 16, 32, 64)),
        claims=(
            Claim(
                "Appendix D.2, Figure 10: they are noisy at batch sizes of 8, 16, 32 and 64.",
                claims.noisier_than_images,
                images_of="fig4",
                remark="The images are those of Figure 4, in batches of 128; smaller ones are noisier for that reason "
                "alone.",
            ),
        ),
    ),
    Item(
        name="fig11",
        caption="Figure 11: GraphNorm and BatchNorm by batch size",
        make=figures.curves,
        trained=(
            Trainings(
                datasets=("PROTEINS", "REDDIT-BINARY"),
                models=("gin", "gcn"),
                norms=("batch", "graph"),
                grid=Grid("batch-sizes", {**CURVES.axes, "batch_size": (8, 16, 32, 64)}),
            ),
        ),
        claims=(
            Claim(
                "Appendix D.4, Figure 11: GraphNorm “consistently outperforms the BatchNorm” at batch sizes of 8 to "
                "64.",
                claims.trains("graph", "ahead", ("batch",)),
            ),
        ),
    ),
    Item(
        name="fig12",
        caption="Figure 12: GraphNorm and variants of BatchNorm",
        make=figures.curves,
        trained=(
            Trainings(
                datasets=("PROTEINS", "PTC", "IMDB-BINARY"),
                norms=("batch", "batch-alpha", "batch-running", "batch-detached", "graph"),
            ),
        ),
        claims=(
            Claim(
                "Appendix D.4, Figure 12: α-BatchNorm “cannot outperform the BatchNorm”.",
                claims.trains("batch-alpha", "not ahead", ("batch",)),
                remark="Read as: it is not ahead beyond noise.",
            ),
            Claim(
                "Appendix D.4, Figure 12: BatchNorm with running statistics (MS-) underperforms BatchNorm “by a large "
                "margin”.",
                claims.trains("batch-running", "behind", ("batch",)),
                remark="The size of the margin is not judged.",
            ),
            Claim(
                "Appendix D.4, Figure 12: BatchNorm without gradients through its statistics (DT-) does, too.",
                claims.trains("batch-detached", "behind", ("batch",)),
                remark="The size of the margin is not judged.",
            ),
            Claim(
                "Not in the paper: no variant of BatchNorm trains as well as GraphNorm.",
                claims.trains("graph", "ahead", ("batch", "batch-alpha", "batch-running", "batch-detached")),
            ),
        ),
    ),
    Item(
        name="alpha",
        caption="The learned α of GraphNorm, layer by layer",
        make=figures.learned_alpha,
        alpha=AlphaRuns(("PROTEINS", "IMDB-BINARY", "NCI1")),
    ),
    Item(
        name="theory",
        caption="Theory: Theorem 1 on every graph, the linear example, the gradient formula, Fact 1",
        make=tables.theory,
        graphs=TU,
        claims=(
            Claim("Theorem 1: the singular values of QN interlace those of Q.", claims.interlaces),
            Claim(
                "Proposition of Section 3.2, Appendix A.2: in the linear example gradient descent is faster with the "
                "shift.",
                claims.linear_example,
            ),
            Claim("Fact 1: for α ≠ 1 no InstanceNorm equals GraphNorm.", claims.expressive),
            Claim(
                "Appendix A.5: the gradient of W carries (HQN)ᵀ ⊗ S in place of (HQ)ᵀ ⊗ I.",
                claims.gradient,
            ),
        ),
    ),
)

ITEMS: dict[str, Item] = {item.name: item for item in _ITEMS}
"""Every item that can be reproduced, by its name."""


def find_items(names: Sequence[str]) -> list[Item]:
    """Items by name, each once; ``all`` stands for every one."""
    wanted = [name for given in map(str.lower, names) for name in (ITEMS if given == "all" else [given])]
    if unknown := [name for name in wanted if name not in ITEMS]:
        raise StudyError(
            f"there is no item {', '.join(map(repr, unknown))}; known: {', '.join(ITEMS)}, all", remedy="choose some"
        )
    return [ITEMS[name] for name in dict.fromkeys(wanted)]
