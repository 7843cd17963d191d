"""How GPU kernels are launched, with a driver that only records its calls; and the scratch memory of launches."""

import ctypes
import shutil
import subprocess
import sysconfig
from contextlib import contextmanager
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch.utils._python_dispatch import TorchDispatchMode

from graphnorm import backends
from graphnorm import launch as launching
from graphnorm.launch import GraphScratch, Launch, Launches, Scratch, Tile
from graphnorm.ops.standardize.reference import LIVE, Problem

CPU = torch.device("cpu")

TILE = Tile(32, 64, 2)
STREAM = 43
READ = 32  # arguments that the driver looks at, those that are not there included
POINTERS = ctypes.POINTER(ctypes.c_void_p)


class Attribute(ctypes.Structure):
    _fields_ = (("id", ctypes.c_int), ("padding", ctypes.c_int), ("on", ctypes.c_int), ("room", ctypes.c_char * 60))


class Config(ctypes.Structure):
    """The driver's ``CUlaunchConfig``."""

    _fields_ = (
        ("grid", ctypes.c_uint * 3), ("block", ctypes.c_uint * 3), ("shared", ctypes.c_uint),
        ("stream", ctypes.c_void_p), ("attributes", ctypes.POINTER(Attribute)), ("attribute_count", ctypes.c_uint),
    )  # fmt: skip


EARLY = 6  # the driver's number for it
DRIVER = ctypes.CFUNCTYPE(ctypes.c_int, ctypes.POINTER(Config), ctypes.c_void_p, POINTERS, ctypes.c_void_p)


class Kernel:
    """Stands for a Triton kernel: counts the launches through Triton."""

    def __init__(self, **metadata: int) -> None:
        self.metadata = SimpleNamespace(shared=128, num_ctas=1, **metadata)
        self.function, self.seen = 77, []

    def __getitem__(self, grid: tuple[int, ...]):
        def run(*arguments, **options):
            self.seen.append((grid, arguments))
            self.options = options
            return self

        return run


@pytest.fixture
def driver(monkeypatch):
    """The calls of the driver: (function, grid and block, shared, stream, arguments)."""
    if backends.library is None:
        pytest.skip("the C library was not built")
    seen: list[tuple] = []
    reply = SimpleNamespace(code=0, seen=seen, attributes=[])

    @DRIVER
    def launch(config, function, arguments, extra):
        how = config.contents
        values = [ctypes.c_int64.from_address(arguments[i]).value for i in range(READ)]
        seen.append((function, tuple(how.grid), tuple(how.block), how.shared, how.stream, values))
        reply.attributes.append([(a.id, a.on) for a in how.attributes[: how.attribute_count]])
        return reply.code

    monkeypatch.setattr(launching, "_driver", lambda: ctypes.cast(launch, ctypes.c_void_p).value)
    monkeypatch.setattr(launching, "_INTERPRETED", False)
    monkeypatch.setattr(launching, "_compiled", {})
    return reply


def one(kernel: Kernel, integers: tuple[int, ...] = (5, 6), **options) -> Launch:
    return Launch(kernel, 9, TILE, integers, (3, torch.float32), 64, 1e-5, **options)


def make(kernel: Kernel, integers: tuple[int, ...] = (5, 6)) -> Launches:
    return Launches(one(kernel, integers))


def test_a_variant_seen_before_goes_straight_to_the_driver(driver):
    kernel, x, y = Kernel(), torch.randn(4), torch.randn(4)
    launch = make(kernel)
    launch(("a",), STREAM, x, None, y)
    assert kernel.seen == [((9,), (x, None, y, 5, 6, 64, 1e-5, 32, 64))]
    assert not driver.seen
    launch(("a",), STREAM, x, None, y)
    values = [x.data_ptr(), y.data_ptr(), 5, 6, *[0] * (READ - 4)]
    assert driver.seen == [(77, (9, 1, 1), (64, 1, 1), 128, STREAM, values)]
    assert len(kernel.seen) == 1


def test_another_launch_of_the_same_variant_is_not_compiled_again(driver):
    kernel, x = Kernel(), torch.randn(4)
    make(kernel)((), STREAM, x)
    make(kernel, (7, 8))((), STREAM, x)
    assert driver.seen[0][-1][:3] == [x.data_ptr(), 7, 8]
    assert [grid for grid, _ in kernel.seen] == [(9,)]


