"""The store: studies and what their trials gave, in one SQLite file.

A trial is in it wholly or not at all: outcome and curves come in one transaction, and the call returns when the disk
has it (write-ahead log, ``synchronous=FULL``). Killing the process at any moment leaves a whole file. After a power cut
every trial that was reported as saved is there, if the disk does what fsync asks of it. Readers see the last whole
state, and neither wait for the writer nor hold it up. Keep the file on a disk of this machine: the write-ahead log
needs shared memory, which network file systems do not have.
"""

from __future__ import annotations

import datetime
import difflib
import hashlib
import io
import json
import os
import platform
import time
import zlib
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field, fields
from pathlib import Path
from types import TracebackType
from typing import Any, Literal, NamedTuple

import numpy as np
import numpy.typing as npt

from graphnorm._version import exact_version
from graphnorm.errors import StoreError, StudyError, need
from graphnorm.study.plan import Plan
from graphnorm.study.schema import connect, store_errors, transaction
from graphnorm.study.selection import best_of
from graphnorm.training import Outcome, Trial

__all__ = [
    "FINAL",
    "Record",
    "Session",
    "Status",
    "Store",
    "Study",
    "pack_array",
    "pack_curve",
    "unpack_array",
    "unpack_curve",
]

Curve = npt.NDArray[np.float32]
Status = Literal["done", "diverged", "dropped", "failed"]
FINAL = ("done", "diverged")
"""What is never trained again."""
STATUS = "CASE WHEN m.dropped IS NOT NULL THEN 'dropped' WHEN o.status = 'dropped' THEN NULL ELSE o.status END"
"""How a trial ended in one study: what another study dropped is not dropped here."""
MOST_NAMED = 5
"""Names of studies that an error lists."""


