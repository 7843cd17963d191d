"""Trained models on disk: weights, and everything needed to use them on other graphs, in one safetensors file."""

from __future__ import annotations

import json
import math
import os
import reprlib
import warnings
from collections.abc import Callable, Mapping
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor, nn

from graphnorm._version import exact_version
from graphnorm.data import UNKNOWN, PackedGraphs, as_graphs, decoding
from graphnorm.errors import PATH, CodeWarning, DataWarning, GraphnormError, need, require
from graphnorm.files import save_tensors
from graphnorm.layers import BUILT_IN, REGISTRY, norm_code
from graphnorm.models.build import prepare
from graphnorm.models.own import OwnModel
from graphnorm.models.registry import find_model, name_model
from graphnorm.training.devices import default_device
from graphnorm.training.inputs import ModelInputs, build_model
from graphnorm.training.metrics import Metric
from graphnorm.training.task import TASKS, Scale, Task, task_of
from graphnorm.training.trial import Outcome, Trial, metric_of

__all__ = ["FORMAT", "SavedModel", "load_model", "save_model"]

FORMAT = "graphnorm-model-4"
"""Version of the file format. It also changes when a model computes something else from the same weights."""


@dataclass(frozen=True, eq=False)
class SavedModel:
    """A trained model, and facts about its training data."""

    model: nn.Module
    trial: Trial
    metrics: dict[str, float]
    """The metric on each part of the training data after the last epoch, not scaled."""
    graphs: str
    """The fingerprint of the training data without its split."""
    example: PackedGraphs
    """A graph of one node that has the features, classes and targets of the training data."""
    scale: Scale | None = None
    """Mean and standard deviation of real targets in training, (1, T)."""

    @property
    def classes(self) -> tuple[str, ...]:
        """Names of the classes in the training data."""
        return self.example.classes

    @property
    def target_names(self) -> tuple[str, ...]:
        """Names of the targets, if the model predicts any."""
        return self.example.target_names

    def predict(self, data: Any, *, batch_size: int = 256, **loading: Any) -> npt.NDArray[np.float64]:
        """The prediction for every graph.

        data: graphs of any form, as :func:`graphnorm.data.as_graphs` takes them. They need no labels.
        loading: options of :func:`graphnorm.data.load`, such as ``smiles="structure"``.

        (G, classes): the probability of each class. (G, T): the probability of each binary target, or each real value
        in the unit of the training data.
        """
        graphs = as_graphs(data, unlabelled=True, **loading)
        return self.predictions(self.scores(graphs, batch_size=batch_size))

    def scores(self, graphs: PackedGraphs, *, batch_size: int = 256) -> Tensor:
        """What the model says of every graph, in double: scores of classes, log-odds of targets, or real values."""
        self.check(graphs)
        graphs = prepare(graphs, self.trial).to(next(self.model.parameters()).device)
        inputs, parts = ModelInputs(graphs, self.trial), []
        with torch.no_grad():
            for first in range(0, graphs.num_graphs, batch_size):
                batch = inputs.batch(range(first, min(first + batch_size, graphs.num_graphs)))
                scores = self.model(**inputs(batch, may_pad=False)).double().cpu()
                parts.append(scores if self.scale is None else self.scale.restore(scores[None])[0])
        scores = torch.cat(parts)
        if lost := int(scores.isnan().any(1).sum()):
            problem = f"the predictions of {lost} of {graphs.num_graphs} graphs are NaN; train the model again"
            warnings.warn(problem, DataWarning, stacklevel=2)
        if self.task.name == "binary" and not self.target_names:  # the log-odds of the second of two classes
            scores = torch.cat([torch.zeros_like(scores), scores], dim=1)
        return scores

    def predictions(self, scores: Tensor) -> npt.NDArray[np.float64]:
        """:meth:`predict`, from scores."""
        return self._shown.predictions(scores).numpy()

    @property
    def _shown(self) -> Task:
        """The task of what is predicted: two classes are classes, even if they were trained as a binary target."""
        return self.task if self.target_names else TASKS["classes"]

    @property
    def task(self) -> Task:
        return task_of(self.trial)

    @property
    def metric(self) -> Metric:
        return metric_of(self.trial)

    def wanted(self, graphs: PackedGraphs) -> npt.NDArray[Any] | None:
        """What the graphs' labels say, matched by name: (G,) classes or (G, T) targets, -1 or NaN where one is missing.

        None if the model does not know a class, or the graphs have none of its targets. An only target may have another
        name.
        """
        if not self.target_names:
            return self.labels(graphs)
        if graphs.targets is None or graphs.task != self.task.name:
            return None
        if len(self.target_names) == len(graphs.target_names) == 1:
            only: npt.NDArray[Any] = graphs.targets.cpu().numpy()
            return only
        known = [k for k, name in enumerate(self.target_names) if name in graphs.target_names]
        if not known:
            return None
        columns = [graphs.target_names.index(self.target_names[k]) for k in known]
        targets = np.full((graphs.num_graphs, len(self.target_names)), np.nan, np.float32)
        targets[:, known] = graphs.targets[:, columns].cpu().numpy()
        return targets

    def score(self, metric: str, scores: Tensor, wanted: npt.NDArray[Any]) -> list[float]:
        """A metric of scores, for each target; NaN where it is not defined. It is not scaled."""
        each = self._shown.each(metric, scores[None], torch.from_numpy(wanted)[None])[0]
        return each.tolist() if self.target_names else [float(each.nanmean())]

    def check(self, graphs: PackedGraphs) -> None:
        """Raise an error if the graphs have other features than the training data."""
        takes = {"categories of nodes": "cardinalities", "continuous features of nodes": "num_continuous"}
        if self._sees_edges:
            takes |= {
                "categories of edges": "edge_cardinalities",
                "continuous features of edges": "num_edge_continuous",
            }
        for what, name in takes.items():
            wanted, found = getattr(self.example, name), getattr(graphs, name)
            if wanted != found:
                raise GraphnormError(
                    f"the features do not fit: trained on {self.trial.dataset} with {what} {wanted or 'none'}; "
                    f"{graphs.name} has {found or 'none'}",
                    remedy="use graphs with features of the same kind and the same values; molecules given as SMILES "
                    "always have them",
                )
        values = [("nodes", self.example.vocabulary, graphs.vocabulary)]
        values += [("edges", self.example.edge_vocabulary, graphs.edge_vocabulary)] if self._sees_edges else []
        for what, of_training, found_values in values:
            if of_training and found_values and of_training != found_values:
                raise GraphnormError(
                    f"the categories of {what} number other values in {graphs.name} than in the training data, "
                    f"{self.trial.dataset}",
                    remedy="use graphs in which the same labels, or degrees, occur; or load both sets as one",
                )

    @property
    def _sees_edges(self) -> bool:
        if isinstance(self.model, OwnModel):
            return self.model.sees_edges
        return find_model(self.trial.model).inputs == "molecules"

    def labels(self, graphs: PackedGraphs) -> npt.NDArray[np.int64] | None:
        """(G,): the graphs' labels, numbered as the model numbers classes, -1 where one is missing.

        Classes are matched by name, and numbers by value: 1.0 is 1. None if the model does not know a class, or no
        graph has a label.
        """
        number = {_value(name): k for k, name in enumerate(self.classes)} | {n: k for k, n in enumerate(self.classes)}
        places = [number.get(name, number.get(_value(name), -1)) for name in graphs.classes]
        unknown = [name for name, place in zip(graphs.classes, places, strict=True) if place < 0]
        if unknown not in ([], [UNKNOWN]) or len(unknown) == len(places):
            return None
        numbered: npt.NDArray[np.int64] = np.array(places, dtype=np.int64)[graphs.labels.cpu().numpy()]
        return numbered


