"""What a tool gives back: a frozen dataclass of arrays and numbers that turns into plain JSON values."""

from __future__ import annotations

import math
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Integers", "Result", "plain"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]


class Result:
    """Base of the frozen dataclasses that tools return."""

    def to_dict(self) -> dict[str, Any]:
        """Every field as plain JSON values; what is not finite becomes None."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]


def plain(value: Any) -> Any:
    """Turn arrays into lists, results into dicts and NaN into None, at any depth.

    >>> plain({"a": np.array([1.0, np.nan]), "b": (np.int64(2), True)})
    {'a': [1.0, None], 'b': [2, True]}
    """
    if isinstance(value, Result):
        return value.to_dict()
    if isinstance(value, dict):
        return {str(name): plain(entry) for name, entry in value.items()}
    if isinstance(value, np.ndarray | np.generic):
        value = value.tolist()
    if isinstance(value, list | tuple):
        return [plain(entry) for entry in value]
    if isinstance(value, float) and not math.isfinite(value):
        return None
    return value
