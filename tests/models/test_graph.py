"""GIN and GCN against PyTorch Geometric's parts, and against what the paper writes."""

from __future__ import annotations

import pytest
import torch

from graphnorm import Adjacency, GraphNorm, Segments
from graphnorm.models import GCN, GIN, Dropout, DropoutKey, GCNConvolution, GINConvolution

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
    with pytest.raises(ValueError, match="dropout is 1"):
        GIN(3, 2, dropout=1.0)
    with pytest.raises(ValueError, match="unknown normalization 'grahp'; did you mean 'graph'"):
        GIN(3, 2, norm="grahp")


def test_models_as_in_the_authors_code():
    """ξ is no parameter, ε is theirs in the layers of their own, GCN starts by Glorot's rule; nothing else differs."""
    for kind in (GIN, GCN):
        torch.manual_seed(0)
        ours = kind(3, 2, hidden=8, norm="graph")
        theirs = kind(3, 2, hidden=8, norm="graph", as_authors=True)
        names = {name for name, _ in ours.named_parameters()} ^ {name for name, _ in theirs.named_parameters()}
        assert names == ({f"convolutions.{k}.xi" for k in range(4)} if kind is GIN else set())
        assert {norm.eps for norm in theirs.modules() if isinstance(norm, GraphNorm)} == {1e-6}
        assert {norm.eps for norm in ours.modules() if isinstance(norm, GraphNorm)} == {1e-5}
        same = [(name, value.clone()) for name, value in theirs.named_parameters()]
        ours.load_state_dict(dict(same), strict=False)
        for norm in ours.modules():
            if isinstance(norm, GraphNorm):
                norm.eps = 1e-6
        x = torch.randn(N, 3)
        torch.testing.assert_close(theirs.eval()(x, EDGES, BATCH), ours.eval()(x, EDGES, BATCH))
    assert {norm.eps for norm in GIN(3, 2, norm="batch", as_authors=True).modules() if hasattr(norm, "eps")} == {1e-5}
    convolution = GCNConvolution(200, 100, as_authors=True)
    assert convolution.linear.bias.abs().max() == 0
    bound = (6 / 300) ** 0.5
    assert 0.9 * bound < convolution.linear.weight.abs().max() <= bound
