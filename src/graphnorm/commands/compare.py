"""``graphnorm compare``: which normalization, on these graphs."""

from __future__ import annotations

import argparse
import json

from graphnorm.commands.options import (
    Subparsers,
    common,
    loading_keywords,
    model_options,
    own_graphs,
    own_norms,
    register_own_norms,
)

__all__ = ["add"]

SAME_NAMES = (
    *(
        "model",
        "norms",
        "baselines",
        "protocol",
        "folds",
        "seeds",
        "epochs",
        "batch_size",
        "lr",
        "weight_decay",
        "dropout",
    ),
    *("hidden", "layers", "self_loops", "readout", "device", "workers", "out", "resume", "overwrite", "data_root"),
)
"""Options that :func:`graphnorm.compare` takes under the same names."""

DESCRIPTION = """\
Train the same model with several normalizations on the same folds, and say which does best and how sure that is.

DATA is a dataset's name (see `graphnorm datasets`), a folder or zip in TU or OGB form, or a CSV, TSV or Parquet table
of SMILES with labels. Defaults are the setting of the paper's training curves with fewer epochs, so that `molecules`
takes about two minutes on two CPU cores; give --epochs 400 for the paper's own.
"""
EXAMPLES = """\
examples:
  graphnorm compare                                      the molecules that come with RDKit
  graphnorm compare MUTAG --epochs 400 --out mutag       as in the paper; tables, curves and JSON in mutag/
  graphnorm compare PROTEINS --baselines wl,mlp          with a kernel, and what pooled features alone can do
  graphnorm compare mine.csv --label active --protocol fair --norms batch,graph
"""


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "compare",
        help="which normalization, on these graphs",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[
            common(data_root=None, json=False),
            model_options("passes over the training graphs (default: 12; the paper's curves: 400)"),
            own_graphs(),
            own_norms(),
        ],
    )
    parser.add_argument("data", nargs="?", default="molecules", metavar="DATA", help="default: molecules")
    parser.add_argument("--norms", metavar="A,B,…", help="default: none,layer,batch,instance,graph")
    parser.add_argument(
        "--baselines", metavar="A,B,…", help="other methods beside them: wl, awl, mlp, dcnn, dgcnn, ogb-gin, ogb-gcn …"
    )
    parser.add_argument(
        "--protocol",
        metavar="NAME",
        help="paper: cross-validation, the folds choose the epoch and are reported; fair: a held-out tenth of each "
        "training part chooses; ogb: the official split (default: ogb where there is one, else paper)",
    )
    parser.add_argument("--folds", type=int, metavar="K", help="of the cross-validation (default: 10)")
    parser.add_argument("--seeds", type=int, metavar="N", help="trainings of each fold (default: 1; under ogb 10)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes to train in, on a CPU")
    parser.add_argument("--out", metavar="DIR", help="folder for tables, curves, JSON, and what --resume needs")
    parser.add_argument("--resume", action="store_true", help="do not train again what --out holds of the same run")
    parser.add_argument("--overwrite", action="store_true", help="begin anew whatever --out holds")
    parser.set_defaults(run=_run, stopped="stopped before anything was trained; nothing was saved")


def _run(options: argparse.Namespace) -> None:
    from graphnorm.comparison import ComparisonInterrupted, compare
    from graphnorm.comparison.settings import DEFAULT_NORMS

    keywords = {name: getattr(options, name) for name in SAME_NAMES}
    if own := register_own_norms(options):
        keywords["norms"] = ",".join([options.norms or ",".join(DEFAULT_NORMS), *own])
    try:
        comparison = compare(options.data, **keywords, **loading_keywords(options))
    except ComparisonInterrupted as stop:
        if stop.partial is not None and not options.json:
            print(stop.partial)
        raise
    if options.json:
        print(json.dumps(comparison.to_dict(), indent=1))
        return
    print(comparison)
    if options.out:
        print(f"\nwritten to {options.out}: comparison.json, tables as .csv, curves as .png and .svg")
