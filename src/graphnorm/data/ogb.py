"""OGB's graph-level datasets on disk: gzipped CSV files under ``raw/``, splits under ``split/SCHEME/``.

``num-node-list`` and ``num-edge-list`` have one line for each graph. ``edge``, ``node-feat`` and ``edge-feat`` hold the
graphs one after another. Node ids start at 0 in each graph, and every undirected edge is there once.
"""

from __future__ import annotations

from functools import partial
from pathlib import PurePosixPath

import numpy as np

from graphnorm.data.archive import Archive, Files, Integers, Place
from graphnorm.data.build import RawGraphs
from graphnorm.data.molecules import ATOM_FEATURES, BOND_FEATURES, Vocabulary, cardinalities
from graphnorm.data.targets import as_columns, find_targets
from graphnorm.errors import DataError
from graphnorm.settings import TaskName

__all__ = ["is_ogb", "read_ogb"]

EDGES = "raw/edge.csv.gz"
NEEDED = ("num-node-list", "num-edge-list", "edge", "node-feat", "edge-feat", "graph-label")
"""The files under ``raw/``."""


def is_ogb(archive: Archive) -> bool:
    return bool(archive.ending(EDGES))


def read_ogb(archive: Archive, name: str | None, task: TaskName | None) -> RawGraphs:
    """Read a dataset in OGB's layout, with its official split.

    Both directions of every edge get the edge's features. The labels may have several columns, and missing values.
    """
    folder = _find_folder(archive)
    files = Files(archive, (folder / "raw").as_posix() + "/", ".csv.gz")
    for part in NEEDED:
        if part not in files:
            raise DataError(f"missing: {files.name(part)}", where=archive.path, remedy="get the dataset again")
    sizes, edge_counts = (files.integers(part, 1)[:, 0] for part in ("num-node-list", "num-edge-list"))
    edges, tags, edge_tags = files.integers("edge", 2), files.integers("node-feat"), files.integers("edge-feat")
    labels = files.targets("graph-label")
    for part, counts in (("num-node-list", sizes), ("num-edge-list", edge_counts)):
        if counts.size and counts.min() < 0:
            raise DataError("the count is negative", **files.at(part, int(counts.argmin())), remedy="correct the line")
    for part, table, lines in (
        ("num-edge-list", edge_counts, len(sizes)),
        ("graph-label", labels, len(sizes)),
        ("node-feat", tags, int(sizes.sum())),
        ("edge", edges, int(edge_counts.sum())),
        ("edge-feat", edge_tags, int(edge_counts.sum())),
    ):
        if len(table) != lines:
            raise DataError(
                f"the file has {len(table)} lines, but according to the other files it should have {lines}",
                **files.at(part, min(len(table), lines)),
                remedy="the files do not belong together, or one is incomplete; get them again",
            )
    graph = np.repeat(np.arange(len(sizes)), edge_counts)
    _check_edges(files, edges, graph, sizes)

    def locate(part: str, index: int) -> Place:
        if part in ("edge", "edge features"):
            return files.at("edge" if part == "edge" else "edge-feat", index % len(edges))
        return files.at("node-feat" if part == "node" else "graph-label", index)

    whole: TaskName | None = "classes" if labels.shape[1] == 1 and bool((labels == np.round(labels)).all()) else None
    ends = edges + (np.cumsum(sizes) - sizes)[graph][:, None]
    return RawGraphs(
        name=name or folder.name or archive.path.stem,
        locate=locate,
        sizes=sizes,
        # Edge k of the file is edge k in one direction and edge k + E in the other.
        row=np.concatenate((ends[:, 0], ends[:, 1])),
        col=np.concatenate((ends[:, 1], ends[:, 0])),
        targets=find_targets(as_columns(labels)[0], partial(files.at, "graph-label"), task=task or whole),
        tags=tags,
        cardinalities=_known(tags, ATOM_FEATURES),
        edge_tags=np.concatenate((edge_tags, edge_tags)),
        edge_cardinalities=_known(edge_tags, BOND_FEATURES),
        splits=_read_splits(archive, folder, len(sizes)),
        source=str(archive.path),
    )


def _find_folder(archive: Archive) -> PurePosixPath:
    """The folder of the dataset, with ``raw/`` and ``split/`` in it."""
    found = archive.ending(EDGES)
    if len(found) != 1:
        raise DataError(
            f"a folder in OGB's layout holds one {EDGES}, not {len(found)}",
            where=archive.path,
            remedy="give the folder of one dataset",
        )
    return PurePosixPath(found[0]).parent.parent


def _check_edges(files: Files, edges: Integers, graph: Integers, sizes: Integers) -> None:
    """graph: (E,) that of each edge."""
    outside = np.flatnonzero(((edges < 0) | (edges >= sizes[graph][:, None])).any(1))
    if outside.size:
        k = int(outside[0])
        raise DataError(
            f"an edge of graph {graph[k]} has the node {edges[k].max()}, but the graph has {sizes[graph[k]]} nodes",
            **files.at("edge", k),
            remedy="node ids start at 0 in each graph",
        )


def _read_splits(archive: Archive, folder: PurePosixPath, num_graphs: int) -> dict[str, Integers]:
    splits = {}
    for name in archive.names:
        path = PurePosixPath(name)
        if path.is_relative_to(folder / "split") and path.name.endswith(".csv.gz"):
            part = path.name.removesuffix(".csv.gz")
            ids = splits[part] = archive.read_integers(name, 1)[:, 0]
            outside = np.flatnonzero((ids < 0) | (ids >= num_graphs))
            if outside.size:
                raise DataError(
                    f"the split {part} contains graph {ids[outside[0]]}, but the graphs are 0 to {num_graphs - 1}",
                    **archive.line(name, int(outside[0])),
                    remedy="the split belongs to another dataset; get the dataset again",
                )
    return splits


def _known(tags: Integers, vocabulary: Vocabulary) -> tuple[int, ...] | None:
    """Cardinalities of the vocabulary of molecules, if the features can be those."""
    sizes = cardinalities(vocabulary)
    fits = tags.shape[1] == len(sizes) and tags.size and tags.min() >= 0 and (tags.max(0) < sizes).all()
    return sizes if fits else None
