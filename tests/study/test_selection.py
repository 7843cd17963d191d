"""What the protocols choose: by hand-made curves, and that no reported graph has a part in it."""

from __future__ import annotations

from typing import Any, Literal

import numpy as np
import pytest

from graphnorm.study.selection import select
from graphnorm.training.trial import Outcome, Trial


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


def test_paper_one_epoch_for_all_folds() -> None:
    chosen = select([[outcome([0.5, 0.9, 0.7]), outcome([0.6, 0.5, 0.8], fold=1)]])
    assert chosen.epoch == 3  # means 0.55, 0.7, 0.75
    assert chosen.mean == pytest.approx(0.75)
    assert chosen.std == pytest.approx(np.std([0.7, 0.8], ddof=1))
    assert list(chosen.scores.values()) == pytest.approx([0.7, 0.8])


def test_ties_go_to_the_earliest_epoch() -> None:
    """The second and third mean are equal but for the order of a float32 sum."""
    values = np.random.default_rng(0).integers(0, 19, 10) / 19
    folds = [outcome([0.0, a, b], fold=f) for f, (a, b) in enumerate(zip(values, values[::-1], strict=True))]
    assert select([folds]).epoch == 2
    assert select([[outcome([0.5, 0.5], fold=0)]]).epoch == 1


def test_paper_chooses_the_configuration_by_its_best_epoch() -> None:
    weak = [outcome([0.6, 0.7], fold=f, lr=0.1) for f in range(2)]
    strong = [outcome([0.8, 0.1], fold=f, lr=0.2) for f in range(2)]
    chosen = select([weak, strong])
    assert {choice.configuration for choice in chosen.choices} == {1}
    assert (chosen.epoch, chosen.mean) == (1, pytest.approx(0.8))
    assert {choice.configuration for choice in select([weak, weak]).choices} == {0}


def test_fair_each_fold_chooses_for_itself() -> None:
    one = [
        outcome([0.5, 0.9], [0.1, 0.2], fold=0, protocol="fair"),
        outcome([0.6, 0.5], [0.3, 0.4], fold=1, protocol="fair"),
    ]
    two = [
        outcome([0.8, 0.1], [0.5, 0.6], fold=0, protocol="fair"),
        outcome([0.1, 0.7], [0.7, 0.8], fold=1, protocol="fair"),
    ]
    chosen = select([one, two])
    assert [(c.configuration, c.epoch) for c in chosen.choices] == [(0, 2), (1, 2)]
    assert list(chosen.scores.values()) == pytest.approx([0.2, 0.8])
    assert select([one]).epoch is None


def test_fair_averages_over_what_the_choosing_graphs_cannot_tell_apart() -> None:
    """One fold: of six pairs of configuration and epoch three have the best validation."""
    one = outcome([0.5, 0.9, 0.9], [0.1, 0.2, 0.3], protocol="fair", lr=0.1)
    two = outcome([0.9, 0.8, 0.1], [0.7, 0.6, 0.5], protocol="fair", lr=0.2)
    for candidates, first in (([[one], [two]], (0, 2)), ([[two], [one]], (0, 1))):
        (choice,) = select(candidates).choices
        assert (choice.configuration, choice.epoch, choice.ties) == (*first, 3)
        assert choice.score == pytest.approx((0.2 + 0.3 + 0.7) / 3)
    worse = outcome([0.8, 0.8, 0.8], [1.0, 1.0, 1.0], protocol="fair", lr=0.3)
    assert select([[worse], [one]]).choices[0][2:] == (1, 2, pytest.approx(0.25), 2)


def test_a_seed_reports_one_checkpoint() -> None:
    tied = outcome([0.9, 0.9], [0.2, 0.3], protocol="ogb")
    assert select([[tied]]).choices[0][3:] == (1, pytest.approx(0.2), 1)


def test_ogb_by_seed() -> None:
    members = [
        outcome([0.7, 0.8], [0.1, 0.2], seed=0, protocol="ogb"),
        outcome([0.9, 0.8], [0.3, 0.4], seed=1, protocol="ogb"),
    ]
    chosen = select([members])
    assert chosen.scores == pytest.approx({0: 0.2, 1: 0.3})
    assert [c.epoch for c in chosen.choices] == [2, 1]


def test_seeds_of_a_fold_count_once() -> None:
    values = {(0, 0): 0.8, (0, 1): 0.6, (1, 0): 0.5, (1, 1): 0.5}
    chosen = select([[outcome([v], fold=f, seed=s) for (f, s), v in values.items()]])
    assert chosen.scores == pytest.approx({0: 0.7, 1: 0.5})


@pytest.mark.parametrize("protocol", ["paper", "fair"])
def test_scrambled_reported_folds_change_no_choice_where_it_is_fair(protocol: str) -> None:
    rng = np.random.default_rng(0)

    def candidates(reported: np.random.Generator) -> list[list[Outcome]]:
        fixed = np.random.default_rng(1)
        return [
            [outcome(fixed.random(20).tolist(), reported.random(20).tolist(), fold=f, seed=s, protocol=protocol)
             for f in range(5) for s in range(2)]
            for _ in range(3)
        ]  # fmt: skip

    runs = [select(candidates(rng)) for _ in range(5)]
    assert len({tuple((c.configuration, c.epoch) for c in run.choices) for run in runs}) == 1
    scores = {tuple(run.scores.values()) for run in runs}
    assert len(scores) == (5 if protocol == "fair" else 1)  # what is reported did change under fair


def test_diverged_members_are_left_out() -> None:
    nan = float("nan")
    folds = [outcome([0.9, nan], fold=0, status="diverged"), outcome([0.5, 0.6], fold=1), outcome([0.6, 0.7], fold=2)]
    chosen = select([folds])
    assert (chosen.epoch, chosen.diverged) == (2, 1)
    assert chosen.mean == pytest.approx(0.65)
    assert np.isnan(chosen.scores[0])
    assert chosen.choices[0].epoch is None
    sound = [outcome([0.4, 0.3], fold=f, lr=0.2) for f in range(3)]
    assert select([folds, sound]).choices[0].configuration == 1


def test_all_diverged() -> None:
    chosen = select([[outcome([float("nan")], fold=f, status="diverged") for f in range(3)]])
    assert np.isnan(chosen.mean)
    assert np.isnan(chosen.std)
    assert chosen.epoch is None
    assert chosen.diverged == 3


def test_one_fold_has_no_deviation() -> None:
    chosen = select([[outcome([0.4, 0.5])]])
    assert chosen.mean == pytest.approx(0.5)
    assert np.isnan(chosen.std)


@pytest.mark.parametrize(
    ("candidates", "message"),
    [
        ([], "no outcome"),
        ([[]], "no outcome"),
        ([[outcome([0.5])], [outcome([0.5], fold=1)]], "same folds and seeds"),
        ([[outcome([0.5])], [outcome([0.5], protocol="fair")]], "several protocols"),
    ],
)
def test_what_cannot_be_compared(candidates: list[list[Outcome]], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        select(candidates)
