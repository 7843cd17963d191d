"""What the paper's whole grid costs on many GPUs, from what is measured on one.

``python -m benchmarks.scaling measure`` times an epoch of a full fleet for every dataset, model, normalization and
batch size, weighs a checkpoint and an outcome, and times the driver's own work; it writes
``benchmarks/results/scaling-DEVICE.json``. ``python -m benchmarks.scaling page FILE`` prints the tables of
``docs/scaling.md`` from such a file.
"""

from __future__ import annotations

import argparse
import json
import pickle
import tempfile
import time
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import torch

from graphnorm.data import GraphnormError, PackedGraphs, load
from graphnorm.study.checkpoint import CheckpointFolder
from graphnorm.study.driver import CHECKPOINT_SECONDS
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.search import pack
from graphnorm.study.store import Store
from graphnorm.study.work import Advance, Begin, Step, Worker
from graphnorm.training import Trial

RESULTS = Path(__file__).parent / "results"
DATASETS = ("MUTAG", "PTC", "PROTEINS", "NCI1", "IMDB-B", "RDT-B", "COLLAB")
MODELS, NORMS, BATCHES = ("gin", "gcn"), ("none", "layer", "batch", "instance", "graph"), (64, 128)
CONFIGURATIONS_OF_A_BATCH_SIZE, FOLDS, EPOCHS = 30, 10, 400
GPUS = (1, 8, 64)

Measured = Mapping[str, Any]


def measure(datasets: Sequence[str], members: int, device: str) -> dict[str, Any]:
    """Seconds for an epoch of one member in a full fleet, and the driver's costs."""
    name = torch.cuda.get_device_name() if device == "cuda" else "cpu"
    found: dict[str, Any] = {"device": name, "fleets": []}
    for dataset in datasets:
        try:
            graphs = load(dataset)
        except GraphnormError as error:
            print(f"{dataset}: {error}")
            continue
        for model in MODELS:
            for norm in NORMS:
                for batch in BATCHES:
                    found["fleets"].append(_time_fleet(graphs, dataset, model, norm, batch, members, device))
                    print(found["fleets"][-1], flush=True)
    return found | _driver_costs(load(datasets[0]), members, device)


