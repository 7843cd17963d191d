"""Shared by all tests: reproducible inputs, fresh memory full of NaN, kernels, the command line and fake fleets."""

import os
import sys
import warnings
from collections.abc import Callable, Iterator
from contextlib import AbstractContextManager, ExitStack, contextmanager
from pathlib import Path

import pytest
import torch

import graphnorm
from graphnorm import backends, launch
from graphnorm.layers import REGISTRY

sys.path.insert(0, str(Path(__file__).parent))  # `import oracle`, `import fakes`

try:
    from hypothesis import HealthCheck, settings
except ImportError:  # the GPU tests do without
    pass
else:
    settings.register_profile("graphnorm", deadline=None, derandomize=True, max_examples=40, database=None)
    slow = [HealthCheck.too_slow, HealthCheck.data_too_large]
    settings.register_profile("fuzz", deadline=None, max_examples=1000, database=None, suppress_health_check=slow)
    settings.load_profile("graphnorm")

INTERPRETED = os.environ.get("TRITON_INTERPRET") == "1"
ON_GPU = [*(["triton"] if INTERPRETED else []), pytest.param("cuda", marks=pytest.mark.gpu)]
KERNELS = [
    "reference",
    pytest.param("cpu", marks=pytest.mark.skipif(backends.library is None, reason="the C library was not built")),
    *ON_GPU,
]


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    if torch.cuda.is_available():
        return
    skip = pytest.mark.skip(reason="needs a CUDA device, and there is none")
    for item in items:
        if item.get_closest_marker("gpu"):  # keywords also hold the names of folders
            item.add_marker(skip)


@pytest.fixture(autouse=True)
def _seed() -> None:
    torch.manual_seed(0)


@pytest.fixture(autouse=True)
def _no_terminal(monkeypatch: pytest.MonkeyPatch) -> None:
    """Workers of pytest-xdist have a width, as if they wrote to a terminal."""
    monkeypatch.delenv("COLUMNS", raising=False)


@pytest.fixture(autouse=True)
def _registry() -> Iterator[None]:
    """Normalizations that a test registers are forgotten after it."""
    before = dict(REGISTRY)
    yield
    REGISTRY.clear()
    REGISTRY.update(before)


@pytest.fixture
def set_threads() -> Iterator[Callable[[int], None]]:
    """``torch.set_num_threads``, undone after the test."""
    before = torch.get_num_threads()
    yield torch.set_num_threads
    torch.set_num_threads(before)


@pytest.fixture
def no_synchronisation() -> Callable[[], AbstractContextManager[None]]:
    """Any wait for the GPU is an error while ``with no_synchronisation():`` lasts."""

    @contextmanager
    def forbidden() -> Iterator[None]:
        torch.cuda.synchronize()
        with warnings.catch_warnings():
            warnings.filterwarnings("ignore", "Synchronization debug mode is a prototype")
            torch.cuda.set_sync_debug_mode("error")
        try:
            yield
        finally:
            torch.cuda.set_sync_debug_mode("default")

    return forbidden


def _device_of(kernels: str) -> Iterator[torch.device]:
    with ExitStack() as stack:
        if kernels == "triton":
            from memory_check import memory_checked  # needs numpy

            stack.enter_context(memory_checked())
        stack.enter_context(graphnorm.backend("triton" if kernels == "cuda" else kernels))
        yield torch.device("cuda" if kernels == "cuda" else "cpu")