def save_model(outcome: Outcome, graphs: PackedGraphs, path: str | os.PathLike[str]) -> None:
    """Write a trained model to a file, completely or not at all.

    outcome: with its ``state``, as ``train(..., keep_state=True)`` returns it.
    graphs: the training data.
    """
    require("outcome", outcome, Outcome, "what training gives: train(..., keep_state=True)[0]")
    require("graphs", graphs, PackedGraphs, "PackedGraphs, those that were trained on")
    require("path", path, PATH, "the path of a file")
    if not outcome.state:
        raise ValueError("the outcome has no weights; train with keep_state=True")
    if outcome.status != "done":
        raise ValueError("the training diverged, so there is no model to save")
    description = {
        "format": FORMAT,
        "version": exact_version(),
        "trial": outcome.trial.to_dict(),
        "graphs": replace(graphs, splits={}).fingerprint,
        "norm_factory": "" if (own := norm_code(outcome.trial.norm)) is None else own.place,
        "metrics": {name: float(curve[-1]) for name, curve in outcome.curves.items() if name != "loss"},
        **{name: getattr(graphs, name) for name in _OF_GRAPHS},
    }
    weights = {name: tensor.detach().cpu().contiguous().clone() for name, tensor in outcome.state.items()}
    save_tensors(Path(path), weights, description, "saving a model")


