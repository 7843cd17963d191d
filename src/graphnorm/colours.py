"""The colour and the dash of each normalization, in all figures and pages."""

from __future__ import annotations

import zlib
from typing import Literal

from graphnorm.settings import DEFAULT_NORMS

__all__ = ["COLOURS", "colour", "dash"]

COLOURS = {
    "none": "#7e9090",
    "layer": "#d87512",
    "batch": "#2d99cf",
    "instance": "#367563",
    "graph": "#b44824",
    "batch-alpha": "#90906c",
    "batch-running": "#635acf",
    "batch-detached": "#7e6387",
    "size": "#789c30",
    "rms": "#786c3c",
    "pair": "#fc4890",
    "mean-subtraction": "#308478",
    "message": "#d854fc",
    "diff-group": "#a83ca8",
}
"""The colour of each normalization, in all figures. Its contrast is 3 or more on white and on a dark page. Colours of
the same dash differ by 13 or more (CIEDE2000), to the colour-blind as well."""
_OTHER_COLOURS = ("#907800", "#fc4884", "#d060f0", "#3c846c", "#b050a8")


def colour(norm: str) -> str:
    """The colour of a normalization; a custom one always gets the same colour.

    >>> colour("graph"), colour("mine") == colour("mine")
    ('#b44824', True)
    """
    return COLOURS.get(norm) or _OTHER_COLOURS[zlib.crc32(norm.encode()) % len(_OTHER_COLOURS)]


def dash(norm: str) -> Literal["solid", "dash", "dot"]:
    """The dash of a line: solid for the paper's normalizations, dashed for other built-in ones, dotted for custom ones.

    >>> dash("graph"), dash("pair"), dash("mine")
    ('solid', 'dash', 'dot')
    """
    papers = (*DEFAULT_NORMS, "batch-alpha", "batch-running", "batch-detached")
    return "solid" if norm in papers else "dash" if norm in COLOURS else "dot"
