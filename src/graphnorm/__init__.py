"""Normalization for graph neural networks: drop-in layers at memory speed, and a bench to choose between them.

What needs torch, or more, is imported when it is first asked for: the command line answers at once.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from graphnorm._version import __version__

if TYPE_CHECKING:
    from graphnorm.adjacency import Adjacency
    from graphnorm.backends import backend, debug
    from graphnorm.layers import functional
    from graphnorm.layers.base import Norm
    from graphnorm.layers.batch import AlphaBatchNorm, BatchNorm, DetachedBatchNorm, RunningBatchNorm
    from graphnorm.layers.convert import convert_norms
    from graphnorm.layers.graph import GraphNorm, GraphSizeNorm, InstanceNorm, LayerNorm, NoNorm, make_norm
    from graphnorm.layers.other_papers import DiffGroupNorm, MeanSubtractionNorm, MessageNorm, PairNorm
    from graphnorm.layers.registry import register_norm
    from graphnorm.segments import Segments
    from graphnorm.study import Result, compare, search
    from graphnorm.training.model_file import load_model, save_model

_WHERE = {
    "adjacency": ("Adjacency",),
    "backends": ("backend", "debug"),
    "layers.base": ("Norm",),
    "layers.batch": ("AlphaBatchNorm", "BatchNorm", "DetachedBatchNorm", "RunningBatchNorm"),
    "layers.convert": ("convert_norms",),
    "layers.graph": ("GraphNorm", "GraphSizeNorm", "InstanceNorm", "LayerNorm", "NoNorm", "make_norm"),
    "layers.other_papers": ("DiffGroupNorm", "MeanSubtractionNorm", "MessageNorm", "PairNorm"),
    "layers.registry": ("register_norm",),
    "segments": ("Segments",),
    "study": ("Result", "compare", "search"),
    "training.model_file": ("load_model", "save_model"),
}
_MODULES = {name: f"{__name__}.{module}" for module, names in _WHERE.items() for name in names}

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
]


def __getattr__(name: str) -> Any:
    if name == "functional":
        found: Any = import_module(f"{__name__}.layers.functional")
    elif name in _MODULES:
        found = getattr(import_module(_MODULES[name]), name)
    else:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    globals()[name] = found  # the next time it is there
    return found


def __dir__() -> list[str]:
    return sorted(__all__)
