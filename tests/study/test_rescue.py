"""Rescue: whatever page is lost, nothing wrong comes through, and most of the rest does."""

from __future__ import annotations

import shutil
from pathlib import Path

import numpy as np
import pytest
from test_store import outcome

from graphnorm.errors import StoreError
from graphnorm.study.rescue import rescue
from graphnorm.study.store import Store
from graphnorm.training import Trial

TRIALS = [Trial(dataset="MUTAG", norm=norm, fold=fold, epochs=200) for norm in ("graph", "batch") for fold in range(60)]
PAGE = 4096


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "graphnorm.db"
    with Store(path) as store:
        study = store.add_study("first", {"dataset": "MUTAG"}, TRIALS, [range(len(TRIALS))])
        store.save(store.begin_session(study, "local"), [outcome(trial) for trial in TRIALS])
    assert path.stat().st_size > 40 * PAGE
    return path


def check(path: Path) -> int:
    """How many trials are there; every one of them is right."""
    with Store(path, writable=False) as store:
        assert store._connection.execute("PRAGMA integrity_check").fetchone() == ("ok",)
        assert store._connection.execute("PRAGMA foreign_key_check").fetchall() == []
        (number,) = store._connection.execute("SELECT count(*) FROM outcomes").fetchone()
        for study in store.studies():
            for record in store.records(study, curves=["valid", "train"]):
                true = outcome(record.trial).curves
                assert np.array_equal(record.curves["valid"], true["valid"])
                assert np.array_equal(record.curves["train"], true["train"])
    return int(number)


def test_a_whole_store_comes_through_wholly(whole: Path, tmp_path: Path) -> None:
    found = rescue(whole, tmp_path / "new.db")
    assert found == (1, len(TRIALS), 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.db"]
    assert check(tmp_path / "new.db") == len(TRIALS)


def test_any_lost_page(whole: Path, tmp_path: Path) -> None:
    pages = whole.stat().st_size // PAGE
    noise = np.random.default_rng(0).integers(0, 256, PAGE, dtype=np.uint8).tobytes()
    kept = []
    for page in range(0, pages, 3):
        damaged, target = tmp_path / f"{page}.db", tmp_path / f"{page}-new.db"
        content = whole.read_bytes()
        damaged.write_bytes(content[: page * PAGE] + noise + content[(page + 1) * PAGE :])
        before = damaged.read_bytes()
        rescue(damaged, target)
        assert damaged.read_bytes() == before
        kept.append(check(target))
    assert kept[0] == len(TRIALS)  # the first page is made anew
    assert np.median(kept) > 0.9 * len(TRIALS)


def test_a_cut_file(whole: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "cut.db"
    shutil.copyfile(whole, damaged)
    with damaged.open("r+b") as file:
        file.truncate(whole.stat().st_size // 2)
    found = rescue(damaged, tmp_path / "new.db")
    assert check(tmp_path / "new.db") == found.outcomes


def test_a_changed_bit_in_a_curve_is_found(whole: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "bit.db"
    shutil.copyfile(whole, damaged)
    with Store(damaged) as store:
        (data,) = store._connection.execute("SELECT data FROM curves WHERE trial = 7 AND name = 'valid'").fetchone()
        wrong = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        store._connection.execute("UPDATE curves SET data = ? WHERE trial = 7 AND name = 'valid'", (wrong,))
        with pytest.raises(StoreError, match="the store is damaged: a curve is damaged"):
            store.records(store.study("first"), curves=["valid"])
    assert rescue(damaged, tmp_path / "new.db") == (1, len(TRIALS) - 1, 1)
    assert check(tmp_path / "new.db") == len(TRIALS) - 1


def test_refusals(whole: Path, tmp_path: Path) -> None:
    with pytest.raises(StoreError, match="there already"):
        rescue(whole, whole)
    with pytest.raises(StoreError, match="no such file"):
        rescue(tmp_path / "absent.db", tmp_path / "new.db")
