"""Merging stores: what others have finished, taken over into one.

Trials are named by their content, so those of several machines fit together. A result that is there is never replaced.
What was trained keeps its device, its time and the versions it was trained with. Stores of older versions can be taken
from as they are: only columns are read that were always there.
"""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import NamedTuple

from graphnorm.errors import StoreError
from graphnorm.study.schema import BEST, DERIVED_OF_TRIALS, check_readable, store_errors, transaction
from graphnorm.study.store import FINAL, Store

__all__ = ["Merged", "merge"]

_FINAL = f"({', '.join(repr(status) for status in FINAL)})"
_NEW_TRIALS = f"""INSERT INTO trials (key, dataset, model, norm, config, configuration, fold, seed)
    SELECT key, dataset, model, norm, config, {", ".join(DERIVED_OF_TRIALS.values())} FROM other.trials
    WHERE key NOT IN (SELECT key FROM trials)"""
_TAKEN = f"""CREATE TEMP TABLE taken AS SELECT mine.id AS mine, theirs.id AS theirs
    FROM other.outcomes o JOIN other.trials theirs ON theirs.id = o.trial JOIN trials mine ON mine.key = theirs.key
    LEFT JOIN outcomes known ON known.trial = mine.id
    WHERE o.status IN {_FINAL} AND (known.status IS NULL OR known.status NOT IN {_FINAL})"""
_SESSIONS = """INSERT INTO sessions (id, study, host, pid, engine, code, started, ended, ending)
    SELECT id + :shift, NULL, host, pid, engine, code, started, ended, ending FROM other.sessions
    WHERE id IN (SELECT o.session FROM other.outcomes o JOIN taken ON taken.theirs = o.trial)"""
_OUTCOMES = """INSERT INTO outcomes (trial, status, epochs, seconds, device, session, finished, error)
    SELECT taken.mine, o.status, o.epochs, o.seconds, o.device, o.session + :shift, o.finished, o.error
    FROM other.outcomes o JOIN taken ON taken.theirs = o.trial"""
_CURVES = """INSERT INTO curves (trial, name, data)
    SELECT taken.mine, c.name, c.data FROM other.curves c JOIN taken ON taken.theirs = c.trial"""
_BEST = f"UPDATE outcomes SET best = {BEST} WHERE trial IN (SELECT mine FROM taken)"
_STUDIES = """INSERT INTO studies (name, spec, created)
    SELECT name, spec, created FROM other.studies WHERE name NOT IN (SELECT name FROM studies) ORDER BY id"""
_MEMBERS = """INSERT INTO members (study, place, trial, fleet, dropped)
    SELECT here.id, m.place, mine.id, m.fleet, m.dropped FROM other.members m
    JOIN other.studies there ON there.id = m.study JOIN studies here ON here.name = there.name
    JOIN other.trials theirs ON theirs.id = m.trial JOIN trials mine ON mine.key = theirs.key
    WHERE here.id > :before"""


class Merged(NamedTuple):
    """How much was new."""

    studies: int
    outcomes: int
    known: int
    """Outcomes that were there already."""


def merge(target: Path, sources: Sequence[Path]) -> Merged:
    """Take over into ``target``, which may be new, what ``sources`` have finished; each one wholly or not at all."""
    for source in sources:
        if source.exists() and target.exists() and source.samefile(target):
            raise StoreError("a store cannot be merged into itself", where=source, remedy="name others")
        check_readable(source)
    with Store(target) as store:
        parts = [_take_over(store, source) for source in sources]
    return Merged(*(sum(numbers) for numbers in zip(*parts, strict=True)))


def _take_over(store: Store, source: Path) -> Merged:
    connection = store._connection
    execute = connection.execute
    with store_errors(source):
        execute("ATTACH ? AS other", (f"{source.resolve().as_uri()}?mode=ro",))
        try:
            with transaction(connection):
                execute(_NEW_TRIALS)
                execute(_TAKEN)
                (shift,) = execute("SELECT coalesce(max(id), 0) FROM sessions").fetchone()
                (before,) = execute("SELECT coalesce(max(id), 0) FROM studies").fetchone()
                execute(_SESSIONS, {"shift": shift})
                execute("DELETE FROM outcomes WHERE trial IN (SELECT mine FROM taken)")
                outcomes = execute(_OUTCOMES, {"shift": shift}).rowcount
                execute(_CURVES)
                execute(_BEST)
                studies = execute(_STUDIES).rowcount
                execute(_MEMBERS, {"before": before})
                execute("DROP TABLE taken")
                finished = f"SELECT count(*) FROM other.outcomes WHERE status IN {_FINAL}"
                (there,) = execute(finished).fetchone()
        finally:
            execute("DETACH other")
    return Merged(studies, outcomes, there - outcomes)
