"""How the models of the table are built, what they are given of the graphs, and the memory that training takes."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.adjacency import Adjacency
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.models.graph import GCN, GIN
from graphnorm.models.molecules import MolecularGCN, MolecularGIN
from graphnorm.models.networks import DCNN, DGCNN, MLP, diffuse, rows_kept
from graphnorm.models.ogb import OGBGCN, OGBGIN
from graphnorm.models.own import build_own
from graphnorm.models.pyg import build_pyg
from graphnorm.models.registry import PYG, find_model
from graphnorm.ops.neighbour_sum import pool
from graphnorm.segments import Segments
from graphnorm.settings import Hyperparameters

__all__ = ["BUILDERS", "build", "bytes_per_member", "prepare"]

Build = Callable[[Hyperparameters, str, PackedGraphs, int], nn.Module]
"""build(settings, norm, graphs, outputs): a model for graphs like these, with ``outputs`` scores for each."""


def _shape(settings: Hyperparameters, *names: str) -> dict[str, Any]:
    return {name: getattr(settings, name) for name in ("hidden", "layers", "dropout", *names)}


def _gin(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    return GIN(graphs.num_features, outputs, norm=norm, **_shape(settings, "readout", "self_loops", "as_authors"))


def _gcn(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    return GCN(graphs.num_features, outputs, norm=norm, **_shape(settings, "readout", "as_authors"))


def _mlp(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    return MLP(graphs.num_features, outputs, **_shape(settings, "readout"))


def _dcnn(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    return DCNN(graphs.num_features, outputs, layers=settings.layers, dropout=settings.dropout)


def _dgcnn(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    return DGCNN(graphs.num_features, outputs, rows=rows_kept(graphs.sizes), **_shape(settings))


def _molecular(make: Callable[..., nn.Module], *, normalized: bool = True, **options: Any) -> Build:
    def build_molecular(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
        if graphs.tags is None or graphs.x is not None:
            raise GraphnormError(
                f"{settings.model} needs categorical node features; those of {graphs.name} are not all categorical",
                remedy="use the model gin or gcn",
            )
        with_norm = {"norm": norm, "as_authors": settings.as_authors} if normalized else {}
        shape = _shape(settings, "readout")
        return make(graphs.cardinalities, graphs.edge_cardinalities, outputs, **shape, **with_norm, **options)

    return build_molecular


_AUTHORS: dict[str, Any] = {"dropout_on": "scores", "learn_xi": False}
"""The authors' code for ogbg-molhiv applies dropout to the scores only, and does not learn ξ."""
_LEADERBOARD: dict[str, Any] = {"dropout_on": "inner and scores", "learn_xi": False}
_LAST_SHIFTED = _AUTHORS | {"last_norm": "instance"}

BUILDERS: dict[str, Build] = {
    "gin": _gin,
    "gcn": _gcn,
    "molecular-gin": _molecular(MolecularGIN),
    "molecular-gcn": _molecular(MolecularGCN),
    "molhiv-gin": _molecular(MolecularGIN, **_AUTHORS),
    "molhiv-gcn": _molecular(MolecularGCN, **_AUTHORS),
    "molhiv-gin-last-instance": _molecular(MolecularGIN, **_LAST_SHIFTED),
    "molhiv-gcn-last-instance": _molecular(MolecularGCN, **_LAST_SHIFTED),
    "molhiv-gcn-leaderboard": _molecular(MolecularGCN, **_LEADERBOARD),
    "mlp": _mlp,
    "dcnn": _dcnn,
    "dgcnn": _dgcnn,
    "ogb-gin": _molecular(OGBGIN, normalized=False),
    "ogb-gcn": _molecular(OGBGCN, normalized=False),
    "ogb-gin-virtual": _molecular(OGBGIN, normalized=False, virtual=True),
    "ogb-gcn-virtual": _molecular(OGBGCN, normalized=False, virtual=True),
    **{f"pyg:{kind}": partial(build_pyg, kind) for kind in PYG},
}
"""Of every network of the table."""


