"""Results of a study: what it chooses without reading every curve is what it would choose by reading all of them."""

from __future__ import annotations

from itertools import product
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from graphnorm.study import results
from graphnorm.study.protocol import find_protocol
from graphnorm.study.results import study_results
from graphnorm.study.selection import Choice, best_of, evaluate, select
from graphnorm.study.standings import circumstances
from graphnorm.study.store import Store
from graphnorm.training import Outcome, Trial

FOLDS, EPOCHS, RATES = 3, 12, tuple(1e-3 * k for k in range(1, 41))


def trials_of(protocol: str, **more: Any) -> list[Trial]:
    folds, seeds = (1, FOLDS) if protocol == "ogb" else (FOLDS, 1)
    return [
        Trial(
            dataset="d", norm=norm, lr=lr, fold=fold, seed=seed, folds=folds, epochs=EPOCHS, protocol=protocol, **more
        )
        for norm, lr, fold, seed in product(("graph", "batch"), RATES, range(folds), range(seeds))
    ]


def outcome_of(trial: Trial, random: np.random.Generator) -> Outcome:
    """Few values and short curves make ties; some diverge, some lack a number."""
    names = ("loss", "train", "valid") if trial.protocol == "paper" else ("loss", "train", "valid", "test")
    curves = {name: (random.integers(10, 20, EPOCHS) / 19).astype(np.float32) for name in names}
    if random.random() < 0.1:
        curves["valid"][random.integers(EPOCHS)] = np.nan
    return Outcome(trial, curves, "diverged" if random.random() < 0.02 else "done", seconds=1.0, device="cpu")


def from_every_curve(trials: list[Trial], outcomes: dict[Trial, Outcome], norm: str, nested: bool) -> list[Choice]:
    """The same choice by the plain function, over all that are finished."""
    rates = [[t for t in trials if t.norm == norm and t.lr == lr] for lr in RATES]
    choices = []
    for fold in range(FOLDS) if nested else [None]:
        groups = [[t for t in group if fold is None or t.fold == fold] for group in rates]
        finished = {k: group for k, group in enumerate(groups) if all(t in outcomes for t in group)}
        chosen = select([[outcomes[t] for t in group] for group in finished.values()]).choices
        choices += [choice._replace(configuration=list(finished)[choice.configuration]) for choice in chosen]
    return choices


