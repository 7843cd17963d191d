"""Kernel machines on the folds of a protocol: support vector machines on precomputed graph kernels.

A kernel is tried in several forms (depths, lengths) and each with several C. The candidates take the place of a
network's epochs: an outcome's curves have one value for each, and the protocol chooses among them as it chooses an
epoch, one for all folds under ``paper`` and each fold by its held-out part under ``fair``.
"""

from __future__ import annotations

import itertools
import os
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from functools import partial
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, MissingDependencyError
from graphnorm.models.baselines.awl import walk_kernels
from graphnorm.models.baselines.wl import wl_kernels
from graphnorm.study.protocol import find_protocol
from graphnorm.training import OnEpoch, Outcome, Progress, Split, Trial

__all__ = ["KERNELS", "PENALTIES", "GraphArrays", "candidates", "graph_arrays", "train_kernel"]

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


def _wl(arrays: GraphArrays) -> Iterator[Matrix]:
    return (cosine(kernel) for kernel in wl_kernels(*arrays, depth=DEPTH))


def _awl(arrays: GraphArrays) -> Iterator[Matrix]:
    return walk_kernels(arrays.node_ptr, arrays.rowptr, arrays.col, LENGTHS)


KERNELS: dict[str, tuple[list[dict[str, Any]], Callable[[GraphArrays], Iterator[Matrix]]]] = {
    "wl": ([{"depth": depth} for depth in range(DEPTH + 1)], _wl),
    "awl": ([{"length": length} for length in LENGTHS], _awl),
}
"""By name: what tells the forms of a kernel apart, and their matrices in the same order."""


def candidates(name: str) -> list[dict[str, Any]]:
    """What the protocol chooses among, in the order of an outcome's curves.

    >>> candidates("wl")[0], len(candidates("wl"))
    ({'depth': 0, 'C': 0.001}, 42)
    """
    return [form | {"C": penalty} for form, penalty in itertools.product(KERNELS[name][0], PENALTIES)]


def train_kernel(
    graphs: PackedGraphs,
    trials: Sequence[Trial],
    splits: Sequence[Split],
    *,
    on_epoch: OnEpoch | None = None,
    workers: int | None = None,
) -> list[Outcome]:
    """Train a support vector machine for every fold and candidate; gives an outcome for each trial.

    trials: of one kernel, ``trial.model``; their ``epochs`` is the number of candidates.
    on_epoch: called after every form of the kernel, with the candidates done so far as the epoch.
    workers: folds trained at once, in threads; the number of cores if left out.
    """
    name = trials[0].model
    _refuse_what_kernels_cannot(graphs, trials[0])
    forms, make = KERNELS[name]
    began = time.perf_counter()
    labels = graphs.labels.cpu().numpy()
    curves = [{part: np.empty((len(forms), len(PENALTIES)), np.float32) for part in _parts(s)} for s in splits]
    cores = len(os.sched_getaffinity(0)) if hasattr(os, "sched_getaffinity") else os.cpu_count() or 1
    with warnings.catch_warnings(), ThreadPoolExecutor(workers or cores) as pool:
        warnings.filterwarnings("ignore", message="Solver terminated early")
        for place, kernel in enumerate(_ahead(make(graph_arrays(graphs)), pool)):
            scored = pool.map(partial(_score, kernel, labels), splits)
            for curve, scores in zip(curves, scored, strict=True):
                for part, values in scores.items():
                    curve[part][place] = values
            if on_epoch is not None:
                latest = {part: np.array([curve[part][place].max() for curve in curves]) for part in curves[0]}
                done = (place + 1) * len(PENALTIES)
                on_epoch(Progress(tuple(trials), done, latest, time.perf_counter() - began))
    seconds = (time.perf_counter() - began) / len(trials)
    return [
        Outcome(trial, {part: values.reshape(-1) for part, values in curve.items()}, seconds=seconds, device="cpu")
        for trial, curve in zip(trials, curves, strict=True)
    ]


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


def _parts(split: Split) -> list[str]:
    return [part for part in split._fields if len(getattr(split, part))]


def _score(kernel: Matrix, labels: npt.NDArray[np.int64], split: Split) -> dict[str, list[float]]:
    """The accuracy on each part of a split, for every C."""
    try:
        from sklearn.svm import SVC
    except ImportError as error:
        raise MissingDependencyError("scikit-learn", "a support vector machine", "study") from error
    rows = {part: kernel[np.ix_(getattr(split, part), split.train)] for part in _parts(split)}
    scores: dict[str, list[float]] = {part: [] for part in rows}
    for penalty in PENALTIES:
        machine = SVC(C=penalty, kernel="precomputed", cache_size=500, max_iter=MOST_STEPS)
        machine.fit(rows["train"], labels[split.train])
        for part, values in rows.items():
            scores[part].append(float((machine.predict(values) == labels[getattr(split, part)]).mean()))
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
