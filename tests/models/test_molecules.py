"""The molecular models against messages written out, and where dropout and ξ act.

Table 2's models are compared whole with a forward pass and a training loop that share no code with them.
"""

import numpy as np
import pytest
import torch
from tests.models.test_graph import BATCH, EDGES, N
from tests.training.plain_loop import ORDER

from graphnorm.data import load
from graphnorm.models import MODELS, Dropout, DropoutKey, MolecularGCN, MolecularGIN
from graphnorm.models.molecules import one_hot
from graphnorm.randomness import derive
from graphnorm.training import Fleet, Split, Trial, build_model


@pytest.mark.parametrize(("kind", "reduce"), [(MolecularGIN, "sum"), (MolecularGCN, "mean")])
def test_counting_bonds_is_summing_messages(kind, reduce):
    """A convolution's input, written out edge by edge: the messages h_u + bond_e, reduced, and (1 + ξ)h."""
    torch.manual_seed(0)
    model = kind((4, 3), (2, 5), 1, hidden=6, layers=2, norm="none", dropout=0.0).double().eval()
    layer = model.convolutions[0]
    atoms = torch.stack([torch.randint(0, n, (N,)) for n in (4, 3)], 1)
    bonds = torch.stack([torch.randint(0, n, (EDGES.shape[1],)) for n in (2, 5)], 1)
    seen = []
    layer.linears[0].register_forward_pre_hook(lambda module, inputs: seen.append(inputs[0]))
    model(atoms, EDGES, BATCH, edge_attr=bonds)
    h = model.atoms(one_hot(atoms, (4, 3), torch.float64))
    messages = h[EDGES[0]] + layer.bonds(one_hot(bonds, (2, 5), torch.float64))
    received = torch.zeros_like(h).index_add(0, EDGES[1], messages)
    if reduce == "mean":
        received /= EDGES[1].bincount(minlength=N)[:, None]
    torch.testing.assert_close(seen[0], received + (1 + layer.xi) * h)


@pytest.mark.parametrize("kind", [MolecularGIN, MolecularGCN])
def test_where_dropout_acts_on_molecules(kind):
    """The same function but for dropout; on the scores alone every score is doubled or 0: GraphNorm has no noise."""
    torch.manual_seed(0)
    atoms = torch.randint(0, 4, (N, 1))
    inside = kind((4,), (), 5, hidden=6, layers=4)
    outside = kind((4,), (), 5, hidden=6, layers=4, dropout_on="scores")
    outside.load_state_dict(inside.state_dict())
    expected = inside.eval()(atoms, EDGES, BATCH)
    torch.testing.assert_close(outside.eval()(atoms, EDGES, BATCH), expected)
    key = DropoutKey(torch.tensor(3), torch.tensor(0.5))
    dropped = outside.train()(atoms, EDGES, BATCH, dropout_key=key)
    kept = dropped != 0
    assert 0 < int(kept.sum()) < kept.numel()
    torch.testing.assert_close(dropped[kept], 2 * expected[kept])
    assert not torch.isclose(inside.train()(atoms, EDGES, BATCH, dropout_key=key), 2 * expected).any()


@pytest.mark.parametrize("kind", [MolecularGIN, MolecularGCN])
def test_xi_can_stay_zero(kind):
    """Then it is no parameter, and the model is the one whose ξ is 0, from the same seed."""
    atoms, models = torch.randint(0, 4, (N, 1)), []
    for learn_xi in (True, False):
        torch.manual_seed(0)
        models.append(kind((4,), (), 5, hidden=6, layers=4, learn_xi=learn_xi).eval())
    learned, fixed = models
    torch.testing.assert_close(fixed(atoms, EDGES, BATCH), learned(atoms, EDGES, BATCH))
    names = {name for name, _ in learned.named_parameters()} - {name for name, _ in fixed.named_parameters()}
    assert names == {f"convolutions.{place}.xi" for place in range(3)}


