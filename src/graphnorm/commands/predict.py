"""``graphnorm predict``: predict classes, binary targets or real values with a saved model."""

from __future__ import annotations

import argparse
import csv
import io
import json
import math
import sys
from collections.abc import Iterable, Sequence
from dataclasses import replace
from decimal import Decimal
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import add_data, add_json, add_norm_module, given, register_own_norms, results_alone
from graphnorm.settings import Loading

if TYPE_CHECKING:
    import numpy as np
    import numpy.typing as npt
    from torch import Tensor

    from graphnorm.data import PackedGraphs
    from graphnorm.training.model_file import SavedModel

DESCRIPTION = """\
Print predictions as CSV: the class of each graph and the probability of every class, the probability of every binary
target, or real values in the unit of the training data. If the data has labels, the metric follows. MODEL is a file of
`graphnorm train`. Graphs are numbered from 0, those of a table by its rows. A table of SMILES needs no labels;
--smiles, --target, --task and --threshold default to those of the training. If the model or its normalization is
your own, give the --model or --norm-module that it was trained with.
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("model", metavar="MODEL", help="a file that `graphnorm train` wrote")
    parser.add_argument("--out", type=Path, metavar="FILE", help="write the CSV to a file")
    parser.add_argument("--device", default="cpu", help="default: cpu")
    parser.add_argument("--model", dest="code", metavar="FILE.py:NAME", help="the code of a model of your own")
    add_norm_module(parser)
    add_data(parser)


def run(options: argparse.Namespace) -> None:
    from graphnorm.files import refuse_overwriting, write_text
    from graphnorm.study import render
    from graphnorm.training.model_file import load_model

    if options.out is not None:
        refuse_overwriting((options.model, options.data, options.split), options.out)
    with results_alone():
        register_own_norms(options)
        saved = load_model(options.model, options.device, options.code)
        graphs, smiles = _load(options, saved)
        columns, rows, facts = _predict(saved, graphs, smiles)
    if options.json and options.out is None:
        print(json.dumps(facts | {"predictions": [dict(zip(columns, row, strict=True)) for row in rows]}, indent=1))
        return
    text = io.StringIO()
    writer = csv.writer(text, lineterminator="\n")
    writer.writerow(columns)
    writer.writerows(rows)
    if options.out is None:
        print(text.getvalue(), end="")
        print("; ".join(f"{name}: {value}" for name, value in _shown(facts).items()), file=sys.stderr)
        return
    write_text(options.out, text.getvalue())
    shown = facts if options.json else _shown(facts)
    print(render.facts({"predictions": str(options.out)} | shown, as_json=options.json))


def _load(options: argparse.Namespace, saved: SavedModel) -> tuple[PackedGraphs, list[str] | None]:
    """The graphs, and for a table of molecules the SMILES of each row.

    Unless the command says otherwise, labels of a table are read as in training.
    """
    from graphnorm.data import find_smiles_column, is_table, load, read_table

    keywords, smiles, path = given(options, Loading), None, Path(options.data)
    if is_table(path):
        columns = read_table(path).columns
        named = set(columns) - {""}  # an index, as pandas writes it
        if options.smiles is None and saved.example.smiles_column in named:
            keywords["smiles"] = saved.example.smiles_column
        smiles = columns[find_smiles_column(columns, keywords.get("smiles"), path)]
        names = saved.target_names or (saved.example.label_column,)
        if options.target is None and set(names) <= named:
            keywords["target"] = list(names)
            keywords.setdefault("task", saved.task.name if saved.target_names else None)
        if options.threshold is None and keywords.get("target") is not None:
            keywords["threshold"] = saved.example.threshold
    root = keywords.pop("data_root", None)
    return load(options.data, root, **keywords, unlabelled=True), smiles


def _predict(
    saved: SavedModel, graphs: PackedGraphs, smiles: list[str] | None
) -> tuple[list[str], list[list[Any]], dict[str, Any]]:
    """Columns, a row for each graph, and facts about all graphs."""
    scores = saved.scores(graphs)
    predicted, wanted = saved.predictions(scores), saved.wanted(graphs)
    shown: dict[str, list[Any]] = {"graph": graphs.rows}
    if smiles is not None:
        shown["smiles"] = [smiles[row].strip() for row in graphs.rows]
    if saved.target_names:
        _add_targets(shown, saved, predicted, wanted)
    else:
        _add_classes(shown, saved, predicted, wanted)
    facts: dict[str, Any] = {"graphs": graphs.num_graphs}
    if wanted is None:
        facts["note"] = f"no {saved.metric.name}: {_why_not(saved, graphs)}"
    else:
        facts |= _scores(saved, scores, wanted)
        absent = [name for name in saved.target_names if name not in graphs.target_names]
        if absent and len(saved.target_names) > 1:
            facts["not in the data"] = _listed(absent)
        if replace(graphs, splits={}).fingerprint == saved.graphs:
            facts["note"] = _about_training_graphs(saved)
    return list(shown), [list(row) for row in zip(*shown.values(), strict=True)], facts


def _add_targets(
    shown: dict[str, list[Any]], saved: SavedModel, predicted: npt.NDArray[Any], wanted: npt.NDArray[Any] | None
) -> None:
    for k, name in enumerate(saved.target_names):
        if saved.task.name == "values":
            shown[f"{name} (predicted)" if name in shown else name] = _single(predicted[:, k])
        else:
            shown[f"P({name})"] = _probabilities(predicted[:, k])
        if wanted is not None:
            given = _single(wanted[:, k])
            whole = saved.task.name == "binary"
            shown[f"{name} (given)"] = [None if v is None else int(v) for v in given] if whole else list(given)


def _add_classes(
    shown: dict[str, list[Any]], saved: SavedModel, predicted: npt.NDArray[Any], wanted: npt.NDArray[Any] | None
) -> None:
    import numpy as np

    best = [saved.classes[k] for k in predicted.argmax(axis=1)]
    shown["class"] = [None if np.isnan(row).any() else name for name, row in zip(best, predicted, strict=True)]
    shown["probability"] = _probabilities(predicted.max(axis=1))
    shown |= {f"P({name})": _probabilities(predicted[:, k]) for k, name in enumerate(saved.classes)}
    if wanted is not None:
        shown["label"] = [None if k < 0 else saved.classes[int(k)] for k in wanted]


def _shown(facts: dict[str, Any]) -> dict[str, str]:
    """Facts as text, metrics with their unit."""
    from graphnorm.study.render import NOTHING
    from graphnorm.training import METRICS

    units = {metric.name: metric.unit for metric in METRICS.values()}

    def text(fact: str, value: Any) -> str:
        if isinstance(value, dict):
            return ", ".join(f"{target} {text(fact, one)}" for target, one in value.items())
        unit = units.get(fact.removesuffix(" by target"), "")
        return NOTHING if value is None else f"{value} {unit}".rstrip()

    return {name: text(name, value) for name, value in facts.items()}


def _plain(values: Iterable[float]) -> list[float | None]:
    """Six digits; None for NaN."""
    return [None if math.isnan(value) else float(f"{value:.6g}") for value in values]


def _single(values: npt.NDArray[np.floating[Any]]) -> list[float | None]:
    """As few digits as tell all values of single precision apart; None for NaN."""
    return [None if math.isnan(value) else float(str(value)) for value in values.astype("float32")]


def _probabilities(values: Iterable[float]) -> list[float | None]:
    """Six digits of the probability and of its complement, so that those close to 1 keep their order.

    >>> _probabilities([0.123456789, 0.52476512, 0.999999999864])
    [0.123457, 0.524765, 0.999999999864]
    """
    six = [(_plain([value])[0], _plain([1 - value])[0]) for value in values]
    return [near if near is None or rest is None or near < 0.5 else float(1 - Decimal(str(rest))) for near, rest in six]


def _scores(saved: SavedModel, scores: Tensor, wanted: npt.NDArray[Any]) -> dict[str, Any]:
    """The model's metric, of several targets also by target; and the accuracy of classes."""
    from graphnorm.training import METRICS

    found: dict[str, Any] = {}
    for metric in dict.fromkeys((saved.metric, saved.metric if saved.target_names else METRICS["accuracy"])):
        each = saved.score(metric.key, scores, wanted)
        known = [value for value in each if not math.isnan(value)]
        found[metric.name] = _plain([metric.scale * sum(known) / len(known)])[0] if known else None
        if saved.target_names[1:]:
            values = _plain(metric.scale * value for value in each)
            found[f"{metric.name} by target"] = dict(zip(saved.target_names, values, strict=True))
    return found


def _why_not(saved: SavedModel, graphs: PackedGraphs) -> str:
    from graphnorm.data import UNKNOWN

    if saved.target_names and graphs.task != "classes":
        return (
            f"the targets of the data are {_listed(graphs.target_names)}; the model has {_listed(saved.target_names)}"
        )
    if graphs.classes == (UNKNOWN,):
        return "the data has no labels"
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
    where = f"fold {trial.fold} of {trial.folds}" if protocol.unit == "fold" else "the test part of the split"
    metric = saved.metric
    said = "the model was trained on a part of these graphs"
    if protocol.reported not in saved.metrics:
        return said
    held_out = f"{metric.name} {metric.with_unit(metric.scale * saved.metrics[protocol.reported])}"
    return f"{said}; on {where}, which was held out, it has {held_out}"
