"""The normalization layers: each is a row of the table *scope × shift × statistics* over one operation.

================== ================ ======== ======================= ===================
name               scope            shift α  statistics in training  in evaluation
================== ================ ======== ======================= ===================
``none``           –                –        –                       –
``layer``          one node         1        live                    live
``batch``          the whole batch  1        live                    running averages
``instance``       one graph        1        live                    live
``graph``          one graph        learned  live                    live
``batch-alpha``    the whole batch  learned  live                    running averages
``batch-running``  the whole batch  1        running averages        running averages
``batch-detached`` the whole batch  1        live, no gradient       running averages
================== ================ ======== ======================= ===================

All are called alike: ``norm(x, batch=None, batch_size=None)`` as in PyTorch Geometric, or ``norm(x, segments)``; ``x``
has shape (N, C), of nodes or of edges. ``act="relu"`` at construction and ``residual=`` at the call put the activation
and the skip connection into the same pass over memory.
"""

from graphnorm.layers import functional
from graphnorm.layers.base import Norm
from graphnorm.layers.batch import AlphaBatchNorm, BatchNorm, DetachedBatchNorm, RunningBatchNorm
from graphnorm.layers.channels import GroupNorm, LayerNorm, RMSNorm
from graphnorm.layers.convert import convert_norms, use_batch
from graphnorm.layers.graph import GraphNorm, GraphSizeNorm, InstanceNorm, NoNorm
from graphnorm.layers.hetero import HeteroBatchNorm, HeteroLayerNorm
from graphnorm.layers.other_papers import DiffGroupNorm, MeanSubtractionNorm, MessageNorm, PairNorm
from graphnorm.layers.registry import (
    BUILT_IN,
    REGISTRY,
    CustomNorm,
    find_norm,
    import_norm,
    make_norm,
    norm_code,
    register_norm,
    try_norm,
)

__all__ = [
    "BUILT_IN",
    "REGISTRY",
    "AlphaBatchNorm",
    "BatchNorm",
    "CustomNorm",
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
    "RunningBatchNorm",
    "convert_norms",
    "find_norm",
    "functional",
    "import_norm",
    "make_norm",
    "norm_code",
    "register_norm",
    "try_norm",
    "use_batch",
]
