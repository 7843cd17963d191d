"""Checkpoints: where a fleet stands, as bytes, and as a file that is whole or absent."""

from __future__ import annotations

import hashlib
import io
import os
import uuid
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import torch

from graphnorm._version import __version__
from graphnorm.errors import StoreError

__all__ = ["Checkpoint", "CheckpointFolder", "pack_checkpoint", "unpack_checkpoint"]

MAGIC = b"graphnorm-fleet-1\n"
CODE = f"graphnorm {__version__}, torch {torch.__version__}"
"""Other versions may train differently: their checkpoints are not used."""


@dataclass(frozen=True, eq=False)
class Checkpoint:
    """Where a fleet stands."""

    keys: tuple[str, ...]
    """Of its members."""
    epoch: int
    outcomes: list[dict[str, Any]]
    """What there is of each member so far: ``curves``, ``status``, ``seconds`` and ``device``."""
    state: dict[str, Any]
    """The fleet's own ``state_dict``."""


def pack_checkpoint(checkpoint: Checkpoint) -> bytes:
    """Give the bytes of a checkpoint, with their own checksum."""
    buffer = io.BytesIO()
    torch.save(_without_arrays({"code": CODE} | vars(checkpoint)), buffer)
    content = buffer.getvalue()
    return MAGIC + hashlib.sha256(content).digest() + content


def unpack_checkpoint(data: bytes) -> Checkpoint | None:
    """Give what :func:`pack_checkpoint` made bytes of; None where they are damaged or of another version."""
    start = len(MAGIC) + hashlib.sha256().digest_size
    content = data[start:]
    if not data.startswith(MAGIC) or data[len(MAGIC) : start] != hashlib.sha256(content).digest():
        return None
    values = _with_arrays(torch.load(io.BytesIO(content), map_location="cpu", weights_only=True))
    if values.pop("code") != CODE:
        return None
    return Checkpoint(**values | {"keys": tuple(values["keys"])})


class CheckpointFolder:
    """The files of a study's fleets, by the fleet's number; the folder is there while it holds any."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, fleet: int) -> Path:
        return self.folder / f"fleet-{fleet}.checkpoint"

    def write(self, fleet: int, data: bytes) -> None:
        """Replace a fleet's file at once; on return the disk has it."""
        fresh = self.folder / f".{uuid.uuid4().hex}"
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            with fresh.open("wb") as file:
                file.write(data)
                file.flush()
                os.fsync(file.fileno())
            fresh.replace(self._path(fleet))
            _sync_folder(self.folder)
        except OSError as error:
            fresh.unlink(missing_ok=True)
            raise StoreError(
                f"a checkpoint cannot be written ({error.strerror})",
                where=self._path(fleet),
                remedy="make room and give the same command again; everything finished before is kept",
            ) from error

    def read(self, fleet: int) -> bytes | None:
        """A fleet's file, if there is one."""
        try:
            return self._path(fleet).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, fleet: int) -> None:
        """Remove a fleet's file."""
        self._path(fleet).unlink(missing_ok=True)

    def clear(self) -> None:
        """Remove the files of all fleets, half-written ones of killed processes included."""
        for pattern in ("fleet-*.checkpoint", ".[0-9a-f]*"):
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)


def _sync_folder(folder: Path) -> None:
    """A new name is on the disk when its folder is."""
    if os.name == "nt":
        return
    descriptor = os.open(folder, os.O_RDONLY)
    try:
        os.fsync(descriptor)
    finally:
        os.close(descriptor)


def _without_arrays(value: Any) -> Any:
    """Arrays as marked tensors, so that a file is read without running code that it names."""
    if isinstance(value, np.ndarray):
        return {"array": torch.from_numpy(np.ascontiguousarray(value))}
    if isinstance(value, np.generic):
        return value.item()
    if isinstance(value, Mapping):
        return {"map": [(key, _without_arrays(item)) for key, item in value.items()]}
    if isinstance(value, (list, tuple)):
        return [_without_arrays(item) for item in value]
    return value


def _with_arrays(value: Any) -> Any:
    if isinstance(value, dict):
        if "array" in value:
            return value["array"].numpy()
        return {key: _with_arrays(item) for key, item in value["map"]}
    if isinstance(value, list):
        return [_with_arrays(item) for item in value]
    return value
