"""The file of a :class:`~graphnorm.data.packed.PackedGraphs`, and the checks of one that anyone may have made."""

from __future__ import annotations

import hashlib
import json
import os
from pathlib import Path

import numpy as np
import torch

from graphnorm.data.archive import decoding
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import CONTROL, PATH, DataError, need, require
from graphnorm.files import save_tensors

__all__ = ["FORMAT", "open_packed", "save_packed"]

FORMAT = "graphnorm-packed-4"
"""Version of the file format. It also changes when a reader makes other arrays of the same source."""


def save_packed(graphs: PackedGraphs, path: str | os.PathLike[str], *, key: str = "") -> None:
    """Write graphs to a safetensors file that :func:`open_packed` and :func:`~graphnorm.data.load` read.

    key: what :func:`open_packed` asks for, in a cache.
    """
    require("path", path, PATH, "the path of a file")
    arrays = {name: tensor.cpu().contiguous() for name, tensor in graphs.tensors()}
    about = {"format": FORMAT, "checksum": _checksum(graphs), "key": key} | graphs.attributes
    save_tensors(Path(path), arrays, about, "saving packed graphs")


def open_packed(path: str | os.PathLike[str], *, key: str = "") -> PackedGraphs:
    """Open a file that :func:`save_packed` wrote, and check it. Its arrays are memory-mapped.

    key: that of a file of our own cache, which may have got another's name. Whether every edge has an edge back, which
        takes long, is then not checked.
    """
    safetensors = need("safetensors", "opening packed graphs", "data")
    require("path", path, PATH, "the path of a file")
    path = Path(path)
    if not path.is_file():
        raise DataError("there is no such file", where=path, remedy="check the path")
    with decoding(path), safetensors.safe_open(path, framework="pt") as file:
        attributes = json.loads((file.metadata() or {}).get("graphnorm", "{}"))
        found, checksum = attributes.pop("format", None), attributes.pop("checksum", None)
        if found != FORMAT:
            raise DataError(f"the file has the format {found}, not {FORMAT}", where=path, remedy="create it again")
        if attributes.pop("key", "") != key and key:
            raise DataError("it is made of another source", where=path, remedy="create it again")
        attributes = {name: tuple(value) if isinstance(value, list) else value for name, value in attributes.items()}
        arrays = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
        splits = {name.removeprefix("splits."): arrays.pop(name) for name in list(arrays) if name.startswith("splits.")}
        try:
            graphs = PackedGraphs(**attributes | arrays, splits=splits)
        except DataError as error:
            raise DataError(error.problem, where=path, remedy="create it again, with save_packed") from error
        if _checksum(graphs) != checksum:
            raise DataError("its content is not what was written", where=path, remedy="create it again")
        if problem := _find_problem(graphs) or (None if key else _find_problem_of_edges(graphs)):
            raise DataError(problem, where=path, remedy="create it again, with save_packed")
    return graphs


def _checksum(graphs: PackedGraphs) -> str:
    """SHA-256 of the content and of all that is said about it."""
    return hashlib.sha256((json.dumps(graphs.attributes, sort_keys=True) + graphs.fingerprint).encode()).hexdigest()


_SMALL = (torch.uint8, torch.int16, torch.int32)
_MOST_CATEGORIES = 1 << 16
"""Of one feature, unless there are more nodes or edges: a model has weights for each category, seen or not."""


