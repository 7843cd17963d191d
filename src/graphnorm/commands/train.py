"""``graphnorm train``: train one model and save it."""

from __future__ import annotations

import argparse
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import (
    add_data,
    add_json,
    add_norm_module,
    add_options,
    given,
    load_graphs,
    register_own_norms,
    results_alone,
    whole_number,
)
from graphnorm.errors import GraphnormError
from graphnorm.settings import Hyperparameters, Running, Settings

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.training import Outcome, Split, Trial

EPOCHS = 100
PARTS = {"train": "trained on", "valid": "held out", "test": "test"}
DESCRIPTION = """\
Train one model and save it. A stratified tenth of the graphs is held out for its score (with a given split, that
split's parts); --all trains on every graph. `graphnorm predict` uses the model. The same command continues a training
that was stopped.
"""
EXAMPLES = """\
examples:
  graphnorm train MUTAG --out mutag.safetensors
  graphnorm train mine.csv --target active --norm instance --all --out mine.safetensors
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .safetensors file")
    parser.add_argument("--norm", metavar="NAME", help="normalization (default: graph, or that of --norm-module)")
    add_norm_module(parser)
    parser.add_argument("--folds", type=whole_number, metavar="K", help="one graph in K is held out (default: 10)")
    parser.add_argument(
        "--fold", type=whole_number, default=0, metavar="N", help="which of the K folds, from 0 (default: 0)"
    )
    parser.add_argument("--all", action="store_true", help="hold nothing out")
    parser.add_argument(
        "--seed", type=whole_number, default=0, help="seed of initialisation, order and dropout (default: 0)"
    )
    add_data(parser)
    add_options(parser, "model and training", Hyperparameters)
    add_options(parser, "what is reported", Settings, "metric")
    add_options(parser, "where and how to run", Running, "device", "checkpoint")


def run(options: argparse.Namespace) -> None:
    from graphnorm.files import refuse_overwriting, refuse_unwritable
    from graphnorm.study.api import train
    from graphnorm.study.folds import make_splits
    from graphnorm.study.progress import Display
    from graphnorm.study.render import facts
    from graphnorm.study.runner import make_running

    if options.out.suffix != ".safetensors":
        raise GraphnormError(f"a model is a .safetensors file, not {options.out}", remedy="name it model.safetensors")
    if not 0 <= options.seed < 2**63:
        raise GraphnormError(f"the seed is {options.seed}", remedy="give a whole number from 0, below 2**63")
    running = make_running(**given(options, Running), workers=1)
    norm = _norm(options)
    graphs = load_graphs(options)
    trial = _trial(options, norm, graphs)
    (split,) = make_splits(graphs, [trial])
    if options.out.is_dir():
        raise GraphnormError("this is a folder, not a file", where=options.out, remedy="name a file in it")
    refuse_unwritable(options.out.parent)
    refuse_overwriting((options.data,), options.out)
    with results_alone():
        outcome = train(graphs, trial, options.out, running, callbacks=[Display()])
    if outcome.status == "diverged":
        raise GraphnormError("the training diverged; nothing is saved", remedy="try a smaller --lr, or another --norm")
    about = {"model": str(options.out), "dataset": graphs.name, "norm": trial.norm}
    scores = _scores(outcome, split, graphs.target_names, as_json=options.json)
    print(facts(about | scores | {"seconds": round(outcome.seconds, 2)}, as_json=options.json))


def _scores(outcome: Outcome, split: Split, targets: Sequence[str], *, as_json: bool) -> dict[str, Any]:
    """The metric on each part after the last epoch, as numbers for JSON, otherwise in words."""
    from graphnorm.files import plain
    from graphnorm.study.render import NOTHING, counted
    from graphnorm.training import metric_of

    metric, holds_out = metric_of(outcome.trial), outcome.trial.protocol != "all"
    shown: dict[str, Any] = {"metric": metric.name}
    for name, words in PARTS.items():
        if name in outcome.curves and (name == "train" or holds_out):
            value, count = metric.scale * float(outcome.curves[name][-1]), len(getattr(split, name))
            text = f"{counted(count, 'graph')}, {metric.name} {metric.with_unit(value)}"
            shown[words] = float(f"{value:.4g}") if as_json else text
    if outcome.targets.size and holds_out:
        each = [float(f"{metric.scale * value:.4g}") for value in outcome.targets[-1].tolist()]
        by_target = dict(zip(targets, plain(each), strict=True))
        text = ", ".join(f"{name} {NOTHING if value is None else value}" for name, value in by_target.items())
        shown[f"{PARTS['test' if 'test' in outcome.curves else 'valid']}, by target"] = by_target if as_json else text
    return shown


def _norm(options: argparse.Namespace) -> str:
    names = list(dict.fromkeys([*register_own_norms(options), *([options.norm] if options.norm else [])]))
    if len(names) > 1:
        raise GraphnormError(
            f"a model has one normalization, not {' and '.join(names)}",
            remedy="name one, with --norm or with --norm-module",
        )
    return names[0] if names else "graph"


def _trial(options: argparse.Namespace, norm: str, graphs: PackedGraphs) -> Trial:
    from graphnorm.models import find_model
    from graphnorm.study import find_protocol, make_plan, settle
    from graphnorm.training import metric_of, task_of

    settings = settle(graphs, norms=[norm], **given(options, Settings) | {"folds": options.folds})
    own = find_protocol(settings.protocol).unit == "seed" and "epochs" in find_model(settings.model).defaults
    if options.epochs is None and not own:
        settings = replace(settings, epochs=EPOCHS)
    trial = replace(make_plan(graphs, settings).trials[0], fold=options.fold, seed=options.seed)
    if not options.all:
        return trial
    task, metric = task_of(trial).name, metric_of(trial).key  # a default depends on the protocol
    return replace(trial, protocol="all", folds=1, fold=0, task=task, metric=metric)
