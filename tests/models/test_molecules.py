"""The molecular models against messages written out, and where dropout and ξ act."""

import pytest
import torch
from tests.models.test_graph import BATCH, EDGES, N

from graphnorm.models import DropoutKey, MolecularGCN, MolecularGIN
from graphnorm.models.molecules import one_hot


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


def test_dropout_acts_in_one_of_two_places():
    with pytest.raises(ValueError, match="'convolutions' or 'scores'"):
        MolecularGIN((3,), (), 1, dropout_on="atoms")
