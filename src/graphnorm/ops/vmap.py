"""What operations share so that ``vmap`` can stack them: members are one more dimension of the same launch."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import Any

import torch
from torch import Tensor

try:  # none of these names is promised to stay
    from torch._C import _functorch as functorch
    from torch._functorch.autograd_function import VmapInfo
    from torch._functorch.pyfunctorch import temporarily_pop_interpreter_stack

    _NEEDED = ("CVmapInterpreterPtr", "TransformType", "_add_batch_dim", "_unwrap_batched", "peek_interpreter_stack")
    _SHORTER = all(hasattr(functorch, name) for name in (*_NEEDED, "unwrap_if_dead"))
except ImportError:
    _SHORTER = False

__all__ = ["EagerFunction", "vmap_rule"]

Names = dict[str, int | None]
"""An operation's arguments in order: dimensions without members, None for what is not a tensor."""


class EagerFunction(torch.autograd.Function):
    """``autograd.Function`` with a quicker ``apply``; a subclass has a rule for ``vmap`` of its own."""

    @classmethod
    def apply(cls, *arguments: Any) -> Any:
        """``Function.apply``, less what a function with a fixed number of flat arguments does not need: a look at its
        signature at every call and, under ``vmap``, its arguments as trees."""
        if not torch._C._are_functorch_transforms_active():
            return super(torch.autograd.Function, cls).apply(*arguments)  # type: ignore[misc]
        transform = functorch.peek_interpreter_stack() if _SHORTER else None
        if transform is None or transform.key() != functorch.TransformType.Vmap:
            return super().apply(*arguments)  # type: ignore[no-untyped-call]
        return cls._apply_to_members(functorch.CVmapInterpreterPtr(transform), transform.level(), arguments)

    @classmethod
    def _apply_to_members(cls, transform: Any, level: int, arguments: Sequence[Any]) -> Any:
        """What torch's ``custom_function_call_vmap`` does, for flat arguments."""
        pairs = [_unwrap(value, level) for value in arguments]
        dims = tuple(dim for _, dim in pairs)
        with temporarily_pop_interpreter_stack():
            if dims.count(None) == len(dims):
                return cls.apply(*arguments)
            rule: Any = cls.vmap
            found, at = rule(VmapInfo(transform.batchSize(), "error"), dims, *(value for value, _ in pairs))
        if isinstance(found, Tensor):
            return functorch._add_batch_dim(found, at, level)
        return tuple(functorch._add_batch_dim(output, dim, level) for output, dim in zip(found, at, strict=True))


def _unwrap(value: Any, level: int) -> tuple[Any, int | None]:
    """A tensor without the members' dimension of this level, and where that was."""
    if not isinstance(value, Tensor):
        return value, None
    pair: tuple[Tensor, int | None] = functorch._unwrap_batched(functorch.unwrap_if_dead(value), level)
    return pair


def _stack(
    names: Names, shared: Sequence[str], info: Any, dims: Sequence[int | None], arguments: Sequence[Any]
) -> tuple[Sequence[Any], tuple[int, ...]]:
    """All members as one leading dimension, and the shape it unfolds to afterwards.

    A ``vmap`` inside a ``vmap`` arrives with a dimension of members already there; the two become one.
    """
    entries = list(zip(names.items(), dims, arguments, strict=True))
    if all(_is_ready(base, name in shared, dim, value) for (name, base), dim, value in entries):
        return arguments, (info.batch_size,)
    inner: Sequence[int] = ()
    for (_, base), dim, value in entries:
        if base is not None and value is not None:
            shape = value.shape if dim is None else value.movedim(dim, 0).shape[1:]
            inner = max(inner, shape[: max(0, len(shape) - base)], key=len)
    lead = (info.batch_size, *inner)
    stacked = []
    for (name, base), dim, value in entries:
        if base is not None and value is not None and not (name in shared and dim is None and value.dim() == base):
            value = value.unsqueeze(0) if dim is None else value.movedim(dim, 0)
            while value.dim() < len(lead) + base:
                value = value.unsqueeze(1)
            value = value.expand(*lead, *value.shape[len(lead) :]).flatten(0, len(lead) - 1)
        stacked.append(value)
    return stacked, lead


def _is_ready(base: int | None, shared: bool, dim: int | None, value: Any) -> bool:
    """Whether an argument has its members in front already, or needs none."""
    if base is None or value is None:
        return True
    return bool(dim == 0 and value.dim() == base + 1) or (shared and dim is None and value.dim() == base)


def _unstack(output: Tensor, lead: tuple[int, ...]) -> Tensor:
    """Without features there is no dimension of members to unfold."""
    if len(lead) == 1 and output.dim() > 1:
        return output
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
