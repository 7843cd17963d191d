"""The items of the paper: for each table and figure what it trains, how it is made, and what is claimed.

To look something up, begin here: an item names the functions that make it and judge its claims. The numbers that the
paper reports are in :mod:`graphnorm.study.paper_numbers`.
"""

from __future__ import annotations

from collections.abc import Sequence

from graphnorm.errors import StudyError, unknown
from graphnorm.models import MODELS
from graphnorm.paper import claims, figures, tables
from graphnorm.paper.claims import Claim
from graphnorm.paper.item import CURVES, AlphaRuns, Baselines, ImageRuns, Item, NoiseRuns, Trainings
from graphnorm.settings import DEFAULT_NORMS, GRIDS, Grid
from graphnorm.study.paper_numbers import MOLHIV, TU

__all__ = ["ITEMS", "find_items"]

_TABLE_2 = {
    model: Trainings(
        datasets=(MOLHIV,),
        models=(model,),
        protocols=("given",),
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
        parts=(
            Trainings(models=("gin", "gcn"), protocols=("paper", "fair"), grid=GRIDS["paper"]),
            Baselines(baselines=("wl", "awl", "dcnn", "dgcnn", "mlp"), protocols=("paper", "fair")),
        ),
        claims=(
            Claim(
                "Section 5, Table 1: GraphNorm “improves the generalization on most benchmarks”: with it, GIN has "
                "its highest accuracy.",
                claims.scores_best("gin", "paper"),
                of_most=True,
                remark=_CHOSEN,
            ),
            Claim(
                "Not in the paper: with GraphNorm, GCN has its highest accuracy. Table 1 has no GCN.",
                claims.scores_best("gcn", "paper"),
                of_most=True,
                remark=_CHOSEN,
            ),
            Claim(
                "Table 1: our numbers are within one reported standard deviation of the paper's.",
                claims.within_reported,
            ),
        ),
    ),
    Item(
        name="table2",
        caption="Table 2: test ROC-AUC (%) on ogbg-molhiv",
        make=tables.scores,
        parts=(
            *_TABLE_2.values(),
            Baselines(
                baselines=("ogb-gcn", "ogb-gcn-virtual", "ogb-gin", "ogb-gin-virtual"),
                datasets=(MOLHIV,),
                protocols=("given",),
                seeds=10,
            ),
        ),
        claims=(
            Claim(
                "Section 5, Table 2: GraphNorm has the highest test ROC-AUC of GIN on ogbg-molhiv.",
                claims.scores_best("molhiv-gin", "given"),
                remark=_NO_ALPHA,
            ),
            Claim(
                "Section 5, Table 2: GraphNorm has the highest test ROC-AUC of GCN on ogbg-molhiv.",
                claims.scores_best("molhiv-gcn", "given"),
                remark=_NO_ALPHA,
            ),
            Claim(
                "Table 2: our numbers are within one reported standard deviation of the paper's.",
                claims.within_reported,
            ),
        ),
    ),
    Item(
        name="table3",
        caption="Dataset table: statistics of the datasets",
        make=tables.dataset_statistics,
        graphs=(*TU, MOLHIV),
        claims=(
            Claim("Appendix B: the numbers of the dataset table.", claims.counts("as_printed", "equal", "statistics")),
        ),
    ),
    Item(
        name="fig2",
        caption="Figure 2: training curves of GIN",
        make=figures.curves,
        parts=(Trainings(), _TABLE_2["molhiv-gin"]),
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
        parts=(NoiseRuns(), ImageRuns()),
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
        parts=(Trainings(datasets=("PROTEINS", "IMDB-BINARY"), models=("gin", "gcn"), norms=("instance", "graph")),),
        graphs=("PROTEINS", "IMDB-BINARY"),
        claims=(
            Claim(
                "Section 4, Figure 5: a learnable α would “significantly boost the training on IMDB-BINARY” (regular "
                "graphs).",
                claims.trains("graph", "ahead", ("instance",), panel="IMDB-BINARY"),
            ),
            Claim(
                "Section 4, Figure 5: a learnable α “slightly improves the convergence on PROTEINS” (irregular "
                "graphs).",
                claims.trains("graph", "ahead", ("instance",), panel="PROTEINS"),
                remark="The size of the difference is not judged.",
            ),
        ),
    ),
    Item(
        name="fig6",
        caption="Figure 6: training curves of GCN",
        make=figures.curves,
        parts=(Trainings(models=("gcn",)), _TABLE_2["molhiv-gcn"]),
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
        parts=(NoiseRuns(datasets=("PTC", "NCI1", "MUTAG", "IMDB-BINARY")),),
        claims=(
            Claim(
                "Appendix D.2, Figure 8: batch statistics are noisier than those of images on four more datasets.",
                claims.noisier_than_images,
                images_of="fig4",
            ),
        ),
    ),
    Item(
        name="fig9",
        caption="Figure 9: statistics of batches against the dataset's by depth",
        make=figures.batch_noise,
        parts=(NoiseRuns(layers=(0, 1, 2, 3)), ImageRuns(layers=(0, 1, 2, 3))),
        claims=(
            Claim(
                "Appendix D.2, Figure 9: batch statistics are noisier than those of images at every depth.",
                claims.noisier_than_images,
            ),
        ),
    ),
    Item(
        name="fig10",
        caption="Figure 10: statistics of batches against the dataset's by batch size",
        make=figures.batch_noise,
        parts=(NoiseRuns(batch_sizes=(8, 16, 32, 64)),),
        claims=(
            Claim(
                "Appendix D.2, Figure 10: batch statistics are noisier than those of images at batch sizes of "
                "8, 16, 32 and 64.",
                claims.noisier_than_images,
                images_of="fig4",
            ),
        ),
    ),
    Item(
        name="fig11",
        caption="Figure 11: GraphNorm and BatchNorm by batch size",
        make=figures.curves,
        parts=(
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
        parts=(
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
                "Appendix D.4, Figure 12: BatchNorm without gradients through its statistics (DT-) underperforms "
                "it, too.",
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
        parts=(AlphaRuns(("PROTEINS", "IMDB-BINARY", "NCI1")),),
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
                "Proposition 1: on regular graphs the shift leaves nothing.",
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
