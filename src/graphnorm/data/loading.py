"""``load`` and ``as_graphs``: from a name, a path or graphs in memory to packed graphs.

Graphs that were read from files are kept in the cache, see :mod:`~graphnorm.data.folders`.
"""

from __future__ import annotations

import os
import zipfile
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import replace
from importlib.metadata import PackageNotFoundError, version
from pathlib import Path
from types import NoneType
from typing import Any, get_args

import torch

from graphnorm.data import synthetic
from graphnorm.data.archive import Archive, Integers, refuse_irregular, stamp
from graphnorm.data.build import pack
from graphnorm.data.catalog import Entry, FeatureRule, find
from graphnorm.data.convert import find_features, find_labels, from_networkx, from_pyg
from graphnorm.data.folders import cached, obtain
from graphnorm.data.images import Images, read_cifar10
from graphnorm.data.molecules import from_table, molecules
from graphnorm.data.ogb import is_ogb, read_ogb
from graphnorm.data.packed import PackedGraphs, announce
from graphnorm.data.packed_file import open_packed
from graphnorm.data.splits import notes_on_split, read_split, split_by_rows
from graphnorm.data.table import TABLE_SUFFIXES, InputTable, is_table, read_table
from graphnorm.data.targets import Threshold
from graphnorm.data.tu import is_tu, read_tu
from graphnorm.errors import PATH, DataError, UnknownDatasetError, require, unknown
from graphnorm.settings import Loading, TaskName, options_of

__all__ = ["as_graphs", "describe_origin", "load", "load_cifar10", "split_option"]


def load(
    name_or_path: str | os.PathLike[str],
    root: str | os.PathLike[str] | None = None,
    *,
    features: FeatureRule | None = None,
    symmetrise: bool = False,
    merge_duplicates: bool = False,
    smiles: str | None = None,
    target: str | Sequence[str] | None = None,
    task: TaskName | None = None,
    threshold: Threshold = None,
    split: str | os.PathLike[str] | None = None,
    skip_invalid: bool = False,
    skip_unlabelled: bool = False,
    unlabelled: bool = False,
    max_size: float | None = None,
    download: bool = True,
) -> PackedGraphs:
    """Load a dataset of the catalogue by its name, or your own graphs by their path.

    name_or_path: a name in any spelling (``"MUTAG"``, ``"IMDB-B"``, ``"synthetic:regular"``), a folder or zip in TU or
        OGB format, a CSV, TSV or Parquet table of SMILES, or a file that ``save_packed`` wrote.
    root: a folder with archives or unpacked folders, by default ``$GRAPHNORM_DATA``. A dataset that is not there is
        searched for in the cache, and then downloaded, unless ``download`` is False.
    features: node features of TU and OGB data, see :data:`~graphnorm.data.catalog.FeatureRule`. By default those of the
        catalogue.
    symmetrise, merge_duplicates: repairs of TU and OGB data, see :func:`~graphnorm.data.build.pack`.
    task: ``"classes"``, ``"binary"`` or ``"values"``, if the guess of :mod:`~graphnorm.data.targets` is not what is
        meant.
    smiles, target, threshold, skip_invalid, skip_unlabelled: for tables, see
        :func:`~graphnorm.data.molecules.from_table`.
    split: fixed parts for training, validation and test: ``"scaffold"`` or a column of a table, see
        :func:`~graphnorm.data.molecules.from_table`; or a JSON or CSV file, see
        :func:`~graphnorm.data.splits.read_split`. ``"random"`` leaves out a split that the data has.
    unlabelled: also accept a table without labels. It does not change how other data is read.
    max_size: the most that files may unpack to, in GiB: by default 16, and no more than 200 times their size.

    >>> load("synthetic:regular").num_classes
    2
    """
    require("name_or_path", name_or_path, PATH, "a dataset's name or a path")
    require("root", root, (*PATH, NoneType), "the path of a folder")
    require("split", split, (*PATH, NoneType), "scaffold, random, a column or a file")
    if not os.fspath(name_or_path):
        raise DataError("the name is empty", remedy="give a dataset's name, or the path of graphs")
    split, split_file = split_option(split)
    source = _as_path(name_or_path) or find(str(name_or_path))
    kind = source.format if isinstance(source, Entry) else _kind(source)
    given: dict[str, Any] = {
        "smiles": smiles,
        "target": target,
        "task": task,
        "threshold": threshold,
        "split": None if split == "random" else split,
        "skip_invalid": skip_invalid,
        "skip_unlabelled": skip_unlabelled,
        "features": features,
        "symmetrise": symmetrise,
        "merge_duplicates": merge_duplicates,
    }
    _check_values(given)
    if max_size is not None:
        max_size = options_of(Loading)["max_size"].check("max_size", max_size)
    others = {name: value for name, value in given.items() if name not in APPLICABLE[kind]}
    _refuse_options(source.name if isinstance(source, Entry) else str(source), others)
    options = {name: given[name] for name in APPLICABLE[kind]}
    if kind in ("table", "smiles"):
        options["split"] = "random" if split_file else split
    if isinstance(source, Entry):
        graphs = _load_known(source, root, options, max_size, download)
    elif kind == "table":
        name = source.name.partition(".")[0] or source.name
        graphs = _load_table(source, name, options | {"unlabelled": unlabelled}, max_size)
    elif kind == "packed":
        graphs = open_packed(source)
    else:
        graphs = _load_files(source, None, options, max_size)
    graphs = _with_split(graphs, split, split_file)
    announce(graphs)
    return graphs


