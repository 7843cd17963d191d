"""The fleet on a GPU: whole steps as CUDA graphs, with the CPU's results."""

from __future__ import annotations

import dataclasses
import warnings

import networkx
import numpy as np
import pytest
import torch
from tests.training.own_model import OwnGIN
from tests.training.test_fleet import GRAPHS, NORMS, split, trials
from tests.training.test_own_models import members as own_members

import graphnorm
from graphnorm.data import from_networkx, load
from graphnorm.errors import CodeWarning
from graphnorm.training import Fleet, Split, Trial
from graphnorm.training.inputs import Matrices

pytestmark = pytest.mark.gpu


@pytest.mark.parametrize("model", ["gin", "gcn"])
@pytest.mark.parametrize("norm", NORMS)
def test_the_gpu_trains_as_the_cpu_does(norm, model):
    members, parts = trials(model=model, norm=norm), [split(k) for k in range(3)]
    here, there = (Fleet(GRAPHS, members, parts, device=device) for device in ("cpu", "cuda"))
    here.advance(3)
    there.advance(3)
    for mine, theirs in zip(here.outcomes(), there.outcomes(), strict=True):
        np.testing.assert_allclose(theirs.curves["loss"][0], mine.curves["loss"][0], rtol=1e-2)  # TF32
        np.testing.assert_allclose(theirs.curves["loss"], mine.curves["loss"], rtol=5e-2)


@pytest.mark.parametrize("norm", NORMS)
def test_a_member_alone_and_in_a_fleet(norm):
    members, parts = trials(norm=norm), [split(k) for k in range(3)]
    together = Fleet(GRAPHS, members, parts, device="cuda")
    together.advance()
    for k in range(3):
        alone = Fleet(GRAPHS, [members[k]], [parts[k]], device="cuda")
        alone.advance()
        np.testing.assert_allclose(alone.outcomes()[0].curves["loss"], together.outcomes()[k].curves["loss"], rtol=2e-2)


def test_dense_graphs_train_as_matrices_and_as_edges_alike(monkeypatch):
    sizes = np.random.default_rng(0).integers(40, 100, 60)
    dense = [networkx.gnp_random_graph(int(n), 0.9 - 0.3 * (k % 2), seed=k) for k, n in enumerate(sizes)]
    packed = from_networkx(dense, labels=[k % 2 for k in range(60)])
    assert Matrices.of(packed.to("cuda")) is not None
    members, parts = trials(), [split(k) for k in range(3)]
    curves = []
    for matrices in (Matrices.of, lambda graphs: None):
        monkeypatch.setattr(Matrices, "of", matrices)
        fleet = Fleet(packed, members, parts, device="cuda")
        fleet.advance(3)
        curves.append(np.stack([outcome.curves["loss"] for outcome in fleet.outcomes()]))
    np.testing.assert_allclose(curves[0], curves[1], rtol=1e-2)


class CopiesANumber(OwnGIN):
    """``vmap`` takes it, but a copy to the GPU cannot be recorded."""

    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size) * torch.tensor(1.0, device=x.device)


class Catches(OwnGIN):
    """Raises an error of its own where the copy fails."""

    def forward(self, x, edge_index, batch, batch_size):
        try:
            return super().forward(x, edge_index, batch, batch_size) * torch.tensor(1.0, device=x.device)
        except RuntimeError:
            raise ValueError("no number") from None


@pytest.mark.parametrize("model", [CopiesANumber, Catches])
def test_a_model_that_cannot_be_recorded_trains_without_a_cuda_graph(model):
    plain, copying = (own_members(model=one) for one in (OwnGIN, model))
    parts = [split(k) for k in range(3)]
    recorded, fleet = (Fleet(GRAPHS, members, parts, device="cuda") for members in (plain, copying))
    assert not fleet.stack.one_by_one
    with warnings.catch_warnings():
        warnings.simplefilter("error", CodeWarning)
        recorded.advance(3)
    with pytest.warns(CodeWarning, match="without a CUDA graph, which is slower"):
        fleet.advance(2)
    fleet.advance(1)
    for mine, theirs in zip(fleet.outcomes(), recorded.outcomes(), strict=True):
        np.testing.assert_allclose(mine.curves["loss"], theirs.curves["loss"], rtol=1e-2)
    assert torch.rand(4, device="cuda").unique().numel() == 4  # torch's generator still works
    with warnings.catch_warnings():
        warnings.simplefilter("error", CodeWarning)
        again = Fleet(GRAPHS, plain, parts, device="cuda")
        again.advance(3)
    for mine, theirs in zip(again.outcomes(), recorded.outcomes(), strict=True):
        np.testing.assert_array_equal(mine.curves["loss"], theirs.curves["loss"])


def test_a_comparison_of_models_that_cannot_be_recorded():
    settings = {"norms": "none,graph", "epochs": 2, "folds": 2, "device": "cuda", "workers": 1, "progress": False}
    with pytest.warns(CodeWarning, match="without a CUDA graph"):
        result = graphnorm.compare(GRAPHS, model=CopiesANumber, **settings)
    assert result.counts == {"done": 4}


def test_same_seeds_same_results_on_the_gpu():
    def curves():
        fleet = Fleet(GRAPHS, trials(3), [split(k) for k in range(3)], device="cuda")
        fleet.advance()
        return np.stack([outcome.curves["loss"] for outcome in fleet.outcomes()])

    np.testing.assert_array_equal(curves(), curves())


def test_a_checkpoint_goes_on_exactly_on_the_gpu():
    members, parts = trials(2, norm="batch"), [split(0), split(1)]
    whole, begun, resumed = (Fleet(GRAPHS, members, parts, device="cuda") for _ in range(3))
    whole.advance()
    begun.advance(2)
    resumed.load_state_dict(begun.state_dict())
    resumed.advance()
    for expected, got in zip(whole.outcomes(), resumed.outcomes(), strict=True):
        for name, curve in expected.curves.items():
            np.testing.assert_array_equal(got.curves[name], curve)


def test_a_diverging_member_on_the_gpu():
    members, parts = trials(3), [split(k) for k in range(3)]
    wild = [members[0], dataclasses.replace(members[1], lr=float("inf")), members[2]]
    calm, disturbed = (Fleet(GRAPHS, them, parts, device="cuda") for them in (members, wild))
    calm.advance()
    disturbed.advance()
    assert [outcome.status for outcome in disturbed.outcomes()] == ["done", "diverged", "done"]
    for k in (0, 2):
        np.testing.assert_array_equal(disturbed.outcomes()[k].curves["loss"], calm.outcomes()[k].curves["loss"])


def test_molecular_models_on_the_gpu():
    pytest.importorskip("rdkit")
    graphs, ids = load("molecules"), np.arange(100)
    part = Split(ids[:64], ids[64:84], ids[84:])
    for model, norm in (("molecular-gin", "graph"), ("molecular-gcn", "graph"), ("molhiv-gin", "batch")):
        member = Trial(
            dataset="molecules", model=model, norm=norm, protocol="given", hidden=16, batch_size=32, epochs=2
        )
        here, there = (Fleet(graphs, [member], [part], device=device) for device in ("cpu", "cuda"))
        for fleet in (here, there):
            fleet.advance()
        losses = [fleet.outcomes()[0].curves["loss"] for fleet in (here, there)]
        np.testing.assert_allclose(losses[1], losses[0], rtol=2e-2)