def load_model(
    path: str | os.PathLike[str],
    device: str | torch.device = "cpu",
    model: str | Callable[..., nn.Module] | None = None,
) -> SavedModel:
    """Read a model that :func:`save_model` wrote, ready to predict.

    model: the code of a model of your own, ``FILE.py:NAME`` or the class; it is not in the file.
    """
    require("path", path, PATH, "the path of a file that save_model wrote")
    chosen = default_device(device)
    with decoding(str(path)):
        description, weights = _read(Path(path))
        trial = _trial_of(description, path)
        trained = trial.model
        if model is not None:
            trial = _with_code(trial, name_model(model), path)
        example = _example(description, trial)
        scale = _scale_of(weights, len(example.target_names)) if task_of(trial).name == "values" else None
        network = _rebuild(trial, example, weights, path)
    if trial.model.rpartition(":")[2] != trained.rpartition(":")[2]:  # the name and the digest; a file may be renamed
        warnings.warn(
            f"{path} was trained with {trained}, and this is {trial.model}; its weights fit and are used all the same",
            CodeWarning,
            stacklevel=2,
        )
    if not all(bool(values.isfinite().all()) for values in weights.values() if values.is_floating_point()):
        warnings.warn(
            f"{path}: some weights are NaN or infinite, so predictions may be NaN; train the model again",
            DataWarning,
            stacklevel=2,
        )
    return SavedModel(network.to(chosen).eval(), trial, description["metrics"], description["graphs"], example, scale)


def _read(path: Path) -> tuple[dict[str, Any], dict[str, torch.Tensor]]:
    """The description and the weights."""
    safetensors = need("safetensors", "loading a model", "data")
    if path.is_dir():
        raise GraphnormError(
            "this is a folder; predictions need one model", where=path, remedy="make it with `graphnorm train`"
        )
    if not path.is_file():
        raise GraphnormError("there is no such file", where=path, remedy="check the path")
    try:
        with safetensors.safe_open(path, framework="pt") as file:
            description: dict[str, Any] = json.loads((file.metadata() or {}).get("graphnorm", "{}"))
            weights = {name: file.get_tensor(name) for name in file.keys()}  # noqa: SIM118
    except safetensors.SafetensorError as error:
        raise GraphnormError(
            "this is not a model file written by `graphnorm train`, or not all of it",
            where=path,
            remedy="give a .safetensors file that `graphnorm train` wrote; the model comes before the data",
        ) from error
    if description.get("format") != FORMAT:
        raise GraphnormError(
            f"the file has the format {description.get('format')}, not {FORMAT}",
            where=path,
            remedy="give a file that `graphnorm train` wrote",
        )
    return description, weights


def _trial_of(description: Mapping[str, Any], path: str | os.PathLike[str]) -> Trial:
    """The trial, if its normalization is known; with a warning if its code has changed."""
    trial = Trial.from_dict(description["trial"])
    if trial.norm not in REGISTRY:
        factory = description["norm_factory"] or "FILE.py:FACTORY"
        raise GraphnormError(
            f"the model has a normalization of its own, {trial.norm!r}, whose code is not in the file",
            where=path,
            remedy=f"register it again: --norm-module {trial.norm}={factory}, or in Python "
            f"register_norm({trial.norm!r}, …)",
        )
    if (of_norm := norm_code(trial.norm)) is not None and of_norm.digest != trial.norm_digest:
        changed = f"{path}: the code of the normalization {trial.norm!r} has changed since the training"
        warnings.warn(changed, CodeWarning, stacklevel=3)
    return trial


def _scale_of(weights: dict[str, torch.Tensor], targets: int) -> Scale:
    """The scale of real targets, which is taken out of the weights."""
    scale = Scale(*(weights.pop(f"targets.{name}").double()[None] for name in Scale._fields))
    if {tuple(part.shape) for part in scale} != {(1, targets)}:
        raise ValueError("the means and standard deviations do not fit the targets")
    if not all(bool(part.isfinite().all()) for part in scale) or not bool((scale.std > 0).all()):
        raise ValueError("the means and standard deviations of the targets are not finite")
    return scale


def _rebuild(
    trial: Trial, example: PackedGraphs, weights: Mapping[str, torch.Tensor], path: str | os.PathLike[str]
) -> nn.Module:
    """The trial's model with these weights."""
    own = find_model(trial.model).code is not None
    if not own and trial.norm in BUILT_IN:  # its size is known before memory is taken
        with torch.device("meta"):
            expected = build_model(trial, example).state_dict()
        if problem := _difference(expected, weights):
            raise ValueError(problem)
    network = build_model(trial, example)
    if problem := _difference(network.state_dict(), weights):
        code = f"the model {trial.model}" if own else f"the normalization {trial.norm!r} that is registered"
        raise GraphnormError(
            f"the weights are not those of {code}: {problem}",
            where=path,
            remedy="give the code that the model was trained with",
        )
    network.load_state_dict(weights)
    return network


