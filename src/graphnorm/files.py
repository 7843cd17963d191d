"""Writing files completely or not at all, and values as plain JSON."""

from __future__ import annotations

import errno
import json
import math
import os
import re
import shutil
import socket
import uuid
import zlib
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager, suppress
from pathlib import Path
from tempfile import TemporaryFile
from typing import Any

from graphnorm.errors import PATH, GraphnormError, need

__all__ = ["plain", "read_text", "refuse_overwriting", "refuse_unwritable", "replacing", "save_tensors", "write_text"]

LARGEST_TEXT = 256 << 20


def read_text(path: Path, error: type[GraphnormError] = GraphnormError) -> str:
    """Read a text file, written by hand or by us; refuse what is no regular file of a sensible size in UTF-8."""
    if not path.exists():
        raise error("there is no such file", where=path, remedy="check the path")
    if not path.is_file():
        raise error("this is no regular file", where=path, remedy="name a text file")
    if (size := path.stat().st_size) > LARGEST_TEXT:
        raise error(f"this file has {size:,} bytes, too many for one of its kind", where=path, remedy="check the path")
    try:
        return path.read_text(encoding="utf-8-sig")
    except UnicodeDecodeError as wrong:
        raise error(f"this is not text: {wrong}", where=path, remedy="check the path") from wrong


def refuse_overwriting(inputs: Iterable[object], *outputs: Path) -> None:
    """Raise an error if a file that is to be written is one of those that are read."""
    for path in inputs:
        if isinstance(path, PATH) and Path(path).exists():
            for output in outputs:
                if output.exists() and output.samefile(path):
                    remedy = "name another place for the output (--out)"
                    raise GraphnormError("the output would overwrite this input", where=output, remedy=remedy)


ROOM = 16 << 20
"""Bytes that must be free where results are written: models, stores and figures are smaller, with few exceptions."""


def refuse_unwritable(folder: Path) -> None:
    """Raise an error if a folder cannot be written or created, or its disk is full; nothing is left in it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise GraphnormError("this is a file, not a folder", where=there, remedy="name a folder")
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        error.filename = str(there)
        raise
    if (free := shutil.disk_usage(there).free) < ROOM:
        problem = f"only {free >> 10:,} KiB are free there"
        raise GraphnormError(problem, where=there, remedy="make room there, or name another place")


def write_text(path: Path, text: str) -> None:
    """Write a text file, completely or not at all."""
    with replacing(path) as fresh:
        fresh.write_text(text, encoding="utf-8")


@contextmanager
def replacing(path: Path) -> Iterator[Path]:
    """Yield a temporary path in the same folder; on success it replaces ``path`` atomically.

    The content is on the disk before it gets its name. Temporary files of processes that were killed are removed.
    """
    if path.exists() and not path.is_file():  # /dev/null, for one, must stay what it is
        raise OSError(errno.EINVAL, "this is no regular file", str(path))
    path.parent.mkdir(parents=True, exist_ok=True)
    _remove_leftovers(path)
    fresh = path.with_name(f".{path.name}.{_host()}-{os.getpid()}-{uuid.uuid4().hex[:12]}{path.suffix}")
    try:
        fresh.touch()
        mode = fresh.stat().st_mode
        yield fresh
        fresh.chmod(mode)  # safetensors, for one, makes its files private
        _sync(fresh)
        fresh.replace(path)
        with suppress(OSError):  # some file systems cannot sync a folder
            _sync(path.parent)
    except OSError as error:
        if error.filename is None or Path(error.filename) == fresh:
            error.filename, error.filename2 = str(path), None  # name the file that the user asked for
        raise
    finally:
        with suppress(OSError):  # it does not exist after a success, or if it could not be created
            fresh.unlink()


def _sync(path: Path) -> None:
    descriptor = os.open(path, os.O_RDONLY if path.is_dir() or os.name != "nt" else os.O_RDWR)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _host() -> str:
    return f"{zlib.crc32(socket.gethostname().encode()):08x}"


def _remove_leftovers(path: Path) -> None:
    """Remove the temporary files for ``path`` of processes of this machine that run no more, and those beside them."""
    if os.name == "nt":  # there is no harmless way to ask whether a process runs
        return
    pattern = re.compile(rf"\.{re.escape(path.name)}\.{_host()}-(\d+)-[0-9a-f]{{12}}{re.escape(path.suffix)}(-[a-z]+)*")
    with suppress(OSError):
        for file in path.parent.iterdir():
            if (found := pattern.fullmatch(file.name)) and not _runs(int(found[1])):
                file.unlink()


def _runs(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return False
    except (OSError, OverflowError):  # of another user
        return True
    return True


def save_tensors(path: Path, tensors: Mapping[str, Any], about: Mapping[str, Any], task: str) -> None:
    """Write tensors and a JSON description to a safetensors file, completely or not at all.

    task: what the file is for, to say so if safetensors is not installed.

    Raises:
        OSError: also for a full disk, where safetensors raises an error of its own.
    """
    safetensors = need("safetensors.torch", task, "data")
    with replacing(path) as fresh:
        try:
            safetensors.save_file(dict(tensors), fresh, {"graphnorm": json.dumps(about)})
        except need("safetensors", task, "data").SafetensorError as error:
            found = re.search(r"os error (\d+)", str(error))
            number = int(found[1]) if found else errno.EIO
            raise OSError(number, os.strerror(number), str(path)) from error


def plain(value: Any, digits: int | None = None) -> Any:
    """Convert a value for JSON, at any depth: arrays become lists, NaN and infinity None.

    Objects with a method ``to_dict`` become dicts.

    digits: decimal places of numbers, or digits of those below 0.1; all if left out.

    >>> import numpy as np
    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), True)})
    {'a': [1.0, None], 'b': [2, True]}
    >>> plain([2 / 3, 2 / 300], digits=3)
    [0.667, 0.00667]
    """
    if hasattr(value, "to_dict"):
        value = value.to_dict()
    elif hasattr(value, "tolist"):  # arrays and scalars of NumPy and torch
        value = value.tolist()
    if isinstance(value, dict):
        return {str(name): plain(entry, digits) for name, entry in value.items()}
    if isinstance(value, list | tuple):
        return [plain(entry, digits) for entry in value]
    if isinstance(value, float):
        if not math.isfinite(value):
            return None
        if digits is not None:
            return round(value, digits) if abs(value) >= 0.1 else float(f"{value:.{digits}g}")
    return value
