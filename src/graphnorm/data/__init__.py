"""Datasets of graphs: the paper's benchmarks and the user's own, packed into flat arrays.

>>> from graphnorm.data import load
>>> graphs = load("synthetic:trees")
>>> graphs.batch([0, 1, 2]).num_graphs
3
"""

from graphnorm.data.batching import Bounds, GraphBatch, one_hot
from graphnorm.data.cache import cache_root, open_packed, save_packed
from graphnorm.data.catalog import CATALOG, Entry, find
from graphnorm.data.convert import from_networkx, from_pyg
from graphnorm.data.drawing import draw, draw_graph, save_drawing, to_networkx
from graphnorm.data.images import Images
from graphnorm.data.loading import data_root, load, load_cifar10, locate, obtain
from graphnorm.data.molecules import DataWarning, from_smiles, read_smiles
from graphnorm.data.packed import PackedGraphs, Statistics
from graphnorm.errors import (
    DataError,
    DownloadError,
    GraphnormError,
    MissingDependencyError,
    UnknownDatasetError,
)

__all__ = [
    "CATALOG",
    "Bounds",
    "DataError",
    "DataWarning",
    "DownloadError",
    "Entry",
    "GraphBatch",
    "GraphnormError",
    "Images",
    "MissingDependencyError",
    "PackedGraphs",
    "Statistics",
    "UnknownDatasetError",
    "cache_root",
    "data_root",
    "draw",
    "draw_graph",
    "find",
    "from_networkx",
    "from_pyg",
    "from_smiles",
    "load",
    "load_cifar10",
    "locate",
    "obtain",
    "one_hot",
    "open_packed",
    "read_smiles",
    "save_drawing",
    "save_packed",
    "to_networkx",
]
