"""The store: wholly or not at all, shared trials, several processes, versions, damage."""

from __future__ import annotations

import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from graphnorm._version import exact_version
from graphnorm.errors import StoreError
from graphnorm.study import schema
from graphnorm.study.rescue import rescue
from graphnorm.study.selection import best_of
from graphnorm.study.standings import read_standings
from graphnorm.study.store import Store
from graphnorm.training import Outcome, Trial

TRIALS = [Trial(dataset="MUTAG", norm=norm, fold=fold, epochs=20) for norm in ("graph", "batch") for fold in range(5)]
FLEETS = [range(5), range(5, 10)]


def outcome(trial: Trial, **more: object) -> Outcome:
    random = np.random.default_rng(int(trial.key, 16))
    curves = {
        "loss": random.uniform(0, 1, trial.epochs).astype(np.float32),
        "train": (random.integers(0, 170, trial.epochs) / 169).astype(np.float32),
        "valid": (random.integers(0, 20, trial.epochs) / 19).astype(np.float32),
    }
    return Outcome(**{"trial": trial, "curves": curves, "seconds": 1.5, "device": "cpu"} | more)  # type: ignore[arg-type]


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "graphnorm.db"


def filled(path: Path, trials: list[Trial] = TRIALS) -> Store:
    store = Store(path)
    study = store.add_study("first", {"grid": "quick"}, TRIALS, FLEETS)
    store.save(store.begin_session(study, "local"), [outcome(trial) for trial in trials])
    return store


def test_what_goes_in_comes_out(path: Path) -> None:
    filled(path, TRIALS[:7]).close()
    with Store(path, writable=False) as store:
        study = store.study("first")
        assert (study.trials, study.finished, study.missing, study.seconds) == (10, 7, 3, 10.5)
        assert study.spec == {"grid": "quick"}
        assert store.trials(study) == TRIALS
        assert store.fleets(study) == {0: TRIALS[:5], 1: TRIALS[5:]}
        records = store.records(study, curves=["valid", "train", "loss", "test"])
    assert [record.trial for record in records] == TRIALS[:7]
    for record in records:
        true = outcome(record.trial).curves
        assert (record.status, record.epochs, record.device, record.error) == ("done", 20, "cpu", None)
        assert np.array_equal(record.curves["valid"], true["valid"])
        assert np.array_equal(record.curves["train"], true["train"])
        assert np.allclose(record.curves["loss"], true["loss"], rtol=2**-12)
        assert "test" not in record.curves
        assert record.code.startswith(f"graphnorm {exact_version()}, torch ")


def test_a_trial_is_shared_between_studies_and_never_replaced(path: Path) -> None:
    with filled(path, TRIALS[:3]) as store:
        other = store.add_study("second", {}, TRIALS[2:4], [range(2)])
        assert (other.finished, other.missing) == (1, 1)
        session = store.begin_session(other, "local")
        store.save(session, [outcome(TRIALS[2], seconds=99.0), outcome(TRIALS[3], status="diverged")])
        records = store.records(other)
        assert [(r.status, r.seconds) for r in records] == [("done", 1.5), ("diverged", 1.5)]
        assert store.study("first").counts == {"done": 3, "diverged": 1}
        store.delete_study(store.study("first"))
        assert [study.name for study in store.studies()] == ["second"]
        assert store.study("second").finished == 2
        (trials,) = store._connection.execute("SELECT count(*) FROM trials").fetchone()
        assert trials == 2


def test_what_failed_can_be_done_later(path: Path) -> None:
    with filled(path, []) as store:
        study = store.study("first")
        session = store.begin_session(study, "local")
        store.save_failed(session, TRIALS[:2], "ran out of memory")
        assert [r.error for r in store.records(study)] == ["ran out of memory"] * 2
        store.save(session, [outcome(trial) for trial in TRIALS[:3]])
        assert set(store.statuses(study).values()) == {"done"}
        store.save_failed(session, TRIALS[:1], "too late")
        assert store.study("first").counts == {"done": 3}


