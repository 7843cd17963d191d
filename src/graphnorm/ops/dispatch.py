"""Which kernels a tensor gets: by its device, or as ``with graphnorm.backend(...)`` says."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterable
from functools import cache
from types import ModuleType
from typing import Any, NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import chosen_backend, has_c_kernel, interpreted, library, triton_kernels

__all__ = ["Kernels", "choose_kernels", "is_plain", "optional_triton_kernels"]


class Kernels(NamedTuple):
    """One implementation of an operation and its gradient. A module with these two functions will do as well."""

    forward: Callable[..., Any]
    backward: Callable[..., Any]


def optional_triton_kernels(module: str, features: Tensor) -> ModuleType | None:
    """The Triton kernels for these features, or ``None``: of an operation whose alternative is plain torch."""
    name = chosen_backend()
    wanted = (features.is_cuda and name in ("auto", "triton")) or (name == "triton" and interpreted())
    return triton_kernels(module) if wanted else None


def is_plain(*tensors: Any) -> bool:
    """Whether kernels can read these tensors' memory; what is no tensor has none.

    A tensor subclass may wrap another tensor and have no memory itself, and the sign of a negative view is not in it.
    """
    for tensor in tensors:
        kind = type(tensor)
        if kind is Tensor or kind is torch.nn.Parameter:
            if tensor.is_neg():
                return False
        elif isinstance(tensor, Tensor):
            return False
    return True


@cache
def _warn_of_plain_torch() -> None:
    warnings.warn(
        "graphnorm was installed without its C library, so layers on a CPU are several times slower; install a C "
        "compiler, then pip install --force-reinstall graphnorm",
        stacklevel=2,
    )


def choose_kernels(
    features: Tensor, results: int, reference: Any, cpu: Any, triton_module: str, others: Iterable[Any] = ()
) -> Any:
    """One of an operation's three implementations.

    Args:
        features: the tensor that decides.
        results: the number of rows or graphs of the result. Without any, as without features, nothing is launched.
        reference: the implementation in plain torch.
        cpu: the one by the C library.
        triton_module: the name of the module with the one for GPUs.
        others: the operation's other arguments. If one is not a plain tensor, the reference is taken.
    """
    name = chosen_backend()
    if name == "reference" or features.numel() == 0 or results == 0 or not is_plain(features, *others):
        return reference
    if name == "auto":
        if features.is_cuda:
            return triton_kernels(triton_module) or reference
        if features.is_cpu and library is None:
            _warn_of_plain_torch()
        return cpu if has_c_kernel(features) else reference
    if name == "cpu":
        if not has_c_kernel(features):
            raise RuntimeError(
                f"backend 'cpu' cannot run a {features.dtype} tensor on {features.device}: it needs a CPU tensor "
                "and the C library, which is built at installation where a compiler is found "
                "(pip install --force-reinstall graphnorm)"
            )
        return cpu
    gpu = triton_kernels(triton_module)
    if gpu is None or not (features.is_cuda or interpreted()):
        raise RuntimeError(
            f"backend 'triton' cannot run a tensor on {features.device}: it needs Triton (pip install triton) and "
            "a GPU, or TRITON_INTERPRET=1 in the environment for Triton's interpreter"
        )
    return gpu
