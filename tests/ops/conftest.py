"""Shared by the tests of operations."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch import Tensor


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """``torch.set_num_threads``, undone after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def saved_tensors() -> Callable[[], AbstractContextManager[list[Tensor]]]:
    """``with saved_tensors() as saved:`` gives the tensors that autograd keeps for backward."""

    @contextmanager
    def collecting() -> Iterator[list[Tensor]]:
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda t: t):
            yield saved

    return collecting