def as_graphs(
    data: Any, root: str | os.PathLike[str] | None = None, *, unlabelled: bool = False, **loading: Any
) -> PackedGraphs:
    """Graphs of any form.

    data: a dataset's name, a path, PackedGraphs, a pandas DataFrame with a column of SMILES, a dataset or list of
        PyTorch Geometric's ``Data``, or a list of NetworkX graphs.
    unlabelled: the graphs are to be predicted. Labels of a list are not read, and a table may lack them.
    loading: those options of :func:`load` that apply to the form. For NetworkX graphs ``target`` names the attribute
        that holds the label or the numbers. ``split`` may also be the rows of each part, as ids or masks:
        ``{"train": …, "valid": …, "test": …}``, where ``valid`` may be left out.

    >>> import networkx as nx
    >>> graphs = [nx.path_graph(3), nx.cycle_graph(4)]
    >>> graphs[0].graph["label"], graphs[1].graph["label"] = "path", "cycle"
    >>> as_graphs(graphs).classes
    ('cycle', 'path')
    """
    split = loading.get("split")
    if isinstance(split, Mapping) or hasattr(split, "_asdict"):
        graphs = as_graphs(data, root, unlabelled=unlabelled, **loading | {"split": "random"})
        parts = split if isinstance(split, Mapping) else split._asdict()  # type: ignore[union-attr]
        rows = split_by_rows(parts, graphs.rows, graphs.num_graphs + len(graphs.left_out))
        return _announce_split(graphs, _with_parts(graphs, rows))
    require("split", split, (*PATH, NoneType), "scaffold, random, a column, a file, or the rows of each part")
    if isinstance(data, PATH):
        return load(data, root, unlabelled=unlabelled, **loading)
    given = _given(loading | {"data_root": root})
    split, split_file = split_option(given.pop("split", None))
    given |= {} if split in (None, "random") else {"split": split}
    if isinstance(data, PackedGraphs):
        _refuse_options("graphs that are loaded already", given)
        return _announce_split(data, _with_split(data, split, split_file))
    if hasattr(data, "itertuples"):  # a DataFrame
        table = _as_table(data)
        _refuse_options("a DataFrame", {name: value for name, value in given.items() if name not in OF_TABLES})
        given |= {"split": "random" if split_file else split, "unlabelled": unlabelled}
        graphs = _with_split(from_table(table, "dataframe", "DataFrame", **given), split, split_file)
        announce(graphs)
        return graphs
    graphs = _from_list(data, given, unlabelled)
    return _announce_split(graphs, _with_split(graphs, split, split_file))


def _announce_split(before: PackedGraphs, after: PackedGraphs) -> PackedGraphs:
    """The graphs with a split; warns of what is new about them."""
    announce(replace(after, notes=tuple(note for note in after.notes if note not in before.notes)), stacklevel=4)
    return after


def load_cifar10(root: str | os.PathLike[str] | None = None, *, download: bool = True) -> Images:
    """Load CIFAR-10, from the same places as :func:`load`."""
    return read_cifar10(obtain(find("CIFAR-10"), root, download=download))


def describe_origin(name_or_path: str | os.PathLike[str], **loading: Any) -> dict[str, Any] | None:
    """The arguments with which :func:`load` finds your own graphs again, as plain values.

    None for a known dataset that is loaded without options.

    loading: the options that they were loaded with.

    >>> describe_origin("MUTAG") is None
    True
    >>> describe_origin("/data/mine.csv", target="active", threshold=None)
    {'name_or_path': '/data/mine.csv', 'target': 'active'}
    """
    path = _as_path(name_or_path)
    given = _given(loading)
    if "split" in given and (file := split_option(given["split"])[1]):
        given["split"] = str(file.resolve())
    if path is None and not given:
        return None
    return {"name_or_path": str(name_or_path if path is None else path.resolve())} | given


# Names, paths and options


