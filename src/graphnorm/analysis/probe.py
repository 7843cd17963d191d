"""Whether what the shift subtracts tells the classes apart: a linear classifier on the first layer's signal.

The full shift of InstanceNorm splits the first layer's signal HQ of a graph into its mean over the nodes, which it
subtracts, and the rest HQN. A logistic regression is fitted to each by cross-validation: to the means, (F,) for each
graph, and to the standard deviations of the rest, (F,). If the means do much better, then the shift throws away what
the classes differ in, and a learned α has something to gain.

This looks at one linear layer only. What deeper layers could make of the rest is not seen here.
"""

from __future__ import annotations

import itertools
import warnings
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.analysis.measurement import Floats, Integers, Measurement
from graphnorm.analysis.regularity import sparse_features
from graphnorm.analysis.spectrum import Aggregation, check_ids, in_batches, sparse_q
from graphnorm.errors import MissingDependencyError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Probe", "probe_mean"]

FOLDS = 5


@dataclass(frozen=True, eq=False)
class Probe(Measurement):
    """Accuracies between 0 and 1, over the folds of one cross-validation: (5,) arrays."""

    mean: Floats
    """Of a classifier that sees the graphs' means, which the shift removes."""
    rest: Floats
    """Of one that sees the spread around them, which it leaves."""
    majority: float
    """The share of the largest class: what guessing gives."""

    def summary(self) -> dict[str, Any]:
        """Give averages, and the difference with its standard error over folds."""
        difference = self.mean - self.rest
        return {
            "accuracy_from_the_mean": float(self.mean.mean()),
            "accuracy_from_the_rest": float(self.rest.mean()),
            "majority": self.majority,
            "difference": float(difference.mean()),
            "standard_error": float(difference.std(ddof=1) / np.sqrt(len(difference))),
        }


def probe_mean(
    graphs: PackedGraphs, ids: Sequence[int] | Integers | None = None, aggregation: Aggregation | None = None
) -> Probe | None:
    """Fit both classifiers on all graphs, or on those given; None where a class has too few graphs for five folds.

    >>> from graphnorm.data import synthetic
    >>> probe = probe_mean(synthetic.regular(60))
    >>> float(probe.mean.min()), bool(probe.rest.mean() < 0.7)  # all of the signal is in the mean
    (1.0, True)
    """
    try:
        from sklearn.linear_model import LogisticRegression
        from sklearn.model_selection import StratifiedKFold, cross_val_score
        from sklearn.pipeline import make_pipeline
        from sklearn.preprocessing import StandardScaler
    except ImportError as error:
        raise MissingDependencyError("scikit-learn", "a linear classifier", "analysis") from error

    chosen = check_ids(graphs, ids)
    labels = graphs.labels.cpu().numpy()[chosen]
    counts = np.bincount(labels)
    counts = counts[counts > 0]
    if len(counts) < 2 or counts.min() < FOLDS:
        return None
    mean, rest = _mean_and_spread(graphs, chosen, aggregation or Aggregation())
    folds = StratifiedKFold(FOLDS, shuffle=True, random_state=0)

    def accuracy(features: Floats) -> Floats:
        model = make_pipeline(StandardScaler(), LogisticRegression(max_iter=300))
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # that it could be fitted longer does not matter here
            return np.asarray(cross_val_score(model, features, labels, cv=folds), np.float64)

    return Probe(accuracy(mean), accuracy(rest), float(counts.max() / len(labels)))


def _mean_and_spread(graphs: PackedGraphs, ids: Integers, aggregation: Aggregation) -> tuple[Floats, Floats]:
    """(G, F) each: mean and standard deviation over each graph's nodes of the aggregated features."""
    means, spreads = [], []
    for batch in in_batches(graphs, ids):
        signal = sparse_q(batch, aggregation) @ sparse_features(graphs, batch)
        ptr, sizes = batch.ptr.numpy(), batch.sizes.numpy()[:, None]
        squares = signal.multiply(signal).tocsr()
        first, second = (
            np.stack([np.asarray(rows[a:b].sum(axis=0)).ravel() for a, b in itertools.pairwise(ptr)]) / sizes
            for rows in (signal.tocsr(), squares)
        )
        spread = np.maximum(second - first**2, 0)
        means.append(first)
        spreads.append(np.sqrt(np.where(spread < 1e-12 * second, 0.0, spread)))  # what rounding leaves is no spread
    return np.concatenate(means), np.concatenate(spreads)
