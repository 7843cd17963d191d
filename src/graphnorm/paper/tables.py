"""Tables with measured and reported numbers side by side."""

from __future__ import annotations

import math
from collections.abc import Sequence

from graphnorm.paper.products import Table, signed
from graphnorm.paper.reported import Reported

__all__ = ["Score", "agreement", "dataset_rows", "score_table"]

ROUNDING = 0.1
"""The paper rounds some statistics to one digit, and cuts others off."""


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
        if self.difference is None or self.reported is None or self.reported.std is None:
            return None
        return abs(self.difference) <= self.reported.std

    def numbers(self) -> tuple[float | None, ...]:
        """Mean and standard deviation, the reported ones, their difference, and whether it is within."""
        said = (None, None) if self.reported is None else self.reported[:2]
        return (self.mean, self.std, *said, self.difference, self.within)

    def __str__(self) -> str:
        if self.mean is None:
            return "–"
        return f"{self.mean:.1f}" if self.std is None else f"{self.mean:.1f} ± {self.std:.1f}"


def agreement(scores: Sequence[Score]) -> str:
    """How many cells lie within one reported standard deviation, in words.

    >>> agreement([Score(91.0, 5.0, Reported(91.6, 6.5, 1)), Score(70.0, 5.0, Reported(91.6, 6.5, 1))])
    '1 of 2 cells lie within one reported standard deviation of the paper (50 %).'
    """
    judged = [score.within for score in scores if score.within is not None]
    if not judged:
        return "No cell can be compared with the paper's numbers."
    share = round(100 * sum(judged) / len(judged))
    return f"{sum(judged)} of {len(judged)} cells lie within one reported standard deviation of the paper ({share} %)."


def score_table(rows: Sequence[tuple[Sequence[str | int | None], Score, Score | None]], keys: Sequence[str]) -> Table:
    """A row for each cell: its keys, measured, reported, difference, whether within one reported deviation, fair."""
    with_fair = any(fair is not None for _, _, fair in rows)
    columns = (*keys, "measured", "reported", "difference", "within one sd", *(("under fair",) if with_fair else ()))
    return Table(
        columns,
        [
            [
                *key,
                str(score),
                None if score.reported is None else str(score.reported),
                None if score.difference is None else signed(score.difference),
                score.within,
                *([None if fair is None else str(fair)] if with_fair else []),
            ]
            for key, score, fair in rows
        ],
    )


def dataset_rows(name: str, measured: Sequence[float], printed: Sequence[float]) -> list[list[str | float | bool]]:
    """Rows of the dataset table: each statistic as counted here and as printed; equal to its printed digits or not."""
    labels = ("graphs", "classes", "nodes per graph", "edges per graph", "degree")

    def equal(found: float, said: float) -> bool:
        return abs(found - said) <= ROUNDING if isinstance(said, float) else found == said

    return [
        [name, label, round(found, 2), said, equal(found, said)]
        for label, found, said in zip(labels, measured, printed, strict=True)
    ]
