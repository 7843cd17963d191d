"""Shared by the tests of operations."""

from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, contextmanager

import pytest
import torch
from torch import Tensor


@pytest.fixture
def saved_tensors() -> Callable[[], AbstractContextManager[list[Tensor]]]:
    """``with saved_tensors() as saved:`` gives the tensors that autograd keeps for backward."""

    @contextmanager
    def collecting() -> Iterator[list[Tensor]]:
        saved: list[Tensor] = []
        with torch.autograd.graph.saved_tensors_hooks(lambda tensor: saved.append(tensor) or tensor, lambda t: t):
            yield saved

    return collecting
