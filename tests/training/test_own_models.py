"""A user's own model trains as in a loop that its author would write, alone or in a fleet, stacked or not."""

# ruff: noqa: NPY002 - users draw from the global generators

from __future__ import annotations

import dataclasses
import random
import re
import warnings
from functools import partial

import numpy as np
import pytest
import torch
from tests.training.own_model import OwnGIN
from tests.training.test_fleet import GRAPHS, split, trials
from torch import nn

from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import CodeWarning, GraphnormError
from graphnorm.models import name_model
from graphnorm.models.own import NormOfNodes, OwnModel, norm_of_nodes
from graphnorm.randomness import derive
from graphnorm.training import Fleet, Split, Trial, build_model
from graphnorm.training.own_model_check import try_model, why_not_stacked

CPU = torch.device("cpu")
KINDS = torch.randint(0, 3, (GRAPHS.num_edges, 1), generator=torch.manual_seed(1)).to(torch.uint8)
LENGTHS = torch.rand(GRAPHS.num_edges, 1, generator=torch.manual_seed(2))
BONDS = dataclasses.replace(GRAPHS, edge_tags=KINDS, edge_cardinalities=(3,), edge_x=LENGTHS)
SPLITS = [split(k) for k in range(3)]


def members(count: int = 3, *, model=OwnGIN, **options) -> list[Trial]:
    return [dataclasses.replace(trial, dropout=0.0) for trial in trials(count, model=name_model(model), **options)]


def plain_losses(graphs: PackedGraphs, trial: Trial, part: Split, epochs: int) -> list[float]:
    """The mean training loss of each epoch, by torch's own optimizer and without the fleet's machinery."""
    own = build_model(trial, graphs).model
    for norm in own.modules():
        if isinstance(norm, NormOfNodes):
            assert norm.ids is None
    optimizer = torch.optim.Adam(own.parameters(), lr=trial.lr, weight_decay=trial.weight_decay)
    losses, size = [], trial.batch_size
    for epoch in range(epochs):
        for group in optimizer.param_groups:
            group["lr"] = trial.lr * (1 - epoch / trial.epochs)
        order = sorted(part.train.tolist(), key=lambda graph: derive(trial.seed, 1, epoch, graph))
        steps = []
        for start in range(0, len(order), size):
            batch = graphs.batch(order[start : start + size])
            for norm in own.modules():  # as nn.Sequential passes no batch
                if isinstance(norm, NormOfNodes):
                    norm.forward = lambda x, ids=None, of=norm, batch=batch: of.norm(x, batch.batch, batch.num_graphs)
            edges = graphs.edge_features(batch)
            scores = own(graphs.features(batch), batch.edge_index, batch.batch, batch.num_graphs, edges)
            loss = nn.functional.cross_entropy(scores, batch.labels)
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(float(loss.detach()))
        losses.append(float(np.mean(steps)))
    return losses


@pytest.mark.parametrize("graphs", [GRAPHS, BONDS], ids=["nodes", "bonds"])
@pytest.mark.parametrize("stacked", [False, True])
@pytest.mark.parametrize("norm", ["graph", "batch", "layer"])
def test_members_train_as_a_plain_loop_would(norm, stacked, graphs, monkeypatch):
    if stacked:
        monkeypatch.setattr("graphnorm.training.fleet.why_one_by_one", lambda *_: "")
    own = members(norm=norm)
    fleet = Fleet(graphs, own, SPLITS, device="cpu")
    assert fleet.stack.one_by_one is not stacked
    fleet.advance(2)
    for outcome, member, part in zip(fleet.outcomes(), own, SPLITS, strict=True):
        np.testing.assert_allclose(outcome.curves["loss"], plain_losses(graphs, member, part, 2), rtol=2e-3)


