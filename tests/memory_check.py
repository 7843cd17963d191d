"""Triton's interpreter, made to refuse what a GPU calls an illegal memory access.

The interpreter reads and writes any address of the process, so a kernel that leaves its arguments goes unnoticed. Here
every address of a load, a store or an atomic operation that is not masked out must lie in a tensor of the launch.
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch


class _Ranges:
    """Addresses [begin, end) of the tensors of one launch."""

    def __init__(self, arguments: list[Any]) -> None:
        tensors = [a for a in arguments if isinstance(a, torch.Tensor) and a.numel()]
        pairs = sorted((t.data_ptr(), t.data_ptr() + t.numel() * t.element_size()) for t in tensors)
        self.begins = np.array([begin for begin, _ in pairs], dtype=np.int64)
        self.ends = np.maximum.accumulate(np.array([end for _, end in pairs], dtype=np.int64))

    def check(self, what: str, pointers: Any, mask: Any) -> None:
        """Raises where an address that is not masked out lies outside."""
        size = pointers.get_element_ty().primitive_bitwidth // 8
        addresses = pointers.data.astype(np.int64)[np.broadcast_to(mask.data, pointers.data.shape).astype(bool)]
        if addresses.size == 0:
            return
        tensor = np.searchsorted(self.begins, addresses.min(), side="right") - 1
        if tensor >= 0 and addresses.max() + size <= self.ends[tensor]:
            return  # all of them in one tensor
        tensors = np.searchsorted(self.begins, addresses, side="right") - 1
        outside = (tensors < 0) | (addresses + size > self.ends[tensors])
        if outside.any():
            raise IndexError(f"{what} outside of the launch's tensors: {int(outside.sum())} of {addresses.size}")


@contextmanager
def memory_checked() -> Iterator[None]:
    """Kernels launched within raise where they leave the memory of their arguments."""
    from triton.runtime import interpreter

    builder, executor = interpreter.InterpreterBuilder, interpreter.GridExecutor
    places = ((builder, "create_masked_load"), (builder, "create_masked_store"), (builder, "create_atomic_rmw"))
    kept = [(where, name, getattr(where, name)) for where, name in (*places, (executor, "_init_args_hst"))]
    load, store, atomic, arguments = (method for _, _, method in kept)
    ranges = _Ranges([])

    def checked_arguments(self: Any, tensors: Any, options: Any) -> Any:
        nonlocal ranges
        there = arguments(self, tensors, options)
        ranges = _Ranges([*there[0], *there[1].values()])
        return there

    def checked_load(self: Any, pointers: Any, mask: Any, *others: Any) -> Any:
        ranges.check("a load", pointers, mask)
        return load(self, pointers, mask, *others)

    def checked_store(self: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        ranges.check("a store", pointers, mask)
        return store(self, pointers, value, mask, *others)

    def checked_atomic(self: Any, operation: Any, pointers: Any, value: Any, mask: Any, *others: Any) -> Any:
        ranges.check("an atomic operation", pointers, mask)
        return atomic(self, operation, pointers, value, mask, *others)

    checked = (checked_load, checked_store, checked_atomic, checked_arguments)
    try:
        for (where, name, _), method in zip(kept, checked, strict=True):
            setattr(where, name, method)
        yield
    finally:
        for where, name, method in kept:
            setattr(where, name, method)
