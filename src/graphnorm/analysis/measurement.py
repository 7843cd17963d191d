"""The base class of all results, the types of their arrays, and how summaries condense them."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from graphnorm.files import plain

__all__ = ["Booleans", "Floats", "Integers", "Measurement", "finite_median", "quantiles"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Measurement:
    """Base of the frozen dataclasses that the tools return."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values; NaN and infinity become None."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def finite_median(values: Floats) -> float:
    """The median of the finite values; NaN if there are none."""
    finite = values[np.isfinite(values)]
    return float(np.median(finite)) if len(finite) else float("nan")


def quantiles(values: Floats) -> dict[str, float]:
    """Five quantiles by level.

    >>> quantiles(np.arange(101.0))["0.25"]
    25.0
    """
    levels = (0.05, 0.25, 0.5, 0.75, 0.95)
    return dict(zip(map(str, levels), np.quantile(values, levels).tolist(), strict=True))
