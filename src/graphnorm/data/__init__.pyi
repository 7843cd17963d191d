from graphnorm.data.archive import decoding as decoding
from graphnorm.data.batching import Bounds as Bounds, GraphBatch as GraphBatch, one_hot as one_hot
from graphnorm.data.catalog import (
    CATALOG as CATALOG,
    Counts as Counts,
    Entry as Entry,
    PaperStatistics as PaperStatistics,
    find as find,
)
from graphnorm.data.convert import from_networkx as from_networkx, from_pyg as from_pyg, to_networkx as to_networkx
from graphnorm.data.download import sha256_of as sha256_of
from graphnorm.data.drawing import draw as draw, draw_graph as draw_graph, save_drawing as save_drawing
from graphnorm.data.folders import (
    cache_root as cache_root,
    data_root as data_root,
    locate as locate,
    obtain as obtain,
)
from graphnorm.data.images import Images as Images
from graphnorm.data.loading import (
    as_graphs as as_graphs,
    describe_origin as describe_origin,
    load as load,
    load_cifar10 as load_cifar10,
)
from graphnorm.data.molecules import find_smiles_column as find_smiles_column, from_smiles as from_smiles
from graphnorm.data.packed import (
    UNKNOWN as UNKNOWN,
    PackedGraphs as PackedGraphs,
    Statistics as Statistics,
)
from graphnorm.data.packed_file import open_packed as open_packed, save_packed as save_packed
from graphnorm.data.table import TABLE_SUFFIXES as TABLE_SUFFIXES, is_table as is_table, read_table as read_table
from graphnorm.errors import (
    DataError as DataError,
    DataWarning as DataWarning,
    DownloadError as DownloadError,
    GraphnormError as GraphnormError,
    MissingDependencyError as MissingDependencyError,
    UnknownDatasetError as UnknownDatasetError,
)
