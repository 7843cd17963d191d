"""The paper's numbers: spot checks, and that every cell is there."""

from __future__ import annotations

import pytest
from graphnorm.paper.recipe import MOLHIV, TU
from graphnorm.paper.reported import reported, reported_baseline

from graphnorm.paper import reported as paper


def test_every_cell() -> None:
    assert {norm: len(row) for norm, row in paper.GIN.items()} == dict.fromkeys(
        ("layer", "batch", "instance", "graph"), 7
    )
    assert {name: len(row) for name, row in paper.BASELINES.items()} == {
        "WL subtree": 7,
        "DCNN": 6,
        "DGCNN": 6,
        "AWL": 4,
    }
    assert list(paper.dataset_table()) == [*TU, MOLHIV]


def test_the_papers_own_statements() -> None:
    """GraphNorm is in bold for GIN everywhere but on NCI1, where BatchNorm and the WL kernel are higher."""
    best = {name: max(paper.GIN, key=lambda norm: paper.GIN[norm][name].mean) for name in TU}
    assert best.pop("NCI1") == "batch"
    assert best.pop("COLLAB") in ("batch", "graph")
    assert set(best.values()) == {"graph"}
    for rows in paper.MOLHIV.values():
        assert max(rows, key=lambda norm: rows[norm].mean) == "graph"


@pytest.mark.parametrize(
    ("cell", "text"),
    [
        (("MUTAG", "gin", "graph", "paper"), "91.6 ± 6.5"),
        (("REDDIT-BINARY", "gin", "layer", "paper"), "82.8 ± 7.7"),
        (("ogbg-molhiv", "molhiv-gcn", "instance", "ogb"), "78.18 ± 0.42"),
        (("ogbg-molhiv", "molhiv-gin", "graph", "ogb"), "77.73 ± 1.29"),
    ],
)
def test_lookup(cell: tuple[str, str, str, str], text: str) -> None:
    assert str(reported(*cell)) == text


@pytest.mark.parametrize(
    "cell",
    [
        ("MUTAG", "gin", "graph", "fair"),
        ("MUTAG", "gcn", "graph", "paper"),
        ("MUTAG", "gin", "none", "paper"),
        ("molecules", "gin", "graph", "paper"),
        ("PTC_MR", "gin", "graph", "paper"),
        ("ogbg-molhiv", "gin", "graph", "ogb"),
    ],
)
def test_nothing_where_the_paper_has_nothing(cell: tuple[str, str, str, str]) -> None:
    assert reported(*cell) is None
    assert str(paper.BASELINES["DCNN"]["MUTAG"]) == "67.0"


def test_baselines_by_the_names_they_have_here():
    assert str(reported_baseline("NCI1", "wl", "paper")) == "86.0 ± 1.8"
    assert str(reported_baseline("COLLAB", "dgcnn", "paper")) == "73.7"
    assert reported_baseline("ogbg-molhiv", "ogb-gin", "ogb") == (75.58, 1.40, 2)
    for nothing in (("NCI1", "wl", "fair"), ("NCI1", "mlp", "paper"), ("PTC", "awl", "paper"), ("mine", "wl", "paper")):
        assert reported_baseline(*nothing) is None


def test_numbers_are_written_as_printed() -> None:
    assert str(paper.MOLHIV["molhiv-gcn"]["graph"]) == "78.30 ± 0.69"
    assert str(paper.MOLHIV_BASELINES["GIN"]) == "75.58 ± 1.40"
    assert str(paper.GIN["layer"]["PROTEINS"]) == "76.2 ± 3.0"
