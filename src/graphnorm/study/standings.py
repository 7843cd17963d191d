"""Standings: where each trial of a study stands, in few enough words to be read for tens of thousands at once."""

from __future__ import annotations

from typing import NamedTuple

from graphnorm.study.store import STATUS, Status, Store, Study
from graphnorm.training import Trial

__all__ = ["Circumstances", "Standing", "Standings", "circumstances", "read_standings"]


class Standing(NamedTuple):
    """Where one trial stands."""

    place: int
    """Among the trials of the study."""
    configuration: int
    """A number that the trials of one configuration share."""
    fold: int
    seed: int
    status: Status | None
    """None while it is not trained."""
    best: float
    """The largest value of its validation curve, as :func:`~graphnorm.study.selection.best_of` has it."""


class Standings(NamedTuple):
    """All of a study."""

    configurations: dict[int, Trial]
    """The first trial of each, by the number, in the order of their places."""
    trials: list[Standing]
    """In the order of their places."""


def read_standings(store: Store, study: Study) -> Standings:
    """Give the standings of a study; of every configuration one trial alone is read in full."""
    rows = store.rows(
        f"SELECT m.place, t.configuration, t.fold, t.seed, {STATUS}, coalesce(o.best, -9e999) "
        "FROM members m JOIN trials t ON t.id = m.trial LEFT JOIN outcomes o ON o.trial = m.trial "
        "WHERE m.study = ? ORDER BY m.place",
        study.id,
    )
    standings = list(map(Standing._make, rows))
    first = {standing.configuration: standing.place for standing in reversed(standings)}
    trials = store.trials(study, sorted(first.values()))
    return Standings(dict(zip(sorted(first, key=first.__getitem__), trials, strict=True)), standings)


class Circumstances(NamedTuple):
    """With what the trials of a study were trained, and what went wrong."""

    codes: list[str]
    devices: list[str]
    errors: list[str]


def circumstances(store: Store, study: Study) -> Circumstances:
    """Versions, devices and the first lines of errors, each once."""
    rows = store.rows(
        f"SELECT DISTINCT s.code, o.device, o.error, {STATUS} AS status FROM members m "
        "JOIN outcomes o ON o.trial = m.trial JOIN sessions s ON s.id = o.session "
        "WHERE m.study = ? AND status IS NOT NULL",
        study.id,
    )
    return Circumstances(
        sorted({code for code, *_ in rows}),
        sorted({device for _, device, *_ in rows if device}),
        sorted({error.splitlines()[0] for _, _, error, _ in rows if error}),
    )