@pytest.mark.parametrize("stacked", [False, True])
def test_dropout_is_the_same_alone_in_a_fleet_and_after_a_pause(stacked, monkeypatch, tmp_path):
    if stacked:
        monkeypatch.setattr("graphnorm.training.fleet.why_one_by_one", lambda *_: "")
    own = [dataclasses.replace(trial, dropout=0.5) for trial in members()]
    whole, paused = Fleet(BONDS, own, SPLITS, device="cpu"), Fleet(BONDS, own, SPLITS, device="cpu")
    whole.advance(3)
    paused.advance(1)
    torch.rand(7)  # whatever else draws from torch's generator
    torch.save(paused.state_dict(), tmp_path / "state.pt")
    resumed = Fleet(BONDS, own, SPLITS, device="cpu")
    resumed.load_state_dict(torch.load(tmp_path / "state.pt"))
    resumed.advance(2)
    without = Fleet(BONDS, [dataclasses.replace(trial, dropout=0.0) for trial in own], SPLITS, device="cpu")
    without.advance(3)
    for k, expected in enumerate(whole.outcomes()):
        np.testing.assert_array_equal(resumed.outcomes()[k].curves["loss"], expected.curves["loss"])
        alone = Fleet(BONDS, [own[k]], [SPLITS[k]], device="cpu")
        alone.advance(3)
        np.testing.assert_allclose(alone.outcomes()[0].curves["loss"], expected.curves["loss"], rtol=1e-3)
        assert abs(without.outcomes()[k].curves["loss"] - expected.curves["loss"]).max() > 1e-2


class Draws(OwnGIN):
    """From all global generators: as it is made, in training and in evaluation."""

    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.scale = nn.Parameter(torch.tensor(np.random.randn(num_outputs) + random.random(), dtype=torch.float32))

    def forward(self, x, edge_index, batch, batch_size):
        noise = torch.rand(1) + random.random() + float(np.random.rand())
        return super().forward(x, edge_index, batch, batch_size) * self.scale + noise * torch.tensor([0.0, 1.0])


def test_all_random_numbers_of_a_model_are_those_of_its_trial():
    """Alone, in a fleet and after a pause, whatever the generators of the process hold; and those stay as they were."""

    def curves(fleet: Fleet, member: int) -> np.ndarray:
        return np.stack(list(fleet.outcomes()[member].curves.values()))

    own = members(model=Draws)
    whole = Fleet(GRAPHS, own, SPLITS, device="cpu")
    whole.advance(3)
    assert abs(curves(whole, 0) - curves(whole, 1)).max() > 1e-3
    random.seed(1)
    np.random.seed(1)
    np.random.randn()  # makes two numbers and keeps one
    before = random.getstate(), repr(np.random.get_state(legacy=False))
    alone = Fleet(GRAPHS, own[1:2], SPLITS[1:2], device="cpu")
    alone.advance(1)
    resumed = Fleet(GRAPHS, own[1:2], SPLITS[1:2], device="cpu")
    resumed.load_state_dict(alone.state_dict())
    resumed.advance(2)
    np.testing.assert_array_equal(curves(resumed, 0), curves(whole, 1))
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", CodeWarning)
        try_model(own[0], GRAPHS, CPU)
    assert why_not_stacked(own[0], GRAPHS, CPU)
    assert (random.getstate(), repr(np.random.get_state(legacy=False))) == before


def test_a_step_that_cannot_be_recorded_is_trained_without_a_cuda_graph(monkeypatch):
    """As where a model reads a value: recording fails after the step was run once to warm up."""

    def fail(work, *_):
        work()
        try:
            raise torch.AcceleratorError("CUDA error: operation not permitted when stream is capturing\nCUDA kernel …")
        finally:
            raise torch.AcceleratorError("CUDA error: operation failed due to a previous error during capture")

    monkeypatch.setattr("graphnorm.training.fleet.why_one_by_one", lambda *_: "")
    monkeypatch.setattr("graphnorm.training.fleet.record_cuda_graph", fail)
    monkeypatch.setattr("torch.cuda.graph_pool_handle", lambda: None)
    plain, fleet = Fleet(BONDS, members(), SPLITS, device="cpu"), Fleet(BONDS, members(), SPLITS, device="cpu")
    fleet._to_capture = True  # as on a GPU
    with pytest.warns(CodeWarning, match=r"own_model.*without a CUDA graph.*not permitted when stream is capturing\)"):
        fleet.advance(1)
    fleet.advance(1)
    plain.advance(2)
    for one, other in zip(fleet.outcomes(), plain.outcomes(), strict=True):
        np.testing.assert_array_equal(one.curves["loss"], other.curves["loss"])

    def complain(*_):
        raise ValueError("what the model makes of it")

    monkeypatch.setattr("graphnorm.training.fleet.record_cuda_graph", complain)
    fleet = Fleet(BONDS, members(), SPLITS, device="cpu")
    fleet._to_capture = True
    with pytest.warns(CodeWarning, match=r"\(ValueError: what the model makes of it\)"):
        fleet.advance(2)
    np.testing.assert_array_equal(fleet.outcomes()[0].curves["loss"], plain.outcomes()[0].curves["loss"])

    def exhaust(*_):
        raise torch.OutOfMemoryError("CUDA out of memory")

    monkeypatch.setattr("graphnorm.training.fleet.record_cuda_graph", exhaust)
    fleet = Fleet(BONDS, members(), SPLITS, device="cpu")
    fleet._to_capture = True
    with pytest.raises(torch.OutOfMemoryError):  # the runner splits such a fleet
        fleet.advance(1)


