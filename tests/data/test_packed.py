"""PackedGraphs as a value."""

from __future__ import annotations

import pickle

import pytest

from graphnorm.data import synthetic

GRAPHS = synthetic.trees(20)


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
