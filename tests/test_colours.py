"""Colours: each normalization has its own, visible on light and dark pages, and to the colour-blind."""

from __future__ import annotations

from itertools import combinations

import pytest

from graphnorm.colours import _OTHER_COLOURS, COLOURS, colour, dash
from graphnorm.layers import BUILT_IN, REGISTRY
from vision import VIEWERS, ciede2000, contrast, difference


def test_every_normalization_has_a_colour_of_its_own() -> None:
    assert set(REGISTRY) >= set(BUILT_IN)
    assert COLOURS.keys() == set(BUILT_IN)
    assert len(set(COLOURS.values())) == len(COLOURS)
    assert colour("mine") not in COLOURS.values()


@pytest.mark.parametrize("page", ["#ffffff", "#fbfaf8", "#1b1f26", "#14171c"])
def test_every_colour_stands_out_from_a_light_and_a_dark_page(page: str) -> None:
    faint = {name: contrast(paint, page) for name, paint in (COLOURS | dict(enumerate(_OTHER_COLOURS))).items()}
    assert not {name: ratio for name, ratio in faint.items() if ratio < 3}


@pytest.mark.parametrize("viewer", VIEWERS)
def test_lines_of_one_dash_differ_to_every_viewer(viewer: str) -> None:
    pairs = [(a, b) for a, b in combinations(COLOURS, 2) if dash(a) == dash(b)]
    alike = {(a, b): difference(COLOURS[a], COLOURS[b], viewer) for a, b in pairs}
    assert len(alike) == 28 + 15  # of the paper's eight, and of the six others
    assert not {pair: size for pair, size in alike.items() if size < 13}


def test_differences_of_colours_are_those_of_the_standard() -> None:
    for first, second, expected in (  # Sharma, Wu and Dalal (2005), Table 1
        ((50, 2.6772, -79.7751), (50, 0, -82.7485), 2.0425),
        ((50, 2.49, -0.001), (50, -2.49, 0.0011), 7.2195),
        ((50, 2.5, 0), (73, 25, -18), 27.1492),
        ((22.7233, 20.0904, -46.694), (23.0331, 14.973, -42.5619), 2.0373),
        ((2.0776, 0.0795, -1.135), (0.9033, -0.0636, -0.5514), 0.9082),
    ):
        assert ciede2000(first, second) == pytest.approx(expected, abs=1e-4)
