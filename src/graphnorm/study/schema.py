"""The tables of a store, and how a file of one is opened.

* ``studies``: a name, what was asked for (JSON) and when.
* ``trials``: what is to be trained, named by its content; several studies may share one. ``config`` says it all; from
  it follow ``configuration``, a number that trials share which differ in fold and seed alone, ``fold`` and ``seed``.
* ``members``: which trials a study has, in which order, with which others each one is trained (``fleet``), and after
  which epoch the study gave it up, if it did.
* ``sessions``: one run of the program over a study: host, process, device, versions, beginning and end.
* ``outcomes`` and ``curves``: what came of a trial; they are written together or not at all. ``best`` is the largest
  value of the curve ``valid`` as choices compare it, so that most curves need not be read to choose.

The file's ``user_version`` counts the steps of :data:`MIGRATIONS` it has seen. An older file takes those it lacks, in
one transaction; a newer one is refused. ``application_id`` tells a store from other SQLite files.
"""

from __future__ import annotations

import os
import sqlite3
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphnorm.errors import StoreError
from graphnorm.study.contents import number_configuration
from graphnorm.study.curves import unpack_curve
from graphnorm.study.selection import best_of

__all__ = [
    "APPLICATION_ID",
    "BEST",
    "DERIVED_OF_TRIALS",
    "FILL_DERIVED",
    "MIGRATIONS",
    "check_readable",
    "connect",
    "store_errors",
    "transaction",
]

APPLICATION_ID = 0x67724E6D  # "grNm"
BUSY_SECONDS = 60.0

DERIVED_OF_TRIALS = {
    "configuration": "number_configuration(config)",
    "fold": "json_extract(config, '$.fold')",
    "seed": "json_extract(config, '$.seed')",
}
BEST = "(SELECT best_of(data) FROM curves WHERE name = 'valid' AND curves.trial = outcomes.trial)"
FILL_DERIVED = (
    f"UPDATE trials SET {', '.join(f'{name} = {value}' for name, value in DERIVED_OF_TRIALS.items())}",
    f"UPDATE outcomes SET best = {BEST}",
)
"""The columns that follow from others, and how."""

