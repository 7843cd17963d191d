"""Tensors that belong to something under way: a transformation of :mod:`torch.func`, a compilation, a recording."""

from __future__ import annotations

from collections.abc import Callable
from typing import TypeVar

import torch
from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

__all__ = ["is_passing", "is_wrapped", "lastingly", "may_keep", "of_inference"]

Made = TypeVar("Made")


def is_wrapped(tensor: Tensor) -> bool:
    """Whether reading values is impossible: a tensor inside vmap, or without data."""
    if torch.compiler.is_compiling():
        return False  # the compiler cannot look into this question; it is asked separately
    wrapped = torch._C._functorch.is_functorch_wrapped_tensor(tensor)
    return wrapped or tensor.is_meta or isinstance(tensor, FakeTensor)


def is_passing(tensor: Tensor) -> bool:
    """Whether a tensor may not outlive what is under way, so that it must not be kept, and often not be read."""
    return torch.compiler.is_compiling() or is_wrapped(tensor)


def may_keep(own: Tensor, made: Tensor) -> bool:
    """Whether an object that consists of ``own`` may keep what it has made of it.

    Inside vmap it may if it was made there: it ends with it. While a CUDA graph is recorded it may only then, since the
    memory is the graph's.
    """
    if torch.compiler.is_compiling():
        return False
    if torch._C._functorch.is_functorch_wrapped_tensor(own):
        return True
    capturing = made.is_cuda and torch.cuda.is_current_stream_capturing()
    return not (capturing or is_wrapped(made))


def lastingly(make: Callable[..., Made], *arguments: object) -> Made:
    """``make(*arguments)``; in inference mode with ordinary tensors, which serve training afterwards."""
    if torch.compiler.is_compiling() or not torch.is_inference_mode_enabled():
        return make(*arguments)
    with torch._C._InferenceMode(False):
        return make(*arguments)


def of_inference(tensor: Tensor) -> bool:
    """Whether a tensor was made in inference mode, and so is of no use to training."""
    return not torch.compiler.is_compiling() and tensor.is_inference()
