"""Layers by name: those of the package, and custom ones that users register."""

from __future__ import annotations

import difflib
import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.errors import GraphnormError, require
from graphnorm.layers.base import Norm
from graphnorm.layers.batch import AlphaBatchNorm, BatchNorm, DetachedBatchNorm, RunningBatchNorm
from graphnorm.layers.channels import LayerNorm, RMSNorm
from graphnorm.layers.graph import GraphNorm, GraphSizeNorm, InstanceNorm, NoNorm
from graphnorm.layers.other_papers import DiffGroupNorm, MeanSubtractionNorm, MessageNormOfResidual, PairNorm
from graphnorm.own_code import EditedError, OwnCode, find_code
from graphnorm.segments import Segments

__all__ = [
    "BUILT_IN",
    "REGISTRY",
    "CustomNorm",
    "find_norm",
    "import_norm",
    "make_norm",
    "norm_code",
    "register_norm",
    "try_norm",
]


def _of_width(kind: Callable[..., Norm], channels: int, **options: Any) -> Norm:
    """A layer that takes any number of channels, told to refuse other ones."""
    norm = kind(**options)
    norm.in_channels = channels
    return norm


REGISTRY: dict[str, Callable[..., Norm]] = {
    "none": NoNorm,
    "layer": partial(LayerNorm, mode="node"),
    "batch": BatchNorm,
    "instance": lambda channels, **options: InstanceNorm(channels, **{"affine": True, **options}),
    "graph": GraphNorm,
    "batch-alpha": AlphaBatchNorm,
    "batch-running": RunningBatchNorm,
    "batch-detached": DetachedBatchNorm,
    "size": partial(_of_width, GraphSizeNorm),
    "rms": RMSNorm,
    "pair": partial(_of_width, PairNorm),
    "mean-subtraction": partial(_of_width, MeanSubtractionNorm),
    "message": MessageNormOfResidual,
    "diff-group": DiffGroupNorm,
}
"""The layers by name: those of the paper, as its experiments call them, and those of other papers."""

BUILT_IN = frozenset(REGISTRY)
"""The names that come with the package; :func:`register_norm` adds others."""


def make_norm(name: str, channels: int, **options: Any) -> Norm:
    """A layer by name: ``"graph"``, ``"instance"``, ``"batch"``, ``"layer"``, ``"none"``, ``"batch-alpha"``,
    ``"batch-running"``, ``"batch-detached"``, ``"size"``, ``"rms"``, ``"pair"``, ``"mean-subtraction"``, ``"message"``,
    ``"diff-group"``, or one registered by :func:`graphnorm.register_norm`.

    >>> make_norm("graph", 64)
    GraphNorm(64, eps=1e-05)
    """
    return find_norm(name)(channels, **options)


def find_norm(name: str) -> Callable[..., Norm]:
    """The factory of a layer, called with the number of channels."""
    known = f"The known ones are {', '.join(REGISTRY)}."
    if not isinstance(name, str):
        raise TypeError(f"name must be that of a normalization, got {name!r}. {known}")
    if name not in REGISTRY:
        near = difflib.get_close_matches(name.lower(), REGISTRY, n=1)
        hint = f"; did you mean {near[0]!r}?" if near else "."
        raise ValueError(f"unknown normalization {name!r}{hint} {known}")
    return REGISTRY[name]


# ---- custom norms ----------------------------------------------------------------------------------------------


def register_norm(name: str, factory: Callable[..., nn.Module]) -> None:
    """Register a normalization under a name, for :func:`make_norm`, the models and ``compare``.

    Args:
        name: letters, digits, ``-``, ``_`` and dots; not one that comes with the package. A name registered before
            is replaced.
        factory: called with the number of channels; returns a module. That is called as ``module(x, batch,
            batch_size)``, or with the first one or two of these if it takes no more. If the factory takes ``act``, the
            activation is left to the module, and so is the residual if its call takes ``residual``; otherwise they are
            applied around it.

    Models with such a layer are trained in this process and one after another, since it is not known whether the module
    can be stacked. It never sees a row that belongs to no graph.

    >>> register_norm("torch-layer", nn.LayerNorm)
    >>> from graphnorm import make_norm
    >>> make_norm("torch-layer", 4, act="relu")(torch.randn(5, 4)).shape
    torch.Size([5, 4])
    >>> del REGISTRY["torch-layer"]
    """
    require("name", name, str, "a text")
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, flags=re.ASCII):
        raise GraphnormError(f"{name!r} cannot name a normalization", remedy="use letters, digits, '-', '_' and '.'")
    if name in BUILT_IN:
        raise GraphnormError(f"{name!r} is a normalization of this package", remedy="choose another name")
    if not callable(factory):
        raise GraphnormError(f"the factory of {name!r} cannot be called", remedy="pass a class or a function")
    REGISTRY[name] = partial(_make, name, factory)


