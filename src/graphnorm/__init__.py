"""Normalization for graph neural networks: drop-in layers at memory speed, and a bench to choose between them."""

from typing import TYPE_CHECKING, Any

from graphnorm import starting  # noqa: F401  # isort: skip  # before torch
from graphnorm._version import __version__
from graphnorm.adjacency import Adjacency
from graphnorm.backends import backend, debug
from graphnorm.layers import (
    AlphaBatchNorm,
    BatchNorm,
    DetachedBatchNorm,
    DiffGroupNorm,
    GraphNorm,
    GraphSizeNorm,
    InstanceNorm,
    LayerNorm,
    MeanSubtractionNorm,
    MessageNorm,
    NoNorm,
    Norm,
    PairNorm,
    RunningBatchNorm,
    convert_norms,
    functional,
    make_norm,
    register_norm,
)
from graphnorm.segments import Segments

__all__ = [
    "Adjacency",
    "AlphaBatchNorm",
    "BatchNorm",
    "DetachedBatchNorm",
    "DiffGroupNorm",
    "GraphNorm",
    "GraphSizeNorm",
    "InstanceNorm",
    "LayerNorm",
    "MeanSubtractionNorm",
    "MessageNorm",
    "NoNorm",
    "Norm",
    "PairNorm",
    "RunningBatchNorm",
    "Segments",
    "__version__",
    "backend",
    "compare",
    "convert_norms",
    "debug",
    "functional",
    "load_model",
    "make_norm",
    "register_norm",
    "save_model",
]

_ELSEWHERE = {
    "compare": "graphnorm.comparison",
    "load_model": "graphnorm.training.model_file",
    "save_model": "graphnorm.training.model_file",
}
"""What needs more than torch is imported when it is first asked for."""

if TYPE_CHECKING:
    from graphnorm.comparison import compare
    from graphnorm.training.model_file import load_model, save_model
else:

    def __getattr__(name: str) -> Any:
        if name not in _ELSEWHERE:
            raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
        from importlib import import_module

        return getattr(import_module(_ELSEWHERE[name]), name)


def __dir__() -> list[str]:
    return sorted(__all__)
