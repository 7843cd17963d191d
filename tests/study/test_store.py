"""The store: wholly or not at all, shared trials, several processes, versions, damage."""

from __future__ import annotations

import contextlib
import os
import signal
import sqlite3
import subprocess
import sys
import threading
import time
import zlib
from collections.abc import Sequence
from contextlib import closing
from pathlib import Path

import numpy as np
import pytest

from fakes import outcome, scattered
from graphnorm._version import exact_version
from graphnorm.errors import StoreError, StudyError
from graphnorm.study import Store
from graphnorm.study.compression import compress_curve, decompress_curve
from graphnorm.study.plan import Plan
from graphnorm.study.schema import VERSION
from graphnorm.study.selection import best_of
from graphnorm.training import Outcome, Trial

TRIALS = tuple(
    Trial(dataset="MUTAG", norm=norm, fold=fold, epochs=20) for norm in ("graph", "batch") for fold in range(5)
)
FLEETS = [range(5), range(5, 10)]
PLAN = Plan("first", {"dataset": "MUTAG"}, TRIALS)


@pytest.fixture
def path(tmp_path: Path) -> Path:
    return tmp_path / "out" / "graphnorm.db"


def filled(path: Path, trials: Sequence[Trial] = TRIALS) -> Store:
    store = Store(path)
    study = store.add(PLAN, FLEETS)
    store.save(store.begin_session(study, "local"), [outcome(trial) for trial in trials])
    return store


def part(name: str, trials: Sequence[Trial]) -> Plan:
    return Plan(name, {}, tuple(trials))


def test_what_goes_in_comes_out(path: Path) -> None:
    filled(path, TRIALS[:7]).close()
    with Store(path, writable=False) as store:
        study = store.study("first")
        assert (study.trials, study.finished, study.missing, study.seconds) == (10, 7, 3, 3.5)
        assert store.plan(study) == PLAN
        assert store.fleets(study) == {0: list(TRIALS[:5]), 1: list(TRIALS[5:])}
        assert store.rows("SELECT count(*) FROM configurations") == [(2,)]
        assert store.finished_keys() == {trial.key for trial in TRIALS[:7]}
        records = store.records(PLAN, curves=["valid", "train", "loss", "test"])
    assert [record.trial for record in records] == list(TRIALS[:7])
    for record in records:
        true = outcome(record.trial).curves
        assert (record.status, record.epochs, record.device, record.error) == ("done", 20, "fake", None)
        assert record.best == best_of(true["valid"])
        assert record.curves.keys() == true.keys() == {"loss", "train", "valid"}
        for name, curve in true.items():
            assert np.array_equal(record.curves[name], curve)
        assert record.code.startswith(f"graphnorm {exact_version()}, torch ")


def test_pages_are_filled_by_long_curves(path: Path) -> None:
    random = np.random.default_rng(0)
    trials = part("long", [Trial(dataset="MUTAG", fold=fold) for fold in range(100)])
    names = ("loss", "train", "valid")
    trained = [
        Outcome(trial, {name: random.random(trial.epochs, np.float32) for name in names}) for trial in trials.trials
    ]
    with Store(path) as store:
        store.save(store.begin_session(store.add(trials, [range(100)]), "local"), trained)
        ((data,),) = store.rows("SELECT sum(length(data)) FROM curves")
        ((size,),) = store.rows("SELECT page_count * page_size FROM pragma_page_count, pragma_page_size")
    assert size < 1.5 * data


def test_records_are_found_by_the_keys_of_any_plan(path: Path) -> None:
    other = part("not a study", [Trial(dataset="elsewhere"), *TRIALS[6:3:-1]])
    with filled(path, TRIALS[:6]) as store:
        assert [(record.place, record.trial) for record in store.records(other)] == [(2, TRIALS[5]), (3, TRIALS[4])]
        assert [record.place for record in store.records(other, places=[3, 0])] == [3]


def test_a_trial_is_shared_between_studies_and_never_replaced(path: Path) -> None:
    with filled(path, TRIALS[:3]) as store:
        second = part("second", TRIALS[2:4])
        other = store.add(second, [range(2)])
        assert (other.finished, other.missing) == (1, 1)
        session = store.begin_session(other, "local")
        store.save(session, [outcome(TRIALS[2], seconds=99.0), outcome(TRIALS[3], status="diverged")])
        assert [(r.status, r.seconds) for r in store.records(second)] == [("done", 0.5), ("diverged", 0.5)]
        assert store.study("first").counts == {"done": 3, "diverged": 1}
        store.delete(store.study("first"))
        assert [study.name for study in store.studies()] == ["second"]
        assert store.study("second").finished == 2
        assert store.rows("SELECT count(*) FROM trials") == [(2,)]
        store.delete(store.study("second"))
        for table in ("trials", "configurations", "outcomes", "curves", "members"):
            assert store.rows(f"SELECT count(*) FROM {table}") == [(0,)]


