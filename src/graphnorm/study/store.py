"""The store: studies and what came of their trials, in one SQLite file.

A trial is in it wholly or not at all: configuration, outcome and curves come in one transaction, and the call returns
when the disk has it (write-ahead log, ``synchronous=FULL``). Killing the process at any moment leaves a whole file.
After a power cut every trial that was reported as saved is there, if the disk does what fsync asks of it. Readers see
the last whole state, and neither wait for the writer nor hold it up. Keep the file on a disk of this machine: the
write-ahead log needs shared memory, which network file systems do not have.
"""

from __future__ import annotations

import datetime
import difflib
import json
import os
import platform
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import fields
from pathlib import Path
from types import TracebackType
from typing import Any

from graphnorm._version import exact_version
from graphnorm.errors import StoreError
from graphnorm.study.contents import FINAL, Record, Session, Status, Study, number_configuration
from graphnorm.study.curves import Curve, CurveError, pack_curve, unpack_curves
from graphnorm.study.schema import connect, store_errors, transaction
from graphnorm.study.selection import best_of
from graphnorm.training import Outcome, Trial

__all__ = ["FINAL", "SETTINGS", "STATUS", "Record", "Session", "Status", "Store", "Study"]

STATUS = "CASE WHEN m.dropped IS NOT NULL THEN 'dropped' WHEN o.status = 'dropped' THEN NULL ELSE o.status END"
"""How a trial ended in one study: what another study gave up is not given up here."""
SETTINGS = tuple(item.name for item in fields(Trial))
MOST_NAMED = 5
"""Names of studies that an error lists."""


