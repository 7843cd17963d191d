"""How regular graphs are, and how much of the first layer's signal the full shift of InstanceNorm removes.

H is (features × nodes). The first layer aggregates it to HQ, and the full shift makes it HQN.

**Proposition 1.** On a regular graph whose features are the degrees, HQN = 0. *Signal kept* measures this on any graph:
‖HQN‖_F / ‖HQ‖_F with the dataset's own features. It is 0 where the first aggregation gives all nodes the same value,
and 1 where all features have mean 0.

**Proposition 2.** On a complete graph, Q_GIN N = ξN: nothing is left of the structure A + I. *Structure kept* is
‖(A+I)N‖_F / ‖A+I‖_F. With the degrees d of A + I it is √(1 − Σd²/(n·Σd)). It is 0 on complete graphs only.

**Does it matter?** The shift splits HQ into its mean over a graph's nodes, which it subtracts, and the rest.
:func:`classify_from_mean` fits a logistic regression to each. If the means do much better, the shift removes what
distinguishes the classes, and a learned α can help. This looks at one linear layer; deeper layers may find more in the
rest.
"""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt
import torch
from tqdm import tqdm

from graphnorm.analysis.aggregation import Aggregation, check_ids, in_batches, same_neighbours, sparse_q
from graphnorm.analysis.measurement import Booleans, Floats, Integers, Measurement, quantiles
from graphnorm.data import GraphBatch, PackedGraphs
from graphnorm.errors import need

__all__ = ["MeanVersusSpread", "Regularity", "classify_from_mean", "regularity", "typical_graphs"]

sparse = need("scipy.sparse", "graphnorm.analysis", "analysis")

FOLDS = 5


# ---- regularity -----------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class Regularity(Measurement):
    """The regularity of K graphs; every array is (K,)."""

    ids: Integers
    sizes: Integers
    mean_degree: Floats
    degree_variance: Floats
    """Over the nodes of the graph; 0 for regular graphs."""
    regular: Booleans
    """Every node has the same degree."""
    complete: Booleans
    """Every node is joined to every other."""
    clique_union: Booleans
    """Every connected component is complete."""
    hub_cliques: Booleans
    """A union of cliques is left if one removes the hubs, the nodes that are joined to all others. There may be none.
    Ego networks of films and papers look like this."""
    signal_kept: Floats
    """‖HQN‖_F / ‖HQ‖_F; NaN where HQ = 0."""
    structure_kept: Floats
    """‖(A+I)N‖_F / ‖A+I‖_F."""

    def summary(self) -> dict[str, Any]:
        """Shares of all graphs, and quantiles of the signal and structure kept."""
        kept = self.signal_kept[np.isfinite(self.signal_kept)]
        deviation = np.sqrt(self.degree_variance) / np.maximum(self.mean_degree, 1e-300)
        return {
            "graphs": len(self.ids),
            "single_nodes": int((self.sizes == 1).sum()),
            "median_degree_variance": float(np.median(self.degree_variance)),
            "median_relative_degree_deviation": float(np.median(deviation)),
            "share_regular": float(self.regular.mean()),
            "share_complete": float(self.complete.mean()),
            "share_clique_union": float(self.clique_union.mean()),
            "share_hub_cliques": float(self.hub_cliques.mean()),
            "signal_kept_quantiles": quantiles(kept) if len(kept) else None,
            "share_without_signal": float((kept < 1e-6).mean()) if len(kept) else None,
            "structure_kept_quantiles": quantiles(self.structure_kept),
        }


