r"""Adam over the stacked parameters of a fleet, each member with its own learning rate, decay and count of steps.

For a member with learning rate η, decay λ and t steps taken, and every entry p of its parameters with gradient g,

.. math::
    g \leftarrow g + \lambda p, \quad m \leftarrow \beta_1 m + (1-\beta_1) g, \quad \\
    v \leftarrow \beta_2 v + (1-\beta_2) g^2,
    \quad p \leftarrow p - \eta\,\frac{m / (1-\beta_1^t)}{\sqrt{v / (1-\beta_2^t)} + \varepsilon},

which is ``torch.optim.Adam`` with its default β and ε. A member without graphs at this step does not change.
"""

from __future__ import annotations

from typing import NamedTuple

import torch
from torch import Tensor

from graphnorm.backends import chosen_backend, library

__all__ = ["AdamState", "adam_step"]

BETA1, BETA2, EPSILON = 0.9, 0.999, 1e-8


class AdamState(NamedTuple):
    """Adam's state for P entries that belong to M members."""

    first: Tensor
    """(P,): m."""
    second: Tensor
    """(P,): v."""
    steps: Tensor
    """(M,) float32: t."""

    @classmethod
    def zeros(cls, entries: int, members: int, device: torch.device) -> AdamState:
        return cls(*(torch.zeros(size, device=device) for size in (entries, entries, members)))


def adam_step(
    parameters: Tensor, gradient: Tensor, moments: AdamState, owner: Tensor, lr: Tensor, decay: Tensor, active: Tensor
) -> None:
    """Take one step, in place.

    parameters, gradient: (P,) float32.
    owner: (P,) int32, the member of each entry.
    lr, decay: (M,).
    active: (M,) bool, the members that take the step.
    """
    moments.steps.add_(active)
    steps = moments.steps.clamp(min=1)
    rate = lr / (1 - BETA1**steps)
    root = (1 - BETA2**steps).sqrt()
    plain = chosen_backend() == "reference"
    if parameters.is_cuda and not plain:
        from graphnorm.training.adam_gpu import launch

        launch(parameters, gradient, moments.first, moments.second, owner, rate, root, decay, active)
        return
    if library is not None and not parameters.is_cuda and not plain:
        arrays = (parameters, moments.first, moments.second, gradient, owner, rate, root, decay, active)
        addresses = [array.data_ptr() for array in arrays]
        library.adam(1 - BETA1, 1 - BETA2, EPSILON, parameters.numel(), *addresses)
        return
    gradient = gradient + decay[owner] * parameters
    works = active[owner]
    first = torch.lerp(moments.first, gradient, 1 - BETA1)
    second = torch.lerp(moments.second, gradient * gradient, 1 - BETA2)
    step = rate[owner] * first / (second.sqrt() / root[owner] + EPSILON)
    parameters.copy_(torch.where(works, parameters - step, parameters))
    moments.first.copy_(torch.where(works, first, moments.first))
    moments.second.copy_(torch.where(works, second, moments.second))
