"""Normalization for graph neural networks: drop-in layers at memory speed, and a bench to choose between them.

Names that need torch are imported at their first use, so that the command line starts quickly.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphnorm._version import __version__

if TYPE_CHECKING:
    from graphnorm.adjacency import Adjacency
    from graphnorm.backends import backend, debug
    from graphnorm.layers import (
        AlphaBatchNorm,
        BatchNorm,
        DetachedBatchNorm,
        DiffGroupNorm,
        GraphNorm,
        GraphSizeNorm,
        GroupNorm,
        HeteroBatchNorm,
        HeteroLayerNorm,
        InstanceNorm,
        LayerNorm,
        MeanSubtractionNorm,
        MessageNorm,
        NoNorm,
        Norm,
        PairNorm,
        RMSNorm,
        RunningBatchNorm,
        convert_norms,
        functional,
        make_norm,
        register_norm,
        use_batch,
    )
    from graphnorm.segments import Segments
    from graphnorm.study import Result, compare, search
    from graphnorm.training.model_file import load_model, save_model

_WHERE = {
    "Adjacency": "adjacency",
    "Segments": "segments",
    **dict.fromkeys(("backend", "debug"), "backends"),
    **dict.fromkeys(("Result", "compare", "search"), "study"),
    **dict.fromkeys(("load_model", "save_model"), "training.model_file"),
}
"""The module of each name; all others are in ``layers``."""

__all__ = [
    "Adjacency",
    "AlphaBatchNorm",
    "BatchNorm",
    "DetachedBatchNorm",
    "DiffGroupNorm",
    "GraphNorm",
    "GraphSizeNorm",
    "GroupNorm",
    "HeteroBatchNorm",
    "HeteroLayerNorm",
    "InstanceNorm",
    "LayerNorm",
    "MeanSubtractionNorm",
    "MessageNorm",
    "NoNorm",
    "Norm",
    "PairNorm",
    "RMSNorm",
    "Result",
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
    "search",
    "use_batch",
]


def __getattr__(name: str) -> Any:
    if name not in __all__:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    found = getattr(import_module(f"{__name__}.{_WHERE.get(name, 'layers')}"), name)
    globals()[name] = found  # not looked up again
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
