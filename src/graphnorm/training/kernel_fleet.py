"""Kernel machines as a fleet: support vector machines on precomputed graph kernels.

A kernel is tried in several forms (depths, lengths) and each with several C. The candidates take the place of a
network's epochs: an outcome's curves have one value for each, and the protocol chooses among them as it chooses an
epoch, one for all folds under ``paper`` and each fold by its held-out part under ``fair``.
"""

from __future__ import annotations

import time
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
from graphnorm.models.kernels import PENALTIES, Kernel, Matrix, graph_arrays
from graphnorm.models.registry import find_model
from graphnorm.training.fleet import OnEpoch, Progress
from graphnorm.training.task import find_task
from graphnorm.training.trial import Outcome, Split, Trial

__all__ = ["KernelFleet"]

MOST_STEPS = 100_000
"""Of the solver: for a large C and classes that a kernel does not tell apart it would take millions, to no avail."""
MOST_GRAPHS = 20_000
"""A kernel matrix of more would take over three gigabytes."""


class KernelFleet:
    """Trials of one kernel: to a study what a :class:`~graphnorm.training.Fleet` of networks is.

    Its epochs are the candidates. All C of a form are tried at once, so it goes on by whole forms.

    Args:
        graphs: the dataset.
        trials: the members, ``trial.model`` the kernel and ``trial.epochs`` the number of its candidates.
        splits: each member's training, validation and test graphs.
        workers: members trained at once, in threads; as many as torch has if left out.
    """

    def __init__(
        self, graphs: PackedGraphs, trials: Sequence[Trial], splits: Sequence[Split], *, workers: int | None = None
    ) -> None:
        _check(graphs, trials[0])
        need("sklearn.svm", "a support vector machine", "study")  # importing it takes seconds, which are no training
        if any(trial.epochs != len(_kernel(trial).candidates) for trial in trials):
            raise ValueError(f"the epochs of {trials[0].model} are its {len(_kernel(trials[0]).candidates)} candidates")
        self.trials, self.splits = tuple(trials), tuple(splits)
        self.epoch, self.seconds = 0, 0.0
        self.names = tuple(part for part in Split._fields if len(getattr(splits[0], part)))
        self._graphs, self._labels = graphs, graphs.labels.cpu().numpy()
        self._history = np.full((trials[0].epochs, len(trials), len(self.names)), np.nan, dtype=np.float32)
        self._pool = ThreadPoolExecutor(workers or torch.get_num_threads())
        self._kernels: Iterator[Matrix] | None = None

    def advance(self, epochs: int | None = None, on_epoch: OnEpoch | None = None) -> None:
        """Go on for so many candidates and to the end of their form, or to the end of all."""
        last = len(self._history)
        end = last if epochs is None else min(self.epoch + epochs, last)
        while self.epoch < end:
            began = time.perf_counter()
            if self._kernels is None:
                make, first = _kernel(self.trials[0]).matrices, self.epoch // len(PENALTIES)
                self._kernels = _ahead(make(graph_arrays(self._graphs), first), self._pool)
            with warnings.catch_warnings():
                warnings.filterwarnings("ignore", message="Solver terminated early")
                scored = list(self._pool.map(partial(_score, next(self._kernels), self._labels), self.splits))
            rows = np.array([[scores[part] for part in self.names] for scores in scored], dtype=np.float32)
            self._history[self.epoch : self.epoch + len(PENALTIES)] = rows.transpose(2, 0, 1)
            self.seconds += time.perf_counter() - began
            for row in self._history[self.epoch : self.epoch + len(PENALTIES)]:
                self.epoch += 1
                if on_epoch is not None:
                    metrics = dict(zip(self.names, row.T, strict=True))
                    on_epoch(Progress(self.trials, self.epoch, metrics, self.seconds))

    def outcomes(self, keep_state: bool = False) -> list[Outcome]:
        """Each member's score for every candidate so far."""
        return [
            Outcome(
                trial=trial,
                curves=dict(zip(self.names, self._history[: self.epoch, member].T.copy(), strict=True)),
                seconds=self.seconds / len(self.trials),
                device="cpu",
            )
            for member, trial in enumerate(self.trials)
        ]

    def state_dict(self) -> dict[str, Any]:
        """A checkpoint."""
        history = torch.from_numpy(self._history[: self.epoch].copy())
        return {"epoch": self.epoch, "seconds": self.seconds, "history": history}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go back, or on, to a checkpoint of the same members."""
        self.epoch, self.seconds, self._kernels = int(state["epoch"]), float(state["seconds"]), None
        self._history[:] = np.nan
        self._history[: self.epoch] = np.asarray(state["history"])

    def keep(self, members: Sequence[int]) -> KernelFleet:
        """A fleet of some of the members, which goes on where they are."""
        chosen = list(members)
        smaller = KernelFleet(self._graphs, [self.trials[k] for k in chosen], [self.splits[k] for k in chosen])
        state, share = self.state_dict(), self.seconds * len(chosen) / len(self.trials)
        smaller.load_state_dict(state | {"history": state["history"][:, chosen], "seconds": share})
        return smaller


def _ahead(kernels: Iterator[Matrix], pool: ThreadPoolExecutor) -> Iterator[Matrix]:
    """The same matrices, each begun while the one before it is in use."""
    following = pool.submit(next, kernels, None)
    while (kernel := following.result()) is not None:
        following = pool.submit(next, kernels, None)
        yield kernel


def _kernel(trial: Trial) -> Kernel:
    kernel = find_model(trial.model).kernel
    assert kernel is not None, "a kernel's fleet has trials of a kernel"
    return kernel


def _score(kernel: Matrix, labels: npt.NDArray[np.int64], split: Split) -> dict[str, list[float]]:
    """The accuracy on each part of a split, for every C."""
    svm = need("sklearn.svm", "a support vector machine", "study")
    ids = {part: getattr(split, part) for part in split._fields if len(getattr(split, part))}
    rows = {part: kernel[np.ix_(graphs, split.train)] for part, graphs in ids.items()}
    scores: dict[str, list[float]] = {part: [] for part in rows}
    for penalty in PENALTIES:
        machine = svm.SVC(C=penalty, kernel="precomputed", cache_size=500, max_iter=MOST_STEPS)
        machine.fit(rows["train"], labels[split.train])
        for part, values in rows.items():
            scores[part].append(float((machine.predict(values) == labels[ids[part]]).mean()))
    return scores


def _check(graphs: PackedGraphs, trial: Trial) -> None:
    if find_task(trial.protocol).metric != "accuracy":
        raise GraphnormError(
            f"{trial.model} is a kernel for cross-validation, and has no part in the protocol {trial.protocol}",
            remedy="leave it out, or use the protocol paper or fair",
        )
    if graphs.num_graphs > MOST_GRAPHS:
        raise GraphnormError(
            f"the kernel {trial.model} compares all pairs of graphs; {graphs.num_graphs:,} are too many",
            remedy=f"leave it out, or use {MOST_GRAPHS:,} graphs or fewer",
        )
