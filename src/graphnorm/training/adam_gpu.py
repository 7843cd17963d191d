"""Adam's step as one Triton kernel: five reads and three writes for each entry."""

from __future__ import annotations

import triton
import triton.language as tl
from torch import Tensor

from graphnorm.launch import compiler_options, on_device
from graphnorm.training.adam import BETA1, BETA2, EPSILON

BLOCK = 1024


@triton.jit
def _step(
    parameters, gradient, first, second, owner, rate, root, decay, active, size,
    BETA1: tl.constexpr, BETA2: tl.constexpr, EPSILON: tl.constexpr, BLOCK: tl.constexpr,
):  # fmt: skip
    place = tl.program_id(0).to(tl.int64) * BLOCK + tl.arange(0, BLOCK)
    inside = place < size
    member = tl.load(owner + place, inside, 0)
    works = inside & (tl.load(active + member) != 0)
    p = tl.load(parameters + place, works)
    g = tl.load(gradient + place, works) + tl.load(decay + member) * p
    m = tl.load(first + place, works)
    v = tl.load(second + place, works)
    m += (1 - BETA1) * (g - m)
    v += (1 - BETA2) * (g * g - v)
    p -= tl.load(rate + member) * m / (tl.sqrt(v) / tl.load(root + member) + EPSILON)
    tl.store(parameters + place, p, works)
    tl.store(first + place, m, works)
    tl.store(second + place, v, works)


def launch(
    parameters: Tensor, gradient: Tensor, first: Tensor, second: Tensor,
    owner: Tensor, rate: Tensor, root: Tensor, decay: Tensor, active: Tensor,
) -> None:  # fmt: skip
    """See :func:`graphnorm.training.adam.adam_step`."""
    size = parameters.numel()
    with on_device(parameters.device):
        _step[(triton.cdiv(size, BLOCK),)](
            parameters, gradient, first, second, owner, rate, root, decay, active, size,
            BETA1, BETA2, EPSILON, BLOCK, **compiler_options(4),
        )  # fmt: skip