def test_dropout_of_the_leaderboard_spares_the_last_convolution():
    model = MolecularGCN((4,), (), 5, hidden=6, layers=4, dropout=0.3, dropout_on="inner and scores")
    assert [layer.dropout is None for layer in model.convolutions] == [False, False, True]
    assert [module.rate for module in model.modules() if isinstance(module, Dropout)] == [0.3] * 3


def test_molecular_models_as_in_the_authors_code():
    model = MolecularGIN((4,), (), 5, hidden=6, layers=3, norm="instance", as_authors=True)
    assert not [name for name, _ in model.named_parameters() if name.endswith("xi")]
    assert {norm.eps for layer in model.convolutions for norm in layer.norms} == {1e-6}


def test_the_last_normalization_can_be_another():
    model = MolecularGIN((4,), (), 5, hidden=6, layers=3, norm="graph", last_norm="instance")
    kinds = [[type(norm).__name__ for norm in layer.norms] for layer in model.convolutions]
    assert kinds == [["GraphNorm", "GraphNorm"], ["GraphNorm", "InstanceNorm"]]


def test_dropout_acts_in_one_of_three_places():
    with pytest.raises(ValueError, match="'convolutions', 'scores' or 'inner and scores'"):
        MolecularGIN((3,), (), 1, dropout_on="atoms")


# Table 2's models, whole


@pytest.fixture(scope="module")
def molecules():
    pytest.importorskip("rdkit")
    return load("molecules")


def normalized(z, norm, batch, parameters):
    """The formula of each normalization, graph by graph; those of a batch in training."""
    if norm == "none":
        return z
    if norm == "layer":
        groups, axis = [slice(None)], 1
    else:
        ids = [0 * batch] if norm == "batch" else [batch]
        groups, axis = [ids[0] == graph for graph in ids[0].unique()], 0
    y = torch.empty_like(z)
    for group in groups:
        x = z[group]
        x = x - parameters.get("mean_scale", 1.0) * x.mean(axis, keepdim=True)
        y[group] = x / (x.square().mean(axis, keepdim=True) + 1e-5).sqrt()
    return y * parameters["weight"] + parameters["bias"]


def authors_scores(parameters, model, norm, batch):
    """The models of the authors' scripts for ogbg-molhiv, before dropout, with every message written out."""
    atoms, bonds, (source, target) = batch.tags.long(), batch.edge_tags.long(), batch.edge_index

    def encoded(name, categories, sizes):
        starts = torch.tensor([0, *sizes[:-1]]).cumsum(0)
        return parameters[name].T[categories + starts].sum(1)

    h = encoded("atoms.weight", atoms, batch.cardinalities)
    layers = 1 + max(int(name.split(".")[1]) for name in parameters if name.startswith("convolutions."))
    for layer in range(layers):
        own = {
            name.removeprefix(f"convolutions.{layer}."): value
            for name, value in parameters.items()
            if name.startswith(f"convolutions.{layer}.")
        }
        messages = h[source] + encoded(f"convolutions.{layer}.bonds.weight", bonds, batch.edge_cardinalities)
        z = torch.zeros_like(h).index_add(0, target, messages)
        if model == "molhiv-gcn":
            z = z / target.bincount(minlength=len(h)).clamp(min=1)[:, None]
        z = z + h  # ξ is 0
        depth = 2 if model == "molhiv-gin" else 1
        for k in range(depth):
            z = z @ own[f"linears.{k}.weight"].T + own[f"linears.{k}.bias"]
            start = f"norms.{k}."
            of_norm = {name.rpartition(".")[2]: value for name, value in own.items() if name.startswith(start)}
            z = normalized(z, norm, batch.batch, of_norm)
            if (layer, k) != (layers - 1, depth - 1):  # no ReLU after the last normalization
                z = z.relu()
        h = z + h
    sizes = batch.batch.bincount()[:, None]
    means = torch.zeros(len(sizes), h.shape[1], dtype=h.dtype).index_add(0, batch.batch, h) / sizes
    return means @ parameters["head.weight"].T + parameters["head.bias"]


