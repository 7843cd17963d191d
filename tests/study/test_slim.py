"""A store without the training curves that nothing draws."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path

import numpy as np
import pytest

from graphnorm.cli import main
from graphnorm.errors import StudyError
from graphnorm.study.results import study_results
from graphnorm.study.slim import Slimmed, slim
from graphnorm.study.store import Store
from graphnorm.training import Outcome, Trial

RATES = (0.001, 0.01, 0.1)
BEST = {"batch": 0.1, "graph": 0.01}
EPOCHS = 200


def trials(rates: Sequence[float] = RATES, **settings: str) -> list[Trial]:
    names = ("batch", "graph")
    return [
        Trial(dataset="A", norm=norm, lr=rate, fold=fold, folds=3, epochs=EPOCHS, **settings)  # type: ignore[arg-type]
        for norm in names
        for rate in rates
        for fold in range(3)
    ]


def outcome(trial: Trial) -> Outcome:
    random = np.random.default_rng([trial.fold, int(1e4 * trial.lr), len(trial.norm)])
    curves = {name: random.random(EPOCHS, dtype=np.float32) for name in ("loss", "train", "valid", "test")}
    if BEST[trial.norm] == trial.lr:
        curves["valid"] += 1
    return Outcome(trial, curves, "done", seconds=1.0, device="fake")


def fill(store: Store, name: str, planned: Sequence[Trial], *, missing: int = 0) -> None:
    study = store.add_study(name, {"name": name}, planned, [range(len(planned))])
    statuses = store.statuses(study)
    new = [trial for trial in planned[: len(planned) - missing] if trial.key not in statuses]
    store.save(store.begin_session(study, "local"), [outcome(trial) for trial in new])


def with_training_curves(store: Store, name: str) -> set[tuple[str, float]]:
    """(norm, rate) of the configurations that have them on every fold, if they have them on any."""
    records = store.records(store.study(name), curves=("loss", "train", "valid"))
    found: dict[tuple[str, float], list[bool]] = {}
    for record in records:
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
    fill(store, "grid", trials())
    before = study_results(store, store.study("grid"))
    store.rows("PRAGMA wal_checkpoint(TRUNCATE)")
    size = store.path.stat().st_size
    found = slim(store, [store.study("grid")])
    assert found == Slimmed(curves=2 * 12, bytes=size - store.path.stat().st_size)
    assert found.bytes > 0
    assert with_training_curves(store, "grid") == {("batch", 0.1), ("graph", 0.01)}
    assert study_results(store, store.study("grid")) == before
    assert slim(store, [store.study("grid")]).curves == 0
    assert store.rows("PRAGMA integrity_check") == [("ok",)]


def test_every_configuration_that_a_fold_chose(store: Store) -> None:
    planned = trials(protocol="fair")
    fill(store, "grid", planned)
    results = {result.norm: result for result in study_results(store, store.study("grid"))}
    slim(store, [store.study("grid")])
    expected = set()
    for name, result in results.items():
        assert result.selection is not None
        for choice in result.selection.choices:
            expected.add((name, result.configurations[choice.configuration]["lr"]))
    assert with_training_curves(store, "grid") == expected


def test_trials_of_other_studies_stay_as_they_are(store: Store) -> None:
    fill(store, "grid", trials())
    fill(store, "figure", trials([0.001]))
    slim(store, [store.study("grid")])
    assert with_training_curves(store, "figure") == {("batch", 0.001), ("graph", 0.001)}
    assert slim(store, [store.study("grid"), store.study("figure")]).curves == 0  # chosen in the second


def test_an_unfinished_study_is_refused(store: Store) -> None:
    fill(store, "grid", trials(), missing=1)
    with pytest.raises(StudyError, match="grid has 1 trials to train"):
        slim(store, [store.study("grid")])
    assert len(with_training_curves(store, "grid")) == 6


def test_the_command(store: Store, capsys: pytest.CaptureFixture[str]) -> None:
    fill(store, "grid", trials())
    store.close()
    main(["runs", "slim", "gri", "--store", str(store.path), "--json"])
    found = json.loads(capsys.readouterr().out)
    assert found["curves"] == 24
    missing = store.path.with_name("other.db")
    assert main(["runs", "slim", "grid", "--store", str(missing)]) == 2
    assert not missing.exists()