def test_what_one_study_gives_up_another_does_not(path: Path) -> None:
    with filled(path, []) as store:
        first, second = store.study("first"), store.add_study("second", {}, TRIALS[:2], [range(2)])
        session = store.begin_session(first, "local")
        part = outcome(TRIALS[0], curves={"valid": np.zeros(4, np.float32)})
        store.save_dropped(first, session, [part], epoch=4)
        assert store.statuses(first) == {TRIALS[0].key: "dropped"}
        assert store.dropped_epochs(first) == {TRIALS[0].key: 4}
        assert store.study("first").counts == {"dropped": 1}
        assert (store.statuses(second), store.records(second), store.study("second").missing) == ({}, [], 2)
        store.save(session, [outcome(TRIALS[0])])
        assert store.statuses(first) == {TRIALS[0].key: "dropped"}
        assert store.statuses(second) == {TRIALS[0].key: "done"}


def test_sessions_say_who_wrote_and_for_how_long(path: Path) -> None:
    with Store(path) as store:
        study = store.add_study("first", {}, TRIALS, FLEETS)
        killed, whole = (store.begin_session(study, engine) for engine in ("ray", "local"))
        store.end_session(whole, "finished")
        store._connection.execute("UPDATE sessions SET ended = '2026-01-01T00:01:01+00:00' WHERE id = ?", (whole,))
        store._connection.execute("UPDATE sessions SET started = '2026-01-01T00:00:00+00:00'")
        first, second = store.sessions(study)
    assert (first.id, first.pid, first.engine, first.ended, first.seconds) == (killed, os.getpid(), "ray", None, None)
    assert (second.id, second.ending, second.seconds) == (whole, "finished", 61.0)


def test_a_fleet_can_be_split(path: Path) -> None:
    with filled(path, []) as store:
        study = store.study("first")
        assert store.move_to_fleet(study, TRIALS[:2]) == 2
        assert store.fleets(study) == {0: TRIALS[2:5], 1: TRIALS[5:], 2: TRIALS[:2]}
        assert store.trials(study) == TRIALS


def test_all_of_a_fleet_or_nothing(path: Path) -> None:
    with filled(path, []) as store:
        study = store.study("first")
        broken = outcome(TRIALS[1], curves={"train": "no curve"})
        with pytest.raises(ValueError, match="could not convert"):
            store.save(store.begin_session(study, "local"), [outcome(TRIALS[0]), broken])
        assert store.study("first").counts == {}


def test_a_study_keeps_its_trials(path: Path) -> None:
    with filled(path) as store:
        assert store.add_study("first", {}, TRIALS, FLEETS).finished == 10
        with pytest.raises(StoreError, match="with other trials"):
            store.add_study("first", {}, TRIALS[:4], [range(4)])
        with pytest.raises(ValueError, match="exactly one fleet"):
            store.add_study("third", {}, TRIALS, [range(9)])
        with pytest.raises(StoreError, match="take one of these: first"):
            store.study("frist")


def test_of_many_studies_the_nearest_are_named(path: Path) -> None:
    with filled(path) as store:
        for number in range(10):
            store.add_study(f"MUTAG-{number}", {}, TRIALS, FLEETS)
        with pytest.raises(StoreError, match=r"these: first, .*; `graphnorm runs` lists all") as found:
            store.study("frist")
        assert str(found.value).count("MUTAG") == 4


def test_readers_go_on_while_a_writer_is_at_work(path: Path) -> None:
    with filled(path, TRIALS[:1]) as store, Store(path, writable=False) as reader:
        session = store.begin_session(store.study("first"), "local")
        with store._writing():
            store._save(session, TRIALS[1], "done", {}, 0.0, "")
            began = time.monotonic()
            assert reader.study("first").finished == 1
            assert time.monotonic() - began < 1
        assert reader.study("first").finished == 2


def test_a_second_writer_waits_its_turn(path: Path) -> None:
    with filled(path, []) as store:
        session = store.begin_session(store.study("first"), "local")

        def write() -> None:
            with Store(path) as second:
                second.save(session, [outcome(TRIALS[1])])

        thread = threading.Thread(target=write)
        with store._writing():
            thread.start()
            time.sleep(0.3)
            store._save(session, TRIALS[0], "done", {}, 0.0, "")
        thread.join(timeout=20)
        assert store.study("first").finished == 2


