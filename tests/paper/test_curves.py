"""Training curves: what is kept of each fold or seed, and when a curve has converged."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from graphnorm.paper.figures import CONVERGED, Curves, average_curves, convergence
from graphnorm.training import Trial


def record(train: list[float], status: str = "done", **settings: Any) -> Any:
    curves = {"train": np.array(train, np.float32), "valid": np.array(train, np.float32)}
    return SimpleNamespace(status=status, trial=Trial(dataset="A", **settings), curves=curves)


def test_averages_by_fold() -> None:
    """Seeds of a fold are averaged, and a fold that diverged is left out."""
    records = [record([0.5, 0.7], fold=2), record([0.9, 0.9], fold=2, seed=1), record([0.1, 0.3], fold=0)]
    (found,) = average_curves([*records, record([0.0, 0.0], "diverged", fold=1)])
    assert found.averages == pytest.approx({0: 20.0, 2: 75.0})
    (entry,) = convergence({"A": [found]}, {"A": ("fold", 4)})
    assert (entry["unit"], entry["train_averages"]) == ("fold", [20.0, None, 75.0, None])
    assert entry["diverged"] == 1


def test_averages_by_seed() -> None:
    (found,) = average_curves([record([0.5, 0.7], protocol="ogb", seed=seed) for seed in (3, 1)])
    assert found.averages == pytest.approx({1: 60.0, 3: 60.0})
    (gone,) = average_curves([record([0.5], "diverged", protocol="ogb")])
    (entry,) = convergence({"A": [gone]}, {"A": ("seed", 2)})
    assert (entry["train_average"], entry["train_averages"], entry["epochs_to_converge"]) == (None, [None, None], None)


def drawn(norm: str, *train: float, variant: str = "") -> Curves:
    values = (np.array(train), np.zeros(len(train)))
    return Curves(norm, variant, 1, 0, {"train": values, "valid": values}, ())


def test_epochs_to_converge_go_by_the_end_of_graphnorm() -> None:
    end = 90.0
    near = CONVERGED * end
    members = [drawn("graph", 50.0, near - 0.1, near + 0.1, end), drawn("batch", 50.0, near + 0.1, 80.0, 99.0)]
    members += [drawn("none", 50.0, 60.0, 70.0, near - 0.1), drawn("batch", 50.0, 60.0, 70.0, 99.0, variant="other")]
    found = convergence({"A": members, "B": [drawn("batch", 99.0)]}, dict.fromkeys("AB", ("fold", 1)))
    assert [entry["epochs_to_converge"] for entry in found] == [3, 2, None, None, None]
