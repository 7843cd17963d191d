"""What a tool gives back: a frozen dataclass of arrays and numbers that turns into plain JSON values."""

from __future__ import annotations

import math
import re
from dataclasses import fields
from typing import Any

import numpy as np
import numpy.typing as npt

__all__ = ["Floats", "Integers", "Result", "brief_layer", "plain", "readable_layer"]

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


def readable_layer(name: str) -> str:
    """A norm layer's name for people; convolutions and blocks count from 0, as in the paper and the files.

    >>> [readable_layer(name) for name in ("convolutions.0.first_norm", "blocks.7.second_norm", "stem_norm", "mine.0")]
    ['convolution 0, first norm', 'block 7, second norm', 'stem norm', 'mine.0']
    """
    found = re.fullmatch(r"(?:(convolution|block)s\.(\d+)\.)?(?:([a-z]+)_)?norm", name)
    if found is None:
        return name
    kind, number, which = found.groups()
    return ", ".join([*([f"{kind} {number}"] if kind else []), *([f"{which} norm"] if which else [])]) or name


def brief_layer(name: str) -> str:
    """The same where there is little room.

    >>> brief_layer("convolutions.0.first_norm")
    '0, first'
    """
    return readable_layer(name).removeprefix("convolution ").removesuffix(" norm")
