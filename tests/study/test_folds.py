"""Folds: stratified, disjoint, the authors'; and what data too small for them is told."""

from __future__ import annotations

from dataclasses import replace
from itertools import combinations

import numpy as np
import pytest
import torch
from sklearn.model_selection import StratifiedKFold

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.study.folds import make_splits
from graphnorm.study.protocol import PROTOCOLS, find_protocol
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
    (split,) = make_splits(official, [Trial(dataset="dots", protocol="given", folds=1)])
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
    assert find_protocol("given").overlap(1) == 0


@pytest.mark.parametrize(
    ("sizes", "protocol", "folds", "message"),
    [
        ((30, 4), "paper", 10, "'b' has 4 graphs, too few.* --folds 4 or fewer"),
        ((30, 1), "paper", 10, "'b' has 1 graph,.* leave that class out"),
        ((30, 10), "fair", 10, r"9 of them train, and no tenth.*protocol paper"),
        ((30, 30), "paper", 1, "1 folds leave nothing to train on"),
        ((30, 0), "paper", 10, "are of one class"),
        ((30, 30), "given", 1, "no split of its own .*protocol fair"),
        ((30, 30), "best", 10, "known: paper, fair, given"),
    ],
)
def test_what_does_not_fit(sizes: tuple[int, ...], protocol: str, folds: int, message: str) -> None:
    with pytest.raises(GraphnormError, match=message):
        make_splits(with_classes(*sizes), [Trial(dataset="dots", protocol=protocol, folds=folds)])
    assert len(make_splits(with_classes(30, 4), trials("paper", 4))) == 4  # the first remedy works


def dots(task: str, targets: torch.Tensor, **more: torch.Tensor) -> PackedGraphs:
    names = tuple(f"t{k}" for k in range(targets.shape[1]))
    bare = {"labels": torch.zeros(len(targets), dtype=torch.int64), "classes": ("unknown",)}
    given = {"task": task, "targets": targets, "target_names": names}
    return replace(with_classes(len(targets)), **bare, **given, **more)


def test_three_classes_with_a_split() -> None:
    parts = {name: torch.arange(k, 9, 3) for k, name in enumerate(("train", "valid", "test"))}
    graphs = replace(with_classes(3, 3, 3), splits=parts)
    (split,) = make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1, task="classes")])
    assert split.test.tolist() == [2, 5, 8]
    with pytest.raises(GraphnormError, match="make it with task='classes'"):
        make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1)])


@pytest.mark.parametrize("protocol", ["paper", "fair"])
@pytest.mark.parametrize(("task", "columns"), [("binary", 1), ("binary", 3), ("values", 2)])
def test_folds_of_targets(task: str, columns: int, protocol: str) -> None:
    targets = (torch.rand(200, columns, generator=torch.manual_seed(0)) < 0.2).float()
    graphs = dots(task, targets)
    splits = make_splits(graphs, [replace(trial, task=task) for trial in trials(protocol, 5)])
    reported = [getattr(split, PROTOCOLS[protocol].reported) for split in splits]
    assert sorted(np.concatenate(reported)) == list(range(200))
    shares = [float(targets[part, 0].mean()) for part in reported]
    stratified = max(shares) - min(shares) < 0.05
    assert stratified == (columns == 1)
    assert all(not set(a) & set(b) for split in splits for a, b in combinations(split, 2))


@pytest.mark.parametrize("protocol", ["paper", "fair"])
@pytest.mark.parametrize("task", ["classes", "binary", "values"])
def test_groups_stay_on_one_side(task: str, protocol: str) -> None:
    groups = torch.arange(200) // 4
    graphs = replace(with_classes(120, 80), groups=groups)
    if task != "classes":
        graphs = dots(task, (torch.arange(200) % 3 == 0).float()[:, None], groups=groups)
    for split in make_splits(graphs, [replace(t, task="" if task == "classes" else task) for t in trials(protocol, 5)]):
        assert sorted(np.concatenate(split)) == list(range(200))
        for first, second in combinations(split, 2):
            assert not set(groups[first].tolist()) & set(groups[second].tolist())


