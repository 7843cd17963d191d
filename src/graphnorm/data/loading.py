"""``load``: from a name or a path to packed graphs."""

from __future__ import annotations

import os
import zipfile
from collections.abc import Callable, Mapping
from functools import partial
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import NoneType
from typing import Any

from graphnorm.data import synthetic
from graphnorm.data.build import FeatureRule, Repairs
from graphnorm.data.cache import cache_root, cached, open_packed
from graphnorm.data.catalog import Entry, find
from graphnorm.data.download import fetch
from graphnorm.data.files import Members
from graphnorm.data.images import Images, read_cifar10
from graphnorm.data.molecules import Threshold, molecules, read_smiles
from graphnorm.data.ogb import is_ogb, read_ogb
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.tables import SUFFIXES
from graphnorm.data.tu import is_tu, read_tu
from graphnorm.errors import PATH, DataError, DownloadError, UnknownDatasetError, require

__all__ = ["data_root", "load", "load_cifar10", "locate", "obtain"]


def load(
    name_or_path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    features: FeatureRule | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
    smiles: str | None = None,
    label: str | None = None,
    threshold: Threshold = None,
    skip_invalid: bool = False,
    unlabelled: bool = False,
    download: bool = True,
) -> PackedGraphs:
    """Load a dataset of the catalogue by its name, or the user's own graphs by their path.

    name_or_path: a name as people write it (``"MUTAG"``, ``"IMDB-B"``, ``"synthetic:regular"``), a folder or
        zip in TU or OGB form, a CSV, TSV or Parquet table of SMILES, or a file that ``save_packed`` wrote.
    root: a folder with archives or unpacked folders; without it ``$GRAPHNORM_DATA``. What is not there is
        looked for in the cache, and then fetched from its source, unless ``download`` is False.
    features: node features of TU and OGB data, see :data:`~graphnorm.data.build.FeatureRule`; a dataset of
        the catalogue has its own rule.
    symmetrise, merge_duplicates: repairs of TU and OGB data, see :class:`~graphnorm.data.build.Repairs`.
    smiles, label, threshold, skip_invalid: for tables, see :func:`~graphnorm.data.molecules.read_smiles`.
    unlabelled: a table may be without labels; for all other data it changes nothing.

    >>> load("synthetic:regular").num_classes
    2
    """
    require("name_or_path", name_or_path, PATH, "a dataset's name or a path")
    require("root", root, (*PATH, NoneType), "the path of a folder")
    if not os.fspath(name_or_path):
        raise DataError("the name is empty", remedy="give a dataset's name, or the path of graphs")
    repairs = Repairs(symmetrise=symmetrise, merge_duplicates=merge_duplicates)
    for_files: dict[str, object] = {
        "features": features,
        "symmetrise": symmetrise,
        "merge_duplicates": merge_duplicates,
    }
    for_tables: dict[str, object] = {
        "smiles": smiles,
        "label": label,
        "threshold": threshold,
        "skip_invalid": skip_invalid,
    }
    path = _as_path(name_or_path)
    if path is None:
        entry = find(str(name_or_path))
        _refuse(entry.name, for_tables if entry.files else for_tables | for_files)
        return _load_entry(entry, root, features, repairs, download)
    if path.suffix == ".safetensors":
        _refuse(str(path), for_tables | for_files)
        return open_packed(path)
    if path.suffix in SUFFIXES and not path.is_dir():
        _refuse(str(path), for_files)
        # What RDKit makes of a molecule changes between its versions.
        key = ("table of SMILES", _stamp(path), smiles, label, threshold, unlabelled, _version("rdkit"))
        read = partial(
            read_smiles,
            path,
            smiles=smiles,
            label=label,
            threshold=threshold,
            skip_invalid=skip_invalid,
            unlabelled=unlabelled,
        )
        # A table read with molecules left out is not cached: whoever loads it is told each time.
        return read() if skip_invalid else cached(key, read)
    if path.is_file() and path.suffix != ".zip" and not zipfile.is_zipfile(path):
        raise DataError(
            "graphs are not read from files of this kind",
            where=path,
            remedy="name a folder or .zip in TU or OGB form, a table of SMILES "
            f"({', '.join(SUFFIXES)}), or a .safetensors file of packed graphs",
        )
    _refuse(str(path), for_tables)
    return _load_files(path, None, features or "auto", repairs)


def describe_origin(name_or_path: str | os.PathLike[str], **loading: Any) -> dict[str, Any] | None:
    """What :func:`load` must be given to find the user's own graphs again, as plain values; None for known datasets.

    loading: the options that they were loaded with.

    >>> describe_origin("MUTAG") is None
    True
    >>> describe_origin("/data/mine.csv", label="active", threshold=None)
    {'name_or_path': '/data/mine.csv', 'label': 'active'}
    """
    path = _as_path(name_or_path)
    if path is None:
        return None
    given = {name: value for name, value in loading.items() if value is not None and value is not False}
    return {"name_or_path": str(path.resolve())} | given