def test_trials_of_different_dropout_are_not_in_one_fleet():
    one, other = members(1)[0], dataclasses.replace(members(1)[0], dropout=0.5)
    assert one.shape != other.shape
    assert one.shape == dataclasses.replace(one, lr=1.0, fold=3).shape


class Frozen(OwnGIN):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.head.requires_grad_(False)
        self.unused = nn.Linear(2, 2)
        self.running = nn.BatchNorm1d(in_features)

    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(self.running(x), edge_index, batch, batch_size)


def test_frozen_parameters_stay_and_running_statistics_move():
    fleet = Fleet(GRAPHS, members(2, model=Frozen), SPLITS[:2], device="cpu")
    before = fleet.model_state(1)
    fleet.advance(1)
    after = fleet.model_state(1)
    changed = {name for name in after if not torch.equal(before[name], after[name])}
    assert changed == {name for name in after if "head" not in name}
    assert int(after["model.running.num_batches_tracked"]) == 3
    fleet.model(1)


class Remembers(OwnGIN):
    """Replaces a buffer, has one that is not saved, and uses a layer twice."""

    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.register_buffer("seen", torch.zeros(()))
        self.register_buffer("share", torch.tensor(0.5), persistent=False)
        self.convolutions.append(self.convolutions[-1])

    def forward(self, x, edge_index, batch, batch_size):
        if self.training:
            self.seen = self.seen + self.share
        return super().forward(x, edge_index, batch, batch_size) / (1 + self.seen)


def test_a_state_is_that_of_the_model_alone():
    whole, paused = (Fleet(GRAPHS, members(2, model=Remembers), SPLITS[:2], device="cpu") for _ in range(2))
    whole.advance(2)
    paused.advance(1)
    resumed = Fleet(GRAPHS, members(2, model=Remembers), SPLITS[:2], device="cpu")
    resumed.load_state_dict(paused.state_dict())
    resumed.advance(1)
    batch = GRAPHS.batch([0, 1])
    for fleet in (whole, resumed):
        for k in range(2):
            assert float(fleet.model_state(k)["model.seen"]) == 0.5 * 2 * 3
            np.testing.assert_array_equal(fleet.outcomes()[k].curves["valid"], whole.outcomes()[k].curves["valid"])
            model = fleet.model(k)
            assert model.state_dict().keys() == fleet.model_state(k).keys()
            scores = model(GRAPHS.features(batch), batch.edge_index, batch.batch, 2)
            torch.testing.assert_close(
                scores, fleet.stack._models[k].eval()(GRAPHS.features(batch), batch.edge_index, batch.batch, 2)
            )


# ---- whether vmap takes it


class ReadsAValue(OwnGIN):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x * float(x.max()), edge_index, batch, batch_size)


class PoolsWithoutSize(OwnGIN):
    def forward(self, x, edge_index, batch):
        return super().forward(x, edge_index, batch, None)


class DrawsFrom(OwnGIN):
    """A number that is used nowhere still shows that one is drawn."""

    def forward(self, x, edge_index, batch, batch_size):
        self.draw()
        return super().forward(x, edge_index, batch, batch_size)


class DrawsFromPython(DrawsFrom):
    def draw(self):
        random.random()


class DrawsFromNumPy(DrawsFrom):
    def draw(self):
        if not self.training:
            np.random.randn()


class DropsInEvaluation(OwnGIN):
    """vmap does not let it draw from torch's generator."""

    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(nn.functional.dropout(x, 0.5), edge_index, batch, batch_size)


@pytest.mark.parametrize(
    ("model", "why"),
    [
        (DrawsFromPython, "draws from random or numpy.random"),
        (DrawsFromNumPy, "draws from random or numpy.random"),
        (DropsInEvaluation, "vmap cannot take it .*random"),
        (OwnGIN, ""),
        (PoolsWithoutSize, ""),
        (ReadsAValue, "vmap cannot take it"),
        (Frozen, "padded rows would change"),
        (Remembers, "replaces a buffer"),
    ],
)
def test_whether_vmap_takes_a_model_is_found_out(model, why):
    for dropout in (0.0, 0.5):
        found = why_not_stacked(dataclasses.replace(members(1, model=model)[0], dropout=dropout), GRAPHS, CPU)
        assert re.search(why, found)
        assert bool(found) == bool(why)


