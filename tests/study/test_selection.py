"""What the protocols choose: by hand-made curves, and from a store without reading every curve."""

from __future__ import annotations

from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from itertools import product
from pathlib import Path
from typing import Any, Literal

import numpy as np
import pytest

from graphnorm.study import Score, Store, find_protocol, read
from graphnorm.study import selection as selection_module
from graphnorm.study.plan import Plan
from graphnorm.study.selection import Choice, select
from graphnorm.training import Outcome, Trial, metric_of


def outcome(
    valid: list[float],
    test: list[float] | None = None,
    *,
    fold: int = 0,
    seed: int = 0,
    protocol: str = "paper",
    status: Literal["done", "diverged"] = "done",
    **changes: Any,
) -> Outcome:
    curves = {"loss": valid, "train": valid, "valid": valid} | ({} if test is None else {"test": test})
    return Outcome(
        Trial(dataset="d", protocol=protocol, fold=fold, seed=seed, epochs=len(valid), **changes),
        {name: np.array(values, dtype=np.float32) for name, values in curves.items()},
        status,
    )


def chosen_from(candidates: list[list[Outcome]]) -> Score:
    protocol = find_protocol(candidates[0][0].trial.protocol)
    metric = metric_of(candidates[0][0].trial)
    return Score("graph", protocol, metric, trials=0, finished=0, configurations=(), choices=select(candidates))


def test_paper_one_epoch_for_all_folds() -> None:
    chosen = chosen_from([[outcome([0.5, 0.9, 0.7]), outcome([0.6, 0.5, 0.8], fold=1)]])
    assert chosen.epoch == 3  # means 0.55, 0.7, 0.75
    assert chosen.mean == pytest.approx(75)
    assert chosen.std == pytest.approx(np.std([70, 80], ddof=1))
    assert list(chosen.scores.values()) == pytest.approx([70, 80])


def test_targets_are_reported_at_the_chosen_epoch_of_their_fold() -> None:
    """NaN marks a target that a part has no metric of; equal epochs are averaged under ``fair`` only."""

    def member(valid: list[float], targets: list[list[float]], **about: Any) -> Outcome:
        return replace(outcome(valid, valid, **about), targets=np.array(targets, np.float32))

    nan, first = float("nan"), [[0.1, 0.2], [0.5, 0.7], [0.3, 0.9]]
    folds = [member([0.5, 0.9, 0.7], first), member([0.6, 0.5, 0.8], [[0, 0], [0, 0], [0.5, nan]], fold=1)]
    one, two = chosen_from([folds]).targets
    assert (one.mean, one.std) == (pytest.approx(40), pytest.approx(np.std([30, 50], ddof=1)))
    assert two.mean == pytest.approx(90)
    assert np.isnan(two.std)
    tied = chosen_from([[member([0.9, 0.9, 0.7], first, protocol="fair")]])
    assert [spread.mean for spread in tied.targets] == pytest.approx([30, 45])
    diverged = member([nan, nan, nan], [[nan, nan]] * 3, fold=1, status="diverged")
    assert [spread.mean for spread in chosen_from([[folds[0], diverged]]).targets] == pytest.approx([50, 70])
    assert chosen_from([[folds[0], outcome([0.6, 0.5, 0.8], fold=1)]]).targets == ()  # stored without


def test_ties_go_to_the_earliest_epoch() -> None:
    """The second and third mean are equal but for the order of a sum."""
    values = np.random.default_rng(0).integers(0, 19, 10) / 19
    folds = [outcome([0.0, a, b], fold=f) for f, (a, b) in enumerate(zip(values, values[::-1], strict=True))]
    assert chosen_from([folds]).epoch == 2
    assert chosen_from([[outcome([0.5, 0.5], fold=0)]]).epoch == 1


@pytest.mark.parametrize("size", [7, 17, 111, 200, 411])
def test_folds_are_averaged_before_they_are_compared(size: int) -> None:
    """Epochs with equally many correct graphs tie, however they are divided among folds; one graph more is better."""
    random = np.random.default_rng(size)
    for _ in range(200):
        counts = random.integers(1, size, 10)
        other = random.permutation(counts)
        up, down = random.choice(10, 2, replace=False)
        other[[up, down]] += [1, -1]  # the same sum
        for more, epoch in ((0, 1), (1, 2)):
            pairs = enumerate(zip(counts, other + more * (np.arange(10) == 0), strict=True))
            assert chosen_from([[outcome([a / size, b / size], fold=f) for f, (a, b) in pairs]]).epoch == epoch


