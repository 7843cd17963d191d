"""CIFAR-10, for the comparison of batch noise between images and graphs.

Two forms are read: the original ``cifar-10-python.tar.gz`` (or the folder it unpacks to), and ``cifar10.npz``
with the images as JPEGs, which is lossy.
"""

from __future__ import annotations

import importlib.util
import io
import pickle
import tarfile
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor

from graphnorm.data.files import decoding
from graphnorm.data.jpeg import decode
from graphnorm.errors import DataError, MissingDependencyError

__all__ = ["Images", "read_cifar10"]

SHAPE = (3, 32, 32)


class Images(NamedTuple):
    """Images and their classes."""

    train_images: Tensor
    """(50000, 3, 32, 32) uint8."""
    train_labels: Tensor
    """(50000,) int64."""
    test_images: Tensor
    """(10000, 3, 32, 32) uint8."""
    test_labels: Tensor
    """(10000,) int64."""
    lossy: bool
    """Whether the pixels went through JPEG."""


def read_cifar10(path: Path) -> Images:
    """Read CIFAR-10 from its tar file, the folder it unpacks to, or the npz of JPEGs."""
    if not path.exists():
        raise DataError("there is no such file or folder", where=path, remedy="check the path")
    if path.suffix == ".npz":
        return _from_jpeg(path)
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    with decoding(str(path)):
        batches = [_unpickle(content) for content in _members(path, names)]
        images = [np.asarray(batch[b"data"], np.uint8).reshape(-1, *SHAPE) for batch in batches]
        labels = [np.asarray(batch[b"labels"], np.int64) for batch in batches]
    return Images(
        torch.from_numpy(np.concatenate(images[:-1])),
        torch.from_numpy(np.concatenate(labels[:-1])),
        torch.from_numpy(images[-1].copy()),
        torch.from_numpy(labels[-1]),
        lossy=False,
    )


def _members(path: Path, names: list[str]) -> list[bytes]:
    if path.is_dir():
        return [(path / name).read_bytes() for name in names]
    with tarfile.open(path) as tar:
        files = (tar.extractfile(f"cifar-10-batches-py/{name}") for name in names)
        return [file.read() for file in files if file is not None]


class _ArraysOnly(pickle.Unpickler):
    """Reads the pickles of the original, and refuses whatever is not needed to make arrays."""

    _ALLOWED = frozenset({("_codecs", "encode"), ("numpy", "dtype"), ("numpy", "ndarray")})

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._ALLOWED or (name == "_reconstruct" and module.endswith("core.multiarray")):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} has no place in CIFAR-10")


def _unpickle(content: bytes) -> dict[bytes, Any]:
    batch = _ArraysOnly(io.BytesIO(content), encoding="bytes").load()
    if not isinstance(batch, dict):
        raise pickle.UnpicklingError("a batch is a dictionary")
    return batch


def _from_jpeg(path: Path) -> Images:
    with decoding(str(path)), np.load(path) as file:
        arrays = {name: file[name] for name in file.files}
        parts = {
            part: (
                _decode(arrays[f"{part}_jpeg"], arrays[f"{part}_offsets"]),
                arrays[f"{part}_labels"].astype(np.int64),
            )
            for part in ("train", "test")
        }
    (train, train_labels), (test, test_labels) = (map(torch.from_numpy, part) for part in parts.values())
    return Images(train, train_labels, test, test_labels, lossy=True)


def _decode(content: npt.NDArray[np.uint8], offsets: npt.NDArray[np.int64]) -> npt.NDArray[np.uint8]:
    """(images, 3, 32, 32) from JPEGs that lie end to end."""
    if importlib.util.find_spec("PIL") is None:
        raise MissingDependencyError("pillow", "decoding the images", "plots")
    return decode(content.tobytes(), offsets.astype(np.int64), SHAPE)
