"""Files that are written wholly or not at all."""

from __future__ import annotations

import uuid
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

__all__ = ["replacing"]


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