def _trials(graphs: PackedGraphs, model: str, norm: str, batch: int, members: int) -> Sequence[Trial]:
    rates = tuple(1e-3 * (1 + k / 100) for k in range(-(-members // FOLDS)))
    grid = Grid("scaling", {"epochs": (EPOCHS,), "batch_size": (batch,), "lr": rates})
    return make_plan(graphs, grid, norms=[norm], model=model).trials[:members]


def _time_fleet(
    graphs: PackedGraphs, dataset: str, model: str, norm: str, batch: int, members: int, device: str
) -> dict[str, Any]:
    trials = _trials(graphs, model, norm, batch, members)
    trials = [trials[k] for k in pack(graphs, trials, device, 1)[0]]
    worker = Worker(graphs, device)
    worker.answer(Begin(tuple(trials), tuple(make_splits(graphs, trials)), frozenset(t.key for t in trials)))
    worker.answer(Advance(1e-9, EPOCHS))  # one epoch to warm up
    began = time.perf_counter()
    step = worker.answer(Advance(3.0, EPOCHS))
    assert isinstance(step, Step), step
    seconds = (time.perf_counter() - began) / len(step.metrics["valid"]) / len(trials)
    return {
        "dataset": dataset,
        "model": model,
        "norm": norm,
        "batch_size": batch,
        "members": len(trials),
        "graph_bytes": sum(t.numel() * t.element_size() for _, t in graphs.tensors()),
        "seconds_per_epoch_of_a_member": seconds,
    }


def _driver_costs(graphs: PackedGraphs, members: int, device: str) -> dict[str, Any]:
    """What crosses the network for one member, and how fast the driver keeps it."""
    trials = _trials(graphs, "gin", "graph", 128, min(members, 100))
    trials = [trials[k] for k in pack(graphs, trials, device, 1)[0]]
    worker = Worker(graphs, device)
    worker.answer(Begin(tuple(trials), tuple(make_splits(graphs, trials)), frozenset(t.key for t in trials)))
    step = worker.answer(Advance(1e-9, EPOCHS, checkpoint=True))
    assert isinstance(step, Step) and step.checkpoint is not None, step
    assert worker._fleet is not None
    outcomes = worker._fleet.outcomes()
    long = [o.curves | {name: curve.repeat(EPOCHS) for name, curve in o.curves.items()} for o in outcomes]
    for outcome, curves in zip(outcomes, long, strict=True):
        outcome.curves.update(curves)
    with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
        study = store.add_study("scaling", {}, trials, [range(len(trials))])
        began = time.perf_counter()
        store.save(store.begin_session(study, "local"), outcomes)
        saving = (time.perf_counter() - began) / len(trials)
        began = time.perf_counter()
        CheckpointFolder(Path(folder)).write(0, step.checkpoint)
        writing = time.perf_counter() - began
    return {
        "checkpoint_bytes_of_a_member": len(step.checkpoint) / len(trials),
        "outcome_bytes_of_a_member": len(pickle.dumps(outcomes)) / len(trials),
        "seconds_to_save_a_trial": saving,
        "checkpoint_bytes_per_second_to_disk": len(step.checkpoint) / writing,
    }


def page(measured: Measured) -> str:
    """The tables of the cost page.

    The hours on G GPUs are the work divided by G, and no less than the longest fleet: 300 members are the most that a
    batch size, model and normalization have. Every GPU has one fleet under way, which sends its checkpoints.
    """
    hours: dict[tuple[str, str], float] = {}
    longest, members = 0.0, 1
    for fleet in measured["fleets"]:
        trials = CONFIGURATIONS_OF_A_BATCH_SIZE * FOLDS
        seconds = fleet["seconds_per_epoch_of_a_member"] * EPOCHS
        key = fleet["dataset"], fleet["model"]
        hours[key] = hours.get(key, 0.0) + seconds * trials / 3600
        longest = max(longest, seconds * fleet["members"] / 3600)
        members = max(members, fleet["members"])
    total = sum(hours.values())
    trials = CONFIGURATIONS_OF_A_BATCH_SIZE * FOLDS * len(measured["fleets"])
    lines = [f"Measured on: {measured['device']}.", "", "| dataset | model | GPU hours |", "|---|---|---:|"]
    lines += [f"| {dataset} | {model} | {value:.2f} |" for (dataset, model), value in hours.items()]
    lines += [f"| all | | {total:.2f} |", ""]
    lines += [
        "| GPUs | hours | checkpoints, MB/s | outcomes, kB/s | driver saves, share of its time |",
        "|---:|---:|---:|---:|---:|",
    ]
    for gpus in GPUS:
        wall = max(total / gpus, longest)
        checkpoints = gpus * members * measured["checkpoint_bytes_of_a_member"] / CHECKPOINT_SECONDS
        outcomes = trials * measured["outcome_bytes_of_a_member"] / (wall * 3600)
        busy = trials * measured["seconds_to_save_a_trial"] / (wall * 3600)
        busy += checkpoints / measured["checkpoint_bytes_per_second_to_disk"]
        lines.append(f"| {gpus} | {wall:.2f} | {checkpoints / 1e6:.1f} | {outcomes / 1e3:.1f} | {100 * busy:.1f} % |")
    return "\n".join(lines)


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    actions = parser.add_subparsers(dest="action", required=True)
    measuring = actions.add_parser("measure")
    measuring.add_argument("--datasets", default=",".join(DATASETS))
    measuring.add_argument("--members", type=int, default=300)
    measuring.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    measuring.add_argument("--out", type=Path, default=RESULTS)
    showing = actions.add_parser("page")
    showing.add_argument("file", type=Path)
    options = parser.parse_args()
    if options.action == "page":
        print(page(json.loads(options.file.read_text())))
        return
    found = measure(options.datasets.split(","), options.members, options.device)
    path = options.out / f"scaling-{found['device'].replace(' ', '-')}.json"
    path.write_text(json.dumps(found, indent=1) + "\n")
    print(f"written: {path}")


if __name__ == "__main__":
    main()
