"""How fast normalizations train, by their training curves averaged over the members."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Convergence", "measure_convergence"]

Curve = npt.NDArray[np.float64]


@dataclass(frozen=True)
class Convergence:
    """What the training curves say; metrics in the unit of the curves."""

    slowest: str | None
    """Who ends with the lowest training metric."""
    target: float | None
    """What the slowest ends with: every curve reaches it."""
    epochs: dict[str, int]
    """After how many epochs each curve is at the target for the first time."""
    area: dict[str, float]
    """The average of each curve over its epochs: the area under it, over its length."""

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON; those of each normalization stand with it."""
        return {"slowest": self.slowest, "target": self.target}


def measure_convergence(curves: Mapping[str, Curve]) -> Convergence:
    """Compare training curves, one value for every epoch each.

    >>> measure_convergence({"a": np.array([0.5, 0.8, 0.9]), "b": np.array([0.4, 0.5, 0.7])}).epochs
    {'a': 2, 'b': 3}
    """
    area = {name: float(curve.mean()) for name, curve in curves.items()}
    if not curves:
        return Convergence(None, None, {}, area)
    slowest = min(curves, key=lambda name: float(curves[name][-1]))
    target = float(curves[slowest][-1])
    epochs = {name: int((curve >= target).argmax()) + 1 for name, curve in curves.items()}
    return Convergence(slowest, target, epochs, area)
