"""Datasets of graphs: the paper's benchmarks and your own, packed into flat arrays.

>>> from graphnorm.data import load
>>> graphs = load("synthetic:trees")
>>> graphs.batch([0, 1, 2]).num_graphs
3
"""

from graphnorm.data.archive import decoding
from graphnorm.data.batching import Bounds, GraphBatch, one_hot
from graphnorm.data.catalog import CATALOG, Counts, Entry, PaperStatistics, find
from graphnorm.data.convert import from_networkx, from_pyg, to_networkx
from graphnorm.data.download import sha256_of
from graphnorm.data.drawing import draw, draw_graph, save_drawing
from graphnorm.data.images import Images
from graphnorm.data.loading import as_graphs, cache_root, data_root, describe_origin, load, load_cifar10, locate, obtain
from graphnorm.data.molecules import find_smiles_column, from_smiles
from graphnorm.data.packed import UNKNOWN, PackedGraphs, Statistics, open_packed, save_packed
from graphnorm.data.table import TABLE_SUFFIXES, is_table, read_table
from graphnorm.errors import (
    DataError,
    DataWarning,
    DownloadError,
    GraphnormError,
    MissingDependencyError,
    UnknownDatasetError,
)

__all__ = [
    "CATALOG",
    "TABLE_SUFFIXES",
    "UNKNOWN",
    "Bounds",
    "Counts",
    "DataError",
    "DataWarning",
    "DownloadError",
    "Entry",
    "GraphBatch",
    "GraphnormError",
    "Images",
    "MissingDependencyError",
    "PackedGraphs",
    "PaperStatistics",
    "Statistics",
    "UnknownDatasetError",
    "as_graphs",
    "cache_root",
    "data_root",
    "decoding",
    "describe_origin",
    "draw",
    "draw_graph",
    "find",
    "find_smiles_column",
    "from_networkx",
    "from_pyg",
    "from_smiles",
    "is_table",
    "load",
    "load_cifar10",
    "locate",
    "obtain",
    "one_hot",
    "open_packed",
    "read_table",
    "save_drawing",
    "save_packed",
    "sha256_of",
    "to_networkx",
]
