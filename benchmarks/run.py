"""Measure GraphNorm against PyTorch Geometric's, forward and backward, and against a plain copy: ``make bench``.

Every figure is a ratio of two times of the same run, taken in turns. A time counts only after the result was checked
against float64. Writes ``benchmarks/results/layers-DEVICE.csv`` with the versions and the date.

PyTorch runs a backward pass on a GPU in a thread of its own. To wake it on another core takes 20 to 200 us, as idle as
that core was: more than a small layer, and not the layer's. So on a GPU all threads of this process share one core for
all that is timed; what it is on cores as the system chooses stands in the columns ``_unpinned``.

"Limit": 2.5 copies of x for forward + backward (5 reads or writes of x's size, a copy being 2).
"""

from __future__ import annotations

import argparse
import contextlib
import os
import statistics
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor
from torch_geometric.nn import GraphNorm as PygGraphNorm

import graphnorm
from benchmarks.facts import announce, write_table
from benchmarks.registry import CASES, Case

LAYERS_DEEP = 8
_SLOW = 0.2
"""Seconds of a call that is not repeated on a GPU."""


class Problem:
    """The tensors of one case, and what is timed on them."""

    def __init__(self, case: Case, device: torch.device, dtype: torch.dtype, mean: float = 0.0) -> None:
        count = case.cpu_count if device.type == "cpu" and case.cpu_count else case.count
        sizes = case.sizes(count)
        generator = torch.Generator(device).manual_seed(1)
        self.segments = graphnorm.Segments(sizes=sizes).to(device)
        self.graphs, rows = len(sizes), int(sizes.sum())
        self.batch = torch.repeat_interleave(torch.arange(self.graphs), sizes).to(device)
        x = torch.randn(rows, case.channels, device=device, generator=generator) + mean
        self.x = x.to(dtype).requires_grad_()
        self.dy = torch.randn(x.shape, device=device, generator=generator).to(dtype)
        self.ours = graphnorm.GraphNorm(case.channels, device=device)
        self.pyg = PygGraphNorm(case.channels).to(device)
        with torch.no_grad():
            self.ours.mean_scale.uniform_(0.3, 1.2)
            self.ours.weight.uniform_(0.5, 1.5)  # type: ignore[union-attr]
            self.ours.bias.uniform_(-1, 1)  # type: ignore[union-attr]
        self.pyg.load_state_dict(self.ours.state_dict())

    def unread_batch(self) -> tuple[Tensor, int]:
        """The batch vector as a new tensor object, of which no layer has remembered anything, and its size."""
        return self.batch.detach(), self.graphs

    def step(self, layer: Any, *graphs: Any) -> tuple[Tensor, ...]:
        """Output and all gradients of one layer."""
        y = layer(self.x, *graphs)
        return (y, *torch.autograd.grad(y, [self.x, *layer.parameters()], self.dy))

    def deep(self, layers: list[Any], *graphs: Any) -> None:
        """Several layers, one on the other, as a model has them: backward starts once for all."""
        h = self.x
        for layer in layers:
            h = layer(h, *graphs)
        torch.autograd.grad(h, [self.x, *(p for layer in layers for p in layer.parameters())], self.dy)


def relative_errors(case: Case, device: torch.device, dtype: torch.dtype, mean: float) -> tuple[float, float]:
    """The largest relative error over output and gradients: ours, PyTorch Geometric's; the truth is float64."""
    problem = Problem(case, device, dtype, mean)
    ours = problem.step(problem.ours, problem.segments)
    theirs = problem.step(problem.pyg, problem.batch, problem.graphs) if dtype == torch.float32 else ours
    names = [name for name, _ in problem.ours.named_parameters()]
    order = [0, 1, *(2 + [name for name, _ in problem.pyg.named_parameters()].index(name) for name in names)]
    problem.x, problem.dy = problem.x.detach().double().requires_grad_(), problem.dy.double()
    problem.pyg = problem.pyg.double()
    truth = problem.step(problem.pyg, problem.batch, problem.graphs)
    truth = tuple(truth[i].detach() for i in order)
    theirs = tuple(theirs[i] for i in order) if theirs is not ours else ours

    def worst(results: tuple[Tensor, ...]) -> float:
        return max(
            float((a.detach().double() - b).norm() / b.norm()) for a, b in zip(results, truth, strict=True)
        )  # fmt: skip

    return worst(ours), worst(theirs)


