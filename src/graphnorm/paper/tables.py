"""Tables with measured and reported numbers side by side."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence

from graphnorm.paper.reported import REPETITIONS, Reported

__all__ = ["Score", "agreement", "dataset_rows", "within_an_error"]


class Score:
    """What was measured of a cell, in percent, beside what the paper reports.

    >>> score = Score(mean=91.0, std=5.0, reported=Reported(91.6, 6.5, 1))
    >>> round(score.difference, 1), score.within
    (-0.6, True)
    """

    def __init__(self, mean: float | None, std: float | None = None, reported: Reported | None = None) -> None:
        self.mean = None if mean is None or math.isnan(mean) else mean
        self.std = None if std is None or math.isnan(std) else std
        self.reported = reported

    @property
    def difference(self) -> float | None:
        """Measured − reported, percentage points."""
        return None if self.mean is None or self.reported is None else self.mean - self.reported.mean

    @property
    def within(self) -> bool | None:
        """Whether that is at most one reported standard deviation."""
        return self._is_at_most(None if self.reported is None else self.reported.std)

    @property
    def within_error(self) -> bool | None:
        """Whether it is at most one standard error of the reported mean."""
        return self._is_at_most(None if self.reported is None else self.reported.error)

    def _is_at_most(self, yardstick: float | None) -> bool | None:
        return None if self.difference is None or yardstick is None else abs(self.difference) <= yardstick

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


def agreement(parts: Mapping[str, Sequence[Score]]) -> str:
    """How many cells lie within one reported standard deviation, all of them and part by part, in words.

    parts: scores, by what sets them apart.

    >>> near, far = Score(91.0, 5.0, Reported(91.6, 6.5, 1)), Score(70.0, 5.0, Reported(91.6, 6.5, 1))
    >>> agreement({"with the whole grid": [near], "with one configuration": [near, far]})
    '2 of 3 cells lie within one reported standard deviation of the paper (67 %): 1 of 1 with the whole grid, \
1 of 2 with one configuration.'
    """
    judged = {name: known for name, scores in parts.items() if (known := _known([score.within for score in scores]))}
    together = [within for known in judged.values() for within in known]
    if not together:
        return "No cell can be compared with the paper's numbers."
    share = round(100 * sum(together) / len(together))
    by_parts = ", ".join(f"{sum(known)} of {len(known)} {name}" for name, known in judged.items() if name)
    text = f"{sum(together)} of {len(together)} cells lie within one reported standard deviation of the paper"
    return f"{text} ({share} %){f': {by_parts}' if by_parts else ''}."


def within_an_error(scores: Sequence[Score], units: str) -> tuple[str, ...]:
    """How many cells lie within the narrower yardstick, in words; nothing where none can be compared.

    units: what the standard deviations are over.

    >>> within_an_error([Score(91.0, 5.0, Reported(91.6, 6.5, 1)), Score(88.0, 5.0, Reported(91.6, 6.5, 1))], "folds")
    ('One standard deviation over folds is a wide yardstick: within one standard error of the reported mean (its \
standard deviation / √10) lie 1 of 2.',)
    """
    known = _known([score.within_error for score in scores])
    if not known:
        return ()
    count = max(REPETITIONS[score.reported.table] for score in scores if score.reported is not None)
    return (
        f"One standard deviation over {units} is a wide yardstick: within one standard error of the reported mean "
        f"(its standard deviation / √{count}) lie {sum(known)} of {len(known)}.",
    )


def _known(values: Sequence[bool | None]) -> list[bool]:
    return [value for value in values if value is not None]


def dataset_rows(name: str, measured: Sequence[float], printed: Sequence[float]) -> list[list[str | float | bool]]:
    """Rows of the dataset table: each statistic as counted here and as printed, and whether these are equal.

    An average is, if it comes to what is printed when it is rounded or cut off to one digit: the paper has both.

    >>> [row[-1] for row in dataset_rows("PTC", (344, 2, 25.56, 25.46, 25.61), (344, 2, 25.5, 25.5, 25.5))]
    [True, True, True, True, False]
    """
    labels = ("graphs", "classes", "nodes per graph", "edges per graph", "degree")

    def equal(found: float, said: float) -> bool:
        digit = (f"{found:.1f}", f"{math.floor(10 * found) / 10:.1f}")
        return f"{said:.1f}" in digit if isinstance(said, float) else found == said

    return [
        [name, label, round(found, 2), said, equal(found, said)]
        for label, found, said in zip(labels, measured, printed, strict=True)
    ]
