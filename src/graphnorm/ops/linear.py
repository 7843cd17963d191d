"""x·Wᵀ + b, and many of them at once: a linear layer that a fleet of models can stack.

For one model it is ``torch.nn.functional.linear``. Under ``torch.func.vmap`` over models, torch turns it into a batched
product and a pass that adds the bias, and its gradient into two batched products and a sum over the rows. On a GPU,
moreover, the product for the weight's gradient, whose inner dimension is the rows of the batch, keeps only as many
multiprocessors busy as there are models. Here product and bias are one kernel, and the gradients of weight and bias
another, which splits the rows and adds up partial sums in a fixed order; in C, and in Triton
(:mod:`graphnorm.ops.linear_gpu`).
"""

from __future__ import annotations

from typing import Any, cast

import torch
from torch import Tensor
from torch._C import _are_functorch_transforms_active
from torch.nn import functional

from graphnorm.backends import address, chosen_backend, has_c_kernel, library, output
from graphnorm.ops.dispatch import Kernels, is_plain, optional_triton_kernels
from graphnorm.ops.function import define

__all__ = ["linear"]

WIDEST_ON_CPU = getattr(library, "LINEAR_WIDEST", 0)
"""Rows and columns of the largest weight that the library takes, which fits the second cache; 0 without a library."""


def linear(x: Tensor, weight: Tensor, bias: Tensor | None = None) -> Tensor:
    """x·Wᵀ + b: x (N, K), weight (O, K), bias (O,) to (N, O).

    >>> linear(torch.ones(2, 3), torch.ones(1, 3), torch.zeros(1))
    tensor([[3.],
            [3.]])
    """
    stacked = not torch.compiler.is_compiling() and _are_functorch_transforms_active()
    if not stacked or x.ndim != 2 or _kernels(x, weight) is None:
        return functional.linear(x, weight, bias)
    return cast(Tensor, _linear(x, weight, bias))


def _kernels(x: Tensor, weight: Tensor) -> Any:
    """The kernels for stacked layers; ``None`` where torch's products are used."""
    exact = x.dtype == weight.dtype == torch.float32
    if not exact or chosen_backend() == "reference" or not is_plain(x, weight):
        return None
    gpu = optional_triton_kernels("graphnorm.ops.linear_gpu", x)
    if gpu is not None:
        return gpu
    return _C if has_c_kernel(x) and max(weight.shape[-2:]) <= WIDEST_ON_CPU else None


# ---- the operation, of one layer or of M stacked ones ----------------------------------------------------------


def _forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x ([M,] N, K), weight ([M,] O, K) and bias ([M,] O) to ([M,] N, O)."""
    if weight.dim() == 2:
        return functional.linear(x, weight, bias)
    y: Tensor = _kernels(x, weight).forward(x, weight, bias)
    return y


def _backward(dy: Tensor, x: Tensor, weight: Tensor, wants_x: bool) -> tuple[Tensor, Tensor, Tensor]:
    """The gradients of x, empty if it is not wanted, of weight and of bias."""
    if weight.dim() == 2:
        return _reference_backward(dy, x, weight, wants_x)
    dx, dweight, dbias = _kernels(x, weight).backward(dy, x, weight, wants_x)
    return dy.new_empty(0) if dx is None else dx, dweight, dbias


def _reference_backward(dy: Tensor, x: Tensor, weight: Tensor, wants_x: bool) -> tuple[Tensor, Tensor, Tensor]:
    return dy @ weight if wants_x else dy.new_empty(0), dy.mT @ x, dy.sum(-2)


def _save(wanted: Any, y: Tensor, x: Tensor, weight: Tensor, bias: Any) -> tuple[Any, ...]:
    return x, weight, wanted[0]


_linear = define(
    "linear",
    _forward,
    _backward,
    _reference_backward,
    dims={"x": 2, "weight": 2, "bias": 1, "dy": 2},
    save=_save,
    gradients=("x", "weight", "bias"),
)


# ---- C: packed weights, addresses and sizes for csrc/linear.h ---------------------------------------------------

_COLUMNS = 32  # of the library's tiles
_FEW = 1 << 15  # elements, below which a second thread does not pay


def _c_forward(x: Tensor, weight: Tensor, bias: Tensor | None) -> Tensor:
    """x (M, N, K), with a stride of 0 where all members share it; weight (M, O, K); bias (M, O), or ``None``."""
    return _product(_rows_in_order(x), _pack(weight.mT), None if bias is None else _pack(bias), weight.shape[1])


def _c_backward(dy: Tensor, x: Tensor, weight: Tensor, wants_x: bool) -> tuple[Tensor | None, Tensor, Tensor]:
    assert library is not None
    dy, x = dy.contiguous(), _rows_in_order(x)
    members, rows, inner = x.shape
    outer, padded = weight.shape[1], _padded(inner)
    dx = _product(dy, _pack(weight), None, inner) if wants_x else None
    threads, size = _threads(dy.numel()), outer * (padded + 1)
    sums, blocks = output((members, size), torch.float32), -(-rows // library.LINEAR_BLOCK)
    # a task is a member, or where these cannot keep all threads busy, a block of its rows
    block_sums = None if _is_even(members, threads) or blocks <= 1 else torch.empty(members, blocks, size)
    library.linear(
        1, members, rows, inner, outer, padded, 0, threads, x.data_ptr(), x.stride(0),
        0, 0, dy.data_ptr(), 0, sums.data_ptr(), address(block_sums),
    )  # fmt: skip
    dweight = sums[:, : outer * padded].view(members, outer, padded)[..., :inner]
    return dx, dweight, sums[:, outer * padded :]


_C = Kernels(_c_forward, _c_backward)


def _product(x: Tensor, packed: Tensor, bias: Tensor | None, outer: int) -> Tensor:
    assert library is not None
    members, rows, inner = x.shape
    out = output((members, rows, outer), torch.float32)
    threads = _threads(out.numel())
    parts = 1 if _is_even(members, threads) else 2 * threads  # of a member's rows; each row is the same in any part
    library.linear(
        0, members, rows, inner, outer, packed.shape[-1], parts, threads, x.data_ptr(), x.stride(0),
        packed.data_ptr(), address(bias), 0, out.data_ptr(), 0, 0,
    )  # fmt: skip
    return out


def _threads(elements: int) -> int:
    return torch.get_num_threads() if elements > _FEW else 1


def _is_even(members: int, threads: int) -> bool:
    """Whether whole members keep all threads about equally busy."""
    return members % threads == 0 or members >= 16 * threads


def _padded(width: int) -> int:
    return -(-width // _COLUMNS) * _COLUMNS


def _pack(tensor: Tensor) -> Tensor:
    """The last dimension padded with zeros to whole tiles."""
    missing = _padded(tensor.shape[-1]) - tensor.shape[-1]
    return (functional.pad(tensor, (0, missing)) if missing else tensor).contiguous()


def _rows_in_order(x: Tensor) -> Tensor:
    """x with its rows end to end; members may share them, with a stride of 0."""
    return x if x.stride(2) == 1 and x.stride(1) == x.shape[2] else x.contiguous()
