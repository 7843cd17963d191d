"""Support vector machines on precomputed graph kernels, with the interface of a fleet.

A kernel has several forms (depths, lengths), and each is tried with several C. These candidates take the place of a
network's epochs: a curve has one value for each. The protocol chooses a candidate as it chooses an epoch: one for all
folds under ``paper``, and one for each fold by its held-out part under ``fair``.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, need
from graphnorm.models.kernels import Matrix, graph_arrays, kernel_matrices
from graphnorm.models.registry import PENALTIES, find_model
from graphnorm.training.base_fleet import BaseFleet
from graphnorm.training.task import Task, task_of
from graphnorm.training.trial import Outcome, Split, Trial, metric_of

__all__ = ["KernelFleet"]

RANKING = ("roc-auc", "average-precision")
"""Metrics that need scores; the others need only the predicted class."""
MOST_STEPS = 100_000
"""Steps of the solver. For a large C and classes that a kernel cannot separate it would take millions, in vain."""
MOST_GRAPHS = 20_000
"""A larger kernel matrix would take over three gigabytes."""


class KernelFleet(BaseFleet):
    """Trains trials of one kernel, as :class:`~graphnorm.training.Fleet` trains networks.

    Its epochs are the candidates. All C of a form are tried at once, so ``advance`` rounds up to whole forms.

    Args:
        graphs: the dataset.
        trials: the members. ``trial.model`` is the kernel, and ``trial.epochs`` the number of its candidates.
        splits: each member's training, validation and test graphs.

    Members are trained in as many threads as torch uses.
    """

    def __init__(self, graphs: PackedGraphs, trials: Sequence[Trial], splits: Sequence[Split]) -> None:
        model, protocol = trials[0].model, trials[0].protocol
        self._task, self._metric = task_of(trials[0]), metric_of(trials[0]).key
        if self._task.name != "classes":
            raise GraphnormError(
                f"the kernel {model} is for classes and cross-validation, not for {self._task.name} or the protocol "
                f"{protocol}",
                remedy="leave it out, or use the protocol paper or fair",
            )
        if graphs.num_classes > 2 and self._metric in RANKING:
            raise GraphnormError(
                f"the kernel {model} does not rank {graphs.num_classes} classes, as {self._metric} needs",
                remedy="leave it out, or use another metric",
            )
        if graphs.num_graphs > MOST_GRAPHS:
            raise GraphnormError(
                f"the kernel {model} compares all pairs of graphs; {graphs.num_graphs:,} graphs are too many",
                remedy=f"leave it out, or use {MOST_GRAPHS:,} graphs or fewer",
            )
        need("sklearn.svm", "a support vector machine", "study")  # imported here: it takes seconds, which do not count
        kernel = find_model(model).kernel
        assert kernel is not None, "a KernelFleet trains kernels only"
        if any(trial.epochs != len(kernel.candidates) for trial in trials):
            raise ValueError(f"the epochs of {model} are its {len(kernel.candidates)} candidates")
        super().__init__(trials, tuple(part for part in Split._fields if len(getattr(splits[0], part))))
        self.splits, self._kernel = tuple(splits), kernel
        self._graphs, self._labels = graphs, graphs.labels.cpu().numpy()
        self._pool = ThreadPoolExecutor(torch.get_num_threads())
        self._matrices: Iterator[Matrix] | None = None

    def _train(self, end: int) -> Iterator[npt.NDArray[np.float32]]:
        while self.epoch < end:
            if self._matrices is None:
                arrays, first = graph_arrays(self._graphs), self.epoch // len(PENALTIES)
                forms = self._kernel.forms[first:]
                self._matrices = _ahead(kernel_matrices(self.trials[0].model, arrays, forms), self._pool)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Solver terminated early")
                scored = list(
                    self._pool.map(
                        partial(_score, next(self._matrices), self._labels, self._task, self._metric), self.splits
                    )
                )
            rows = np.array([[scores[part] for part in self.names] for scores in scored], dtype=np.float32)
            yield from rows.transpose(2, 0, 1)

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        """Each member's score for every candidate so far."""
        return [
            Outcome(trial, self.curves(member), seconds=self.seconds / len(self.trials), device="cpu")
            for member, trial in enumerate(self.trials)
        ]

    def load_state_dict(self, state: dict[str, Any]) -> None:
        super().load_state_dict(state)
        self._matrices = None

    def _like(self, members: list[int]) -> KernelFleet:
        return KernelFleet(self._graphs, [self.trials[k] for k in members], [self.splits[k] for k in members])


def _ahead(kernels: Iterator[Matrix], pool: ThreadPoolExecutor) -> Iterator[Matrix]:
    """The same matrices. Each is computed while the one before it is in use."""
    following = pool.submit(next, kernels, None)
    while (kernel := following.result()) is not None:
        following = pool.submit(next, kernels, None)
        yield kernel


def _score(
    kernel: Matrix, labels: npt.NDArray[np.int64], task: Task, metric: str, split: Split
) -> dict[str, list[float]]:
    """The metric on each part of a split, for every C."""
    svm = need("sklearn.svm", "a support vector machine", "study")
    ids = {part: getattr(split, part) for part in split._fields if len(getattr(split, part))}
    rows = {part: kernel[np.ix_(graphs, split.train)] for part, graphs in ids.items()}
    scores: dict[str, list[float]] = {part: [] for part in rows}
    for penalty in PENALTIES:
        machine = svm.SVC(C=penalty, kernel="precomputed", cache_size=500, max_iter=MOST_STEPS)
        machine.fit(rows["train"], labels[split.train])
        for part, values in rows.items():
            if metric in RANKING:
                distance = machine.decision_function(values)  # to the plane between two classes
                scored = np.stack([-distance, distance], axis=1)
            else:
                scored = np.eye(int(labels.max()) + 1)[machine.predict(values)]
            wanted = torch.from_numpy(labels[ids[part]])[None]
            scores[part].append(float(task.score(metric, torch.from_numpy(scored)[None], wanted)))
    return scores
