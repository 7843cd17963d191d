"""Names of datasets, and the facts about them."""

from __future__ import annotations

import pytest

from graphnorm.data import CATALOG, UnknownDatasetError, find, load


@pytest.mark.parametrize(
    ("written", "meant"),
    [
        ("MUTAG", "MUTAG"),
        ("mutag", "MUTAG"),
        ("PTC", "PTC"),
        ("PTC_MR", "PTC_MR"),
        ("ptc-mr", "PTC_MR"),
        ("IMDB-B", "IMDB-BINARY"),
        ("imdbbinary", "IMDB-BINARY"),
        ("RDT-B", "REDDIT-BINARY"),
        ("Reddit Binary", "REDDIT-BINARY"),
        ("ogbg_molhiv", "ogbg-molhiv"),
        ("molhiv", "ogbg-molhiv"),
        ("CIFAR10", "CIFAR-10"),
        ("regular", "synthetic:regular"),
    ],
)
def test_names_in_any_spelling(written: str, meant: str) -> None:
    assert find(written).name == meant


def test_the_papers_eight_datasets_have_all_facts() -> None:
    paper = [entry for entry in CATALOG.values() if entry.paper]
    assert len(paper) == 8
    for entry in paper:
        assert entry.counts is not None
        assert entry.paper is not None
        assert entry.counts.num_graphs == entry.paper.num_graphs
        assert entry.copy_sha256 is not None
    assert {e.name for e in paper if e.readout == "sum"} == {"MUTAG", "PTC", "PROTEINS", "NCI1"}


def test_a_name_that_is_like_no_other() -> None:
    with pytest.raises(UnknownDatasetError, match="known: MUTAG, PTC"):
        load("qqqqqqqq")
