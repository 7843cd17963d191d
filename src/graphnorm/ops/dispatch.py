"""Which kernels a tensor gets: chosen by its device, or by ``with graphnorm.backend(...)``."""

from __future__ import annotations

import importlib
import os
from collections.abc import Callable
from functools import cache
from types import ModuleType

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from graphnorm.backends import chosen_backend

__all__ = ["chooser", "triton_kernels", "triton_kernels_for"]


@cache
def triton_kernels(operation: str) -> ModuleType | None:
    """An operation's Triton kernels, imported when a GPU tensor first comes by; None where Triton is not installed."""
    try:
        return importlib.import_module(f"{operation}.gpu")
    except ImportError:
        return None


def triton_kernels_for(operation: str, features: Tensor) -> ModuleType | None:
    """The Triton kernels of an operation that has a plain way beside them; None where that is to be taken.

    That is everywhere but on a GPU, and in Triton's interpreter where ``backend("triton")`` asks for it.
    """
    interpreted = chosen_backend() == "triton" and os.environ.get("TRITON_INTERPRET") == "1"
    on_gpu = features.is_cuda and chosen_backend() in ("auto", "triton")
    return triton_kernels(operation) if on_gpu or interpreted else None


def chooser(cpu: ModuleType, reference: ModuleType) -> Callable[[Tensor, int], ModuleType]:
    """From an operation's C and plain kernels (its Triton ones lie beside them, in ``gpu``) to its choice.

    The choice takes the features and the number of results, rows or graphs, and gives a module with ``forward`` and
    ``backward`` as in ``reference``. With no features or no results there is nothing to launch.
    """
    operation = reference.__name__.rpartition(".")[0]

    def kernels_for(features: Tensor, results: int) -> ModuleType:
        name = chosen_backend()
        if name == "reference" or features.numel() == 0 or results == 0 or isinstance(features, FakeTensor):
            return reference
        if name == "auto":
            if features.is_cuda:
                return triton_kernels(operation) or reference
            return cpu if cpu.available(features) else reference
        if name == "cpu":
            if not cpu.available(features):
                raise RuntimeError(
                    f"backend 'cpu' cannot run a {features.dtype} tensor on {features.device}: it needs a CPU tensor "
                    "and the C library, which is built at installation where a compiler is found "
                    "(pip install --force-reinstall graphnorm)"
                )
            return cpu
        gpu = triton_kernels(operation)
        if gpu is None or not (features.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"):
            raise RuntimeError(
                f"backend 'triton' cannot run a tensor on {features.device}: it needs Triton (pip install triton) and "
                "a GPU, or TRITON_INTERPRET=1 in the environment for Triton's interpreter"
            )
        return gpu

    return kernels_for
