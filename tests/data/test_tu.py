"""The TU reader on good folders, and the error for every mistake."""

from __future__ import annotations

import os
from collections.abc import Callable
from pathlib import Path

import pytest
from tests.data.conftest import assert_refused

from graphnorm.data import DataError, DataWarning, PackedGraphs, load

WriteTU = Callable[..., Path]


def edges_of(graphs: PackedGraphs, g: int) -> list[tuple[int, int]]:
    batch = graphs.batch([g])
    return list(zip(batch.row.tolist(), batch.col.tolist(), strict=True))


def test_a_folder(write_tu: WriteTU) -> None:
    graphs = load(write_tu())
    assert (graphs.name, graphs.num_graphs, graphs.num_nodes, graphs.num_edges) == ("TINY", 3, 6, 6)
    assert graphs.sizes.tolist() == [3, 2, 1]
    assert graphs.classes == ("-1", "1")
    assert graphs.labels.tolist() == [1, 0, 1]
    assert graphs.tags is not None
    assert graphs.tags[:, 0].tolist() == [0, 1, 1, 0, 2, 2]
    assert graphs.cardinalities == (3,)
    assert graphs.num_features == 3
    assert edges_of(graphs, 0) == [(0, 1), (1, 0), (1, 2), (2, 1)]
    assert edges_of(graphs, 1) == [(0, 1), (1, 0)]
    assert edges_of(graphs, 2) == []


def test_a_zip_and_other_layouts_are_the_same(
    write_tu: WriteTU, zipped: Callable[[Path], Path], tmp_path: Path
) -> None:
    folder = write_tu()
    graphs = load(folder)
    assert load(zipped(folder)) == graphs
    assert load(str(folder)) == graphs
    raw = tmp_path / "pyg" / "TINY" / "raw"
    raw.parent.mkdir(parents=True)
    folder.rename(raw)
    assert load(raw.parent) == graphs


def test_a_folder_whose_name_is_no_utf8(write_tu: WriteTU, tmp_path: Path) -> None:
    folder = write_tu().rename(tmp_path / os.fsdecode(b"\xff"))
    for file in list(folder.iterdir()):
        file.rename(file.with_name(file.name.replace("TINY", os.fsdecode(b"B\xe9"))))
    graphs = load(folder)
    assert (graphs.name, graphs.source[-1]) == ("B\ufffd", "\ufffd")


