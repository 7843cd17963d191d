"""The items of the paper: for each table and figure what it trains, how it is made, and what is claimed.

To look something up, begin here: an item names the functions that make it and judge its claims. Items share trials,
since a trial is named by its content.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, TypeVar

from graphnorm.data.catalog import find
from graphnorm.errors import StudyError, unknown
from graphnorm.models import BASELINES, MODELS
from graphnorm.paper import claims, figures, tables
from graphnorm.paper.claims import Claim
from graphnorm.settings import DEFAULT_NORMS, GRIDS, Grid, Settings
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reported import MOLHIV, TU

if TYPE_CHECKING:
    from graphnorm.paper.output import Output
    from graphnorm.paper.reproduce import Work

__all__ = ["ITEMS", "QUICK", "AlphaRuns", "Baselines", "Item", "NoiseRuns", "NothingLeftError", "Trainings", "covers"]
__all__ += ["describe_narrow", "find_items", "is_quick"]

CURVES = GRIDS["curves"]
IMAGE_EPOCHS = 100
"""Of ResNet18 in the paper's Figure 4."""


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


@dataclass(frozen=True)
class AlphaRuns:
    """Trainings of GIN with GraphNorm on all graphs; α is read along the way."""

    datasets: tuple[str, ...]
    epochs: int = 400

    def quick(self) -> AlphaRuns:
        return AlphaRuns(_in_both(self.datasets, QUICK.datasets), QUICK.epochs)


Part = TypeVar("Part", Trainings, Baselines, NoiseRuns, AlphaRuns)
LISTS = ("datasets", "models", "norms", "protocols", "baselines")
"""A choice of these keeps a part of an item's own; ``grid``, ``seeds`` and ``as_authors`` replace its own, and
``more_norms`` are added to its own."""


def _narrowed(part: Part, chosen: Mapping[str, Any]) -> Part:
    changes: dict[str, Any] = {
        name: _in_both(getattr(part, name), chosen[name]) for name in LISTS if name in chosen and hasattr(part, name)
    }
    for name in ("seeds", "as_authors"):
        if name in chosen and hasattr(part, name):
            changes[name] = chosen[name]
    if "grid" in chosen and isinstance(part, Trainings) and part.takes_grid:
        changes["grid"] = chosen["grid"]
    if "more_norms" in chosen and isinstance(part, Trainings):
        changes["norms"] = (*changes.get("norms", part.norms), *chosen["more_norms"])
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
        yield from (part for part in (*self.trained, self.noise, self.alpha, self.baselines) if part)

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
        if any(one.grid not in [own.grid for own in self.trained] for one in part.trained):
            narrow["grid"] = chosen["grid"].to_dict()
        if any(hasattr(one, "seeds") and one.seeds != chosen.get("seeds", one.seeds) for one in self._parts()):
            narrow["seeds"] = chosen["seeds"]
        if any(one.as_authors for one in part.trained):
            narrow["as_authors"] = True
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
"""The setting of the authors' scripts for ogbg-molhiv, shared by Table 2 and the curves."""

_CHOSEN = "As in the paper, the folds that choose configuration and epoch are those that are reported."
_NOTHING_LEFT = "{of}; largest relative error {largest:.0e}"
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
        claims=(Claim("Appendix B: the dataset table.", claims.counts("as_printed", "equal", "statistics")),),
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
                claims.trains("layer", "behind", ("none",)),
                of_most=True,
                remark="Read as: it does not train faster than no normalization; a tie shows neither.",
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
        noise=NoiseRuns(images=IMAGE_EPOCHS),
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
        noise=NoiseRuns(layers=(0, 1, 2, 3), images=IMAGE_EPOCHS),
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
                claims.trains("batch-alpha", "behind", ("batch",)),
                remark="A tie shows neither.",
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
        caption="Theory: Theorem 1, Propositions 1 and 2 and condition numbers on every graph; the linear example, "
        "the gradient formula, Fact 1",
        make=tables.theory,
        graphs=TU,
        claims=(
            Claim(
                "Theorem 1: the singular values of QN interlace those of Q.",
                claims.counts("theorem_1", "holds", "checked", "Graphs of the seven TU datasets"),
            ),
            Claim(
                "Theorem 1: equality “only if” a right singular vector of Q is orthogonal to 1.",
                claims.counts(
                    "equality",
                    "orthogonal",
                    "shared",
                    "Singular values that Q and QN share, on graphs of the seven TU datasets",
                ),
            ),
            Claim("Section 3.2: “the condition number is improved”.", claims.improves_condition),
            Claim(
                "Proposition 1: nothing is left on regular graphs.",
                claims.counts("proposition_1", "right", "graphs", _NOTHING_LEFT),
            ),
            Claim(
                "Proposition 2: on complete graphs Q_GIN N = ξN.",
                claims.counts("proposition_2", "right", "graphs", _NOTHING_LEFT),
                remark="With the self-loops of the authors' data it is (1 + ξ)N.",
            ),
            Claim(
                "Proposition of Section 3.2, Appendix A.2: in the linear example gradient descent is faster with the "
                "shift.",
                claims.counts(
                    "summary/linear_gnn",
                    "shift_faster",
                    "runs",
                    "Faster {median_speedup:.2f} times in the median, on data made to fit the assumptions",
                ),
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


def find_items(names: Sequence[str]) -> list[Item]:
    """Items by name, each once; ``all`` names every one."""
    wanted = [name for given in map(str.lower, names) for name in (ITEMS if given == "all" else [given])]
    for name in wanted:
        if name not in ITEMS:
            raise unknown("item", name, (*ITEMS, "all"), StudyError)
    return [ITEMS[name] for name in dict.fromkeys(wanted)]