@dataclass(frozen=True)
class Study:
    """One line of the list of studies."""

    id: int
    name: str
    spec: Mapping[str, Any]
    """What was asked for, as plain values."""
    created: str
    trials: int
    counts: Mapping[str, int] = field(default_factory=dict)
    """How many trials ended how; those in none of them are missing."""
    seconds: float = 0.0
    """Training time of all its trials."""

    @property
    def finished(self) -> int:
        """Trials that are trained to the end, diverged ones included."""
        return sum(self.counts.get(status, 0) for status in FINAL)

    @property
    def missing(self) -> int:
        """Trials that are not trained yet."""
        return self.trials - sum(self.counts.values())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, for JSON."""
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
    """What the store holds of one trial of a plan."""

    place: int
    """Among the trials of the plan."""
    trial: Trial
    status: Status
    epochs: int
    seconds: float
    device: str
    finished: str
    code: str
    """Versions that it was trained with."""
    error: str | None
    best: float | None
    """The largest value of its validation curve."""
    curves: Mapping[str, Curve] = field(default_factory=dict, repr=False)
    """Those that were asked for."""

    @property
    def outcome(self) -> Outcome:
        """The same as training gives it."""
        status: Literal["done", "diverged"] = "diverged" if self.status == "diverged" else "done"
        return Outcome(self.trial, dict(self.curves), status, self.seconds, self.device)


class Session(NamedTuple):
    """One run of the program over a study: who writes, or wrote."""

    id: int
    host: str
    pid: int
    engine: str
    started: str
    ended: str | None = None
    """None while it runs, and for one that was killed."""
    ending: str | None = None
    """``finished`` or ``interrupted``."""

    @property
    def seconds(self) -> float | None:
        """From its beginning to its end."""
        if self.ended is None:
            return None
        begin, end = (datetime.datetime.fromisoformat(text) for text in (self.started, self.ended))
        return (end - begin).total_seconds()


class Store:
    """A file of studies; a context manager.

    >>> import tempfile
    >>> trials = tuple(Trial(dataset="MUTAG", fold=fold) for fold in range(10))
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
    ...     study = store.add(Plan("first", {"dataset": "MUTAG"}, trials), fleets=[range(10)])
    ...     study.trials, study.missing
    (10, 10)
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, writable=writable)
        self._settings: dict[int, dict[str, Any]] = {}

    def __enter__(self) -> Store:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()

    def close(self) -> None:
        """Close the file; what was saved is saved already."""
        self._connection.close()

    # Studies

    def add(self, plan: Plan, fleets: Iterable[Iterable[int]]) -> Study:
        """Enter a plan as a study, or give the study of this name where its trials are the same.

        fleets: which trials, by their places, are trained together; every place once.
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
            raise StoreError(f"the study {plan.name!r} is there, with other trials", where=self.path, remedy=remedy)
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
        """Every study, in the order they were begun."""
        counts: dict[int, dict[str | None, tuple[int, float]]] = {}
        for study, status, number, seconds in self.rows(
            f"SELECT m.study, {STATUS}, count(*), total(o.seconds) FROM members m "
            "LEFT JOIN outcomes o ON o.trial = m.trial GROUP BY 1, 2"
        ):
            counts.setdefault(study, {})[status] = (number, seconds)
        return [
            Study(
                id_,
                name,
                self._json(spec),
                created,
                trials=sum(number for number, _ in counts.get(id_, {}).values()),
                counts={status: number for status, (number, _) in counts.get(id_, {}).items() if status is not None},
                seconds=sum(seconds for _, seconds in counts.get(id_, {}).values()),
            )
            for id_, name, spec, created in self.rows("SELECT id, name, spec, created FROM studies ORDER BY id")
        ]

    def study(self, name: str) -> Study:
        """A study by its name, or by a beginning that only it has."""
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
        """The plan that a study was entered with."""
        return Plan(study.name, dict(study.spec), tuple(self.trials(study)))

    def trials(self, study: Study) -> list[Trial]:
        """The trials of a study, in their order."""
        return [trial for _, trial in self._members(study)]

    def fleets(self, study: Study) -> dict[int, list[Trial]]:
        """The trials of a study as they are trained together, by the fleet's number."""
        fleets: dict[int, list[Trial]] = {}
        for fleet, trial in self._members(study):
            fleets.setdefault(fleet, []).append(trial)
        return dict(sorted(fleets.items()))

    def _members(self, study: Study) -> list[tuple[int, Trial]]:
        rows = self.rows(
            "SELECT m.fleet, t.key, t.configuration, t.fold, t.seed FROM members m JOIN trials t ON t.id = m.trial "
            "WHERE m.study = ? ORDER BY m.place",
            study.id,
        )
        return [(fleet, self._trial(*rest)) for fleet, *rest in rows]

    def _trial(self, key: str, configuration: int, fold: int, seed: int) -> Trial:
        if configuration not in self._settings:
            ((text,),) = self.rows("SELECT settings FROM configurations WHERE id = ?", configuration)
            settings = self._json(text)
            if unknown := settings.keys() - {item.name for item in fields(Trial)}:
                problem = f"a trial has settings that this version does not know: {', '.join(sorted(unknown))}"
                raise StoreError(problem, where=self.path, remedy="update graphnorm")
            self._settings[configuration] = settings
        trial = Trial(**self._settings[configuration], fold=fold, seed=seed)
        trial.__dict__["key"] = key  # else it is computed when it is first asked for
        return trial

    def delete(self, study: Study) -> None:
        """Remove a study, and the trials that no other study has."""
        with self._writing() as execute:
            execute("DELETE FROM studies WHERE id = ?", (study.id,))
            execute("DELETE FROM outcomes WHERE trial NOT IN (SELECT trial FROM members)")
            execute("DELETE FROM trials WHERE id NOT IN (SELECT trial FROM members)")
            execute("DELETE FROM configurations WHERE id NOT IN (SELECT configuration FROM trials)")

    # Running

    @property
    def work_folder(self) -> Path:
        """Where studies keep their locks and checkpoints: beside the file."""
        return self.path.with_name(f"{self.path.name}-work")

    @contextmanager
    def lock(self, study: Study, *, wait: bool = False) -> Iterator[None]:
        """Be the only writer of a study; wait until the other one is done, or say who it is.

        The system takes the lock back from a process that is gone.
        """
        filelock = need("filelock", "running a study", "data")
        folder = self.work_folder / str(study.id)
        folder.mkdir(parents=True, exist_ok=True)
        lock = filelock.FileLock(folder / "lock")
        try:
            lock.acquire(timeout=-1 if wait else 0)
        except filelock.Timeout:
            holders = self.sessions(study)[-1:]
            who = "".join(f": process {holder.pid} on {holder.host}, since {holder.started}" for holder in holders)
            raise StudyError(
                f"the study {study.name} is being written{who}",
                where=self.path,
                remedy="wait for it (--wait), or end it; what it has finished is kept",
            ) from None
        try:
            yield
        finally:
            lock.release()

    def begin_session(self, study: Study, engine: str) -> int:
        """Note that this process begins to write to a study."""
        import torch

        code = f"graphnorm {exact_version()}, torch {torch.__version__}"
        with self._writing() as execute:
            cursor = execute(
                "INSERT INTO sessions (study, host, pid, engine, code, started) VALUES (?, ?, ?, ?, ?, ?)",
                (study.id, platform.node(), os.getpid(), engine, code, _now()),
            )
        return int(cursor.lastrowid)

    def end_session(self, session: int, ending: str) -> None:
        """Note that it ended, and how; a killed one has no end."""
        with self._writing() as execute:
            execute("UPDATE sessions SET ended = ?, ending = ? WHERE id = ?", (_now(), ending, session))

    def sessions(self, study: Study) -> list[Session]:
        """The processes that wrote to a study, in the order they began."""
        rows = self.rows(
            "SELECT id, host, pid, engine, started, ended, ending FROM sessions WHERE study = ? ORDER BY id", study.id
        )
        return [Session(*row) for row in rows]

    def save(self, session: int, outcomes: Sequence[Outcome]) -> None:
        """Keep what some trials gave, all of them or none."""
        with self._writing():
            for outcome in outcomes:
                self._save(session, outcome, outcome.status)

    def save_dropped(self, study: Study, session: int, outcomes: Sequence[Outcome], epoch: int) -> None:
        """Keep what there is of trials that a study drops after an epoch."""
        with self._writing() as execute:
            for outcome in outcomes:
                self._save(session, outcome, "dropped")
                row = (epoch, study.id, self._trial_id(outcome.trial))
                execute("UPDATE members SET dropped = ? WHERE study = ? AND trial = ?", row)

    def save_failed(self, session: int, trials: Sequence[Trial], error: str) -> None:
        """Note that some trials could not be trained, and why."""
        with self._writing():
            for trial in trials:
                self._save(session, Outcome(trial, {}), "failed", error)

    def _save(self, session: int, outcome: Outcome, status: Status, error: str | None = None) -> None:
        execute = self._connection.execute
        id_ = self._trial_id(outcome.trial)
        known = execute("SELECT status FROM outcomes WHERE trial = ?", (id_,)).fetchone()
        if known is not None:
            if known[0] in FINAL and not outcome.seen:
                return  # another study was faster; a result is never replaced
            execute("DELETE FROM outcomes WHERE trial = ?", (id_,))
        epochs = max((len(curve) for curve in outcome.curves.values()), default=0)
        best = best_of(outcome.curves["valid"]) if "valid" in outcome.curves else None
        row = (id_, status, epochs, outcome.seconds, outcome.device, session, int(time.time()), error, best)
        execute("INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)", row)
        curves = [(id_, name, pack_curve(curve)) for name, curve in outcome.curves.items()]
        self._connection.executemany("INSERT INTO curves VALUES (?, ?, ?)", curves)
        seen = [(id_, name, pack_array(values)) for name, values in outcome.seen.items()]
        self._connection.executemany("INSERT INTO seen VALUES (?, ?, ?)", seen)

    def move_to_fleet(self, study: Study, trials: Sequence[Trial]) -> int:
        """Put some trials of a study into a fleet of their own, and give its number."""
        with self._writing() as execute:
            (fleet,) = execute("SELECT max(fleet) + 1 FROM members WHERE study = ?", (study.id,)).fetchone()
            for trial in trials:
                row = (fleet, study.id, self._trial_id(trial))
                execute("UPDATE members SET fleet = ? WHERE study = ? AND trial = ?", row)
        return int(fleet)

    def statuses(self, study: Study) -> dict[str, Status]:
        """How each trial of a study ended, by its key; missing ones are not there."""
        rows = self.rows(
            f"SELECT t.key, {STATUS} FROM members m JOIN trials t ON t.id = m.trial "
            "JOIN outcomes o ON o.trial = m.trial WHERE m.study = ?",
            study.id,
        )
        return {key: status for key, status in rows if status is not None}

    def dropped_epochs(self, study: Study) -> dict[str, int]:
        """After which epoch the study dropped a trial, by its key."""
        rows = self.rows(
            "SELECT t.key, m.dropped FROM members m JOIN trials t ON t.id = m.trial "
            "WHERE m.study = ? AND m.dropped IS NOT NULL",
            study.id,
        )
        return dict(rows)

    # Reading

    def records(self, plan: Plan, *, curves: Sequence[str] = (), places: Iterable[int] | None = None) -> list[Record]:
        """What there is of the trials of a plan, or of those in some places, in their order, with the curves named.

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
                loaded.setdefault(place, {})[name] = self._unpacked(data, unpack_curve)
        rows = self.rows(
            f"{wanted}SELECT w.place, {STATUS}, o.epochs, o.seconds, o.device, o.finished, s.code, o.error, o.best "
            "FROM wanted w CROSS JOIN trials t ON t.key = w.key JOIN outcomes o ON o.trial = t.id "
            "JOIN sessions s ON s.id = o.session LEFT JOIN members m ON m.trial = t.id "
            "AND m.study = (SELECT id FROM studies WHERE name = ?) ORDER BY w.place",
            keys,
            plan.name,
        )
        return [
            Record(
                place=place,
                trial=plan.trials[place],
                status=status,
                epochs=epochs,
                seconds=seconds,
                device=device,
                finished=_time(finished),
                code=code,
                error=error,
                best=best,
                curves=loaded.get(place, {}),
            )
            for place, status, epochs, seconds, device, finished, code, error, best in rows
            if status is not None
        ]

    def seen(self, trial: Trial) -> dict[str, npt.NDArray[Any]]:
        """What a probe saw along the training of a trial; nothing where none looked."""
        rows = self.rows("SELECT name, data FROM seen WHERE trial = (SELECT id FROM trials WHERE key = ?)", trial.key)
        return {name: self._unpacked(data, unpack_array) for name, data in rows}

    def finished_keys(self) -> set[str]:
        """The keys of all trials that are trained to the end, whichever study they are of."""
        done = "SELECT t.key FROM trials t JOIN outcomes o ON o.trial = t.id WHERE o.status IN ('done', 'diverged')"
        return {key for (key,) in self.rows(done)}

    def _unpacked(self, data: bytes, unpack: Callable[[bytes], npt.NDArray[Any]]) -> npt.NDArray[Any]:
        try:
            return unpack(data)
        except (zlib.error, ValueError, EOFError) as error:
            raise self._damaged(f"an array does not unpack: {error}") from error

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
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
            raise self._damaged(str(error)) from error

    def _damaged(self, why: str) -> StoreError:
        remedy = f"save what is readable: graphnorm runs recover {self.path} NEW.db"
        return StoreError(f"the store is damaged: {why}", where=self.path, remedy=remedy)


def pack_curve(curve: Curve) -> bytes:
    """A curve as bytes: float32, deflated.

    >>> unpack_curve(pack_curve(np.array([0.5, 0.75, np.nan], np.float32)))
    array([0.5 , 0.75,  nan], dtype=float32)
    """
    return zlib.compress(np.asarray(curve, "<f4").tobytes(), 9)


def unpack_curve(data: bytes) -> Curve:
    """The curve that :func:`pack_curve` made bytes of; ``zlib.error`` or ``ValueError`` where they are damaged."""
    return np.frombuffer(zlib.decompress(data), "<f4").astype(np.float32)


def pack_array(values: npt.NDArray[Any]) -> bytes:
    """An array of any shape and type as bytes, deflated."""
    buffer = io.BytesIO()
    np.save(buffer, values, allow_pickle=False)
    return zlib.compress(buffer.getvalue(), 9)


def unpack_array(data: bytes) -> npt.NDArray[Any]:
    """The array that :func:`pack_array` made bytes of; errors as of :func:`unpack_curve`, or ``EOFError``."""
    found: npt.NDArray[Any] = np.load(io.BytesIO(zlib.decompress(data)), allow_pickle=False)
    return found


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def _time(seconds: int) -> str:
    return datetime.datetime.fromtimestamp(seconds, datetime.UTC).isoformat(timespec="seconds")
