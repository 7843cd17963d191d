"""Kernel machines on the folds of a protocol."""

import numpy as np
import pytest
from sklearn.svm import SVC

from graphnorm.data import synthetic
from graphnorm.errors import GraphnormError
from graphnorm.models.baselines.wl import wl_kernels
from graphnorm.study.kernels import candidates, cosine, graph_arrays, train_kernel
from graphnorm.study.protocol import make_splits
from graphnorm.study.selection import select
from graphnorm.training import Trial

GRAPHS = synthetic.trees(num_graphs=60, seed=0)


def trials(model="wl", **options):
    return [
        Trial(dataset="trees", model=model, norm="none", epochs=len(candidates(model)), folds=3, fold=k, **options)
        for k in range(3)
    ]


@pytest.fixture(scope="module")
def fair():
    members = trials(protocol="fair")
    splits, steps = make_splits(GRAPHS, members), []
    return splits, train_kernel(GRAPHS, members, splits, on_epoch=steps.append), steps


def test_every_candidate_is_scored_on_every_part(fair):
    """One of them trained by hand."""
    splits, outcomes, _ = fair
    place = candidates("wl").index({"depth": 2, "C": 10.0})
    kernel = cosine(list(wl_kernels(*graph_arrays(GRAPHS), depth=2))[2])
    labels = GRAPHS.labels.numpy()
    for split, outcome in zip(splits, outcomes, strict=True):
        machine = SVC(C=10.0, kernel="precomputed").fit(kernel[np.ix_(split.train, split.train)], labels[split.train])
        for part in ("train", "valid", "test"):
            ids = getattr(split, part)
            right = (machine.predict(kernel[np.ix_(ids, split.train)]) == labels[ids]).mean()
            assert outcome.curves[part][place] == pytest.approx(right)
            assert len(outcome.curves[part]) == len(candidates("wl"))


def test_protocols_choose_candidates_as_they_choose_epochs(fair):
    _, outcomes, _ = fair
    chosen = select([outcomes])
    for choice, outcome in zip(chosen.choices, outcomes, strict=True):
        assert outcome.curves["valid"][choice.epoch - 1] == outcome.curves["valid"].max()
        assert choice.score == pytest.approx(outcome.curves["test"][choice.epoch - 1])
    members = trials(protocol="paper")
    shared = select([train_kernel(GRAPHS, members, make_splits(GRAPHS, members), workers=1)])
    assert len({choice.epoch for choice in shared.choices}) == 1
    assert shared.mean > 0.6


def test_progress_counts_candidates(fair):
    _, _, steps = fair
    assert [step.epoch for step in steps] == [7 * k for k in range(1, 7)]
    assert all(step.metrics["valid"].shape == (3,) for step in steps)


def test_scaled_kernels():
    scaled = cosine(np.array([[4.0, 2.0, 0.0], [2.0, 9.0, 0.0], [0.0, 0.0, 0.0]]))
    np.testing.assert_allclose(scaled, [[1, 1 / 3, 0], [1 / 3, 1, 0], [0, 0, 0]])


def test_what_kernels_cannot_do(monkeypatch):
    members = trials(protocol="paper")
    splits = make_splits(GRAPHS, members)
    with pytest.raises(GraphnormError, match="no part in the protocol ogb"):
        train_kernel(GRAPHS, trials(protocol="ogb"), splits)
    monkeypatch.setattr("graphnorm.study.kernels.MOST_GRAPHS", 10)
    with pytest.raises(GraphnormError, match="60 are too many"):
        train_kernel(GRAPHS, members, splits)