class Store:
    """A file of studies; a context manager.

    >>> import tempfile
    >>> trials = [Trial(dataset="MUTAG", fold=fold) for fold in range(10)]
    >>> with tempfile.TemporaryDirectory() as folder, Store(Path(folder) / "graphnorm.db") as store:
    ...     study = store.add_study("first", {"dataset": "MUTAG"}, trials, fleets=[range(10)])
    ...     study.trials, study.missing
    (10, 10)
    """

    def __init__(self, path: str | os.PathLike[str], *, writable: bool = True) -> None:
        self.path = Path(path)
        self._connection = connect(self.path, writable=writable)
        self._parsed: dict[int, tuple[str, Trial]] = {}

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

    def add_study(
        self, name: str, spec: Mapping[str, Any], trials: Sequence[Trial], fleets: Iterable[Iterable[int]]
    ) -> Study:
        """Enter a study, or give the one of this name where its trials are the same.

        fleets: which trials, by their places, are trained together; every place once.
        """
        fleet_of = {place: number for number, places in enumerate(fleets) for place in places}
        if sorted(fleet_of) != list(range(len(trials))):
            raise ValueError("every trial belongs to exactly one fleet")
        with self._writing():
            known = self._connection.execute("SELECT id FROM studies WHERE name = ?", (name,)).fetchone()
            if known is None:
                cursor = self._connection.execute(
                    "INSERT INTO studies (name, spec, created) VALUES (?, ?, ?)", (name, json.dumps(spec), _now())
                )
                ids = [self._trial_id(trial) for trial in trials]
                rows = [(cursor.lastrowid, place, id_, fleet_of[place]) for place, id_ in enumerate(ids)]
                self._connection.executemany("INSERT INTO members VALUES (?, ?, ?, ?, NULL)", rows)
        found = self.study(name)
        if known is not None and self._keys(found) != [trial.key for trial in trials]:
            raise StoreError(
                f"the study {name!r} is there, with other trials", where=self.path, remedy="give it another name"
            )
        return found

    def _trial_id(self, trial: Trial) -> int:
        found = self._connection.execute("SELECT id FROM trials WHERE key = ?", (trial.key,)).fetchone()
        if found is not None:
            return int(found[0])
        config = json.dumps(trial.to_dict())
        names = (trial.key, trial.dataset, trial.model, trial.norm)
        row = (*names, config, number_configuration(config), trial.fold, trial.seed)
        id_ = self._connection.execute("INSERT INTO trials VALUES (NULL, ?, ?, ?, ?, ?, ?, ?, ?)", row).lastrowid
        assert id_ is not None
        return id_

    def _keys(self, study: Study) -> list[str]:
        rows = self.rows(
            "SELECT t.key FROM members m JOIN trials t ON t.id = m.trial WHERE m.study = ? ORDER BY m.place", study.id
        )
        return [key for (key,) in rows]

    def studies(self) -> list[Study]:
        """Every study, in the order they were begun."""
        with store_errors(self.path):
            counts: dict[int, dict[str | None, tuple[int, float]]] = {}
            for study, status, number, seconds in self._connection.execute(
                f"SELECT m.study, {STATUS}, count(*), total(o.seconds) FROM members m "
                "LEFT JOIN outcomes o ON o.trial = m.trial GROUP BY 1, 2"
            ):
                counts.setdefault(study, {})[status] = (number, seconds)
            rows = self._connection.execute("SELECT id, name, spec, created FROM studies ORDER BY id").fetchall()
        return [
            Study(
                id_,
                name,
                self._json(spec),
                created,
                trials=sum(number for number, _ in counts.get(id_, {}).values()),
                counts={s: number for s, (number, _) in counts.get(id_, {}).items() if s is not None},
                seconds=sum(seconds for _, seconds in counts.get(id_, {}).values()),
            )
            for id_, name, spec, created in rows
        ]

    def study(self, name: str) -> Study:
        """One study by its name."""
        studies = self.studies()
        for study in studies:
            if study.name == name:
                return study
        nearest = difflib.get_close_matches(name, [study.name for study in studies], n=MOST_NAMED, cutoff=0.0)
        more = "; `graphnorm runs` lists all" if len(studies) > len(nearest) else ""
        remedy = f"take one of these: {', '.join(nearest) or 'none'}{more}"
        raise StoreError(f"there is no study {name!r}", where=self.path, remedy=remedy)

    def trials(self, study: Study, places: Sequence[int] | None = None) -> list[Trial]:
        """The trials of a study, or those in some places, in their order."""
        return [trial for _, trial in self._members(study, places)]

    def fleets(self, study: Study) -> dict[int, list[Trial]]:
        """The trials of a study as they are trained together, by the fleet's number."""
        fleets: dict[int, list[Trial]] = {}
        for fleet, trial in self._members(study):
            fleets.setdefault(fleet, []).append(trial)
        return dict(sorted(fleets.items()))

    def _members(self, study: Study, places: Sequence[int] | None = None) -> list[tuple[int, Trial]]:
        chosen, parameters = _restricted(places)
        rows = self.rows(
            "SELECT m.fleet, t.id, t.config FROM members m JOIN trials t ON t.id = m.trial "
            f"WHERE m.study = ?{chosen} ORDER BY m.place",
            study.id,
            *parameters,
        )
        return [(fleet, self._trial(id_, config)) for fleet, id_, config in rows]

    def delete_study(self, study: Study) -> None:
        """Remove a study, and the trials that no other study has."""
        with self._writing():
            execute = self._connection.execute
            execute("DELETE FROM studies WHERE id = ?", (study.id,))
            execute("DELETE FROM outcomes WHERE trial NOT IN (SELECT trial FROM members)")
            execute("DELETE FROM trials WHERE id NOT IN (SELECT trial FROM members)")

    def drop_curves(self, names: Sequence[str], studies: Sequence[Study], *, keep: Collection[str]) -> int:
        """Remove curves by name from the trials that only these studies have, but for the keys in ``keep``.

        The file becomes smaller by them. Gives how many there were.
        """
        with self._writing():
            self._connection.execute(
                "WITH mine AS (SELECT value FROM json_each(:studies)) "
                "DELETE FROM curves WHERE name IN (SELECT value FROM json_each(:names)) "
                "AND trial IN (SELECT trial FROM members WHERE study IN mine) "
                "AND trial NOT IN (SELECT trial FROM members WHERE study NOT IN mine) "
                "AND trial NOT IN (SELECT id FROM trials WHERE key IN (SELECT value FROM json_each(:keep)))",
                {
                    "studies": json.dumps([study.id for study in studies]),
                    "names": json.dumps(list(names)),
                    "keep": json.dumps(list(keep)),
                },
            )
            ((count,),) = self._connection.execute("SELECT changes()").fetchall()
        with store_errors(self.path):
            self._connection.execute("VACUUM")
            self._connection.execute("PRAGMA wal_checkpoint(TRUNCATE)")
        return int(count)

    # Sessions

    def begin_session(self, study: Study, engine: str) -> int:
        """Note that this process begins to write to a study."""
        import torch

        code = f"graphnorm {exact_version()}, torch {torch.__version__}"
        with self._writing():
            cursor = self._connection.execute(
                "INSERT INTO sessions (study, host, pid, engine, code, started) VALUES (?, ?, ?, ?, ?, ?)",
                (study.id, platform.node(), os.getpid(), engine, code, _now()),
            )
        assert cursor.lastrowid is not None
        return cursor.lastrowid

    def end_session(self, session: int, ending: str) -> None:
        """Note that it ended, and how; a killed one has no end."""
        with self._writing():
            self._connection.execute(
                "UPDATE sessions SET ended = ?, ending = ? WHERE id = ?", (_now(), ending, session)
            )

    def sessions(self, study: Study) -> list[Session]:
        """The processes that wrote to a study, in the order they began."""
        rows = self.rows(
            "SELECT id, host, pid, engine, started, ended, ending FROM sessions WHERE study = ? ORDER BY id", study.id
        )
        return [Session(*row) for row in rows]

    # Outcomes

    def save(self, session: int, outcomes: Sequence[Outcome]) -> None:
        """Keep what came of some trials, all of them or none."""
        with self._writing():
            for outcome in outcomes:
                self._save(session, outcome.trial, outcome.status, outcome.curves, outcome.seconds, outcome.device)

    def save_dropped(self, study: Study, session: int, outcomes: Sequence[Outcome], epoch: int) -> None:
        """Keep what there is of trials that a study gives up after an epoch."""
        with self._writing():
            for outcome in outcomes:
                self._save(session, outcome.trial, "dropped", outcome.curves, outcome.seconds, outcome.device)
                self._connection.execute(
                    "UPDATE members SET dropped = ? WHERE study = ? AND trial = ?",
                    (epoch, study.id, self._trial_id(outcome.trial)),
                )

    def move_to_fleet(self, study: Study, trials: Sequence[Trial]) -> int:
        """Put some trials of a study into a fleet of their own, and give its number."""
        with self._writing():
            execute = self._connection.execute
            (fleet,) = execute("SELECT max(fleet) + 1 FROM members WHERE study = ?", (study.id,)).fetchone()
            for trial in trials:
                row = (fleet, study.id, self._trial_id(trial))
                execute("UPDATE members SET fleet = ? WHERE study = ? AND trial = ?", row)
        return int(fleet)

    def save_failed(self, session: int, trials: Sequence[Trial], error: str) -> None:
        """Note that some trials could not be trained, and why."""
        with self._writing():
            for trial in trials:
                self._save(session, trial, "failed", {}, 0.0, "", error)

    def _save(
        self,
        session: int,
        trial: Trial,
        status: Status,
        curves: Mapping[str, Curve],
        seconds: float,
        device: str,
        error: str | None = None,
    ) -> None:
        id_ = self._trial_id(trial)
        known = self._connection.execute("SELECT status FROM outcomes WHERE trial = ?", (id_,)).fetchone()
        if known is not None:
            if known[0] in FINAL:
                return  # another study was faster; a result is never replaced
            self._connection.execute("DELETE FROM outcomes WHERE trial = ?", (id_,))
        epochs = max((len(curve) for curve in curves.values()), default=0)
        best = best_of(curves["valid"]) if "valid" in curves else None
        self._connection.execute(
            "INSERT INTO outcomes VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?)",
            (id_, status, epochs, seconds, device, session, _now(), error, best),
        )
        rows = [(id_, name, pack_curve(curve, exact=name != "loss")) for name, curve in curves.items()]
        self._connection.executemany("INSERT INTO curves VALUES (?, ?, ?)", rows)

    def statuses(self, study: Study) -> dict[str, Status]:
        """How each trial of a study ended, by its key; missing ones are not there."""
        rows = self.rows(
            f"SELECT t.key, {STATUS} FROM members m JOIN trials t ON t.id = m.trial "
            "JOIN outcomes o ON o.trial = m.trial WHERE m.study = ?",
            study.id,
        )
        return {key: status for key, status in rows if status is not None}

    def dropped_epochs(self, study: Study) -> dict[str, int]:
        """After which epoch the study gave up a trial, by its key."""
        rows = self.rows(
            "SELECT t.key, m.dropped FROM members m JOIN trials t ON t.id = m.trial "
            "WHERE m.study = ? AND m.dropped IS NOT NULL",
            study.id,
        )
        return dict(rows)

    def records(self, study: Study, *, curves: Sequence[str] = (), places: Sequence[int] | None = None) -> list[Record]:
        """What there is of each trial of a study, or of those in some places, in their order, with the curves named."""
        loaded = {name: self.curves(study, name, places) for name in curves}
        chosen, parameters = _restricted(places)
        rows = self.rows(
            f"SELECT t.id, t.config, {STATUS}, o.epochs, o.seconds, o.device, o.finished, s.code, "
            "m.fleet, m.place, o.error "
            "FROM members m JOIN outcomes o ON o.trial = m.trial JOIN trials t ON t.id = m.trial "
            f"JOIN sessions s ON s.id = o.session WHERE m.study = ?{chosen} ORDER BY m.place",
            study.id,
            *parameters,
        )
        names = ("status", "epochs", "seconds", "device", "finished", "code", "fleet", "place", "error")
        return [
            Record(
                trial=self._trial(id_, config),
                curves={name: found[rest[-2]] for name, found in loaded.items() if rest[-2] in found},
                **dict(zip(names, rest, strict=True)),
            )
            for id_, config, *rest in rows
            if rest[0] is not None
        ]

    def curves(self, study: Study, name: str, places: Sequence[int] | None = None) -> dict[int, Curve]:
        """One curve of each trial of a study that has it, or of those in some places, by the place."""
        chosen, parameters = _restricted(places)
        rows = self.rows(
            "SELECT m.place, c.data FROM members m JOIN curves c ON c.name = ? AND c.trial = m.trial "
            f"WHERE m.study = ?{chosen}",
            name,
            study.id,
            *parameters,
        )
        try:
            curves = unpack_curves([data for _, data in rows])
        except CurveError as error:
            remedy = f"save what is readable: graphnorm runs rescue {self.path} NEW.db"
            raise StoreError(f"the store is damaged: {error}", where=self.path, remedy=remedy) from error
        return {place: curve for (place, _), curve in zip(rows, curves, strict=True)}

    # Helpers

    def rows(self, statement: str, *parameters: Any) -> list[tuple[Any, ...]]:
        """What a query finds."""
        with store_errors(self.path):
            return self._connection.execute(statement, parameters).fetchall()

    @contextmanager
    def _writing(self) -> Iterator[None]:
        with store_errors(self.path), transaction(self._connection):
            yield

    def _json(self, text: str) -> Any:
        try:
            return json.loads(text)
        except ValueError as error:
            remedy = f"save what is readable: graphnorm runs rescue {self.path} NEW.db"
            raise StoreError(f"the store is damaged: {error}", where=self.path, remedy=remedy) from error

    def _trial(self, id_: int, config: str) -> Trial:
        if (known := self._parsed.get(id_)) is not None and known[0] == config:
            return known[1]
        values = self._json(config)
        if unknown := values.keys() - set(SETTINGS):
            raise StoreError(
                f"a trial has settings that this version does not know: {', '.join(sorted(unknown))}",
                where=self.path,
                remedy="update graphnorm",
            )
        trial = Trial(**values)
        self._parsed[id_] = (config, trial)
        return trial


def _restricted(places: Sequence[int] | None) -> tuple[str, tuple[str, ...]]:
    """A condition on the places of members, and its parameter."""
    if places is None:
        return "", ()
    return " AND m.place IN (SELECT value FROM json_each(?))", (json.dumps(list(places)),)


def _now() -> str:
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")
