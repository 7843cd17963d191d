"""``graphnorm search``: the best configuration of each normalization, from a grid."""

from __future__ import annotations

import argparse
import json
import re
import sys
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import Subparsers, common, load_graphs, loading_keywords, own_graphs
from graphnorm.commands.printing import print_facts, print_table
from graphnorm.errors import StudyError

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from graphnorm.data import PackedGraphs
    from graphnorm.study.callbacks import Callback
    from graphnorm.study.engines import Engine
    from graphnorm.study.plan import Plan
    from graphnorm.study.search import SearchResult
    from graphnorm.training import Trial

__all__ = ["COLUMNS", "add", "result_rows"]

DESCRIPTION = """\
Train every configuration of a grid with every normalization on every fold, choose by the protocol, and print what was
chosen and what it scores. Results go into a store as they come: the same command again does only what is missing, also
after Ctrl-C, a kill or a power cut.
"""
EXAMPLES = """\
examples:
  graphnorm search MUTAG --grid quick                    four configurations for each normalization
  graphnorm search NCI1 --norms graph --dry-run          the paper's 60 configurations: what it would take
  graphnorm search mine.csv --label active --protocol fair --budget 10m
  graphnorm search PROTEINS --engine ray --workers 8 --gpus-per-worker 1
"""
COLUMNS = ("norm", "score %", "epoch", "trials", "configuration")
UNITS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "search",
        help="the best configuration of each normalization",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common(data_root=None, json=False), own_graphs()],
    )
    parser.add_argument("data", metavar="DATA", help="a dataset's name, or your own graphs")
    what = parser.add_argument_group("what is trained")
    what.add_argument(
        "--grid", default="paper", metavar="NAME", help="paper (60 configurations), curves (1), quick (4), FILE.toml"
    )
    what.add_argument("--norms", metavar="A,B,…", help="default: none,layer,batch,instance,graph")
    what.add_argument("--model", metavar="NAME", help="gin (the default; molhiv-gin with an official split) …")
    what.add_argument("--protocol", metavar="NAME", help="paper, fair or ogb, as in `graphnorm compare`")
    what.add_argument("--folds", type=int, metavar="K", help="of the cross-validation (default: 10)")
    what.add_argument("--seeds", type=int, metavar="N", help="trainings of each fold (default: 1; under ogb 10)")
    what.add_argument("--epochs", type=int, metavar="E", help="of every training (default: the grid's)")
    what.add_argument("--hidden", type=int, metavar="WIDTH", help="default: 64; with an official split 300")
    what.add_argument("--layers", type=int, metavar="L", help="with the linear head (default: 5)")
    what.add_argument("--readout", metavar="NAME", help="sum or mean (default: the catalogue's, or sum)")
    what.add_argument("--self-loops", action="store_true", help="a self-loop on every node, as in the authors' data")
    less = parser.add_argument_group("less than the whole grid: successive halving")
    less.add_argument("--budget", type=_duration, metavar="TIME", help="about so long, such as 90s, 10m or 2h")
    less.add_argument("--trials", type=_positive, metavar="N", help="no more work than N full trainings")
    where = parser.add_argument_group("where")
    where.add_argument("--out", default=".", metavar="DIR", help="output folder (default: this one)")
    where.add_argument("--store", metavar="FILE", help="default: graphnorm.db in the output folder")
    where.add_argument("--name", help="of the study (default: made of what it trains)")
    where.add_argument("--engine", choices=("local", "ray"), default="local", help="default: local")
    where.add_argument("--device", help="cpu, cuda ... (default: a GPU where there is one)")
    where.add_argument(
        "--workers",
        type=_positive,
        metavar="N",
        help="fleets at a time (default: 5 on a GPU, one a core)",
    )
    where.add_argument("--address", help="of a Ray cluster (default: a local one, started and stopped)")
    where.add_argument("--cpus-per-worker", type=float, metavar="X", help="Ray's share of cores (default: 1)")
    where.add_argument("--gpus-per-worker", type=float, metavar="X", help="Ray's share of GPUs (default: 0)")
    how = parser.add_argument_group("how")
    how.add_argument("--dry-run", action="store_true", help="show the plan and how long it takes; train nothing")
    how.add_argument("--wait", action="store_true", help="wait for another process that writes to this study")
    how.add_argument("--retry-failed", action="store_true", help="try again what failed before")
    how.add_argument("--checkpoint", type=_duration, default=50.0, metavar="TIME", help="between checkpoints (50s)")
    how.add_argument("--tensorboard", metavar="DIR", help="write every trial's curves there")
    how.add_argument("--quiet", action="store_true", help="no progress")
    parser.set_defaults(run=_run)


def _duration(text: str) -> float:
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10m, 2h or 1d")
    return float(match[1]) * UNITS[match[2] or "s"]


def _positive(text: str) -> int:
    if not text.isdecimal() or int(text) < 1:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number of 1 or more")
    return int(text)


