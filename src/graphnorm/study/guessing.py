"""Guessing: the score that needs no model, and which results are no better."""

from __future__ import annotations

import numpy as np

from graphnorm.data import PackedGraphs
from graphnorm.study.protocol import find_protocol

__all__ = ["guessing_score", "has_learned"]

LEARNED = 1.0
"""Percentage points above guessing from which on a model has learned anything to speak of."""


def guessing_score(graphs: PackedGraphs, protocol: str) -> float:
    """What needs no model, in percent: the share of the largest class, or the ROC-AUC of chance.

    >>> from graphnorm.data import load
    >>> trees = load("synthetic:trees")
    >>> guessing_score(trees, "paper"), guessing_score(trees, "ogb")
    (50.0, 50.0)
    """
    if find_protocol(protocol).metric != "accuracy":
        return 50.0
    return 100 * float(np.bincount(graphs.labels.cpu().numpy()).max()) / graphs.num_graphs


def has_learned(mean: float, guessing: float | None) -> bool:
    """Whether a mean, in percent, is above guessing; where nobody knows what guessing has, it counts as such.

    >>> has_learned(50.9, 50.0), has_learned(51.0, 50.0), has_learned(50.9, None)
    (False, True, True)
    """
    return guessing is None or mean >= guessing + LEARNED