def import_norm(text: str) -> str:
    """Register ``NAME=FILE.py:FACTORY`` or ``NAME=MODULE:FACTORY`` and return the name.

    >>> import_norm("torch-layer=torch.nn:LayerNorm")
    'torch-layer'
    >>> del REGISTRY["torch-layer"]
    """
    name, equals, place = text.partition("=")
    if not equals or ":" not in place:
        raise GraphnormError(f"{text!r} names no normalization", remedy="write NAME=FILE.py:FACTORY")
    register_norm(name, find_code(place, "normalization").thing)
    return name


def norm_code(name: str) -> OwnCode | None:
    """The code of a registered normalization; None for one of this package, or without source."""
    make = REGISTRY.get(name)
    if name in BUILT_IN or not isinstance(make, partial):
        return None
    try:
        return find_code(make.args[1], "normalization")
    except EditedError:
        raise
    except GraphnormError:  # a lambda, for example
        return None


def try_norm(name: str, channels: int, device: torch.device | str = "cpu") -> None:
    """Call a custom normalization once, on two graphs of 3 and 2 rows, without gradient; raise an error if it fails."""
    if name in BUILT_IN:
        return
    called = f"its factory, with {channels} channels,"
    sizes = torch.tensor([3, 2], device=device)
    try:
        with torch.random.fork_rng(devices=[]), torch.no_grad():
            norm = REGISTRY[name](channels, act="relu").to(device)
            called = f"its module, with x of shape (5, {channels}) and two graphs,"
            x = torch.linspace(-1, 1, 5 * channels, device=device).view(5, channels)
            y = norm(x, Segments(sizes=sizes))
    except GraphnormError:
        raise
    except (Exception, SystemExit) as error:
        raise GraphnormError(
            f"the normalization {name!r} fails: {called} raised {type(error).__name__}: {error}",
            remedy="correct it; FACTORY(channels) gives a module that is called with x, batch, batch_size",
        ) from error
    if not isinstance(y, Tensor) or y.shape != x.shape or y.dtype != x.dtype:
        found = f"shape {tuple(y.shape)} and type {y.dtype}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
        raise GraphnormError(
            f"the normalization {name!r} fails: {called} gave a result of {found}",
            remedy="return a tensor of the shape and type of x",
        )


class CustomNorm(Norm):
    """Any module, called like a layer of this package."""

    counts_graphs = True

    def __init__(self, module: nn.Module, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)
        self.module = module
        self._takes, self._takes_residual = _accepted(module.forward)

    def reset_parameters(self) -> None:
        reset = getattr(self.module, "reset_parameters", None)
        if reset is None:
            raise TypeError(f"{type(self.module).__name__} has no reset_parameters")
        reset()

    def extra_repr(self) -> str:
        return f"act={self.act!r}" if self.act else ""

    def _normalize(self, x: Tensor, segments: Segments | None, residual: Tensor | None) -> Tensor:
        """Call the module with the rows that belong to a graph; the others are 0, plus the residual."""
        if segments is None:
            return self._call(x, (None, None), residual)
        rows = x.shape[0]
        if segments.order is None and segments.may_pad:
            rows = int(segments.ptr[-1])
        arguments = (segments.ids(x.shape[0])[:rows].long(), segments.num_graphs)
        y = self._call(x[:rows], arguments, None if residual is None else residual[:rows])
        if rows == x.shape[0]:
            return y
        rest = x.new_zeros(x.shape[0] - rows, x.shape[1]) if residual is None else residual[rows:]
        return torch.cat([y, rest])

    def _call(self, x: Tensor, graphs: tuple[Any, Any], residual: Tensor | None) -> Tensor:
        arguments = (x, *graphs)[: self._takes]
        if self._takes_residual and self.act is None:  # an activation around it comes before the residual
            out: Tensor = self.module(*arguments, residual=residual)
            return out
        return self._finish(self.module(*arguments), residual)


def _make(
    name: str, factory: Callable[..., nn.Module], channels: int, *, act: str | None = None, **options: Any
) -> Norm:
    takes_act = "act" in inspect.signature(factory).parameters
    module = factory(channels, act=act, **options) if takes_act else factory(channels, **options)
    if not isinstance(module, nn.Module):
        raise GraphnormError(
            f"the factory of the normalization {name!r} gave a {type(module).__name__}", remedy="return a torch module"
        )
    if isinstance(module, Norm) and (takes_act or act is None):
        return module
    return CustomNorm(module, channels, act=None if takes_act else act)


def _accepted(forward: Callable[..., Any]) -> tuple[int, bool]:
    """How many of (x, batch, batch_size) a module takes, and whether it takes a residual."""
    parameters = inspect.signature(forward).parameters
    kinds = [p.kind for p in parameters.values() if p.name != "residual"]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 3, "residual" in parameters
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(3, sum(kind in positional for kind in kinds)), "residual" in parameters