def kept_for_backward(problem: Problem, layer: Any, *graphs: Any) -> float:
    """Bytes saved by autograd besides x and the parameters, in units of x."""
    known = {problem.x.data_ptr(), *(p.data_ptr() for p in layer.parameters())}
    known |= {problem.batch.data_ptr(), problem.segments.ptr.data_ptr()}
    kept: dict[int, int] = {}

    def pack(tensor: Tensor) -> Tensor:
        if tensor.data_ptr() not in known:
            kept[tensor.untyped_storage().data_ptr()] = tensor.untyped_storage().nbytes()
        return tensor

    with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
        y = layer(problem.x, *graphs)
    own = sum(size for address, size in kept.items() if address != y.untyped_storage().data_ptr())
    return own / problem.x.untyped_storage().nbytes()


def peak_memory(problem: Problem, layer: Any, *graphs: Any) -> float | None:
    """Peak of forward + backward above what was there before, in units of x; on a GPU only."""
    if problem.x.device.type != "cuda":
        return None
    torch.cuda.synchronize()
    before = torch.cuda.memory_allocated()
    torch.cuda.reset_peak_memory_stats()
    problem.step(layer, *graphs)
    return (torch.cuda.max_memory_allocated() - before) / problem.x.untyped_storage().nbytes()


def medians(functions: dict[str, Callable[[], Any]], device: torch.device, seconds: float) -> dict[str, float]:
    """Median microseconds of each, taken in turns, a few calls at a time, so that all see the same machine."""
    few = _a_few_on_device if device.type == "cuda" else _a_few_on_cpu
    times: dict[str, list[float]] = {name: [] for name in functions}
    slow: set[str] = set()  # those of which one call will do
    stop = time.perf_counter() + seconds
    while time.perf_counter() < stop or min(len(times[name]) for name in functions if name not in slow) < 6:
        for name, f in functions.items():
            if name not in slow:
                found = few(f)
                times[name] += found
                if len(found) == 1:
                    slow.add(name)
    return {name: 1e6 * statistics.median(values) for name, values in times.items()}


def _a_few_on_cpu(function: Callable[[], Any]) -> list[float]:
    """Seconds of three calls."""
    function()  # brings this function's memory and code back in, after the others'
    found = []
    for _ in range(3):
        start = time.perf_counter()
        function()
        found.append(time.perf_counter() - start)
    return found


def _a_few_on_device(function: Callable[[], Any]) -> list[float]:
    """Seconds of some calls by CUDA events, the cache cleared before each; of a single call where that is slow."""
    from triton.testing import do_bench

    function()  # whatever a first call compiles does not count
    torch.cuda.synchronize()
    start = time.perf_counter()
    function()
    torch.cuda.synchronize()
    once = time.perf_counter() - start
    if once > _SLOW:
        return [once]
    return [1e-3 * t for t in do_bench(function, warmup=10, rep=40, return_mode="all")]


def _set_cores(cores: set[int]) -> None:
    for thread in Path("/proc/self/task").iterdir():
        with contextlib.suppress(ProcessLookupError):
            os.sched_setaffinity(int(thread.name), cores)


@contextlib.contextmanager
def on_one_core() -> Iterator[None]:
    """All threads of this process on one core; on Linux, elsewhere as the system likes."""
    if not hasattr(os, "sched_setaffinity"):
        yield
        return
    before = os.sched_getaffinity(0)
    _set_cores({max(before)})
    try:
        yield
    finally:
        _set_cores(before)


def graphed(function: Callable[[], Any]) -> Callable[[], None]:
    """The same work as one CUDA graph: the device's own time, without the host's."""
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    with torch.cuda.stream(stream):
        for _ in range(3):
            function()
    stream.synchronize()
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        function()
    return graph.replay