def test_paper_chooses_the_configuration_by_its_best_epoch() -> None:
    weak = [outcome([0.6, 0.7], fold=f, lr=0.1) for f in range(2)]
    strong = [outcome([0.8, 0.1], fold=f, lr=0.2) for f in range(2)]
    chosen = chosen_from([weak, strong])
    assert {choice.configuration for choice in chosen.choices} == {1}
    assert (chosen.epoch, chosen.mean) == (1, pytest.approx(80))
    assert {choice.configuration for choice in select([weak, weak])} == {0}


def test_fair_each_fold_chooses_for_itself() -> None:
    one = [
        outcome([0.5, 0.9], [0.1, 0.2], fold=0, protocol="fair"),
        outcome([0.6, 0.5], [0.3, 0.4], fold=1, protocol="fair"),
    ]
    two = [
        outcome([0.8, 0.1], [0.5, 0.6], fold=0, protocol="fair"),
        outcome([0.1, 0.7], [0.7, 0.8], fold=1, protocol="fair"),
    ]
    chosen = chosen_from([one, two])
    assert [(c.configuration, c.epoch) for c in chosen.choices] == [(0, 2), (1, 2)]
    assert list(chosen.scores.values()) == pytest.approx([20, 80])
    assert chosen_from([one]).epoch is None


def test_fair_averages_over_what_the_choosing_graphs_cannot_tell_apart() -> None:
    """One fold: of six pairs of configuration and epoch three have the best validation."""
    one = outcome([0.5, 0.9, 0.9], [0.1, 0.2, 0.3], protocol="fair", lr=0.1)
    two = outcome([0.9, 0.8, 0.1], [0.7, 0.6, 0.5], protocol="fair", lr=0.2)
    for candidates, first in (([[one], [two]], (0, 2)), ([[two], [one]], (0, 1))):
        (choice,) = select(candidates)
        assert (choice.configuration, choice.epoch, choice.ties) == (*first, 3)
        assert choice.score == pytest.approx((0.2 + 0.3 + 0.7) / 3)
    worse = outcome([0.8, 0.8, 0.8], [1.0, 1.0, 1.0], protocol="fair", lr=0.3)
    assert select([[worse], [one]])[0][2:] == (1, 2, pytest.approx(0.25), 2, ())


def test_a_seed_reports_one_checkpoint() -> None:
    tied = outcome([0.9, 0.9], [0.2, 0.3], protocol="given")
    assert select([[tied]])[0][3:] == (1, pytest.approx(0.2), 1, ())


def test_ogb_by_seed() -> None:
    members = [
        outcome([0.7, 0.8], [0.1, 0.2], seed=0, protocol="given"),
        outcome([0.9, 0.8], [0.3, 0.4], seed=1, protocol="given"),
    ]
    chosen = chosen_from([members])
    assert chosen.scores == pytest.approx({0: 20, 1: 30})
    assert [c.epoch for c in chosen.choices] == [2, 1]


def test_seeds_of_a_fold_count_once() -> None:
    values = {(0, 0): 0.8, (0, 1): 0.6, (1, 0): 0.5, (1, 1): 0.5}
    chosen = chosen_from([[outcome([v], fold=f, seed=s) for (f, s), v in values.items()]])
    assert chosen.scores == pytest.approx({0: 70, 1: 50})


def test_diverged_members_are_left_out() -> None:
    nan = float("nan")
    folds = [outcome([0.9, nan], fold=0, status="diverged"), outcome([0.5, 0.6], fold=1), outcome([0.6, 0.7], fold=2)]
    chosen = chosen_from([folds])
    assert (chosen.epoch, chosen.diverged) == (2, 1)
    assert chosen.mean == pytest.approx(65)
    assert np.isnan(chosen.scores[0])
    assert chosen.choices[0].epoch is None
    sound = [outcome([0.4, 0.3], fold=f, lr=0.2) for f in range(3)]
    assert select([folds, sound])[0].configuration == 1


# From a store

FOLDS, EPOCHS, RATES = 3, 12, tuple(1e-3 * k for k in range(1, 41))