def test_what_a_probe_saw_takes_the_place_of_a_training_without_it(path: Path) -> None:
    with filled(path, TRIALS[:2]) as store:
        seen = {"epochs": np.arange(3), "noise": np.random.default_rng(0).random((3, 4, 2)).astype(np.float32)}
        session = store.begin_session(store.study("first"), "local")
        store.save(session, [outcome(trial, seen=dict(seen)) for trial in TRIALS[:2]])
        store.save(session, [outcome(TRIALS[0])])  # and one without does not take it back
        for trial in TRIALS[:2]:
            found = store.seen(trial)
            assert found.keys() == seen.keys()
            for name, values in seen.items():
                assert found[name].dtype == values.dtype
                np.testing.assert_array_equal(found[name], values)
        assert store.seen(TRIALS[2]) == {}
        assert store.study("first").counts == {"done": 2}


def test_what_failed_can_be_done_later(path: Path) -> None:
    with filled(path, []) as store:
        study = store.study("first")
        session = store.begin_session(study, "local")
        store.save_failed(session, TRIALS[:2], "ran out of memory")
        assert [r.error for r in store.records(PLAN)] == ["ran out of memory"] * 2
        store.save(session, [outcome(trial) for trial in TRIALS[:3]])
        assert set(store.statuses(study).values()) == {"done"}
        store.save_failed(session, TRIALS[:1], "too late")
        assert store.study("first").counts == {"done": 3}


def test_what_one_study_drops_another_does_not(path: Path) -> None:
    first, second = TRIALS[0], part("second", TRIALS[:2])
    with filled(path, []) as store:
        one, two = store.study("first"), store.add(second, [range(2)])
        session = store.begin_session(one, "local")
        store.save_dropped(one, session, [outcome(first, epochs=4)], epoch=4)
        assert store.statuses(one) == {first.key: "dropped"}
        assert store.dropped_epochs(one) == {first.key: 4}
        assert store.study("first").counts == {"dropped": 1}
        assert [(r.status, r.epochs) for r in store.records(PLAN)] == [("dropped", 4)]
        assert (store.statuses(two), store.records(second), store.study("second").missing) == ({}, [], 2)
        store.save(session, [outcome(first)])
        assert store.statuses(one) == {first.key: "dropped"}
        assert store.statuses(two) == {first.key: "done"}


def test_sessions_say_who_wrote_and_for_how_long(path: Path) -> None:
    with Store(path) as store:
        study = store.add(PLAN, FLEETS)
        killed, whole = (store.begin_session(study, engine) for engine in ("ray", "local"))
        store.end_session(whole, "finished")
        store.rows("UPDATE sessions SET ended = '2026-01-01T00:01:01+00:00' WHERE id = ?", whole)
        store.rows("UPDATE sessions SET started = '2026-01-01T00:00:00+00:00'")
        first, second = store.sessions(study)
    assert (first.id, first.pid, first.engine, first.ended, first.seconds) == (killed, os.getpid(), "ray", None, None)
    assert (second.id, second.ending, second.seconds) == (whole, "finished", 61.0)


def test_all_of_a_fleet_or_nothing(path: Path) -> None:
    with filled(path, []) as store:
        session = store.begin_session(store.study("first"), "local")
        with pytest.raises(ValueError, match="could not convert"):
            store.save(session, [outcome(TRIALS[0]), outcome(TRIALS[1], curves={"train": "no curve"})])
        assert store.study("first").counts == {}


def test_a_study_keeps_its_trials(path: Path) -> None:
    with filled(path) as store:
        assert store.add(PLAN, FLEETS).finished == 10
        with pytest.raises(StoreError, match="with other trials"):
            store.add(part("first", TRIALS[:4]), [range(4)])
        with pytest.raises(ValueError, match="exactly one fleet"):
            store.add(part("third", TRIALS), [range(9)])


def test_studies_are_found_by_how_they_begin(path: Path) -> None:
    with filled(path) as store:
        assert store.study("fi").name == "first"
        for number in range(10):
            store.add(part(f"MUTAG-{number}", TRIALS), FLEETS)
        assert store.study("MUTAG-3").name == "MUTAG-3"
        with pytest.raises(StudyError, match="10 studies begin with"):
            store.study("MUTAG")
        with pytest.raises(StoreError, match="no study 'frist'") as caught:
            store.study("frist")
    remedy = caught.value.remedy or ""
    assert remedy.count("MUTAG") == 4  # the nearest, not all of them
    assert "first" in remedy
    assert "graphnorm runs" in remedy