def regularity(
    graphs: PackedGraphs,
    ids: Sequence[int] | Integers | None = None,
    aggregation: Aggregation | None = None,
    *,
    progress: bool = False,
) -> Regularity:
    """Measure the regularity of all graphs, or of those in ``ids``. ``signal_kept`` depends on the aggregation.

    >>> from graphnorm.data import synthetic
    >>> result = regularity(synthetic.regular(20))
    >>> bool(result.regular.all()), float(result.signal_kept.max()) < 1e-12  # Proposition 1
    (True, True)
    """
    chosen = check_ids(graphs, ids)
    parts = []
    with tqdm(total=len(chosen), desc="regularity", unit=" graphs", disable=not progress or None, delay=1.0) as bar:
        for batch in in_batches(graphs, chosen):
            signal = _signal(graphs, batch, aggregation or Aggregation())
            rest, whole = (
                np.bincount(signal.graph, values, batch.num_graphs) for values in (signal.deviation, signal.square)
            )
            kept = np.sqrt(np.divide(rest, whole, out=np.full(batch.num_graphs, np.nan), where=whole > 0))
            parts.append(_structure(batch) | {"signal_kept": kept})
            bar.update(batch.num_graphs)
    arrays = {name: np.concatenate([part[name] for part in parts]) for name in parts[0]}
    return Regularity(ids=chosen, sizes=graphs.sizes.cpu().numpy()[chosen], **arrays)


def _structure(batch: GraphBatch) -> dict[str, npt.NDArray[Any]]:
    graph, degree, sizes = batch.batch.numpy(), batch.degree.numpy(), batch.sizes.numpy()

    def total(values: npt.NDArray[Any]) -> Floats:
        return np.asarray(np.bincount(graph, values, batch.num_graphs), np.float64)

    def everywhere(condition: Booleans) -> Booleans:
        return np.asarray(total(~condition) == 0)

    classes = same_neighbours(batch)
    # The closed twins of a member of a clique are the other members, with or without hubs around them.
    clique_size = np.where(classes.closed, classes.multiplicity, 1)
    hub = degree == sizes[graph] - 1
    complete = everywhere(hub)
    mean = total(degree) / sizes
    looped = degree + 1.0  # the degrees of A + I
    kept = 1 - total(looped**2) / (sizes * total(looped))
    return {
        "mean_degree": mean,
        "degree_variance": total((degree - mean[graph]) ** 2) / sizes,
        "regular": everywhere(degree == degree[batch.ptr.numpy()[:-1][graph]]),
        "complete": complete,
        "clique_union": everywhere(clique_size == degree + 1),
        "hub_cliques": everywhere(hub | (clique_size == degree + 1 - total(hub)[graph])),
        "structure_kept": np.where(complete, 0.0, np.sqrt(np.maximum(kept, 0.0))),
    }


