"""What came of a comparison; all metrics are in percent."""

from __future__ import annotations

import math
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm._version import exact_version
from graphnorm.comparison import tables
from graphnorm.comparison.batches import about_last_batch
from graphnorm.comparison.convergence import Convergence, measure_convergence
from graphnorm.comparison.settings import Settings
from graphnorm.comparison.verdict import name_guessers, pronounce
from graphnorm.errors import GraphnormError
from graphnorm.paper.reported import Reported, unlike_the_paper
from graphnorm.study.kernels import KERNELS, candidates
from graphnorm.study.protocol import Protocol, find_protocol
from graphnorm.study.selection import Selection, select
from graphnorm.study.significance import ALPHA, CONFIDENCE, PairTest, compare_all
from graphnorm.training.trial import Outcome

if TYPE_CHECKING:
    import pandas

__all__ = ["ABOUT_BASELINES", "FORMAT", "Comparison", "NormResult", "about_tests"]

FORMAT = "graphnorm-comparison-1"
"""Changes whenever the meaning of the JSON does."""
ABOUT_BASELINES = "baselines have the same folds and their own settings; they are neither ranked nor tested"


def about_tests(protocol: Protocol, overlap: float) -> str:
    """What p-values are of."""
    test = f"paired over {protocol.unit}s" if protocol.paired else f"Welch's test of unpaired {protocol.unit}s"
    correction = " for overlapping training sets and" if protocol.paired and overlap else ""
    return f"p: {test}, corrected{correction} for the number of pairs; * below {ALPHA}"


DIGITS = 4
"""Digits of a percentage in JSON: more than single precision has, few enough to read."""

Curve = npt.NDArray[np.float64]


@dataclass(frozen=True, eq=False)
class NormResult:
    """One normalization: its trained members, and what the protocol reports of them."""

    name: str
    outcomes: tuple[Outcome, ...]
    paper: Reported | None = None
    """The paper's number for the same cell, where it has one."""

    @cached_property
    def selection(self) -> Selection:
        """What the protocol chose."""
        return select([self.outcomes])

    @property
    def mean(self) -> float:
        """Percent; NaN where every member diverged."""
        return 100 * self.selection.mean

    @property
    def std(self) -> float:
        """Percent, over folds (or seeds, under ``ogb``); NaN where fewer than two are left."""
        return 100 * self.selection.std

    @property
    def scores(self) -> dict[int, float]:
        """Percent, by fold (or seed, under ``ogb``); NaN where it diverged."""
        return {unit: 100 * score for unit, score in self.selection.scores.items()}

    @property
    def epochs(self) -> list[int]:
        """The chosen epochs of the members that have one."""
        return [choice.epoch for choice in self.selection.choices if choice.epoch is not None]

    @property
    def seconds(self) -> float:
        """Training time of all members."""
        return sum(outcome.seconds for outcome in self.outcomes)

    @cached_property
    def curves(self) -> dict[str, tuple[Curve, Curve]]:
        """Mean and standard deviation over the members that did not diverge, for each curve: (epochs,) each.

        ``loss`` is as trained; the others are percentages. Empty where every member diverged.
        """
        sound = [outcome.curves for outcome in self.outcomes if outcome.status == "done"]
        result = {}
        for name in sound[0] if sound else ():
            values = np.stack([curves[name] for curves in sound]).astype(np.float64) * (1 if name == "loss" else 100)
            spread = values.std(axis=0, ddof=1) if len(values) > 1 else np.full(values.shape[1], np.nan)
            result[name] = (values.mean(axis=0), spread)
        return result


