"""How GPU kernels are launched, with a driver that only writes down what it is told."""

import ctypes
from types import SimpleNamespace

import pytest
import torch

from graphnorm import kernels
from graphnorm.ops.standardize import gpu_launch
from graphnorm.ops.standardize.gpu_launch import Launch, Tile

pytestmark = pytest.mark.skipif(kernels.library is None, reason="the C library was not built")

TILE = Tile(32, 64, 2)
POINTERS = ctypes.POINTER(ctypes.c_void_p)
DRIVER = ctypes.CFUNCTYPE(
    ctypes.c_int, ctypes.c_void_p, *[ctypes.c_uint] * 7, ctypes.c_void_p, POINTERS, ctypes.c_void_p
)  # fmt: skip


class Kernel:
    """Stands for a Triton kernel: counts the launches that go by way of Triton."""

    def __init__(self, **metadata: int) -> None:
        self.metadata = SimpleNamespace(shared=128, num_ctas=1, **metadata)
        self.function, self.seen = 77, []

    def __getitem__(self, grid: tuple[int, ...]):
        def run(*arguments, **options):
            self.seen.append((grid, arguments))
            return self

        return run


@pytest.fixture
def driver(monkeypatch):
    """What reached the driver: (function, grid and block, shared, stream, arguments)."""
    seen: list[tuple] = []
    reply = SimpleNamespace(code=0, seen=seen)

    @DRIVER
    def launch(function, gx, gy, gz, bx, by, bz, shared, stream, arguments, extra):
        values = [ctypes.c_int64.from_address(arguments[i]).value for i in range(8)]
        seen.append((function, (gx, gy, gz), (bx, by, bz), shared, stream, values))
        return reply.code

    monkeypatch.setattr(gpu_launch, "_driver", lambda: ctypes.cast(launch, ctypes.c_void_p).value)
    monkeypatch.setattr(gpu_launch, "_INTERPRETED", False)
    monkeypatch.setattr(gpu_launch, "_compiled", {})
    monkeypatch.setattr(torch._C, "_cuda_getCurrentRawStream", lambda device: 40 + device, raising=False)
    return reply


def make(kernel: Kernel, integers: tuple[int, ...] = (5, 6)) -> Launch:
    return Launch(kernel, 9, TILE, integers, (3, torch.float32), 64, 1e-5)


def test_a_variant_seen_before_goes_straight_to_the_driver(driver):
    kernel, x, y = Kernel(), torch.randn(4), torch.randn(4)
    launch = make(kernel)
    launch(("a",), x, None, y)
    assert kernel.seen == [((9,), (x, None, y, 5, 6, 64, 1e-5, 32, 64))]
    assert not driver.seen
    launch(("a",), x, None, y)
    values = [x.data_ptr(), y.data_ptr(), 5, 6, 0, 0, 0, 0]
    assert driver.seen == [(77, (9, 1, 1), (64, 1, 1), 128, 43, values)]
    assert len(kernel.seen) == 1


def test_another_launch_of_the_same_variant_is_not_compiled_again(driver):
    kernel, x = Kernel(), torch.randn(4)
    make(kernel)((), x)
    other = make(kernel, (7, 8))
    other((), x)
    assert [grid for grid, _ in kernel.seen] == [(9,), (9, 1, 1)]
    other((), x)
    assert driver.seen[0][-1][:3] == [x.data_ptr(), 7, 8]


def test_another_kind_is_another_variant(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    for kind in ("a", "b"):
        launch((kind,), x)
    assert [grid for grid, _ in kernel.seen] == [(9,), (9,)]
    assert not driver.seen


def test_what_is_not_aligned_is_left_to_triton(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    for _ in range(3):
        launch((), x)
    launch((), x[1:])
    assert len(driver.seen) == 2
    assert [grid for grid, _ in kernel.seen] == [(9,), (9,)]


def test_what_the_driver_refuses_is_left_to_triton(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    launch((), x)
    driver.code = 201
    launch((), x)
    assert len(driver.seen) == 1
    assert len(kernel.seen) == 2


@pytest.mark.parametrize("metadata", [{"global_scratch_size": 64}, {"launch_pdl": True}])
def test_kernels_that_want_more_than_arguments_stay_with_triton(driver, metadata):
    kernel, x = Kernel(**metadata), torch.randn(4)
    launch = make(kernel)
    for _ in range(3):
        launch((), x)
    assert not driver.seen
    assert len(kernel.seen) == 3


@pytest.mark.parametrize("narrow_before", [False, True])
def test_integers_beyond_32_bits_stay_with_triton(driver, narrow_before):
    kernel, x = Kernel(), torch.randn(4)
    if narrow_before:
        make(kernel)((), x)
        kernel.seen.clear()
    launch = make(kernel, (2**31, 6))
    for _ in range(3):
        launch((), x)
    assert not driver.seen
    assert [grid for grid, _ in kernel.seen] == [(9,)] * 3  # which variant is for Triton to say
