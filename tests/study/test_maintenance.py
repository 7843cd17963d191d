"""Looking after stores: merged from several machines, pruned, and recovered whatever page is lost."""

from __future__ import annotations

import json
import resource
import shutil
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fakes import fill, outcome, scattered
from graphnorm.errors import StoreError
from graphnorm.study import Store, read
from graphnorm.study.maintenance import Merged, Pruned, Recovered, merge, prune, recover
from graphnorm.study.plan import Plan
from graphnorm.study.schema import PAGE
from graphnorm.training import Outcome, Trial

Run = Callable[..., tuple[int, str, str]]


# Merging

TRIALS = tuple(Trial(dataset="A", norm=norm, fold=fold, epochs=4) for norm in ("batch", "graph") for fold in range(3))
ALL = Plan("all", {"name": "all"}, TRIALS)


def filled(path: Path, plan: Plan, done: Iterable[int], device: str) -> Path:
    with Store(path) as store:
        study = store.add(plan, [range(len(plan.trials))])
        seen = {"epochs": np.arange(2)}
        outcomes = [outcome(plan.trials[place], device=device, seen=dict(seen)) for place in done]
        store.save(store.begin_session(study, "local"), outcomes)
    return path


def devices(path: Path, name: str) -> list[tuple[int, str]]:
    with Store(path, writable=False) as store:
        return [(record.place, record.device) for record in store.records(store.plan(store.study(name)))]


def test_two_machines(tmp_path: Path) -> None:
    here = filled(tmp_path / "here.db", ALL, [0, 1], "cpu")
    some = Plan("some", {}, (*TRIALS[1:5], Trial(dataset="B")))
    there = filled(tmp_path / "there.db", some, [0, 2, 4], "H200")
    with Store(there) as store:
        store.rows("UPDATE sessions SET code = 'as it was'")
        (before,) = store.records(some, curves=["valid"], places=[2])
    assert merge(here, [there]) == Merged(studies=1, outcomes=2, known=1)
    assert devices(here, "all") == [(0, "cpu"), (1, "cpu"), (3, "H200")]  # what was there stays
    assert devices(here, "some") == [(0, "cpu"), (2, "H200"), (4, "H200")]
    with Store(here, writable=False) as store:
        (record,) = store.records(ALL, curves=["valid"], places=[3])
        assert (record.code, record.finished) == ("as it was", before.finished)
        np.testing.assert_array_equal(record.curves["valid"], before.curves["valid"])
        assert store.seen(TRIALS[3])["epochs"].tolist() == [0, 1]
        assert store.plan(store.study("some")) == some
        assert store.rows("PRAGMA foreign_key_check") == []
    assert merge(here, [there]) == Merged(studies=0, outcomes=0, known=3)


def test_into_a_new_store(tmp_path: Path) -> None:
    one = filled(tmp_path / "one.db", ALL, [0, 1], "a")
    two = filled(tmp_path / "two.db", ALL, [1, 2, 5], "b")
    assert merge(tmp_path / "new.db", [one, two]) == Merged(studies=1, outcomes=4, known=1)
    assert devices(tmp_path / "new.db", "all") == [(0, "a"), (1, "a"), (2, "b"), (5, "b")]
    assert devices(one, "all") == [(0, "a"), (1, "a")]


def test_what_failed_here_is_replaced_and_what_failed_there_is_not_taken(tmp_path: Path) -> None:
    here = filled(tmp_path / "here.db", ALL, [0], "cpu")
    there = filled(tmp_path / "there.db", ALL, [1], "H200")
    for path, place in ((here, 1), (there, 2)):
        with Store(path) as store:
            store.save_failed(store.begin_session(store.study("all"), "local"), [TRIALS[place]], "out of memory")
    assert merge(here, [there]) == Merged(studies=0, outcomes=1, known=0)
    assert devices(here, "all") == [(0, "cpu"), (1, "H200")]


@pytest.mark.parametrize("named", ["absent.db", "text.db", "here.db"])
def test_what_cannot_be_merged(tmp_path: Path, named: str) -> None:
    here = filled(tmp_path / "here.db", ALL, [0], "cpu")
    (tmp_path / "text.db").write_text("no store " * 100)
    with pytest.raises(StoreError):
        merge(here, [tmp_path / named])
    assert devices(here, "all") == [(0, "cpu")]


# Pruning

BEST = {"batch": 0.1, "graph": 0.01}