@dataclass(frozen=True, eq=False, repr=False)
class Comparison:
    """Normalizations trained alike on the same graphs, and what can be said of their differences.

    Print it for the table and the verdict; a notebook shows it as HTML.
    """

    dataset: str
    fingerprint: str
    num_graphs: int
    classes: tuple[str, ...]
    settings: Settings
    norms: dict[str, NormResult]
    """By name, in the order they were asked for; those that were trained."""
    overlap: float
    """Reported graphs for every graph that trains, which the test of significance corrects for."""
    guessing: float
    """The score that needs no model, in percent; see :func:`graphnorm.study.guessing.guessing_score`."""
    training_sizes: tuple[int, ...]
    """How many graphs train, for each training of a normalization."""
    resumed: tuple[str, ...] = ()
    """Those of them that an earlier run had trained."""
    baselines: dict[str, NormResult] = field(default_factory=dict)
    """Other methods on the same folds, by name. They are not ranked or tested: each has settings of its own."""

    origin: Mapping[str, Any] | None = None
    """What :func:`graphnorm.data.load` needs to find the user's own graphs again; None for known datasets."""

    @property
    def protocol(self) -> Protocol:
        """How graphs were split, epochs chosen and scores reported."""
        return find_protocol(self.settings.protocol)

    @property
    def unfinished(self) -> tuple[str, ...]:
        """What was asked for but not trained to the end."""
        norms = tuple(name for name in self.settings.norms if name not in self.norms)
        return norms + tuple(name for name in self.settings.baselines if name not in self.baselines)

    @property
    def ranking(self) -> list[str]:
        """Names from the highest mean to the lowest; those without a mean are left out."""
        known = [name for name, result in self.norms.items() if math.isfinite(result.mean)]
        return sorted(known, key=lambda name: -self.norms[name].mean)

    @cached_property
    def significance(self) -> list[PairTest]:
        """Every pair, paired over folds (seeds are not paired), in percentage points."""
        scores = {name: result.scores for name, result in self.norms.items()}
        return compare_all(scores, overlap=self.overlap, paired=self.protocol.paired)

    def pair(self, first: str, second: str) -> PairTest:
        """The test of two normalizations, seen from the first."""
        for test in self.significance:
            if {test.first, test.second} == {first, second}:
                return test.seen_from(first)
        raise GraphnormError(f"there is no pair of {first} and {second}", remedy=f"name two of {', '.join(self.norms)}")

    @cached_property
    def convergence(self) -> Convergence:
        """How fast they train."""
        return measure_convergence({name: r.curves["train"][0] for name, r in self.norms.items() if r.curves})

    @property
    def verdict(self) -> str:
        """One sentence that says which is best, and how sure that is."""
        return pronounce(self)

    @property
    def notes(self) -> list[str]:
        """What a reader of the table must know."""
        notes = []
        for name, result in self.norms.items():
            if result.selection.diverged:
                notes.append(
                    f"{name}: {result.selection.diverged} of {len(result.outcomes)} trainings diverged and are left out"
                )
        notes += name_guessers({name: self.norms[name].mean for name in self.ranking}, self.guessing)
        if self.baselines:
            notes.append(ABOUT_BASELINES)
        if self.unfinished:
            notes.append(f"not trained: {', '.join(self.unfinished)}")
        if self.protocol.name == "paper":
            notes.append(
                "protocol paper: the folds that choose the epoch are those reported, so numbers are optimistic"
            )
        notes += about_last_batch(self.training_sizes, self.settings.batch_size)
        if self.protocol.unit == "fold" and any(result.paper for result in self.norms.values()):
            notes += unlike_the_paper(self.settings.folds, self.settings.epochs)
        if any(test.p_adjusted is not None for test in self.significance):
            notes.append(about_tests(self.protocol, self.overlap))
        if self.protocol.unit == "seed":
            notes.append("significance is over seeds on one split: it says nothing about other splits")
        return notes

    def table(self) -> str:
        """The result as text: a line for each normalization."""
        return tables.as_text(self)

    def to_frame(self) -> pandas.DataFrame:
        """The result as a data frame: a row for each normalization."""
        return tables.as_frame(self)

    def to_dict(self) -> dict[str, Any]:
        """Everything, as JSON has it; see the documentation for the meaning of each field."""
        return {
            "format": FORMAT,
            "version": exact_version(),
            "dataset": self.dataset,
            "fingerprint": self.fingerprint,
            "graphs": self.num_graphs,
            "classes": list(self.classes),
            "origin": None if self.origin is None else dict(self.origin),
            "model": self.settings.model,
            "protocol": self.settings.protocol,
            "metric": self.protocol.metric,
            "guessing": round(self.guessing, DIGITS),
            "config": self.settings.to_dict(),
            "norms": {name: self._norm_to_dict(result) for name, result in self.norms.items()},
            "baselines": {
                name: self._norm_to_dict(result) | ({"candidates": candidates(name)} if name in KERNELS else {})
                for name, result in self.baselines.items()
            },
            "convergence": _plain(self.convergence.to_dict()),
            "significance": {
                "test": "paired t-test, corrected for overlapping training sets (Nadeau and Bengio)"
                if self.protocol.paired
                else "Welch's t-test",
                "paired_over": "folds" if self.protocol.paired else None,
                "overlap": self.overlap,
                "adjustment": "Holm",
                "level": ALPHA,
                "confidence": CONFIDENCE,
                "pairs": [_plain(test.to_dict()) for test in self.significance],
            },
            "ranking": self.ranking,
            "verdict": self.verdict,
            "notes": self.notes,
            "unfinished": list(self.unfinished),
        }

    def _norm_to_dict(self, result: NormResult) -> dict[str, Any]:
        name = result.name
        members = [
            {
                "fold": choice.fold,
                "seed": choice.seed,
                "status": "done" if choice.epoch is not None else "diverged",
                "epoch": choice.epoch,
                "score": 100 * choice.score,
            }
            for choice in result.selection.choices
        ]
        curves = {key: {"mean": mean.tolist(), "std": std.tolist()} for key, (mean, std) in result.curves.items()}
        values = {
            "mean": result.mean,
            "std": result.std,
            "epoch": result.selection.epoch,
            "folds": list(result.scores.values()),
            "members": members,
            "diverged": result.selection.diverged,
            "convergence": {
                "epochs": self.convergence.epochs.get(name) if result is self.norms.get(name) else None,
                "area": self.convergence.area.get(name) if result is self.norms.get(name) else None,
            },
            "seconds": result.seconds,
            "device": ", ".join(sorted({outcome.device for outcome in result.outcomes})),
            "paper": None if result.paper is None else result.paper._asdict(),
            "curves": curves,
        }
        plain: dict[str, Any] = _plain(values)
        return plain

    def __str__(self) -> str:
        return "\n".join([self.table(), *(f"  {note}" for note in self.notes), "", self.verdict])

    def __repr__(self) -> str:
        return f"Comparison({self.dataset}, {self.settings.model}: {', '.join(self.norms)}; {self.verdict})"

    def _repr_html_(self) -> str:
        return tables.as_html(self)


def _plain(value: Any) -> Any:
    """Values as JSON has them: rounded, and null for what is not a number."""
    if isinstance(value, dict):
        return {key: _plain(item) for key, item in value.items()}
    if isinstance(value, list):
        return [_plain(item) for item in value]
    if isinstance(value, float):
        return round(value, DIGITS + 2) if math.isfinite(value) else None
    return value
