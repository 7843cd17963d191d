"""Folds: stratified, disjoint, the authors'; and what data too small for them is told."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.study.protocol import PROTOCOLS, chance_score, find_protocol, make_splits
from graphnorm.training.trial import Trial


def with_classes(*sizes: int) -> PackedGraphs:
    """Single nodes, so many of each class."""
    labels = torch.repeat_interleave(torch.arange(len(sizes)), torch.tensor(sizes))
    n = len(labels)
    return PackedGraphs(
        name="dots",
        node_ptr=torch.arange(n + 1),
        rowptr=torch.zeros(n + 1, dtype=torch.int64),
        col=torch.zeros(0, dtype=torch.int32),
        labels=labels,
        classes=tuple("abcdef"[: len(sizes)]),
        tags=torch.zeros(n, 1, dtype=torch.uint8),
        cardinalities=(1,),
    )


def trials(protocol: str, folds: int = 10, seeds: int = 1) -> list[Trial]:
    return [
        Trial(dataset="dots", protocol=protocol, folds=folds, fold=f, seed=s)
        for f in range(folds)
        for s in range(seeds)
    ]


@pytest.mark.parametrize("protocol", ["paper", "fair"])
def test_folds_part_the_graphs(protocol: str) -> None:
    graphs = with_classes(63, 125, 40)
    labels = graphs.labels.numpy()
    splits = make_splits(graphs, trials(protocol))
    reported = [getattr(split, PROTOCOLS[protocol].reported) for split in splits]
    assert sorted(np.concatenate(reported)) == list(range(len(graphs)))
    for split in splits:
        parts = np.concatenate(split)
        assert sorted(parts) == list(range(len(graphs)))
        assert split.train.dtype == np.int64
        for part in split:
            if len(part):
                shares = np.bincount(labels[part], minlength=3) / len(part)
                np.testing.assert_allclose(shares, np.bincount(labels) / len(labels), atol=0.06)
    if protocol == "fair":
        assert all(len(s.valid) == pytest.approx((len(s.valid) + len(s.train)) / 10, abs=1) for s in splits)


def test_the_folds_are_the_authors() -> None:
    graphs = with_classes(63, 125)
    folds = StratifiedKFold(10, shuffle=True, random_state=9).split(np.zeros(188), graphs.labels.numpy())
    for split, (train, test) in zip(make_splits(graphs, trials("paper")), folds, strict=True):
        np.testing.assert_array_equal(split.train, train)
        np.testing.assert_array_equal(split.valid, test)
        assert split.test.size == 0


def test_seeds_share_a_fold() -> None:
    first, second, *_ = make_splits(with_classes(50, 50), trials("fair", 5, seeds=2))
    assert first is second


def test_official_split_and_everything() -> None:
    graphs = with_classes(4, 4)
    official = replace(graphs, splits={k: torch.tensor(v) for k, v in
                                       {"train": [0, 1, 4, 5], "valid": [2, 6], "test": [3, 7]}.items()})  # fmt: skip
    (split,) = make_splits(official, [Trial(dataset="dots", protocol="ogb", folds=1)])
    assert [part.tolist() for part in split] == [[0, 1, 4, 5], [2, 6], [3, 7]]
    (split,) = make_splits(graphs, [Trial(dataset="dots", protocol="all", folds=1)])
    assert split.train.tolist() == split.valid.tolist() == list(range(8))


def test_overlap_is_the_share_of_reported_graphs_to_those_with_a_part_in_the_model() -> None:
    graphs = with_classes(100, 100)
    for protocol in ("paper", "fair"):
        for folds in (2, 5, 10):
            split = make_splits(graphs, trials(protocol, folds))[0]
            reported = len(getattr(split, PROTOCOLS[protocol].reported))
            assert find_protocol(protocol).overlap(folds) == pytest.approx(reported / (200 - reported))
    assert find_protocol("ogb").overlap(1) == 0


def test_chance() -> None:
    assert chance_score(with_classes(30, 10), "paper") == 75
    assert chance_score(with_classes(30, 10), "ogb") == 50


@pytest.mark.parametrize(
    ("sizes", "protocol", "folds", "message"),
    [
        ((30, 4), "paper", 10, "'b' has 4 graphs, too few.* --folds 4 or fewer"),
        ((30, 1), "paper", 10, "'b' has 1 graph,.* leave that class out"),
        ((30, 10), "fair", 10, r"9 of them train, and no tenth.*protocol paper"),
        ((30, 30), "paper", 1, "1 folds leave nothing to train on"),
        ((30, 0), "paper", 10, "are of one class"),
        ((30, 30), "ogb", 1, "no official split .*protocol fair"),
        ((30, 30), "best", 10, "known: paper, fair, ogb"),
    ],
)
def test_what_does_not_fit(sizes: tuple[int, ...], protocol: str, folds: int, message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        make_splits(with_classes(*sizes), [Trial(dataset="dots", protocol=protocol, folds=folds)])
    assert len(make_splits(with_classes(30, 4), trials("paper", 4))) == 4  # the first remedy works


def test_three_classes_under_ogb() -> None:
    parts = {name: torch.tensor([k]) for k, name in enumerate(("train", "valid", "test"))}
    graphs = replace(with_classes(3, 3, 3), splits=parts)
    with pytest.raises(GraphnormError, match="needs two classes"):
        make_splits(graphs, [Trial(dataset="dots", protocol="ogb", folds=1)])


def test_a_fold_that_is_not_there() -> None:
    with pytest.raises(GraphnormError, match="no fold 5 of 5"):
        make_splits(with_classes(20, 20), [Trial(dataset="dots", folds=5, fold=5)])
