"""Memory for outputs: ordinary tensors, whose memory serves again once nobody holds it, within a bound."""

from __future__ import annotations

import io
import os
import threading
from collections.abc import Iterator

import pytest
import torch

from graphnorm import GraphNorm, Segments, backends
from graphnorm.backends import TYPES, keep_at_most, library, output, output_like

pytestmark = pytest.mark.skipif(library is None, reason="the C library was not built")

ROWS = 4096  # x 64 floats: 1 MiB


@pytest.fixture(autouse=True)
def nothing_kept() -> Iterator[None]:
    assert library is not None
    *_, most = library.memory()
    keep_at_most(0)
    keep_at_most(most)
    yield
    keep_at_most(most)


def used() -> int:
    assert library is not None
    return int(library.memory()[0])


def kept() -> int:
    assert library is not None
    return int(library.memory()[1])


@pytest.mark.parametrize("dtype", TYPES)
@pytest.mark.parametrize("shape", [(7, 3), (ROWS, 64), (3, ROWS, 21), (0, 5)])
def test_is_an_ordinary_tensor(dtype, shape):
    x = output(shape, dtype).fill_(2)
    assert (x.shape, x.dtype, x.is_contiguous(), x.requires_grad) == (torch.Size(shape), dtype, True, False)
    assert x.untyped_storage().nbytes() == x.nbytes
    file = io.BytesIO()
    torch.save(x, file)
    file.seek(0)
    assert torch.equal(torch.load(file), x)


def test_memory_serves_again_and_only_when_nobody_holds_it():
    x = output((ROWS, 64), torch.float32)
    at, view = x.data_ptr(), x[5]
    del x
    assert kept() == 0, "a view holds it"
    assert output((ROWS, 64), torch.float32).data_ptr() != at
    del view
    assert output((ROWS - 30, 64), torch.float32).data_ptr() == at
    assert output((ROWS // 2, 64), torch.float32).data_ptr() != at, "far too large for this one"
    assert output((ROWS * 2, 64), torch.float32).data_ptr() != at, "too small for this one"


def test_no_more_is_kept_than_the_bound():
    keep_at_most(5 << 20)
    outputs = [output((ROWS, 64), torch.float32) for _ in range(8)]
    latest = outputs[-1].data_ptr()
    while outputs:
        del outputs[0]
    assert 4 << 20 <= kept() <= 5 << 20
    assert output((ROWS, 64), torch.float32).data_ptr() == latest, "the oldest go first"
    output((8 * ROWS, 64), torch.float32)
    assert kept() <= 5 << 20
    keep_at_most(0)
    assert kept() == 0


def test_used_and_kept_together_take_no_more_than_used_alone_once_did_or_than_the_bound():
    bound = 60 << 20
    keep_at_most(bound)
    before = most = used()
    for rows in (ROWS, 3 * ROWS, 20 * ROWS, 2 * ROWS, 50 * ROWS, ROWS // 2, 9 * ROWS, 50 * ROWS):
        held = []
        for _ in range(3):
            held.append(output((rows, 64), torch.float32))
            most = max(most, used())
            assert used() + kept() <= max(most, bound)
        del held
        assert used() == before
        assert kept() > 0


def test_steps_of_several_sizes_need_no_fresh_memory_after_the_first_of_each():
    def step(rows):
        return {x.data_ptr() for x in [output((rows, 64), torch.float32) for _ in range(3)]}

    sizes = (3 * ROWS, ROWS, 9 * ROWS)
    first = [step(rows) for rows in sizes]
    assert [step(rows) for rows in sizes] == first


def test_outputs_die_in_any_thread():
    def make_and_drop() -> None:
        for rows in range(ROWS, ROWS + 300):
            held.append(output((rows, 64), torch.float32).fill_(rows))
            held.pop(0)

    held = [output((ROWS, 64), torch.float32) for _ in range(4)]
    threads = [threading.Thread(target=make_and_drop) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert len({x.data_ptr() for x in held}) == len(held)
    assert all(bool((x == x[0, 0]).all()) for x in held)


def test_a_capsule_that_became_no_tensor_gives_its_memory_back():
    assert library is not None
    library.output(0, ROWS, 64)
    assert kept() >= ROWS * 64 * 4


@pytest.mark.skipif(not hasattr(os, "fork"), reason="no fork here")
def test_a_child_process_has_its_own():
    few = (256, 64)  # for torch to fill by one thread: a child has none of its parent's others
    x = output(few, torch.float32).fill_(1)
    assert not x.untyped_storage().resizable()
    child = os.fork()
    if child == 0:
        x.fill_(2)
        del x
        os._exit(int(bool((output(few, torch.float32).fill_(3) != 3).any())))
    assert os.waitpid(child, 0)[1] == 0
    assert bool((x == 1).all())


def test_a_layer_overwrites_all_that_lay_there_before():
    norm, segments, x = GraphNorm(64), Segments(sizes=[30] * 100), torch.randn(3000, 64, requires_grad=True)
    expected = norm(x.double(), segments).float()
    for _ in range(3):
        held = [output_like(x.detach()).fill_(float("nan")) for _ in range(2)]
        places = {tensor.data_ptr() for tensor in held}
        del held
        y = norm(x, segments)
        (dx,) = torch.autograd.grad(y.square().sum(), x)
        assert {y.data_ptr(), dx.data_ptr()} <= places
        torch.testing.assert_close(y, expected, rtol=1e-5, atol=1e-5)
        assert bool(dx.isfinite().all())
        del y, dx


def test_without_the_library_outputs_are_torch_s_own(monkeypatch):
    monkeypatch.setattr(backends, "library", None)
    assert output((ROWS, 64), torch.float32).untyped_storage().resizable()
