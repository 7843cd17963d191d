"""Measure OGB's four models on ogbg-molhiv beside the numbers quoted for them: ``python -m benchmarks.ogb``.

All four are one study, so that on a GPU they are trained side by side: a step of each is a thousand small kernels,
which one after another leave the GPU idle. Each seed counts at its best validation ROC-AUC. The same command
goes on with what its store has. Results go to ``benchmarks/results/baselines-molhiv.csv``.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path
from typing import Any

import torch

from benchmarks.facts import RESULTS, announce, write_table
from graphnorm.data import PackedGraphs, load
from graphnorm.settings import Running
from graphnorm.study import Plan, Result, Stopped, Store, run
from graphnorm.study.planning import BASELINE_SETTING, baseline_plan
from graphnorm.study.progress import Display
from graphnorm.study.reported import reported_baseline
from graphnorm.training import default_device

DATASET = "ogbg-molhiv"
MODELS = ("ogb-gcn", "ogb-gin", "ogb-gcn-virtual", "ogb-gin-virtual")


def plan_all(graphs: PackedGraphs, epochs: int, seeds: int) -> Plan:
    """One study of all models."""
    plans = [baseline_plan(graphs, name, protocol="ogb", seeds=seeds, epochs=epochs) for name in MODELS]
    trials = tuple(trial for plan in plans for trial in plan.trials)
    return Plan(f"{DATASET}-ogb-{epochs}-epochs-{seeds}-seeds", {**plans[0].spec, "model": ", ".join(MODELS)}, trials)


def train(path: Path, graphs: PackedGraphs, plan: Plan, device: str) -> tuple[Result, float]:
    """Train what the store lacks; gives the result and the seconds."""
    began = time.perf_counter()
    try:
        with Store(path) as store:
            result = run(plan, graphs, store, Running(device=device), callbacks=[Display()])
    except Stopped as stop:
        raise SystemExit(str(stop)) from None
    if failed := result.counts.get("failed"):
        raise SystemExit(f"{failed} trials failed; graphnorm runs show says why")
    return result, time.perf_counter() - began


def rows(result: Result, epochs: int, seconds: float) -> list[dict[str, Any]]:
    """What came of each model, beside what is quoted."""
    found = []
    for name, score in result.baselines.items():
        quoted = reported_baseline(DATASET, name, "ogb")
        row: dict[str, Any] = {"baseline": name, "dataset": DATASET, "epochs": epochs, "seeds": len(score.scores)}
        row |= {"mean": f"{score.mean:.2f}", "std": f"{score.std:.2f}"}
        if quoted is not None and quoted.std is not None:
            row |= {"quoted_mean": quoted.mean, "quoted_std": quoted.std}
            row["deviation"] = f"{(score.mean - quoted.mean) / quoted.std:+.1f}"
        found.append(row | {"seconds_of_all": round(seconds), "trained_on": score.devices[0]})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=BASELINE_SETTING["epochs"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device")
    parser.add_argument("--store", type=Path, default=Path("graphnorm.db"))
    parser.add_argument("--out", type=Path, default=RESULTS / "baselines-molhiv.csv")
    options = parser.parse_args()
    device = default_device(options.device)
    made = announce(torch.device(device))
    graphs = load(DATASET)
    plan = plan_all(graphs, options.epochs, options.seeds)
    result, seconds = train(options.store, graphs, plan, str(device))
    table = rows(result, options.epochs, seconds)
    for row in table:
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    write_table("baselines-molhiv", table, made, options.out)


if __name__ == "__main__":
    main()