def build(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
    """Build the model ``settings.model`` for graphs like these, with ``outputs`` scores for each."""
    spec = find_model(settings.model)
    if spec.code is not None:
        return build_own(spec.code.thing, spec.name, settings, norm, graphs, outputs)
    if spec.name in BUILDERS:
        return BUILDERS[spec.name](settings, norm, graphs, outputs)
    if spec.inputs == "edges":
        raise GraphnormError(
            f"the model {spec.name} is a user's own, and its code is not here",
            remedy=f"give its code: --model {spec.family} (of a file, its path), or in Python model=…",
        )
    raise GraphnormError(f"{spec.name} is a kernel, not a network", remedy="choose a network")


# What models are given of the graphs


def prepare(graphs: PackedGraphs, settings: Hyperparameters) -> PackedGraphs:
    """The graphs without features that the model does not use. For ``pooled`` models each graph becomes one node."""
    inputs = find_model(settings.model).inputs
    if inputs in ("molecules", "edges"):
        return graphs
    if inputs == "pooled":
        return _pooled(graphs, settings)
    return replace(graphs, edge_tags=None, edge_cardinalities=(), edge_x=None)


_ROWS_AT_A_TIME = 1 << 15


def _pooled(graphs: PackedGraphs, settings: Hyperparameters) -> PackedGraphs:
    """Graphs of one node without edges, with the same labels and splits.

    The part of a model that has no parameters is computed here, once for each graph.
    """
    chunk = graphs.sizes.cumsum(0) // _ROWS_AT_A_TIME
    counts = torch.unique_consecutive(chunk, return_counts=True)[1].tolist()
    parts = []
    for ids in torch.split_with_sizes(torch.arange(graphs.num_graphs), counts):
        batch = graphs.batch(ids)
        edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True)
        parts.append(POOLINGS[settings.model](graphs.features(batch), edges, Segments(ptr=batch.ptr), settings))
    nodes = torch.arange(graphs.num_graphs + 1, device=graphs.device)
    bare = replace(graphs, tags=None, cardinalities=(), edge_tags=None, edge_cardinalities=(), edge_x=None)
    return replace(bare, node_ptr=nodes, rowptr=torch.zeros_like(nodes), col=graphs.col[:0], x=torch.cat(parts))


POOLINGS: dict[str, Callable[[Tensor, Adjacency, Segments, Hyperparameters], Tensor]] = {
    "mlp": lambda x, edges, segments, settings: pool(x, segments, settings.readout),
    "dcnn": lambda x, edges, segments, settings: diffuse(x, edges, segments, settings.layers - 1).flatten(1),
}
"""Of each ``pooled`` model, from the features of nodes to those of graphs."""


# Memory


def bytes_per_member(settings: Hyperparameters, graphs: PackedGraphs) -> int:
    """Estimate the memory of one more model in a training step.

    The batch is taken to be four standard deviations above the mean size.
    """
    spec = find_model(settings.model)
    sizes = torch.stack([graphs.sizes, graphs.edge_ptr.diff()]).to(torch.float64).cpu()
    batch = min(settings.batch_size, graphs.num_graphs)
    rows, edges = (sizes.mean(1) * batch + 4 * sizes.std(1, unbiased=False) * batch**0.5).tolist()
    convolutions, wide = settings.layers - 1, spec.activations // 8
    hidden = 4 * settings.hidden * (spec.activations * convolutions + 4)
    features = 4 * 3 * graphs.num_features
    edge_features = 4 * 2 * sum(graphs.edge_cardinalities)
    edge_features += 4 * 3 * settings.hidden * convolutions if spec.messages else 0
    weights = 4 * 5 * (settings.hidden * (graphs.num_features + 2 * wide * settings.hidden * convolutions))
    return int(rows * (hidden + features + 64) + edges * (32 + edge_features) + weights)
