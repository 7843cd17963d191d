"""CIFAR-10, for the comparison of batch noise between images and graphs.

Two forms are read: the original ``cifar-10-python.tar.gz`` (or the folder it unpacks to), and ``cifar10.npz`` with the
images as JPEGs, which is lossy.
"""

from __future__ import annotations

import io
import pickle
import tarfile
from itertools import pairwise
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import torch
from torch import Tensor

from graphnorm.data.archive import decoding
from graphnorm.errors import DataError, need

__all__ = ["Images", "read_cifar10"]


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
    """Whether the pixels were stored as JPEG."""

    def to(self, device: torch.device | str) -> Images:
        return self._replace(**{name: getattr(self, name).to(device) for name in self._fields[:4]})


def read_cifar10(path: Path) -> Images:
    """Read CIFAR-10 from its tar file, the folder it unpacks to, or the npz of JPEGs."""
    if not path.exists():
        raise DataError("there is no such file or folder", where=path, remedy="check the path")
    with decoding(path):
        parts = _read_jpegs(path) if path.suffix == ".npz" else _read_original(path)
        (train, train_labels), (test, test_labels) = (
            (torch.from_numpy(np.ascontiguousarray(images, np.uint8)), torch.from_numpy(labels.astype(np.int64)))
            for images, labels in parts
        )
    return Images(train, train_labels, test, test_labels, lossy=path.suffix == ".npz")


Parts = list[tuple[np.ndarray[Any, Any], np.ndarray[Any, Any]]]
"""(n, 3, 32, 32) images and (n,) labels, for training and for the test."""


def _read_jpegs(path: Path) -> Parts:
    decoder = need("PIL.Image", "decoding the images", "plots")
    parts = []
    with np.load(path) as file:
        for part in ("train", "test"):
            content, offsets = file[f"{part}_jpeg"].tobytes(), file[f"{part}_offsets"].tolist()
            images = [np.asarray(decoder.open(io.BytesIO(content[a:b])).convert("RGB")) for a, b in pairwise(offsets)]
            parts.append((np.stack(images).transpose(0, 3, 1, 2), file[f"{part}_labels"]))
    return parts


def _read_original(path: Path) -> Parts:
    names = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]
    if path.is_dir():
        contents = [(path / name).read_bytes() for name in names]
    else:
        with tarfile.open(path) as tar:
            files = (tar.extractfile(f"cifar-10-batches-py/{name}") for name in names)
            contents = [file.read() for file in files if file is not None]
    batches = [_ArraysOnly(io.BytesIO(content), encoding="bytes").load() for content in contents]
    *train, test = (
        (np.asarray(batch[b"data"]).reshape(-1, 3, 32, 32), np.asarray(batch[b"labels"])) for batch in batches
    )
    images, labels = zip(*train, strict=True)
    return [(np.concatenate(images), np.concatenate(labels)), test]


class _ArraysOnly(pickle.Unpickler):
    """Reads the original's pickles and refuses everything that is not needed for arrays."""

    _ALLOWED = frozenset({("_codecs", "encode"), ("numpy", "dtype"), ("numpy", "ndarray")})

    def find_class(self, module: str, name: str) -> Any:
        if (module, name) in self._ALLOWED or (name == "_reconstruct" and module.endswith("core.multiarray")):
            return super().find_class(module.replace("numpy.core", "numpy._core"), name)
        raise pickle.UnpicklingError(f"{module}.{name} is not allowed in CIFAR-10")
