"""Maintenance of stores: merge, prune and recover."""

from __future__ import annotations

import errno
import json
import shutil
import sqlite3
import zlib
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.errors import StoreError, StudyError
from graphnorm.files import refuse_unwritable, replacing
from graphnorm.study.compression import decompress_array, decompress_curve
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reading import read
from graphnorm.study.schema import WRITE_ERRORS, connect, store_errors, transaction
from graphnorm.study.selection import best_of
from graphnorm.study.store import Store, Study
from graphnorm.training import Trial, metric_of

__all__ = ["Merged", "Pruned", "Recovered", "merge", "prune", "recover"]


# Merging


class Merged(NamedTuple):
    """How much was new."""

    studies: int
    outcomes: int
    known: int
    """Outcomes that the target had already."""


_FINAL = "('done', 'diverged')"
_MERGE = (
    "INSERT OR IGNORE INTO configurations (key, settings) SELECT key, settings FROM other.configurations",
    """INSERT INTO trials (key, configuration, fold, seed)
        SELECT t.key, mine.id, t.fold, t.seed FROM other.trials t JOIN other.configurations c ON c.id = t.configuration
        JOIN configurations mine ON mine.key = c.key WHERE t.key NOT IN (SELECT key FROM trials)""",
    f"""CREATE TEMP TABLE taken AS SELECT mine.id AS mine, theirs.id AS theirs
        FROM other.outcomes o JOIN other.trials theirs ON theirs.id = o.trial JOIN trials mine ON mine.key = theirs.key
        LEFT JOIN outcomes known ON known.trial = mine.id WHERE o.status IN {_FINAL}
        AND (known.status IS NULL OR known.status NOT IN {_FINAL})""",
    """INSERT INTO sessions (id, study, host, pid, engine, code, started, ended, ending)
        SELECT id + :sessions, NULL, host, pid, engine, code, started, ended, ending FROM other.sessions
        WHERE id IN (SELECT o.session FROM other.outcomes o JOIN taken ON taken.theirs = o.trial)""",
    "DELETE FROM outcomes WHERE trial IN (SELECT mine FROM taken)",
    """INSERT INTO outcomes SELECT taken.mine, o.status, o.epochs, o.seconds, o.device, o.session + :sessions,
        o.finished, o.error, o.best FROM other.outcomes o JOIN taken ON taken.theirs = o.trial""",
    "INSERT INTO curves SELECT taken.mine, c.name, c.data FROM other.curves c JOIN taken ON taken.theirs = c.trial",
    "INSERT INTO seen SELECT taken.mine, s.name, s.data FROM other.seen s JOIN taken ON taken.theirs = s.trial",
    """INSERT INTO studies (name, spec, created) SELECT name, spec, created FROM other.studies
        WHERE name NOT IN (SELECT name FROM studies) ORDER BY id""",
    """INSERT INTO members (study, place, trial, fleet, dropped)
        SELECT here.id, m.place, mine.id, m.fleet, m.dropped FROM other.members m
        JOIN other.studies there ON there.id = m.study JOIN studies here ON here.name = there.name
        JOIN other.trials theirs ON theirs.id = m.trial JOIN trials mine ON mine.key = theirs.key
        WHERE here.id > :studies""",
)


def merge(target: Path, sources: Sequence[Path]) -> Merged:
    """Copy the finished trials of ``sources`` into ``target``, which may be new; each source completely or not at all.

    Trials are identified by their content, so stores of several machines fit together. An existing result is never
    replaced. Copied trials keep their device, time and versions.
    """
    for source in sources:
        if source.exists() and target.exists() and source.samefile(target):
            raise StoreError("a store cannot be merged into itself", where=source, remedy="name other stores")
        Store(source, writable=False).close()
    with Store(target) as store:
        parts = [_take_over(store, source) for source in sources]
    return Merged(*(sum(numbers) for numbers in zip(*parts, strict=True)))


