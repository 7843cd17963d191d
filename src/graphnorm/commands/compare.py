"""``graphnorm compare``: compare normalizations on a dataset."""

from __future__ import annotations

import argparse

from graphnorm.commands.options import add_json, add_study, print_result, result_text, results_alone, study_keywords

DESCRIPTION = """\
Train the same model with several normalizations on the same folds, and test whether the best is significantly better.

DATA is a dataset's name, a folder or zip in TU or OGB format, or a CSV, TSV or Parquet table of SMILES with labels. The
defaults are those of the paper's training curves with 12 epochs: `molecules` takes about two minutes on two CPU cores.
Twelve epochs show which normalization trains fastest, not which ends up most accurate: for that, use --epochs 400. With
--out, the same command again continues where it stopped.
"""
EXAMPLES = """\
examples:
  graphnorm compare                                      the molecules that come with RDKit
  graphnorm compare MUTAG --epochs 400 --out mutag       as in the paper; tables, curves and JSON in mutag/
  graphnorm compare PROTEINS --baselines wl,mlp          with a WL kernel, and an MLP on pooled features
  graphnorm compare mine.csv --target active --protocol fair --norms batch,graph
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("--out", metavar="DIR", help="folder for the store, tables, curves and JSON")
    parser.add_argument("--overwrite", action="store_true", help="delete the comparison that --out holds")
    add_study(parser, default_data="molecules")


def run(options: argparse.Namespace) -> None:
    from graphnorm.study import Stopped, compare

    try:
        with results_alone():
            keywords = study_keywords(options)
            result = compare(options.data, out=options.out, overwrite=options.overwrite, **keywords)
    except Stopped as stop:
        if stop.result.ranking and not options.json:
            print(result_text(stop.result, options.words))
        if options.out is None:
            stop.args = ("stopped; nothing is saved. With --out DIR the same command would continue",)
        raise
    written = f"written to {options.out}: result.json, tables as .csv, curves as .png and .svg"
    print_result(result, options, note=written if options.out else "")
