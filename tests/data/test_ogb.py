"""The OGB reader on a small folder."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.conftest import assert_refused

from graphnorm.data import DataError, load
from graphnorm.data.molecules import ATOM_FEATURES, BOND_FEATURES, cardinalities

WriteOGB = Callable[..., Path]


def test_a_folder(write_ogb: WriteOGB, zipped: Callable[[Path], Path]) -> None:
    folder = write_ogb()
    graphs = load(folder)
    assert (graphs.num_graphs, graphs.num_nodes, graphs.num_edges) == (3, 6, 6)
    assert graphs.cardinalities == cardinalities(ATOM_FEATURES)
    assert graphs.edge_cardinalities == cardinalities(BOND_FEATURES)
    assert {name: ids.tolist() for name, ids in graphs.splits.items()} == {
        "train": [0],
        "valid": [1],
        "test": [2],
    }
    batch = graphs.batch([0])
    assert batch.edge_tags is not None
    assert list(zip(batch.row.tolist(), batch.col.tolist(), batch.edge_tags.tolist(), strict=True)) == [
        (0, 1, [0, 0, 0]),
        (1, 0, [0, 0, 0]),
        (1, 2, [1, 0, 0]),
        (2, 1, [1, 0, 0]),
    ]
    assert load(zipped(folder)) == graphs


def test_features_outside_the_molecules_vocabulary_are_counted(write_ogb: WriteOGB) -> None:
    graphs = load(write_ogb(node_feat="3\n200\n3\n3\n3\n-1\n"))
    assert graphs.cardinalities == (3,)
    assert graphs.tags is not None
    assert graphs.tags[:, 0].tolist() == [1, 2, 1, 1, 1, 0]


def test_labels_are_read_in_double_precision(write_ogb: WriteOGB) -> None:
    assert load(write_ogb(graph_label="16777216\n16777217\n16777218\n")).num_classes == 3


MISTAKES = {
    "missing file": ({"edge_feat": None}, None, None, "missing: raw/edge-feat.csv.gz"),
    "nan label": ({"graph_label": "0\nnan\n1\n"}, "graph-label", 2, "is missing"),
    "two labels": ({"graph_label": "0,1\n1\n0,0\n"}, "graph-label", 2, "'1' has 1 numbers instead of 2"),
    "cut off": (
        {"node_feat": "5,0,4,5,3,0,2,0,0\n" * 4},
        "node-feat",
        5,
        "4 lines, but according to the other files it should have 6",
    ),
    "edge out of range": ({"edge": "0,1\n1,3\n0,1\n"}, "edge", 2, "has the node 3, but the graph has 3 nodes"),
    "empty graph": ({"num_node_list": "3\n3\n0\n"}, "graph-label", 3, "has no nodes"),
    "negative count": ({"num_edge_list": "3\n-1\n1\n"}, "num-edge-list", 2, "negative"),
    "duplicate edge": ({"edge": "0,1\n1,0\n0,1\n"}, "edge", 2, "is a duplicate"),
    "another split": ({"../split/scaffold/test": "2\n99\n"}, "../split/scaffold/test", 2, "contains graph 99"),
    "one class": ({"graph_label": "1\n1\n1\n"}, "graph-label", 1, "same label"),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_file_line_and_remedy(write_ogb: WriteOGB, mistake: str) -> None:
    changes, part, line, message = MISTAKES[mistake]
    folder = write_ogb(**changes)
    assert_refused(folder, folder if part is None else folder / "raw" / f"{part}.csv.gz", line, message)


def test_two_datasets_in_one_folder(write_ogb: WriteOGB) -> None:
    folder = write_ogb()
    shutil.copytree(folder / "raw", folder / "other" / "raw")
    with pytest.raises(DataError, match=r"holds one raw/edge\.csv\.gz, not 2"):
        load(folder)


def test_several_targets_with_missing_values(write_ogb: WriteOGB) -> None:
    graphs = load(write_ogb(graph_label="0,1,\n1.0,,0\n,nan,1\n"))
    assert (graphs.task, graphs.target_names) == ("binary", ("target 1", "target 2", "target 3"))
    assert str(graphs.targets.tolist()) == "[[0.0, 1.0, nan], [1.0, nan, 0.0], [nan, nan, 1.0]]"  # type: ignore[union-attr]
    assert load(write_ogb(graph_label="0.5\n-1\n2\n"), task="values").target_names == ("target",)
