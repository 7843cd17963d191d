"""The check that tests of Triton's kernels rely on: it notices every way to leave the memory of a launch."""

import os

import pytest
import torch

from memory_check import memory_checked

pytestmark = [
    pytest.mark.interpreted,
    pytest.mark.skipif(os.environ.get("TRITON_INTERPRET") != "1", reason="a check of the interpreter's"),
]


@pytest.fixture
def copy():
    """Copies n elements, each from an offset, and counts them."""
    triton = pytest.importorskip("triton")
    tl = triton.language

    def copy(x, y, counter, load_from, store_from, count_at, n, BLOCK: tl.constexpr):
        at = tl.arange(0, BLOCK)
        values = tl.load(x + load_from + at, mask=at < n, other=0.0)
        tl.store(y + store_from + at, values, mask=at < n)
        tl.atomic_add(counter + count_at, n)

    return triton.jit(copy)[(1,)]


@pytest.fixture
def tensors():
    """x, y and a counter with other memory of the process around them: nothing but the check minds."""
    room = torch.arange(30.0)
    return room[4:10], room[14:20], torch.zeros(3, dtype=torch.int32)[1:2]


def test_triton_kernels_may_use_their_tensors(copy, tensors):
    x, y, counter = tensors
    with memory_checked():
        copy(x, y, counter, 0, 0, 0, 6, 8)
    assert torch.equal(x, y)
    assert counter.item() == 6


@pytest.mark.parametrize(
    ("offsets", "what"),
    [((1, 0, 0), "a load"), ((-1, 0, 0), "a load"), ((0, 1, 0), "a store"), ((0, 0, 1), "an atomic operation")],
)
def test_triton_kernels_may_not_leave_them(copy, tensors, offsets, what):
    with memory_checked(), pytest.raises(Exception, match=f"{what} outside of the launch's tensors: 1 of"):
        copy(*tensors, *offsets, 6, 8)
    copy(*tensors, *offsets, 6, 8)  # nobody minds any longer