def _as_path(given: str | os.PathLike[str]) -> Path | None:
    """The path that is meant, or None for a name of the catalogue."""
    path = Path(given)
    if not isinstance(given, str) or is_table(path) or path.suffix in (".zip", ".safetensors") or len(path.parts) > 1:
        return path
    try:
        find(given)
    except UnknownDatasetError:
        return path if path.exists() else None
    return None


def _kind(path: Path) -> str:
    """The form of the user's data."""
    if is_table(path):
        return "table"
    if path.suffix == ".safetensors" and not path.is_dir():
        return "packed"
    if path.is_file() and path.suffix != ".zip" and not zipfile.is_zipfile(path):
        raise DataError(
            "graphs cannot be read from files of this kind",
            where=path,
            remedy="name a folder or .zip in TU or OGB format, a table of SMILES "
            f"({', '.join(TABLE_SUFFIXES)}), or a .safetensors file of packed graphs",
        )
    return "files"


OF_TABLES = ("smiles", "target", "task", "threshold", "split", "skip_invalid", "skip_unlabelled")
OF_FILES = ("features", "symmetrise", "merge_duplicates", "task")
APPLICABLE: dict[str, tuple[str, ...]] = {
    "table": OF_TABLES,
    "smiles": ("target", "threshold", "split", "skip_invalid", "skip_unlabelled"),
    "molecules": ("split",),
    "tu": OF_FILES,
    "ogb": OF_FILES,
    "files": OF_FILES,
    "packed": (),
    "synthetic": (),
    "images": (),
}
"""The options of :func:`load` that apply to each form of data."""


def _check_values(given: Mapping[str, Any]) -> None:
    """Refuse options of a wrong type or value, whatever the form of the data."""
    for name in ("smiles", "task", "skip_invalid", "skip_unlabelled", "symmetrise", "merge_duplicates"):
        if given[name] is not None:
            options_of(Loading)[name].check(name, given[name])
    if given["features"] not in (None, *get_args(FeatureRule)):
        raise unknown("features", str(given["features"]), get_args(FeatureRule), DataError)


def _given(options: Mapping[str, Any]) -> dict[str, Any]:
    """The options that are not left out."""
    return {name: value for name, value in options.items() if value is not None and value is not False}


def _refuse_options(what: str, options: Mapping[str, object]) -> None:
    if given := _given(options):
        raise DataError(f"{', '.join(given)} cannot be used with {what}", remedy="leave it out")


# Splits


def split_option(split: str | os.PathLike[str] | None) -> tuple[str | None, Path | None]:
    """``--split`` as a name, or as a file."""
    if split is None or split in ("scaffold", "random"):
        return (None if split is None else str(split)), None
    path = Path(split)
    if not isinstance(split, str) or path.suffix.lower() == ".json" or is_table(path) or len(path.parts) > 1:
        return None, path
    return split, None


def _with_split(graphs: PackedGraphs, split: str | None, file: Path | None) -> PackedGraphs:
    if file:
        return _with_parts(graphs, read_split(file, graphs.rows, graphs.num_graphs + len(graphs.left_out)))
    return _with_parts(graphs, {}) if split == "random" else graphs


def _with_parts(graphs: PackedGraphs, parts: Mapping[str, Integers]) -> PackedGraphs:
    """The graphs with another split, or with none, and with the notes on it in place of those on their own."""
    here = graphs.to("cpu")
    old, new = (notes_on_split(here.groups, split, here.num_graphs) for split in (here.splits, parts))
    splits = {name: torch.from_numpy(ids) for name, ids in parts.items()}
    return replace(graphs, splits=splits, notes=tuple(note for note in graphs.notes if note not in old) + new)


# Each form of data


def _from_list(data: Any, options: dict[str, Any], unlabelled: bool) -> PackedGraphs:
    """Graphs of PyTorch Geometric or NetworkX."""
    if isinstance(data, torch.utils.data.Dataset) and not isinstance(data, Iterable):  # as random_split gives
        data = [data[k] for k in range(len(data))]  # type: ignore[arg-type]
    require("data", data, Iterable, "a name, a path, PackedGraphs, a DataFrame, or a list of graphs of PyG or NetworkX")
    graphs = list(data)
    if not graphs:
        raise DataError("there are no graphs", remedy="give at least two graphs")
    repairs = {name: options.pop(name) for name in ("symmetrise", "merge_duplicates", "task") if name in options}
    target = options.pop("target", None)
    _refuse_options("a list of graphs", options)
    if hasattr(graphs[0], "edge_index"):
        _refuse_options("graphs of PyTorch Geometric, whose y is predicted", {"target": target})
        return from_pyg(graphs, name=getattr(data, "name", None), unlabelled=unlabelled, **repairs)
    labels = None if unlabelled else find_labels(graphs, target)
    return from_networkx(graphs, labels, unlabelled=unlabelled, **find_features(graphs), **repairs)


