"""Other people's normalizations: any module with the call of one, registered under a name."""

from __future__ import annotations

import inspect
import re
from collections.abc import Callable
from functools import partial
from typing import Any

import torch
from torch import Tensor, nn

from graphnorm.errors import GraphnormError
from graphnorm.norm import Norm, as_segments
from graphnorm.norms import BUILT_IN, REGISTRY
from graphnorm.segments import Segments

__all__ = ["ForeignNorm", "register_norm"]


def register_norm(name: str, factory: Callable[..., nn.Module]) -> None:
    """Make a normalization known by name, to :func:`make_norm`, to the models and to ``compare``.

    Args:
        name: of letters, digits, ``-``, ``_`` and dots; not one that comes with the package. A name registered before
            is given to the new one.
        factory: called with the number of channels; gives a module that is called as ``module(x, batch, batch_size)``,
            or with the first one or two of these where it takes no more. Where it is a :class:`Norm`, or the factory
            takes ``act`` and the module ``residual``, these are left to it; otherwise they are applied around it.

    Models with such a layer are trained in this process and one after another, since nothing is known of the module;
    it never sees a row that belongs to no graph.

    >>> register_norm("torch-layer", nn.LayerNorm)
    >>> from graphnorm import make_norm
    >>> make_norm("torch-layer", 4, act="relu")(torch.randn(5, 4)).shape
    torch.Size([5, 4])
    >>> del REGISTRY["torch-layer"]
    """
    if not re.fullmatch(r"[A-Za-z0-9][\w.-]*", name, flags=re.ASCII):
        raise GraphnormError(f"{name!r} cannot name a normalization", remedy="use letters, digits, '-', '_' and '.'")
    if name in BUILT_IN:
        raise GraphnormError(f"{name!r} is a normalization of this package", remedy="choose another name")
    if not callable(factory):
        raise GraphnormError(f"the factory of {name!r} cannot be called", remedy="pass a class or a function")
    REGISTRY[name] = partial(_make, name, factory)


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
        if self._takes_residual:
            out: Tensor = self.module(*arguments, residual=residual)
            return self._tail(out, None)
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
