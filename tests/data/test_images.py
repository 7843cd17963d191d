"""CIFAR-10 in both of its forms."""

from __future__ import annotations

import io
import os
import pickle
import tarfile
from pathlib import Path

import numpy as np
import pytest

from graphnorm.data import DataError, load_cifar10
from graphnorm.data.images import read_cifar10

NAMES = [*(f"data_batch_{k}" for k in range(1, 6)), "test_batch"]


def original(folder: Path) -> Path:
    """A small original with two images in each batch, pickled like the real one: protocol 2, bytes as keys."""
    path = folder / "cifar-10-python.tar.gz"
    with tarfile.open(path, "w:gz") as tar:
        for k, name in enumerate(NAMES):
            batch = {b"data": np.full((2, 3072), k, np.uint8), b"labels": [k, 9], b"batch_label": b"x"}
            content = pickle.dumps(batch, protocol=2).replace(b"numpy._core.", b"numpy.core.")
            member = tarfile.TarInfo(f"cifar-10-batches-py/{name}")
            member.size = len(content)
            tar.addfile(member, io.BytesIO(content))
    return path


def test_the_original(tmp_path: Path) -> None:
    path = original(tmp_path)
    images = read_cifar10(path)
    assert images.train_images.shape == (10, 3, 32, 32)
    assert images.train_images[:, 0, 0, 0].tolist() == [0, 0, 1, 1, 2, 2, 3, 3, 4, 4]
    assert images.test_images.unique().tolist() == [5]
    assert images.train_labels.tolist() == [0, 9, 1, 9, 2, 9, 3, 9, 4, 9]
    assert not images.lossy
    with tarfile.open(path) as tar:
        tar.extractall(tmp_path, filter="data")
    unpacked = read_cifar10(tmp_path / "cifar-10-batches-py")
    assert unpacked.train_images.equal(images.train_images)
    assert unpacked.test_labels.equal(images.test_labels)
    assert load_cifar10(tmp_path).train_labels.equal(images.train_labels)


def test_a_pickle_that_runs_code_is_refused(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> tuple[object, tuple[str]]:
            return os.mkdir, (str(tmp_path / "made"),)

    for name in NAMES:
        (tmp_path / name).write_bytes(pickle.dumps({b"data": Evil()}))
    with pytest.raises(DataError, match="is not allowed in CIFAR-10"):
        read_cifar10(tmp_path)
    assert not (tmp_path / "made").exists()


def test_damaged_and_absent(tmp_path: Path) -> None:
    with pytest.raises(DataError, match="no such file"):
        read_cifar10(tmp_path / "absent.npz")
    path = tmp_path / "cifar10.npz"
    path.write_bytes(b"nothing")
    with pytest.raises(DataError, match="cannot be read"):
        read_cifar10(path)
    with pytest.raises(DataError, match="cannot be read"):
        read_cifar10(tmp_path)


def write_jpegs(folder: Path, jpegs: list[bytes]) -> None:
    arrays = {}
    for part in ("train", "test"):
        arrays[f"{part}_jpeg"] = np.frombuffer(b"".join(jpegs), np.uint8)
        arrays[f"{part}_offsets"] = np.cumsum([0, *map(len, jpegs)])
        arrays[f"{part}_labels"] = np.array([3, 1, 2], np.uint8)
    np.savez(folder / "cifar10.npz", **arrays)


def test_a_small_file_of_jpegs(tmp_path: Path) -> None:
    image_module = pytest.importorskip("PIL.Image")
    jpegs = []
    for red in (0, 100, 200):
        buffer = io.BytesIO()
        image_module.fromarray(np.full((32, 32, 3), (red, 50, 255), np.uint8)).save(buffer, "JPEG", quality=95)
        jpegs.append(buffer.getvalue())
    write_jpegs(tmp_path, jpegs)
    images = load_cifar10(tmp_path)
    assert images.lossy
    assert images.train_labels.tolist() == [3, 1, 2]
    assert images.test_images.shape == (3, 3, 32, 32)
    assert images.test_images.is_contiguous()
    red = images.train_images[:, 0].float().mean((1, 2))
    assert red.tolist() == pytest.approx([0, 100, 200], abs=3)
    write_jpegs(tmp_path, [*jpegs[:2], b"x" * 100])
    with pytest.raises(DataError, match="cannot identify image") as error:
        load_cifar10(tmp_path)
    assert error.value.where == tmp_path / "cifar10.npz"


@pytest.mark.slow
def test_the_real_file_of_jpegs(archives: Path) -> None:
    images = load_cifar10(archives)
    assert images.train_images.shape == (50000, 3, 32, 32)
    assert images.train_labels.bincount().tolist() == [5000] * 10
    assert images.test_labels.bincount().tolist() == [1000] * 10
    means = images.train_images.double().mean((0, 2, 3)) / 255
    assert means.tolist() == pytest.approx([0.4913, 0.4821, 0.4465], abs=1e-4)
