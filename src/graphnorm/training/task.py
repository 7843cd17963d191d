"""Tasks: the targets to predict, the loss to train with, and the metrics that can select and be reported.

Losses and metrics are computed for all members of a fleet at once, without waiting for the device. What is wanted of
the graphs of a batch has one of two forms: the classes, (M, n) int64, where -1 marks an empty place; or targets,
(M, n, T), where NaN marks a missing one.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from torch import Tensor
from torch.nn import functional

from graphnorm.data.batching import GraphBatch
from graphnorm.data.packed import PackedGraphs
from graphnorm.errors import GraphnormError
from graphnorm.training import metric_functions as scoring
from graphnorm.training.metric_functions import Columns
from graphnorm.training.metrics import METRICS, USUAL, implied_task
from graphnorm.training.trial import Trial

__all__ = ["RARE", "TASKS", "Scale", "Task", "choose_metric", "find_task"]
__all__ += ["present", "scale_of", "select", "smaller_class", "task_name", "task_of"]

Graphs = GraphBatch | PackedGraphs
RARE = 0.2
"""If fewer graphs than this share are in the smaller of two classes, accuracy says little."""
TARGETS_AT_ONCE = 64
"""A metric of hundreds of targets would need memory for all of them."""


@dataclass(frozen=True)
class Task:
    """One kind of target."""

    name: str
    wanted: Callable[[Graphs], Tensor]
    """Gives the class or the targets of each graph."""
    outputs: Callable[[PackedGraphs], int]
    """The number of scores that a model gives each graph."""
    loss: Columns
    """The mean loss of each member over what is present, (M,); 0 if nothing is."""
    metrics: Mapping[str, Columns]
    """By key. Each gives (M, T): one value for each target, or for each class."""
    constants: Callable[[Tensor], Tensor]
    """(C, 1, outputs): scores that ignore the graph, from what is wanted of all graphs, to measure chance."""
    predictions: Callable[[Tensor], Tensor]
    """(G, outputs) scores to probabilities, (G, classes) or (G, T), or to values."""

    def each(self, metric: str, scores: Tensor, wanted: Tensor) -> Tensor:
        """(M, T): the metric of each target, or the shares of each class; NaN where it is not defined."""
        compute = self.metrics[metric]
        if wanted.ndim < scores.ndim:
            return compute(scores, wanted)
        parts = zip(*(torch.split(part, TARGETS_AT_ONCE, -1) for part in (scores, wanted)), strict=True)
        return torch.cat([compute(*part) for part in parts], dim=-1)

    def score(self, metric: str, scores: Tensor, wanted: Tensor) -> Tensor:
        """(M,): the mean over the targets for which the metric is defined; NaN if a score is NaN."""
        return self.mean(self.each(metric, scores, wanted), scores, wanted)

    def mean(self, each: Tensor, scores: Tensor, wanted: Tensor) -> Tensor:
        """:meth:`score`, from the metric of each target."""
        real = present(wanted) if wanted.ndim == scores.ndim else present(wanted)[..., None]
        return torch.where((scores.isnan() & real).any(-1).any(-1), torch.nan, each.nanmean(1)).to(torch.float32)

    def chance(self, metric: str, wanted: Tensor) -> float:
        """The best value of the metric for a model that gives all graphs the same scores.

        wanted: what is wanted of the graphs that are reported.
        """
        wanted = wanted[None].cpu()
        constants = self.constants(wanted).expand(-1, wanted.shape[1], -1)
        values = self.each(metric, constants, wanted.expand(len(constants), *wanted.shape[1:]))
        if wanted.ndim < constants.ndim:
            values = values.nanmean(1, keepdim=True)  # one constant for all classes, but one for each target
        sign = METRICS[metric].sign
        return float((sign * (sign * values).amax(0)).nanmean())


def present(wanted: Tensor) -> Tensor:
    """Which classes or targets are there."""
    return ~wanted.isnan() if wanted.is_floating_point() else wanted >= 0


# Losses


def class_loss(scores: Tensor, labels: Tensor) -> Tensor:
    """Mean cross-entropy of each member: (M, B, K) scores and (M, B) labels to (M,)."""
    each = functional.cross_entropy(scores.flatten(0, 1), labels.flatten(), reduction="none", ignore_index=-1)
    return each.view(labels.shape).sum(1) / (labels >= 0).sum(1).clamp(min=1)


def binary_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean binary cross-entropy of each member over the targets that are there: (M, B, T) log-odds to (M,)."""
    real = present(targets)
    wanted = targets.nan_to_num().to(scores.dtype)
    each = functional.binary_cross_entropy_with_logits(scores, wanted, reduction="none")
    return (each * real).sum((1, 2)) / real.sum((1, 2)).clamp(min=1)


