"""Slimming a store: training curves of configurations that nobody chose are let go.

They are two thirds of a large study's bytes. What chooses and what is reported stays, so every table, verdict and test
comes out as before; so do the curves of the chosen configurations, which reports draw.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import NamedTuple

from graphnorm.errors import StudyError
from graphnorm.study.results import study_results
from graphnorm.study.store import Store, Study

__all__ = ["Slimmed", "slim"]

ONLY_DRAWN = ("loss", "train")
"""Curves that no choice and no score is made of."""


class Slimmed(NamedTuple):
    """How much was let go."""

    curves: int
    bytes: int
    """By which the store is smaller."""


def slim(store: Store, studies: Sequence[Study]) -> Slimmed:
    """Let go of ``studies``' training curves, but for the chosen configurations and trials that other studies have too.

    A study must be finished: what is missing could change its choice.
    """
    for study in studies:
        if study.missing:
            remedy = "go on with the same command as before, then slim it"
            raise StudyError(f"{study.name} has {study.missing:,} trials to train", where=store.path, remedy=remedy)
    kept = {key for study in studies for key in _chosen(store, study)}
    before = _size(store)
    curves = store.drop_curves(ONLY_DRAWN, studies, keep=kept)
    return Slimmed(curves, before - _size(store))


def _size(store: Store) -> int:
    """Bytes, those included that are still in the write-ahead log."""
    ((pages,),), ((each,),) = store.rows("PRAGMA page_count"), store.rows("PRAGMA page_size")
    return int(pages * each)


def _chosen(store: Store, study: Study) -> set[str]:
    """Keys of the trials of every configuration that is chosen, by any fold, or whose choice is open."""
    wanted = {}
    for result in study_results(store, study):
        choices = () if result.selection is None else result.selection.choices
        numbers = {choice.configuration for choice in choices} or range(len(result.configurations))
        wanted[result.norm] = [result.configurations[number] for number in numbers]
    return {
        trial.key
        for trial in store.trials(study)
        if any(
            all(getattr(trial, name) == value for name, value in settings.items()) for settings in wanted[trial.norm]
        )
    }
