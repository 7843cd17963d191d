"""Standings: where each trial of a study stands, in few enough words to be read for tens of thousands at once."""

from __future__ import annotations

import re
from typing import NamedTuple

from graphnorm.study.store import STATUS, Status, Store, Study
from graphnorm.training import Trial

__all__ = ["Circumstances", "Standing", "Standings", "circumstances", "read_standings"]

MEMBER = re.compile(r'"fold": (\d+), "seed": (\d+)')
"""What tells the trials of one configuration apart, in the text of a trial."""


class Standing(NamedTuple):
    """Where one trial stands."""

    place: int
    """Among the trials of the study."""
    configuration: int
    """Among the study's configurations."""
    fold: int
    seed: int
    status: Status | None
    """None while it is not trained."""
    best: float
    """The largest value of its validation curve, as :func:`~graphnorm.study.selection.best_of` has it."""


class Standings(NamedTuple):
    """All of a study."""

    configurations: list[Trial]
    """One trial of each, in the order of first appearance."""
    trials: list[Standing]
    """In the order of their places."""


def read_standings(store: Store, study: Study) -> Standings:
    """Give the standings of a study.

    Trials of one configuration differ in the text of their fold and seed alone, so that only the first of each is read
    in full.
    """
    configurations: list[Trial] = []
    numbers: dict[str, int] = {}
    standings = []
    for place, id_, config, status, best in store.rows(
        f"SELECT m.place, t.id, t.config, {STATUS}, o.best FROM members m JOIN trials t ON t.id = m.trial "
        "LEFT JOIN outcomes o ON o.trial = m.trial WHERE m.study = ? ORDER BY m.place",
        study.id,
    ):
        found = MEMBER.search(config)
        assert found is not None, "a trial has a fold and a seed"
        common = config[: found.start()] + config[found.end() :]
        number = numbers.get(common)
        if number is None:
            number = numbers[common] = len(configurations)
            configurations.append(store.parse_trial(id_, config))
        fold, seed = found.groups()
        standings.append(Standing(place, number, int(fold), int(seed), status, float("-inf") if best is None else best))
    return Standings(configurations, standings)


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
