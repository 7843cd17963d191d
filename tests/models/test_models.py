"""The models against PyTorch Geometric's parts, and against what the paper writes."""

from __future__ import annotations

import pytest
import torch

from graphnorm import Adjacency, Segments
from graphnorm.models import GCN, GIN, Dropout, DropoutKey, GCNConvolution, GINConvolution, MolecularGCN, MolecularGIN
from graphnorm.models.molecules import one_hot

N, EDGES = 9, torch.tensor([[0, 1, 1, 2, 3, 4, 4, 5, 6, 7, 7, 8, 8, 6], [1, 0, 2, 1, 4, 3, 5, 4, 7, 6, 8, 7, 6, 8]])
BATCH = torch.tensor([0, 0, 0, 1, 1, 1, 2, 2, 2])


def dense() -> torch.Tensor:
    a = torch.zeros(N, N, dtype=torch.float64)
    a[EDGES[1], EDGES[0]] = 1
    return a


@pytest.mark.parametrize("features", [3, 20], ids=["narrow: aggregate first", "wide: project first"])
@pytest.mark.parametrize("self_loops", [False, True])
def test_gin_mixes_neighbours_by_the_papers_matrix(features, self_loops):
    """With no normalization the first linear layer sees Q·x, Q = A + (1 + ξ)I, or A + (2 + ξ)I with self-loops."""
    layer = GINConvolution(features, 8, "none", self_loops=self_loops).double()
    torch.nn.init.constant_(layer.xi, 0.3)
    x = torch.randn(N, features, dtype=torch.float64)
    q = dense() + (2.3 if self_loops else 1.3) * torch.eye(N)
    z = torch.relu((q @ x) @ layer.first.weight.T + layer.first.bias)
    expected = torch.relu(z @ layer.second.weight.T + layer.second.bias)
    got = layer(x, Adjacency(edge_index=EDGES, num_nodes=N))
    torch.testing.assert_close(got, expected)


def test_gcn_mixes_neighbours_by_the_papers_matrix():
    layer = GCNConvolution(3, 8, "none").double()
    x = torch.randn(N, 3, dtype=torch.float64)
    a = dense() + torch.eye(N)
    root = a.sum(1).rsqrt()
    expected = torch.relu((root[:, None] * a * root @ x) @ layer.linear.weight.T + layer.linear.bias)
    torch.testing.assert_close(layer(x, Adjacency(edge_index=EDGES, num_nodes=N)), expected)


def test_gin_equals_pytorch_geometrics_parts():
    geometric = pytest.importorskip("torch_geometric.nn")
    torch.manual_seed(0)
    model = GIN(3, 2, hidden=16, norm="graph").eval()
    h = x = torch.randn(N, 3)
    for index, layer in enumerate(model.convolutions):
        convolution = geometric.GINConv(torch.nn.Identity(), eps=layer.xi.item())
        z = layer.first(convolution(h, EDGES))
        for norm, linear in ((layer.first_norm, layer.second), (layer.second_norm, None)):
            theirs = geometric.GraphNorm(16)
            theirs.load_state_dict(norm.state_dict())
            z = theirs(z, BATCH).relu()
            z = z if linear is None else linear(z)
        h = z if index == 0 else z + h
    expected = model.head(geometric.global_add_pool(h, BATCH))
    torch.testing.assert_close(model(x, EDGES, BATCH), expected, rtol=1e-4, atol=1e-4)


@pytest.mark.parametrize("kind", [GIN, GCN])
def test_pyg_arguments_and_ours_are_the_same(kind):
    model = kind(3, 2, hidden=8, layers=3, readout="mean").eval()
    x = torch.randn(N, 3)
    ours = model(x, Adjacency(edge_index=EDGES, num_nodes=N, symmetric=True), Segments(sizes=[3, 3, 3]))
    torch.testing.assert_close(model(x, EDGES, BATCH), ours)
    torch.testing.assert_close(model(x, EDGES, BATCH, 3), ours)
    alone = model(x[:3], EDGES[:, :4])
    torch.testing.assert_close(alone, ours[:1])


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


def test_dropout_by_key():
    drop = Dropout(0.9)
    x, key = torch.ones(4000), DropoutKey(torch.tensor(7), torch.tensor(0.25))
    y = drop(x, key)
    assert torch.equal(y, drop(x, key))
    assert not torch.equal(y, drop(x, DropoutKey(torch.tensor(8), torch.tensor(0.25))))
    assert not torch.equal(y, Dropout(0.9, site=1)(x, key))
    assert y.unique().tolist() == pytest.approx([0, 4 / 3])
    assert float((y == 0).float().mean()) == pytest.approx(0.25, abs=0.03)
    assert torch.equal(drop.eval()(x, key), x)


def test_mistakes_are_named():
    with pytest.raises(ValueError, match="readout is 'max'"):
        GIN(3, 2, readout="max")
    with pytest.raises(ValueError, match="at least two layers"):
        GCN(3, 2, layers=1)
    with pytest.raises(ValueError, match="dropout_on is 'atoms'; it can be 'convolutions' or 'scores'"):
        MolecularGIN((3,), (), 1, dropout_on="atoms")
    with pytest.raises(ValueError, match="dropout is 1"):
        GIN(3, 2, dropout=1.0)
    with pytest.raises(ValueError, match="unknown normalization 'grahp'; did you mean 'graph'"):
        GIN(3, 2, norm="grahp")
