"""The stacked linear layer on the CPU: packs the weights and hands addresses to the C library (``csrc/linear.h``)."""

from __future__ import annotations

import torch
from torch import Tensor

from graphnorm.backends import library

COLUMNS = 16  # of the library's tiles
_FEW = 1 << 15  # elements, below which a second thread is not worth waking


def available(x: Tensor) -> bool:
    """Whether the library was built and the tensor is one for it."""
    return library is not None and x.is_cpu and x.dtype == torch.float32


def _padded(width: int) -> int:
    return -(-width // COLUMNS) * COLUMNS


def _pack(tensor: Tensor) -> Tensor:
    """The last dimension filled up with zeros to whole tiles."""
    missing = _padded(tensor.shape[-1]) - tensor.shape[-1]
    return (torch.nn.functional.pad(tensor, (0, missing)) if missing else tensor).contiguous()


def _rows_in_order(x: Tensor) -> Tensor:
    """x with its rows end to end; members may share them, by a stride of 0."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()


def _shares(members: int, elements: int) -> tuple[int, int]:
    """Parts that each member's rows are cut into, and threads."""
    threads = torch.get_num_threads() if elements > _FEW else 1
    return (1 if threads == 1 or members % threads == 0 else 2 * threads), threads


def _product(x: Tensor, packed: Tensor, bias: Tensor | None, outer: int) -> Tensor:
    assert library is not None
    members, rows, inner = x.shape
    out = torch.empty(members, rows, outer)
    library.linear(
        0, members, rows, inner, outer, packed.shape[-1], *_shares(members, out.numel()), x.data_ptr(), x.stride(0),
        packed.data_ptr(), 0 if bias is None else bias.data_ptr(), 0, out.data_ptr(), 0,
    )  # fmt: skip
    return out


def forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (M, N, K), with a stride of 0 where all members share it; weight (M, O, K); bias (M, O), or none."""
    return _product(_rows_in_order(x), _pack(weight.mT), None if bias is None else _pack(bias), weight.shape[1])


def backward(gradient: Tensor, x: Tensor, weight: Tensor, wants_dx: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    """The gradients of x (None where nobody wants it), weight and bias."""
    assert library is not None
    gradient, x = gradient.contiguous(), _rows_in_order(x)
    members, rows, inner = x.shape
    outer, padded = weight.shape[1], _padded(inner)
    dx = _product(gradient, _pack(weight), None, inner) if wants_dx else None
    parts, threads = _shares(members, gradient.numel())
    sums = torch.empty(members, parts, outer * (padded + 1))
    library.linear(
        1, members, rows, inner, outer, padded, parts, threads, x.data_ptr(), x.stride(0),
        0, 0, gradient.data_ptr(), 0, sums.data_ptr(),
    )  # fmt: skip
    total = sums[:, 0] if parts == 1 else sums.sum(1)
    dweight = total[:, : outer * padded].view(members, outer, padded)[..., :inner]
    return dx, dweight, total[:, outer * padded :]