def typical_graphs(result: Regularity, count: int = 4, *, max_nodes: int = 400) -> Integers:
    """Ids of ``count`` graphs, from little to much signal kept.

    The graphs are ordered by ``signal_kept`` and split into ``count`` equal parts. From each part comes the graph with
    the median number of nodes.
    """
    usable = np.flatnonzero(np.isfinite(result.signal_kept) & (result.sizes <= max_nodes))
    by_signal = usable[np.argsort(result.signal_kept[usable], kind="stable")]
    parts = [part for part in np.array_split(by_signal, count) if len(part)]
    middle = [part[np.argsort(result.sizes[part], kind="stable")[len(part) // 2]] for part in parts]
    return result.ids[np.array(middle, np.int64)]


# ---- does the mean distinguish the classes? -------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class MeanVersusSpread(Measurement):
    """Accuracies of two classifiers, between 0 and 1, on each of 5 folds: (5,) arrays."""

    mean: Floats
    """From the mean of each feature over a graph's nodes, which the shift removes."""
    spread: Floats
    """From the standard deviation of each feature, which the shift keeps."""
    majority: float
    """The share of the largest class: the accuracy of guessing."""

    def summary(self) -> dict[str, Any]:
        """Averages, and the difference with its standard error over folds."""
        difference = self.mean - self.spread
        return {
            "accuracy_from_the_mean": float(self.mean.mean()),
            "accuracy_from_the_rest": float(self.spread.mean()),
            "majority": self.majority,
            "difference": float(difference.mean()),
            "standard_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        }


def classify_from_mean(
    graphs: PackedGraphs, ids: Sequence[int] | Integers | None = None, aggregation: Aggregation | None = None
) -> MeanVersusSpread | None:
    """Fit logistic regressions to the means and to the spreads of HQ, on all graphs or on those in ``ids``.

    None if a class has fewer than five graphs.

    >>> from graphnorm.data import synthetic
    >>> found = classify_from_mean(synthetic.regular(60))
    >>> float(found.mean.min()), bool(found.spread.mean() < 0.7)  # all of the signal is in the mean
    (1.0, True)
    """
    linear_model, model_selection, pipeline, preprocessing = (
        need(f"sklearn.{module}", "a linear classifier", "analysis")
        for module in ("linear_model", "model_selection", "pipeline", "preprocessing")
    )
    chosen = check_ids(graphs, ids)
    labels = graphs.labels.cpu().numpy()[chosen]
    _, counts = np.unique(labels, return_counts=True)
    if len(counts) < 2 or counts.min() < FOLDS:
        return None
    means, spreads = [], []
    for batch in in_batches(graphs, chosen):
        signal = _signal(graphs, batch, aggregation or Aggregation())
        mean, spread = np.zeros((2, batch.num_graphs, graphs.num_features))
        mean[signal.graph, signal.feature] = signal.mean
        # Rounding leaves a tiny deviation of a constant.
        deviation = np.where(signal.deviation < 1e-12 * signal.square, 0.0, signal.deviation)
        spread[signal.graph, signal.feature] = np.sqrt(deviation / batch.sizes.numpy()[signal.graph])
        means.append(mean)
        spreads.append(spread)
    folds = model_selection.StratifiedKFold(FOLDS, shuffle=True, random_state=0)

    def accuracy(parts: list[Floats]) -> Floats:
        model = pipeline.make_pipeline(preprocessing.StandardScaler(), linear_model.LogisticRegression(max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # of iterations that have not converged
            return np.asarray(model_selection.cross_val_score(model, np.concatenate(parts), labels, cv=folds))

    return MeanVersusSpread(accuracy(means), accuracy(spreads), float(counts.max() / len(labels)))


# ---- the first layer's signal ---------------------------------------------------------------------------------------


class _Signal(NamedTuple):
    """HQ of a batch of graphs: one entry for each graph and feature that has a nonzero value."""

    graph: Integers
    feature: Integers
    mean: Floats
    """Over the graph's nodes."""
    deviation: Floats
    """The sum of squared deviations from the mean, ‖HQN‖² of one feature."""
    square: Floats
    """The sum of squares, ‖HQ‖² of one feature."""


def _signal(graphs: PackedGraphs, batch: GraphBatch, aggregation: Aggregation) -> _Signal:
    parts = []
    if batch.tags is not None:  # one-hot
        first = np.concatenate(([0], np.cumsum(graphs.cardinalities)))
        column = batch.tags.numpy().astype(np.int64) + first[:-1]
        ptr = np.arange(batch.num_rows + 1) * column.shape[1]
        shape = (batch.num_rows, int(first[-1]))
        parts.append(sparse.csr_array((np.ones(column.size), column.reshape(-1), ptr), shape=shape))
    if batch.x is not None:
        parts.append(sparse.csr_array(batch.x.to(torch.float64).numpy()))
    signal = (sparse_q(batch, aggregation) @ sparse.hstack(parts)).tocsr()
    width = signal.shape[1]
    graph = np.repeat(batch.batch.numpy(), np.diff(signal.indptr))
    cell, cell_of = np.unique(graph * width + signal.indices, return_inverse=True)
    size = batch.sizes.numpy()[cell // width]
    mean = np.bincount(cell_of, weights=signal.data) / size
    zeros = size - np.bincount(cell_of)  # they are not stored, and off by the mean
    deviation = np.bincount(cell_of, weights=(signal.data - mean[cell_of]) ** 2) + zeros * mean**2
    square = np.asarray(np.bincount(cell_of, weights=signal.data**2), np.float64)
    return _Signal(cell // width, cell % width, mean, deviation, square)
