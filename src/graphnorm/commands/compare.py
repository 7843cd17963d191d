"""``graphnorm compare``: which normalization, on these graphs."""

from __future__ import annotations

import argparse
import json

from graphnorm.commands.options import add_data, add_json, add_norm_module, add_options, given, register_own_norms
from graphnorm.settings import DEFAULT_NORMS, Hyperparameters, Running, Settings, options_of

DESCRIPTION = """\
Train the same model with several normalizations on the same folds, and say which does best and how sure that is.

DATA is a dataset's name, a folder or zip in TU or OGB form, or a CSV, TSV or Parquet table of SMILES with labels. The
defaults are the setting of the paper's training curves with 12 epochs: `molecules` takes about two minutes on two CPU
cores. Twelve epochs show which normalization trains fastest, not which ends up most accurate: for that, --epochs 400.
With --out, the same command again goes on where it stopped.
"""
EXAMPLES = """\
examples:
  graphnorm compare                                      the molecules that come with RDKit
  graphnorm compare MUTAG --epochs 400 --out mutag       as in the paper; tables, curves and JSON in mutag/
  graphnorm compare PROTEINS --baselines wl,mlp          with a kernel, and a perceptron on pooled features
  graphnorm compare mine.csv --label active --protocol fair --norms batch,graph
"""


def add(parser: argparse.ArgumentParser) -> None:
    """Declare the options."""
    add_json(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the store, tables, curves and JSON")
    parser.add_argument("--overwrite", action="store_true", help="begin again, whatever --out holds")
    add_norm_module(parser)
    add_data(parser, default="molecules")
    add_options(parser, "what is compared", Settings, leave_out=options_of(Hyperparameters))
    add_options(parser, "model and training", Hyperparameters)
    add_options(parser, "where and how it runs", Running)


def run(options: argparse.Namespace) -> None:
    """Compare, and print the table and the verdict."""
    from graphnorm.study import Stopped, compare

    keywords = given(options)
    if own := register_own_norms(options):
        keywords["norms"] = ",".join([keywords.get("norms") or ",".join(DEFAULT_NORMS), *own])
    try:
        result = compare(options.data, out=options.out, overwrite=options.overwrite, **keywords)
    except Stopped as stop:
        if stop.result.ranking and not options.json:
            print(stop.result)
        if options.out is None:
            stop.args = ("stopped; nothing is kept: with --out DIR the same command goes on from there",)
        raise
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
        return
    print(result)
    if options.out:
        print(f"\nwritten to {options.out}: result.json, tables as .csv, curves as .png and .svg")
