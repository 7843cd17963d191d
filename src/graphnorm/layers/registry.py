"""Other people's normalizations: any module with the call of one, registered under a name."""

from __future__ import annotations

import importlib
import inspect
import re
import sys
from collections.abc import Callable
from functools import partial
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.errors import GraphnormError, require
from graphnorm.layers.base import Norm
from graphnorm.layers.graph import BUILT_IN, REGISTRY
from graphnorm.segments import Segments, as_segments

__all__ = ["ForeignNorm", "import_norm", "name_factory", "register_norm", "try_norm"]

FACTORY = r"([\w.]+):(\w+)"
"""MODULE:FACTORY."""


def register_norm(name: str, factory: Callable[..., nn.Module]) -> None:
    """Make a normalization known by name, to :func:`make_norm`, to the models and to ``compare``.

    Args:
        name: of letters, digits, ``-``, ``_`` and dots; not one that comes with the package. A name registered before
            is given to the new one.
        factory: called with the number of channels; gives a module that is called as ``module(x, batch, batch_size)``,
            or with the first one or two of these where it takes no more. Where the factory takes ``act``, the
            activation is left to the module, and the residual too where its call takes ``residual``; otherwise they are
            applied around it.

    Models with such a layer are trained in this process and one after another, since nothing is known of the module;
    it never sees a row that belongs to no graph.

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
    """Register what a text names, ``NAME=MODULE:FACTORY``, and give the name; modules may be in the current folder.

    >>> import_norm("torch-layer=torch.nn:LayerNorm")
    'torch-layer'
    >>> del REGISTRY["torch-layer"]
    """
    found = re.fullmatch(rf"([^=]+)={FACTORY}", text)
    if found is None:
        raise GraphnormError(f"{text!r} names no normalization", remedy="write NAME=MODULE:FACTORY")
    name, module, factory = found.groups()
    here = str(Path.cwd())
    sys.path.insert(0, here)
    try:
        imported = importlib.import_module(module)
    except Exception as error:
        why = f"{error}" if isinstance(error, ImportError) else f"{type(error).__name__}: {error}"
        remedy = "run where the module is, or install it" if isinstance(error, ImportError) else "correct it"
        raise GraphnormError(f"{module} cannot be imported: {why}", remedy=remedy) from error
    finally:
        sys.path.remove(here)
    if not hasattr(imported, factory):
        raise GraphnormError(f"the module {module} has no {factory}", remedy="name a class or function of it")
    register_norm(name, getattr(imported, factory))
    return name


def name_factory(name: str) -> str:
    """Where the factory of a registered normalization is, ``MODULE:FACTORY``, as far as a text can name it; else empty.

    >>> register_norm("torch-layer", nn.LayerNorm)
    >>> name_factory("torch-layer"), name_factory("graph")
    ('torch.nn.modules.normalization:LayerNorm', '')
    >>> del REGISTRY["torch-layer"]
    """
    make = REGISTRY.get(name)
    if name in BUILT_IN or not isinstance(make, partial):
        return ""
    factory = make.args[1]
    text = f"{getattr(factory, '__module__', '')}:{getattr(factory, '__qualname__', '')}"
    return text if re.fullmatch(FACTORY, text) and not text.startswith("__main__:") else ""


def try_norm(name: str, channels: int, device: torch.device | str = "cpu") -> None:
    """Call a registered normalization once, with 3 and 2 rows of two graphs and no gradient; refuse one that fails."""
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
    except Exception as error:
        raise GraphnormError(
            f"the normalization {name!r} fails: {called} raised {type(error).__name__}: {error}",
            remedy="correct it; FACTORY(channels) gives a module that is called with x, batch, batch_size",
        ) from error
    if not isinstance(y, Tensor) or y.shape != x.shape:
        found = f"shape {tuple(y.shape)}" if isinstance(y, Tensor) else f"type {type(y).__name__}"
        raise GraphnormError(
            f"the normalization {name!r} fails: {called} gave a result of {found}",
            remedy="return a tensor of the shape of x",
        )


class ForeignNorm(Norm):
    """A module of someone else's, called as the layers here are."""

    def __init__(self, module: nn.Module, in_channels: int, *, act: str | None = None) -> None:
        super().__init__(in_channels, affine=False, act=act)
        self.module = module
        self._takes, self._takes_residual = _accepted(module.forward)

    def reset_parameters(self) -> None:
        """Ask the module to."""
        reset = getattr(self.module, "reset_parameters", None)
        if reset is None:
            raise TypeError(f"{type(self.module).__name__} has no reset_parameters")
        reset()

    def extra_repr(self) -> str:
        """What is applied around the module."""
        return f"act={self.act!r}" if self.act else ""

    def forward(
        self,
        x: Tensor,
        batch: Tensor | Segments | None = None,
        batch_size: int | None = None,
        *,
        residual: Tensor | None = None,
    ) -> Tensor:
        """Call the module with the rows that belong to a graph; the others come out as 0, plus the residual."""
        self._check_width(x)
        segments = as_segments(batch, batch_size)
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
        return self._tail(self.module(*arguments), residual)


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
    return ForeignNorm(module, channels, act=None if takes_act else act)


def _accepted(forward: Callable[..., Any]) -> tuple[int, bool]:
    """How many of (x, batch, batch_size) a module takes, and whether it takes a residual."""
    parameters = inspect.signature(forward).parameters
    kinds = [p.kind for p in parameters.values() if p.name != "residual"]
    if inspect.Parameter.VAR_POSITIONAL in kinds:
        return 3, "residual" in parameters
    positional = (inspect.Parameter.POSITIONAL_ONLY, inspect.Parameter.POSITIONAL_OR_KEYWORD)
    return min(3, sum(kind in positional for kind in kinds)), "residual" in parameters
