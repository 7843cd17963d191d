"""The table of models: how to build each one, its input, its settings, and the memory that training needs.

To add a model, add a :class:`ModelSpec` to :data:`MODELS`.
"""

from __future__ import annotations

import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any, Literal

import torch
from torch import nn

from graphnorm.adjacency import Adjacency
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError, require, unknown
from graphnorm.models.graph import GCN, GIN
from graphnorm.models.kernels import KERNELS, Kernel
from graphnorm.models.molecules import MolecularGCN, MolecularGIN
from graphnorm.models.networks import DCNN, DGCNN, MLP, diffuse, rows_kept
from graphnorm.models.ogb import OGBGCN, OGBGIN
from graphnorm.models.own import OFFERED, build_own, parameters_of
from graphnorm.models.pyg import PYG, build_pyg
from graphnorm.ops.neighbour_sum import pool
from graphnorm.own_code import OwnCode, find_code
from graphnorm.segments import Segments
from graphnorm.settings import Hyperparameters

__all__ = ["BASELINES", "MODELS", "NORMALIZED", "ModelSpec", "find_model", "name_model", "register_model"]

Build = Callable[[Hyperparameters, str, PackedGraphs, int], nn.Module]
"""build(settings, norm, graphs, outputs): a model for graphs like these, with ``outputs`` scores for each."""
Pool = Callable[[torch.Tensor, Adjacency, Segments, Hyperparameters], torch.Tensor]


@dataclass(frozen=True)
class ModelSpec:
    """A row of the table."""

    name: str
    family: str
    """Its name in papers."""
    build: Build | None = field(repr=False)
    """None for kernels and networks of images."""
    inputs: Literal["nodes", "molecules", "edges", "pooled", "kernel", "images"] = "nodes"
    """``nodes``: node features and edges. ``molecules``: categories of nodes and edges. ``edges``: node features,
    edges and edge features. ``pooled``: one row for each graph. ``images``: no graphs; the paper compares their batch
    noise."""
    normalized: bool = False
    """Whether it takes a normalization. If not, it is a baseline."""
    defaults: Mapping[str, Any] = field(default_factory=dict)
    """Its own settings. A baseline always uses them, other models with an official split unless the user gives some."""
    sums: bool = False
    """Whether it uses edges only for (scaled) sums over neighbours, and features only in the first convolution. Then
    dense graphs may be given as matrices, and one-hot features as categories."""
    pool: Pool | None = field(default=None, repr=False)
    """The part of a ``pooled`` model that has no parameters. It is computed once for each graph."""
    kernel: Kernel | None = field(default=None, repr=False)
    varied: tuple[str, ...] = Hyperparameters.VARIED
    """Settings in which the members of a fleet may differ."""
    ignores: tuple[str, ...] = ()
    """Settings that the model does not take, so that giving them is a mistake."""
    code: OwnCode | None = field(default=None, repr=False)
    """Of a user's own model, its code."""
    activations: int = 8
    """Arrays of (rows, hidden) that a convolution keeps, gradients included; an estimate of memory."""
    messages: bool = False
    """Whether it also keeps an array of (edges, hidden)."""

    @property
    def sees_edges(self) -> bool:
        """Whether edge features reach the model; of a user's own model that is up to its ``forward``."""
        return self.inputs == "molecules" or (self.inputs == "edges" and self.family not in ("GCN", "GIN", "GraphSAGE"))

    def prepared(self, settings: Hyperparameters, graphs: PackedGraphs) -> PackedGraphs:
        """The graphs without unused features. For ``pooled`` models each graph becomes one node."""
        if self.inputs in ("molecules", "edges"):
            return graphs
        if self.pool is None:
            return replace(graphs, edge_tags=None, edge_cardinalities=(), edge_x=None)
        pool_batch = self.pool
        return _pooled(graphs, lambda x, edges, segments: pool_batch(x, edges, segments, settings))

    def bytes_per_member(self, settings: Hyperparameters, graphs: PackedGraphs) -> int:
        """Estimate the memory of one more model in a training step.

        The batch is taken to be four standard deviations above the mean size.
        """
        sizes = torch.stack([graphs.sizes, graphs.edge_ptr.diff()]).to(torch.float64).cpu()
        batch = min(settings.batch_size, graphs.num_graphs)
        rows, edges = (sizes.mean(1) * batch + 4 * sizes.std(1, unbiased=False) * batch**0.5).tolist()
        convolutions, wide = settings.layers - 1, self.activations // 8
        hidden = 4 * settings.hidden * (self.activations * convolutions + 4)
        features = 4 * 3 * graphs.num_features
        edge_features = 4 * 2 * sum(graphs.edge_cardinalities)
        edge_features += 4 * 3 * settings.hidden * convolutions if self.messages else 0
        weights = 4 * 5 * (settings.hidden * (graphs.num_features + 2 * wide * settings.hidden * convolutions))
        return int(rows * (hidden + features + 64) + edges * (32 + edge_features) + weights)


