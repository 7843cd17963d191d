"""The table of models: each is built, given its input and trained by what its row says."""

from dataclasses import replace

import numpy as np
import pytest
import torch
from tests.training.plain_loop import plain_losses

from graphnorm.data import load, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.models import BASELINES, MODELS, NORMALIZED, find_model
from graphnorm.models.build import BUILDERS, POOLINGS, bytes_per_member, prepare
from graphnorm.training import Fleet, ModelInputs, Split, Trial, build_model

TREES = synthetic.trees(num_graphs=60, seed=0)
NETWORKS = [name for name in BUILDERS if MODELS[name].inputs != "edges"]


@pytest.fixture(scope="module")
def molecules():
    pytest.importorskip("rdkit")
    return load("molecules")


def test_every_model_is_a_baseline_or_takes_a_normalization():
    of_graphs = [name for name, spec in MODELS.items() if spec.inputs != "images"]
    assert sorted([*NORMALIZED, *BASELINES]) == sorted(of_graphs)
    for name, spec in MODELS.items():
        assert spec.name == name
        assert (spec.kernel is not None) == (spec.inputs == "kernel")
        assert (name in BUILDERS) == (spec.inputs not in ("kernel", "images"))
        assert (name in POOLINGS) == (spec.inputs == "pooled")


@pytest.mark.parametrize("model", NETWORKS)
@pytest.mark.parametrize("protocol", ["paper", "given"])
def test_members_train_as_a_plain_loop_would(model, protocol, molecules):
    """With features of nodes and edges, both losses, and members that differ in everything that they may.

    Not ``molhiv-*`` with GraphNorm: while α is 1, the last layer reads out β only, and Adam follows rounding errors.
    """
    ids, test = np.split(np.arange(60), [50 if protocol == "given" else 60])
    splits = [Split(ids[ids % 5 != k], ids[ids % 5 == k], test) for k in range(2)]
    norm = "none" if not MODELS[model].normalized else "batch" if model.startswith("molhiv") else "graph"
    base = Trial(dataset="m", model=model, norm=norm, protocol=protocol, batch_size=13, epochs=4, hidden=16, layers=4)
    members = [
        replace(base, fold=k, seed=k, lr=1e-3 / (k + 1), weight_decay=1e-3 * k, dropout=0.25 * k, readout="mean")
        for k in range(2)
    ]
    fleet = Fleet(molecules, members, splits, device="cpu")
    fleet.advance(2)
    for outcome, member, part in zip(fleet.outcomes(), members, splits, strict=True):
        assert set(outcome.curves) == {"loss", "train", "valid"} | ({"test"} if protocol == "given" else set())
        losses, scores = plain_losses(molecules, member, part, 2)
        np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=2e-3)
        if protocol == "paper":
            assert outcome.curves["valid"][0] == pytest.approx(scores[0], abs=0.09)


@pytest.mark.parametrize("model", ["mlp", "dcnn"])
def test_pooled_graphs_give_the_same_scores(model):
    trial = Trial(dataset="trees", model=model, norm="none", layers=4, readout="mean")
    pooled = prepare(TREES, trial)
    assert (pooled.num_nodes, pooled.num_edges) == (60, 0)
    network = build_model(trial, TREES).eval()
    scores = [network(**ModelInputs(graphs)(graphs.batch([5, 0, 59]), may_pad=False)) for graphs in (TREES, pooled)]
    torch.testing.assert_close(scores[1], scores[0])


@pytest.mark.parametrize("model", NETWORKS)
def test_a_larger_model_is_thought_to_need_more_memory(model, molecules):
    small = Trial(dataset="m", model=model)
    needed = [
        bytes_per_member(trial, molecules)
        for trial in (small, replace(small, hidden=256), replace(small, layers=9), replace(small, batch_size=512))
    ]
    assert min(needed[1:]) > needed[0] > 0


def test_what_does_not_fit_is_named(molecules):
    with pytest.raises(GraphnormError, match="did you mean 'dgcnn'"):
        find_model("dgcn")
    with pytest.raises(GraphnormError, match="did you mean 'gin'"):
        build_model(Trial(dataset="t", model="gim"), TREES)
    with pytest.raises(GraphnormError, match="categorical"):
        build_model(
            Trial(dataset="t", model="molhiv-gin"), replace(TREES, tags=None, x=torch.zeros(TREES.num_nodes, 2))
        )
    with pytest.raises(GraphnormError, match="is a kernel"):
        build_model(Trial(dataset="t", model="wl"), TREES)