@pytest.fixture(params=KERNELS)
def device(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """Runs a test once per set of kernels; the value is the device to put tensors on."""
    yield from _device_of(request.param)


@pytest.fixture(params=ON_GPU)
def device_of_triton(request: pytest.FixtureRequest) -> Iterator[torch.device]:
    """As ``device``, for the kernels of Triton alone."""
    yield from _device_of(request.param)


@pytest.fixture
def fresh_memory_is_nan(monkeypatch: pytest.MonkeyPatch) -> None:
    """An element that a kernel forgets to write makes its test fail, whatever lay there before."""

    def filled(allocate):  # type: ignore[no-untyped-def]
        def allocate_and_fill(*args, **kwargs):  # type: ignore[no-untyped-def]
            tensor = allocate(*args, **kwargs)
            nonsense = float("nan") if tensor.is_floating_point() else 2**30 if tensor.itemsize >= 4 else 77
            return tensor.fill_(nonsense)

        return allocate_and_fill

    monkeypatch.setattr(torch, "empty", filled(torch.empty))
    monkeypatch.setattr(torch, "empty_like", filled(torch.empty_like))
    monkeypatch.setattr(torch.Tensor, "new_empty", filled(torch.Tensor.new_empty))
    monkeypatch.setattr(backends, "from_dlpack", filled(backends.from_dlpack))
    monkeypatch.setattr(launch, "_LARGEST_ROOM", -1)  # no memory that is used again


@pytest.fixture(scope="session", autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory) -> Iterator[None]:
    with pytest.MonkeyPatch.context() as patch:
        patch.setenv("GRAPHNORM_CACHE", str(tmp_path_factory.getbasetemp() / "cache"))
        yield


Run = Callable[..., tuple[int, str, str]]


@pytest.fixture
def run(capsys: pytest.CaptureFixture[str]) -> Run:
    """Run the command line; gives the exit code, standard output and standard error."""
    from graphnorm import cli

    def call(*arguments: object) -> tuple[int, str, str]:
        capsys.readouterr()
        code = cli.main([str(argument) for argument in arguments])
        captured = capsys.readouterr()
        return code, captured.out, captured.err

    return call


@pytest.fixture
def fleets(monkeypatch: pytest.MonkeyPatch) -> type:
    """A :class:`fakes.FakeFleet` of the test's own, in place of fleets in this process (``workers=1``)."""
    from fakes import FakeFleet

    fresh = type("Fresh", (FakeFleet,), {"made": []})
    monkeypatch.setattr("graphnorm.study.fleets.Fleet", fresh)
    monkeypatch.setattr("graphnorm.study.forecast.Fleet", fresh)
    monkeypatch.setattr("graphnorm.study.runner.STEP_SECONDS", 1e-9)  # one epoch for each question
    return fresh


SLOW_EPOCHS = """
import importlib.abc, sys, time

class Slow(importlib.abc.MetaPathFinder):
    def find_spec(self, name, path, target=None):
        if name != "graphnorm.study.worker":
            return None
        sys.meta_path.remove(self)
        from graphnorm.training import Fleet
        advance = Fleet.advance

        def slow(self, epochs=None, on_epoch=None):
            time.sleep(0.1)
            return advance(self, 1, on_epoch)

        Fleet.advance = slow
        return None

sys.meta_path.insert(0, Slow())
"""


@pytest.fixture(scope="session")
def slow_epochs(tmp_path_factory: pytest.TempPathFactory) -> dict[str, str]:
    """The environment of a program whose epochs take a tenth of a second, so that there is time to interrupt."""
    site = tmp_path_factory.mktemp("site")
    (site / "sitecustomize.py").write_text(SLOW_EPOCHS)
    paths = (str(site), str(Path(graphnorm.__file__).parents[1]))
    return os.environ | {"PYTHONPATH": os.pathsep.join(paths), "OMP_NUM_THREADS": "1"}


@pytest.fixture(scope="module")
def hostile_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with modules of the names that workers import; each says in the file ``imported`` that it was."""
    folder = tmp_path_factory.mktemp("hostile")
    for name in ("torch", "numpy", "pickle", "socket", "graphnorm", "scipy", "sklearn", "sitecustomize"):
        (folder / f"{name}.py").write_text(
            f"open({str(folder / 'imported')!r}, 'a').write('{name} ')\nimport nothing\n"
        )
    return folder
