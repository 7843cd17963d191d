"""Standings: where the trials of a study stand, as a table that is read for tens of thousands at once."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm.study.store import STATUS, Store, Study
from graphnorm.training import Trial

__all__ = ["DIVERGED", "DONE", "OPEN", "Circumstances", "Standings", "circumstances", "read_standings"]

Integers = npt.NDArray[np.int64]

DONE, DIVERGED, OPEN = range(3)
CODES = {"done": DONE, "diverged": DIVERGED}


class Standings(NamedTuple):
    """Arrays of shape (configurations, members)."""

    configurations: list[Trial]
    """The first trial of each, in the order of their places."""
    members: list[tuple[int, int]]
    """Fold and seed, in the order of their places."""
    places: Integers
    """Among the trials of the study; −1 where a configuration has no such trial."""
    status: Integers
    """``DONE`` or ``DIVERGED``; ``OPEN`` for whatever is not trained to the end."""
    best: npt.NDArray[np.float64]
    """The largest value of the validation curve, as :func:`~graphnorm.study.selection.best_of` has it; −∞ without."""


def read_standings(store: Store, study: Study) -> Standings:
    """Give the standings of a study; of every configuration one trial alone is read in full."""
    rows = store.rows(
        f"SELECT m.place, t.configuration, t.fold, t.seed, {STATUS}, coalesce(o.best, -9e999) "
        "FROM members m JOIN trials t ON t.id = m.trial LEFT JOIN outcomes o ON o.trial = m.trial "
        "WHERE m.study = ? ORDER BY m.place",
        study.id,
    )
    place, configuration, fold, seed, status, best = zip(*rows, strict=True)
    row, firsts = _number(np.array(configuration))
    column, first_members = _number(np.array(fold) * (max(seed) + 1) + np.array(seed))

    def table(values: Any, missing: float) -> npt.NDArray[Any]:
        values = np.asarray(values)
        found = np.full((len(firsts), len(first_members)), missing, values.dtype)
        found[row, column] = values
        return found

    return Standings(
        store.trials(study, [place[k] for k in firsts]),
        [(fold[k], seed[k]) for k in first_members],
        table(place, -1),
        table([CODES.get(text, OPEN) for text in status], OPEN),
        table(best, -np.inf),
    )


def _number(values: npt.NDArray[np.int64]) -> tuple[Integers, list[int]]:
    """Number equal values in the order of first appearance: each one's number, and where each number appears first."""
    _, first, inverse = np.unique(values, return_index=True, return_inverse=True)
    order = first.argsort()
    return order.argsort()[inverse], first[order].tolist()


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
