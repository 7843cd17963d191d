from graphnorm._version import __version__ as __version__
from graphnorm.adjacency import Adjacency as Adjacency
from graphnorm.backends import backend as backend, debug as debug
from graphnorm.layers import (
    AlphaBatchNorm as AlphaBatchNorm,
    BatchNorm as BatchNorm,
    DetachedBatchNorm as DetachedBatchNorm,
    DiffGroupNorm as DiffGroupNorm,
    GraphNorm as GraphNorm,
    GraphSizeNorm as GraphSizeNorm,
    GroupNorm as GroupNorm,
    HeteroBatchNorm as HeteroBatchNorm,
    HeteroLayerNorm as HeteroLayerNorm,
    InstanceNorm as InstanceNorm,
    LayerNorm as LayerNorm,
    MeanSubtractionNorm as MeanSubtractionNorm,
    MessageNorm as MessageNorm,
    NoNorm as NoNorm,
    Norm as Norm,
    PairNorm as PairNorm,
    RMSNorm as RMSNorm,
    RunningBatchNorm as RunningBatchNorm,
    convert_norms as convert_norms,
    functional as functional,
    make_norm as make_norm,
    register_norm as register_norm,
    use_batch as use_batch,
)
from graphnorm.segments import Segments as Segments
from graphnorm.study import Result as Result, compare as compare, search as search
from graphnorm.training.model_file import load_model as load_model, save_model as save_model
