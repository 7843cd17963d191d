"""Members of a ``vmap`` as one more dimension of the same launch."""

import torch
from torch.func import vmap

from graphnorm.layers.functional import layer_norm
from graphnorm.ops import vmap as members


def test_the_long_way_through_vmap_gives_the_same(monkeypatch):
    """Torch's own way serves where its internals have changed their names."""
    x, weight = torch.randn(3, 5, 4), torch.randn(3, 4, requires_grad=True)

    def results():
        y = vmap(layer_norm)(x, weight)
        return y, *torch.autograd.grad(y.square().sum(), weight)

    assert members._SHORTER
    short = results()
    monkeypatch.setattr(members, "_SHORTER", False)
    assert all(torch.equal(a, b) for a, b in zip(short, results(), strict=True))