def measure(case: Case, device: torch.device, dtype: torch.dtype, seconds: float) -> dict[str, Any]:
    row: dict[str, Any] = {"case": case.name, "dtype": str(dtype).removeprefix("torch.")}
    tolerance = {torch.float32: (1e-6, 5e-6), torch.bfloat16: (1e-2, 1e-2)}[dtype]
    for label, mean, most in (("0", 0.0, tolerance[0]), ("1e4", 1e4, tolerance[1])):
        if dtype != torch.float32 and mean:
            continue
        ours, theirs = relative_errors(case, device, dtype, mean)
        if not ours <= most:
            what = f"{case.name}, {dtype}, mean {label}"
            raise SystemExit(f"{what}: the relative error is {ours:.1e}, more than {most:g}")
        row |= {f"error_mean_{label}": ours, f"error_bar_{label}": most}
        if dtype == torch.float32:
            row[f"pyg_error_mean_{label}"] = theirs
    problem = Problem(case, device, dtype)
    if dtype != torch.float32:
        problem.pyg = problem.pyg.to(dtype)
    by_segments, by_batch = (problem.segments,), (problem.batch, problem.graphs)
    target = torch.empty_like(problem.x)
    functions: dict[str, Callable[[], Any]] = {
        "copy": lambda: target.detach().copy_(problem.x.detach()),
        "ours": lambda: problem.step(problem.ours, *by_segments),
        "ours_batch": lambda: problem.step(problem.ours, *problem.unread_batch()),
        "pyg": lambda: problem.step(problem.pyg, *by_batch),
    }
    small = problem.x.numel() < 5_000_000
    if small:
        functions["ours_deep"] = lambda: problem.deep([problem.ours] * LAYERS_DEEP, *by_segments)
        functions["ours_batch_deep"] = lambda: problem.deep([problem.ours] * LAYERS_DEEP, *problem.unread_batch())
        functions["pyg_deep"] = lambda: problem.deep([problem.pyg] * LAYERS_DEEP, *by_batch)
    on_gpu = device.type == "cuda"
    if on_gpu:
        functions["ours_graph"] = graphed(functions["ours"])
        if small:
            functions["pyg_graph"] = graphed(functions["pyg"])
    with on_one_core() if on_gpu else contextlib.nullcontext():
        times = medians(functions, device, seconds)
    if on_gpu and dtype == torch.float32:
        unpinned = medians({name: functions[name] for name in ("copy", "ours", "pyg")}, device, seconds / 2)
        times |= {f"{name}_unpinned": value for name, value in unpinned.items()}
    row |= {f"{name}_us": round(value, 1) for name, value in times.items()}
    speedup_bar = case.gpu_speedup if on_gpu else case.cpu_speedup
    row |= {
        "speedup": times["pyg"] / times["ours"],
        "speedup_bar": speedup_bar if dtype == torch.float32 else None,
        "speedup_batch": times["pyg"] / times["ours_batch"],
        "limits": times["ours"] / (2.5 * times["copy"]),
        "limits_bar": case.gpu_limits if on_gpu and dtype == torch.float32 else None,
    }
    if on_gpu:
        row["limits_graph"] = times["ours_graph"] / (2.5 * times["copy"])
    if "ours_unpinned" in times:
        row["speedup_unpinned"] = times["pyg_unpinned"] / times["ours_unpinned"]
        row["limits_unpinned"] = times["ours_unpinned"] / (2.5 * times["copy_unpinned"])
    if small:
        row["speedup_deep"] = times["pyg_deep"] / times["ours_deep"]
        row["speedup_batch_deep"] = times["pyg_deep"] / times["ours_batch_deep"]
        if on_gpu:
            row["speedup_graph"] = times["pyg_graph"] / times["ours_graph"]
    row |= {
        "kept": kept_for_backward(problem, problem.ours, *by_segments),
        "pyg_kept": kept_for_backward(problem, problem.pyg, *by_batch),
        "peak": peak_memory(problem, problem.ours, *by_segments),
        "pyg_peak": peak_memory(problem, problem.pyg, *by_batch),
    }
    return row


def summary(row: dict[str, Any]) -> str:
    bar = f"{row['speedup']:6.1f}x" + (f" of {row['speedup_bar']:g}x" if row["speedup_bar"] else "")
    limit = f"{row['limits']:5.2f} limits" + (f" of {row['limits_bar']:g}" if row["limits_bar"] else "")
    extra = "".join(
        f"  {label} {row[key]:.2f}{unit}"
        for label, key, unit in (
            ("batch", "speedup_batch", "x"),
            (f"{LAYERS_DEEP} deep", "speedup_deep", "x"),
            (f"{LAYERS_DEEP} deep, batch", "speedup_batch_deep", "x"),
            ("graphed", "speedup_graph", "x"),
            ("graphed", "limits_graph", " limits"),
            ("unpinned", "speedup_unpinned", "x"),
            ("unpinned", "limits_unpinned", " limits"),
            ("kept", "kept", ""),
        )
        if row.get(key) is not None
    )
    errors = f"error {row['error_mean_0']:.1e}" + (f" / {row['error_mean_1e4']:.1e}" if "error_mean_1e4" in row else "")
    return f"{row['case']:26s} {row['dtype']:9s} {bar}  {limit}  {errors}{extra}"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--seconds", type=float, default=4.0, help="per case, for the clock alone (default 4)")
    parser.add_argument("--out", type=Path, help="the CSV to write (default: benchmarks/results/layers-DEVICE.csv)")
    options = parser.parse_args()
    device = torch.device(options.device)
    made = announce(device, "torch_geometric")
    rows = []
    for dtype in (torch.float32, torch.bfloat16):
        for case in CASES:
            rows.append(measure(case, device, dtype, options.seconds))
            print(summary(rows[-1]), flush=True)
    write_table("layers", rows, made, options.out)


if __name__ == "__main__":
    main()
