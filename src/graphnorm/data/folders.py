"""Where datasets lie: the user's data folder, and our cache of downloads and of graphs that were read.

The cache is ``$GRAPHNORM_CACHE`` or the platform's cache folder. It only saves work: if it cannot be written, or holds
a damaged file, the graphs are read from their source again.
"""

from __future__ import annotations

import hashlib
import json
import os
import sys
from collections.abc import Callable
from pathlib import Path, PurePosixPath
from typing import Any

from graphnorm.data.catalog import Entry
from graphnorm.data.download import download as download_file
from graphnorm.data.packed import PackedGraphs
from graphnorm.data.packed_file import FORMAT, open_packed, save_packed
from graphnorm.errors import DataError, DownloadError, MissingDependencyError

__all__ = ["cache_root", "cached", "data_root", "locate", "obtain"]


def data_root(root: str | os.PathLike[str] | None = None) -> Path | None:
    """The user's data folder: ``root``, or ``$GRAPHNORM_DATA``, or None."""
    path = root or os.environ.get("GRAPHNORM_DATA")
    if not path:
        return None
    if not Path(path).is_dir():
        raise DataError("the data folder does not exist", where=path, remedy="check --data-root or GRAPHNORM_DATA")
    return Path(path)


def cache_root() -> Path:
    """The folder for everything that can be made or downloaded again."""
    if path := os.environ.get("GRAPHNORM_CACHE"):
        return Path(path)
    if sys.platform == "win32":
        base = os.environ.get("LOCALAPPDATA") or Path.home() / "AppData" / "Local"
    elif sys.platform == "darwin":
        base = Path.home() / "Library" / "Caches"
    else:
        base = os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache"
    return Path(base) / "graphnorm"


def _make_cache() -> Path:
    """The cache, private to the user if it is new."""
    cache_root().mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache_root()


def locate(entry: Entry, root: str | os.PathLike[str] | None = None) -> Path | None:
    """The file or folder of a dataset, in the data folder or the cache; None if it is in neither."""
    given = data_root(root)
    folders = [*([given, given / "moleculenet"] if given else []), cache_root() / "downloads"]
    return next((f / name for f in folders for name in entry.files if (f / name).exists()), None)


def obtain(
    entry: Entry, root: str | os.PathLike[str] | None = None, *, download: bool = True, progress: bool = True
) -> Path:
    """The file or folder of a dataset, downloaded if necessary."""
    if path := locate(entry, root):
        return path
    if entry.url is None or not download:
        raise DownloadError(
            f"{entry.name} is not on this machine. {entry.where_else}".strip(),
            remedy=f"put {entry.files[0]} into a folder and name it with --data-root or GRAPHNORM_DATA"
            + (", or allow downloads" if entry.url else ""),
        )
    target = _make_cache() / "downloads" / PurePosixPath(entry.url).name
    return download_file(entry.url, target, sha256=entry.sha256, max_bytes=entry.max_bytes, progress=progress)


def cached(key: Any, make: Callable[[], PackedGraphs]) -> PackedGraphs:
    """The graphs of an equal key (any JSON value) from the cache, or new ones from ``make``."""
    digest = hashlib.sha256(json.dumps([FORMAT, key], default=str).encode()).hexdigest()
    path = cache_root() / "packed" / f"{digest[:32]}.safetensors"
    try:
        if path.exists():
            return open_packed(path, key=digest)
    except (OSError, DataError):
        pass  # it cannot be read, is damaged, or of another version: made again below
    graphs = make()
    try:
        _make_cache()
        save_packed(graphs, path, key=digest)
        return open_packed(path, key=digest)
    except (OSError, DataError, MissingDependencyError):
        return graphs  # a cache that cannot be written is no reason to fail