def _find_problem(graphs: PackedGraphs) -> str | None:
    """The first promise of :class:`PackedGraphs` that does not hold, for a file that anyone may have made."""
    G, N, E = graphs.num_graphs, len(graphs.rowptr) - 1, len(graphs.col)
    for name, (shape, types) in {
        "node_ptr": ((G + 1,), (torch.int64,)),
        "rowptr": ((N + 1,), (torch.int64,)),
        "col": ((E,), (torch.int32,)),
        "labels": ((G,), (torch.int64,)),
        "tags": ((N, len(graphs.cardinalities)), _SMALL),
        "edge_tags": ((E, len(graphs.edge_cardinalities)), _SMALL),
        "x": ((N, None), (torch.float32,)),
        "edge_x": ((E, None), (torch.float32,)),
        "targets": ((G, len(graphs.target_names)), (torch.float32,)),
        "groups": ((G,), (torch.int64,)),
    }.items():
        array = getattr(graphs, name)
        if array is None:
            continue
        fits = array.ndim == len(shape) and all(
            want in (None, have) for want, have in zip(shape, array.shape, strict=True)
        )
        if not fits or array.dtype not in types:
            return f"{name} has the shape {tuple(array.shape)} and the type {array.dtype}"
    for name, pointer, last, least in (("node_ptr", graphs.node_ptr, N, 1), ("rowptr", graphs.rowptr, E, 0)):
        if int(pointer[0]) != 0 or int(pointer[-1]) != last or bool((pointer.diff() < least).any()):
            return f"{name} does not rise from 0 to {last}"
    if G == 0 or bool(((graphs.labels < 0) | (graphs.labels >= len(graphs.classes))).any()):
        return f"a label is outside of 0 to {len(graphs.classes) - 1}"
    columns = (graphs.smiles_column, graphs.label_column)
    texts = (graphs.source, *columns, graphs.vocabulary, graphs.edge_vocabulary, *graphs.notes)
    if type(graphs.notes) is not tuple or not all(type(text) is str and not CONTROL.search(text) for text in texts):
        return "its notes are not plain text"
    numbers = (graphs.removed_self_loops, *graphs.left_out)
    rows = G + len(graphs.left_out)
    if not all(type(n) is int and n >= 0 for n in numbers) or any(row >= rows for row in graphs.left_out):
        return "its counts and rows are not whole numbers in range"
    if type(graphs.threshold) not in (float, type(None)):
        return f"the threshold is {graphs.threshold!r}"
    for part, tags, sizes in (
        ("tags", graphs.tags, graphs.cardinalities),
        ("edge_tags", graphs.edge_tags, graphs.edge_cardinalities),
    ):
        most = max(_MOST_CATEGORIES, 0 if tags is None else len(tags))
        if (tags is None) != (not sizes) or not all(type(size) is int and 0 < size <= most for size in sizes):
            return f"the numbers of categories of {part} are {sizes[:5]}"
        if tags is not None and any(
            len(column) and (int(column.min()) < 0 or int(column.max()) >= size)
            for column, size in zip(tags.unbind(1), sizes, strict=True)
        ):
            return f"{part} are outside of their {sizes[:5]} categories"
    for name, values in (("x", graphs.x), ("edge_x", graphs.edge_x)):
        if values is not None and not bool(values.isfinite().all()):
            return f"{name} has values that are not finite"
    if graphs.targets is not None:
        known = graphs.targets[~graphs.targets.isnan()]
        if bool(known.isinf().any()) or (graphs.task == "binary" and bool(((known != 0) & (known != 1)).any())):
            return f"the targets do not fit the task {graphs.task!r}"
        if bool(graphs.targets.isnan().all(0).any()):
            return "a target has no values"
    for name, ids in graphs.splits.items():
        if name not in ("train", "valid", "test"):
            return f"a part of the split is named {name!r}"
        if ids.dtype != torch.int64 or ids.ndim != 1 or bool(((ids < 0) | (ids >= G)).any()):
            return f"the split {name!r} has ids outside of 0 to {G - 1}"
    begins, edges_of = graphs.edge_ptr[:-1].numpy(), graphs.edge_ptr.diff().numpy()
    if E:
        filled = edges_of > 0
        highest = np.maximum.reduceat(graphs.col.numpy(), begins[filled])
        if int(graphs.col.min()) < 0 or (highest >= graphs.sizes.numpy()[filled]).any():
            return "an edge leaves its graph"
    return None


def _find_problem_of_edges(graphs: PackedGraphs) -> str | None:
    degree, col = graphs.degree, graphs.col.long()
    row = torch.repeat_interleave(degree)
    col += torch.repeat_interleave(torch.repeat_interleave(graphs.node_ptr[:-1], graphs.sizes), degree)
    if bool(((row[1:] == row[:-1]) & (col[1:] <= col[:-1])).any()) or bool((row == col).any()):
        return "the edges are not sorted, or one is there twice or joins a node to itself"
    # The bilinear form aᵀ(A − Aᵀ)b of random a and b, modulo 2⁶⁴: zero for all of them only if A is symmetric.
    a, b = torch.randint(-(2**63), 2**63 - 1, (2, len(degree)), generator=torch.Generator().manual_seed(0))
    if int((a[row] * b[col]).sum()) != int((a[col] * b[row]).sum()):
        return "an edge has no edge back"
    return None