def grid(rates: Sequence[float] = (0.001, 0.01, 0.1), protocol: str = "paper", name: str = "grid") -> Plan:
    spec = {"dataset": "A", "fingerprint": "", "model": "gin", "protocol": protocol, "folds": 3, "seeds": 1}
    trials = [
        Trial(dataset="A", norm=norm, lr=rate, fold=fold, folds=3, epochs=200, protocol=protocol)
        for norm in BEST
        for rate in rates
        for fold in range(3)
    ]
    return Plan(name, spec, tuple(trials))


def one_is_best(trial: Trial, epoch: int) -> dict[str, float]:
    values = scattered(trial, epoch)
    if trial.protocol == "fair":  # another one in each fold
        return values | {"valid": int(trial.key, 16) / 2**64}
    return values | {"valid": values["valid"] + (BEST[trial.norm] == trial.lr)}


def with_training_curves(store: Store, plan: Plan) -> set[tuple[str, float]]:
    """(norm, rate) of the configurations that have them on every fold, if they have them on any."""
    found: dict[tuple[str, float], list[bool]] = {}
    for record in store.records(plan, curves=("loss", "train", "valid")):
        assert "valid" in record.curves
        assert ("loss" in record.curves) == ("train" in record.curves)
        found.setdefault((record.trial.norm, record.trial.lr), []).append("train" in record.curves)
    assert all(len(set(folds)) == 1 for folds in found.values())
    return {configuration for configuration, folds in found.items() if folds[0]}


@pytest.fixture
def store(tmp_path: Path):
    with Store(tmp_path / "graphnorm.db") as store:
        yield store


def test_the_chosen_keep_theirs_and_nothing_else_changes(store: Store) -> None:
    study = fill(store, grid(), values=one_is_best)
    before = read(store, grid()).to_dict()
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    size = store.path.stat().st_size
    assert prune(store, [study]) == Pruned(curves=2 * 12, bytes=size - store.path.stat().st_size)
    assert store.path.stat().st_size < size
    assert with_training_curves(store, grid()) == {("batch", 0.1), ("graph", 0.01)}
    assert read(store, grid()).to_dict() == before
    assert prune(store, [study]).curves == 0
    assert store.rows("PRAGMA integrity_check") == [("ok",)]


def test_every_configuration_that_a_fold_chose_keeps_them(store: Store) -> None:
    plan = grid(protocol="fair")
    study = fill(store, plan, values=one_is_best)
    result = read(store, plan)
    prune(store, [study])
    chosen = {
        (name, score.configurations[choice.configuration]["lr"])
        for name, score in result.norms.items()
        for choice in score.choices
    }
    assert len(chosen) > 2
    assert with_training_curves(store, plan) == chosen


def test_trials_of_other_studies_stay_as_they_are(store: Store) -> None:
    one, other = fill(store, grid(), values=one_is_best), fill(store, grid([0.001], name="figure"))
    prune(store, [one])
    assert with_training_curves(store, grid([0.001])) == {("batch", 0.001), ("graph", 0.001)}
    assert prune(store, [one, other]).curves == 0  # chosen in the second


# Recovering

MANY = Plan(
    "many",
    {"dataset": "MUTAG"},
    tuple(Trial(dataset="MUTAG", norm=norm, fold=f, epochs=200) for norm in ("graph", "batch") for f in range(60)),
)


def noisy(trial: Trial) -> Outcome:
    random = np.random.default_rng(int(trial.key, 16))
    curves = {name: random.random(trial.epochs, np.float32) for name in ("loss", "train", "valid")}
    seen = {"norms": random.random((2, 5))} if trial.fold < 5 else {}
    return Outcome(trial, curves, seconds=1.5, device="cpu", seen=seen)