def squared_loss(scores: Tensor, targets: Tensor) -> Tensor:
    """Mean squared error of each member over the targets that are there: (M, B, T) to (M,)."""
    real = present(targets)
    each = (scores - targets.nan_to_num().to(scores.dtype)).square()
    return (each * real).sum((1, 2)) / real.sum((1, 2)).clamp(min=1)


# The table


def _targets(graphs: Graphs) -> Tensor:
    """The targets, or a label of two classes as the only one."""
    if graphs.targets is not None:
        return graphs.targets
    labels = graphs.labels[..., None]
    return torch.where(labels >= 0, labels.float(), torch.nan)


def _of_classes(compute: Columns, *, ranks: bool = True) -> Columns:
    """A metric of binary targets for classes: of the second of two, or of each of several against the others.

    ranks: whether the metric takes scores in order of probability; if not, it takes the chosen class.
    """

    def of_classes(scores: Tensor, labels: Tensor) -> Tensor:
        if scores.shape[-1] == 2:
            targets = torch.where(labels >= 0, labels.float(), torch.nan)[..., None]
            return compute((scores[..., 1] - scores[..., 0])[..., None], targets)
        classes = torch.arange(scores.shape[-1], device=scores.device)
        targets = torch.where(labels[..., None] >= 0, (labels[..., None] == classes).float(), torch.nan)
        chosen = (scores.argmax(-1, keepdim=True) == classes).float() - 0.5
        return compute(scoring.log_odds(scores) if ranks else chosen, targets)

    return of_classes


def _with_both(compute: Columns) -> Columns:
    """NaN for a target without positives or without negatives."""

    def with_both(scores: Tensor, targets: Tensor) -> Tensor:
        both = (targets == 1).any(1) & (targets == 0).any(1)
        return torch.where(both, compute(scores, targets), torch.nan)

    return with_both


def _each_class(labels: Tensor) -> Tensor:
    return torch.eye(int(labels.max()) + 1)[:, None]


def _both_classes(targets: Tensor) -> Tensor:
    return torch.stack([-torch.ones_like(targets[:, 0]), torch.ones_like(targets[:, 0])])


def _mean_and_median(targets: Tensor) -> Tensor:
    return torch.stack([targets.nanmean(1), targets.nanmedian(1).values])


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task(
            "classes",
            wanted=lambda graphs: graphs.labels.long(),
            outputs=lambda graphs: graphs.num_classes,
            loss=class_loss,
            metrics={
                "accuracy": scoring.accuracy,
                "balanced-accuracy": scoring.recall_of_classes,
                "roc-auc": _of_classes(scoring.roc_auc),
                "average-precision": _of_classes(scoring.average_precision),
                "f1": _of_classes(scoring.f1, ranks=False),
            },
            constants=_each_class,
            predictions=lambda scores: scores.softmax(dim=1),
        ),
        Task(
            "binary",
            wanted=_targets,
            outputs=lambda graphs: max(1, len(graphs.target_names)),
            loss=binary_loss,
            metrics={
                "roc-auc": _with_both(scoring.roc_auc),
                "average-precision": _with_both(scoring.average_precision),
                "accuracy": _with_both(scoring.right_share),
                "balanced-accuracy": _with_both(scoring.balanced_accuracy),
                "f1": _with_both(scoring.f1),
            },
            constants=_both_classes,
            predictions=torch.sigmoid,
        ),
        Task(
            "values",
            wanted=_targets,
            outputs=lambda graphs: len(graphs.target_names),
            loss=squared_loss,
            metrics={
                "rmse": scoring.root_mean_squared_error,
                "mae": scoring.mean_absolute_error,
                "r2": scoring.r2,
            },
            constants=_mean_and_median,
            predictions=lambda scores: scores,
        ),
    )
}


