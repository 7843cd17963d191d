"""``graphnorm search``: the best configuration of each normalization, from a grid."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import (
    add_data,
    add_json,
    add_norm_module,
    add_options,
    duration,
    given,
    register_own_norms,
    whole_number,
)
from graphnorm.settings import DEFAULT_NORMS, Hyperparameters, Running, Settings, options_of

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.study import Plan

DESCRIPTION = """\
Train every configuration of a grid with every normalization on every fold, choose by the protocol, and print what was
chosen and what it scores. Results go into a store as they come: the same command again does only what is missing, also
after Ctrl-C, a kill or a power cut. A setting that is given, such as --lr, takes the place of the grid's values of it.
"""
EXAMPLES = """\
examples:
  graphnorm search MUTAG --grid quick                    four configurations for each normalization
  graphnorm search NCI1 --norms graph --dry-run          the paper's 60 configurations: how long they would take
  graphnorm search mine.csv --label active --protocol fair --budget 10m
  graphnorm search PROTEINS --engine ray --workers 8 --gpus-per-worker 1
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="no progress")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and how long it takes; train nothing")
    add_norm_module(parser)
    add_data(parser)
    where = parser.add_argument_group("the store")
    where.add_argument("--out", default=".", metavar="DIR", help="output folder (default: this one)")
    where.add_argument("--store", metavar="FILE", help="default: graphnorm.db in the output folder")
    where.add_argument("--name", help="of the study (default: made of what it trains)")
    what = parser.add_argument_group("search budget")
    what.add_argument(
        "--grid", default="paper", metavar="NAME", help="paper (60 configurations), curves (1), quick (4), FILE.toml"
    )
    what.add_argument(
        "--budget", type=duration, metavar="TIME", help="successive halving for about 90s, 10m or 2h of training"
    )
    what.add_argument(
        "--trials", type=whole_number, metavar="N", help="successive halving with the work of N full trainings"
    )
    add_options(parser, "what is compared", Settings, leave_out=options_of(Hyperparameters))
    add_options(parser, "model and training", Hyperparameters)
    add_options(parser, "where and how it runs", Running)


def run(options: argparse.Namespace) -> None:
    """Search, and print what was chosen."""
    from graphnorm.study import Stopped, search
    from graphnorm.study.api import STORE, plan_search

    keywords = given(options)
    if own := register_own_norms(options):
        keywords["norms"] = ",".join([keywords.get("norms") or ",".join(DEFAULT_NORMS), *own])
    store = Path(options.store) if options.store else Path(options.out) / STORE
    keywords |= {"store": store, "name": options.name, "trials": options.trials, "budget": options.budget}
    if options.dry_run:
        _show_plan(*plan_search(options.data, options.grid, **keywords), store, as_json=options.json)
        return
    try:
        result = search(options.data, options.grid, progress=not options.quiet, **keywords)
    except Stopped as stop:
        if not options.json:
            print(stop.result)
        raise
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        print(result)
        print(f"\nstudy {result.study} in {store}")


def _show_plan(graphs: PackedGraphs, plan: Plan, running: Running, store: Path, *, as_json: bool) -> None:
    import torch

    from graphnorm.study import Store
    from graphnorm.study.halving import Ladder, estimate_seconds
    from graphnorm.study.plan import pack
    from graphnorm.study.render import clock, facts
    from graphnorm.study.runner import packing_device, slots

    done: set[str] = set()
    if store.exists():
        with Store(store, writable=False) as known:
            done = known.finished_keys()
    at_once, device = slots(running), packing_device(running)
    fleets = pack(graphs, plan.trials, device, at_once)
    left = [[plan.trials[k] for k in fleet if plan.trials[k].key not in done] for fleet in fleets]
    left = [fleet for fleet in left if fleet]
    configurations = plan.spec.get("configurations") or len({trial.configuration for trial in plan.trials})
    shown: dict[str, Any] = {
        "study": plan.name,
        "data": f"{graphs.name}, {graphs.num_graphs:,} graphs",
        "protocol": plan.spec["protocol"],
        "normalizations": plan.spec["norms"],
        "configurations": configurations if plan.rungs else configurations // len(plan.spec["norms"]),
        "trials": len(plan.trials),
        "trials_done_before": len(plan.trials) - sum(map(len, left)),
        "fleets": len(left),
        "at_a_time": min(at_once, max(len(left), 1)),
        "store": str(store),
    }
    seconds: float | None = 0.0
    if device == "cuda" and not torch.cuda.is_available():
        seconds = None
    elif left:
        threads = 1 if at_once > 1 else None
        seconds = estimate_seconds(graphs, left, device=device, threads=threads) / min(at_once, len(left))
    if plan.rungs:
        shown["rungs"] = [f"after epoch {epoch} {keep} go on" for epoch, keep in plan.rungs]
        epochs, number = plan.trials[0].epochs, plan.spec["configurations"]
        share = Ladder(number, plan.rungs).cost(epochs) / (number * epochs)
        seconds = None if seconds is None else seconds * share
    if as_json:
        shown["estimated_seconds"] = None if seconds is None else round(seconds, 1)
    else:
        unknown = "not known: there is no GPU here to measure on"
        shown["estimated_time"] = unknown if seconds is None else f"about {clock(seconds)}"
    print(facts(shown, as_json=as_json))
