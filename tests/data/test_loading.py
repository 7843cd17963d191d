"""Where ``load`` looks for data, what it refuses, and its cache."""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from graphnorm.data import (
    DataError,
    DownloadError,
    MissingDependencyError,
    PackedGraphs,
    cache_root,
    draw,
    find,
    folders,
    from_smiles,
    load,
    load_cifar10,
    loading,
    locate,
    obtain,
    save_packed,
    synthetic,
    to_networkx,
)
from graphnorm.data.download import download
from graphnorm.errors import GraphnormError


def test_a_name_beats_a_folder_and_a_path_beats_a_name(
    write_tu: Callable[..., Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tu()
    monkeypatch.chdir(folder.parent)
    assert load("TINY").num_graphs == 3
    folder.rename(folder.parent / "trees")
    assert load("trees").name == "synthetic:trees"
    assert load("./trees").num_graphs == 400
    assert load(Path("trees")).num_graphs == 3
    assert load(folder.parent / "trees").num_graphs == 3


def test_the_data_folder_comes_first_then_the_cache_then_the_web(
    archives: Path, own_cache: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    entry = find("MUTAG")
    asked: list[str] = []

    def fake_download(url: str, target: Path, **_: object) -> Path:
        asked.append(url)
        target.parent.mkdir(parents=True)
        shutil.copy(archives / "MUTAG.zip", target)
        return target

    monkeypatch.setattr(folders, "download_file", fake_download)
    monkeypatch.delenv("GRAPHNORM_DATA")
    assert locate(entry) is None
    with pytest.raises(DownloadError, match=r"MUTAG is not on this machine.*GRAPHNORM_DATA"):
        load("MUTAG", download=False)
    assert load("MUTAG").num_graphs == 188
    assert asked == ["https://www.chrsmrrs.com/graphkerneldatasets/MUTAG.zip"]
    in_cache = own_cache / "downloads" / "MUTAG.zip"
    assert obtain(entry) == in_cache
    assert locate(entry, tmp_path) == in_cache
    assert locate(entry, archives) == archives / "MUTAG.zip"
    monkeypatch.setenv("GRAPHNORM_DATA", str(archives))
    assert locate(entry) == archives / "MUTAG.zip"
    assert len(asked) == 1


def test_ptc_is_not_replaced_by_ptc_mr(own_cache: Path, archives: Path, tmp_path: Path) -> None:
    shutil.copy(archives / "PTC_MR.zip", tmp_path)
    with pytest.raises(
        DownloadError,
        match=r"PTC_MR, ANOTHER dataset .*ask for PTC_MR by its name.*put PTC\.zip into a folder",
    ):
        load("PTC", tmp_path)
    assert load("PTC_MR", tmp_path).num_nodes == 4915


@pytest.mark.parametrize(
    ("what", "options", "message"),
    [
        ("trees", {"features": "degree"}, "features cannot be used with synthetic:trees"),
        ("molecules", {"symmetrise": True, "target": "y"}, "target, symmetrise cannot be used with molecules"),
        ("MUTAG", {"threshold": 0.0}, "threshold cannot be used with MUTAG"),
        ("x.csv", {"merge_duplicates": True}, r"merge_duplicates cannot be used with x\.csv"),
        ("x.zip", {"skip_invalid": True}, r"skip_invalid cannot be used with x\.zip"),
        ("x.safetensors", {"features": "degree"}, r"features cannot be used with x\.safetensors"),
    ],
)
def test_options_that_do_not_apply_are_refused(what: str, options: dict[str, Any], message: str) -> None:
    with pytest.raises(DataError, match=message):
        load(what, **options)


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"max_size": float("nan")}, "max_size is nan"),
        ({"max_size": -1}, "max_size is -1"),
        ({"features": "degrees"}, "unknown features 'degrees'; did you mean 'degree'"),
        ({"task": "class"}, "unknown task 'class'"),
    ],
)
def test_options_of_absurd_values_are_refused(options: dict[str, Any], message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        load("MUTAG", **options)
    with pytest.raises(TypeError, match="symmetrise must be True or False"):
        load("MUTAG", symmetrise="no")  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("package", "extra", "use"),
    [
        ("rdkit", "chem", lambda folder: from_smiles(["C", "CC"], [0, 1])),
        ("pyarrow", "chem", lambda folder: load(folder / "x.parquet")),
        ("filelock", "data", lambda folder: download("http://127.0.0.1:9/x", folder / "x")),
        ("tqdm", "data", lambda folder: download("http://127.0.0.1:9/x", folder / "x")),
        ("safetensors", "data", lambda folder: save_packed(synthetic.trees(2), folder / "x")),
        ("networkx", "plots", lambda folder: to_networkx(synthetic.trees(2), 0)),
        ("matplotlib", "plots", lambda folder: draw(synthetic.trees(2))),
        ("PIL", "plots", load_cifar10),
    ],
)
def test_a_missing_package_is_named(
    package: str,
    extra: str,
    use: Callable[[Path], object],
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for file in ("x.parquet", "cifar10.npz"):
        (tmp_path / file).touch()
    for name in [package, *(module for module in sys.modules if module.startswith(f"{package}."))]:
        monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(MissingDependencyError, match=rf"needs the package .*pip install 'graphnorm\[{extra}\]'"):
        use(tmp_path)


def test_without_safetensors_there_is_no_cache(
    write_tu: Callable[..., Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    for name in ["safetensors", *(module for module in sys.modules if module.startswith("safetensors."))]:
        monkeypatch.setitem(sys.modules, name, None)
    assert load(write_tu()).num_graphs == 3
    assert not list(own_cache.glob("packed/*"))


def test_images_are_not_graphs() -> None:
    with pytest.raises(DataError, match="load_cifar10"):
        load("CIFAR-10")


@pytest.mark.usefixtures("own_cache")  # molecules made by another test would be found there
def test_importing_needs_no_optional_package() -> None:
    """torch and numpy are enough."""
    script = """
import sys
for name in ("rdkit", "ogb", "filelock", "networkx", "matplotlib", "pyarrow", "pandas", "PIL", "tqdm",
             "torch_geometric", "safetensors"):
    sys.modules[name] = None
import graphnorm.data
assert graphnorm.data.load("synthetic:regular").num_graphs == 400
try:
    graphnorm.data.load("molecules")
except graphnorm.data.MissingDependencyError as error:
    assert "pip install 'graphnorm[chem]'" in str(error), error
else:
    raise AssertionError("molecules were loaded without RDKit")
"""
    # torch itself may import some of these, so it comes first
    result = subprocess.run(
        [sys.executable, "-c", f"import torch, torch._dynamo\n{script}"],
        capture_output=True,
        text=True,
        check=False,
    )
    assert result.returncode == 0, result.stderr


def test_the_second_load_comes_from_the_cache(
    write_tu: Callable[..., Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tu()
    first = load(folder)
    assert len(list((own_cache / "packed").iterdir())) == 1

    def fail(*_: object, **__: object) -> PackedGraphs:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr(loading, "read_tu", fail)
        assert load(folder) == first
    assert load(folder, features="degree") != first
    write_tu(graph_labels="0\n0\n1\n")
    os.utime(folder / "TINY_graph_labels.txt", ns=(1, 1))
    assert load(folder).labels.tolist() == [0, 0, 1]


def test_a_damaged_cache_is_made_again(write_tu: Callable[..., Path], own_cache: Path) -> None:
    folder = write_tu()
    first = load(folder)
    (path,) = (own_cache / "packed").iterdir()
    good = path.read_bytes()
    for content in (b"", good[:40], good[:-4], b"x" * len(good), good.replace(b"packed-1", b"packed-0")):
        path.unlink()  # loaded graphs may still be mapped to it
        path.write_bytes(content)
        assert load(folder) == first
        assert path.read_bytes() == good


def test_a_file_of_the_cache_under_another_name(write_tu: Callable[..., Path], own_cache: Path) -> None:
    first = load(write_tu())
    (path,) = (own_cache / "packed").iterdir()
    kept = path.read_bytes()
    path.unlink()
    second = load(write_tu(graph_labels="-1\n1\n1\n"))
    (other,) = (own_cache / "packed").iterdir()
    other.write_bytes(kept)
    assert load(write_tu(graph_labels="-1\n1\n1\n")) == second != first


@pytest.mark.parametrize("make", [os.mkfifo, os.mkdir, lambda path: path.symlink_to("/dev/zero")])
def test_no_file_in_its_place_in_the_cache(
    write_tu: Callable[..., Path], own_cache: Path, make: Callable[[Path], None]
) -> None:
    first = load(write_tu())
    (path,) = (own_cache / "packed").iterdir()
    path.unlink()
    make(path)
    assert load(write_tu()) == first


def test_flipped_bytes_in_the_cache_are_noticed(write_tu: Callable[..., Path], own_cache: Path) -> None:
    folder = write_tu()
    first = load(folder)
    (path,) = (own_cache / "packed").iterdir()
    good = path.read_bytes()
    for at in range(0, len(good), 7):
        path.unlink()
        path.write_bytes(good[:at] + bytes([good[at] ^ 1]) + good[at + 1 :])
        assert load(folder) == first
    assert own_cache.stat().st_mode & 0o777 == 0o700


def test_an_edit_that_keeps_size_and_time_is_noticed(write_tu: Callable[..., Path], tmp_path: Path) -> None:
    folder, table = write_tu(), tmp_path / "t.csv"
    table.write_text("smiles,label\nCCO,1\nCC,0\n")
    paths = {folder: folder / "TINY_graph_labels.txt", table: table}
    for data, path in paths.items():
        first, times = load(data), path.stat()
        path.write_text(path.read_text().translate(str.maketrans("01", "10")).replace("-0", "-1"))
        os.utime(path, ns=(times.st_atime_ns, times.st_mtime_ns))
        assert path.stat().st_size == times.st_size
        assert load(data) != first


@pytest.mark.parametrize("what", ["/dev/zero", "/dev/null", "pipe", "pipe.csv", "pipe.safetensors"])
def test_only_files_and_folders_are_read(tmp_path: Path, what: str) -> None:
    path = tmp_path / what
    if "pipe" in what:
        os.mkfifo(path)
    with pytest.raises(DataError, match=r"neither a file nor a folder|no such file"):
        load(path)


@pytest.mark.parametrize("name", ["a-file", "a" * 400, "loop"])
def test_a_cache_that_cannot_be_written(
    write_tu: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    (tmp_path / "a-file").write_text("not a folder")
    (tmp_path / "loop").symlink_to("loop")
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / name))
    assert load(write_tu()).num_graphs == 3


def test_an_interrupted_save_leaves_nothing(
    write_tu: Callable[..., Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    import safetensors.torch

    def interrupted(tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        load(write_tu())
    assert list((own_cache / "packed").iterdir()) == []


@pytest.mark.parametrize(
    ("platform", "variable", "expected"),
    [
        ("linux", "XDG_CACHE_HOME", "{}"),
        ("win32", "LOCALAPPDATA", "{}"),
        ("darwin", "HOME", "{}/Library/Caches"),
    ],
)
def test_where_the_cache_is(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, platform: str, variable: str, expected: str
) -> None:
    monkeypatch.delenv("GRAPHNORM_CACHE")
    monkeypatch.setattr(sys, "platform", platform)
    monkeypatch.setenv(variable, str(tmp_path))
    assert cache_root() == Path(expected.format(tmp_path)) / "graphnorm"
