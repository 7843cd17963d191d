"""Trials: named by their content, for ever."""

from __future__ import annotations

import json
import sqlite3
from contextlib import closing
from dataclasses import dataclass, fields, replace
from pathlib import Path

import pytest

from graphnorm.settings import Hyperparameters, option, options_of
from graphnorm.training import Trial
from graphnorm.training import trial as trial_module

OURS = Path(__file__).parents[2] / "results" / "graphnorm.db"
OTHER = Trial(
    dataset="PROTEINS", fingerprint="ab", norm="batch", model="gcn", protocol="fair", folds=5, fold=3, seed=2,
    epochs=10, batch_size=64, lr=1e-3, weight_decay=5e-4, dropout=0.0, hidden=32, layers=3, readout="mean",
    self_loops=True,
)  # fmt: skip


def test_keys_of_the_first_version_stand():
    assert Trial(dataset="MUTAG").key == "de9ce0e457a0e447"
    assert OTHER.key == "93d721eaf7a217f7"


@pytest.mark.skipif(not OURS.exists(), reason="our own results are not here")
def test_keys_of_all_stored_trials_stand():
    with closing(sqlite3.connect(f"file:{OURS}?mode=ro&immutable=1", uri=True)) as connection:
        settings = {
            id_: json.loads(text) for id_, text in connection.execute("SELECT id, settings FROM configurations")
        }
        rows = connection.execute("SELECT key, configuration, fold, seed FROM trials").fetchall()
    assert len(rows) > 26_000
    wrong = [key for key, place, fold, seed in rows if Trial(**settings[place], fold=fold, seed=seed).key != key]
    assert not wrong


def test_equal_trials_have_equal_keys():
    whole = {
        name: int(value) for name, value in vars(OTHER).items() if isinstance(value, float) and value == int(value)
    }
    assert whole == {"dropout": 0}
    for change in (whole, {"epochs": 10.0, "fold": 3.0}, {"self_loops": 1}, {"dropout": -0.0}):
        assert replace(OTHER, **change) == OTHER
        assert replace(OTHER, **change).key == OTHER.key


def test_every_field_has_a_part_in_the_key():
    changes = {"dataset": "x", "fingerprint": "x", "norm": "x", "protocol": "x", "folds": 7, "fold": 7, "seed": 7}
    changes |= {"norm_digest": "x", "metric": "x", "task": "x"}
    changes |= {
        name: not getattr(OTHER, name) if about.kind is bool else "x" if about.kind is str else 7
        for name, about in options_of(Hyperparameters).items()
    }
    assert changes.keys() == {item.name for item in fields(Trial)}
    assert (
        len({OTHER.key, *(replace(OTHER, **{name: value}).key for name, value in changes.items())}) == len(changes) + 1
    )


def test_a_field_that_comes_later_changes_no_key_at_its_default(monkeypatch: pytest.MonkeyPatch):
    @dataclass(frozen=True, kw_only=True)
    class Wider(Trial):
        momentum: float = option(0.9, "of the optimizer", later=True)

    (field,) = [item for item in fields(Wider) if item.name == "momentum"]
    assert field.metadata["later"]
    wider = (*trial_module._IDENTITY, ("momentum", float, 0.9, True))
    monkeypatch.setattr(trial_module, "_IDENTITY", wider)
    assert Wider(dataset="MUTAG").key == "de9ce0e457a0e447"
    assert Wider(dataset="MUTAG", momentum=0.5).key not in ("de9ce0e457a0e447", Wider(dataset="MUTAG", momentum=0).key)


def test_what_members_of_a_fleet_and_folds_of_a_configuration_share():
    members = {"fold": 1, "seed": 9, "lr": 0.5, "weight_decay": 0.5, "dropout": 0.25}
    for name, value in members.items():
        assert replace(OTHER, **{name: value}).shape == OTHER.shape
        assert (replace(OTHER, **{name: value}).configuration == OTHER.configuration) == (name in ("fold", "seed"))
    for name, value in {"norm": "graph", "hidden": 9, "protocol": "paper"}.items():
        assert replace(OTHER, **{name: value}).shape != OTHER.shape
    assert Trial(**OTHER.to_dict()) == OTHER