@pytest.mark.parametrize("kind", ["GCN", "GIN", "GAT", "PNA", "GraphSAGE"])
def test_models_of_pyg_by_name(kind):
    own = members(2, model=f"pyg:{kind}", norm="graph")
    assert bool(why_not_stacked(own[0], BONDS, CPU)) == (kind == "PNA")
    try_model(own[0], BONDS, CPU)
    fleet = Fleet(BONDS, own, SPLITS[:2], device="cpu")
    fleet.advance(1)
    losses = [outcome.curves["loss"][0] for outcome in fleet.outcomes()]
    np.testing.assert_allclose(losses, [plain_pyg_loss(own[k], SPLITS[k]) for k in range(2)], rtol=2e-3)


def plain_pyg_loss(trial: Trial, part: Split) -> float:
    model = build_model(trial, BONDS)
    optimizer = torch.optim.Adam(model.parameters(), lr=trial.lr, weight_decay=trial.weight_decay)
    order = sorted(part.train.tolist(), key=lambda graph: derive(trial.seed, 1, 0, graph))
    losses = []
    for start in range(0, len(order), trial.batch_size):
        batch = BONDS.batch(order[start : start + trial.batch_size])
        x, edges = BONDS.features(batch), BONDS.edge_features(batch)
        scores = model(x, batch.edge_index, batch.batch, batch.num_graphs, edge_attr=edges)
        loss = nn.functional.cross_entropy(scores, batch.labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        losses.append(float(loss.detach()))
    return float(np.mean(losses))


def test_gcn_of_pyg_is_pygs_own():
    """With its self-loops added to the batch, not by its layers."""
    models = pytest.importorskip("torch_geometric.nn.models")
    (trial,) = members(1, model="pyg:GCN", norm="none")
    ours = build_model(trial, GRAPHS).eval().model
    theirs = models.GCN(GRAPHS.num_features, trial.hidden, trial.layers - 1).eval()
    theirs.load_state_dict(ours.convolutions.state_dict())
    batch = GRAPHS.batch([0, 1, 2])
    x, edges = GRAPHS.features(batch), batch.edge_index
    pooled = torch.zeros(3, trial.hidden).index_add(0, batch.batch, theirs(x, edges))
    torch.testing.assert_close(ours(x, edges, batch.batch, 3), ours.head(pooled))


# ---- mistakes


class Wrong(OwnGIN):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)


class OfNodes(Wrong):
    def forward(self, x, edge_index, batch):
        return self.head(self.convolutions[0](x, edge_index, batch, None))


class OfOneClass(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size)[:, :1]


class OfTwoKinds(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size), x


class InPlace(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x.mul_(2), edge_index, batch, batch_size)


class MovesNodes(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch.zero_(), batch_size)


