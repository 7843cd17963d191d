"""Looking after stores: merge, prune, recover, and export to other programs."""

from __future__ import annotations

import csv
import json
import shutil
import sqlite3
import tempfile
import zlib
from collections.abc import Callable, Iterator, Sequence
from contextlib import closing
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np

from graphnorm.errors import StoreError, StudyError, need
from graphnorm.files import replacing
from graphnorm.study.plan import role
from graphnorm.study.protocol import find_protocol
from graphnorm.study.result import CURVES, read
from graphnorm.study.schema import connect, store_errors, transaction
from graphnorm.study.selection import best_of
from graphnorm.study.store import Store, Study, unpack_array, unpack_curve
from graphnorm.training import Trial

__all__ = ["Merged", "Pruned", "Recovered", "export_trials", "merge", "prune", "recover"]


# Merging


class Merged(NamedTuple):
    """How much was new."""

    studies: int
    outcomes: int
    known: int
    """Outcomes that were there already."""


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
    """Take over into ``target``, which may be new, what ``sources`` have finished; each one wholly or not at all.

    Trials are named by their content, so those of several machines fit together. A result that is there is never
    replaced. What was trained keeps its device, its time and the versions it was trained with.
    """
    for source in sources:
        if source.exists() and target.exists() and source.samefile(target):
            raise StoreError("a store cannot be merged into itself", where=source, remedy="name others")
        Store(source, writable=False).close()
    with Store(target) as store:
        parts = [_take_over(store, source) for source in sources]
    return Merged(*(sum(numbers) for numbers in zip(*parts, strict=True)))


def _take_over(store: Store, source: Path) -> Merged:
    execute = store._connection.execute

    def count(table: str) -> int:
        return int(execute(f"SELECT count(*) FROM {table}").fetchone()[0])

    with store_errors(source):
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
    """By which the store is smaller."""


def prune(store: Store, studies: Sequence[Study]) -> Pruned:
    """Delete the training curves of configurations that were not chosen, and of trials that no other study has.

    What chooses and what is reported stays, so every table, verdict and test comes out as before; so do the curves of
    the chosen configurations, which reports draw. A study must be finished: what is missing could change its choice.
    """
    for study in studies:
        if study.missing:
            remedy = "go on with the same command as before, then prune it"
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
                "DELETE FROM curves WHERE name IN ('loss', 'train') "
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
    """Keys of the trials of every configuration that is chosen, by any fold, or whose choice is open."""
    plan = store.plan(study)
    result = read(store, plan)
    kept: dict[tuple[str, str], list[dict[str, Any]]] = {}
    for kind, scores in (("norms", result.norms), ("baselines", result.baselines)):
        for name, score in scores.items():
            numbers = {choice.configuration for choice in score.choices} or range(len(score.configurations))
            kept[kind, name] = [score.configurations[number] for number in numbers]
    return {
        trial.key
        for trial in plan.trials
        if any(
            all(getattr(trial, option) == value for option, value in settings.items()) for settings in kept[role(trial)]
        )
    }


# Recovering


class Recovered(NamedTuple):
    """How much was saved."""

    studies: int
    outcomes: int
    lost: int
    """Outcomes that were there, as far as that can be told, and could not be read."""


