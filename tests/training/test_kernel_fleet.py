"""Kernel machines on the folds of a protocol."""

from dataclasses import replace

import numpy as np
import pytest
from sklearn.svm import SVC

from graphnorm.data import synthetic
from graphnorm.errors import GraphnormError
from graphnorm.models import MODELS
from graphnorm.models.kernels import cosine, graph_arrays, wl_kernels
from graphnorm.study.folds import make_splits
from graphnorm.study.selection import select
from graphnorm.training import KernelFleet, Trial

GRAPHS = synthetic.trees(num_graphs=60, seed=0)


def trials(model="wl", **options):
    return [
        Trial(dataset="trees", model=model, norm="none", folds=3, fold=k, **MODELS[model].defaults, **options)
        for k in range(3)
    ]


def train(members, **options):
    fleet = KernelFleet(GRAPHS, members, make_splits(GRAPHS, members))
    fleet.advance(**options)
    return fleet.outcomes()


@pytest.fixture(scope="module")
def fair():
    members, steps = trials(protocol="fair"), []
    return make_splits(GRAPHS, members), train(members, on_epoch=steps.append), steps


def test_every_candidate_is_scored_on_every_part(fair):
    """One of them trained by hand."""
    splits, outcomes, _ = fair
    place = MODELS["wl"].kernel.candidates.index({"depth": 2, "C": 10.0})
    kernel = cosine(list(wl_kernels(graph_arrays(GRAPHS), depth=2))[2])
    labels = GRAPHS.labels.numpy()
    for split, outcome in zip(splits, outcomes, strict=True):
        machine = SVC(C=10.0, kernel="precomputed").fit(kernel[np.ix_(split.train, split.train)], labels[split.train])
        for part in ("train", "valid", "test"):
            ids = getattr(split, part)
            right = (machine.predict(kernel[np.ix_(ids, split.train)]) == labels[ids]).mean()
            assert outcome.curves[part][place] == pytest.approx(right)
            assert len(outcome.curves[part]) == len(MODELS["wl"].kernel.candidates)


def test_protocols_choose_candidates_as_they_choose_epochs(fair):
    _, outcomes, _ = fair
    for choice, outcome in zip(select([outcomes]), outcomes, strict=True):
        valid, test = outcome.curves["valid"], outcome.curves["test"]
        assert valid[choice.epoch - 1] == valid.max()
        assert choice.score == pytest.approx(test[valid == valid.max()].mean())
    shared = select([train(trials(protocol="paper"))])
    assert len({choice.epoch for choice in shared}) == 1
    assert np.mean([choice.score for choice in shared]) > 0.6


def test_progress_counts_candidates(fair):
    _, _, steps = fair
    assert [step.epoch for step in steps] == list(range(1, 43))
    assert all(step.metrics["valid"].shape == (3,) for step in steps)


@pytest.mark.parametrize("model", ["wl", "awl"])
def test_a_fleet_goes_on_from_its_checkpoint(model):
    """With fewer members, in another process that has made none of the earlier matrices."""
    members = trials(model, protocol="paper")
    splits = make_splits(GRAPHS, members)
    whole = train(members)
    begun = KernelFleet(GRAPHS, members, splits)
    begun.advance(8)
    assert begun.epoch == 14  # two whole forms
    again = KernelFleet(GRAPHS, members, splits)
    again.load_state_dict(begun.state_dict())
    rest = again.keep([0, 2])
    rest.advance()
    for found, right in zip(rest.outcomes(), [whole[0], whole[2]], strict=True):
        assert found.trial == right.trial
        np.testing.assert_array_equal(found.curves["valid"], right.curves["valid"])


def test_epochs_are_candidates():
    members = [replace(trial, epochs=10) for trial in trials()]
    with pytest.raises(ValueError, match="its 42 candidates"):
        KernelFleet(GRAPHS, members, make_splits(GRAPHS, members))


def test_what_kernels_cannot_do(monkeypatch):
    members = trials(protocol="paper")
    splits = make_splits(GRAPHS, members)
    with pytest.raises(GraphnormError, match="protocol given"):
        KernelFleet(GRAPHS, trials(protocol="given"), splits)
    monkeypatch.setattr("graphnorm.training.kernel_fleet.MOST_GRAPHS", 10)
    with pytest.raises(GraphnormError, match="60 graphs are too many"):
        KernelFleet(GRAPHS, members, splits)
