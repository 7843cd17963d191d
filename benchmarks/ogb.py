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
from graphnorm.paper.reported import reported_baseline
from graphnorm.study.baselines import SETTING, baseline_plan
from graphnorm.study.display import Display
from graphnorm.study.engines.local import local_engine
from graphnorm.study.plan import Plan
from graphnorm.study.search import pack, run_plan
from graphnorm.study.selection import select
from graphnorm.study.store import Store
from graphnorm.training import Outcome
from graphnorm.training.fleet import default_device

DATASET = "ogbg-molhiv"
MODELS = ("ogb-gcn", "ogb-gin", "ogb-gcn-virtual", "ogb-gin-virtual")


def plan_all(graphs: PackedGraphs, epochs: int, seeds: int) -> Plan:
    """One study of all models."""
    plans = [baseline_plan(graphs, name, protocol="ogb", seeds=seeds, epochs=epochs) for name in MODELS]
    trials = tuple(trial for plan in plans for trial in plan.trials)
    return Plan(f"{DATASET}-ogb-{epochs}-epochs-{seeds}-seeds", plans[0].spec | {"model": ", ".join(MODELS)}, trials)


def train(store: Path, graphs: PackedGraphs, plan: Plan, device: str) -> float:
    """Train what the store lacks; gives the seconds."""
    began = time.perf_counter()
    result = run_plan(
        store,
        plan,
        graphs,
        lambda fleets: local_engine(graphs, device=device, fleets=fleets),
        fleets=pack(graphs, plan.trials, device, 1),
        callbacks=[Display()],
    )
    if result.stopped_by is not None:
        raise SystemExit(f"stopped by signal {result.stopped_by}; the same command goes on")
    if failed := result.study.counts.get("failed"):
        raise SystemExit(f"{failed} trials failed; graphnorm runs show says why")
    return time.perf_counter() - began


def rows(store: Path, plan: Plan, epochs: int, seconds: float) -> list[dict[str, Any]]:
    """What came of each model, beside what is quoted."""
    with Store(store, writable=False) as opened:
        records = opened.records(opened.study(plan.name), curves=("loss", "train", "valid", "test"))
    found = []
    for name in MODELS:
        own = [record for record in records if record.trial.model == name]
        chosen = select([[Outcome(record.trial, dict(record.curves)) for record in own]])
        quoted = reported_baseline(DATASET, name, "ogb")
        row: dict[str, Any] = {"baseline": name, "dataset": DATASET, "epochs": epochs, "seeds": len(own)}
        row |= {"mean": f"{100 * chosen.mean:.2f}", "std": f"{100 * chosen.std:.2f}"}
        if quoted is not None and quoted.std is not None:
            row |= {"quoted_mean": quoted.mean, "quoted_std": quoted.std}
            row["deviation"] = f"{(100 * chosen.mean - quoted.mean) / quoted.std:+.1f}"
        found.append(row | {"seconds_of_all": round(seconds), "trained_on": own[0].device})
    return found


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--epochs", type=int, default=SETTING["epochs"])
    parser.add_argument("--seeds", type=int, default=10)
    parser.add_argument("--device")
    parser.add_argument("--store", type=Path, default=Path("graphnorm.db"))
    parser.add_argument("--out", type=Path, default=RESULTS / "baselines-molhiv.csv")
    options = parser.parse_args()
    device = default_device(options.device)
    made = announce(torch.device(device))
    graphs = load(DATASET)
    plan = plan_all(graphs, options.epochs, options.seeds)
    seconds = train(options.store, graphs, plan, str(device))
    table = rows(options.store, plan, options.epochs, seconds)
    for row in table:
        print(" ".join(f"{key} {value}" for key, value in row.items()), flush=True)
    write_table("baselines-molhiv", table, made, options.out)


if __name__ == "__main__":
    main()