def test_another_kind_is_another_variant(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    for kind in ("a", "b"):
        launch((kind,), STREAM, x)
    assert [grid for grid, _ in kernel.seen] == [(9,), (9,)]
    assert not driver.seen


def test_what_is_not_aligned_is_left_to_triton(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    for _ in range(3):
        launch((), STREAM, x)
    launch((), STREAM, x[1:])
    assert len(driver.seen) == 2
    assert [grid for grid, _ in kernel.seen] == [(9,), (9,)]


def test_what_the_driver_refuses_is_left_to_triton(driver):
    kernel, x = Kernel(), torch.randn(4)
    launch = make(kernel)
    launch((), STREAM, x)
    driver.code = 201
    launch((), STREAM, x)
    assert len(driver.seen) == 1
    assert len(kernel.seen) == 2


@pytest.mark.parametrize("metadata", [{"global_scratch_size": 64}, {"launch_pdl": True}])
def test_kernels_that_want_more_than_arguments_stay_with_triton(driver, metadata):
    kernel, x = Kernel(**metadata), torch.randn(4)
    launch = make(kernel)
    for _ in range(3):
        launch((), STREAM, x)
    assert not driver.seen
    assert len(kernel.seen) == 3


@pytest.mark.parametrize("narrow_before", [False, True])
def test_integers_beyond_32_bits_stay_with_triton(driver, narrow_before):
    kernel, x = Kernel(), torch.randn(4)
    if narrow_before:
        make(kernel)((), STREAM, x)
        kernel.seen.clear()
    launch = make(kernel, (2**31, 6))
    for _ in range(3):
        launch((), STREAM, x)
    assert not driver.seen
    assert [grid for grid, _ in kernel.seen] == [(9,)] * 3  # which variant is for Triton to say


def test_sizes_beyond_32_bits_stay_with_triton(driver):
    kernel = Kernel()
    for size in (5, 5, 2**31, 2**31, 5):
        launching.launch(kernel, CPU, ("key",), 9, TILE, (torch.randn(4), size))
    assert [grid for grid, _ in kernel.seen] == [(9,), (9, 1, 1), (9,), (9,), (9, 1, 1)]


def test_kernels_of_the_same_tensors_run_one_after_another(driver):
    first, second, x, y, z = Kernel(), Kernel(), *torch.randn(3, 4)
    launches = Launches(one(first), None, one(second, (7,), without=(0, 2)))
    launches((), STREAM, x, None, y, z)
    assert [arguments[:4] for _, arguments in first.seen + second.seen] == [(x, None, y, z), (None, z, 7, 64)]
    launches((), STREAM, x, None, y, z)
    expected = [[x.data_ptr(), y.data_ptr(), z.data_ptr(), 5, 6], [z.data_ptr(), 7]]
    assert [values for *_, values in driver.seen] == [right + [0] * (READ - len(right)) for right in expected]


def test_a_kernel_may_begin_early(driver):
    first, second, x = Kernel(), Kernel(launch_pdl=True), torch.randn(4)
    launches = Launches(one(first), one(second, early=True))
    launches((), STREAM, x)
    assert second.options["launch_pdl"]
    assert "launch_pdl" not in first.options
    launches((), STREAM, x)
    assert driver.attributes == [[], [(EARLY, 1)]]


def test_addresses_stand_for_tensors(driver):
    launches, x = make(Kernel()), torch.randn(4)
    launches((), STREAM, x, x)
    variants = launches.variants[()]
    assert backends.library.launch(variants, STREAM, 1600, x) == 0
    assert driver.seen[0][-1][:4] == [1600, x.data_ptr(), 5, 6]
    assert backends.library.launch(variants, STREAM, 1608, x) == -1
    assert len(driver.seen) == 1


def test_what_is_not_contiguous_or_no_tensor_is_not_launched(driver):
    launches, x = make(Kernel()), torch.randn(4)
    launches((), STREAM, x)
    variants = launches.variants[()]
    assert backends.library.launch(variants, STREAM, torch.randn(8)[::2]) == -1
    with pytest.raises(AttributeError, match="is_contiguous"):
        backends.library.launch(variants, STREAM, "x")
    with pytest.raises(TypeError, match="not variants"):
        backends.library.launch(variants[1:], STREAM, x)
    assert not driver.seen


@pytest.fixture
def stream(driver, monkeypatch):
    """A device of one stream, with nothing in its memory."""
    for name, value in (("getDevice", 0), ("getCurrentRawStream", STREAM), ("isCurrentStreamCapturing", False)):
        monkeypatch.setattr(torch._C, f"_cuda_{name}", lambda *_, value=value: value, raising=False)
    monkeypatch.setattr(launching, "_stream_scratch", {})
    monkeypatch.setattr(launching, "_graph_scratch", {})


@pytest.mark.usefixtures("stream")
@pytest.mark.parametrize("present", ["weight bias mean_scale residual", "weight bias", "mean_scale", ""])
@pytest.mark.parametrize(("sizes", "launches"), [([3, 5], 1), ([90, 70, 4], 1), ([900, 3, 600, 2], 2)], ids=str)
def test_plans_launch_again_what_they_launched_before(driver, monkeypatch, sizes, launches, present):
    gpu = pytest.importorskip("graphnorm.ops.standardize.gpu")
    monkeypatch.setattr(gpu, "Launch", lambda kernel, *rest, **options: Launch(Kernel(), *rest, **options))
    monkeypatch.setattr(gpu, "_work", gpu.Work)
    x, dy, residual = (torch.randn(sum(sizes), 5) for _ in range(3))
    weight, bias, mean_scale = (torch.ones(5) if n in present else None for n in ("weight", "bias", "mean_scale"))
    residual = residual if "residual" in present else None
    ptr = torch.tensor([0, *sizes]).cumsum(0)
    plan = gpu.CallPlan(x, Problem(None, None, None, ptr, None, None, None, 1e-5, False, LIVE, max(sizes)))
    plan.work.index = 0

    def run():
        y, kept = plan.forward(x, residual, (weight, bias, mean_scale))
        dx, gradients = plan.backward(dy, x, (weight, bias, mean_scale), *kept)
        return y, *plan.statistics(*kept), dx, *gradients

    first = run()
    assert not driver.seen
    y, mean, var, dx, *gradients = again = run()
    described = [[None if t is None else (t.shape, t.dtype) for t in found] for found in (first, again)]
    assert described[0] == described[1]
    memory = launching.scratch(x.device, 0, STREAM)
    counters, long = memory.counters(1), launches == 2
    shared = (ptr, weight, bias, mean_scale, mean, var)
    slots = (memory.room(1, torch.float64), counters) if long else ()
    shares = "anywhere" if long else memory.room(1, torch.float32)
    forward, backward = (x, y, residual, *shared), (x, dy, dx, *shared, shares)
    expected = [(*forward, *slots), forward][:launches]
    expected += [(*backward, counters, *gradients), (*backward, *gradients)][:launches]
    all_launches = [*plan.work.forward.launches, *plan.work.backward.launches]
    for (*_, values), tensors, launch in zip(driver.seen, expected, all_launches, strict=True):
        right = [t if isinstance(t, str) else t.data_ptr() for t in tensors if t is not None]
        right += [*launch.integers, *[0] * (READ - len(right) - len(launch.integers))]
        assert values == [v if r == "anywhere" else r for v, r in zip(values, right, strict=True)]
        assert len(launch.kernel.seen) == 1  # through Triton the first time only


SAME = """
#include <stddef.h>
#include "cuda.h"
#include "launch.h"
#define SAME_PLACE(ours, a, theirs, b) \\
  _Static_assert(offsetof(ours, a) == offsetof(theirs, b) && sizeof(((ours *)0)->a) == sizeof(((theirs *)0)->b), #b)
#define SAME_SHAPE(ours, theirs) \\
  _Static_assert(sizeof(ours) == sizeof(theirs) && _Alignof(ours) == _Alignof(theirs), #theirs)
SAME_SHAPE(launch_attribute, CUlaunchAttribute);
SAME_PLACE(launch_attribute, id, CUlaunchAttribute, id);
SAME_PLACE(launch_attribute, value, CUlaunchAttribute, value);
SAME_PLACE(launch_attribute, value.on, CUlaunchAttribute, value.programmaticStreamSerializationAllowed);
SAME_SHAPE(launch_config, CUlaunchConfig);
SAME_PLACE(launch_config, grid[2], CUlaunchConfig, gridDimZ);
SAME_PLACE(launch_config, block[2], CUlaunchConfig, blockDimZ);
SAME_PLACE(launch_config, shared, CUlaunchConfig, sharedMemBytes);
SAME_PLACE(launch_config, stream, CUlaunchConfig, hStream);
SAME_PLACE(launch_config, attributes, CUlaunchConfig, attrs);
SAME_PLACE(launch_config, attribute_count, CUlaunchConfig, numAttrs);
_Static_assert(MAY_BEGIN_EARLY == CU_LAUNCH_ATTRIBUTE_PROGRAMMATIC_STREAM_SERIALIZATION, "attribute");
"""


def test_structures_are_those_of_the_driver():
    """A compiler compares ``launch.h`` with NVIDIA's own ``cuda.h``, which comes with Triton."""
    compiler, triton = shutil.which("cc"), pytest.importorskip("triton")
    nvidia = Path(triton.__file__).parent / "backends/nvidia/include"
    ours = Path(launching.__file__).parents[1] / "csrc"
    python = Path(sysconfig.get_path("include"))
    needed = (nvidia / "cuda.h", ours / "launch.h", python / "Python.h")
    if compiler is None or not all(file.exists() for file in needed):
        pytest.skip("needs a C compiler, the sources, and the headers of Python and of CUDA")
    folders = [f"-I{file.parent}" for file in needed]
    command = [compiler, "-std=gnu11", "-fsyntax-only", "-w", "-x", "c", *folders, "-"]
    done = subprocess.run(command, input=SAME, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


# ---- scratch memory ------------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 64, launching._COUNTERS + 1, 5 * launching._COUNTERS])
def test_counters_of_a_stream_are_enough_and_zero(count):
    scratch = Scratch(CPU)
    for wanted in (3, count, 3):
        counters = scratch.counters(wanted)
        assert counters.dtype is torch.int32
        assert counters.shape[0] >= wanted
        assert (counters == 0).all()


class Pool(TorchDispatchMode):
    """As a memory pool, it holds for one thread."""

    def __init__(self):
        super().__init__()
        self.seen = 0

    def __torch_dispatch__(self, function, types, arguments=(), options=None):
        self.seen += 1
        return function(*arguments, **(options or {}))


def test_memory_that_is_kept_comes_from_no_pool_and_can_be_written_outside_of_inference_mode():
    with torch.inference_mode(), Pool() as pool:
        scratch = Scratch(CPU)
        kept = scratch.counters(3), scratch.counters(launching._COUNTERS + 1), scratch.room(3, torch.float64)
    assert pool.seen == 0
    for tensor in kept:
        tensor[0] = 1  # of a tensor made in inference mode this would be an error
        assert tensor[0] == 1


def test_room_is_used_again_unless_it_is_large(monkeypatch):
    monkeypatch.setattr(launching, "_LARGEST_ROOM", 100)
    scratch = Scratch(CPU)
    small, large = (scratch.room(size, torch.float32) for size in (100, 101))
    assert small.shape[0] >= 100
    assert large.shape[0] >= 101
    assert scratch.room(3, torch.float32) is small
    assert scratch.room(3, torch.float64).dtype is torch.float64
    assert scratch.room(101, torch.float32) is not large


def test_no_two_recorded_launches_share_counters():
    scratch = GraphScratch(CPU, torch.zeros(100, dtype=torch.int32))
    seen = []
    for k in range(30):  # more than the stock has
        counters = scratch.counters(9)
        assert counters.shape == (9,)
        assert (counters == 0).all()
        assert counters.data_ptr() % 16 == 0
        counters.fill_(k + 1)
        seen.append(counters)
    assert all((counters == k + 1).all() for k, counters in enumerate(seen))
    assert scratch.room(4, torch.float64).data_ptr() != scratch.room(4, torch.float64).data_ptr()


def test_streams_and_graphs_have_memory_of_their_own(monkeypatch):
    monkeypatch.setattr(launching, "_stream_scratch", {})
    monkeypatch.setattr(launching, "_graph_scratch", {})
    monkeypatch.setattr(torch._C, "_cuda_isCurrentStreamCapturing", lambda: capturing, raising=False)
    capturing = True
    assert isinstance(launching.scratch(CPU, 0, 40), GraphScratch)  # nothing was called before
    capturing = False
    first = launching.scratch(CPU, 0, 40)
    assert launching.scratch(CPU, 0, 40) is first
    assert launching.scratch(CPU, 0, 41) is not first
    capturing = True
    of_graphs = launching.scratch(CPU, 0, 40)
    assert of_graphs.counters(5).data_ptr() != of_graphs.counters(5).data_ptr()
    assert launching.scratch(CPU, 0, 40) is of_graphs


@pytest.mark.parametrize("index", [0, 1])
def test_kernels_are_launched_on_the_device_of_their_tensors(driver, monkeypatch, index):
    """Triton launches on the current device, and a compiled kernel belongs to one device."""
    current = [0]

    @contextmanager
    def switch(device):
        before, current[0] = current[0], device.index
        yield
        current[0] = before

    monkeypatch.setattr(torch._C, "_cuda_getDevice", lambda: current[0], raising=False)
    monkeypatch.setattr(torch.cuda, "device", switch)
    seen = []

    class Here(Kernel):
        def __getitem__(self, grid):
            seen.append(current[0])
            return super().__getitem__(grid)

    kernel = Here()
    for device in (index, index, 1 - index):
        launching.launch(kernel, torch.device("cuda", device), ("key",), 9, TILE, (torch.randn(4),))
    assert seen == [index, index, 1 - index]
    assert [grid for grid, _ in kernel.seen] == [(9,), (9, 1, 1), (9,)]
    assert current == [0]
