"""Which kernels a tensor gets: chosen by its device, or by ``with graphnorm.backend(...)``."""

from __future__ import annotations

import importlib
import os
from functools import cache
from types import ModuleType

from torch import Tensor
from torch._subclasses.fake_tensor import FakeTensor

from graphnorm.ops.aggregate import cpu, reference
from graphnorm.switches import chosen_backend


@cache
def _triton() -> ModuleType | None:
    """The Triton kernels, imported when a GPU tensor first comes by; None where Triton is not installed."""
    try:
        return importlib.import_module("graphnorm.ops.aggregate.gpu")
    except ImportError:
        return None


def kernels_for(features: Tensor, rows: int) -> ModuleType:
    """A module with ``forward`` and ``backward`` as in :mod:`graphnorm.ops.aggregate.reference`."""
    name = chosen_backend()
    if name == "reference" or features.numel() == 0 or rows == 0 or isinstance(features, FakeTensor):
        return reference
    if name == "auto":
        if features.is_cuda:
            return _triton() or reference
        return cpu if cpu.available(features) else reference
    if name == "cpu":
        if not cpu.available(features):
            raise RuntimeError(
                f"backend 'cpu' cannot run a {features.dtype} tensor on {features.device}: it needs a CPU tensor and "
                "the C library, which is built at installation where a compiler is found "
                "(pip install --force-reinstall graphnorm)"
            )
        return cpu
    gpu = _triton()
    if gpu is None or not (features.is_cuda or os.environ.get("TRITON_INTERPRET") == "1"):
        raise RuntimeError(
            f"backend 'triton' cannot run a tensor on {features.device}: it needs Triton (pip install triton) and a "
            "GPU, or TRITON_INTERPRET=1 in the environment for Triton's interpreter"
        )
    return gpu
