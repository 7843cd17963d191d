"""Tensors whose values cannot be read: inside a ``torch.func`` transform, a compilation, a CUDA graph."""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = [
    "can_read_values",
    "is_abstract",
    "is_exporting",
    "is_inference_tensor",
    "may_cache",
    "outside_inference_mode",
    "register_operator",
]

T = TypeVar("T")


def is_abstract(tensor: Tensor) -> bool:
    """Whether a tensor has no values to read: inside ``vmap`` or ``grad``, on the meta device, or fake.

    Always False while compiling, where the compiler cannot answer; ask :func:`can_read_values` there.
    """
    if torch.compiler.is_compiling():
        return False
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped or tensor.is_meta or isinstance(tensor, FakeTensor)


def can_read_values(tensor: Tensor) -> bool:
    """Whether code may look at a tensor's values now: it is not being compiled, and the tensor is not abstract."""
    return not (torch.compiler.is_compiling() or is_abstract(tensor))


def is_exporting() -> bool:
    """Whether a program is being exported.

    Before torch 2.13 ``torch.compiler.is_exporting`` is true in every compilation.
    """
    return torch.compiler._is_exporting_flag


def may_cache(source: Tensor, result: Tensor) -> bool:
    """Whether an object that holds ``source`` may keep a ``result`` computed from it for later calls.

    An object made inside a ``torch.func`` transform may: it ends with the transform. Any other may not keep an
    abstract result, nor one made while a CUDA graph is captured, whose memory belongs to the graph. None may while
    compiling.
    """
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(source):
        return True
    capturing = result.is_cuda and torch.cuda.is_current_stream_capturing()
    return not (capturing or is_abstract(result))


def outside_inference_mode(make: Callable[..., T], *arguments: object) -> T:
    """``make(*arguments)`` with ordinary tensors even in inference mode, so that training can use them afterwards."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return make(*arguments)
    with torch._C._InferenceMode(False):
        return make(*arguments)


def is_inference_tensor(tensor: Tensor) -> bool:
    """Whether a tensor was made in inference mode, so that autograd cannot save it."""
    return not torch.compiler.is_compiling() and tensor.is_inference()


_operators = torch.library.Library("graphnorm", "FRAGMENT")  # type: ignore[no-untyped-call]


def register_operator(
    schema: str, fake: Callable[..., Any], *, cpu: Callable[..., Any], gpu: Callable[..., Any] | None = None
) -> None:
    """Make ``torch.ops.graphnorm.NAME``, opaque to compilers and without a gradient.

    ``torch.library.custom_op`` does more, and adds 80 µs to a call.
    """
    name = schema.partition("(")[0]
    _operators.define(schema, tags=(torch.Tag.pt2_compliant_tag, torch.Tag.flexible_layout))  # type: ignore[no-untyped-call]
    for key, run in (("CPU", cpu), ("CUDA", gpu)):
        if run is not None:
            _operators.impl(name, run, key)  # type: ignore[no-untyped-call]
    torch.library.register_fake(f"graphnorm::{name}", fake, lib=_operators)
