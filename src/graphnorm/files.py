"""Writing files completely or not at all, and values as plain JSON."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from graphnorm.errors import GraphnormError

__all__ = ["plain", "refuse_unwritable", "replacing"]


def refuse_unwritable(folder: Path) -> None:
    """Raise an error if a folder cannot be written or created; nothing is left in it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise GraphnormError("this is a file, not a folder", where=there, remedy="name a folder")
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        error.filename = str(there)
        raise


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it replaces ``path`` atomically."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}{path.suffix}")
    try:
        fresh.touch()
        mode = fresh.stat().st_mode
        yield fresh
        fresh.chmod(mode)  # safetensors, for one, makes its files private
        fresh.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) == fresh:
            error.filename, error.filename2 = str(path), None  # name the file that the user asked for
        raise
    finally:
        with suppress(OSError):  # it does not exist after a success, or if it could not be created
            fresh.unlink()


def plain(value: Any) -> Any:
    """Convert a value for JSON, at any depth: arrays become lists, NaN and infinity None.

    Objects with a method ``to_dict`` become dicts.

    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), True)})
    {'a': [1.0, None], 'b': [2, True]}
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif hasattr(value, "tolist"):  # arrays and scalars of NumPy and torch
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
