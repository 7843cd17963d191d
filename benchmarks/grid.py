"""The time of the paper's grid on one dataset with GraphNorm, against PyTorch Geometric's loop.

``python -m benchmarks.grid --store grid.db [--dataset NCI1] [--device cuda] [--out FOLDER]`` trains what the store
lacks of ``graphnorm reproduce table1 --models gin --norms graph --protocols paper``, so either command finds what the
other has trained, and the same command again goes on where it was stopped. Then it times epochs of PyTorch Geometric's
loop (``benchmarks/fleet.py``), evaluation included, at each batch size of the grid, and multiplies. It writes
``benchmarks/results/grid-DATASET-DEVICE.json`` once the search is done, and again with PyTorch Geometric's side.
"""

from __future__ import annotations

import argparse
import json
import os
import signal
import statistics
import threading
import time
from collections import Counter
from dataclasses import replace
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import RESULTS, facts
from benchmarks.fleet import as_pyg, check, pyg_loop, pyg_model, seconds
from graphnorm.data import PackedGraphs
from graphnorm.paper.items import ITEMS
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import Running, find_grid
from graphnorm.study import Plan, Result, Stopped, Store, make_splits, run
from graphnorm.study.progress import Display
from graphnorm.training import build_model

BARS = {"NCI1": 720.0}
"""Seconds that the whole grid may take on one H200."""


def describe(plan: Plan, result: Result, store: Store, seconds_of_this_call: float) -> dict[str, Any]:
    """The time of the search, the chosen configuration and its score."""
    (score,) = result.norms.values()
    sessions, records = store.sessions(store.study(plan.name)), store.records(plan)
    ended = [session.seconds for session in sessions if session.seconds is not None]
    return {
        "dataset": result.dataset,
        "model": result.model,
        "norm": score.name,
        "protocol": result.protocol.name,
        "trials": result.trials,
        "statuses": dict(result.counts),
        "epochs": sum(trial.epochs for trial in plan.trials),
        "wall_seconds": max(sum(ended), seconds_of_this_call),
        "wall_seconds_bar": BARS.get(result.dataset),
        "seconds_of_this_call": seconds_of_this_call,
        "sessions": [
            {"started": session.started, "ended": session.ended, "ending": session.ending, "seconds": session.seconds}
            for session in sessions
        ],
        "sessions_that_were_killed": len(sessions) - len(ended),
        "training_seconds": result.seconds,
        "trained_on": sorted({record.device for record in records}),
        "trained_with": list(result.code),
        "score": {"mean": score.mean / 100, "std": score.std / 100},
        "paper": score.paper and {"mean": score.paper.mean / 100, "std": (score.paper.std or 0.0) / 100},
        "epoch": score.epoch,
        "configuration": score.chosen,
    }


def pyg_seconds(graphs: PackedGraphs, plan: Plan, device: torch.device, rounds: int) -> dict[str, Any]:
    """The time of the same trials in PyTorch Geometric's loop, from whole epochs of one trial.

    Folds differ by a graph or two and no setting but the batch size changes the work, so a few epochs are timed for
    each batch size. On its side the authors' self-loops are left out, which would add edges.
    """
    split, trial = make_splits(graphs, plan.trials[:1])[0], replace(plan.trials[0], self_loops=False)
    data = as_pyg(graphs)
    theirs = pyg_model(graphs, trial.readout).to(device)
    difference = check(build_model(trial, graphs), theirs, graphs, data, device)
    epochs = Counter[int]()
    for trial in plan.trials:
        epochs[trial.batch_size] += trial.epochs
    times = {}
    for batch_size in epochs:
        loop = pyg_loop(theirs, data, split.train, device, True, 1 << 30, batch_size)
        loop()
        times[batch_size] = [seconds(loop, device) for _ in range(rounds)]
    whole = sum(statistics.median(times[batch_size]) * count for batch_size, count in epochs.items())
    return {
        "difference_of_scores_to_ours": difference,
        "seconds_of_an_epoch_with_evaluation": {str(size): found for size, found in times.items()},
        "epochs": {str(size): count for size, count in epochs.items()},
        "extrapolated_seconds": whole,
    }


def stop_after(limit: float | None) -> None:
    """Stop this process after this many seconds as Ctrl-C would, so that checkpoints are left."""
    if limit is not None:
        timer = threading.Timer(limit, os.kill, (os.getpid(), signal.SIGTERM))
        timer.daemon = True
        timer.start()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, required=True)
    parser.add_argument("--dataset", default="NCI1")
    parser.add_argument("--grid", default="paper", help="paper, quick, or a .toml file")
    parser.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    parser.add_argument("--workers", type=int, help="processes, on a CPU")
    parser.add_argument("--rounds", type=int, default=5, help="epochs of PyTorch Geometric's loop, at each batch size")
    parser.add_argument(
        "--stop-after", type=float, metavar="SECONDS", help="stop with a checkpoint; go on another time"
    )
    parser.add_argument("--out", type=Path, default=RESULTS)
    options = parser.parse_args()
    running = Running(device=options.device, workers=options.workers)
    reproduction = Reproduction(options.store, running=running)
    part: dict[str, Any] = {"models": ("gin",), "norms": ("graph",), "protocols": ("paper",)}
    item = ITEMS["table1"].narrowed(datasets=(options.dataset,), grid=find_grid(options.grid), **part)
    (plan,) = reproduction.plans(item)
    graphs = reproduction.graphs(plan.spec["dataset"])
    stop_after(options.stop_after)
    began = time.perf_counter()
    made = facts(options.device, "torch_geometric")
    try:
        with Store(options.store) as store:
            result = run(plan, graphs, store, running, callbacks=[Display()])
            made |= {"study": describe(plan, result, store, time.perf_counter() - began)}
    except Stopped as stop:
        raise SystemExit(str(stop)) from None
    options.out.mkdir(parents=True, exist_ok=True)
    path = options.out / f"grid-{result.dataset}-{made['device'].replace(' ', '-')}.json"
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    peer = pyg_seconds(graphs, plan, torch.device(options.device), options.rounds)
    made |= {"pyg": peer, "speedup": peer["extrapolated_seconds"] / made["study"]["wall_seconds"]}
    path.write_text(json.dumps(made, indent=1) + "\n", encoding="utf-8")
    print(json.dumps(made, indent=1))
    print(f"written: {path}")


if __name__ == "__main__":
    main()
