"""Recipes: what each table and figure of the paper is made of."""

from __future__ import annotations

from collections.abc import Sequence

from graphnorm.errors import StudyError
from graphnorm.paper.recipe import CURVES, MOLHIV, TU, Beside, Learning, Recipe, Trainings, Watched
from graphnorm.study.grid import GRIDS, Grid

__all__ = ["RECIPES", "find_recipes"]

_MOLHIV = {
    model: Trainings(
        datasets=(MOLHIV,),
        models=(model,),
        protocols=("ogb",),
        grid=Grid(
            "molhiv",
            {"epochs": (epochs,), "batch_size": (size,), "dropout": (0.5,), "weight_decay": (0.0,), "lr": (1e-4,)},
        ),
        hidden=300,
        seeds=10,
    )
    for model, epochs, size in (("molhiv-gin", 25, 128), ("molhiv-gcn", 50, 64))
}
"""The setting of the authors' scripts for ogbg-molhiv, which Table 2 and the curves share."""

_RECIPES = (
    Recipe(
        item="table1",
        caption="Table 1: accuracy (%) on graph classification",
        maker="scores",
        trained=(Trainings(models=("gin", "gcn"), protocols=("paper", "fair"), grid=GRIDS["paper"]),),
        beside=Beside(baselines=("wl", "awl", "dcnn", "dgcnn", "mlp"), protocols=("paper", "fair")),
    ),
    Recipe(
        item="table2",
        caption="Table 2: test ROC-AUC (%) on ogbg-molhiv",
        maker="scores",
        trained=tuple(_MOLHIV.values()),
        beside=Beside(
            baselines=("ogb-gcn", "ogb-gcn-virtual", "ogb-gin", "ogb-gin-virtual"),
            datasets=(MOLHIV,),
            protocols=("ogb",),
            seeds=10,
        ),
    ),
    Recipe(
        item="table3",
        caption="Dataset table: statistics of the datasets",
        maker="dataset_statistics",
        looked_at=(*TU, MOLHIV),
    ),
    Recipe(
        item="fig2",
        caption="Figure 2: training curves of GIN",
        maker="curves",
        trained=(Trainings(), _MOLHIV["molhiv-gin"]),
    ),
    Recipe(
        item="fig3",
        caption="Figure 3: singular values of Q and QN of sampled graphs",
        maker="spectra",
        looked_at=("PROTEINS", "NCI1", "IMDB-BINARY"),
    ),
    Recipe(
        item="fig4",
        caption="Figure 4: statistics of batches against the dataset's, GIN on PROTEINS and ResNet18 on CIFAR-10",
        maker="noise",
        watched=Watched(images=True),
    ),
    Recipe(
        item="fig5",
        caption="Figure 5: GraphNorm and InstanceNorm on irregular (PROTEINS) and regular (IMDB-BINARY) graphs",
        maker="learned_shift",
        trained=(Trainings(datasets=("PROTEINS", "IMDB-BINARY"), models=("gin", "gcn"), norms=("instance", "graph")),),
        looked_at=("PROTEINS", "IMDB-BINARY"),
    ),
    Recipe(
        item="fig6",
        caption="Figure 6: training curves of GCN",
        maker="curves",
        trained=(Trainings(models=("gcn",)), _MOLHIV["molhiv-gcn"]),
    ),
    Recipe(
        item="fig7",
        caption="Figure 7: singular values of Q and QN on six datasets",
        maker="spectra",
        looked_at=("PROTEINS", "NCI1", "MUTAG", "PTC", "IMDB-BINARY", "COLLAB"),
    ),
    Recipe(
        item="fig8",
        caption="Figure 8: statistics of batches against the dataset's on four more datasets",
        maker="noise",
        watched=Watched(datasets=("PTC", "NCI1", "MUTAG", "IMDB-BINARY")),
    ),
    Recipe(
        item="fig9",
        caption="Figure 9: statistics of batches against the dataset's by depth",
        maker="noise",
        watched=Watched(layers=(0, 1, 2, 3), images=True),
    ),
    Recipe(
        item="fig10",
        caption="Figure 10: statistics of batches against the dataset's by batch size",
        maker="noise",
        watched=Watched(batch_sizes=(8, 16, 32, 64)),
    ),
    Recipe(
        item="fig11",
        caption="Figure 11: GraphNorm and BatchNorm by batch size",
        maker="curves",
        trained=(
            Trainings(
                datasets=("PROTEINS", "REDDIT-BINARY"),
                models=("gin", "gcn"),
                norms=("batch", "graph"),
                grid=Grid("batch-sizes", {**CURVES.axes, "batch_size": (8, 16, 32, 64)}),
            ),
        ),
    ),
    Recipe(
        item="fig12",
        caption="Figure 12: GraphNorm and variants of BatchNorm",
        maker="curves",
        trained=(
            Trainings(
                datasets=("PROTEINS", "PTC", "IMDB-BINARY"),
                norms=("batch", "batch-alpha", "batch-running", "batch-detached", "graph"),
            ),
        ),
    ),
    Recipe(
        item="alpha",
        caption="The learned α of GraphNorm, layer by layer",
        maker="alpha",
        learned=Learning(("PROTEINS", "IMDB-BINARY", "NCI1")),
    ),
    Recipe(
        item="theory",
        caption="Theory: Theorem 1 on every graph, the linear example, the gradient formula, Fact 1",
        maker="theory",
        looked_at=TU,
    ),
)

RECIPES: dict[str, Recipe] = {recipe.item: recipe for recipe in _RECIPES}
"""Every item that can be reproduced, by its name."""


def find_recipes(items: Sequence[str]) -> list[Recipe]:
    """Give recipes by name, each once, in the order of the paper's items where ``all`` is asked for."""
    names = [name for item in map(str.lower, items) for name in (RECIPES if item == "all" else [item])]
    unknown = [name for name in names if name not in RECIPES]
    if unknown:
        raise StudyError(
            f"there is no item {', '.join(map(repr, unknown))}; known: {', '.join(RECIPES)}, all", remedy="choose some"
        )
    return [RECIPES[name] for name in dict.fromkeys(names)]