def task_name(graphs: PackedGraphs, protocol: str) -> str:
    """The task of these graphs, empty if it is what the protocol implies: the form of :attr:`Trial.task`.

    Two classes are one binary target under ``given``; all other classes are classes.

    >>> from graphnorm.data import load
    >>> task_name(load("synthetic:trees"), "given")
    ''
    """
    if graphs.task == "classes":
        return "classes" if protocol == "given" and graphs.num_classes != 2 else ""
    return graphs.task


def find_task(protocol: str, task: str = "") -> Task:
    """The task of a trial, from its ``protocol`` and ``task``.

    >>> find_task("paper").name, find_task("given").name, find_task("given", "values").name
    ('classes', 'binary', 'values')
    """
    return TASKS[task or implied_task(protocol)]


def task_of(trial: Trial) -> Task:
    return find_task(trial.protocol, trial.task)


def choose_metric(graphs: PackedGraphs, protocol: str, asked: str | None, usual: str = "") -> str:
    """The metric to select by and to report, empty if it is the default of the task.

    asked: the one that the user names, which must fit the task.
    usual: the one that the field uses for this dataset.

    If one of two classes has less than a fifth of the graphs, the metric is ROC-AUC.
    """
    task = find_task(protocol, task_name(graphs, protocol))
    if asked and asked not in task.metrics:
        what = {"classes": "classes", "binary": "binary targets", "values": "real values"}[task.name]
        raise GraphnormError(
            f"the metric {asked} is not for {what}, which {graphs.name} has", remedy=f"use {', '.join(task.metrics)}"
        )
    default = USUAL[task.name]
    chosen = asked or (usual if usual in task.metrics else "") or default
    if not asked and not usual and task.name == "classes" and smaller_class(graphs) < RARE:
        chosen = "roc-auc"
    return "" if chosen == default else chosen


def smaller_class(graphs: PackedGraphs) -> float:
    """The share of the smaller of two classes; 1 for more classes, and for targets."""
    if graphs.task != "classes" or graphs.num_classes != 2:
        return 1.0
    return float(graphs.labels.bincount(minlength=2).min()) / graphs.num_graphs


class Scale(NamedTuple):
    """Mean and standard deviation of each member's training targets, (M, T)."""

    mean: Tensor
    std: Tensor

    def shrink(self, targets: Tensor) -> Tensor:
        """(M, n, T): the targets as the model learns them."""
        return (targets - self.mean[:, None]) / self.std[:, None]

    def restore(self, scores: Tensor) -> Tensor:
        """(M, n, T): scores in the unit of the targets."""
        return scores * self.std[:, None] + self.mean[:, None]


def scale_of(targets: Tensor, training: Sequence[npt.NDArray[np.int64]]) -> Scale:
    """Standardize by the training graphs of each member; a target that does not vary is only shifted.

    targets: (G, T).
    """
    parts = [targets[torch.as_tensor(ids)].double() for ids in training]
    mean = torch.stack([part.nanmean(0).nan_to_num() for part in parts])
    std = torch.stack([(part - part.nanmean(0)).square().nanmean(0).sqrt().nan_to_num() for part in parts])
    return Scale(mean.float(), torch.where(std > 0, std, 1.0).float())


def select(values: Tensor, ids: Tensor) -> Tensor:
    """values (M, G, ...) at ids (M, n). Where an id is -1 the value is arbitrary."""
    index = ids.clamp(min=0)
    index = index.view(*index.shape, *(1,) * (values.ndim - 2)).expand(*ids.shape, *values.shape[2:])
    return values.gather(1, index)
