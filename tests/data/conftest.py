"""Fixtures of the data tests: the real archives, a separate cache, and small datasets in files."""

from __future__ import annotations

import gzip
import os
import warnings
import zipfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphnorm.data import DataError, load

TU_FILES = {
    "A": "1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n",
    "graph_indicator": "1\n1\n1\n2\n2\n3\n",
    "graph_labels": "1\n-1\n1\n",
    "node_labels": "0\n2\n2\n0\n5\n5\n",
}
"""A path of three nodes, an edge, and a single node."""

OGB_FILES = {
    "raw/edge": "0,1\n1,2\n0,1\n",
    "raw/num-edge-list": "2\n1\n0\n",
    "raw/num-node-list": "3\n2\n1\n",
    "raw/node-feat": "5,0,4,5,3,0,2,0,0\n" * 6,
    "raw/edge-feat": "0,0,0\n1,0,0\n3,0,1\n",
    "raw/graph-label": "0\n1\n0\n",
    "split/scaffold/train": "0\n",
    "split/scaffold/valid": "1\n",
    "split/scaffold/test": "2\n",
}


def assert_refused(path: Path, where: Path, line: int | None, message: str, **options: Any) -> None:
    """Loading is an error that names the file, the line and a remedy."""
    with pytest.raises(DataError, match=message) as error:
        load(path, **options)
    assert (Path(str(error.value.where)), error.value.line) == (where.resolve(), line)
    assert error.value.remedy


@pytest.fixture(scope="session")
def shared_cache(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return tmp_path_factory.mktemp("cache")


@pytest.fixture(autouse=True)
def cache(shared_cache: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Use a cache of our own, shared by all tests of a session."""
    monkeypatch.setenv("GRAPHNORM_CACHE", str(shared_cache))
    return shared_cache


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """A cache that is empty at the start of the test."""
    folder = tmp_path / "own-cache"
    monkeypatch.setenv("GRAPHNORM_CACHE", str(folder))
    return folder


@pytest.fixture(scope="session")
def archives() -> Path:
    """The folder of real archives. Tests that need it are skipped if it is absent."""
    folder = os.environ.get("GRAPHNORM_DATA")
    if not folder or not (Path(folder) / "MUTAG.zip").exists():
        pytest.skip("GRAPHNORM_DATA names no folder with the benchmark archives")
    return Path(folder)


@pytest.fixture(scope="session")
def pyg() -> Any:
    """PyTorch Geometric, whose own import calls deprecated parts of torch."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        import torch_geometric
        import torch_geometric.datasets
    return torch_geometric


@pytest.fixture
def write_tu(tmp_path: Path) -> Callable[..., Path]:
    """Write a TU folder named TINY; keywords replace a file's text, None leaves the file out."""

    def write(**changes: str | bytes | None) -> Path:
        folder = tmp_path / "TINY"
        folder.mkdir(exist_ok=True)
        for part, text in (TU_FILES | changes).items():
            if text is not None:
                content = text if isinstance(text, bytes) else text.encode()
                (folder / f"TINY_{part}.txt").write_bytes(content)
        return folder

    return write


@pytest.fixture
def write_ogb(tmp_path: Path) -> Callable[..., Path]:
    """Write an OGB folder; keywords (``-`` as ``_``) replace a file's text, None leaves the file out."""

    def write(**changes: str | None) -> Path:
        replaced = {f"raw/{part.replace('_', '-')}": text for part, text in changes.items()}
        for name, text in (OGB_FILES | replaced).items():
            if text is not None:
                path = tmp_path / "ogbg_tiny" / f"{name}.csv.gz"
                path.parent.mkdir(parents=True, exist_ok=True)
                path.write_bytes(gzip.compress(text.encode()))
        return tmp_path / "ogbg_tiny"

    return write


@pytest.fixture
def zipped() -> Callable[[Path], Path]:
    """Pack a folder into a zip with the same name in the same place."""

    def pack(folder: Path) -> Path:
        path = folder.with_suffix(".zip")
        with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
            for file in sorted(folder.rglob("*")):
                if file.is_file():
                    archive.write(file, f"{folder.name}/{file.relative_to(folder).as_posix()}")
        return path

    return pack
