"""Checkpoints: fleets in the middle of their training, as bytes, and a folder of them."""

from __future__ import annotations

import hashlib
import io
from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from graphnorm._version import __version__
from graphnorm.errors import StoreError
from graphnorm.files import replacing
from graphnorm.training import Outcome

__all__ = ["Checkpoint", "CheckpointFolder", "pack_checkpoint", "unpack_checkpoint"]

MAGIC = b"graphnorm-fleet-3\n"
CODE = f"graphnorm {__version__}, torch {torch.__version__}"
"""Checkpoints of other versions are not used: they may train differently."""


class Checkpoint(NamedTuple):
    """A fleet in the middle of its training."""

    keys: tuple[str, ...]
    """Keys of the members."""
    epoch: int
    outcomes: list[dict[str, Any]]
    """The outcome of each member so far, as keyword arguments of :class:`Outcome`."""
    state: dict[str, Any]
    """The fleet's ``state_dict``."""


def pack_checkpoint(keys: Sequence[str], epoch: int, outcomes: Sequence[Outcome], state: dict[str, Any]) -> bytes:
    """Serialize a checkpoint, with a checksum."""
    parts = [
        {
            "curves": _tensors(outcome.curves),
            "seen": _tensors(outcome.seen),
            "status": outcome.status,
            "seconds": outcome.seconds,
            "device": outcome.device,
            "targets": torch.from_numpy(outcome.targets),
        }
        for outcome in outcomes
    ]
    buffer = io.BytesIO()
    torch.save({"code": CODE, "keys": list(keys), "epoch": epoch, "outcomes": parts, "state": state}, buffer)
    content = buffer.getvalue()
    return MAGIC + hashlib.sha256(content).digest() + content


def unpack_checkpoint(data: bytes) -> Checkpoint | None:
    """Undo :func:`pack_checkpoint`; None if the bytes are damaged or of another version."""
    start = len(MAGIC) + hashlib.sha256().digest_size
    content = data[start:]
    if not data.startswith(MAGIC) or data[len(MAGIC) : start] != hashlib.sha256(content).digest():
        return None
    values = torch.load(io.BytesIO(content), map_location="cpu", weights_only=True)
    if values["code"] != CODE:
        return None
    outcomes = [
        part
        | {name: {k: v.numpy() for k, v in part[name].items()} for name in ("curves", "seen")}
        | {"targets": part["targets"].numpy()}
        for part in values["outcomes"]
    ]
    return Checkpoint(tuple(values["keys"]), values["epoch"], outcomes, values["state"])


def _tensors(arrays: dict[str, npt.NDArray[Any]]) -> dict[str, torch.Tensor]:
    """Unlike arrays, tensors can be loaded with ``weights_only``, which runs no code of the file."""
    return {name: torch.from_numpy(np.ascontiguousarray(values)) for name, values in arrays.items()}


class CheckpointFolder:
    """The checkpoints of a study's fleets, one file for each; a file is complete or absent."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder

    def _path(self, fleet: int) -> Path:
        return self.folder / f"fleet-{fleet}.checkpoint"

    def write(self, fleet: int, data: bytes) -> None:
        """Replace a fleet's file atomically; on return the disk has it."""
        path = self._path(fleet)
        try:
            with replacing(path) as fresh:
                fresh.write_bytes(data)
        except OSError as error:
            raise StoreError(
                f"a checkpoint cannot be written ({error.strerror})",
                where=path,
                remedy="make room and give the same command again; everything finished before is kept",
            ) from error

    def read(self, fleet: int) -> bytes | None:
        try:
            return self._path(fleet).read_bytes()
        except FileNotFoundError:
            return None

    def remove(self, fleet: int) -> None:
        self._path(fleet).unlink(missing_ok=True)

    def clear(self) -> None:
        for pattern in ("fleet-*", ".fleet-*"):  # the second are of a run that was killed while it wrote
            for path in self.folder.glob(pattern):
                path.unlink(missing_ok=True)
