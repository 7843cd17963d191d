"""Rescue: what is readable of a damaged store, in a new one.

Every table is read in ranges of row ids; a range that cannot be read is halved until the unreadable rows are alone. A
trial is taken over only if its name still is that of its content and all its curves pass their checksums, so nothing
that was changed by the damage gets through. A file whose first page is lost is read with the first page of a new store,
whose tables begin at the same places.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from collections.abc import Iterator
from contextlib import closing
from dataclasses import fields
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.errors import StoreError
from graphnorm.study.curves import CurveError, unpack_curve
from graphnorm.study.schema import FILL_BEST, connect, transaction
from graphnorm.study.store import Store
from graphnorm.training import Trial

__all__ = ["Rescued", "rescue"]

SMALLEST_ROW = 16
"""Bytes; so row ids, which count from 1, end somewhere below the size of the file over this."""


class Rescued(NamedTuple):
    """How much came through."""

    studies: int
    outcomes: int
    lost: int
    """Outcomes that were there, as far as that can be told, and could not be read."""


def rescue(damaged: Path, target: Path) -> Rescued:
    """Copy everything that is readable and right into a new store; the damaged file is not touched."""
    if not damaged.is_file():
        raise StoreError("there is no such file", where=damaged, remedy="check the path")
    if target.exists():
        raise StoreError("this file is there already", where=target, remedy="name a new one")
    target.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(dir=target.parent) as folder:
        copy = Path(folder) / "copy.db"
        shutil.copyfile(damaged, copy)
        log = damaged.with_name(damaged.name + "-wal")
        if log.exists():
            shutil.copyfile(log, copy.with_name(copy.name + "-wal"))
        if not _opens(copy):
            _give_new_first_page(copy, Path(folder))
        fresh = Path(folder) / "fresh.db"
        with Store(fresh):
            pass
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


def _give_new_first_page(path: Path, folder: Path) -> None:
    model = folder / "model.db"
    with Store(model) as store:
        store._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
    size = int.from_bytes(model.read_bytes()[16:18], "big")
    page = bytearray(model.read_bytes()[:size])
    page[28:32] = bytes(4)  # the number of pages: to be taken from the file's size
    with path.open("r+b") as file:
        file.write(page)
    path.with_name(path.name + "-wal").unlink(missing_ok=True)  # it belongs to the page that is gone


def _rows(source: sqlite3.Connection, table: str) -> Iterator[tuple[Any, ...]]:
    """Every readable row of a table, its row id first."""
    pages, size = (source.execute(f"PRAGMA {name}").fetchone()[0] for name in ("page_count", "page_size"))
    try:
        source.execute(f"SELECT 1 FROM {table} WHERE rowid = 0").fetchone()
    except sqlite3.Error:
        return  # the table's first page is gone, and with it the way to all others
    yield from _range(source, table, 0, pages * size // SMALLEST_ROW)


def _range(source: sqlite3.Connection, table: str, low: int, high: int) -> Iterator[tuple[Any, ...]]:
    try:
        rows = source.execute(f"SELECT rowid, * FROM {table} WHERE rowid >= ? AND rowid < ?", (low, high)).fetchall()
    except sqlite3.Error:
        if high - low > 1:
            middle = (low + high) // 2
            yield from _range(source, table, low, middle)
            yield from _range(source, table, middle, high)
        return
    yield from rows


def _copy(source: sqlite3.Connection, goal: sqlite3.Connection) -> Rescued:
    trials = {}
    for rowid, id_, key, dataset, model, norm, config in _rows(source, "trials"):
        if rowid == id_ and _is_trial(key, config):
            trials[id_] = (id_, key, dataset, model, norm, config)
    curves: dict[int, list[tuple[int, str, bytes]]] = {}
    broken = set()
    for _, trial, name, data in _rows(source, "curves"):
        if _is_curve(data):
            curves.setdefault(trial, []).append((trial, name, data))
        else:
            broken.add(trial)
    sessions = {row[1]: row[1:] for row in _rows(source, "sessions") if row[0] == row[1]}
    outcomes, lost = [], len(broken)
    for _, trial, status, epochs, seconds, device, session, finished, error, *_ in _rows(source, "outcomes"):
        names = {name for _, name, _ in curves.get(trial, ())}
        whole = trial in trials and trial not in broken and (status == "failed" or {"loss", "train", "valid"} <= names)
        if whole and session not in sessions:
            sessions[session] = (session, None, "?", 0, "?", "?", finished, None, "rescued")
        if whole:
            outcomes.append((trial, status, epochs, seconds, device, session, finished, error))
        else:
            lost += trial not in broken
    studies = [row[1:] for row in _rows(source, "studies") if row[0] == row[1]]
    names = {row[0] for row in studies}
    members = _members(source)
    with transaction(goal):
        goal.executemany("INSERT INTO studies VALUES (?, ?, ?, ?)", studies)
        goal.executemany("INSERT INTO trials VALUES (?, ?, ?, ?, ?, ?)", trials.values())
        for id_, study, *rest in sessions.values():
            row = (id_, study if study in names else None, *rest)
            goal.execute(f"INSERT INTO sessions VALUES ({', '.join('?' * len(row))})", row)
        goal.executemany("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, NULL)", outcomes)
        for trial, *_ in outcomes:
            goal.executemany("INSERT INTO curves VALUES (?, ?, ?)", curves.get(trial, ()))
        goal.execute(FILL_BEST)
        known = [row for row in members if row[0] in names and row[2] in trials]
        goal.executemany("INSERT OR IGNORE INTO members VALUES (?, ?, ?, ?, ?)", known)
    return Rescued(len(studies), len(outcomes), lost)


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


def _is_trial(key: str, config: str) -> bool:
    try:
        values = json.loads(config)
        known = {name: values[name] for name in values if name in {item.name for item in fields(Trial)}}
        return len(known) == len(values) and Trial(**known).key == key
    except (ValueError, TypeError):
        return False


def _is_curve(data: Any) -> bool:
    try:
        unpack_curve(data)
    except (CurveError, TypeError):
        return False
    return True