def _with_code(trial: Trial, given: str, path: str | os.PathLike[str]) -> Trial:
    """The trial with the code that is given for its model."""
    if "@" not in trial.model:
        raise GraphnormError(f"the model is {trial.model}, whose code is known", where=path, remedy="leave --model out")
    if "@" not in given:
        place = trial.model.partition("@")[0]
        raise GraphnormError(
            f"the weights are not those of the model {given}: the file was trained with {place}, a model of your own",
            where=path,
            remedy=f"give its code: --model FILE.py:{place.rpartition(':')[2]}",
        )
    return replace(trial, model=given)


_OF_GRAPHS: dict[str, Any] = {
    "classes": str,
    "target_names": str,
    "cardinalities": int,
    "edge_cardinalities": int,
    "num_continuous": int,
    "num_edge_continuous": int,
    "smiles_column": str,
    "label_column": str,
    "threshold": float | None,
    "vocabulary": str,
    "edge_vocabulary": str,
}
"""The attributes of the training data that a description has: the type of each value, or of the entries of a list."""
_LISTS = ("classes", "target_names", "cardinalities", "edge_cardinalities")
_WIDEST = 1 << 24
"""Features of a node or an edge."""


def _example(description: dict[str, Any], trial: Trial) -> PackedGraphs:
    """A graph as those of the training, from a description, which anyone may have written."""
    of_graphs: dict[str, Any] = {}
    for name, kind in (_OF_GRAPHS | {"metrics": dict, "graphs": str}).items():
        value = description[name]
        entries = value if name in _LISTS and isinstance(value, list) else [value]
        if (name in _LISTS) != isinstance(value, list):
            raise ValueError(f"{name} is {reprlib.repr(value)}")
        for entry in entries:
            if not isinstance(entry, kind) or isinstance(entry, bool) or (kind is int and entry < (name in _LISTS)):
                raise ValueError(f"{name} has {reprlib.repr(entry)}")
        of_graphs[name] = tuple(value) if name in _LISTS else value
    if sum(of_graphs["cardinalities"] + of_graphs["edge_cardinalities"]) > _WIDEST:
        raise ValueError("it has too many categories")
    task, metric = task_of(trial), metric_of(trial)
    if metric.key not in task.metrics:
        raise ValueError(f"the metric {trial.metric} does not fit the task {task.name}")
    targets = of_graphs["target_names"]
    if (task.name == "values" and not targets) or (task.name == "classes" and targets):
        raise ValueError(f"the targets do not fit the task {task.name}")
    for value in description["metrics"].values():
        if type(value) is not float or math.isinf(value):
            raise ValueError(f"a metric is {reprlib.repr(value)}")
    return _one_node(trial.dataset, **{name: of_graphs[name] for name in _OF_GRAPHS})


def _difference(expected: Mapping[str, torch.Tensor], given: Mapping[str, torch.Tensor]) -> str:
    """How given weights differ from the expected ones, in name, shape or type; empty if they fit."""
    for name in (*expected, *given):
        if name not in given:
            return f"{name} is missing"
        if name not in expected:
            return f"{name} is not a part of the model"
        shapes = tuple(given[name].shape), tuple(expected[name].shape)
        if shapes[0] != shapes[1]:
            return f"{name} has the shape {shapes[0]} instead of {shapes[1]}"
        types = given[name].dtype, expected[name].dtype
        if types[0] != types[1]:
            return f"{name} has the type {types[0]} instead of {types[1]}"
    return ""


def _value(name: str) -> str | float:
    """A class name as a number, if it is one."""
    try:
        return float(name)
    except ValueError:
        return name


def _one_node(name: str, *, num_continuous: int, num_edge_continuous: int, **others: Any) -> PackedGraphs:
    """A graph of one node with these features. The shape of a model depends on nothing else."""
    targets, tags, edge_tags = (len(others[each]) for each in ("target_names", "cardinalities", "edge_cardinalities"))
    return PackedGraphs(
        name=name,
        node_ptr=torch.tensor([0, 1]),
        rowptr=torch.tensor([0, 0]),
        col=torch.zeros(0, dtype=torch.int32),
        labels=torch.zeros(1, dtype=torch.int64),
        task="values" if targets else "classes",
        targets=torch.zeros(1, targets) if targets else None,
        tags=torch.zeros(1, tags, dtype=torch.int32) if tags else None,
        x=torch.zeros(1, 1).expand(1, num_continuous) if num_continuous else None,  # takes no memory
        edge_tags=torch.zeros(0, edge_tags, dtype=torch.int32) if edge_tags else None,
        edge_x=torch.zeros(0, num_edge_continuous) if num_edge_continuous else None,
        **others,
    )
