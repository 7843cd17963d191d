"""From a trial and its graphs to a model and the model's input."""

from __future__ import annotations

import difflib
import threading
from dataclasses import replace
from functools import partial
from typing import Any, NamedTuple

import torch
from torch import nn

from graphnorm.adjacency import Adjacency
from graphnorm.data.batching import GraphBatch
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.models import GCN, GIN, MolecularGCN, MolecularGIN
from graphnorm.models.baselines import DCNN, DGCNN, MLP, OGBGCN, OGBGIN
from graphnorm.models.baselines.dgcnn import rows_kept
from graphnorm.models.one_hot import OneHot
from graphnorm.segments import Segments
from graphnorm.training.condensed import CONDENSED, condense
from graphnorm.training.matrices import Matrices, worthwhile_matrices
from graphnorm.training.trial import Trial

__all__ = [
    "BASELINE_MODELS",
    "MODELS",
    "Extremes",
    "Shortcuts",
    "build_model",
    "model_inputs",
    "num_outputs",
    "seen_by_model",
]

_SEEDING = threading.Lock()
"""Held while torch's generator, which all threads share, is seeded and drawn from."""

MODELS = ("gin", "gcn", "molecular-gin", "molecular-gcn", "molhiv-gin", "molhiv-gcn")
"""The models by name, each with any normalization. All but the first two take several categories of nodes and edges.

The last pair is the one before it as in the authors' code for ogbg-molhiv: dropout on the scores alone, ξ at 0."""

SUMMING = ("gin", "gcn")
"""Those that use edges only for sums over neighbours, perhaps scaled, and features only in the first convolution."""

BASELINE_MODELS = ("mlp", "dcnn", "dgcnn", "ogb-gin", "ogb-gcn", "ogb-gin-virtual", "ogb-gcn-virtual")
"""Models to compare with, by name: a trial's normalization has no part in them."""

_MOLECULAR: dict[str, Any] = {
    "molecular-gin": MolecularGIN,
    "molecular-gcn": MolecularGCN,
    "molhiv-gin": partial(MolecularGIN, dropout_on="scores", learn_xi=False),
    "molhiv-gcn": partial(MolecularGCN, dropout_on="scores", learn_xi=False),
    "ogb-gin": OGBGIN,
    "ogb-gcn": OGBGCN,
    "ogb-gin-virtual": partial(OGBGIN, virtual=True),
    "ogb-gcn-virtual": partial(OGBGCN, virtual=True),
}


def num_outputs(trial: Trial, graphs: PackedGraphs) -> int:
    """One score for each class; a single one where the metric is the area under a ROC curve."""
    return 1 if trial.protocol == "ogb" else graphs.num_classes


def build_model(trial: Trial, graphs: PackedGraphs) -> nn.Module:
    """The trial's model, freshly initialised from the trial's seed and nothing else."""
    with _SEEDING, torch.random.fork_rng(devices=[]):
        torch.default_generator.manual_seed(trial.seed)
        return _build(trial, graphs)


def _build(trial: Trial, graphs: PackedGraphs) -> nn.Module:
    options: dict[str, Any] = {
        "hidden": trial.hidden,
        "layers": trial.layers,
        "readout": trial.readout,
        "dropout": trial.dropout,
    }
    if trial.model in MODELS:
        options["norm"] = trial.norm
    features, outputs = graphs.num_features, num_outputs(trial, graphs)
    match trial.model:
        case "gin":
            return GIN(features, outputs, self_loops=trial.self_loops, **options)
        case "gcn":
            return GCN(features, outputs, **options)
        case "mlp":
            return MLP(features, outputs, **options)
        case "dcnn":
            return DCNN(features, outputs, layers=trial.layers, dropout=trial.dropout)
        case "dgcnn":
            del options["readout"]
            return DGCNN(features, outputs, rows=rows_kept(graphs.sizes), **options)
    if trial.model in _MOLECULAR:
        if graphs.tags is None or graphs.x is not None:
            raise GraphnormError(
                f"{trial.model} takes categorical node features, and those of {graphs.name} are not all categorical",
                remedy="use the model gin or gcn",
            )
        molecular: nn.Module = _MOLECULAR[trial.model](
            graphs.cardinalities, graphs.edge_cardinalities, outputs, **options
        )
        return molecular
    known = (*MODELS, *BASELINE_MODELS)
    near = difflib.get_close_matches(trial.model, known, n=1)
    hint = f"; did you mean {near[0]!r}?" if near else ""
    raise GraphnormError(f"unknown model {trial.model!r}{hint}", remedy=f"choose from {', '.join(known)}")


def seen_by_model(trial: Trial, graphs: PackedGraphs) -> PackedGraphs:
    """The graphs without the features that the trial's model has no use for: those of edges, unless it is molecular.

    Some models see graphs of one node, :mod:`graphnorm.training.condensed`.
    """
    if trial.model in _MOLECULAR:
        return graphs
    if trial.model in CONDENSED:
        return condense(trial, graphs)
    return replace(graphs, edge_tags=None, edge_cardinalities=(), edge_x=None)


class Extremes(NamedTuple):
    """Bounds on one node's neighbours and one graph's nodes: what only the host can know without waiting."""

    max_degree: int
    max_size: int

    @classmethod
    def of(cls, graphs: PackedGraphs) -> Extremes:
        """The largest degree and graph of a dataset."""
        return cls(int(graphs.degree.max()) if graphs.num_nodes else 0, int(graphs.sizes.max()))


class Shortcuts(NamedTuple):
    """Forms of the same input that a model computes with faster."""

    matrices: Matrices | None = None
    """The edges as matrices."""
    one_hot: bool = False
    """Whether features stay categories until they meet the first weight."""

    @classmethod
    def of(cls, trial: Trial, graphs: PackedGraphs) -> Shortcuts:
        """Those that pay for a trial's model, on the device of the graphs."""
        if trial.model not in SUMMING:
            return cls()
        single = graphs.x is None and len(graphs.cardinalities) == 1
        return cls(worthwhile_matrices(graphs), single and graphs.num_features > trial.hidden)


def model_inputs(
    graphs: PackedGraphs, batch: GraphBatch, extremes: Extremes, shortcuts: Shortcuts | None = None, *, may_pad: bool
) -> dict[str, Any]:
    """A batch as keyword arguments of a model's ``forward``; nothing is checked, since assembly made it.

    may_pad: whether there may be rows of no graph.
    """
    matrices, one_hot = shortcuts or Shortcuts()
    blocks = None if matrices is None else matrices.of(batch)
    edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True, max_degree=extremes.max_degree, blocks=blocks)
    inputs: dict[str, Any] = {
        "x": OneHot(batch.categories(), graphs.num_features) if one_hot else graphs.features(batch),
        "edges": edges,
        "batch": Segments.trusted(batch.ptr, None, batch.num_rows, extremes.max_size, may_pad),
    }
    if batch.edge_tags is not None:
        inputs["edge_attr"] = batch.edge_tags
    return inputs
