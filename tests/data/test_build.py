"""How edges and features are packed, through folders in TU format."""

from __future__ import annotations

from collections.abc import Callable
from pathlib import Path

import pytest

from graphnorm.data import DataError, load

WriteTU = Callable[..., Path]


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


def test_labels_rule_without_labels(write_tu: WriteTU) -> None:
    with pytest.raises(DataError, match=r'no node labels.*features="degree"'):
        load(write_tu(node_labels=None), features="labels")