@pytest.fixture(scope="module")
def whole(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("store") / "graphnorm.db"
    with Store(path) as store:
        study = store.add(MANY, [range(len(MANY.trials))])
        store.save(store.begin_session(study, "local"), [noisy(trial) for trial in MANY.trials])
    assert path.stat().st_size > 40 * PAGE
    return path


def check(path: Path) -> int:
    """How many trials are there; every one of them is right."""
    with Store(path, writable=False) as store:
        assert store.rows("PRAGMA integrity_check") == [("ok",)]
        assert store.rows("PRAGMA foreign_key_check") == []
        ((number,),) = store.rows("SELECT count(*) FROM outcomes")
        records = store.records(MANY, curves=["valid", "train"])
        assert len(records) == number
        for record in records:
            true = noisy(record.trial)
            for name, curve in record.curves.items():
                assert np.array_equal(curve, true.curves[name])
            for name, values in store.seen(record.trial).items():
                assert np.array_equal(values, true.seen[name])
        for study in store.studies():
            assert set(store.trials(study)) <= set(MANY.trials)
    return int(number)


def test_a_whole_store_comes_through_wholly(whole: Path, tmp_path: Path) -> None:
    assert recover(whole, tmp_path / "new.db") == Recovered(1, len(MANY.trials), 0)
    assert sorted(p.name for p in tmp_path.iterdir()) == ["new.db"]
    assert check(tmp_path / "new.db") == len(MANY.trials)
    with Store(tmp_path / "new.db", writable=False) as store:
        assert store.plan(store.study("many")) == MANY
        assert store.seen(MANY.trials[0])


@pytest.mark.parametrize("share", [0.1, 0.5, 0.9, 0.99])
@pytest.mark.parametrize("action", [recover, lambda source, target: merge(target, [source])], ids=["recover", "merge"])
def test_no_room_for_the_new_store(whole: Path, tmp_path: Path, action: Callable[..., object], share: float) -> None:
    """Not the store that is read, but the one that cannot be written, is named."""
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (int(share * whole.stat().st_size), hard))
    try:
        with pytest.raises((StoreError, OSError)) as caught:
            action(whole, tmp_path / "new.db")
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    error: Any = caught.value
    assert str(tmp_path / "new.db") == str(error.where if isinstance(error, StoreError) else error.filename)
    action(whole, tmp_path / "new.db")
    with Store(tmp_path / "new.db", writable=False) as store:
        assert store.studies()


def test_any_lost_page(whole: Path, tmp_path: Path) -> None:
    content = whole.read_bytes()
    noise = np.random.default_rng(0).integers(0, 256, PAGE, dtype=np.uint8).tobytes()
    kept = []
    for page in range(0, len(content) // PAGE, 5):
        damaged, target = tmp_path / f"{page}.db", tmp_path / f"{page}-new.db"
        damaged.write_bytes(content[: page * PAGE] + noise + content[(page + 1) * PAGE :])
        before = damaged.read_bytes()
        recover(damaged, target)
        assert damaged.read_bytes() == before
        kept.append(check(target))
    assert kept[0] == len(MANY.trials)  # the first page is made again
    assert kept.count(0) <= 2  # the pages where a table begins
    assert np.median(kept) > 0.9 * len(MANY.trials)


def test_a_cut_file(whole: Path, tmp_path: Path) -> None:
    damaged = tmp_path / "cut.db"
    shutil.copyfile(whole, damaged)
    with damaged.open("r+b") as file:
        file.truncate(whole.stat().st_size // 2)
    found = recover(damaged, tmp_path / "new.db")
    assert check(tmp_path / "new.db") == found.outcomes


@pytest.mark.parametrize("table", ["curves", "seen"])
def test_a_changed_bit_is_found(whole: Path, tmp_path: Path, table: str) -> None:
    damaged = tmp_path / "bit.db"
    shutil.copyfile(whole, damaged)
    with Store(damaged) as store:
        ((data,),) = store.rows(f"SELECT data FROM {table} WHERE trial = 3 LIMIT 1")
        wrong = data[:40] + bytes([data[40] ^ 1]) + data[41:]
        store.rows(f"UPDATE {table} SET data = ? WHERE trial = 3", wrong)
    assert recover(damaged, tmp_path / "new.db") == (1, len(MANY.trials) - 1, 1)
    assert check(tmp_path / "new.db") == len(MANY.trials) - 1


def test_a_changed_setting_is_found(whole: Path, tmp_path: Path) -> None:
    """A trial's key is that of its content, so one whose content was changed by the damage is left out."""
    damaged = tmp_path / "setting.db"
    shutil.copyfile(whole, damaged)
    with Store(damaged) as store:
        store.rows(
            "UPDATE configurations SET settings = replace(settings, '\"lr\": 0.01', '\"lr\": 0.02') WHERE id = 1"
        )
    assert recover(damaged, tmp_path / "new.db") == (1, len(MANY.trials) - 60, 60)


# The commands


def test_commands(run: Run, store: Store, tmp_path: Path, whole: Path) -> None:
    fill(store, grid(), values=one_is_best)
    store.close()
    code, out, _ = run("runs", "prune", "gri", "--store", store.path, "--json")
    assert (code, json.loads(out)["curves"]) == (0, 24)
    code, _, _ = run("runs", "prune", "grid", "--store", tmp_path / "other.db")
    assert code == 2
    assert not (tmp_path / "other.db").exists()
    code, out, _ = run("runs", "merge", store.path, "--store", tmp_path / "new.db", "--json")
    assert (code, json.loads(out)["outcomes"]) == (0, 18)
    code, out, _ = run("runs", "recover", whole, tmp_path / "recovered.db", "--json")
    assert (code, json.loads(out)["outcomes"]) == (0, len(MANY.trials))