def _take_over(store: Store, source: Path) -> Merged:
    execute = store._connection.execute

    def count(table: str) -> int:
        return int(execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    with store_errors(source, written=store.path):
        execute("ATTACH ? AS other", (f"{source.resolve().as_uri()}?mode=ro",))
        try:
            with transaction(store._connection):
                studies = count("studies")
                ids = {
                    table: execute(f"SELECT coalesce(max(id), 0) FROM {table}").fetchone()[0]
                    for table in ("sessions", "studies")
                }
                for statement in _MERGE:
                    execute(statement, {name: value for name, value in ids.items() if f":{name}" in statement})
                taken = count("taken")
                execute("DROP TABLE taken")
                finished = count(f"other.outcomes WHERE status IN {_FINAL}")
                return Merged(count("studies") - studies, taken, finished - taken)
        finally:
            execute("DETACH other")


# Pruning


class Pruned(NamedTuple):
    """How much was deleted."""

    curves: int
    bytes: int
    """Reduction of the store's size."""


def prune(store: Store, studies: Sequence[Study]) -> Pruned:
    """Delete the training curves of unselected configurations, except those of trials that other studies share.

    Validation and test curves stay, so every table, verdict and test stays the same. The selected configurations keep
    all curves, which reports draw. A study must be finished: missing trials could change the selection.
    """
    for study in studies:
        if study.missing:
            remedy = "finish it with the same command as before, then prune it"
            raise StudyError(f"{study.name} has {study.missing:,} trials to train", where=store.path, remedy=remedy)
    kept = [key for study in studies for key in _chosen(store, study)]

    def size() -> int:
        ((pages,),), ((each,),) = store.rows("PRAGMA page_count"), store.rows("PRAGMA page_size")
        return int(pages * each)

    before = size()
    with store_errors(store.path):
        with transaction(store._connection):
            store._connection.execute(
                "WITH mine AS (SELECT value FROM json_each(:studies)) "
                "DELETE FROM curves WHERE name IN ('loss', 'train', 'targets') "
                "AND trial IN (SELECT trial FROM members WHERE study IN mine) "
                "AND trial NOT IN (SELECT trial FROM members WHERE study NOT IN mine) "
                "AND trial NOT IN (SELECT id FROM trials WHERE key IN (SELECT value FROM json_each(:keep)))",
                {"studies": json.dumps([study.id for study in studies]), "keep": json.dumps(kept)},
            )
            (curves,) = store._connection.execute("SELECT changes()").fetchone()
        store._connection.execute("VACUUM")
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    return Pruned(curves, before - size())


def _chosen(store: Store, study: Study) -> set[str]:
    """Keys of the trials of every configuration that some fold chose; all trials where nothing is chosen yet."""
    plan = store.plan(study)
    result = read(store, plan)
    scores = {"norms": result.norms, "baselines": result.baselines}
    kept: set[str] = set()
    for (kind, name), groups in plan.configurations().items():
        numbers = {choice.configuration for choice in scores[kind][name].choices} or range(len(groups))
        kept |= {plan.trials[place].key for number in numbers for place in groups[number]}
    return kept


# Recovering


class Recovered(NamedTuple):
    """How much was saved."""

    studies: int
    outcomes: int
    lost: int
    """Trials with a damaged part; they will be trained again."""


def recover(damaged: Path, target: Path) -> Recovered:
    """Copy every readable and correct row into a new store; the damaged file is not changed.

    A trial is copied only if its key matches its content and all its arrays unpack, so damaged values are never taken
    over. If the first page of the file is lost, that of a new store replaces it: its tables begin at the same pages.
    """
    if not damaged.is_file():
        raise StoreError("there is no such file", where=damaged, remedy="check the path")
    if target.exists():
        raise StoreError("this file exists already", where=target, remedy="name a new one")
    refuse_unwritable(target.parent)
    with store_errors(damaged, written=target), _naming(target), replacing(target) as fresh:
        copy = fresh.with_name(f"{fresh.name}-copy")
        copied_log, index = (copy.with_name(copy.name + end) for end in ("-wal", "-shm"))
        try:
            log = damaged.with_name(damaged.name + "-wal")
            shutil.copyfile(damaged, copy)
            if log.exists():
                shutil.copyfile(log, copied_log)
            with closing(connect(fresh, writable=True)) as goal:
                goal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
                if not _opens(copy):
                    _replace_first_page(copy, fresh)
                    copied_log.unlink(missing_ok=True)  # it belongs to the lost page
                with closing(sqlite3.connect(copy)) as source:
                    try:
                        found = _copy(source, goal)
                    except (sqlite3.DatabaseError, UnicodeDecodeError) as error:
                        if getattr(error, "sqlite_errorcode", 0) in WRITE_ERRORS:
                            raise
                        raise _no_store(damaged) from error
                if not found.studies and not found.outcomes:
                    raise _no_store(damaged)
                goal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        finally:
            for path in (copy, copied_log, index):
                path.unlink(missing_ok=True)
    return found


@contextmanager
def _naming(path: Path) -> Iterator[None]:
    """Let the error of a full disk name the file that the user asked for."""
    try:
        yield
    except OSError as error:
        if error.errno in (errno.ENOSPC, errno.EDQUOT, errno.EFBIG):
            error.filename, error.filename2 = str(path), None
        raise


def _no_store(path: Path) -> StoreError:
    return StoreError("nothing of a store can be read from this file", where=path, remedy="check the path")


def _opens(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        try:
            return bool(connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'outcomes'").fetchone()[0])
        except (sqlite3.DatabaseError, UnicodeDecodeError):
            return False


def _replace_first_page(path: Path, model: Path) -> None:
    content = model.read_bytes()
    page = bytearray(content[: int.from_bytes(content[16:18], "big")])
    page[28:32] = bytes(4)  # the number of pages: SQLite then derives it from the file's size
    with path.open("r+b") as file:
        file.write(page)


def _copy(source: sqlite3.Connection, goal: sqlite3.Connection) -> Recovered:
    """Copy row by row, each table after those it refers to: the new store refuses a row that refers to a lost one."""
    pages, size = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    most = pages * size // SMALLEST_ROW

    def rows(table: str, key: str = "rowid") -> Iterator[tuple[Any, ...]]:
        query = f"SELECT * FROM {table} WHERE {key} BETWEEN ? AND ?"
        if _reads(source.execute, query, (0, 0)) or _reads(source.execute, query, (most, most)):
            return _rows(source, query, 0, most)
        return iter(())  # the root page is damaged, and no other page can be found without it

    def insert(table: str, row: Sequence[Any]) -> bool:
        try:
            goal.execute(f"INSERT INTO {table} VALUES ({', '.join('?' * len(row))})", row)
        except sqlite3.IntegrityError:
            return False
        return True

    def ids(table: str) -> set[int]:
        return {id_ for (id_,) in goal.execute(f"SELECT id FROM {table}")}

    with transaction(goal):
        for table in ("studies", "configurations"):
            for row in rows(table):
                if _reads(lambda text: dict(json.loads(text)), row[2]):
                    insert(table, row)
        studies = ids("studies")
        settings = dict(goal.execute("SELECT id, settings FROM configurations"))
        for row in rows("trials"):
            if _is_trial(row, settings):
                insert("trials", row)
        for study in studies:
            for row in rows("members NOT INDEXED", f"study = {study} AND place"):
                insert("members", row)
        for id_, study, *rest in rows("sessions"):
            insert("sessions", (id_, study if study in studies else None, *rest))
        sessions = ids("sessions")
        lost = set()
        for trial, status, epochs, seconds, device, session, finished, error, _ in rows("outcomes"):
            if session not in sessions:
                sessions.add(session)
                insert("sessions", (session, None, "?", 0, "?", "?", "1970-01-01T00:00:00+00:00", None, "recovered"))
            if not insert("outcomes", (trial, status, epochs, seconds, device, session, finished, error, None)):
                lost.add(trial)
        for table, key, unpack in (("curves", "trial", decompress_curve), ("seen", "rowid", decompress_array)):
            for trial, name, data in rows(table, key):
                if not _reads(unpack, data):
                    lost.add(trial)
                elif insert(table, (trial, name, data)) and name == "valid":
                    best = best_of(decompress_curve(data), _sign_of(goal, trial))
                    goal.execute("UPDATE outcomes SET best = ? WHERE trial = ?", (best, trial))
        lost |= _incomplete(goal)
        goal.executemany("DELETE FROM outcomes WHERE trial = ?", [(trial,) for trial in lost])
    (outcomes,) = goal.execute("SELECT count(*) FROM outcomes").fetchone()
    return Recovered(len(studies), outcomes, len(lost))


def _sign_of(goal: sqlite3.Connection, trial: int) -> int:
    """:attr:`Metric.sign` of a stored trial."""
    query = "SELECT settings FROM configurations JOIN trials ON configuration = configurations.id WHERE trials.id = ?"
    ((text,),) = goal.execute(query, (trial,))
    return metric_of(Trial(**json.loads(text))).sign


SMALLEST_ROW = 16
"""Bytes of a row at least. Row ids count from 1, so they end below the file's size divided by this."""


def _rows(source: sqlite3.Connection, query: str, first: int, last: int) -> Iterator[tuple[Any, ...]]:
    """The rows with keys from ``first`` to ``last``; where the range cannot be read, those of either half."""
    try:
        yield from source.execute(query, (first, last)).fetchall()
    except (sqlite3.Error, UnicodeDecodeError):
        if first < last:
            middle = (first + last) // 2
            yield from _rows(source, query, first, middle)
            yield from _rows(source, query, middle + 1, last)


def _incomplete(goal: sqlite3.Connection) -> set[int]:
    """Trials without the curves that the protocol chooses by and reports."""
    curves: dict[int, set[str]] = {}
    for trial, name in goal.execute("SELECT trial, name FROM curves"):
        curves.setdefault(trial, set()).add(name)
    trained = goal.execute(
        "SELECT o.trial, json_extract(c.settings, '$.protocol') FROM outcomes o JOIN trials t ON t.id = o.trial "
        "JOIN configurations c ON c.id = t.configuration WHERE o.status != 'failed'"
    )
    reported = {t: find_protocol(protocol).reported for t, protocol in trained}
    return {t for t, curve in reported.items() if not {"valid", curve} <= curves.get(t, set())}


def _is_trial(row: tuple[Any, ...], settings: Mapping[int, str]) -> bool:
    """Whether the key of a row of ``trials`` is that of its content."""
    _, key, configuration, fold, seed = row
    try:
        return bool(Trial(**json.loads(settings[configuration]), fold=fold, seed=seed).key == key)
    except (KeyError, ValueError, TypeError):
        return False


def _reads(read: Callable[..., object], *data: Any) -> bool:
    try:
        read(*data)
    except (sqlite3.Error, zlib.error, ValueError, TypeError):
        return False
    return True
