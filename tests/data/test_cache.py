"""The packed form on disk."""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable
from pathlib import Path

import pytest
import torch

from graphnorm.data import DataError, PackedGraphs, cache_root, load, open_packed, save_packed, synthetic
from graphnorm.data import cache as cache_module
from graphnorm.data.cache import cached


def test_round_trip_with_splits_and_edge_features(write_ogb: Callable[..., Path], tmp_path: Path) -> None:
    graphs = load(write_ogb())
    path = tmp_path / "graphs.safetensors"
    save_packed(graphs, path)
    for back in (open_packed(path), load(path), load(str(path))):
        assert back == graphs
        assert (back.name, back.source, back.classes) == (graphs.name, graphs.source, graphs.classes)
        assert back.batch([0, 2]).ptr.tolist() == [0, 3, 4]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["graphs.safetensors"]


def test_the_second_load_comes_from_the_cache(
    write_tu: Callable[..., Path], own_cache: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    folder = write_tu()
    first = load(folder)
    assert len(list((own_cache / "packed").iterdir())) == 1

    def fail(*_: object, **__: object) -> PackedGraphs:
        raise AssertionError("read again")

    with monkeypatch.context() as patch:
        patch.setattr("graphnorm.data.loading.read_tu", fail)
        assert load(folder) == first
    assert load(folder, features="degree") != first
    write_tu(graph_labels="0\n0\n1\n")
    os.utime(folder / "TINY_graph_labels.txt", ns=(1, 1))
    assert load(folder).labels.tolist() == [0, 0, 1]


def test_a_damaged_cache_is_made_anew(write_tu: Callable[..., Path], own_cache: Path) -> None:
    folder = write_tu()
    first = load(folder)
    (path,) = (own_cache / "packed").iterdir()
    good = path.read_bytes()
    for content in (b"", good[:40], good[:-4], b"x" * len(good), good.replace(b"packed-1", b"packed-0")):
        path.unlink()  # loaded graphs may still be mapped to it
        path.write_bytes(content)
        assert load(folder) == first
        assert path.read_bytes() == good


def test_a_cache_that_cannot_be_written_is_done_without(
    write_tu: Callable[..., Path], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "a-file").write_text("not a folder")
    monkeypatch.setenv("GRAPHNORM_CACHE", str(tmp_path / "a-file"))
    assert load(write_tu()).num_graphs == 3


def test_an_interrupted_save_leaves_nothing(own_cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    import safetensors.torch

    def interrupted(tensors: object, path: Path, metadata: object) -> None:
        Path(path).write_bytes(b"half")
        raise KeyboardInterrupt

    monkeypatch.setattr(safetensors.torch, "save_file", interrupted)
    with pytest.raises(KeyboardInterrupt):
        cached("key", lambda: synthetic.trees(4))
    assert list((own_cache / "packed").iterdir()) == []


def test_files_have_the_permissions_of_any_other(tmp_path: Path) -> None:
    save_packed(synthetic.trees(4), tmp_path / "graphs.safetensors")
    (tmp_path / "other").touch()
    assert (tmp_path / "graphs.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_opening_what_is_not_packed_graphs(tmp_path: Path) -> None:
    import safetensors.torch

    path = tmp_path / "x.safetensors"
    with pytest.raises(DataError, match="no such file"):
        open_packed(path)
    path.write_bytes(b"nonsense")
    with pytest.raises(DataError, match="cannot be read"):
        open_packed(path)
    safetensors.torch.save_file({"a": torch.zeros(1)}, path)
    with pytest.raises(DataError, match="has the format None"):
        open_packed(path)
    safetensors.torch.save_file({"a": torch.zeros(1)}, path, {"graphnorm": json.dumps({"format": cache_module.FORMAT})})
    with pytest.raises(DataError, match="cannot be read"):
        open_packed(path)


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
