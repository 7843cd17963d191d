"""Grouping by a key."""

from __future__ import annotations

from collections.abc import Callable, Hashable, Iterable
from typing import TypeVar

__all__ = ["by_key"]

Item = TypeVar("Item")
Key = TypeVar("Key", bound=Hashable)


def by_key(items: Iterable[Item], key: Callable[[Item], Key]) -> dict[Key, list[Item]]:
    """Items in lists, by a key, in the order in which keys first come.

    >>> by_key(["MUTAG", "PTC", "MOLHIV"], lambda name: name[0])
    {'M': ['MUTAG', 'MOLHIV'], 'P': ['PTC']}
    """
    found: dict[Key, list[Item]] = {}
    for item in items:
        found.setdefault(key(item), []).append(item)
    return found