def grid(protocol: str) -> Plan:
    folds, seeds = (1, FOLDS) if protocol == "given" else (FOLDS, 1)
    trials = [
        Trial(dataset="d", norm=norm, lr=lr, fold=fold, seed=seed, folds=folds, epochs=EPOCHS, protocol=protocol)
        for norm, lr, fold, seed in product(("graph", "batch"), RATES, range(folds), range(seeds))
    ]
    return Plan("study", {"protocol": protocol}, tuple(trials))


def drawn(trial: Trial, random: np.random.Generator) -> Outcome:
    """Few values and short curves make ties; some diverge, some lack a number."""
    names = ("loss", "train", "valid") if trial.protocol == "paper" else ("loss", "train", "valid", "test")
    curves = {name: (random.integers(10, 20, EPOCHS) / 19).astype(np.float32) for name in names}
    if random.random() < 0.1:
        curves["valid"][random.integers(EPOCHS)] = np.nan
    return Outcome(trial, curves, "diverged" if random.random() < 0.02 else "done", seconds=1.0, device="cpu")


@contextmanager
def stored(path: Path, plan: Plan, outcomes: Iterable[Outcome]) -> Iterator[Store]:
    with Store(path / f"{plan.name}.db") as store:
        study = store.add(plan, [range(len(plan.trials))])
        store.save(store.begin_session(study, "local"), list(outcomes))
        yield store


def from_every_curve(plan: Plan, outcomes: dict[Trial, Outcome], norm: str) -> list[Choice]:
    """The same choice by the plain function, over all that are finished."""
    rates = [[t for t in plan.trials if t.norm == norm and t.lr == lr] for lr in RATES]
    choices = []
    for fold in range(FOLDS) if plan.spec["protocol"] == "fair" else [None]:
        groups = [[t for t in group if fold is None or t.fold == fold] for group in rates]
        finished = {k: group for k, group in enumerate(groups) if all(t in outcomes for t in group)}
        chosen = select([[outcomes[t] for t in group] for group in finished.values()])
        choices += [choice._replace(configuration=list(finished)[choice.configuration]) for choice in chosen]
    return choices