class EndsPython(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        raise SystemExit(0)


class NotANumber(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size) - torch.tensor(-1.0).log()


class Fails(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x @ x, edge_index, batch, batch_size)


class AsksForMore(Wrong):
    def forward(self, x, edge_index, batch, pos):
        return x


class NeedsBonds(Wrong):
    def forward(self, x, edge_index, batch, batch_size, edge_attr):
        return super().forward(x, edge_index, batch, batch_size) + edge_attr.sum()


class Doubles(Wrong):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.double()


class KeepsGradients(Remembers):
    def forward(self, x, edge_index, batch, batch_size):
        scores = super().forward(x, edge_index, batch, batch_size)
        self.seen = self.seen + scores.mean()
        return scores


class Grows(Remembers):
    """A buffer that the first step gives a shape."""

    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.register_buffer("table", None)

    def forward(self, x, edge_index, batch, batch_size):
        scores = super().forward(x, edge_index, batch, batch_size)
        self.table = torch.zeros(2)
        return scores


class Lazy(Wrong):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.running = nn.LazyBatchNorm1d(affine=False)


class HalfPrecision(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size).bfloat16()


class KeepsItsFirstBatch(Wrong):
    """As PyTorch Geometric's layers with cached=True do."""

    def forward(self, x, edge_index, batch, batch_size):
        self.edges = getattr(self, "edges", edge_index)
        return super().forward(x, self.edges, batch, batch_size)


class Detached(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size).detach()


def too_few(in_features, num_outputs):
    return nn.Linear(in_features, num_outputs)


def too_many(in_features, num_outputs, norm, heads):
    return nn.Linear(in_features, num_outputs)


def no_module(in_features, num_outputs, norm):
    return norm


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (OfNodes, "for 2 graphs, not scores of shape"),
        (OfOneClass, r"scores of shape \(2, 1\) for 2 graphs, not scores of shape \(2, 2\)"),
        (OfTwoKinds, "gave a tuple for 2 graphs"),
        (InPlace, "changes its input x in place"),
        (MovesNodes, "changes its input batch in place"),
        (EndsPython, "fails on two graphs with .* nodes: SystemExit"),
        (NotANumber, "scores that are NaN"),
        (Fails, "fails on two graphs with .* nodes: RuntimeError: mat1"),
        (AsksForMore, "asks for pos"),
        (NeedsBonds, "asks for edge_attr, and .* has no edge features: given None, it fails on two graphs .*NoneType"),
        (Doubles, "not float32"),
        (HalfPrecision, r"scores of type torch.bfloat16 for 2 graphs, not torch.float32"),
        (KeepsItsFirstBatch, "fails in evaluation mode on two graphs with .* nodes, or on one of them: IndexError"),
        (Detached, "depend on no parameter"),
        (KeepsGradients, "keeps gradients in its buffer seen"),
        (Grows, "changes the shape or the type of its buffer table"),
        (Lazy, "parameters without a shape"),
        (too_few, "cannot be made: it takes"),
        (too_many, "asks for heads"),
        (no_module, "gave a partial"),
    ],
    ids=lambda value: getattr(value, "__name__", ""),
)
def test_mistakes_are_named_before_anything_is_trained(model, words):
    (trial,) = members(1, model=model)
    with pytest.raises(GraphnormError, match=words) as caught:
        try_model(trial, GRAPHS, CPU)
    assert caught.value.remedy
    if model is Fails:
        assert caught.value.where == __file__


# ---- ways to write the constructor and forward


class KeywordsOnly(OwnGIN):
    def __init__(self, *, in_features, num_outputs, norm, dropout):
        super().__init__(in_features, num_outputs, norm, dropout=dropout)

    def forward(self, *, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size)


class AnotherOrder(OwnGIN):
    def __init__(self, norm, num_outputs, in_features):
        super().__init__(in_features, num_outputs, norm)


class OtherNames(OwnGIN):
    def __init__(self, in_channels, out_channels, norm_layer):
        super().__init__(in_channels, out_channels, norm_layer)


class PassesOn(nn.Module):
    def __init__(self, *args, **kwargs):
        super().__init__()
        self.net = PoolsWithoutSize(*args, **kwargs)

    def forward(self, *args, **kwargs):
        return self.net(*args, **kwargs)


def compiled(in_features, num_outputs, norm):
    return torch.compile(OwnGIN(in_features, num_outputs, norm), backend="eager")


@pytest.mark.parametrize("model", [KeywordsOnly, AnotherOrder, OtherNames, PassesOn, compiled])
def test_each_way_to_write_a_model_gives_the_same_scores(model):
    batch = GRAPHS.batch([0, 1, 2])
    inputs = GRAPHS.features(batch), batch.edge_index, batch.batch, 3
    plain, other = (build_model(members(1, model=one)[0], GRAPHS).eval() for one in (OwnGIN, model))
    torch.testing.assert_close(other(*inputs), plain(*inputs))


class OneScore(OwnGIN):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size).squeeze(-1)


class TooNarrow(Wrong):
    """For edge features of another width."""

    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.bonds = nn.Linear(7, 1)

    def forward(self, x, edge_index, batch, batch_size, edge_attr):
        return super().forward(x, edge_index, batch, batch_size) + self.bonds(edge_attr).sum()


def test_a_model_for_edge_features_of_another_width_learns_theirs():
    (trial,) = members(1, model=TooNarrow)
    with pytest.raises(GraphnormError, match="mat1 and mat2") as caught:
        try_model(trial, BONDS, CPU)
    assert "edge_attr with 4 columns, the edge_features of its constructor" in (caught.value.remedy or "")


class RefusesNone(Wrong):
    def __init__(self, in_features, num_outputs, norm, edge_features):
        super().__init__(in_features, num_outputs, norm)
        if not edge_features:
            raise ValueError("bonds, please")