def _run(options: argparse.Namespace) -> None:
    from graphnorm.study.search import default_store, pack, run_plan

    _check_combinations(options)
    graphs = load_graphs(options)
    plan = _plan(options, graphs)
    store = Path(options.store) if options.store else default_store(options.out)
    plan = _adapt(options, graphs, plan, store)
    slots = _slots(options)
    fleets = pack(graphs, plan.trials, _packing_device(options), slots)
    if options.dry_run:
        _show_plan(options, graphs, plan, fleets, store, slots)
        return
    result = run_plan(
        store,
        plan,
        graphs,
        _engine_maker(options, graphs),
        fleets=fleets,
        callbacks=_callbacks(options),
        wait=options.wait,
        retry_failed=options.retry_failed,
        checkpoint_seconds=options.checkpoint,
    )
    _show_result(options, result, store)
    if result.stopped_by is not None:
        print("graphnorm: stopped; the same command goes on from here", file=sys.stderr)
        raise SystemExit(128 + result.stopped_by)


def _check_combinations(options: argparse.Namespace) -> None:
    if options.engine == "local":
        for name in ("address", "cpus_per_worker", "gpus_per_worker"):
            if getattr(options, name) is not None:
                option = "--" + name.replace("_", "-")
                raise StudyError(f"{option} has no meaning for the engine local", remedy="add --engine ray")
    if options.budget and options.trials:
        raise StudyError("--budget and --trials say the same thing twice", remedy="give one of them")
    if options.budget and options.engine == "ray":
        raise StudyError("--budget is measured on this machine, not on a cluster", remedy="give --trials instead")


def _plan(options: argparse.Namespace, graphs: PackedGraphs) -> Plan:
    from graphnorm.comparison.settings import settle
    from graphnorm.data.loading import describe_origin
    from graphnorm.study.grid import find_grid
    from graphnorm.study.plan import make_plan
    from graphnorm.study.protocol import make_splits

    grid = find_grid(options.grid)
    names = ("model", "norms", "protocol", "self_loops", "readout", "folds", "seeds", "epochs", "hidden", "layers")
    settings = settle(graphs, **{name: getattr(options, name) for name in names})
    fixed = {name: getattr(options, name) for name in ("epochs", "hidden", "layers", "readout")}
    fixed = {name: value for name, value in fixed.items() if value is not None}
    if options.self_loops:
        fixed["self_loops"] = True
    plan = make_plan(
        graphs,
        grid.fixed(**fixed),
        norms=settings.norms,
        model=settings.model,
        protocol=settings.protocol,
        folds=settings.folds,
        seeds=settings.seeds,
        name=options.name,
        **{
            name: getattr(settings, name)
            for name in ("readout", "self_loops", "hidden", "layers", "epochs")
            if name not in grid.axes and name not in fixed
        },
    )
    make_splits(graphs, plan.trials[:1])  # a dataset that is too small is told of now
    origin = describe_origin(options.data, **loading_keywords(options))
    return plan if origin is None else replace(plan, spec=plan.spec | {"origin": origin})


def _adapt(options: argparse.Namespace, graphs: PackedGraphs, plan: Plan, store: Path) -> Plan:
    """The plan of an adaptive search: as it was when the study was begun, or made now."""
    from graphnorm.study.search import adapt, pack
    from graphnorm.study.store import Store

    if not (options.budget or options.trials):
        return plan
    ending = f"{options.trials}trials" if options.trials else f"{options.budget:g}s"
    plan = replace(plan, name=options.name or f"{plan.name}-{ending}")
    if store.exists():
        with Store(store, writable=False) as known:
            for study in known.studies():
                if study.name == plan.name:
                    return replace(plan, spec=dict(study.spec), trials=tuple(known.trials(study)))
    if options.trials:
        return adapt(plan, options.trials)
    slots = _slots(options)
    fleets = [[plan.trials[k] for k in fleet] for fleet in pack(graphs, plan.trials, options.device, slots)]
    seconds = _seconds(options, graphs, fleets, slots)
    assert seconds is not None, "the engine local trains here"
    return adapt(plan, options.budget * len(plan.trials) / seconds)


def _slots(options: argparse.Namespace) -> int:
    """How many fleets are trained at a time, as far as that is known before the engine is there."""
    from graphnorm.study.engines.local import choose_devices

    if options.engine == "ray":
        return int(options.workers or 1)
    return len(choose_devices(options.device, options.workers))


def _packing_device(options: argparse.Namespace) -> str | None:
    """Fleets are packed for the device they will be on."""
    if options.engine == "ray":
        return "cuda" if options.gpus_per_worker else "cpu"
    return options.device  # type: ignore[no-any-return]