class Described:
    """A batch, and how many values its categories have."""

    def __init__(self, graphs, ids):
        self.graphs, self.batch_of = graphs, graphs.batch(ids)
        self.cardinalities, self.edge_cardinalities = graphs.cardinalities, graphs.edge_cardinalities

    def __getattr__(self, name):
        return getattr(self.batch_of, name)

    def scores(self, model, **options):
        atoms, bonds = self.tags.long(), self.edge_tags.long()
        return model(atoms, self.edge_index, self.batch, self.num_graphs, edge_attr=bonds, **options)


@pytest.mark.parametrize("norm", ["none", "layer", "batch", "instance", "graph"])
@pytest.mark.parametrize("model", ["molhiv-gin", "molhiv-gcn"])
def test_models_of_table_2_are_those_of_the_authors(model, norm, molecules):
    """Without dropout, and with it, which doubles a score or drops it."""
    trial = Trial(
        dataset="m", model=model, norm=norm, protocol="given", hidden=7, layers=4, dropout=0.5, readout="mean"
    )
    network = build_model(trial, molecules).double().train()
    with torch.no_grad():
        for parameter in network.parameters():
            parameter.add_(0.2 * torch.randn_like(parameter))
    parameters = dict(network.named_parameters())
    batch = Described(molecules, range(40))
    expected = authors_scores(parameters, model, norm, batch)
    keep = DropoutKey(torch.tensor(3), torch.tensor(0.0))
    torch.testing.assert_close(batch.scores(network, dropout_key=keep), expected)
    dropped = batch.scores(network, dropout_key=DropoutKey(torch.tensor(3), torch.tensor(0.5)))
    kept = dropped != 0
    assert 10 < int(kept.sum()) < 30
    torch.testing.assert_close(dropped[kept], 2 * expected[kept])
    if norm != "batch":
        torch.testing.assert_close(batch.scores(network.eval()), expected)


@pytest.mark.parametrize("norm", ["batch", "instance"])
@pytest.mark.parametrize("model", ["molhiv-gin", "molhiv-gcn"])
def test_models_of_table_2_train_as_written_out(model, norm, molecules):
    """Two epochs without dropout: the authors' forward pass, torch's Adam, a loss of log-odds."""
    ids = np.arange(60)
    split = Split(ids[:40], ids[40:50], ids[50:])
    trial = Trial(
        dataset="m", model=model, norm=norm, protocol="given", hidden=8, layers=3, dropout=0.0, readout="mean",
        batch_size=16, epochs=4, lr=1e-3,
    )  # fmt: skip
    fleet = Fleet(molecules, [trial], [split], device="cpu")
    fleet.advance(2)
    (outcome,) = fleet.outcomes()
    parameters = {name: value.detach().clone() for name, value in build_model(trial, molecules).named_parameters()}
    optimizer = torch.optim.Adam([value.requires_grad_() for value in parameters.values()], lr=1e-3)
    losses = []
    for epoch in range(2):
        optimizer.param_groups[0]["lr"] = 1e-3 * (1 - epoch / 4)
        order = sorted(split.train.tolist(), key=lambda graph: derive(trial.seed, ORDER, epoch, graph))
        steps = []
        for start in range(0, 40, 16):
            batch = Described(molecules, order[start : start + 16])
            scores = authors_scores(parameters, model, norm, batch)
            loss = torch.nn.functional.binary_cross_entropy_with_logits(scores[:, 0], batch.labels.float())
            optimizer.zero_grad()
            loss.backward()
            optimizer.step()
            steps.append(loss.item())
        losses.append(np.mean(steps))
    np.testing.assert_allclose(outcome.curves["loss"], losses, rtol=1e-4)


def test_settings_of_table_2_are_those_of_the_authors_scripts():
    shared = {"lr": 1e-4, "dropout": 0.5, "weight_decay": 0.0, "hidden": 300, "seeds": 10}
    assert MODELS["molhiv-gin"].defaults == shared | {"epochs": 25, "batch_size": 128}
    assert MODELS["molhiv-gcn"].defaults == shared | {"epochs": 50, "batch_size": 64}
    board = {"epochs": 50, "batch_size": 128, "layers": 6, "dropout": 0.1}
    assert MODELS["molhiv-gcn-leaderboard"].defaults == shared | board
