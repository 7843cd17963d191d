"""``graphnorm train``: one model, kept with everything needed to use it."""

from __future__ import annotations

import argparse
import tempfile
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import (
    Subparsers,
    common,
    load_graphs,
    model_options,
    own_graphs,
    own_norms,
    register_own_norms,
)
from graphnorm.commands.printing import print_facts
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.training import Trial

__all__ = ["add"]

EPOCHS = 100
DESCRIPTION = """\
Train one model and save it. A stratified tenth of the graphs is held out to measure it by (the official split where
the data has one); --all trains on every graph. `graphnorm predict` uses the model.
"""


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "train",
        help="train one model and save it",
        description=DESCRIPTION,
        parents=[
            common(data_root=None, json=False),
            model_options(f"passes over the training graphs (default: {EPOCHS})"),
            own_graphs(),
            own_norms(),
        ],
    )
    parser.add_argument("data", metavar="DATA", help="a dataset's name, or your own graphs")
    parser.add_argument("--norm", metavar="NAME", help="default: graph, or that of --norm-module")
    parser.add_argument("--out", type=Path, required=True, metavar="FILE", help="a .safetensors file")
    parser.add_argument("--folds", type=int, metavar="K", help="one graph in K is held out (default: 10)")
    parser.add_argument("--fold", type=int, default=0, metavar="N", help="which of the K folds, from 0 (default: 0)")
    parser.add_argument("--all", action="store_true", help="hold nothing out")
    parser.add_argument("--seed", type=int, default=0, help="of initialisation, order and dropout (default: 0)")
    parser.set_defaults(run=_run, stopped="stopped; nothing was saved")


def _run(options: argparse.Namespace) -> None:
    from graphnorm.comparison.display import choose_display
    from graphnorm.comparison.tally import Tally
    from graphnorm.layers import try_norm
    from graphnorm.study.protocol import PROTOCOLS, make_splits
    from graphnorm.training import train
    from graphnorm.training.fleet import default_device
    from graphnorm.training.model_file import save_model

    if options.out.suffix != ".safetensors":
        raise GraphnormError(f"a model is a .safetensors file, not {options.out}", remedy="name it model.safetensors")
    if not 0 <= options.seed < 2**63:
        raise GraphnormError(f"the seed is {options.seed}", remedy="give a whole number from 0, below 2**63")
    device = default_device(options.device)
    norm = _norm(options)
    graphs = load_graphs(options)
    trial = _trial(options, norm, graphs)
    try_norm(norm, trial.hidden, device)
    splits = make_splits(graphs, [trial])
    _refuse_unwritable(options.out)
    tally = Tally({trial.norm: [trial]})
    with choose_display(tally, show=True) as display:

        def on_epoch(progress: Any) -> None:
            tally.update(progress)
            display.refresh(trial.norm)

        (outcome,) = train(graphs, [trial], splits, device=device, on_epoch=on_epoch, keep_state=True)
    if outcome.status == "diverged":
        raise GraphnormError("the training diverged; nothing is saved", remedy="try a smaller --lr, or another --norm")
    save_model(outcome, graphs, options.out)
    metric = "accuracy" if trial.protocol == "all" else PROTOCOLS[trial.protocol].metric
    facts: dict[str, Any] = {"model": str(options.out), "dataset": graphs.name, "norm": trial.norm, "metric": metric}
    parts = {"train": "trained on", "valid": "held out", "test": "test"}
    for name, words in parts.items():
        if name in outcome.curves and not (trial.protocol == "all" and name != "train"):
            value, count = 100 * float(outcome.curves[name][-1]), len(getattr(splits[0], name))
            people = f"{value:.1f} % of {count} graph{'' if count == 1 else 's'}"
            facts[words] = round(value, 2) if options.json else people
    facts["seconds"] = round(outcome.seconds, 2)
    print_facts(facts, options.json)


def _refuse_unwritable(path: Path) -> None:
    """Make the folder that a file is to lie in, and see that it can be written, before work is spent on the file."""
    if path.is_dir():
        raise GraphnormError("this is a folder, not a file", where=path, remedy="name a file in it")
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryFile(dir=path.parent):
            pass
    except OSError as error:
        raise GraphnormError(
            f"the model could not be written here: {error.strerror}: {error.filename}",
            where=path,
            remedy="name a file in a folder that you may write to",
        ) from error


def _norm(options: argparse.Namespace) -> str:
    """The one normalization that the options name."""
    names = list(dict.fromkeys([*register_own_norms(options), *([options.norm] if options.norm else [])]))
    if len(names) > 1:
        raise GraphnormError(
            f"a model has one normalization, not {' and '.join(names)}",
            remedy="name one, with --norm or with --norm-module",
        )
    return names[0] if names else "graph"


def _trial(options: argparse.Namespace, norm: str, graphs: PackedGraphs) -> Trial:
    from graphnorm.comparison.settings import settle

    names = ("model", "readout", "self_loops", "folds", "epochs", "batch_size", "lr", "weight_decay", "dropout",
             "hidden", "layers")  # fmt: skip
    keywords = {name: getattr(options, name) for name in names}
    settings = settle(graphs, norms=[norm], **keywords)
    if options.epochs is None and settings.protocol != "ogb":
        settings = replace(settings, epochs=EPOCHS)
    if not 0 <= options.fold < settings.folds:
        raise GraphnormError(f"there is no fold {options.fold} of {settings.folds}", remedy="folds count from 0")
    trial = replace(settings.trials(graphs, norm)[0], fold=options.fold, seed=options.seed)
    return replace(trial, protocol="all", folds=1, fold=0) if options.all else trial