MISTAKES = {
    "missing file": ({"graph_labels": None}, None, None, "missing: TINY_graph_labels.txt"),
    "node id too large": (
        {"A": "1, 2\n2, 1\n2, 7\n7, 2\n"},
        "A",
        3,
        "has the node 7, but the nodes are 1 to 6",
    ),
    "node id too small": ({"A": "0, 1\n1, 0\n"}, "A", 1, "has the node 0"),
    "graph id too large": (
        {"graph_indicator": "1\n1\n1\n2\n2\n4\n"},
        "graph_indicator",
        6,
        "the graphs are 1 to 3",
    ),
    "graph id too small": ({"graph_indicator": "0\n1\n1\n2\n2\n3\n"}, "graph_indicator", 1, "graph 0"),
    "scattered graph": ({"graph_indicator": "1\n2\n1\n2\n2\n3\n"}, "graph_indicator", 3, "comes after"),
    "edge between graphs": ({"A": "1, 2\n2, 1\n3, 4\n4, 3\n"}, "A", 3, "joins graph 1 and graph 2"),
    "one-directional": ({"A": "1, 2\n2, 1\n2, 3\n4, 5\n5, 4\n"}, "A", 3, r"no edge back .*symmetrise=True"),
    "graph without nodes": ({"graph_labels": "1\n-1\n1\n1\n"}, "graph_labels", 4, "the graph has no nodes"),
    "large target": (
        {"graph_labels": None, "graph_attributes": "1.5\n1e39\n2.5\n"},
        "graph_attributes",
        2,
        "too large for single precision",
    ),
    "one class": ({"graph_labels": "1\n1\n1\n"}, "graph_labels", 1, "all 3 graphs have the same label, 1"),
    "nan feature": (
        {"node_attributes": "1\n2\nnan\n4\n5\n6\n"},
        "node_attributes",
        3,
        "feature 1 of node 3 is nan",
    ),
    "infinite edge feature": (
        {"edge_attributes": "1\n1\n1\n1\n1\n1e99\n"},
        "edge_attributes",
        6,
        "feature 1 of the edge from node 5 to node 4 is inf",
    ),
    "truncated line": ({"A": "1, 2\n2, 1\n2\n"}, "A", 3, "'2' has 1 numbers instead of 2"),
    "non-numeric line": ({"node_labels": "0\n2\nC\n0\n5\n5\n"}, "node_labels", 3, "contains 'C'"),
    "duplicate edge": (
        {"A": "1, 2\n2, 1\n1, 2\n2, 1\n"},
        "A",
        3,
        r"is a duplicate .*merge_duplicates=True",
    ),
    "too few node labels": ({"node_labels": "0\n2\n2\n"}, "node_labels", 4, "3 lines for 6 nodes"),
    "too many node labels": ({"node_labels": "0\n" * 9}, "node_labels", 7, "9 lines for 6 nodes"),
    "wrong encoding": ({"A": "1, 2\n2, 1\n".encode("utf-16")}, "A", None, "UTF-16.*save it as UTF-8"),
    "latin-1": (
        {"graph_labels": "1\n-1\n\u00e9\n".encode("latin-1")},
        "graph_labels",
        3,
        "which is not a number",
    ),
    "no graphs": (
        {"graph_labels": "", "graph_indicator": "", "A": "", "node_labels": ""},
        "graph_labels",
        1,
        "no graphs",
    ),
}


@pytest.mark.parametrize("mistake", MISTAKES)
def test_mistakes_name_file_line_and_remedy(write_tu: WriteTU, mistake: str) -> None:
    changes, part, line, message = MISTAKES[mistake]
    folder = write_tu(**changes)
    assert_refused(folder, folder if part is None else folder / f"TINY_{part}.txt", line, message)


def test_two_datasets_in_one_folder(write_tu: WriteTU) -> None:
    folder = write_tu()
    (folder / "OTHER_A.txt").write_text("1, 2\n")
    with pytest.raises(DataError, match=r"holds one dataset, not OTHER, TINY"):
        load(folder)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match="no dataset in TU or OGB format"):
        load(tmp_path)


def test_graph_attributes_are_targets(write_tu: WriteTU) -> None:
    folder = write_tu(graph_labels=None, graph_attributes="0.5, 1\n-2, nan\n1e-3, 7.5\n")
    graphs = load(folder)
    assert (graphs.task, graphs.target_names) == ("values", ("target 1", "target 2"))
    assert str([[round(v, 3) for v in row] for row in graphs.targets.tolist()]) == (  # type: ignore[union-attr]
        "[[0.5, 1.0], [-2.0, nan], [0.001, 7.5]]"
    )
    folder = write_tu(graph_attributes="0.5, 1\n-2, nan\n1e-3, 7.5\n")
    with pytest.warns(DataWarning, match="not the graph attributes; task='values'"):
        assert load(folder).classes == ("-1", "1")
    assert load(folder, task="values") == graphs
    with pytest.warns(DataWarning) as caught:
        assert load(write_tu(graph_labels="0.5\n-2.25\n3\n", graph_attributes="1\n2\n4\n")).task == "values"
    assert "the graph labels are predicted, not" in str(caught[-1].message)


def test_graph_labels_with_decimals(write_tu: WriteTU) -> None:
    assert load(write_tu(graph_labels="1\n1.0\n0\n")).labels.tolist() == [1, 1, 0]
    with pytest.warns(DataWarning, match="3 different numbers in 'target' are taken as measurements"):
        assert load(write_tu(graph_labels="0.5\n-2.25\n3\n")).targets.tolist() == [[0.5], [-2.25], [3]]  # type: ignore[union-attr]
