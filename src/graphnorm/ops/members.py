"""What operations share so that ``vmap`` can stack them: members are one more dimension of the same launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

__all__ = ["EagerFunction", "vmap_rule"]

Names = dict[str, int | None]
"""An operation's arguments in order: dimensions without members, None for what is not a tensor."""


class EagerFunction(torch.autograd.Function):
    """``autograd.Function`` with a quicker ``apply``."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """``Function.apply``, less its look at the signature at every call, which the functorch transforms need."""
        if torch._C._are_functorch_transforms_active():
            return super().apply(*arguments)  # type: ignore[no-untyped-call]
        return super(torch.autograd.Function, cls).apply(*arguments)  # type: ignore[misc]


def _stack(
    names: Names, shared: Sequence[str], info: Any, dims: Sequence[int | None], arguments: Sequence[Any]
) -> tuple[list[Any], tuple[int, ...]]:
    """All members as one leading dimension, and the shape it unfolds to afterwards.

    A ``vmap`` inside a ``vmap`` arrives with a dimension of members already there; the two become one.
    """
    inner: Sequence[int] = ()
    for base, dim, value in zip(names.values(), dims, arguments, strict=True):
        if base is not None and value is not None:
            shape = value.shape if dim is None else value.movedim(dim, 0).shape[1:]
            inner = max(inner, shape[: max(0, len(shape) - base)], key=len)
    lead = (info.batch_size, *inner)
    stacked = []
    for (name, base), dim, value in zip(names.items(), dims, arguments, strict=True):
        if base is not None and value is not None and not (name in shared and dim is None and value.dim() == base):
            value = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
            while value.dim() < len(lead) + base:
                value = value.unsqueeze(1)
            value = value.expand(*lead, *value.shape[len(lead) :]).flatten(0, len(lead) - 1)
        stacked.append(value)
    return stacked, lead


def _unstack(output: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Without features there is no dimension of members to unfold."""
    return output.reshape(*lead, *output.shape[1:]) if output.dim() > 1 or output.numel() else output.expand(*lead, 0)


def vmap_rule(apply: Callable[..., Any], names: Names, shared: Sequence[str]) -> Callable[..., Any]:
    """The ``vmap`` of a function whose arguments may have a leading dimension of members.

    names: its arguments.
    shared: those that need not be repeated for every member.
    """

    def rule(info: Any, dims: Sequence[int | None], *arguments: Any) -> Any:
        stacked, lead = _stack(names, shared, info, dims, arguments)
        outputs = apply(*stacked)
        if isinstance(outputs, Tensor):
            return _unstack(outputs, lead), 0
        return tuple(_unstack(t, lead) for t in outputs), (0,) * len(outputs)

    return rule
