"""``graphnorm predict``: predict classes with a saved model."""

from __future__ import annotations

import argparse
import csv
import io
import json
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import add_data, add_json, add_norm_module, given, register_own_norms
from graphnorm.settings import Loading

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.training.model_file import SavedModel

DESCRIPTION = """\
Print the predicted class of each graph and its probability as CSV, and the accuracy if the data has labels. MODEL is a
file of `graphnorm train`. Graphs are numbered from 0, those of a table by its rows. A table of SMILES needs no labels;
--target and --threshold default to those of the training. A model with a custom normalization needs the --norm-module
that it was trained with.
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("model", metavar="MODEL", help="a file that `graphnorm train` wrote")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the CSV to a file")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    add_norm_module(parser)
    add_data(parser)


def run(options: argparse.Namespace) -> None:
    from graphnorm.files import replacing
    from graphnorm.study import render
    from graphnorm.training.model_file import load_model

    register_own_norms(options)
    saved = load_model(options.model, options.device)
    graphs, smiles = _load(options, saved)
    columns, rows, facts = _predict(saved, graphs, smiles)
    if options.json:
        print(json.dumps(facts | {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}, indent=1))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if options.out is None:
        print(text.getvalue(), end="")
        print("; ".join(f"{name.replace('_', ' ')}: {value}" for name, value in facts.items()), file=sys.stderr)
        return
    with replacing(options.out) as fresh:
        fresh.write_text(text.getvalue(), encoding="utf-8")
    print(render.facts({"predictions": str(options.out)} | facts))


def _load(options: argparse.Namespace, saved: SavedModel) -> tuple[PackedGraphs, list[str] | None]:
    """The graphs, and for a table of molecules the SMILES of each row.

    Unless the command says otherwise, labels of a table are read as in training.
    """
    from graphnorm.data import find_smiles_column, is_table, load, read_table

    keywords, smiles, path = given(options, Loading), None, Path(options.data)
    if is_table(path):
        columns = read_table(path).columns
        smiles = columns[find_smiles_column(columns, options.smiles, path)]
        if options.target is None and saved.label_column in columns:
            keywords["target"] = saved.label_column
        if options.threshold is None and keywords.get("target") is not None:
            keywords["threshold"] = saved.threshold
    root = keywords.pop("data_root", None)
    return load(options.data, root, **keywords, unlabelled=True), smiles


def _predict(
    saved: SavedModel, graphs: PackedGraphs, smiles: list[str] | None
) -> tuple[list[str], list[list[Any]], dict[str, Any]]:
    """Columns, a row for each graph, and facts about all graphs."""
    probabilities = saved.predict(graphs)
    chosen = probabilities.argmax(axis=1)
    shown: dict[str, list[Any]] = {"graph": graphs.rows}
    if smiles is not None:
        shown["smiles"] = [smiles[row].strip() for row in graphs.rows]
    shown["class"] = [saved.classes[k] for k in chosen]
    shown["probability"] = [round(float(of_graph[k]), 6) for of_graph, k in zip(probabilities, chosen, strict=True)]
    facts: dict[str, Any] = {"graphs": graphs.num_graphs}
    labels = saved.labels(graphs)
    if labels is None:
        facts["note"] = f"no accuracy: {_why_not(saved, graphs)}"
    else:
        shown["label"] = [saved.classes[k] for k in labels]
        facts["accuracy"] = round(100 * float((chosen == labels).mean()), 2)
        if graphs.fingerprint == saved.trial.fingerprint:
            facts["note"] = _about_training_graphs(saved)
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)], facts


def _why_not(saved: SavedModel, graphs: PackedGraphs) -> str:
    from graphnorm.data import UNKNOWN

    if graphs.classes == (UNKNOWN,):
        column = graphs.label_column
        return f"some rows have no value in the column {column!r}" if column else "the data has no labels"
    return f"the classes of the data are {_listed(graphs.classes)}; those of the model are {_listed(saved.classes)}"


def _listed(classes: Sequence[str], most: int = 10) -> str:
    rest = f" and {len(classes) - most} more" if len(classes) > most else ""
    return ", ".join(map(repr, classes[:most])) + rest


def _about_training_graphs(saved: SavedModel) -> str:
    from graphnorm.study.protocol import PROTOCOLS

    trial = saved.trial
    if trial.protocol not in PROTOCOLS:
        return "the model was trained on these graphs; on others it will be less accurate"
    protocol = PROTOCOLS[trial.protocol]
    where = f"fold {trial.fold} of {trial.folds}" if protocol.unit == "fold" else "the official test part"
    metric = saved.metric
    held_out = f"{metric.name} {metric.with_unit(metric.scale * saved.metrics[protocol.reported])}"
    return f"the model was trained on a part of these graphs; on {where}, which was held out, it has {held_out}"
