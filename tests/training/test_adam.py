"""The stacked optimizer against torch's, member by member."""

from __future__ import annotations

import pytest
import torch

from graphnorm import backend
from graphnorm.training.adam import AdamState, adam_step


@pytest.mark.parametrize("kernels", ["auto", "reference"])
@pytest.mark.parametrize("device", ["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def test_every_member_steps_as_torchs_adam_does(device, kernels):
    torch.manual_seed(0)
    shapes, members = [(5, 3), (7,)], 3
    lr, decay = [1e-2, 1e-3, 3e-3], [0.0, 5e-2, 1e-3]
    start = [torch.randn(members, *shape) for shape in shapes]
    flat = torch.cat([part.reshape(-1) for part in start]).to(device)
    owner = torch.cat([torch.arange(members).repeat_interleave(part[0].numel()) for part in start]).int().to(device)
    moments = AdamState.zeros(flat.numel(), members, torch.device(device))
    alone = [[part[m].clone().requires_grad_() for part in start] for m in range(members)]
    theirs = [torch.optim.Adam(alone[m], lr=lr[m], weight_decay=decay[m]) for m in range(members)]
    for step in range(6):
        gradients = [torch.randn_like(part) for part in start]
        active = torch.tensor([True, step % 2 == 0, True])
        for m in range(members):
            if active[m]:
                for parameter, gradient in zip(alone[m], gradients, strict=True):
                    parameter.grad = gradient[m].clone()
                theirs[m].step()
        gradient = torch.cat([g.reshape(-1) for g in gradients]).to(device)
        rates = [torch.tensor(values).to(device) for values in (lr, decay)]
        with backend(kernels):
            adam_step(flat, gradient, moments, owner, *rates, active.to(device))
    assert moments.steps.tolist() == [6, 3, 6]
    expected = torch.cat([torch.stack([alone[m][k].detach() for m in range(members)]).flatten() for k in range(2)])
    torch.testing.assert_close(flat.cpu(), expected, rtol=1e-5, atol=1e-6)


def test_where_an_entry_lies_does_not_change_its_step():
    torch.manual_seed(0)
    entries, one = 37, torch.ones(1)
    values, gradient = torch.randn(entries), torch.randn(entries)

    def stepped(first, last):
        part, moments = values[first:last].clone(), AdamState.zeros(last - first, 1, torch.device("cpu"))
        owner = torch.zeros(last - first, dtype=torch.int32)
        for _ in range(3):
            adam_step(part, gradient[first:last], moments, owner, 1e-2 * one, 1e-3 * one, one > 0)
        return part

    whole = stepped(0, entries)
    for first, last in [(0, 3), (1, 20), (5, 37), (30, 31)]:
        assert torch.equal(stepped(first, last), whole[first:last])