def _load_known(
    entry: Entry,
    root: str | os.PathLike[str] | None,
    options: dict[str, Any],
    max_size: float | None,
    download: bool,
) -> PackedGraphs:
    """A dataset of the catalogue."""
    if entry.format == "synthetic":
        return synthetic.FAMILIES[entry.name.removeprefix("synthetic:")]()
    if entry.format == "images":
        raise DataError(f"{entry.name} holds images, not graphs", remedy="use graphnorm.data.load_cifar10()")
    if entry.format == "molecules":
        if options["split"] not in (None, "scaffold"):
            raise DataError(f"there is no column {options['split']!r}", remedy="use --split scaffold, or name a file")
        return cached((entry.format, options, _rdkit_version()), lambda: molecules(**options))
    path = obtain(entry, root, download=download)
    if entry.format == "smiles":
        return _load_benchmark(entry, path, options, max_size)
    # Duplicate edges of a published dataset count once, as in TUDataset.
    known = {"features": options["features"] or entry.features, "merge_duplicates": True}
    graphs = _load_files(path, entry.name, options | known, max_size)
    found = (graphs.num_graphs, graphs.num_nodes, graphs.num_edges)
    if entry.counts is not None and found != entry.counts:
        raise DataError(
            f"this is not {entry.name}: {found} graphs, nodes and edges instead of {tuple(entry.counts)}",
            where=path,
            remedy=f"get it again; or load it as your own data, by its path: load({str(path)!r})",
        )
    return graphs


def _load_benchmark(entry: Entry, path: Path, options: dict[str, Any], max_size: float | None) -> PackedGraphs:
    """A table of MoleculeNet. Molecules that RDKit cannot read are left out, and a note says so."""
    assert entry.table is not None
    task = entry.task if options["threshold"] is None else None
    options |= {"task": task, "skip_invalid": True, "split": options["split"] or entry.split}
    graphs = _load_table(path, entry.name, options, max_size, entry)
    rows, targets = graphs.num_graphs + len(graphs.left_out), max(1, len(graphs.target_names))
    few = options["target"] is not None or targets == entry.table.num_targets
    if abs(rows - entry.table.rows) > 0.01 * entry.table.rows or not few:
        raise DataError(
            f"this is not {entry.name}: {rows} rows and {targets} targets instead of {entry.table.rows} and "
            f"{entry.table.num_targets}",
            where=path,
            remedy=f"get it again from {entry.url}; or load it as your own table, by its path: load({str(path)!r})",
        )
    return graphs


def _load_table(
    path: Path, name: str, options: dict[str, Any], max_size: float | None, entry: Entry | None = None
) -> PackedGraphs:
    """A table of SMILES; as an entry of the catalogue, its columns are known."""
    if not path.exists():
        raise DataError("there is no such file", where=path, remedy="check the path")
    refuse_irregular(path)

    def read() -> PackedGraphs:
        table = read_table(path, max_size)
        known = entry.table.targets if entry and entry.table else ()
        named = [column for column in known if column in table.columns]
        return from_table(
            table, name, str(path), **options | ({"target": named} if named and not options["target"] else {})
        )

    # RDKit reads some molecules differently from version to version.
    return cached(("table of SMILES", name, stamp([path]), options, _rdkit_version()), read)


def _as_table(frame: Any) -> InputTable:
    names = [str(name) for name in frame.columns]
    if len(set(names)) < len(names):
        raise DataError("two columns of the DataFrame have the same name", remedy="rename one")
    return InputTable({name: frame.iloc[:, k].tolist() for k, name in enumerate(names)}, list(range(len(frame))))


def _rdkit_version() -> str:
    try:
        return version("rdkit")
    except PackageNotFoundError:
        return ""


def _load_files(path: Path, name: str | None, options: dict[str, Any], max_size: float | None) -> PackedGraphs:
    archive = Archive(path, max_size)
    if not is_ogb(archive) and not is_tu(archive):
        raise DataError(
            "there is no dataset in TU or OGB format here",
            where=path,
            remedy="a TU folder holds NAME_A.txt, NAME_graph_indicator.txt and NAME_graph_labels.txt; "
            "an OGB folder holds raw/edge.csv.gz",
        )
    features: FeatureRule = options["features"] or "auto"
    task, symmetrise, merge_duplicates = (options[option] for option in ("task", "symmetrise", "merge_duplicates"))

    def read() -> PackedGraphs:
        raw = read_ogb(archive, name, task) if is_ogb(archive) else read_tu(archive, name, task, features)
        return pack(raw, features=features, symmetrise=symmetrise, merge_duplicates=merge_duplicates)

    return cached(("files", archive.stamp(), options | {"name": name, "features": features}), read)
