"""Narrowing: what is left of an item where a part of it was asked for.

Everything made of a narrowed item says so, and it does not take the place of what was made of more.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphnorm.paper.recipe import Recipe
    from graphnorm.study.grid import Grid

__all__ = ["Narrowing", "covers", "describe", "narrowing"]

Narrowing = Mapping[str, Any]
"""What is left (``datasets``, ``models``, ``norms``, ``protocols``, ``baselines``: lists) or was put in its place
(``grid``, ``seeds``); what is as in the whole item is not in it. Plain values, as in JSON."""


def narrowing(whole: Recipe, part: Recipe, choice: Mapping[str, Any]) -> Narrowing | None:
    """How a part of an item differs from the whole by what was chosen of it; None if it does not.

    choice: as in :meth:`Recipe.narrowed`. Baselines can be left out by a choice of others.
    """
    before, after = _content(whole), _content(part)
    found: dict[str, Any] = {
        name: values for name, values in after.items() if name in (*choice, "baselines") and values != before[name]
    }
    grid: Grid | None = choice.get("grid")
    if grid is not None and any(one.grid == grid and one.grid not in _grids(whole) for one in part.trained):
        found["grid"] = {"name": grid.name, **{axis: list(values) for axis, values in grid.axes.items()}}
    seeds = choice.get("seeds")
    if seeds is not None and any(one.seeds != seeds for one in (*whole.trained, *_beside(whole))):
        found["seeds"] = seeds
    return found or None


def describe(narrow: Narrowing) -> str:
    """In words.

    >>> describe({"datasets": ["MUTAG", "PTC"], "baselines": [], "grid": {"name": "twelve"}, "seeds": 3})
    'datasets MUTAG, PTC; baselines none; grid twelve; seeds 3'
    """
    words = []
    for name, value in narrow.items():
        text = value["name"] if name == "grid" else ", ".join(value) if isinstance(value, list) else value
        words.append(f"{name} {text if text != '' else 'none'}")
    return "; ".join(words)


def covers(new: Narrowing | None, old: Narrowing | None) -> bool:
    """Whether what is made under ``new`` has all of what was made under ``old``; None is the whole item.

    >>> covers(None, {"datasets": ["PTC"]}), covers({"datasets": ["PTC"]}, None)
    (True, False)
    >>> covers({"datasets": ["MUTAG", "PTC"]}, {"datasets": ["PTC"], "seeds": 3})
    True
    """
    held = old or {}
    return all(
        name in held and (set(held[name]) <= set(value) if isinstance(value, list) else held[name] == value)
        for name, value in (new or {}).items()
    )


def _content(recipe: Recipe) -> dict[str, list[str]]:
    beside = _beside(recipe)
    return {
        "datasets": list(recipe.datasets),
        "models": _each_once(recipe.trained, "models"),
        "norms": _each_once(recipe.trained, "norms"),
        "protocols": _each_once((*recipe.trained, *beside), "protocols"),
        "baselines": _each_once(beside, "baselines"),
    }


def _beside(recipe: Recipe) -> tuple[Any, ...]:
    return (recipe.beside,) if recipe.beside else ()


def _each_once(parts: tuple[Any, ...], name: str) -> list[str]:
    return list(dict.fromkeys(value for part in parts for value in getattr(part, name)))


def _grids(recipe: Recipe) -> list[Grid]:
    return [part.grid for part in recipe.trained]
