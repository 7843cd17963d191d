"""PackedGraphs as a value, and in a file."""

from __future__ import annotations

import json
import pickle
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
import torch

from graphnorm.data import DataError, PackedGraphs, load, open_packed, save_packed, synthetic
from graphnorm.data.packed_file import FORMAT
from graphnorm.settings import TaskName

GRAPHS = synthetic.trees(20)


def with_targets(graphs: PackedGraphs, targets: torch.Tensor, task: TaskName = "values") -> PackedGraphs:
    names = tuple(f"t{k}" for k in range(targets.shape[1]))
    bare = {"labels": torch.zeros_like(graphs.labels), "classes": ("unknown",)}
    return replace(graphs, **bare, task=task, targets=targets, target_names=names)


def test_equal_content_is_equal() -> None:
    again, other = synthetic.trees(20), synthetic.trees(20, seed=1)
    assert again == GRAPHS
    assert hash(again) == hash(GRAPHS)
    assert other != GRAPHS
    assert GRAPHS != "synthetic:trees"
    assert pickle.loads(pickle.dumps(GRAPHS)) == GRAPHS
    assert GRAPHS.to("cpu") == GRAPHS
    with pytest.raises(AttributeError):
        GRAPHS.name = "other"  # type: ignore[misc]


def test_pickles_hold_the_fields_only() -> None:
    fields = set(GRAPHS.__getstate__())
    GRAPHS.batch([0])
    assert set(GRAPHS.__dict__) > fields
    assert set(pickle.loads(pickle.dumps(GRAPHS)).__dict__) == fields


def test_statistics() -> None:
    statistics = GRAPHS.statistics()
    assert statistics.num_nodes == sum(GRAPHS.sizes.tolist())
    assert statistics.avg_edges == (len(GRAPHS.col) + statistics.num_nodes) / 20
    assert statistics.max_degree == max(GRAPHS.degree.tolist())
    assert sum(statistics.class_sizes) == 20


def test_a_file_with_splits_and_edge_features(write_ogb: Callable[..., Path], tmp_path: Path) -> None:
    graphs = load(write_ogb())
    path = tmp_path / "graphs.safetensors"
    save_packed(graphs, path)
    for back in (open_packed(path), load(path), load(str(path))):
        assert back == graphs
        assert (back.name, back.source, back.classes) == (graphs.name, graphs.source, graphs.classes)
        assert back.batch([0, 2]).ptr.tolist() == [0, 3, 4]
    assert [p.name for p in tmp_path.iterdir() if p.is_file()] == ["graphs.safetensors"]


def test_targets_belong_to_the_content(tmp_path: Path) -> None:
    targets = torch.arange(40.0).view(20, 2)
    targets[3, 1] = torch.nan
    graphs = with_targets(GRAPHS, targets)
    save_packed(graphs, tmp_path / "graphs.safetensors")
    back = open_packed(tmp_path / "graphs.safetensors")
    assert back == graphs
    assert (back.task, back.target_names) == ("values", ("t0", "t1"))
    assert back.targets is not None
    assert torch.equal(back.targets.nan_to_num(-1), targets.nan_to_num(-1))
    assert with_targets(GRAPHS, targets.nan_to_num()) != graphs
    assert replace(graphs, target_names=("a", "b")) != graphs
    assert replace(graphs, task="binary") != graphs


@pytest.mark.parametrize(
    "wrong", [{"targets": torch.zeros(20, 1)}, {"target_names": ("a",)}, {"task": "classes"}, {"task": "rank"}]
)
def test_targets_that_do_not_fit_are_refused(wrong: dict[str, Any]) -> None:
    graphs = with_targets(GRAPHS, torch.zeros(20, 2))
    with pytest.raises(DataError, match="targets of the shape"):
        replace(graphs, **wrong)


