"""The store: studies and the outcomes of their trials, in one SQLite file.

A trial is stored completely or not at all: outcome and curves are written in one transaction, and the call returns
when the disk has them (write-ahead log, ``synchronous=FULL``). A kill at any moment leaves an intact file. After a
power cut every trial that was reported as saved is there, provided that the disk obeys fsync. Readers see the last
committed state; they neither wait for the writer nor delay it. Keep the file on a local disk: the write-ahead log needs
shared memory, which network file systems lack.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import json
import os
import platform
import reprlib
import shutil
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from types import NoneType, TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm._version import exact_version
from graphnorm.errors import CONTROL, GraphnormError, StoreError, StudyError, listing, need
from graphnorm.study.compression import compress_array, compress_curve, decompress_array, decompress_curve
from graphnorm.study.plan import Plan
from graphnorm.study.protocol import ALL_GRAPHS
from graphnorm.study.schema import EmptyStoreError, connect, damaged, store_errors, transaction
from graphnorm.study.selection import TARGETS, best_of
from graphnorm.training import Outcome, Trial, metric_of
from graphnorm.training.trial import KINDS

__all__ = [
    "FINAL",
    "Record",
    "Session",
    "Status",
    "Store",
    "Study",
    "is_begun",
    "locked",
    "open_store",
    "remove_store",
    "work_folder",
]

Curve = npt.NDArray[np.float32]
Status = Literal["done", "diverged", "dropped", "failed"]
FINAL = ("done", "diverged")
"""Trials with these statuses are never trained again."""
STATUS = "CASE WHEN m.dropped IS NOT NULL THEN 'dropped' WHEN o.status = 'dropped' THEN NULL ELSE o.status END"
"""The status of a trial in one study: a trial that only another study dropped has none."""
UNFIT = (LookupError, TypeError, ValueError, ArithmeticError, AttributeError, RecursionError)
"""Exceptions that a wrong or missing value raises, in a file that was edited by hand or damaged."""
SPEC: dict[str, Any] = {
    **dict.fromkeys(("dataset", "fingerprint", "model", "protocol", "task", "metric"), str),
    **dict.fromkeys(("norms", "baselines", "classes", "target_names", "train_sizes", "rungs"), list),
    **dict.fromkeys(("folds", "seeds", "graphs", "configurations"), int),
    **dict.fromkeys(("chance", "smaller_class"), (int, float, NoneType)),
    "grid": dict,
    "origin": (dict, NoneType),
}
"""The types of the values of a spec."""
MOST_NAMED = 5  # studies that an error lists


@dataclass(frozen=True)
class Study:
    """A study of a store, and how far it is."""

    id: int
    name: str
    spec: Mapping[str, Any]
    """See :attr:`Plan.spec`."""
    created: str
    trials: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """Number of trials by status."""
    seconds: float = 0.0
    """Training time of all trials."""

    @property
    def finished(self) -> int:
        """Number of trials that were trained to the end or diverged."""
        return sum(self.counts.get(status, 0) for status in FINAL)

    @property
    def missing(self) -> int:
        """Number of trials that have no status yet."""
        return self.trials - sum(self.counts.values())

    @property
    def has_scores(self) -> bool:
        """Whether graphs were held out; studies of batch noise and α train on all graphs."""
        return bool(self.spec.get("protocol", ALL_GRAPHS.name) != ALL_GRAPHS.name)

    def to_dict(self) -> dict[str, Any]:
        return {
            "name": self.name,
            "created": self.created,
            "trials": self.trials,
            "missing": self.missing,
            "counts": dict(self.counts),
            "seconds": self.seconds,
            "spec": dict(self.spec),
        }


@dataclass(frozen=True, eq=False)
class Record:
    """The outcome of one trial of a plan."""

    place: int
    """Index of the trial in the plan."""
    trial: Trial
    status: Status
    epochs: int
    seconds: float
    device: str
    finished: str
    code: str
    """Versions of graphnorm and torch."""
    error: str | None
    best: float | None
    """The best value of the validation curve."""
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    """The curves that the query named."""

    @property
    def outcome(self) -> Outcome:
        status: Literal["done", "diverged"] = "diverged" if self.status == "diverged" else "done"
        outcome = Outcome(self.trial, dict(self.curves), status, self.seconds, self.device)
        targets = outcome.curves.pop(TARGETS, None)
        return outcome if targets is None else replace(outcome, targets=targets.reshape(self.epochs, -1))


OUTCOME: dict[str, Any] = {
    "epochs": int,
    "seconds": int | float,
    "device": str | None,
    "finished": int | float,
    "code": str,
    "error": str | None,
    "best": int | float | None,
}
"""The type of each value of an outcome, checked when it is read: SQLite does not enforce the types of columns."""


class Session(NamedTuple):
    """One run of the program over a study."""

    id: int
    host: str
    pid: int
    engine: str
    started: str
    ended: str | None = None
    """None while it runs, or if it was killed."""
    ending: str | None = None
    """``finished`` or ``interrupted``."""

    @property
    def seconds(self) -> float | None:
        if self.ended is None:
            return None
        begin, end = (datetime.datetime.fromisoformat(text) for text in (self.started, self.ended))
        return (end - begin).total_seconds()


class Store:
    """A file of studies; a context manager.

    >>> import tempfile
    >>> from graphnorm.study import Plan
    >>> from graphnorm.training import Trial
    >>> trials = tuple(Trial(dataset="MUTAG", fold=fold) for fold in range(10))
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
    ...     study = store.add(Plan("first", {"dataset": "MUTAG"}, trials), fleets=[range(10)])
    ...     study.trials, study.missing
    (10, 10)
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, writable=writable)

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        self._connection.close()

    # Studies

    def add(self, plan: Plan, fleets: Iterable[Iterable[int]]) -> Study:
        """Enter a plan as a study; return the existing study if it has the same name and trials.

        fleets: the places of trials that are trained together; every place occurs once.
        """
        fleet_of = {place: number for number, places in enumerate(fleets) for place in places}
        if sorted(fleet_of) != list(range(len(plan.trials))):
            raise ValueError("every trial belongs to exactly one fleet")
        with self._writing() as execute:
            known = execute("SELECT id FROM studies WHERE name = ?", (plan.name,)).fetchone()
            if known is None:
                row = (plan.name, json.dumps(plan.spec), _now())
                id_ = execute("INSERT INTO studies (name, spec, created) VALUES (?, ?, ?)", row).lastrowid
                rows = [(id_, k, self._trial_id(trial), fleet_of[k]) for k, trial in enumerate(plan.trials)]
                self._connection.executemany("INSERT INTO members VALUES (?, ?, ?, ?, NULL)", rows)
        found = self.study(plan.name)
        if known is not None and [trial.key for trial in self.trials(found)] != [trial.key for trial in plan.trials]:
            remedy = "give it another name"
            raise StoreError(f"the study {plan.name!r} exists with other trials", where=self.path, remedy=remedy)
        return found

    def _trial_id(self, trial: Trial) -> int:
        execute = self._connection.execute
        found = execute("SELECT id FROM trials WHERE key = ?", (trial.key,)).fetchone()
        if found is not None:
            return int(found[0])
        settings = {name: value for name, value in trial.to_dict().items() if name not in ("fold", "seed")}
        text = json.dumps(settings, sort_keys=True)
        digest = hashlib.sha256(text.encode()).hexdigest()[:16]
        execute("INSERT OR IGNORE INTO configurations (key, settings) VALUES (?, ?)", (digest, text))
        (configuration,) = execute("SELECT id FROM configurations WHERE key = ?", (digest,)).fetchone()
        row = (trial.key, configuration, trial.fold, trial.seed)
        id_ = execute("INSERT INTO trials (key, configuration, fold, seed) VALUES (?, ?, ?, ?)", row).lastrowid
        assert id_ is not None
        return id_

    def studies(self) -> list[Study]:
        """Every study, in order of creation."""
        by_status: dict[int, list[tuple[str | None, int, float]]] = {}
        for study, *row in self.rows(
            f"SELECT m.study, {STATUS}, count(*), total(o.seconds) FROM members m "
            "LEFT JOIN outcomes o ON o.trial = m.trial GROUP BY 1, 2"
        ):
            by_status.setdefault(study, []).append(tuple(row))
        studies = []
        for id_, name, spec, created in self.rows("SELECT id, name, spec, created FROM studies ORDER BY id"):
            if CONTROL.search(str(name)):
                raise damaged(self.path, f"the name of a study is {reprlib.repr(name)}")
            rows = by_status.get(id_, [])
            counts = {str(status): number for status, number, _ in rows if status is not None}
            trials, seconds = sum(number for _, number, _ in rows), sum(seconds for *_, seconds in rows)
            studies.append(Study(id_, str(name), self._spec(spec), str(created), trials, counts, seconds))
        return studies

    def _spec(self, text: str) -> dict[str, Any]:
        spec = self._json(text)
        if not isinstance(spec, dict):
            raise damaged(self.path, f"the spec of a study is {spec!r:.20}")
        if wrong := [name for name, kind in SPEC.items() if name in spec and not isinstance(spec[name], kind)]:
            raise damaged(self.path, f"the spec of a study does not fit: {listing(wrong)}")
        return spec

    def study(self, name: str) -> Study:
        """Find a study by its name, or by a prefix that no other study has."""
        studies = self.studies()
        matches = [s for s in studies if s.name == name] or [s for s in studies if s.name.startswith(name)]
        if len(matches) > 1:
            names = ", ".join(study.name for study in matches[:MOST_NAMED])
            more = " …" if len(matches) > MOST_NAMED else ""
            raise StudyError(
                f"{len(matches)} studies begin with {name!r}: {names}{more}", remedy="write more of the name"
            )
        if matches:
            return matches[0]
        nearest = difflib.get_close_matches(name, [study.name for study in studies], n=MOST_NAMED, cutoff=0.0)
        more = "; `graphnorm runs` lists all" if len(studies) > len(nearest) else ""
        remedy = f"take one of these: {', '.join(nearest) or 'none'}{more}"
        raise StoreError(f"there is no study {name!r}", where=self.path, remedy=remedy)

    def plan(self, study: Study) -> Plan:
        return Plan(study.name, dict(study.spec), tuple(self.trials(study)))

    def trials(self, study: Study) -> list[Trial]:
        return [trial for _, trial in self._members(study)]

    def fleets(self, study: Study) -> dict[int, list[Trial]]:
        """The trials of each fleet, by the fleet's number."""
        fleets: dict[int, list[Trial]] = {}
        for fleet, trial in self._members(study):
            fleets.setdefault(fleet, []).append(trial)
        return dict(sorted(fleets.items()))

    def _members(self, study: Study) -> list[tuple[int, Trial]]:
        settings = {
            configuration: self._checked(text)
            for configuration, text in self.rows(
                "SELECT id, settings FROM configurations WHERE id IN "
                "(SELECT t.configuration FROM members m JOIN trials t ON t.id = m.trial WHERE m.study = ?)",
                study.id,
            )
        }
        members = []
        for fleet, key, configuration, fold, seed in self.rows(
            "SELECT m.fleet, t.key, t.configuration, t.fold, t.seed FROM members m JOIN trials t ON t.id = m.trial "
            "WHERE m.study = ? ORDER BY m.place",
            study.id,
        ):
            trial = Trial(**settings[configuration], fold=fold, seed=seed)
            trial.__dict__["key"] = key  # a cached property: the stored key saves hashing the trial again
            members.append((fleet, trial))
        return members

    def _checked(self, text: str) -> dict[str, Any]:
        settings: dict[str, Any] = self._json(text)
        if unknown := settings.keys() - KINDS.keys():
            problem = f"a trial has settings that this version does not know: {listing(sorted(map(repr, unknown)))}"
            raise StoreError(problem, where=self.path, remedy="update graphnorm")
        if wrong := [name for name, value in settings.items() if not _is(value, KINDS[name])]:
            raise damaged(self.path, f"a trial's setting does not fit: {listing(wrong)}")
        return settings

    def delete(self, study: Study) -> None:
        """Delete a study, and the trials that no other study has."""
        with self._writing() as execute:
            execute("DELETE FROM studies WHERE id = ?", (study.id,))
            execute("DELETE FROM outcomes WHERE trial NOT IN (SELECT trial FROM members)")
            execute("DELETE FROM trials WHERE id NOT IN (SELECT trial FROM members)")
            execute("DELETE FROM configurations WHERE id NOT IN (SELECT configuration FROM trials)")

    # Running

    @contextmanager
    def lock(self, study: Study, *, wait: bool = False) -> Iterator[None]:
        """Hold the study's write lock. If another process holds it, wait for it or name it in an error.

        The operating system releases the lock of a process that died.
        """

        def problem() -> StudyError:
            holders = self.sessions(study)[-1:]
            who = "".join(f": process {holder.pid} on {holder.host}, since {holder.started}" for holder in holders)
            return StudyError(
                f"the study {study.name} is being written{who}",
                where=self.path,
                remedy="wait for it (--wait), or end it; what it has finished is kept",
            )

        with locked(work_folder(self.path) / str(study.id) / "lock", problem, wait=wait):
            yield

    def begin_session(self, study: Study, engine: str) -> int:
        """Record that this process starts to write to a study; return the session's number."""
        import torch

        code = f"graphnorm {exact_version()}, torch {torch.__version__}"
        with self._writing() as execute:
            cursor = execute(
                "INSERT INTO sessions (study, host, pid, engine, code, started) VALUES (?, ?, ?, ?, ?, ?)",
                (study.id, platform.node(), os.getpid(), engine, code, _now()),
            )
        return int(cursor.lastrowid)

    def end_session(self, session: int, ending: str) -> None:
        with self._writing() as execute:
            execute("UPDATE sessions SET ended = ?, ending = ? WHERE id = ?", (_now(), ending, session))

    def sessions(self, study: Study) -> list[Session]:
        """The runs that wrote to a study, in order."""
        rows = self.rows(
            "SELECT id, host, pid, engine, started, ended, ending FROM sessions WHERE study = ? ORDER BY id", study.id
        )
        return [Session(*row) for row in rows]

    def save(self, session: int, outcomes: Sequence[Outcome]) -> None:
        """Save outcomes, all of them or none."""
        with self._writing():
            for outcome in outcomes:
                self._save(session, outcome, outcome.status)

    def save_dropped(self, study: Study, session: int, outcomes: Sequence[Outcome], epoch: int) -> None:
        """Save the curves so far of trials that a study drops after an epoch."""
        with self._writing() as execute:
            for outcome in outcomes:
                self._save(session, outcome, "dropped")
                row = (epoch, study.id, self._trial_id(outcome.trial))
                execute("UPDATE members SET dropped = ? WHERE study = ? AND trial = ?", row)

    def save_failed(self, session: int, trials: Sequence[Trial], error: str) -> None:
        with self._writing():
            for trial in trials:
                self._save(session, Outcome(trial, {}), "failed", error)

    def _save(self, session: int, outcome: Outcome, status: Status, error: str | None = None) -> None:
        execute = self._connection.execute
        id_ = self._trial_id(outcome.trial)
        known = execute("SELECT status FROM outcomes WHERE trial = ?", (id_,)).fetchone()
        if known is not None:
            if known[0] in FINAL and not outcome.seen:
                return  # another study has trained it meanwhile; a result is never replaced
            execute("DELETE FROM outcomes WHERE trial = ?", (id_,))
        epochs = max((len(curve) for curve in outcome.curves.values()), default=0)
        sign = metric_of(outcome.trial).sign
        best = best_of(outcome.curves["valid"], sign) if "valid" in outcome.curves else None
        row = (id_, status, epochs, outcome.seconds, outcome.device, session, int(time.time()), error, best)
        execute("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        curves = [(id_, name, compress_curve(curve)) for name, curve in outcome.curves.items()]
        curves += [(id_, TARGETS, compress_curve(outcome.targets.ravel()))] if outcome.targets.size else []
        self._connection.executemany("INSERT INTO curves VALUES (?, ?, ?)", curves)
        seen = [(id_, name, compress_array(values)) for name, values in outcome.seen.items()]
        self._connection.executemany("INSERT INTO seen VALUES (?, ?, ?)", seen)

    def move_to_fleet(self, study: Study, trials: Sequence[Trial]) -> int:
        """Move trials of a study into a new fleet, and return its number."""
        with self._writing() as execute:
            (fleet,) = execute("SELECT max(fleet) + 1 FROM members WHERE study = ?", (study.id,)).fetchone()
            for trial in trials:
                row = (fleet, study.id, self._trial_id(trial))
                execute("UPDATE members SET fleet = ? WHERE study = ? AND trial = ?", row)
        return int(fleet)

    def statuses(self, study: Study) -> dict[str, Status]:
        """The status of each trial by key; trials that are still missing are left out."""
        rows = self.rows(
            f"SELECT t.key, {STATUS} FROM members m JOIN trials t ON t.id = m.trial "
            "JOIN outcomes o ON o.trial = m.trial WHERE m.study = ?",
            study.id,
        )
        return {key: status for key, status in rows if status is not None}

    def dropped_epochs(self, study: Study) -> dict[str, int]:
        """The epoch after which the study dropped a trial, by the trial's key."""
        rows = self.rows(
            "SELECT t.key, m.dropped FROM members m JOIN trials t ON t.id = m.trial "
            "WHERE m.study = ? AND m.dropped IS NOT NULL",
            study.id,
        )
        return dict(rows)

    # Reading

    def records(self, plan: Plan, *, curves: Sequence[str] = (), places: Iterable[int] | None = None) -> list[Record]:
        """The records of a plan's trials, or of those at some places, in order and with the named curves.

        The plan need not be a study of this store: trials are found by their keys.
        """
        chosen = range(len(plan.trials)) if places is None else sorted(set(places))
        keys = json.dumps({plan.trials[place].key: place for place in chosen})
        wanted = "WITH wanted AS (SELECT key, value AS place FROM json_each(?)) "
        loaded: dict[int, dict[str, Curve]] = {}
        for name in curves:
            for place, data in self.rows(
                f"{wanted}SELECT w.place, c.data FROM wanted w CROSS JOIN trials t ON t.key = w.key "
                "JOIN curves c ON c.name = ? AND c.trial = t.id",
                keys,
                name,
            ):
                loaded.setdefault(place, {})[name] = self._unpacked(data, decompress_curve)
        rows = self.rows(
            f"{wanted}SELECT w.place, {STATUS}, o.epochs, o.seconds, o.device, o.finished, s.code, o.error, o.best "
            "FROM wanted w CROSS JOIN trials t ON t.key = w.key JOIN outcomes o ON o.trial = t.id "
            "JOIN sessions s ON s.id = o.session LEFT JOIN members m ON m.trial = t.id "
            "AND m.study = (SELECT id FROM studies WHERE name = ?) ORDER BY w.place",
            keys,
            plan.name,
        )
        records = []
        for place, status, *values in rows:
            facts = dict(zip(OUTCOME, values, strict=True))
            for name, value in facts.items():
                if not isinstance(value, OUTCOME[name]):
                    problem = f"the {name} of a trial, {plan.trials[place].key}, is {reprlib.repr(value)}"
                    raise damaged(self.path, problem)
            facts["finished"] = _time(facts["finished"])
            if status is not None:
                records.append(Record(place, plan.trials[place], status, **facts, curves=loaded.get(place, {})))
        return records

    def seen(self, trial: Trial) -> dict[str, npt.NDArray[Any]]:
        """The arrays that a probe measured during the training of a trial; empty without a probe."""
        rows = self.rows("SELECT name, data FROM seen WHERE trial = (SELECT id FROM trials WHERE key = ?)", trial.key)
        return {name: self._unpacked(data, decompress_array) for name, data in rows}

    def finished_keys(self) -> set[str]:
        """The keys of all trials of the store that are done or diverged."""
        done = "SELECT t.key FROM trials t JOIN outcomes o ON o.trial = t.id WHERE o.status IN ('done', 'diverged')"
        return {key for (key,) in self.rows(done)}

    def _unpacked(self, data: bytes, unpack: Callable[[bytes], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        try:
            return unpack(data)
        except (zlib.error, ValueError) as error:
            raise damaged(self.path, f"an array does not unpack ({error})") from error

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        with store_errors(self.path):
            return self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[Any]:
        with store_errors(self.path), transaction(self._connection):
            yield self._connection.execute

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            raise damaged(self.path, error) from error


@contextmanager
def open_store(path: str | os.PathLike[str], *, writable: bool = False) -> Iterator[Store]:
    """Open a store that is there; a value in it that does not fit is an error that names the file."""
    if writable:
        Store(path, writable=False).close()  # which makes no new file
    with Store(path, writable=writable) as store:
        try:
            yield store
        except UNFIT as error:
            if isinstance(error, GraphnormError):
                raise
            problem = f"it holds a value that does not fit ({type(error).__name__}: {error})"
            raise damaged(store.path, problem) from error


def is_begun(path: str | os.PathLike[str]) -> bool:
    """Whether there is a store that holds more than nothing."""
    try:
        if Path(path).exists():
            Store(path, writable=False).close()
            return True
    except EmptyStoreError:
        pass
    return False


@contextmanager
def locked(path: Path, problem: Callable[[], GraphnormError], *, wait: bool = False) -> Iterator[None]:
    """Hold a lock on a file. If another process holds it, wait for it, or raise what ``problem`` returns."""
    filelock = need("filelock", "running a study", "data")
    path.parent.mkdir(parents=True, exist_ok=True)
    lock = filelock.FileLock(path)
    try:
        lock.acquire(timeout=-1 if wait else 0)
    except filelock.Timeout:
        raise problem() from None
    try:
        yield
    finally:
        lock.release()


def remove_store(path: Path) -> None:
    """Delete a store with its log and checkpoints; a lock on the whole store stays, since it may be held."""
    for ending in ("", "-wal", "-shm"):
        path.with_name(path.name + ending).unlink(missing_ok=True)
    work = work_folder(path)
    with suppress(FileNotFoundError):
        for folder in work.iterdir():
            if folder.is_dir():
                shutil.rmtree(folder)
    with suppress(OSError):  # it holds a lock, or is not there
        work.rmdir()


def work_folder(path: Path) -> Path:
    """The folder of locks and checkpoints, next to a store."""
    return path.with_name(f"{path.name}-work")


def _is(value: Any, kind: type) -> bool:
    """Whether a value has the type of a setting; a whole number may stand for a number."""
    return type(value) is kind or (kind is float and type(value) is int)


def _now() -> str:
    return _time(time.time())


def _time(seconds: float) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
