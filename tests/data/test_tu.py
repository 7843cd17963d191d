"""The TU reader: what it makes of a good folder, and what it says of every mistake."""

from __future__ import annotations

import zipfile
from collections.abc import Callable
from pathlib import Path

import pytest

from graphnorm.data import DataError, PackedGraphs, load
from graphnorm.data import files as data_files

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


def test_edges_in_any_order_with_their_features(write_tu: WriteTU) -> None:
    ordered = load(write_tu(edge_labels="7\n7\n9\n9\n8\n8\n", edge_attributes="1,0\n1,0\n2,0\n2,0\n3,.5\n3,.5\n"))
    shuffled = load(
        write_tu(
            A="5, 4\n2, 3\n1, 2\n3, 2\n4, 5\n2, 1\n",
            edge_labels="8\n9\n7\n9\n8\n7\n",
            edge_attributes="3,.5\n2,0\n1,0\n2,0\n3,.5\n1,0\n",
        )
    )
    assert shuffled == ordered
    assert ordered.edge_tags is not None
    assert ordered.edge_tags[:, 0].tolist() == [0, 0, 2, 2, 1, 1]
    assert ordered.edge_x is not None
    assert ordered.edge_x[-1].tolist() == [3.0, 0.5]


def test_self_loops_are_taken_out_and_counted(write_tu: WriteTU) -> None:
    plain = load(write_tu(node_labels=None))
    looped = load(write_tu(node_labels=None, A="1, 1\n1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n6, 6\n"))
    assert looped.removed_self_loops == 2
    assert looped.degree.equal(plain.degree)
    assert looped.tags is not None
    assert plain.tags is not None
    assert looped.tags.equal(plain.tags)
    assert looped.statistics().avg_edges == pytest.approx((6 + 6 + 2) / 3)


@pytest.mark.parametrize(
    ("rule", "tags"),
    [("labels", [0, 1, 1, 0, 2, 2]), ("degree", [1, 2, 1, 1, 1, 0]), ("constant", [0] * 6)],
)
def test_feature_rules(write_tu: WriteTU, rule: str, tags: list[int]) -> None:
    graphs = load(write_tu(node_attributes="1\n2\n3\n4\n5\n6\n"), features=rule)  # type: ignore[arg-type]
    assert graphs.tags is not None
    assert graphs.tags[:, 0].tolist() == tags
    assert graphs.x is None
    assert graphs.num_features == max(tags) + 1


def test_auto_takes_all_there_is(write_tu: WriteTU) -> None:
    graphs = load(write_tu(node_attributes="1,2\n" * 6))
    assert graphs.x is not None
    assert graphs.num_features == 3 + 2
    assert graphs.features(graphs.batch([1])).tolist() == [[1, 0, 0, 1, 2], [0, 0, 1, 1, 2]]
    only_degree = load(write_tu(node_labels=None, name=None), features="degree")
    assert only_degree.x is None


def test_symmetrise(write_tu: WriteTU) -> None:
    good = load(write_tu(edge_labels="7\n7\n9\n9\n8\n8\n"))
    one_way = load(write_tu(A="1, 2\n3, 2\n4, 5\n5, 4\n", edge_labels="7\n9\n8\n8\n"), symmetrise=True)
    assert one_way == good


def test_merge_duplicates(write_tu: WriteTU) -> None:
    good = load(write_tu(edge_labels="7\n7\n9\n9\n8\n8\n"))
    doubled = write_tu(A="1, 2\n1, 2\n2, 1\n2, 3\n3, 2\n4, 5\n5, 4\n", edge_labels="7\n5\n7\n9\n9\n8\n8\n")
    merged = load(doubled, merge_duplicates=True)
    assert merged.num_edges == good.num_edges
    assert merged.edge_tags is not None
    assert merged.edge_tags[:, 0].tolist() == [1, 1, 3, 3, 2, 2]


MISTAKES = {
    "missing file": ({"graph_labels": None}, None, None, "missing: TINY_graph_labels.txt"),
    "node id too large": (
        {"A": "1, 2\n2, 1\n2, 7\n7, 2\n"},
        "A",
        3,
        "names node 7, but the nodes are 1 to 6",
    ),
    "node id too small": ({"A": "0, 1\n1, 0\n"}, "A", 1, "names node 0"),
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
    "truncated line": ({"A": "1, 2\n2, 1\n2\n"}, "A", 3, "'2' has 1 of 2 numbers"),
    "non-numeric line": ({"node_labels": "0\n2\nC\n0\n5\n5\n"}, "node_labels", 3, "holds 'C'"),
    "duplicate edge": (
        {"A": "1, 2\n2, 1\n1, 2\n2, 1\n"},
        "A",
        3,
        r"was there before .*merge_duplicates=True",
    ),
    "too few node labels": ({"node_labels": "0\n2\n2\n"}, "node_labels", 4, "3 lines for 6 nodes"),
    "too many node labels": ({"node_labels": "0\n" * 9}, "node_labels", 7, "9 lines for 6 nodes"),
    "wrong encoding": ({"A": "1, 2\n2, 1\n".encode("utf-16")}, "A", None, "UTF-16.*save it as UTF-8"),
    "latin-1": (
        {"graph_labels": "1\n-1\n\u00e9\n".encode("latin-1")},
        "graph_labels",
        3,
        "which is not an integer",
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
    with pytest.raises(DataError, match=message) as error:
        load(folder)
    where = folder if part is None else folder / f"TINY_{part}.txt"
    assert str(error.value).startswith(f"{where}:{line}: " if line else f"{where}: ")
    assert "Remedy: " in str(error.value)


def test_labels_rule_without_labels(write_tu: WriteTU) -> None:
    with pytest.raises(DataError, match=r'no node labels.*features="degree"'):
        load(write_tu(node_labels=None), features="labels")


def test_two_datasets_in_one_folder(write_tu: WriteTU) -> None:
    folder = write_tu()
    (folder / "OTHER_A.txt").write_text("1, 2\n")
    with pytest.raises(DataError, match=r"holds one dataset; here: OTHER_A\.txt, TINY_A\.txt"):
        load(folder)


def test_a_folder_of_something_else(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("hello")
    with pytest.raises(DataError, match="no dataset in TU or OGB form"):
        load(tmp_path)


@pytest.mark.parametrize(
    "name", ["../evil_A.txt", "/etc/evil_A.txt", "a/../../evil_A.txt", "C:\\evil_A.txt", "..\\evil"]
)
def test_members_that_lead_outside_are_refused(tmp_path: Path, name: str) -> None:
    path = tmp_path / "evil.zip"
    with zipfile.ZipFile(path, "w") as archive:
        archive.writestr(name, "1, 2\n")
    with pytest.raises(DataError, match="leads outside"):
        load(path)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["evil.zip"]


def test_archives_that_unpack_to_too_much_are_refused(
    write_tu: WriteTU, zipped: Callable[[Path], Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(data_files, "MAX_UNPACKED", 20)
    with pytest.raises(DataError, match="unpacks to more than"):
        load(zipped(write_tu()))


def test_not_an_archive(tmp_path: Path) -> None:
    path = tmp_path / "broken.zip"
    path.write_bytes(b"<html>not found</html>")
    with pytest.raises(DataError, match=r"broken\.zip: the file cannot be read: BadZipFile.*fetch it anew"):
        load(path)
    with pytest.raises(DataError, match="no such file"):
        load(tmp_path / "absent.zip")