def test_files_have_the_usual_permissions(tmp_path: Path) -> None:
    save_packed(GRAPHS, tmp_path / "graphs.safetensors")
    (tmp_path / "other").touch()
    assert (tmp_path / "graphs.safetensors").stat().st_mode == (tmp_path / "other").stat().st_mode


def test_files_that_are_not_packed_graphs(tmp_path: Path) -> None:
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
    safetensors.torch.save_file({"a": torch.zeros(1)}, path, {"graphnorm": json.dumps({"format": FORMAT})})
    with pytest.raises(DataError, match="cannot be read"):
        open_packed(path)


def forged(path: Path, **changes: Any) -> Path:
    """A packed file with a right checksum and wrong content."""
    graphs = replace(GRAPHS, **changes)
    save_packed(graphs, path)
    return path


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"labels": GRAPHS.labels + 1}, "a label is outside of 0 to 1"),
        ({"col": GRAPHS.col + 100}, "an edge leaves its graph"),
        ({"col": GRAPHS.col - 1}, "an edge leaves its graph"),
        ({"col": GRAPHS.col.flip(0)}, "an edge leaves|not sorted|no edge back"),
        ({"node_ptr": GRAPHS.node_ptr.flip(0)}, "node_ptr does not rise"),
        ({"rowptr": GRAPHS.rowptr * 2}, "rowptr does not rise"),
        ({"tags": GRAPHS.tags.int() + 1}, "tags are outside"),  # type: ignore[union-attr]
        ({"tags": GRAPHS.tags.float()}, "tags has the shape"),  # type: ignore[union-attr]
        ({"cardinalities": (2**40,)}, "numbers of categories"),
        ({"cardinalities": (2**17,)}, "numbers of categories"),
        ({"notes": ("\x1b[31m",)}, "not plain text"),
        ({"label_column": 7}, "not plain text"),
        ({"removed_self_loops": "3"}, "not whole numbers"),
        ({"left_out": (10**9,)}, "not whole numbers"),
        ({"threshold": "3"}, "the threshold is '3'"),
        ({"splits": {"a": torch.tensor([1])}}, "a part of the split is named 'a'"),
        ({"task": "values", "target_names": ("t",), "targets": torch.full((20, 1), torch.nan)}, "has no values"),
        ({"x": torch.full((GRAPHS.num_nodes, 1), torch.nan)}, "x has values that are not finite"),
        ({"task": "binary", "target_names": ("t",), "targets": torch.full((20, 1), 2.0)}, "do not fit the task"),
        ({"splits": {"train": torch.tensor([99])}}, "the split 'train' has ids outside"),
    ],
)
def test_a_file_with_wrong_content_is_refused(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        open_packed(forged(tmp_path / "x.safetensors", **changes))


@pytest.mark.parametrize(
    ("changes", "problem"),
    [
        ({"classes": ("a", "a")}, "are not different names"),
        ({"classes": ("a", "\x1b[31mb")}, "the classes '.*' is not plain text"),
        ({"name": 5}, "the name 5 is not plain text"),
    ],
)
def test_names_are_plain_text(tmp_path: Path, changes: dict[str, Any], problem: str) -> None:
    with pytest.raises(DataError, match=problem):
        replace(GRAPHS, **changes)
    import safetensors.torch

    path = tmp_path / "x.safetensors"
    save_packed(GRAPHS, path)
    arrays, about = safetensors.torch.load_file(path), {"format": FORMAT} | GRAPHS.attributes | changes
    safetensors.torch.save_file(arrays, path, {"graphnorm": json.dumps(about)})
    with pytest.raises(DataError, match=problem) as error:
        open_packed(path)
    assert error.value.where == path


def test_a_missing_direction_is_refused(tmp_path: Path) -> None:
    one_way = GRAPHS.rowptr.clone()
    one_way[-1] -= 1  # the last node loses its edge
    path = forged(tmp_path / "x.safetensors", rowptr=one_way, col=GRAPHS.col[:-1])
    with pytest.raises(DataError, match="an edge has no edge back"):
        open_packed(path)
