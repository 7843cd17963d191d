"""Kernel machines on the folds of a protocol: support vector machines on precomputed graph kernels.

A kernel is tried in several forms (depths, lengths) and each with several C. The candidates take the place of a
network's epochs: an outcome's curves have one value for each, and the protocol chooses among them as it chooses an
epoch, one for all folds under ``paper`` and each fold by its held-out part under ``fair``.
"""

from __future__ import annotations

import itertools
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, MissingDependencyError
from graphnorm.models.baselines.awl import walk_kernels
from graphnorm.models.baselines.wl import wl_kernels
from graphnorm.study.protocol import find_protocol
from graphnorm.training import OnEpoch, Outcome, Progress, Split, Trial

__all__ = ["KERNELS", "PENALTIES", "GraphArrays", "KernelFleet", "candidate_in_words", "candidates", "graph_arrays"]

Matrix = npt.NDArray[np.float64]

PENALTIES = (1e-3, 1e-2, 1e-1, 1.0, 1e1, 1e2, 1e3)
"""C, the price of a training graph on the wrong side."""
DEPTH = 5
"""Rounds of colour refinement, at most."""
LENGTHS = (2, 3, 4, 5, 6, 7, 8, 9, 10)
"""Steps of anonymous walks."""
MOST_STEPS = 100_000
"""Of the solver: for a large C and classes that a kernel does not tell apart it would take millions, to no avail."""
MOST_GRAPHS = 20_000
"""A kernel matrix of more would take over three gigabytes."""


class GraphArrays(NamedTuple):
    """Graphs as kernels take them: numpy arrays, nodes numbered through all graphs."""

    node_ptr: npt.NDArray[np.int64]
    """(G+1,): graph g has the nodes node_ptr[g] … node_ptr[g+1] - 1."""
    rowptr: npt.NDArray[np.int64]
    """(N+1,)."""
    col: npt.NDArray[np.int64]
    """(E,)."""
    colours: npt.NDArray[np.int64]
    """(N,): a number for each combination of categorical features; 0 where there are none."""


def graph_arrays(graphs: PackedGraphs) -> GraphArrays:
    """The graphs as kernels take them."""
    graphs = graphs.to("cpu")
    node_ptr, rowptr, local = (t.numpy().astype(np.int64) for t in (graphs.node_ptr, graphs.rowptr, graphs.col))
    col = local + np.repeat(node_ptr[:-1], np.diff(rowptr[node_ptr]))
    colours = np.zeros(graphs.num_nodes, dtype=np.int64)
    if graphs.tags is not None:
        colours = np.unique(graphs.tags.numpy(), axis=0, return_inverse=True)[1].reshape(-1).astype(np.int64)
    return GraphArrays(node_ptr, rowptr, col, colours)


def _wl(arrays: GraphArrays, first: int) -> Iterator[Matrix]:
    return (cosine(kernel) for kernel in itertools.islice(wl_kernels(*arrays, depth=DEPTH), first, None))


def _awl(arrays: GraphArrays, first: int) -> Iterator[Matrix]:
    return walk_kernels(arrays.node_ptr, arrays.rowptr, arrays.col, LENGTHS[first:])


KERNELS: dict[str, tuple[list[dict[str, Any]], Callable[[GraphArrays, int], Iterator[Matrix]]]] = {
    "wl": ([{"depth": depth} for depth in range(DEPTH + 1)], _wl),
    "awl": ([{"length": length} for length in LENGTHS], _awl),
}
"""By name: what tells the forms of a kernel apart, and their matrices in the same order, from a given one on."""


def candidates(name: str) -> list[dict[str, Any]]:
    """What the protocol chooses among, in the order of an outcome's curves.

    >>> candidates("wl")[0], len(candidates("wl"))
    ({'depth': 0, 'C': 0.001}, 42)
    """
    return [form | {"C": penalty} for form, penalty in itertools.product(KERNELS[name][0], PENALTIES)]


def candidate_in_words(name: str, epoch: int) -> str:
    """What the protocol chose, by its place in an outcome's curves, counted from 1.

    >>> candidate_in_words("wl", 42)
    'depth 5, C 1000'
    """
    return ", ".join(f"{key} {value:g}" for key, value in candidates(name)[epoch - 1].items())


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
        _refuse_what_kernels_cannot(graphs, trials[0])
        if any(trial.epochs != len(candidates(trial.model)) for trial in trials):
            raise ValueError(f"the epochs of {trials[0].model} are its {len(candidates(trials[0].model))} candidates")
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
                make, first = KERNELS[self.trials[0].model][1], self.epoch // len(PENALTIES)
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

    def outcomes(self) -> list[Outcome]:
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


def cosine(kernel: Matrix) -> Matrix:
    """The kernel of the same features scaled to length 1; graphs without features are equal to nothing."""
    root = np.sqrt(np.diagonal(kernel))
    scale = np.divide(1.0, root, out=np.zeros_like(root), where=root > 0)
    scaled: Matrix = kernel * scale * scale[:, None]
    return scaled


def _score(kernel: Matrix, labels: npt.NDArray[np.int64], split: Split) -> dict[str, list[float]]:
    """The accuracy on each part of a split, for every C."""
    try:
        from sklearn.svm import SVC
    except ImportError as error:
        raise MissingDependencyError("scikit-learn", "a support vector machine", "study") from error
    ids = {part: getattr(split, part) for part in split._fields if len(getattr(split, part))}
    rows = {part: kernel[np.ix_(graphs, split.train)] for part, graphs in ids.items()}
    scores: dict[str, list[float]] = {part: [] for part in rows}
    for penalty in PENALTIES:
        machine = SVC(C=penalty, kernel="precomputed", cache_size=500, max_iter=MOST_STEPS)
        machine.fit(rows["train"], labels[split.train])
        for part, values in rows.items():
            scores[part].append(float((machine.predict(values) == labels[ids[part]]).mean()))
    return scores


def _refuse_what_kernels_cannot(graphs: PackedGraphs, trial: Trial) -> None:
    if find_protocol(trial.protocol).metric != "accuracy":
        raise GraphnormError(
            f"{trial.model} is a kernel for cross-validation, and has no part in the protocol {trial.protocol}",
            remedy="leave it out, or use the protocol paper or fair",
        )
    if graphs.num_graphs > MOST_GRAPHS:
        raise GraphnormError(
            f"the kernel {trial.model} compares all pairs of graphs; {graphs.num_graphs:,} are too many",
            remedy=f"leave it out, or use {MOST_GRAPHS:,} graphs or fewer",
        )
