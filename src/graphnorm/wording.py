"""Words around names, as people write them."""

from __future__ import annotations

from collections.abc import Sequence

__all__ = ["listing"]


def listing(names: Sequence[str], word: str = "and") -> str:
    """Names as people list them.

    >>> listing(["none", "layer", "batch"]), listing(["graph"]), listing(["a", "b"], "or"), listing([])
    ('none, layer and batch', 'graph', 'a or b', 'none')
    """
    if not names:
        return "none"
    *others, last = names
    return f"{', '.join(others)} {word} {last}" if others else last