_ROWS_AT_A_TIME = 1 << 15


def _pooled(graphs: PackedGraphs, pool_batch: Callable[..., torch.Tensor]) -> PackedGraphs:
    """Graphs of one node without edges, with the same labels and splits."""
    chunk = graphs.sizes.cumsum(0) // _ROWS_AT_A_TIME
    counts = torch.unique_consecutive(chunk, return_counts=True)[1].tolist()
    parts = []
    for ids in torch.split_with_sizes(torch.arange(graphs.num_graphs), counts):
        batch = graphs.batch(ids)
        edges = Adjacency.trusted(batch.rowptr, batch.col, symmetric=True)
        parts.append(pool_batch(graphs.features(batch), edges, Segments(ptr=batch.ptr)))
    nodes = torch.arange(graphs.num_graphs + 1, device=graphs.device)
    bare = replace(graphs, tags=None, cardinalities=(), edge_tags=None, edge_cardinalities=(), edge_x=None)
    return replace(bare, node_ptr=nodes, rowptr=torch.zeros_like(nodes), col=graphs.col[:0], x=torch.cat(parts))


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
    def build(settings: Hyperparameters, norm: str, graphs: PackedGraphs, outputs: int) -> nn.Module:
        if graphs.tags is None or graphs.x is not None:
            raise GraphnormError(
                f"{settings.model} needs categorical node features; those of {graphs.name} are not all categorical",
                remedy="use the model gin or gcn",
            )
        with_norm = {"norm": norm, "as_authors": settings.as_authors} if normalized else {}
        shape = _shape(settings, "readout")
        return make(graphs.cardinalities, graphs.edge_cardinalities, outputs, **shape, **with_norm, **options)

    return build


def _pool_features(x: torch.Tensor, edges: Adjacency, segments: Segments, settings: Hyperparameters) -> torch.Tensor:
    return pool(x, segments, settings.readout)


def _pool_hops(x: torch.Tensor, edges: Adjacency, segments: Segments, settings: Hyperparameters) -> torch.Tensor:
    return diffuse(x, edges, segments, settings.layers - 1).flatten(1)


_AUTHORS: dict[str, Any] = {"dropout_on": "scores", "learn_xi": False}
"""The authors' code for ogbg-molhiv applies dropout to the scores only, and does not learn ξ."""
_TABLE_2: dict[str, Any] = {"dropout": 0.5, "weight_decay": 0.0, "lr": 1e-4, "hidden": 300, "seeds": 10}
_TABLE_2_GIN = _TABLE_2 | {"epochs": 25, "batch_size": 128}
_TABLE_2_GCN = _TABLE_2 | {"epochs": 50, "batch_size": 64}
_LEADERBOARD = _TABLE_2_GCN | {"layers": 6, "dropout": 0.1, "batch_size": 128}
_LAST_SHIFTED = _AUTHORS | {"last_norm": "instance"}
_OGB: dict[str, Any] = {"hidden": 300, "layers": 6, "lr": 1e-3, "batch_size": 32, "readout": "mean"}


def _molecules(name: str, family: str, build: Build, defaults: Mapping[str, Any], **more: Any) -> ModelSpec:
    return ModelSpec(name, family, build, inputs="molecules", defaults=defaults, **more)


def _kernel(name: str, family: str) -> ModelSpec:
    kernel = KERNELS[name]
    return ModelSpec(name, family, None, inputs="kernel", kernel=kernel, defaults={"epochs": len(kernel.candidates)})


def _of_others(name: str, family: str, build: Build, **more: Any) -> ModelSpec:
    """A model called with PyG's arguments; its dropout rate is part of its structure."""
    varied = ("lr", "weight_decay")
    return ModelSpec(name, family, build, inputs="edges", normalized=True, varied=varied, activations=16, **more)