MIGRATIONS: tuple[tuple[str, ...], ...] = (
    (
        """CREATE TABLE studies (
            id INTEGER PRIMARY KEY,
            name TEXT NOT NULL UNIQUE,
            spec TEXT NOT NULL,
            created TEXT NOT NULL)""",
        """CREATE TABLE trials (
            id INTEGER PRIMARY KEY,
            key TEXT NOT NULL UNIQUE,
            dataset TEXT NOT NULL,
            model TEXT NOT NULL,
            norm TEXT NOT NULL,
            config TEXT NOT NULL)""",
        """CREATE TABLE members (
            study INTEGER NOT NULL REFERENCES studies ON DELETE CASCADE,
            place INTEGER NOT NULL,
            trial INTEGER NOT NULL REFERENCES trials,
            fleet INTEGER NOT NULL,
            dropped INTEGER,
            PRIMARY KEY (study, place)) WITHOUT ROWID""",
        "CREATE UNIQUE INDEX members_once ON members (study, trial)",
        """CREATE TABLE sessions (
            id INTEGER PRIMARY KEY,
            study INTEGER REFERENCES studies ON DELETE SET NULL,
            host TEXT NOT NULL,
            pid INTEGER NOT NULL,
            engine TEXT NOT NULL,
            code TEXT NOT NULL,
            started TEXT NOT NULL,
            ended TEXT,
            ending TEXT)""",
        """CREATE TABLE outcomes (
            trial INTEGER PRIMARY KEY REFERENCES trials,
            status TEXT NOT NULL CHECK (status IN ('done', 'diverged', 'dropped', 'failed')),
            epochs INTEGER NOT NULL,
            seconds REAL NOT NULL,
            device TEXT NOT NULL,
            session INTEGER NOT NULL REFERENCES sessions,
            finished TEXT NOT NULL,
            error TEXT)""",
        """CREATE TABLE curves (
            trial INTEGER NOT NULL REFERENCES outcomes ON DELETE CASCADE,
            name TEXT NOT NULL,
            data BLOB NOT NULL,
            UNIQUE (name, trial))""",
    ),
    (
        "ALTER TABLE trials ADD COLUMN configuration INTEGER",
        "ALTER TABLE trials ADD COLUMN fold INTEGER",
        "ALTER TABLE trials ADD COLUMN seed INTEGER",
        "ALTER TABLE outcomes ADD COLUMN best REAL",
        *FILL_DERIVED,
    ),
)


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open a store; a writable one is made where there is none, and brought up to date."""
    if not writable and not path.is_file():
        raise StoreError("there is no store here", where=path, remedy="name one with --store, or begin a study")
    with store_errors(path):
        connection = _open(path, writable)
        try:
            _prepare(connection, path, writable)
        except BaseException:
            connection.close()
            raise
    return connection


def check_readable(path: Path) -> None:
    """Raise where a file is not a store, or one of a newer version; an older one is fine."""
    if not path.is_file():
        raise StoreError("there is no store here", where=path, remedy="name another file")
    with store_errors(path):
        connection = _open(path, writable=False)
        try:
            if not _check_version(connection, path):
                raise StoreError("the store is empty", where=path, remedy="name another file")
        finally:
            connection.close()


def _open(path: Path, writable: bool) -> sqlite3.Connection:
    mode = "rwc" if writable else "ro"
    alone = path.with_name(path.name + "-wal")
    if not writable and not os.access(path.parent, os.W_OK) and not alone.exists():
        mode += "&immutable=1"  # nobody can write here, so nobody does; the side files cannot be made either
    if writable:
        path.parent.mkdir(parents=True, exist_ok=True)
    address = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.create_function("number_configuration", 1, number_configuration, deterministic=True)
    connection.create_function("best_of", 1, lambda data: best_of(unpack_curve(data)), deterministic=True)
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, writable: bool) -> None:
    version = _check_version(connection, path)
    if not writable:
        if version < len(MIGRATIONS):
            raise StoreError(
                "the store is empty, or was made by an older version",
                where=path,
                remedy="go on with a study there, which brings it up to date, or copy it: "
                f"graphnorm runs merge {path} --store NEW.db",
            )
        return
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the disk has it
    connection.execute("PRAGMA fullfsync = ON")  # where fsync alone stops at the drive's cache
    if version == len(MIGRATIONS):
        return
    with transaction(connection):
        version = _check_version(connection, path)  # another process may have been faster
        for step in MIGRATIONS[version:]:
            for statement in step:
                connection.execute(statement)
        connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
        connection.execute(f"PRAGMA user_version = {len(MIGRATIONS)}")


def _check_version(connection: sqlite3.Connection, path: Path) -> int:
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if application != APPLICATION_ID and (tables or version or application):
        raise StoreError("this SQLite file is not a store of graphnorm", where=path, remedy="name another file")
    if version > len(MIGRATIONS):
        raise StoreError(
            f"the store was made by a newer version of graphnorm (schema {version}, this one knows {len(MIGRATIONS)})",
            where=path,
            remedy="update graphnorm, or name another file; this one was left as it is",
        )
    return int(version)


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """All of it or nothing, whatever happens inside or to the process."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def store_errors(path: Path) -> Iterator[None]:
    """Turn what SQLite raises into what a user can do about it."""
    try:
        yield
    except sqlite3.Error as error:
        raise explain(error, path) from error


def explain(error: sqlite3.Error, path: Path) -> StoreError:
    """Say what an error of SQLite means for the store."""
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the rest is detail
    if code in (sqlite3.SQLITE_CORRUPT, sqlite3.SQLITE_NOTADB):
        remedy = f"save what is readable: graphnorm runs rescue {path} NEW.db"
        return StoreError(f"the store is damaged ({error})", where=path, remedy=remedy)
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        remedy = "make room and give the same command again; everything finished before is kept"
        return StoreError(f"the disk is full or fails ({error})", where=path, remedy=remedy)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        remedy = "see who writes there, then give the same command again"
        return StoreError(f"another process kept the store for over {BUSY_SECONDS:.0f} s", where=path, remedy=remedy)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        return StoreError(f"the store cannot be opened ({error})", where=path, remedy="check the folder and its rights")
    return StoreError(
        f"the store does not hold what it should ({error})", where=path, remedy="rescue it, or report this"
    )