# Several at once


def test_readers_go_on_while_a_writer_is_at_work(path: Path) -> None:
    with filled(path, TRIALS[:1]) as store, Store(path, writable=False) as reader:
        session = store.begin_session(store.study("first"), "local")
        with store._writing():
            store._save(session, outcome(TRIALS[1]), "done")
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
            store._save(session, outcome(TRIALS[0]), "done")
        thread.join(timeout=20)
        assert store.study("first").finished == 2


WRITER = """
import sys
sys.path[:0] = {paths!r}
from test_store import *
store = Store(sys.argv[1])
session = store.begin_session(store.add(PLAN, FLEETS), "local")
for trial in TRIALS:
    store.save(session, [outcome(trial)])
    print(trial.key, flush=True)
"""


@pytest.mark.parametrize("lines", [1, 4])
def test_a_killed_writer_leaves_every_saved_trial(path: Path, lines: int) -> None:
    code = WRITER.format(paths=[str(Path(__file__).parent), str(Path(__file__).parents[1])])
    with subprocess.Popen([sys.executable, "-c", code, str(path)], stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        told = {process.stdout.readline().strip() for _ in range(lines)}
        process.send_signal(signal.SIGKILL)
    with Store(path) as store:
        assert told <= store.finished_keys()
        assert store.rows("PRAGMA integrity_check") == [("ok",)]


# Versions and other people's files


@pytest.mark.parametrize("version", [1, VERSION - 1, VERSION + 1])
def test_another_version_s_store_is_left_alone(path: Path, version: int) -> None:
    filled(path).close()
    with closing(sqlite3.connect(path)) as connection:
        connection.execute(f"PRAGMA user_version = {version}")
    before = path.read_bytes()
    for writable in (True, False):
        with pytest.raises(StoreError, match=f"schema {version}") as caught:
            Store(path, writable=writable)
        assert caught.value.remedy
    assert path.read_bytes() == before


def test_settings_that_this_version_does_not_know(path: Path) -> None:
    with filled(path) as store:
        store.rows("UPDATE studies SET spec = '{'")
        with pytest.raises(StoreError, match="damaged"):
            store.studies()
        store.rows("UPDATE studies SET spec = '{}'")
        store.rows("UPDATE configurations SET settings = json_set(settings, '$.momentum', 0.9)")
        with pytest.raises(StoreError, match="momentum"):
            store.trials(store.study("first"))


def test_another_program_s_file_is_refused(tmp_path: Path) -> None:
    (tmp_path / "empty.db").touch()
    with pytest.raises(StoreError, match="empty"):
        Store(tmp_path / "empty.db", writable=False)
    path = tmp_path / "mail.db"
    with closing(sqlite3.connect(path)) as connection:
        connection.execute("CREATE TABLE letters (text)")
    with pytest.raises(StoreError, match="not a store of graphnorm"):
        Store(path)
    text = tmp_path / "notes.txt"
    text.write_text("these are notes, and not a few of them\n" * 100)
    with pytest.raises(StoreError, match="damaged"):
        Store(text)


@pytest.mark.skipif(os.geteuid() == 0, reason="root may write everywhere")
def test_a_store_in_a_folder_that_cannot_be_written(path: Path) -> None:
    filled(path).close()
    path.parent.chmod(0o500)
    try:
        with Store(path, writable=False) as store:
            assert store.study("first").finished == 10
    finally:
        path.parent.chmod(0o700)


# Damaged bytes


def test_a_changed_bit_of_a_curve_is_found(path: Path) -> None:
    blob = compress_curve(outcome(TRIALS[0], scattered).curves["valid"])
    for place in range(len(blob)):
        wrong = blob[:place] + bytes([blob[place] ^ 0x10]) + blob[place + 1 :]
        with contextlib.suppress(zlib.error, ValueError):
            back = compress_curve(decompress_curve(wrong))
            assert back == blob, place  # a bit of the deflate format that says nothing
    with filled(path) as store:
        session = store.begin_session(store.study("first"), "local")
        store.save(session, [outcome(TRIALS[2], seen={"epochs": np.arange(9)})])
        for table in ("curves", "seen"):
            store.rows(f"UPDATE {table} SET data = ? WHERE trial = 3", blob[:-5])
        for read in (lambda: store.records(PLAN, curves=["valid"]), lambda: store.seen(TRIALS[2])):
            with pytest.raises(StoreError, match="damaged") as caught:
                read()
            assert "recover" in (caught.value.remedy or "")
