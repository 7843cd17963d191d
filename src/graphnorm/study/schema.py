"""The tables of a store, and how its file is opened.

* ``studies``: name, spec (JSON) and date of each study.
* ``configurations``: the settings of a trial except fold and seed (JSON), identified by their hash.
* ``trials``: a configuration, a fold and a seed, identified by the trial's key. Several studies may share a trial.
* ``members``: the trials of a study, in order, with the fleet that trains each one. ``dropped`` is the epoch after
  which the study dropped the trial, if it did.
* ``sessions``: one run of the program over a study: host, process, engine, versions, start and end.
* ``outcomes``, ``curves`` and ``seen``: how a trial ended, its curves, and what a probe measured during training. They
  are written in one transaction. ``best`` is the largest value of the curve ``valid``; with it, selection need not
  read most curves. Of several targets, the curve ``targets`` has the reported metric of each, epoch by epoch.

``application_id`` distinguishes a store from other SQLite files. A file whose ``user_version`` is not
:data:`VERSION` is refused.
"""

from __future__ import annotations

import os
import sqlite3
import textwrap
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from graphnorm.errors import StoreError

__all__ = ["APPLICATION_ID", "VERSION", "WRITE_ERRORS", "EmptyStoreError"]
__all__ += ["connect", "damaged", "store_errors", "transaction"]

APPLICATION_ID = 0x67724E6D  # "grNm"
VERSION = 4
WRITE_ERRORS = (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR_WRITE, sqlite3.SQLITE_IOERR_FSYNC)
"""SQLite's codes for a disk that is full or fails; a damaged file has others."""
BUSY_SECONDS = 60.0
PAGE = 8192
"""Bytes of a page. A curve of 400 epochs fits into a quarter of it; longer ones begin a page of their own."""

