"""Standardization by rows on a GPU: plans and launches the Triton kernels. Nothing here waits for the device."""

from __future__ import annotations

from contextlib import AbstractContextManager, nullcontext
from functools import lru_cache
from typing import Any, NamedTuple

import torch
import triton.language as tl
from torch import Tensor

from graphnorm.ops.layer_norm import gpu_kernels as kernels
from graphnorm.ops.standardize.gpu_launch import Tile, kinds, launch, power_of_two
from graphnorm.ops.standardize.problem import computed_in

_FORWARD_ELEMENTS = 2048  # of a tile
_BACKWARD_ELEMENTS = 1024  # fewer: beside x and dy a program holds the sums for weight and bias
_MOST_ROWS = 128
_PROGRAMS = 4224  # backward, over all members: an H200's 132 multiprocessors hold seven each at a time
_MOST_PARTS = 792  # of one member: six to each, since all that they found must be added up
_ADDED = (128, 8)  # shares and channels that the last step adds up at a time


class Cut(NamedTuple):
    """How one call is cut into programs."""

    forward: Tile
    tiles: int  # per member
    backward: Tile
    parts: int  # programs per member,
    blocks: int  # and the tiles of each
    add: Tile


@lru_cache(maxsize=4096)
def cut(members: int, rows: int, channels: int) -> Cut:
    """Programs hold whole rows, as many as make up a tile."""
    forward, backward = _tile(channels, _FORWARD_ELEMENTS), _tile(channels, _BACKWARD_ELEMENTS)
    tiles = -(-rows // backward.rows)
    blocks = -(-tiles // min(tiles, _MOST_PARTS, -(-_PROGRAMS // members)))
    parts = -(-tiles // blocks)
    add = Tile(min(_ADDED[0], power_of_two(parts)), min(_ADDED[1], power_of_two(channels)), 4)
    return Cut(forward, -(-rows // forward.rows), backward, parts, blocks, add)


def _tile(channels: int, elements: int) -> Tile:
    padded = power_of_two(channels)
    return Tile(max(1, min(_MOST_ROWS, elements // padded)), padded, 4 if padded <= 1024 else 8)


def _ready(tensor: Tensor | None) -> Tensor | None:
    return None if tensor is None else tensor.contiguous()


def _on_device_of(x: Tensor) -> AbstractContextManager[Any]:
    """Triton launches on the current device, which may be another one."""
    elsewhere = x.is_cuda and x.device.index != torch._C._cuda_getDevice()
    return torch.cuda.device(x.device) if elsewhere else nullcontext()


def forward(
    x: Tensor, residual: Tensor | None, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> Tensor:
    """The Triton twin of :func:`graphnorm.ops.layer_norm.reference.forward`."""
    x = x.contiguous()
    members, (rows, channels) = x.shape[0] if x.dim() == 3 else 1, x.shape[-2:]
    how = cut(members, rows, channels)
    y = torch.empty_like(x)
    tensors = (x, y, _ready(residual), _ready(weight), _ready(bias))
    acc = tl.float64 if x.dtype == torch.float64 else tl.float32
    key = (x.device.index, kinds(*tensors), channels, eps, relu)
    with _on_device_of(x):
        programs = members * how.tiles
        launch(
            kernels.forward_rows, key, programs, how.forward, (*tensors, rows, how.tiles), channels, eps, relu, acc
        )  # fmt: skip
    return y


def backward(
    dy: Tensor, x: Tensor, weight: Tensor | None, bias: Tensor | None, eps: float, relu: bool
) -> tuple[Tensor, Tensor, Tensor]:
    """The Triton twin of :func:`graphnorm.ops.layer_norm.reference.backward`."""
    x, dy = x.contiguous(), dy.contiguous()
    members, (rows, channels) = x.shape[0] if x.dim() == 3 else 1, x.shape[-2:]
    how, wide = cut(members, rows, channels), computed_in(x.dtype)
    dx = torch.empty_like(x)
    shares = [torch.empty((members, how.parts, channels), dtype=wide, device=x.device) for _ in range(2)]
    tensors = (x, dy, dx, _ready(weight), _ready(bias), *shares)
    acc = tl.float64 if wide == torch.float64 else tl.float32
    key = (x.device.index, kinds(*tensors), channels, eps, relu)
    arguments = (*tensors, rows, how.parts, how.blocks)
    shape = (*x.shape[:-2], channels)
    with _on_device_of(x):
        launch(kernels.backward_rows, key, members * how.parts, how.backward, arguments, channels, eps, relu, acc)
        if how.parts == 1:
            dweight, dbias = (share.view(shape) for share in shares)
            return dx, dweight, dbias
        dweight, dbias = (torch.empty(shape, dtype=wide, device=x.device) for _ in range(2))
        sums = (*shares, dweight, dbias)
        programs = members * -(-channels // how.add.channels)
        of_sums = (x.device.index, kinds(*sums), channels)
        launch(kernels.add_parts, of_sums, programs, how.add, (*sums, how.parts), channels)
    return dx, dweight, dbias
