"""Stores of several machines become one."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from fake_training import FakeTraining
from graphnorm.cli import main
from graphnorm.errors import StoreError
from graphnorm.study.merge import Merged, merge
from graphnorm.study.store import Store
from graphnorm.training import Split, Trial

TRIALS = [Trial(dataset="A", norm=norm, fold=fold, epochs=4) for norm in ("batch", "graph") for fold in range(3)]
SPLIT = Split(np.arange(4), np.arange(4, 6))


def filled(path: Path, name: str, trials: Sequence[Trial], done: Sequence[int], device: str) -> Path:
    with Store(path) as store:
        study = store.add_study(name, {"name": name}, trials, [range(len(trials))])
        chosen = [trials[k] for k in done]
        outcomes = [
            dataclasses.replace(outcome, device=device) for outcome in FakeTraining()(None, chosen, [SPLIT] * len(done))
        ]
        store.save(store.begin_session(study, "local"), outcomes)
    return path


def devices(path: Path, name: str) -> list[tuple[int, str]]:
    with Store(path, writable=False) as store:
        return [(record.place, record.device) for record in store.records(store.study(name))]


def test_two_machines(tmp_path: Path) -> None:
    here = filled(tmp_path / "here.db", "all", TRIALS, [0, 1], "cpu")
    other = [*TRIALS[1:5], Trial(dataset="B")]
    there = filled(tmp_path / "there.db", "some", other, [0, 2, 4], "H200")
    with Store(there) as store:
        store._connection.execute("UPDATE sessions SET code = 'as it was'")
        (before,) = [r for r in store.records(store.study("some"), curves=["valid"]) if r.place == 2]
    assert merge(here, [there]) == Merged(studies=1, outcomes=2, known=1)
    assert devices(here, "all") == [(0, "cpu"), (1, "cpu"), (3, "H200")]  # what was there stays
    assert devices(here, "some") == [(0, "cpu"), (2, "H200"), (4, "H200")]
    with Store(here, writable=False) as store:
        records = store.records(store.study("all"), curves=["valid"])
        assert records[2].code == "as it was"
        assert records[2].finished == before.finished
        np.testing.assert_array_equal(records[2].curves["valid"], before.curves["valid"])
        assert [trial.key for trial in store.trials(store.study("some"))] == [trial.key for trial in other]
        assert store._connection.execute("PRAGMA foreign_key_check").fetchall() == []
    assert merge(here, [there]) == Merged(studies=0, outcomes=0, known=3)


def test_into_a_new_store(tmp_path: Path) -> None:
    one = filled(tmp_path / "one.db", "all", TRIALS, [0, 1], "a")
    two = filled(tmp_path / "two.db", "all", TRIALS, [1, 2, 5], "b")
    assert merge(tmp_path / "new.db", [one, two]) == Merged(studies=1, outcomes=4, known=1)
    assert devices(tmp_path / "new.db", "all") == [(0, "a"), (1, "a"), (2, "b"), (5, "b")]
    assert devices(one, "all") == [(0, "a"), (1, "a")]


def test_what_failed_here_is_replaced_and_what_failed_there_is_not_taken(tmp_path: Path) -> None:
    here = filled(tmp_path / "here.db", "all", TRIALS, [0], "cpu")
    there = filled(tmp_path / "there.db", "all", TRIALS, [1], "H200")
    for path, place in ((here, 1), (there, 2)):
        with Store(path) as store:
            store.save_failed(store.begin_session(store.study("all"), "local"), [TRIALS[place]], "out of memory")
    assert merge(here, [there]) == Merged(studies=0, outcomes=1, known=0)
    assert devices(here, "all") == [(0, "cpu"), (1, "H200")]


@pytest.mark.parametrize("named", ["absent.db", "text.db", "here.db"])
def test_mistakes(tmp_path: Path, named: str) -> None:
    here = filled(tmp_path / "here.db", "all", TRIALS, [0], "cpu")
    (tmp_path / "text.db").write_text("no store " * 100)
    with pytest.raises(StoreError):
        merge(here, [tmp_path / named])
    assert devices(here, "all") == [(0, "cpu")]


def test_the_command(capsys: pytest.CaptureFixture[str], tmp_path: Path) -> None:
    filled(tmp_path / "there.db", "all", TRIALS, [0, 1], "H200")
    assert main(["runs", "merge", str(tmp_path / "there.db"), "--store", str(tmp_path / "here.db"), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["outcomes"] == 2
    assert len(devices(tmp_path / "here.db", "all")) == 2
