"""Batch assembly on a GPU: no host synchronisation, capturable in a CUDA graph, equal to the CPU's, and how
fast.

    GRAPHNORM_DATA=folder python -m benchmarks.data_gpu [--out FILE.json]

Needs torch and numpy, and some of the archives MUTAG, NCI1, PROTEINS, IMDB-BINARY. A failed check is an
exception.
"""

from __future__ import annotations

import argparse
import json
import tempfile
from collections.abc import Callable
from dataclasses import fields
from datetime import UTC, datetime
from os import environ
from pathlib import Path
from typing import Any

import torch
from torch import Tensor

from graphnorm.data import Bounds, GraphBatch, PackedGraphs, find, load, locate

DATASETS = ("MUTAG", "NCI1", "PROTEINS", "IMDB-BINARY")
BATCH_SIZE = 128


def planned(graphs: PackedGraphs, steps: int, members: int) -> Tensor:
    """(steps, members, BATCH_SIZE) shuffled ids; the last places of some batches are empty."""
    generator = torch.Generator().manual_seed(0)
    shape = (steps, members, BATCH_SIZE)
    ids = torch.randint(graphs.num_graphs, shape, generator=generator)
    filled = torch.randint(1, BATCH_SIZE + 1, shape[:2], generator=generator)
    filled[0] = BATCH_SIZE
    return ids.masked_fill(torch.arange(BATCH_SIZE) >= filled[..., None], -1)


def assert_equal(batch: GraphBatch, expected: GraphBatch) -> None:
    for field in fields(GraphBatch):
        got, want = getattr(batch, field.name), getattr(expected, field.name)
        if want is None:
            assert got is None, field.name
        else:
            assert got.dtype == want.dtype, field.name
            assert torch.equal(got.cpu(), want), field.name


def check(graphs: PackedGraphs, on_gpu: PackedGraphs, members: int) -> None:
    """Equal to the CPU, without a synchronisation, eagerly and replayed."""
    plan = planned(graphs, 6, members)
    bounds = graphs.bounds(plan)
    assert on_gpu.bounds(plan) == bounds
    ids = plan.cuda()
    on_gpu.batch(ids[0], bounds=bounds)
    torch.cuda.synchronize()
    torch.cuda.set_sync_debug_mode("error")
    try:
        eager = [on_gpu.batch(step, bounds=bounds) for step in ids]
    finally:
        torch.cuda.set_sync_debug_mode("default")
    for step, batch in zip(plan, eager, strict=True):
        assert_equal(batch, graphs.batch(step, bounds=bounds))
    assert_equal(on_gpu.batch(plan[1]), graphs.batch(plan[1]))
    assert_equal(on_gpu.batch(ids[1]), graphs.batch(plan[1]))

    replay, static, captured = capture(on_gpu, ids[0], bounds)
    for step, device_step in zip(plan, ids, strict=True):
        static.copy_(device_step)
        replay()
        assert_equal(captured, graphs.batch(step, bounds=bounds))


def capture(graphs: PackedGraphs, ids: Tensor, bounds: Bounds) -> tuple[Callable[[], None], Tensor, GraphBatch]:
    """A CUDA graph of one assembly, the ids it reads and the batch it writes."""
    static = ids.clone()
    stream = torch.cuda.Stream()  # type: ignore[no-untyped-call]
    stream.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(stream):
        graphs.batch(static, bounds=bounds)
    torch.cuda.current_stream().wait_stream(stream)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        batch = graphs.batch(static, bounds=bounds)
    return graph.replay, static, batch


def microseconds(run: Callable[[], object], repeat: int = 200) -> float:
    for _ in range(10):
        run()
    best = float("inf")
    for _ in range(5):
        start, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))  # type: ignore[no-untyped-call]
        start.record()
        for _ in range(repeat):
            run()
        end.record()
        end.synchronize()
        best = min(best, start.elapsed_time(end) / repeat * 1e3)
    return round(best, 1)


def measure(graphs: PackedGraphs, on_gpu: PackedGraphs, members: int) -> dict[str, float]:
    plan = planned(graphs, 2, members)
    bounds, ids = graphs.bounds(plan), plan[0].cuda()
    replay, _static, _batch = capture(on_gpu, ids, bounds)  # the graph reads and writes these: keep them alive
    eager = microseconds(lambda: on_gpu.batch(ids, bounds=bounds))
    replayed = microseconds(replay)
    return {
        "eager_us": eager,
        "cuda_graph_us": replayed,
        "cuda_graph_us_per_member": round(replayed / members, 2),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--out", type=Path, default=Path(__file__).parent / "results" / "data-gpu.json")
    options = parser.parse_args()
    result: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": torch.cuda.get_device_name(),
        "torch": torch.__version__,
        "batch_size": BATCH_SIZE,
        "checked": "equal to the CPU, no synchronisation, CUDA graph",
        "datasets": {},
    }
    found = [name for name in DATASETS if locate(find(name))]
    assert found, "GRAPHNORM_DATA names no folder with any of the archives"
    with tempfile.TemporaryDirectory() as folder:
        environ["GRAPHNORM_CACHE"] = folder
        for name in found:
            graphs = load(name)
            on_gpu = graphs.to("cuda")
            for members in (1, 3):
                check(graphs, on_gpu, members)
            result["datasets"][name] = {f"{m} members": measure(graphs, on_gpu, m) for m in (1, 10, 60, 300)}
    options.out.parent.mkdir(parents=True, exist_ok=True)
    options.out.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