def test_a_split_without_a_validation_part_gets_a_tenth_of_the_training_part() -> None:
    parts = {"train": torch.arange(10, 60), "test": torch.arange(10)}
    graphs = replace(with_classes(40, 40), splits=parts | {"test": torch.cat([torch.arange(5), torch.arange(70, 75)])})
    (split,) = make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1)])
    assert sorted([*split.train, *split.valid]) == list(range(10, 60))
    assert len(split.valid) == 5
    assert set(graphs.labels[split.valid].tolist()) == {0, 1}


@pytest.mark.parametrize(
    ("changed", "message"),
    [
        ({"test": []}, "part 'test' .* is empty"),
        ({"test": [3, 90]}, "has the graph 90.*count from 0 to 79"),
        ({"test": [-1, 79]}, "has the graph -1"),
        ({"test": [0, 3, 79]}, "1 graphs, such as 0, are in the parts 'train' and 'test'"),
        ({"test": [3, 3, 79]}, "a graph twice"),
        ({"test": list(range(0, 80, 2))}, "'train' and 'test' are the same graphs"),
        ({"val": [3, 79]}, "part 'val'.*name the parts train, valid and test"),
        ({"test": [1, 3, 5]}, "part 'test' .* one class only, so ROC-AUC is not defined"),
    ],
)
def test_wrong_splits_are_refused(changed: dict[str, list[int]], message: str) -> None:
    parts = {"train": list(range(0, 80, 2)), "valid": [7, 77], "test": [3, 79]} | changed
    ids = {name: torch.tensor(part, dtype=torch.int64) for name, part in parts.items()}
    graphs = replace(with_classes(40, 40), splits=ids)
    with pytest.raises(GraphnormError, match=message):
        make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1)])


def test_parts_of_other_names_are_no_missing_split() -> None:
    graphs = replace(with_classes(40, 40), splits={"training": torch.arange(40), "test": torch.arange(40, 80)})
    with pytest.raises(GraphnormError, match=r"part 'training'.*name the parts train"):
        make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1)])


def test_no_tenth_of_few_training_graphs() -> None:
    parts = {"train": torch.arange(3, 11), "test": torch.tensor([0, 1, 60])}
    graphs = replace(with_classes(40, 40), splits=parts)
    with pytest.raises(GraphnormError, match=r"no tenth of its 8 training graphs can be held out.*part 'valid'"):
        make_splits(graphs, [Trial(dataset="dots", protocol="given", folds=1)])


def test_parts_on_which_the_metric_is_not_defined() -> None:
    parts = {"train": torch.arange(20), "valid": torch.arange(20, 40), "test": torch.arange(40, 60)}
    targets = torch.arange(60.0)[:, None] % 2
    targets[40:] = torch.nan
    for task in ("binary", "values"):
        with pytest.raises(GraphnormError, match="part 'test' of a split of dots has"):
            make_splits(
                dots(task, targets, splits=parts), [Trial(dataset="dots", protocol="given", folds=1, task=task)]
            )


def test_r2_needs_two_different_values_in_every_part() -> None:
    values, wanted = torch.arange(12.0)[:, None], [replace(trial, task="values") for trial in trials("paper", 12)]
    assert len(make_splits(dots("values", values), wanted)) == 12
    with pytest.raises(GraphnormError, match=r"R² is not defined.*fewer folds"):
        make_splits(dots("values", values), [replace(trial, metric="r2") for trial in wanted])


def test_too_few_graphs_or_groups() -> None:
    values = dots("values", torch.arange(12.0)[:, None])
    with pytest.raises(GraphnormError, match="12 graphs are too few for 20 folds"):
        make_splits(values, [replace(trial, task="values") for trial in trials("paper", 20)])
    grouped = replace(values, groups=torch.arange(12) // 4)
    with pytest.raises(GraphnormError, match="3 groups of graphs are too few for 5 folds"):
        make_splits(grouped, [replace(trial, task="values") for trial in trials("paper", 5)])


def test_a_fold_that_is_not_there() -> None:
    with pytest.raises(GraphnormError, match="no fold 5 of 5"):
        make_splits(with_classes(20, 20), [Trial(dataset="dots", folds=5, fold=5)])