class Infers(Wrong):
    """As layers of PyTorch Geometric do, a width of 0 leaves the parameters without a shape."""

    def __init__(self, in_features, num_outputs, norm, edge_features):
        super().__init__(in_features, num_outputs, norm)
        self.bonds = nn.Linear(edge_features, 4) if edge_features else nn.LazyLinear(4)


@pytest.mark.parametrize("model", [RefusesNone, Infers])
def test_a_constructor_that_needs_edge_features_is_told_that_there_are_none(model):
    (trial,) = members(1, model=model)
    with pytest.raises(GraphnormError, match=r"synthetic:trees has no edge features \(edge_features=0\)") as caught:
        try_model(trial, GRAPHS, CPU)
    assert "choose data with edge features" in (caught.value.remedy or "")
    try_model(trial, BONDS, CPU)


class Misspelled(Wrong):
    def __init__(self, in_features, num_outputs, norm, edge_features):
        super().__init__(in_features, num_outputs, norm)
        self.bonds = nn.Linaer(edge_features, 4)


class InfersAnother(Wrong):
    def __init__(self, in_features, num_outputs, norm, edge_features):
        super().__init__(in_features, num_outputs, norm)
        self.running = nn.LazyBatchNorm1d()


@pytest.mark.parametrize(("model", "remedy"), [(Misspelled, "correct it"), (InfersAnother, "give every layer")])
def test_a_constructor_with_another_mistake_is_not_told_of_edge_features(model, remedy):
    (trial,) = members(1, model=model)
    with pytest.raises(GraphnormError) as caught:
        try_model(trial, GRAPHS, CPU)
    assert "no edge features" not in str(caught.value)
    assert (caught.value.remedy or "").startswith(remedy)


def test_one_score_of_each_graph_may_be_a_vector():
    batch = GRAPHS.batch([0, 1, 2])
    model = OwnModel(OneScore(GRAPHS.num_features, 1, partial(norm_of_nodes, "graph")), "OneScore", 1)
    assert model(GRAPHS.features(batch), batch.edge_index, batch.batch, 3).shape == (3, 1)


class LeavesNormsOut(nn.Module):
    def __init__(self, in_features, num_outputs, norm):
        super().__init__()
        self.norm, self.head = norm(in_features), nn.Linear(in_features, num_outputs)

    def forward(self, x, edge_index, batch, batch_size):
        return self.head(x.new_zeros(batch_size, x.shape[1]).index_add(0, batch, x))


def test_a_model_that_calls_no_norm_is_noted():
    (trial,) = members(1, model=LeavesNormsOut)
    with pytest.warns(CodeWarning, match="normalizations make no difference"):
        try_model(trial, GRAPHS, CPU)


class EndsInSoftmax(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x, edge_index, batch, batch_size).softmax(1)


def test_a_softmax_at_the_end_is_noted():
    with pytest.warns(CodeWarning, match="leave the softmax at its end out"):
        try_model(members(1, model=EndsInSoftmax)[0], GRAPHS, CPU)


class MixesGraphs(Wrong):
    def forward(self, x, edge_index, batch, batch_size):
        return super().forward(x - x.mean(0), edge_index, batch, batch_size)


class NormalizesGraphs(Wrong):
    """Rows that are graphs, as of a virtual node."""

    def __init__(self, in_features, num_outputs, norm):
        super().__init__(in_features, num_outputs, norm)
        self.last = norm(num_outputs)

    def forward(self, x, edge_index, batch, batch_size):
        return self.last(super().forward(x, edge_index, batch, batch_size))


@pytest.mark.parametrize(
    ("model", "words"),
    [
        (MixesGraphs, "depend on the other graphs of its batch$"),
        (NormalizesGraphs, "depend on the other graphs of its batch; a layer made by .* took them as one graph"),
    ],
)
def test_a_model_that_mixes_graphs_is_noted(model, words):
    (trial,) = members(1, model=model)
    with pytest.warns(CodeWarning, match=words) as caught:
        try_model(trial, GRAPHS, CPU)
    assert len(caught) == 1
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        try_model(members(1)[0], GRAPHS, CPU)


@pytest.mark.parametrize("model", [Draws, DropsInEvaluation])
def test_random_numbers_in_evaluation_are_not_taken_for_a_mix_of_graphs(model):
    (trial,) = members(1, model=model)
    with pytest.warns(CodeWarning, match="in evaluation mode the scores of a graph depend on random numbers") as caught:
        try_model(trial, GRAPHS, CPU)
    assert len(caught) == 1
