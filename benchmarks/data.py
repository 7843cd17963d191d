"""Data against PyTorch Geometric on the CPU: COLLAB from its archive, and batches of 128 graphs.

    GRAPHNORM_DATA=folder python -m benchmarks.data

Every load runs in a process of its own, so that its peak memory is its own. The comparison with ``TUDataset``
also checks, graph by graph, that both hold the same COLLAB. Of the times of a batch the best of many rounds
counts, for both sides. Results go to ``benchmarks/results/data-cpu.json``.
"""

from __future__ import annotations

import argparse
import json
import os
import platform
import resource
import subprocess
import sys
import tempfile
import time
import warnings
import zipfile
from collections.abc import Callable
from datetime import UTC, datetime
from importlib.metadata import version
from pathlib import Path
from typing import Any

import torch

from graphnorm.data import load

RESULTS = Path(__file__).parent / "results" / "data-cpu.json"
BATCH_SIZE = 128


def tu_dataset(name: str, root: Path) -> Any:
    """PyTorch Geometric's dataset, from our copy of the archive."""
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.datasets import TUDataset
    unpack(name, root)
    return TUDataset(root, name)


def unpack(name: str, root: Path) -> None:
    """Put the text files where ``TUDataset`` looks for them."""
    raw = root / name / "raw"
    if not raw.exists():
        raw.mkdir(parents=True)
        with zipfile.ZipFile(Path(os.environ["GRAPHNORM_DATA"]) / f"{name}.zip") as archive:
            for member in archive.namelist():
                (raw / Path(member).name).write_bytes(archive.read(member))


def load_packed(folder: Path) -> None:
    load("COLLAB")


def load_with_pyg(folder: Path) -> None:
    tu_dataset("COLLAB", folder)


def compare_with_pyg(folder: Path) -> None:
    graphs, dataset = load("COLLAB"), tu_dataset("COLLAB", folder)
    assert len(dataset) == graphs.num_graphs
    for g, data in enumerate(dataset):
        batch = graphs.batch([g])
        assert batch.num_rows == data.num_nodes
        assert batch.labels.equal(data.y)
        assert batch.edge_index.flip(0).equal(data.edge_index)


TASKS: dict[str, Callable[[Path], None]] = {f.__name__: f for f in (load_packed, load_with_pyg, compare_with_pyg)}


def measure(task: str, folder: Path) -> dict[str, float]:
    """Seconds and peak gigabytes of one task in a fresh process; imports count in memory, not in time."""
    command = [sys.executable, "-m", "benchmarks.data", "--task", task, "--folder", str(folder)]
    environment = os.environ | {"GRAPHNORM_CACHE": str(folder / "cache"), "OMP_NUM_THREADS": "1"}
    output = subprocess.run(command, env=environment, check=True, capture_output=True, text=True).stdout
    return dict(json.loads(output.splitlines()[-1]))


def run_task(task: str, folder: Path) -> None:
    if task != "load_packed":
        unpack("COLLAB", folder)  # not timed: PyG unpacks when it downloads
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DeprecationWarning)
            import torch_geometric.datasets  # noqa: F401
    start = time.perf_counter()
    TASKS[task](folder)
    seconds = time.perf_counter() - start
    peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 2**20
    print(json.dumps({"seconds": round(seconds, 3), "peak_gb": round(peak, 2)}))


def collab() -> dict[str, Any]:
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        archive, cached = measure("load_packed", folder), measure("load_packed", folder)
        pyg = measure("load_with_pyg", folder)
        measure("compare_with_pyg", folder)
    return {
        "graphnorm_archive": archive,
        "graphnorm_cache": cached,
        "pyg_first_load": pyg,
        "faster_than_pyg": round(pyg["seconds"] / archive["seconds"], 1),
        "equal_graph_by_graph": True,
    }


def best(run: Callable[[], int], rounds: int) -> float:
    """Microseconds of CPU time for a batch, in the fastest of several rounds; ``run`` gives the number of its batches.

    The clock would be unfair on a busy machine: PyG's rounds are longer, so other programs interrupt them more.
    """
    times = []
    for _ in range(rounds):
        start = time.process_time()
        batches = run()
        times.append((time.process_time() - start) / batches * 1e6)
    return min(times)


def batches(name: str) -> dict[str, float]:
    """Microseconds for a shuffled batch of 128 graphs, ours and PyG's.

    PyG's batches hold float features, so they are compared with ours after the one-hot. Ours without it, for models
    that embed tags, are given too. MUTAG fills one batch an epoch, so each of PyG's there pays for a new iterator.
    """
    graphs = load(name)
    plan = torch.stack([torch.randperm(graphs.num_graphs)[:BATCH_SIZE] for _ in range(32)]).unbind()

    def ours(features: bool) -> int:
        for ids in plan:
            batch = graphs.batch(ids)
            if features:
                graphs.features(batch)
        return len(plan)

    packed, one_hot = best(lambda: ours(False), 200), best(lambda: ours(True), 200)

    # PyG's thousands of objects come into being only now: Python's garbage collector would search through
    # them while our batches are timed.
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        from torch_geometric.loader import DataLoader
    with tempfile.TemporaryDirectory() as folder:
        dataset = list(tu_dataset(name, Path(folder)))
    loader = DataLoader(dataset, BATCH_SIZE, shuffle=True, drop_last=True)
    pyg = best(lambda: sum(1 for _ in loader), 600_000 // graphs.num_graphs // BATCH_SIZE + 10)
    return {
        "pyg_dataloader_us": round(pyg, 1),
        "graphnorm_us": round(one_hot, 1),
        "graphnorm_tags_only_us": round(packed, 1),
        "faster_than_pyg": round(pyg / one_hot, 1),
        "faster_tags_only": round(pyg / packed, 1),
    }


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--task", choices=TASKS, help=argparse.SUPPRESS)
    parser.add_argument("--folder", type=Path, help=argparse.SUPPRESS)
    parser.add_argument("--skip-collab", action="store_true", help="measure batches only")
    options = parser.parse_args()
    torch.set_num_threads(1)
    if options.task:
        run_task(options.task, options.folder)
        return
    result: dict[str, Any] = {
        "date": datetime.now(UTC).date().isoformat(),
        "device": f"{platform.processor() or platform.machine()} CPU, one thread of {os.cpu_count()} cores",
        "python": platform.python_version(),
        "versions": {name: version(name) for name in ("torch", "numpy", "torch_geometric", "safetensors")},
        "batch_of_128": {name: batches(name) for name in ("NCI1", "MUTAG")},
    }
    if not options.skip_collab:
        result["collab"] = collab()
        RESULTS.parent.mkdir(exist_ok=True)
        RESULTS.write_text(json.dumps(result, indent=2) + "\n")
    print(json.dumps(result, indent=2))


if __name__ == "__main__":
    main()
