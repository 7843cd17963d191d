"""Grids: which settings a search tries.

A grid names settings of a :class:`~graphnorm.training.Trial` and the values of each; its configurations are all
combinations, the last setting changing fastest. In a TOML file a list is tried value by value, and anything else holds
for all:

.. code-block:: toml

    batch_size = [64, 128]
    lr = [1e-3, 1e-2]
    epochs = 200
"""

from __future__ import annotations

import difflib
import itertools
import math
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from graphnorm.errors import StudyError

__all__ = ["GRIDS", "Grid", "find_grid", "read_grid"]

Values = tuple[Any, ...]
EXAMPLE = "write lines like lr = [1e-3, 1e-2]"


@dataclass(frozen=True)
class Grid:
    """Settings and the values that are tried of each.

    >>> grid = Grid("mine", {"dropout": (0.0, 0.5), "lr": (1e-3, 1e-2)})
    >>> len(grid), grid.configurations()[1]
    (4, {'dropout': 0.0, 'lr': 0.01})
    """

    name: str
    axes: Mapping[str, Values]

    def __len__(self) -> int:
        return math.prod(len(values) for values in self.axes.values())

    def configurations(self) -> list[dict[str, Any]]:
        """Every combination of values."""
        return [dict(zip(self.axes, values, strict=True)) for values in itertools.product(*self.axes.values())]

    def fixed(self, **settings: Any) -> Grid:
        """The same grid with one value for some settings."""
        return Grid(self.name, {**self.axes, **{name: (value,) for name, value in settings.items()}})


GRIDS: dict[str, Grid] = {
    "paper": Grid(
        "paper",
        {
            "epochs": (400,),
            "batch_size": (64, 128),
            "dropout": (0.0, 0.5),
            "weight_decay": (0.0, 5e-5, 5e-4, 5e-3, 5e-2),
            "lr": (1e-4, 1e-3, 1e-2),
        },
    ),
    "curves": Grid(
        "curves", {"epochs": (400,), "batch_size": (128,), "dropout": (0.5,), "weight_decay": (0.0,), "lr": (1e-2,)}
    ),
    "quick": Grid("quick", {"epochs": (100,), "batch_size": (128,), "dropout": (0.0, 0.5), "lr": (1e-3, 1e-2)}),
}
"""``paper``: the 60 configurations behind the paper's tables. ``curves``: one of them, that of its training curves.
``quick``: four, for a first look."""


def find_grid(name: str | os.PathLike[str]) -> Grid:
    """Give a grid by its name, or read it from a TOML file."""
    if isinstance(name, str) and name in GRIDS:
        return GRIDS[name]
    path = Path(name)
    if path.suffix == ".toml" or path.exists():
        return read_grid(path)
    raise StudyError(f"there is no grid {str(name)!r}; known: {', '.join(GRIDS)}", remedy="name one, or a .toml file")


def read_grid(path: Path) -> Grid:
    """Read a grid from a TOML file."""
    try:
        settings = tomllib.loads(path.read_text(encoding="utf-8"))
    except FileNotFoundError as error:
        raise StudyError("there is no such file", where=path, remedy="check the path") from error
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise StudyError(
            f"this is not TOML: {error}", where=path, remedy="write lines like lr = [1e-3, 1e-2]"
        ) from error
    axes: dict[str, Values] = {}
    for name, given in settings.items():
        rule = _rule(name, path)
        values = given if isinstance(given, list) else [given]
        if not values:
            raise StudyError(f"{name} has no value", where=path, remedy=f"write {name} = {rule.example}")
        axes[name] = tuple(rule.check(name, value, path) for value in values)
        if len(set(axes[name])) < len(axes[name]):
            raise StudyError(f"{name} has a value twice: {values}", where=path, remedy="leave one of them out")
    if not axes:
        raise StudyError("the grid is empty", where=path, remedy=EXAMPLE)
    return Grid(path.stem, axes)


@dataclass(frozen=True)
class _Rule:
    """What a setting's value may be."""

    kind: type
    meaning: str
    example: str
    low: float = -math.inf
    high: float = math.inf
    choices: tuple[str, ...] = ()

    def check(self, name: str, value: Any, path: Path) -> Any:
        if self.kind is float and type(value) is int:
            value = float(value)
        fits = type(value) is self.kind
        if fits and self.kind in (int, float):
            fits = self.low <= value <= self.high
        if not fits or (self.choices and value not in self.choices):
            raise StudyError(
                f"{name} = {value!r} is not {self.meaning}", where=path, remedy=f"write {name} = {self.example}"
            )
        return value


SETTINGS: dict[str, _Rule] = {
    "lr": _Rule(float, "a positive number", "[1e-3, 1e-2]", low=math.nextafter(0, 1), high=1e6),
    "weight_decay": _Rule(float, "a number of 0 or more", "[0.0, 5e-4]", low=0, high=1e6),
    "dropout": _Rule(float, "a number from 0 to below 1", "[0.0, 0.5]", low=0, high=math.nextafter(1, 0)),
    "batch_size": _Rule(int, "a whole number of 1 or more", "[64, 128]", low=1),
    "epochs": _Rule(int, "a whole number of 1 or more", "400", low=1),
    "hidden": _Rule(int, "a whole number of 1 or more", "[32, 64]", low=1),
    "layers": _Rule(int, "a whole number of 2 or more", "[3, 5]", low=2),
    "readout": _Rule(str, "'sum' or 'mean'", '["sum", "mean"]', choices=("sum", "mean")),
    "self_loops": _Rule(bool, "true or false", "[false, true]"),
}
"""What a grid may vary. Data, model, normalization and protocol are chosen on the command line."""


def _rule(name: str, path: Path) -> _Rule:
    if name in SETTINGS:
        return SETTINGS[name]
    near = difflib.get_close_matches(name, SETTINGS, n=1)
    hint = f"; did you mean {near[0]}?" if near else ""
    raise StudyError(f"{name!r} is no setting{hint}", where=path, remedy=f"known settings: {', '.join(SETTINGS)}")