TABLES = (
    """CREATE TABLE studies (
        id INTEGER PRIMARY KEY,
        name TEXT NOT NULL UNIQUE,
        spec TEXT NOT NULL,
        created TEXT NOT NULL)""",
    """CREATE TABLE configurations (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        settings TEXT NOT NULL)""",
    """CREATE TABLE trials (
        id INTEGER PRIMARY KEY,
        key TEXT NOT NULL UNIQUE,
        configuration INTEGER NOT NULL REFERENCES configurations,
        fold INTEGER NOT NULL,
        seed INTEGER NOT NULL)""",
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
        finished INTEGER NOT NULL,
        error TEXT,
        best REAL)""",
    """CREATE TABLE curves (
        trial INTEGER NOT NULL REFERENCES outcomes ON DELETE CASCADE,
        name TEXT NOT NULL,
        data BLOB NOT NULL,
        PRIMARY KEY (trial, name)) WITHOUT ROWID""",
    """CREATE TABLE seen (
        trial INTEGER NOT NULL REFERENCES outcomes ON DELETE CASCADE,
        name TEXT NOT NULL,
        data BLOB NOT NULL,
        UNIQUE (trial, name))""",
)


class EmptyStoreError(StoreError):
    """A file without tables: its process was killed as it made them."""


def connect(path: Path, *, writable: bool) -> sqlite3.Connection:
    """Open a store; with ``writable``, create it if it does not exist."""
    if not writable and not path.is_file():
        near = sorted((path if path.is_dir() else path.parent).glob("*.db"))
        remedy = f"--store {near[0]}" if near else "name one with --store, or begin a study"
        raise StoreError("there is no store here", where=path, remedy=remedy)
    with store_errors(path):
        connection = _open(path, writable)
        try:
            _prepare(connection, path, writable)
        except BaseException:
            connection.close()
            raise
    return connection


def _open(path: Path, writable: bool) -> sqlite3.Connection:
    if writable:
        mode = "rwc"
        path.parent.mkdir(parents=True, exist_ok=True)
    elif os.access(path, os.W_OK) and os.access(path.parent, os.W_OK):
        mode = "rw"  # only a connection that may write removes the files of the log when it closes as the last one
    else:
        log = path.with_name(path.name + "-wal")
        mode = "ro" if log.exists() else "ro&immutable=1"  # SQLite cannot create the files of its log there
    address = f"{path.resolve().as_uri()}?mode={mode}"
    connection = sqlite3.connect(address, uri=True, isolation_level=None, timeout=BUSY_SECONDS)
    connection.execute("PRAGMA foreign_keys = ON")
    connection.execute(f"PRAGMA query_only = {not writable}")
    return connection


def _prepare(connection: sqlite3.Connection, path: Path, writable: bool) -> None:
    is_new = _check_version(connection, path)
    if not writable:
        if is_new:
            raise EmptyStoreError("the store is empty", where=path, remedy="name another file, or begin a study")
        return
    connection.execute(f"PRAGMA page_size = {PAGE}")  # of a new file
    connection.execute("PRAGMA journal_mode = WAL")
    connection.execute("PRAGMA synchronous = FULL")  # a commit returns when the disk has it
    connection.execute("PRAGMA fullfsync = ON")  # where fsync alone stops at the drive's cache
    if is_new:
        with transaction(connection):
            if _check_version(connection, path):  # otherwise another process has just created the tables
                for statement in TABLES:
                    connection.execute(statement)
                connection.execute(f"PRAGMA application_id = {APPLICATION_ID}")
                connection.execute(f"PRAGMA user_version = {VERSION}")


def _check_version(connection: sqlite3.Connection, path: Path) -> bool:
    """Refuse files that are not a store of this version; return whether the file is empty."""
    (version,) = connection.execute("PRAGMA user_version").fetchone()
    (application,) = connection.execute("PRAGMA application_id").fetchone()
    (tables,) = connection.execute("SELECT count(*) FROM sqlite_schema").fetchone()
    if not (tables or version or application):
        return True
    if application != APPLICATION_ID:
        raise StoreError("this SQLite file is not a store of graphnorm", where=path, remedy="name another file")
    if version != VERSION:
        raise StoreError(
            f"the store has schema {version}, and this version of graphnorm reads schema {VERSION}",
            where=path,
            remedy="use the version of graphnorm that wrote it, or name another file; this file is unchanged",
        )
    return False


@contextmanager
def transaction(connection: sqlite3.Connection) -> Iterator[None]:
    """Commit everything or nothing, even if the process dies."""
    connection.execute("BEGIN IMMEDIATE")
    try:
        yield
        connection.execute("COMMIT")
    except BaseException:
        if connection.in_transaction:
            connection.execute("ROLLBACK")
        raise


@contextmanager
def store_errors(path: Path, *, written: Path | None = None) -> Iterator[None]:
    """Turn SQLite's errors into messages with a remedy.

    written: the file that is written, if it is another than the one that is read.
    """
    try:
        yield
    except sqlite3.Error as error:
        fails_to_write = getattr(error, "sqlite_errorcode", 0) in WRITE_ERRORS
        raise _explain(error, written if written and fails_to_write else path) from error
    except UnicodeDecodeError as error:  # of a message of SQLite that quotes the damaged file
        raise damaged(path, error) from error


def damaged(path: Path, why: object) -> StoreError:
    remedy = f"save what is readable: graphnorm runs recover {path} NEW.db"
    said = textwrap.shorten(str(why), 200)  # SQLite quotes damaged text
    return StoreError(f"the store is damaged: {said}", where=path, remedy=remedy)


def _explain(error: sqlite3.Error, path: Path) -> StoreError:
    code = getattr(error, "sqlite_errorcode", 0) & 0xFF  # the higher bits hold details
    if code in (sqlite3.SQLITE_FULL, sqlite3.SQLITE_IOERR):
        remedy = "make room and give the same command again; everything finished before is kept"
        return StoreError(f"the disk is full or fails ({error})", where=path, remedy=remedy)
    if code in (sqlite3.SQLITE_BUSY, sqlite3.SQLITE_LOCKED):
        remedy = "find the process that writes to it, then give the same command again"
        return StoreError(f"another process locked the store for over {BUSY_SECONDS:.0f} s", where=path, remedy=remedy)
    if code in (sqlite3.SQLITE_READONLY, sqlite3.SQLITE_CANTOPEN, sqlite3.SQLITE_PERM):
        remedy = "check the folder and its permissions"
        return StoreError(f"the store cannot be opened ({error})", where=path, remedy=remedy)
    return damaged(path, error)
