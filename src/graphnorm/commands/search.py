"""``graphnorm search``: search the best configuration of each normalization."""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import (
    add_json,
    add_study,
    print_result,
    result_text,
    results_alone,
    study_keywords,
    whole_number,
)

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.settings import Running
    from graphnorm.study import Plan

DESCRIPTION = """\
Train every configuration of a grid with every normalization on every fold, select by the protocol, and print the
selected configurations and their scores. A store saves each finished trial: after Ctrl-C, a kill or a power cut, the
same command trains only the missing ones. An option such as --lr replaces the grid's values of this setting.
"""
EXAMPLES = """\
examples:
  graphnorm search MUTAG --grid quick                    four configurations for each normalization
  graphnorm search NCI1 --norms graph --dry-run          the time that the paper's 60 configurations would take
  graphnorm search mine.csv --target active --protocol fair --budget 10m
  graphnorm search PROTEINS --engine ray --workers 8 --gpus-per-worker 1
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--quiet", action="store_true", help="do not show progress")
    parser.add_argument("--dry-run", action="store_true", help="show the plan and its estimated time; train nothing")
    where = parser.add_argument_group("the store")
    where.add_argument("--out", default=".", metavar="DIR", help="output folder (default: the current one)")
    where.add_argument("--store", metavar="FILE", help="default: graphnorm.db in the output folder")
    where.add_argument("--name", help="name of the study (default: derived from its trials)")
    what = parser.add_argument_group("search budget")
    what.add_argument(
        "--grid", default="paper", metavar="NAME", help="paper (60 configurations), curves (1), quick (4), FILE.toml"
    )
    what.add_argument("--budget", metavar="TIME", help="successive halving for about 90s, 10m or 2h of training")
    what.add_argument(
        "--trials", type=whole_number, metavar="N", help="successive halving with the work of N full trainings"
    )
    add_study(parser)


def run(options: argparse.Namespace) -> None:
    from graphnorm.study import Stopped, search
    from graphnorm.study.api import STORE, plan_search

    keywords = study_keywords(options)
    store = Path(options.store) if options.store else Path(options.out) / STORE
    keywords |= {"store": store, "name": options.name, "trials": options.trials, "budget": options.budget}
    if options.dry_run:
        _show_plan(*plan_search(options.data, options.grid, **keywords), store, as_json=options.json)
        return
    try:
        with results_alone():
            result = search(options.data, options.grid, progress=not options.quiet, **keywords)
    except Stopped as stop:
        if not options.json:
            print(result_text(stop.result, options.words))
        raise
    print_result(result, options, note=f"study {result.study} in {store}")


def _show_plan(graphs: PackedGraphs, plan: Plan, running: Running, store: Path, *, as_json: bool) -> None:
    from graphnorm.study.forecast import forecast
    from graphnorm.study.render import clock, facts
    from graphnorm.study.store import is_begun, open_store

    done: set[str] = set()
    if is_begun(store):
        with open_store(store) as known:
            done = known.finished_keys()
    fleets, at_once, seconds = forecast(graphs, plan, running, done)
    shown: dict[str, Any] = {
        "study": plan.name,
        "data": f"{graphs.name}, {graphs.num_graphs:,} graphs",
        "protocol": plan.spec["protocol"],
        "normalizations": plan.spec["norms"],
        "configurations": len(next(iter(plan.configurations().values()))),
        "trials": len(plan.trials),
        "trials_done_before": len(plan.trials) - sum(map(len, fleets)),
        "fleets": len(fleets),
        "at_a_time": at_once,
        "store": str(store),
    }
    if plan.rungs:
        shown["rungs"] = [f"after epoch {epoch} {keep} continue" for epoch, keep in plan.rungs]
    if as_json:
        shown["estimated_seconds"] = None if seconds is None else round(seconds, 1)
    else:
        unknown = "unknown: this machine has no GPU to measure on"
        shown["estimated_time"] = unknown if seconds is None else f"about {clock(seconds)}"
    print(facts(shown, as_json=as_json))