@pytest.mark.parametrize("protocol", ["paper", "fair", "given"])
@pytest.mark.parametrize("seed", range(4))
@pytest.mark.parametrize("at_once", [1, 32])
def test_the_same_choice_as_from_every_curve(
    protocol: str, seed: int, at_once: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(selection_module, "AT_ONCE", at_once)
    random, plan = np.random.default_rng(seed), grid(protocol)
    outcomes = {trial: drawn(trial, random) for trial in plan.trials if random.random() < 0.97}
    with stored(tmp_path, plan, outcomes.values()) as store:
        found = read(store, plan).norms
    assert list(found) == ["graph", "batch"]
    assert sum(score.finished for score in found.values()) == len(outcomes) < len(plan.trials)
    for name, score in found.items():
        np.testing.assert_equal(list(score.choices), from_every_curve(plan, outcomes, name))  # NaN equals NaN here
        rates = [[t in outcomes for t in plan.trials if t.norm == name and t.lr == lr] for lr in RATES]
        assert score.took_part == tuple(k for k, finished in enumerate(rates) if all(finished))
        assert score.compared >= len(score.took_part)


@pytest.mark.parametrize("protocol", ["paper", "fair", "given"])
def test_a_choice_among_some_is_that_of_a_study_of_them(protocol: str, tmp_path: Path) -> None:
    def among(trial: Trial) -> bool:
        return trial.lr > RATES[20] and trial.norm == "batch"

    random, plan = np.random.default_rng(0), grid(protocol)
    outcomes = [drawn(trial, random) for trial in plan.trials]
    some = Plan("some", plan.spec, tuple(trial for trial in plan.trials if among(trial)))
    with stored(tmp_path, plan, outcomes) as store:
        found = [read(store, plan, among=among).norms, read(store, some).norms]
    assert list(found[0]) == ["batch"]  # what is left with none has no score
    np.testing.assert_equal(found[0]["batch"].to_dict(), found[1]["batch"].to_dict())


def test_partial_results_count_the_members_of_the_configuration_that_has_most(tmp_path: Path) -> None:
    plan = grid("paper")
    random = np.random.default_rng(0)
    there = [t for t in plan.trials if (t.lr == RATES[3] and t.fold < 2) or (t.lr == RATES[5] and t.fold == 1)]
    with stored(tmp_path, plan, [drawn(trial, random) for trial in there]) as store:
        assert read(store, plan).norms["graph"].choices == ()
        partial = read(store, plan, partial=True).norms["graph"]
    assert [(choice.fold, choice.configuration) for choice in partial.choices] == [(0, 3), (1, 3)]


def test_curves_that_cannot_win_are_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(selection_module, "AT_ONCE", 1)
    plan = Plan("flat", {}, tuple(trial for trial in grid("paper").trials if trial.norm == "graph"))
    curves = {trial: np.full(EPOCHS, trial.lr, np.float32) for trial in plan.trials}
    outcomes = [Outcome(t, {"loss": c, "train": c, "valid": c}, seconds=1.0) for t, c in curves.items()]
    touched: set[int] = set()
    records = Store.records

    def watched(self: Store, plan: Plan, *, curves: Any = (), places: Any = None) -> Any:
        if curves:
            touched.update(places)
        return records(self, plan, curves=curves, places=places)

    monkeypatch.setattr(Store, "records", watched)
    with stored(tmp_path, plan, outcomes) as store:
        score = read(store, plan).norms["graph"]
    assert score.chosen == {"lr": RATES[-1]}
    assert touched == {len(outcomes) - 3, len(outcomes) - 2, len(outcomes) - 1}


def test_a_configuration_that_lacks_a_fold_takes_no_part(tmp_path: Path) -> None:
    """As where a damaged disk lost a trial of the study."""
    trials = [trial for trial in grid("paper").trials if trial.norm == "graph"][: 3 * FOLDS]
    plan = Plan("lost", {}, (*trials[:-2], trials[-1]))
    curves = {trial: np.full(EPOCHS, trial.lr, np.float32) for trial in plan.trials}  # the last one is the best
    with stored(tmp_path, plan, [Outcome(t, {"train": c, "valid": c}) for t, c in curves.items()]) as store:
        score = read(store, plan).norms["graph"]
    assert (score.trials, score.finished) == (len(trials) - 1, len(trials) - 1)
    assert score.chosen == {"lr": RATES[1]}


def test_a_member_without_any_number_can_be_all_there_is(tmp_path: Path) -> None:
    plan = Plan("nothing", {}, (Trial(dataset="d", folds=1, epochs=EPOCHS),))
    nothing = {name: np.full(EPOCHS, np.nan, np.float32) for name in ("loss", "train", "valid")}
    with stored(tmp_path, plan, [Outcome(plan.trials[0], nothing)]) as store:
        score = read(store, plan).norms["graph"]
    assert score.choices
    assert np.isnan(score.mean)


@pytest.mark.parametrize("protocol", ["paper", "fair", "given"])
@pytest.mark.parametrize("seed", range(5))
def test_errors_are_selected_as_scores_turned_upside_down(protocol: str, seed: int, tmp_path: Path) -> None:
    """With errors e the choices are those for scores 2 - e, directly and from a store."""
    random = np.random.default_rng(seed)
    errors = random.integers(1, 60, (4, 3, 2, 6)) / 64  # configuration, fold, curve, epoch
    errors[1, 2, 0, 3:] = np.nan

    def made(turned: bool) -> list[list[Outcome]]:
        about = {"protocol": protocol, "task": "values"} | ({"metric": "r2"} if turned else {})
        return [
            [
                outcome(
                    *(np.where(turned, 2 - curve, curve).tolist() for curve in curves),
                    fold=fold if protocol != "given" else 0,
                    seed=fold if protocol == "given" else 0,
                    lr=0.1 / (1 + k),
                    **about,
                )
                for fold, curves in enumerate(configuration)
            ]
            for k, configuration in enumerate(errors)
        ]

    for turned in (False, True):
        candidates = made(turned)
        members = [one for candidate in candidates for one in candidate]
        plan = Plan("p", {}, tuple(one.trial for one in members))
        with Store(tmp_path / f"{turned}.db") as store:
            study = store.add(plan, [range(len(members))])
            store.save(store.begin_session(study, "local"), members)
            result = read(store, plan)
        from_store = list(result.norms["graph"].choices)
        direct = list(select(candidates))
        assert [(c.configuration, c.epoch, c.ties) for c in from_store] == [
            (c.configuration, c.epoch, c.ties) for c in direct
        ]
        scores = [2 - choice.score if turned else choice.score for choice in direct]
        if not turned:
            expected = direct, scores
        else:
            assert [(c.fold, c.configuration, c.epoch) for c in direct] == [
                (c.fold, c.configuration, c.epoch) for c in expected[0]
            ]
            assert scores == pytest.approx(expected[1], abs=1e-6)
