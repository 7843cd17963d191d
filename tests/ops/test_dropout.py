"""Dropout by a key: one pass or several, the same entries, for one model and for a stack of them."""

import pytest
import torch
from torch.func import vmap

from graphnorm.ops.dropout import drop
from graphnorm.randomness import bits, uniform


def members(device, rows=37, width=70):
    """Three models: features, residuals, keys (one of them negative), rates."""
    x, residual = torch.randn(2, 3, rows, width, device=device)
    keys, rates = torch.tensor([5, -(2**62), 7]), torch.tensor([0.5, 0.1, 0.0])
    return x, residual, keys.to(device), rates.to(device)


@pytest.mark.interpreted
@pytest.mark.parametrize("site", [0, 1, 4])
@pytest.mark.parametrize("with_residual", [False, True])
def test_entries_are_kept_by_the_hash_of_key_site_and_place(device, site, with_residual):
    x, residual, keys, rates = members(device)
    x.requires_grad_(), residual.requires_grad_()
    if with_residual:
        y = vmap(lambda x, r, key, rate: drop(x, key, rate, site, r))(x, residual, keys, rates)
    else:
        y = vmap(lambda x, key, rate: drop(x, key, rate, site))(x, keys, rates)
    (dx,) = torch.autograd.grad(y, x, torch.ones_like(y), retain_graph=True)
    for k in range(3):
        place = torch.arange(x[k].numel(), device=device).view(x[k].shape)
        kept = uniform(bits(keys[k], site), place) >= rates[k]
        expected = x[k] * (kept / (1 - rates[k])) + (residual[k] if with_residual else 0)
        torch.testing.assert_close(y[k], expected, rtol=1e-6, atol=1e-6)
        assert torch.equal(dx[k] != 0, kept)
    if with_residual:
        assert torch.equal(torch.autograd.grad(y, residual, x.detach())[0], x.detach())


@pytest.mark.interpreted
def test_a_member_alone_and_among_others(device):
    x, _, keys, rates = members(device)
    together = vmap(drop)(x, keys, rates)
    for k in range(3):
        assert torch.equal(drop(x[k], keys[k], rates[k]), together[k])


@pytest.mark.interpreted
def test_rows_appended_do_not_move_the_masks_of_others(device):
    x, _, keys, rates = members(device)
    assert torch.equal(drop(x[0, :20], keys[0], rates[0]), drop(x[0], keys[0], rates[0])[:20])


@pytest.mark.interpreted
def test_no_rows(device):
    x, _, keys, rates = members(device, rows=0)
    assert vmap(drop)(x, keys, rates).shape == (3, 0, 70)


@pytest.mark.interpreted
def test_differentiated_twice(device):
    x, _, keys, rates = members(device, 4, 3)
    x = x[0].requires_grad_()
    (first,) = torch.autograd.grad(drop(x, keys[0], rates[0]).pow(3).sum(), x, create_graph=True)
    (second,) = torch.autograd.grad(first.sum(), x)
    scale = (uniform(bits(keys[0], 0), torch.arange(12, device=device).view(4, 3)) >= rates[0]) / (1 - rates[0])
    torch.testing.assert_close(second, 6 * scale.pow(3) * x)


def test_opcheck():
    x, dy, residual = (torch.randn(4, 3, requires_grad=True) for _ in range(3))
    key, rate = torch.tensor(5), torch.tensor(0.5)
    torch.library.opcheck(torch.ops.graphnorm.dropout, (x, residual, key, rate, 2))
    torch.library.opcheck(torch.ops.graphnorm.dropout_backward, (dy, key, rate, 2))