def _engine_maker(options: argparse.Namespace, graphs: PackedGraphs) -> Callable[[int], Engine]:
    def make(fleets: int) -> Engine:
        if options.engine == "local":
            from graphnorm.study.engines.local import local_engine

            return local_engine(graphs, device=options.device, workers=options.workers, fleets=fleets)
        from graphnorm.study.engines.ray import RayEngine

        return RayEngine(
            graphs,
            address=options.address,
            workers=options.workers,
            cpus_per_worker=1.0 if options.cpus_per_worker is None else options.cpus_per_worker,
            gpus_per_worker=options.gpus_per_worker or 0.0,
            fleets=fleets,
        )

    return make


def _callbacks(options: argparse.Namespace) -> list[Callback]:
    from graphnorm.study.callbacks import TensorBoard
    from graphnorm.study.display import Display

    callbacks: list[Callback] = [] if options.quiet else [Display()]
    if options.tensorboard:
        callbacks.append(TensorBoard(options.tensorboard))
    return callbacks


def _show_plan(
    options: argparse.Namespace,
    graphs: PackedGraphs,
    plan: Plan,
    fleets: list[list[int]],
    store: Path,
    slots: int,
) -> None:
    from graphnorm.study.display import clock
    from graphnorm.study.store import FINAL, Store

    done: set[str] = set()
    if store.exists():
        with Store(store, writable=False) as known:
            for study in known.studies():
                done |= {key for key, status in known.statuses(study).items() if status in FINAL}
    missing = [[plan.trials[k] for k in fleet if plan.trials[k].key not in done] for fleet in fleets]
    missing = [fleet for fleet in missing if fleet]
    seconds = _seconds(options, graphs, missing, slots)
    facts: dict[str, Any] = {
        "study": plan.name,
        "data": f"{graphs.name}, {graphs.num_graphs:,} graphs",
        "protocol": plan.spec["protocol"],
        "normalizations": plan.spec["norms"],
        "configurations": plan.spec.get("configurations", len(_configurations(plan))),
        "trials": len(plan.trials),
        "trials_done_before": len(plan.trials) - sum(map(len, missing)),
        "fleets": len(missing),
        "at_a_time": min(slots, max(len(missing), 1)),
        "store": str(store),
    }
    if rungs := plan.spec.get("rungs"):
        facts["rungs"] = [f"after epoch {epoch} {keep} go on" for epoch, keep in rungs]
        seconds = None if seconds is None else seconds * _share(plan)
    if options.json:
        facts["estimated_seconds"] = None if seconds is None else round(seconds, 1)
    else:
        unknown = "not known: there is no GPU here to measure on"
        facts["estimated_time"] = unknown if seconds is None else f"about {clock(seconds)}"
    print_facts(facts, options.json)


def _seconds(
    options: argparse.Namespace, graphs: PackedGraphs, fleets: Sequence[Sequence[Trial]], slots: int
) -> float | None:
    """How long fleets take, by a short calibration; None where they will be on a device that is not here."""
    import torch

    from graphnorm.study.estimate import estimate_seconds

    device = _packing_device(options)
    if device == "cuda" and not torch.cuda.is_available():
        return None
    if not fleets:
        return 0.0
    estimate = estimate_seconds(graphs, fleets, device=device, threads=1 if slots > 1 else None)
    return estimate.seconds / min(slots, len(fleets))


def _configurations(plan: Plan) -> list[list[int]]:
    from graphnorm.study.plan import group_candidates

    return next(iter(group_candidates(plan.trials).values()))


def _share(plan: Plan) -> float:
    """How much of all the epochs an adaptive search trains."""
    from graphnorm.study.halving import Ladder, Rung

    epochs, number = plan.trials[0].epochs, plan.spec["configurations"]
    ladder = Ladder(number, tuple(Rung(*rung) for rung in plan.spec["rungs"]))
    return float(ladder.cost(epochs) / (number * epochs))


def result_rows(result: SearchResult) -> list[list[str]]:
    """The table of a study: normalization, score, epoch, configuration, progress."""
    rows = []
    for norm in result.norms:
        progress = f"{norm.finished:,} of {norm.trials:,}"
        if norm.selection is None:
            rows.append([norm.norm, "–", "–", progress, "nothing to choose from yet"])
            continue
        score = f"{100 * norm.selection.mean:.1f} ± {100 * norm.selection.std:.1f}"
        epoch = "varies" if norm.selection.epoch is None else str(norm.selection.epoch)
        settings = "varies by fold" if norm.chosen is None else _settings(norm.chosen)
        rows.append([norm.norm, score, epoch, progress, settings])
    return rows


def _settings(values: dict[str, Any]) -> str:
    texts = [f"{k}={v:g}" if isinstance(v, float) else f"{k}={v}" for k, v in values.items()]
    return ", ".join(texts) or "the only one"


def _show_result(options: argparse.Namespace, result: SearchResult, store: Path) -> None:
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
        return
    print_table(COLUMNS, result_rows(result), left=("norm", "configuration"))
    if failed := result.study.counts.get("failed"):
        why = f"`graphnorm runs show {result.study.name}` says why, --retry-failed tries again"
        print(f"{failed:,} trials failed; {why}")
    print(f"study {result.study.name} in {store}")