@pytest.mark.parametrize("protocol", ["paper", "fair", "ogb"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [1, 32])
def test_the_same_choice_as_from_every_curve(
    protocol: str, seed: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(results, "AT_ONCE", at_once)
    random = np.random.default_rng(seed)
    trials = trials_of(protocol)
    outcomes = {trial: outcome_of(trial, random) for trial in trials if random.random() < 0.97}
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", {}, trials, [range(len(trials))])
        store.save(store.begin_session(study, "local"), list(outcomes.values()))
        found = study_results(store, store.study("study"))
    assert [result.norm for result in found] == ["graph", "batch"]
    assert sum(result.finished for result in found) == len(outcomes) < sum(result.trials for result in found)
    for result in found:
        assert result.selection is not None
        expected = from_every_curve(trials, outcomes, result.norm, find_protocol(protocol).nested)
        np.testing.assert_equal(list(result.selection.choices), expected)  # NaN is the score of a diverged member
        rates = [[t in outcomes for t in trials if t.norm == result.norm and t.lr == lr] for lr in RATES]
        assert result.took_part == tuple(k for k, finished in enumerate(rates) if all(finished))
        assert result.compared >= len(result.took_part)


@pytest.mark.parametrize("protocol", ["paper", "fair", "ogb"])
def test_a_choice_among_some_is_that_of_a_study_of_them(protocol: str, tmp_path: Path) -> None:
    random = np.random.default_rng(0)
    trials = trials_of(protocol)
    outcomes = [outcome_of(trial, random) for trial in trials]
    some = [outcome for outcome in outcomes if outcome.trial.lr > RATES[20] and outcome.trial.norm == "batch"]
    found = []
    for name, given in (("all", outcomes), ("some", some)):
        with Store(tmp_path / f"{name}.db") as store:
            study = store.add_study(name, {}, [one.trial for one in given], [range(len(given))])
            store.save(store.begin_session(study, "local"), given)
            found.append(study_results(store, study, among=lambda t: t.lr > RATES[20] and t.norm == "batch"))
    assert found[0][0].selection is not None
    np.testing.assert_equal(found[0], found[1])
    assert len(found[0]) == 1  # what is left none has no result


def test_curves_that_cannot_win_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(results, "AT_ONCE", 1)
    trials = [trial for trial in trials_of("paper") if trial.norm == "graph"]
    read: list[int] = []
    curves = Store.curves
    monkeypatch.setattr(
        Store, "curves", lambda self, study, name, places=None: read.extend(places) or curves(self, study, name, places)
    )
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", {}, trials, [range(len(trials))])
        flat = [np.full(EPOCHS, trial.lr, np.float32) for trial in trials]
        outcomes = [
            Outcome(t, {"loss": c, "train": c, "valid": c}, seconds=1.0) for t, c in zip(trials, flat, strict=True)
        ]
        store.save(store.begin_session(study, "local"), outcomes)
        (result,) = study_results(store, study)
    assert result.chosen == {"lr": RATES[-1]}
    assert set(read) == {len(trials) - 3, len(trials) - 2, len(trials) - 1}


def test_a_member_without_any_number_can_be_all_there_is(tmp_path: Path) -> None:
    trial = Trial(dataset="d", folds=1, epochs=EPOCHS)
    nothing = {name: np.full(EPOCHS, np.nan, np.float32) for name in ("loss", "train", "valid")}
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", {}, [trial], [[0]])
        store.save(store.begin_session(study, "local"), [Outcome(trial, nothing)])
        (result,) = study_results(store, study)
    assert result.selection is not None
    assert np.isnan(result.selection.mean)


def test_no_average_is_above_the_average_of_the_best() -> None:
    random = np.random.default_rng(0)
    for _ in range(200):
        curves = random.random((random.integers(1, 20), 50)).astype(np.float32)
        bound = np.mean([best_of(curve) for curve in curves]) + results.SLACK
        assert evaluate(list(curves), find_protocol("paper")).validation <= bound


def test_circumstances_are_those_of_this_study(tmp_path: Path) -> None:
    trials, random = trials_of("paper")[:4], np.random.default_rng(0)
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", {}, trials, [range(4)])
        other = store.add_study("other", {}, trials[:1], [[0]])
        session = store.begin_session(study, "local")
        store.save(session, [outcome_of(trial, random) for trial in trials[:2]])
        store.save_failed(session, trials[2:], "out of memory\nat line 7")
        assert circumstances(store, study)[1:] == (["cpu"], ["out of memory"])
        found = circumstances(store, other)
    assert (found.devices, found.errors, len(found.codes)) == (["cpu"], [], 1)


def test_a_configuration_that_lost_a_trial_to_a_damaged_disk_takes_no_part(tmp_path: Path) -> None:
    trials = [trial for trial in trials_of("paper") if trial.norm == "graph"][: 3 * FOLDS]
    with Store(tmp_path / "graphnorm.db") as store:
        study = store.add_study("study", {}, trials, [range(len(trials))])
        curves = [np.full(EPOCHS, trial.lr, np.float32) for trial in trials]  # the last configuration is the best
        outcomes = [Outcome(t, {"loss": c, "train": c, "valid": c}) for t, c in zip(trials, curves, strict=True)]
        store.save(store.begin_session(study, "local"), outcomes)
        store._connection.execute("DELETE FROM members WHERE place = ?", (len(trials) - 2,))
        (result,) = study_results(store, study)
    assert (result.trials, result.finished) == (len(trials) - 1, len(trials) - 1)
    assert result.chosen == {"lr": RATES[1]}
