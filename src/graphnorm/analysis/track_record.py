"""How often the advice would have been right, beside an answer that is the same for every dataset.

``track_record.json`` holds, for the paper's eight datasets, what the advice names first from the graphs alone, and the
scores of GIN with each normalization that were measured (protocol ``fair``; ``given`` for ogbg-molhiv).
``python -m benchmarks.track_record`` makes it.
"""

from __future__ import annotations

import json
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from functools import cache
from importlib.resources import files
from statistics import mean

from graphnorm.analysis.measurement import Measurement
from graphnorm.errors import listing

__all__ = ["Case", "TrackRecord", "track_record"]


@dataclass(frozen=True)
class Case:
    """A dataset with measured scores."""

    dataset: str
    first: str
    """The normalization that the advice names first."""
    scores: Mapping[str, float]
    """In percent."""
    behind: tuple[str, ...]
    """Those significantly behind the highest."""

    @property
    def best(self) -> str:
        return max(self.scores, key=self.scores.__getitem__)

    def rank(self, norm: str) -> float:
        """1 for the highest; equal scores share a rank."""
        own = self.scores[norm]
        return 1 + sum(score > own for score in self.scores.values()) + sum(s == own for s in self.scores.values()) / 2


@dataclass(frozen=True)
class TrackRecord(Measurement):
    """On how many datasets an answer has the highest score, and on how many it is not significantly behind that."""

    datasets: int
    best: int
    not_behind: int
    constant: tuple[str, ...]
    """The constant answers: for each dataset the normalization with the best average rank on all others."""
    constant_best: int
    constant_not_behind: int

    @property
    def is_better(self) -> bool:
        """Whether the advice is right more often than the constant answer."""
        return (self.best, self.not_behind) > (self.constant_best, self.constant_not_behind)

    def __str__(self) -> str:
        always = listing(list(dict.fromkeys(self.constant)), "or")
        counts = (
            f"On {self.datasets} benchmarks (GIN), its first choice has the highest score on {self.best} and is not "
            f"significantly behind on {self.not_behind}. The best choice on the other datasets, {always}, has it on "
            f"{self.constant_best} and is not behind on {self.constant_not_behind}."
        )
        if self.is_better:
            return f"How often this advice was right: {counts}"
        return f"This advice is no better than a constant answer. {counts} Measure with graphnorm compare."


def leave_one_out(cases: Sequence[Case]) -> TrackRecord:
    """Count how often the advice is right, and how often the answer that is best on the other datasets.

    >>> cases = [Case("A", "graph", {"graph": 80.0, "batch": 70.0}, ("batch",)), Case("B", "graph", {"graph": 60.0,
    ... "batch": 61.0}, ()), Case("C", "graph", {"graph": 60.0, "batch": 62.0}, ())]
    >>> found = leave_one_out(cases)
    >>> (found.best, found.not_behind), found.constant, (found.constant_best, found.constant_not_behind)
    ((1, 3), ('batch', 'graph', 'graph'), (0, 2))
    """
    constant = []
    for left_out in cases:
        others = [case for case in cases if case is not left_out]
        norms = list(left_out.scores)
        constant.append(min(norms, key=lambda norm: mean(case.rank(norm) for case in others)))
    pairs = list(zip(cases, constant, strict=True))
    return TrackRecord(
        len(cases),
        sum(case.first == case.best for case in cases),
        sum(case.first not in case.behind for case in cases),
        tuple(constant),
        sum(answer == case.best for case, answer in pairs),
        sum(answer not in case.behind for case, answer in pairs),
    )


@cache
def track_record() -> TrackRecord:
    """Of the advice from the graphs alone, on the paper's eight datasets."""
    return leave_one_out(read_cases())


def read_cases() -> list[Case]:
    text = files("graphnorm.analysis").joinpath("track_record.json").read_text(encoding="utf-8")
    return [Case(**case | {"behind": tuple(case["behind"])}) for case in json.loads(text)]
