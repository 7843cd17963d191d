"""One colour for each normalization in all pictures; told apart by colour-blind eyes too."""

from __future__ import annotations

import zlib

__all__ = ["COLOURS", "colour"]

COLOURS = {
    "none": "#7f7f7f",
    "layer": "#e69f00",
    "batch": "#0072b2",
    "instance": "#009e73",
    "graph": "#d55e00",
    "batch-alpha": "#56b4e9",
    "batch-running": "#004c6d",
    "batch-detached": "#8c6bb1",
    "size": "#a6761d",
    "pair": "#cc79a7",
    "mean-subtraction": "#b2df8a",
    "message": "#f0e442",
    "diff-group": "#332288",
}

_FOR_OTHERS = ("#882255", "#117733", "#999933", "#44aa99", "#aa4499")


def colour(norm: str) -> str:
    """Give the colour of a normalization; one of the user's own gets the same one every time.

    >>> colour("graph"), colour("mine") == colour("mine")
    ('#d55e00', True)
    """
    return COLOURS.get(norm) or _FOR_OTHERS[zlib.crc32(norm.encode()) % len(_FOR_OTHERS)]