def recover(damaged: Path, target: Path) -> Recovered:
    """Copy everything that is readable and right into a new store, row by row; the damaged file is not touched.

    A trial is taken over only if its key still is that of its content and all its curves unpack, so nothing that was
    changed by the damage gets through. A file whose first page is lost is read with the first page of a new store,
    whose tables begin at the same places.
    """
    if not damaged.is_file():
        raise StoreError("there is no such file", where=damaged, remedy="check the path")
    if target.exists():
        raise StoreError("this file is there already", where=target, remedy="name a new one")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        copy, fresh = Path(folder) / "copy.db", Path(folder) / "fresh.db"
        shutil.copyfile(damaged, copy)
        log = damaged.with_name(damaged.name + "-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        with Store(fresh) as store:
            store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        if not _opens(copy):
            _replace_first_page(copy, fresh)
        with closing(sqlite3.connect(copy)) as source, closing(connect(fresh, writable=True)) as goal:
            found = _copy(source, goal)
            goal.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        fresh.replace(target)
    return found


def _opens(path: Path) -> bool:
    with closing(sqlite3.connect(path)) as connection:
        try:
            return bool(connection.execute("SELECT count(*) FROM sqlite_schema WHERE name = 'outcomes'").fetchone()[0])
        except sqlite3.DatabaseError:
            return False


def _replace_first_page(path: Path, model: Path) -> None:
    content = model.read_bytes()
    page = bytearray(content[: int.from_bytes(content[16:18], "big")])
    page[28:32] = bytes(4)  # the number of pages: to be taken from the file's size
    with path.open("r+b") as file:
        file.write(page)
    path.with_name(path.name + "-wal").unlink(missing_ok=True)  # it belongs to the page that is gone


SMALLEST_ROW = 16
"""Bytes; so row ids, which count from 1, end below the size of the file over this."""


def _rows(source: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Every readable row of a table."""
    pages, size = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    try:
        source.execute(f"SELECT 1 FROM {table} WHERE rowid = 0").fetchone()
    except sqlite3.Error:
        return  # the table's first page is gone, and with it the way to all others
    yield from _range(source, table, 0, pages * size // SMALLEST_ROW)


def _range(source: sqlite3.Connection, table: str, low: int, high: int) -> Iterator[tuple[Any, ...]]:
    """The rows with ids from ``low`` to below ``high``; where they cannot be read, those of either half."""
    try:
        yield from source.execute(f"SELECT * FROM {table} WHERE rowid >= ? AND rowid < ?", (low, high)).fetchall()
    except sqlite3.Error:
        if high - low > 1:
            middle = (low + high) // 2
            yield from _range(source, table, low, middle)
            yield from _range(source, table, middle, high)


def _copy(source: sqlite3.Connection, goal: sqlite3.Connection) -> Recovered:
    configurations = [row for row in _rows(source, "configurations") if _is_json(row[2])]
    settings = {id_: text for id_, _, text in configurations}
    trials = {row[0]: row for row in _rows(source, "trials") if row[2] in settings and _is_trial(row, settings)}
    curves: dict[int, dict[str, bytes]] = {}
    broken = set()
    for trial, name, data in _rows(source, "curves"):
        if _unpacks(data, unpack_curve):
            curves.setdefault(trial, {})[name] = data
        else:
            broken.add(trial)
    seen = list(_rows(source, "seen"))
    broken |= {trial for trial, _, data in seen if not _unpacks(data, unpack_array)}
    sessions = {row[0]: row for row in _rows(source, "sessions")}
    outcomes, lost = [], len(broken)
    for trial, status, *rest, best in _rows(source, "outcomes"):
        whole = trial in trials and trial not in broken
        if whole and status != "failed":
            protocol = find_protocol(json.loads(settings[trials[trial][2]])["protocol"])
            whole = {"valid", protocol.reported} <= curves.get(trial, {}).keys()
        if not whole:
            lost += trial not in broken
            continue
        session = rest[3]
        if session not in sessions:
            sessions[session] = (session, None, "?", 0, "?", "?", "1970-01-01T00:00:00+00:00", None, "recovered")
        best = None if status == "failed" else best_of(unpack_curve(curves[trial]["valid"]))
        outcomes.append((trial, status, *rest, best))
    studies = {row[0]: row for row in _rows(source, "studies") if _is_json(row[2])}
    saved = {row[0] for row in outcomes}
    with transaction(goal):
        goal.executemany("INSERT INTO studies VALUES (?, ?, ?, ?)", studies.values())
        goal.executemany("INSERT INTO configurations VALUES (?, ?, ?)", configurations)
        goal.executemany("INSERT INTO trials VALUES (?, ?, ?, ?, ?)", trials.values())
        for id_, study, *rest in sessions.values():
            row = (id_, study if study in studies else None, *rest)
            goal.execute("INSERT INTO sessions VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        goal.executemany("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", outcomes)
        for trial in saved:
            rows = [(trial, name, data) for name, data in curves.get(trial, {}).items()]
            goal.executemany("INSERT INTO curves VALUES (?, ?, ?)", rows)
        goal.executemany("INSERT INTO seen VALUES (?, ?, ?)", [row for row in seen if row[0] in saved])
        members = [row for row in _members(source) if row[0] in studies and row[2] in trials]
        goal.executemany("INSERT OR IGNORE INTO members VALUES (?, ?, ?, ?, ?)", members)
    return Recovered(len(studies), len(outcomes), lost)


def _members(source: sqlite3.Connection) -> list[tuple[Any, ...]]:
    """The rows of ``members``, which has no row ids: in order, from either end, up to what cannot be read."""
    found: dict[tuple[int, int], tuple[Any, ...]] = {}
    for direction in ("ASC", "DESC"):
        try:
            order = f"ORDER BY study {direction}, place {direction}"
            for row in source.execute(f"SELECT study, place, trial, fleet, dropped FROM members NOT INDEXED {order}"):
                found[row[:2]] = row
        except sqlite3.Error:
            continue
    return [found[key] for key in sorted(found)]


def _is_json(text: Any) -> bool:
    try:
        return isinstance(json.loads(text), dict)
    except (ValueError, TypeError):
        return False


def _is_trial(row: tuple[Any, ...], settings: dict[int, str]) -> bool:
    _, key, configuration, fold, seed = row
    try:
        return bool(Trial(**json.loads(settings[configuration]), fold=fold, seed=seed).key == key)
    except (ValueError, TypeError):
        return False


def _unpacks(data: Any, unpack: Callable[[bytes], Any]) -> bool:
    try:
        unpack(data)
    except (zlib.error, ValueError, TypeError, EOFError):
        return False
    return True


# Exporting


def export_trials(store: Store, studies: Sequence[Study], path: Path, *, curves: bool = False) -> int:
    """Write a row for each trial (with ``curves`` for each of its epochs), as CSV or Parquet by the file's name.

    The file is there wholly or not at all. Gives the number of rows.
    """
    kind = path.suffix.lower()
    if kind not in (".csv", ".parquet"):
        raise StudyError("tables are written as CSV or Parquet", where=path, remedy="name the file .csv or .parquet")
    rows = [row for study in studies for row in _export_rows(store, study, curves)]
    columns = list(dict.fromkeys(name for row in rows for name in row))
    with replacing(path) as fresh:
        if kind == ".csv":
            with fresh.open("w", newline="", encoding="utf-8") as file:
                writer = csv.DictWriter(file, columns, restval="")
                writer.writeheader()
                writer.writerows(rows)
        else:
            arrow = need("pyarrow", "writing Parquet", "chem")
            table = arrow.table({name: [row.get(name) for row in rows] for name in columns})
            need("pyarrow.parquet", "writing Parquet", "chem").write_table(table, fresh)
    return len(rows)


def _export_rows(store: Store, study: Study, curves: bool) -> Iterator[dict[str, Any]]:
    for record in store.records(store.plan(study), curves=CURVES):
        valid = record.curves.get("valid", np.empty(0, np.float32))
        best = int(np.nanargmax(valid)) if np.isfinite(valid).any() else None
        row = {
            "study": study.name,
            "key": record.trial.key,
            **record.trial.to_dict(),
            "status": record.status,
            "trained_epochs": record.epochs,
            "seconds": record.seconds,
            "device": record.device,
            "finished": record.finished,
            "code": record.code,
        }
        if not curves:
            at_best = {f"best_{name}": None if best is None else float(c[best]) for name, c in record.curves.items()}
            yield row | {"best_epoch": None if best is None else best + 1, **at_best}
            continue
        for epoch in range(record.epochs):
            yield row | {"epoch": epoch + 1} | {name: float(c[epoch]) for name, c in record.curves.items()}