def _refuse(what: str, options: Mapping[str, object]) -> None:
    """Refuse options that this kind of data has no use for, rather than pass over them."""
    given = [name for name, value in options.items() if value is not None and value is not False]
    if given:
        raise DataError(f"{', '.join(given)} cannot be used with {what}", remedy="leave it out")


def load_cifar10(root: str | os.PathLike[str] | None = None, *, download: bool = True) -> Images:
    """Load CIFAR-10, from the same places as :func:`load`."""
    return read_cifar10(obtain(find("CIFAR-10"), root, download=download))


def data_root(root: str | os.PathLike[str] | None = None) -> Path | None:
    """Give the folder of the user's data: ``root``, or ``$GRAPHNORM_DATA``, or none."""
    path = root or os.environ.get("GRAPHNORM_DATA")
    if not path:
        return None
    if not Path(path).is_dir():
        raise DataError("the data folder does not exist", where=path, remedy="check --data-root or GRAPHNORM_DATA")
    return Path(path)


def locate(entry: Entry, root: str | os.PathLike[str] | None = None) -> Path | None:
    """Give the file or folder a dataset is in: in the data folder or the cache, or None."""
    folders = [folder for folder in (data_root(root), cache_root() / "downloads") if folder is not None]
    return next((f / name for f in folders for name in entry.files if (f / name).exists()), None)


def obtain(
    entry: Entry, root: str | os.PathLike[str] | None = None, *, download: bool = True, progress: bool = True
) -> Path:
    """Give the file or folder a dataset is in, fetching it if need be."""
    if path := locate(entry, root):
        return path
    target = cache_root() / "downloads" / entry.files[0]
    if entry.url is None or not download:
        raise DownloadError(
            f"{entry.name} is not on this machine. {entry.where_else}".strip(),
            remedy=f"put {entry.files[0]} into a folder and name that with --data-root or GRAPHNORM_DATA"
            + (", or allow downloads" if entry.url else ""),
        )
    return fetch(entry.url, target, sha256=entry.sha256, max_bytes=entry.max_bytes, progress=progress)


def _as_path(given: str | os.PathLike[str]) -> Path | None:
    """The path that is meant, or None where a name of the catalogue is."""
    path = Path(given)
    if not isinstance(given, str) or path.suffix in (*SUFFIXES, ".zip", ".safetensors") or len(path.parts) > 1:
        return path
    try:
        find(given)
    except UnknownDatasetError:
        return path if path.exists() else None
    return None


def _load_entry(
    entry: Entry,
    root: str | os.PathLike[str] | None,
    features: FeatureRule | None,
    repairs: Repairs,
    download: bool,
) -> PackedGraphs:
    if entry.format == "synthetic":
        return synthetic.FAMILIES[entry.name.removeprefix("synthetic:")]()
    if entry.format == "molecules":
        return cached(("molecules", _version("rdkit")), molecules)
    if entry.format == "images":
        raise DataError(f"{entry.name} holds images, not graphs", remedy="use graphnorm.data.load_cifar10()")
    path = obtain(entry, root, download=download)
    # As TUDataset does, doubled edges of a published dataset count once.
    repairs = Repairs(symmetrise=repairs.symmetrise, merge_duplicates=True)
    graphs = _load_files(path, entry.name, features or entry.features, repairs)
    found = (graphs.num_graphs, graphs.num_nodes, graphs.num_edges)
    if entry.counts is not None and found != entry.counts:
        raise DataError(
            f"this is not {entry.name}: {found} graphs, nodes and edges instead of {tuple(entry.counts)}",
            where=path,
            remedy=f"fetch it anew; or load it as your own data, by its path: load({str(path)!r})",
        )
    return graphs


def _load_files(path: Path, name: str | None, features: FeatureRule, repairs: Repairs) -> PackedGraphs:
    with Members(path) as members:
        if is_ogb(members):
            reader: Callable[..., PackedGraphs] = read_ogb
        elif is_tu(members):
            reader = read_tu
        else:
            raise DataError(
                "there is no dataset in TU or OGB form here",
                where=path,
                remedy="a TU folder holds NAME_A.txt, NAME_graph_indicator.txt and NAME_graph_labels.txt; "
                "an OGB folder holds raw/edge.csv.gz",
            )
        read = partial(reader, members, name=name, features=features, repairs=repairs)
        return cached(("files", members.stamp(), name, features, repairs), read)


def _stamp(path: Path) -> tuple[str, int, int]:
    if not path.exists():
        raise DataError("there is no such file", where=path, remedy="check the path")
    return str(path.resolve()), path.stat().st_size, path.stat().st_mtime_ns


def _version(package: str) -> str:
    try:
        return version(package)
    except PackageNotFoundError:
        return ""