_SPECS = (
    ModelSpec("gin", "GIN", _gin, normalized=True, sums=True),
    ModelSpec("gcn", "GCN", _gcn, normalized=True, sums=True),
    _molecules("molecular-gin", "GIN", _molecular(MolecularGIN), {}, normalized=True, activations=16),
    _molecules("molecular-gcn", "GCN", _molecular(MolecularGCN), {}, normalized=True),
    _molecules(
        "molhiv-gin", "GIN", _molecular(MolecularGIN, **_AUTHORS), _TABLE_2_GIN, normalized=True, activations=16
    ),
    _molecules("molhiv-gcn", "GCN", _molecular(MolecularGCN, **_AUTHORS), _TABLE_2_GCN, normalized=True),
    _molecules(
        "molhiv-gin-last-instance",
        "GIN",
        _molecular(MolecularGIN, **_LAST_SHIFTED),
        _TABLE_2_GIN,
        normalized=True,
        activations=16,
    ),
    _molecules(
        "molhiv-gcn-last-instance", "GCN", _molecular(MolecularGCN, **_LAST_SHIFTED), _TABLE_2_GCN, normalized=True
    ),
    _molecules(
        "molhiv-gcn-leaderboard",
        "GCN",
        _molecular(MolecularGCN, dropout_on="inner and scores", learn_xi=False),
        _LEADERBOARD,
        normalized=True,
    ),
    _kernel("wl", "WL subtree"),
    _kernel("awl", "AWL"),
    ModelSpec("mlp", "MLP", _mlp, inputs="pooled", pool=_pool_features, defaults={"hidden": 64, "layers": 3}),
    ModelSpec("dcnn", "DCNN", _dcnn, inputs="pooled", pool=_pool_hops, defaults={"layers": 5}),
    ModelSpec("dgcnn", "DGCNN", _dgcnn, defaults={"hidden": 32, "layers": 5, "lr": 1e-3}),
    *(
        _molecules(
            f"ogb-{family.lower()}{'-virtual' if virtual else ''}",
            family,
            _molecular(make, normalized=False, virtual=virtual),
            _OGB,
            activations=16,
            messages=True,
        )
        for virtual in (False, True)
        for family, make in (("GIN", OGBGIN), ("GCN", OGBGCN))
    ),
    *(
        _of_others(
            f"pyg:{kind}",
            kind,
            partial(build_pyg, kind),
            defaults={"dropout": 0.0},
            ignores=("self_loops", "as_authors"),
        )
        for kind in PYG
    ),
    ModelSpec("resnet18", "ResNet18", None, inputs="images"),
)

MODELS: dict[str, ModelSpec] = {spec.name: spec for spec in _SPECS}
_OWN: dict[str, ModelSpec] = {}
"""Users' own models, registered by :func:`register_model`."""
NORMALIZED = tuple(spec.name for spec in _SPECS if spec.normalized)
"""Models of this package that take a normalization. ``molhiv-*`` are ``molecular-*`` as in the authors' code for
ogbg-molhiv; those that end in ``-last-instance`` have InstanceNorm as their last normalization.
"""
BASELINES = tuple(spec.name for spec in _SPECS if not spec.normalized and spec.inputs != "images")
"""Models to compare the normalized ones with."""


def find_model(name: str) -> ModelSpec:
    """A model by its name.

    >>> find_model("gin").family
    'GIN'
    """
    if name in MODELS or name in _OWN:
        return MODELS.get(name) or _OWN[name]
    if "@" in name:  # a user's own, in a result that is read without its code
        return _of_others(name, name.partition("@")[0], partial(_refuse_to_build, name))
    raise unknown("model", name, MODELS)


def name_model(model: str | os.PathLike[str] | Callable[..., nn.Module]) -> str:
    """The name of a model, after registering a user's own, given by ``FILE.py:NAME`` or as a class or function.

    >>> name_model("gin")
    'gin'
    """
    if isinstance(model, nn.Module):
        raise GraphnormError(
            f"the model is a {type(model).__name__} that is made already", remedy="pass its class, or FILE.py:NAME"
        )
    if not callable(model):
        require("model", model, (str, os.PathLike), "a name, FILE.py:NAME, a class or a function")
        model = os.fspath(model)
        if model in MODELS:
            return model
        if model.startswith("pyg:") or not (":" in model or model.endswith(".py")):
            raise unknown("model", model, [*NORMALIZED, "FILE.py:NAME"])
    return register_model(find_code(model, "model"))


def register_model(code: OwnCode) -> str:
    """Register a user's own model, and return its name: its place and the digest of its source."""
    name = f"{code.place}@{code.digest}"
    build = partial(build_own, code.thing, name)
    ignores = (
        "self_loops",
        "as_authors",
        *(option for option in OFFERED if option not in parameters_of(code.thing, name)),
    )
    _OWN[name] = _of_others(name, code.place, build, code=code, ignores=ignores)
    return name


def _refuse_to_build(name: str, *_: Any) -> nn.Module:
    place = name.partition("@")[0]
    raise GraphnormError(
        f"the model {name} is a user's own, and its code is not here",
        remedy=f"give its code: --model {place} with the file's path, or in Python model=…",
    )
