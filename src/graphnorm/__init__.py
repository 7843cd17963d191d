"""Normalization for graph neural networks: drop-in layers at memory speed, and a bench to choose between them."""

from graphnorm import functional
from graphnorm._version import __version__
from graphnorm.adjacency import Adjacency
from graphnorm.batch_norms import AlphaBatchNorm, BatchNorm, DetachedBatchNorm, RunningBatchNorm
from graphnorm.conversion import convert_norms
from graphnorm.norm import Norm
from graphnorm.norms import GraphNorm, GraphSizeNorm, InstanceNorm, LayerNorm, NoNorm, make_norm
from graphnorm.segments import Segments
from graphnorm.switches import backend, debug

__all__ = [
    "Adjacency",
    "AlphaBatchNorm",
    "BatchNorm",
    "DetachedBatchNorm",
    "GraphNorm",
    "GraphSizeNorm",
    "InstanceNorm",
    "LayerNorm",
    "NoNorm",
    "Norm",
    "RunningBatchNorm",
    "Segments",
    "__version__",
    "backend",
    "convert_norms",
    "debug",
    "functional",
    "make_norm",
]
