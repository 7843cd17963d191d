"""Packed graphs on disk: one safetensors file, versioned, memory-mapped when it is opened.

The cache lives in ``$GRAPHNORM_CACHE``, else in the platform's cache folder. It only ever saves work: where
it cannot be written, or holds something unreadable, the data is read from its source again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import torch

from graphnorm.data.files import decoding
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import DataError, MissingDependencyError
from graphnorm.files import replacing

__all__ = ["FORMAT", "cache_root", "cached", "open_packed", "save_packed"]

FORMAT = "graphnorm-packed-1"
"""Changes whenever what is stored, or what the readers make of the same source, changes."""


def cache_root() -> Path:
    """Where graphnorm keeps what it can make or fetch again."""
    if path := os.environ.get("GRAPHNORM_CACHE"):
        return Path(path)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "graphnorm"


def save_packed(graphs: PackedGraphs, path: Path) -> None:
    """Write graphs to a file that :func:`open_packed` (and ``load``) reads; wholly or not at all."""
    safetensors = _safetensors("saving packed graphs")
    arrays = {name: tensor.cpu().contiguous() for name, tensor in graphs.tensors()}
    with replacing(path) as fresh:
        safetensors.save_file(arrays, fresh, {"graphnorm": json.dumps({"format": FORMAT} | graphs.attributes)})


def open_packed(path: Path) -> PackedGraphs:
    """Open a file that :func:`save_packed` wrote; its arrays are mapped, not read."""
    safetensors = _safetensors("opening packed graphs")
    if not path.exists():
        raise DataError("there is no such file", where=path, remedy="check the path")
    with decoding(str(path)):
        from safetensors import safe_open

        with safe_open(path, framework="pt") as file:
            metadata = json.loads((file.metadata() or {}).get("graphnorm", "{}"))
        arrays: dict[str, torch.Tensor] = safetensors.load_file(path)
        found = metadata.pop("format", None)
    if found != FORMAT:
        raise DataError(f"the file has the format {found}, not {FORMAT}", where=path, remedy="make it anew")
    with decoding(str(path)):
        attributes: dict[str, Any] = {k: tuple(v) if isinstance(v, list) else v for k, v in metadata.items()}
        splits = {name.removeprefix("splits."): arrays.pop(name) for name in list(arrays) if name.startswith("splits.")}
        graphs = PackedGraphs(**attributes | arrays, splits=splits)
        if int(graphs.node_ptr[-1]) != graphs.num_nodes or int(graphs.rowptr[-1]) != graphs.num_edges:
            raise ValueError("its arrays do not fit together")
    return graphs


def cached(key: Any, make: Callable[[], PackedGraphs]) -> PackedGraphs:
    """What ``make`` gives, from the cache where an equal key (any JSON value) was met before."""
    digest = hashlib.sha256(json.dumps([FORMAT, key], default=str).encode()).hexdigest()
    path = cache_root() / "packed" / f"{digest[:32]}.safetensors"
    if path.exists():
        try:
            return open_packed(path)
        except DataError:
            pass  # damaged, or of another version: made anew below
    graphs = make()
    try:
        save_packed(graphs, path)
    except (OSError, MissingDependencyError):
        return graphs  # a cache that cannot be written is no reason to fail
    return open_packed(path)


def _safetensors(task: str) -> Any:
    try:
        import safetensors.torch
    except ImportError as error:
        raise MissingDependencyError("safetensors", task, "data") from error
    return safetensors.torch
