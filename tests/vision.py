"""Colours as people see them: contrast (WCAG 2), colour blindness (Machado et al. 2009) and CIEDE2000."""

from __future__ import annotations

import math
from collections.abc import Sequence

import numpy as np
import numpy.typing as npt

__all__ = ["VIEWERS", "ciede2000", "contrast", "difference"]

Values = npt.NDArray[np.float64]

VIEWERS: dict[str, Values] = {
    "trichromat": np.eye(3),
    "protanope": np.array(
        [(0.152286, 1.052583, -0.204868), (0.114503, 0.786281, 0.099216), (-0.003882, -0.048116, 1.051998)]
    ),
    "deuteranope": np.array(
        [(0.367322, 0.860646, -0.227968), (0.280085, 0.672501, 0.047413), (-0.011820, 0.042940, 0.968881)]
    ),
    "tritanope": np.array(
        [(1.255528, -0.076749, -0.178779), (-0.078411, 0.930809, 0.147602), (0.004733, 0.691367, 0.303900)]
    ),
}
"""Matrices on linear RGB; of the colour-blind, those of severity 1."""
XYZ = np.array(
    [(0.4124564, 0.3575761, 0.1804375), (0.2126729, 0.7151522, 0.0721750), (0.0193339, 0.1191920, 0.9503041)]
)
WHITE = XYZ.sum(1)


def linear(colour: str) -> Values:
    """Linear RGB of ``#rrggbb``."""
    coded = np.array([int(colour[k : k + 2], 16) for k in (1, 3, 5)]) / 255
    return np.where(coded <= 0.04045, coded / 12.92, ((coded + 0.055) / 1.055) ** 2.4)


def contrast(first: str, second: str) -> float:
    dark, light = sorted(float(XYZ[1] @ linear(colour)) for colour in (first, second))
    return (light + 0.05) / (dark + 0.05)


def lab(rgb: Values) -> Values:
    ratio = XYZ @ np.clip(rgb, 0, 1) / WHITE
    f = np.where(ratio > (6 / 29) ** 3, np.cbrt(ratio), ratio / (3 * (6 / 29) ** 2) + 4 / 29)
    return np.array([116 * f[1] - 16, 500 * (f[0] - f[1]), 200 * (f[1] - f[2])])


def difference(first: str, second: str, viewer: str) -> float:
    """The difference of two colours to a viewer; 1 is just noticeable side by side, 10 at a glance."""
    one, other = (lab(VIEWERS[viewer] @ linear(colour)) for colour in (first, second))
    return ciede2000(one.tolist(), other.tolist())


def ciede2000(first: Sequence[float], second: Sequence[float]) -> float:
    """Of two colours in CIELAB, with Sharma, Wu and Dalal's (2005) care for hues."""
    (l1, a1, b1), (l2, a2, b2) = first, second
    seventh = ((math.hypot(a1, b1) + math.hypot(a2, b2)) / 2) ** 7
    stretch = 1.5 - 0.5 * math.sqrt(seventh / (seventh + 25**7))
    c1, c2 = math.hypot(stretch * a1, b1), math.hypot(stretch * a2, b2)
    h1, h2 = (math.degrees(math.atan2(b, stretch * a)) % 360 for a, b in ((a1, b1), (a2, b2)))
    grey = c1 * c2 == 0
    turn = 0.0 if grey else (h2 - h1 + 180) % 360 - 180
    lightness, chroma = (l1 + l2) / 2, (c1 + c2) / 2
    hue = h1 + h2 if grey else (h1 + (h2 - h1 + 180) % 360 / 2 - 90) % 360
    weight = (
        1
        - 0.17 * math.cos(math.radians(hue - 30))
        + 0.24 * math.cos(math.radians(2 * hue))
        + 0.32 * math.cos(math.radians(3 * hue + 6))
        - 0.20 * math.cos(math.radians(4 * hue - 63))
    )
    by_l = (l2 - l1) / (1 + 0.015 * (lightness - 50) ** 2 / math.sqrt(20 + (lightness - 50) ** 2))
    by_c = (c2 - c1) / (1 + 0.045 * chroma)
    by_h = 2 * math.sqrt(c1 * c2) * math.sin(math.radians(turn / 2)) / (1 + 0.015 * chroma * weight)
    blue = 60 * math.exp(-(((hue - 275) / 25) ** 2))
    rotation = -2 * math.sqrt(chroma**7 / (chroma**7 + 25**7)) * math.sin(math.radians(blue))
    return math.sqrt(by_l**2 + by_c**2 + by_h**2 + rotation * by_c * by_h)
