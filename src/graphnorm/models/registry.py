"""The table of models: what each one is, its input, its settings, and what its training needs.

To add a model, add a :class:`ModelSpec` to :data:`MODELS`, and to :data:`graphnorm.models.build.BUILDERS` how it is
built. This file needs no torch, so that stored results are read without it.
"""

from __future__ import annotations

import itertools
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal

from graphnorm.errors import GraphnormError, require, unknown
from graphnorm.own_code import OwnCode, find_code, parameters_of
from graphnorm.settings import Hyperparameters

__all__ = ["BASELINES", "MODELS", "NORMALIZED", "OFFERED", "PENALTIES", "PYG", "Kernel", "ModelSpec"]
__all__ += ["find_model", "name_model", "register_model"]

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
"""C of the support vector machine that follows a kernel."""
PYG = ("GCN", "GIN", "GAT", "PNA", "GraphSAGE")
"""Models of PyTorch Geometric."""
OFFERED = ("hidden", "layers", "dropout", "readout")
"""Settings that a user's own model gets if it has a parameter of that name."""


@dataclass(frozen=True)
class Kernel:
    """A kernel with several forms (depths, lengths). Each form is tried with every C."""

    forms: tuple[dict[str, Any], ...]
    """The parameters of each form."""

    @property
    def candidates(self) -> list[dict[str, Any]]:
        """Every form with every C; a protocol chooses among them.

        >>> kernel = Kernel(({"depth": 0}, {"depth": 1}))
        >>> kernel.candidates[0], len(kernel.candidates)
        ({'depth': 0, 'C': 0.001}, 14)
        """
        return [form | {"C": penalty} for form, penalty in itertools.product(self.forms, PENALTIES)]

    def describe(self, number: int) -> str:
        """A candidate by its number, counted from 1.

        >>> Kernel(({"depth": 0}, {"depth": 1})).describe(14)
        'depth 1, C 1000'
        """
        return ", ".join(f"{key} {value:g}" for key, value in self.candidates[number - 1].items())


@dataclass(frozen=True)
class ModelSpec:
    """A row of the table."""

    name: str
    family: str
    """Its name in papers."""
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


_TABLE_2: dict[str, Any] = {"dropout": 0.5, "weight_decay": 0.0, "lr": 1e-4, "hidden": 300, "seeds": 10}
_TABLE_2_GIN = _TABLE_2 | {"epochs": 25, "batch_size": 128}
_TABLE_2_GCN = _TABLE_2 | {"epochs": 50, "batch_size": 64}
_LEADERBOARD = _TABLE_2_GCN | {"layers": 6, "dropout": 0.1, "batch_size": 128}
_OGB: dict[str, Any] = {"hidden": 300, "layers": 6, "lr": 1e-3, "batch_size": 32, "readout": "mean"}


def _molecular(name: str, family: str, defaults: Mapping[str, Any]) -> ModelSpec:
    """A model of molecules that takes a normalization."""
    activations = 16 if family == "GIN" else 8
    return ModelSpec(name, family, inputs="molecules", normalized=True, defaults=defaults, activations=activations)


def _kernel(name: str, family: str, *forms: dict[str, Any]) -> ModelSpec:
    kernel = Kernel(forms)
    return ModelSpec(name, family, inputs="kernel", kernel=kernel, defaults={"epochs": len(kernel.candidates)})


def _of_others(name: str, family: str, **more: Any) -> ModelSpec:
    """A model called with PyG's arguments; its dropout rate is part of its structure."""
    varied = ("lr", "weight_decay")
    return ModelSpec(name, family, inputs="edges", normalized=True, varied=varied, activations=16, **more)


_SPECS = (
    ModelSpec("gin", "GIN", normalized=True, sums=True),
    ModelSpec("gcn", "GCN", normalized=True, sums=True),
    _molecular("molecular-gin", "GIN", {}),
    _molecular("molecular-gcn", "GCN", {}),
    _molecular("molhiv-gin", "GIN", _TABLE_2_GIN),
    _molecular("molhiv-gcn", "GCN", _TABLE_2_GCN),
    _molecular("molhiv-gin-last-instance", "GIN", _TABLE_2_GIN),
    _molecular("molhiv-gcn-last-instance", "GCN", _TABLE_2_GCN),
    _molecular("molhiv-gcn-leaderboard", "GCN", _LEADERBOARD),
    _kernel("wl", "WL subtree", *({"depth": depth} for depth in range(6))),
    _kernel("awl", "AWL", *({"length": length} for length in range(2, 11))),
    ModelSpec("mlp", "MLP", inputs="pooled", defaults={"hidden": 64, "layers": 3}),
    ModelSpec("dcnn", "DCNN", inputs="pooled", defaults={"layers": 5}),
    ModelSpec("dgcnn", "DGCNN", defaults={"hidden": 32, "layers": 5, "lr": 1e-3}),
    *(
        ModelSpec(
            f"ogb-{family.lower()}{virtual}", family, inputs="molecules", defaults=_OGB, activations=16, messages=True
        )
        for virtual in ("", "-virtual")
        for family in ("GIN", "GCN")
    ),
    *(_of_others(f"pyg:{kind}", kind, defaults={"dropout": 0.0}, ignores=("self_loops", "as_authors")) for kind in PYG),
    ModelSpec("resnet18", "ResNet18", inputs="images"),
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
        return _of_others(name, name.partition("@")[0])
    raise unknown("model", name, MODELS)


def name_model(model: str | os.PathLike[str] | Callable[..., Any]) -> str:
    """The name of a model, after registering a user's own, given by ``FILE.py:NAME`` or as a class or function.

    >>> name_model("gin")
    'gin'
    """
    if hasattr(model, "forward") and not isinstance(model, type):
        raise GraphnormError(
            f"the model is a {type(model).__name__} that is made already", remedy="pass its class, or FILE.py:NAME"
        )
    if not callable(model):
        require("model", model, (str, os.PathLike), "a name, FILE.py:NAME, a class or a function")
        model = os.fspath(model)
        if model in MODELS:
            return model
        if model.casefold().startswith("pyg:") or not (":" in model or model.endswith(".py")):
            raise unknown("model", model, [*NORMALIZED, "FILE.py:NAME"])
    return register_model(find_code(model, "model"))


def register_model(code: OwnCode) -> str:
    """Register a user's own model, and return its name: its place and the digest of its source."""
    name = f"{code.place}@{code.digest}"
    parameters = parameters_of(code.thing, name)
    ignores = (
        "self_loops",
        "as_authors",
        *(option for option in OFFERED if option not in parameters),
    )
    _OWN[name] = _of_others(name, code.place, code=code, ignores=ignores)
    return name
