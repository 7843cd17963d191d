"""Writing files: each is written completely or not at all; values become plain JSON."""

from __future__ import annotations

import math
import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

__all__ = ["plain", "replacing"]


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Give a fresh name beside ``path`` to write to; on success it takes the place of ``path`` at once."""
    path.parent.mkdir(parents=True, exist_ok=True)
    fresh = path.with_name(f".{path.name}.{uuid.uuid4().hex}{path.suffix}")
    try:
        fresh.touch()
        mode = fresh.stat().st_mode
        yield fresh
        fresh.chmod(mode)  # whoever wrote it may have made it private, as safetensors does
        fresh.replace(path)
    except OSError as error:
        if error.filename is not None and Path(error.filename) == fresh:
            error.filename, error.filename2 = str(path), None  # the fresh name means nothing to anyone
        raise
    finally:
        with suppress(OSError):  # there where it could not be made, too
            fresh.unlink()


def plain(value: Any) -> Any:
    """Turn a value into what JSON knows, at any depth: arrays become lists, NaN and infinity None.

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
