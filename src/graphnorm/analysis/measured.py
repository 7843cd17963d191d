"""What trainings have shown: scores of normalizations on the same folds, wherever they come from."""

from __future__ import annotations

import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import TYPE_CHECKING

import numpy as np

from graphnorm.analysis.measurement import Measurement
from graphnorm.errors import GraphnormError
from graphnorm.study.guessing import guessing_score
from graphnorm.study.protocol import find_protocol, make_splits, overlap
from graphnorm.study.results import study_results
from graphnorm.study.significance import PairTest, compare_all
from graphnorm.study.store import Store

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Measured", "measured_by_study"]


@dataclass(frozen=True, eq=False)
class Measured(Measurement):
    """A comparison of normalizations on one dataset; scores in percent."""

    source: str
    """Where it lies."""
    model: str
    protocol: str
    epochs: int
    overlap: float
    """Reported graphs for every graph that trains; see :func:`graphnorm.study.paired_test`."""
    scores: Mapping[str, Mapping[int, float]]
    """By normalization and fold (or seed); NaN where it diverged."""
    speed: Mapping[str, float] = field(default_factory=dict)
    """The average training metric over the epochs, where it is known: higher is faster."""
    guessing: float | None = None
    """The score that needs no model; None where nobody knows it."""

    @cached_property
    def means(self) -> dict[str, float]:
        """The average of each normalization that has a score, from the highest on."""
        known = {norm: [s for s in of.values() if np.isfinite(s)] for norm, of in self.scores.items()}
        means = {norm: float(np.mean(values)) for norm, values in known.items() if values}
        return dict(sorted(means.items(), key=lambda item: -item[1]))

    @cached_property
    def tests(self) -> list[PairTest]:
        """Every pair."""
        return compare_all(self.scores, overlap=self.overlap, paired=find_protocol(self.protocol).paired)

    def test(self, first: str, second: str) -> PairTest:
        """One pair, seen from the first."""
        return next(t for t in self.tests if {t.first, t.second} == {first, second}).seen_from(first)

    @property
    def unit(self) -> str:
        """What scores are of: fold or seed."""
        return find_protocol(self.protocol).unit


def measured_by_study(path: str | os.PathLike[str], graphs: PackedGraphs) -> Measured:
    """Read the study of these graphs from a store; where there are several, the one that has trained most."""
    with Store(path, writable=False) as store:
        found = [study for study in store.studies() if study.spec.get("fingerprint") == graphs.fingerprint]
        for study in sorted(found, key=lambda study: -study.finished):
            results = [result for result in study_results(store, study) if result.selection is not None]
            if not results:
                continue
            trials = store.trials(study)
            one_of_each_fold = list({trial.fold: trial for trial in trials}.values())
            return Measured(
                source=f"the study {study.name!r} in {path}",
                model=", ".join(sorted({trial.model for trial in trials})),
                protocol=trials[0].protocol,
                epochs=max(trial.epochs for trial in trials),
                overlap=overlap(trials[0].protocol, make_splits(graphs, one_of_each_fold)),
                scores={
                    result.norm: {unit: 100 * score for unit, score in result.selection.scores.items()}
                    for result in results
                    if result.selection is not None
                },
                guessing=guessing_score(graphs, trials[0].protocol),
            )
        names = ", ".join(study.name for study in store.studies()) or "none"
    raise GraphnormError(
        f"no study here has results for these graphs ({graphs.name}); there are: {names}",
        where=path,
        remedy="run graphnorm search on the same data, or leave --study out",
    )
