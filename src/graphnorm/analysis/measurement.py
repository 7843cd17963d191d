"""The base class of all results, and the types of their arrays."""

from __future__ import annotations

from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

from graphnorm.files import plain

__all__ = ["Booleans", "Floats", "Integers", "Measurement"]

Floats = npt.NDArray[np.float64]
Integers = npt.NDArray[np.int64]
Booleans = npt.NDArray[np.bool_]


class Measurement:
    """Base of the frozen dataclasses that the tools return."""

    def to_dict(self) -> dict[str, Any]:
        """All fields as JSON values; NaN and infinity become None."""
        return {field.name: plain(getattr(self, field.name)) for field in fields(self)}  # type: ignore[arg-type]