WRITER = """
import sys
sys.path.insert(0, {tests!r})
from test_store import TRIALS, FLEETS, Store, outcome
store = Store(sys.argv[1])
study = store.add_study("first", {{}}, TRIALS, FLEETS)
session = store.begin_session(study, "local")
for trial in TRIALS:
    store.save(session, [outcome(trial)])
    print(trial.key, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 4])
def test_a_killed_writer_leaves_every_saved_trial(path: Path, lines: int) -> None:
    code = WRITER.format(tests=str(Path(__file__).parent))
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = {process.stdout.readline().strip() for _ in range(lines)}
        process.send_signal(signal.SIGKILL)
    with Store(path) as store:
        assert told <= set(store.statuses(store.study("first")))
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)


# Versions and other people's files


def test_a_newer_store_is_left_alone(path: Path) -> None:
    filled(path).close()
    with sqlite3.connect(path) as connection:
        connection.execute("PRAGMA user_version = 99")
    connection.close()
    before = path.read_bytes()
    for writable in (True, False):
        with pytest.raises(StoreError, match=r"newer version of graphnorm \(schema 99"):
            Store(path, writable=writable)
    assert path.read_bytes() == before


def test_an_older_store_is_brought_up_to_date(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path).close()
    old = schema.MIGRATIONS
    monkeypatch.setattr(schema, "MIGRATIONS", (*old, ("ALTER TABLE trials ADD COLUMN note TEXT", "CREATE nonsense")))
    with pytest.raises(StoreError, match="syntax error"):
        Store(path)
    monkeypatch.setattr(schema, "MIGRATIONS", (*old, ("ALTER TABLE trials ADD COLUMN note TEXT",)))
    with pytest.raises(StoreError, match="older version"):
        Store(path, writable=False)
    with Store(path) as store:  # the failed attempt left nothing behind
        assert store._connection.execute("PRAGMA user_version").fetchone() == (len(old) + 1,)
        assert store.study("first").finished == 10


def made_by_the_first_version(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    filled(path, TRIALS[:7]).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("ALTER TABLE outcomes DROP COLUMN best")
        for column in ("configuration", "fold", "seed"):
            connection.execute(f"ALTER TABLE trials DROP COLUMN {column}")
        connection.execute("PRAGMA user_version = 1")
        found = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    with monkeypatch.context() as patch:
        patch.setattr(schema, "MIGRATIONS", schema.MIGRATIONS[:1])
        Store(path.with_name("model.db")).close()
    with closing(sqlite3.connect(path.with_name("model.db"))) as connection:
        model = connection.execute("SELECT sql FROM sqlite_schema WHERE type = 'table' ORDER BY name").fetchall()
    assert found == model, "this is how the first version made its tables"


def test_the_first_version_s_store_learns_what_follows_from_the_rest(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_the_first_version(path, monkeypatch)
    with Store(path) as store:
        standings = read_standings(store, store.study("first"))
    assert standings.configurations == [TRIALS[0], TRIALS[5]]
    assert standings.members == [(fold, 0) for fold in range(5)]
    assert standings.places.tolist() == [[0, 1, 2, 3, 4], [5, 6, 7, 8, 9]]
    bests = [best_of(outcome(trial).curves["valid"]) for trial in TRIALS[:7]]
    assert standings.best.ravel().tolist() == [*bests, -np.inf, -np.inf, -np.inf]


def test_the_first_version_s_store_with_a_damaged_curve_is_not_brought_up_to_date(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    made_by_the_first_version(path, monkeypatch)
    with closing(sqlite3.connect(path)) as connection, connection:
        connection.execute("UPDATE curves SET data = x'00' WHERE trial = 3 AND name = 'valid'")
    with pytest.raises(StoreError, match="rescue"):
        Store(path)
    found = rescue(path, path.with_name("rescued.db"))
    assert (found.outcomes, found.lost) == (6, 1)
    with Store(path.with_name("rescued.db")) as store:
        best = read_standings(store, store.study("first")).best.ravel()[:7].tolist()
    assert best == [-np.inf if k == 2 else best_of(outcome(t).curves["valid"]) for k, t in enumerate(TRIALS[:7])]


def test_another_program_s_file_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "mail.db"
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE letters (text)")
    connection.close()
    with pytest.raises(StoreError, match="not a store of graphnorm"):
        Store(path)
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and not a few of them\n" * 100)
    with pytest.raises(StoreError, match="damaged"):
        Store(text)


def test_reading_makes_no_file(tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there is no store here"):
        Store(tmp_path / "absent.db", writable=False)
    assert not list(tmp_path.iterdir())


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_in_a_folder_that_cannot_be_written(path: Path) -> None:
    filled(path).close()
    path.parent.chmod(0o500)
    try:
        with Store(path, writable=False) as store:
            assert store.study("first").finished == 10
    finally:
        path.parent.chmod(0o700)
