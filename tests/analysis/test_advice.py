"""Advice: what is said from predictions alone, from measurements, and where both meet."""

from __future__ import annotations

import math
from functools import cache
from typing import Any

import numpy as np
import pytest

from graphnorm.analysis import Facts, Statement, advise, classify_from_mean, conditions, regularity, spectra
from graphnorm.data import synthetic
from graphnorm.study import Result, Score, find_protocol
from graphnorm.study.selection import Choice
from graphnorm.training import find_metric

GOOD = [80.0, 81.0, 79.5, 80.5, 80.2, 79.8, 80.9, 80.1, 79.9, 80.4]
WORSE = [value - 9 - 0.3 * (place % 3) for place, value in enumerate(GOOD)]
ALIKE = [value + (0.5 if place % 2 else -0.6) for place, value in enumerate(GOOD)]


@cache
def facts(kind: str) -> Facts:
    graphs = {"regular": synthetic.regular, "trees": synthetic.trees}[kind](60)
    accuracy = classify_from_mean(graphs)
    assert accuracy is not None
    return Facts(regularity(graphs).summary(), conditions(spectra(graphs)).summary(), accuracy.summary())


def measured(speed: dict[str, float] | None = None, chance: float | None = None, **scores: list[float]) -> Result:
    """Scores by fold; speed: the average of each normalization's training curve."""
    protocol = find_protocol("paper")
    norms = {
        name: Score(
            name,
            protocol,
            find_metric("paper"),
            trials=len(values),
            finished=len(values),
            configurations=({},),
            choices=tuple(Choice(fold, 0, 0, 30, value / 100) for fold, value in enumerate(values)),
            compared=1,
            curves={"train": (np.full(30, speed[name]), np.zeros(30))} if speed and name in speed else {},
        )
        for name, values in scores.items()
    }
    spec: dict[str, Any] = {"dataset": "trees", "model": "gin", "protocol": "paper", "folds": 10, "seeds": 1}
    return Result("a-study", spec | {"epochs": 30, "chance": chance}, norms)


# Predictions


def test_regular_graphs() -> None:
    advice = advise(facts("regular"))
    assert (advice.first, advice.basis, advice.clear) == ("graph", "prediction", False)
    assert advice.contenders == ("graph", "batch", "layer", "none")
    signal, mean, condition = advice.statements
    assert (signal.certainty, signal.favours, signal.against) == ("certain", ("graph",), ("instance",))
    assert (mean.certainty, mean.favours, mean.against) == ("likely", ("graph",), ("instance",))
    assert (condition.certainty, condition.favours, condition.against) == ("weak", (), ())  # no signal to speed up
    assert "not instance" in advice.verdict
    for statement in advice.statements:
        assert f"[{statement.certainty}: {statement.evidence}]" in str(advice)


def test_irregular_graphs() -> None:
    advice = advise(facts("trees"))
    assert advice.contenders == ("graph", "instance", "batch", "layer", "none")
    assert {statement.certainty for statement in advice.statements} == {"weak"}
    _, mean, condition = advice.statements
    assert mean.favours == ("instance", "graph")  # the spread predicts the class better
    assert (condition.about, condition.against) == ("speed", ("none", "layer"))


@pytest.mark.parametrize(
    ("kept", "lost", "certainty", "against"),
    [(0.9, 0.0, "weak", ()), (0.0, 0.6, "certain", ("instance",)), (0.3, 0.1, "weak", ("instance",))],
)
def test_signal(kept: float, lost: float, certainty: str, against: tuple[str, ...]) -> None:
    known = {"graphs": 100, "share_without_signal": lost, "signal_kept_quantiles": {"0.5": kept}}
    (statement,) = advise(Facts(regularity=known)).statements
    assert (statement.certainty, statement.against) == (certainty, against)


@pytest.mark.parametrize(
    ("mean", "rest", "certainty", "favours"),
    [
        (0.80, 0.79, "weak", ()),  # within two standard errors
        (0.70, 0.80, "weak", ("instance", "graph")),
        (0.80, 0.70, "likely", ("graph",)),
    ],
)
def test_mean_against_spread(mean: float, rest: float, certainty: str, favours: tuple[str, ...]) -> None:
    known = {"accuracy_from_the_mean": mean, "accuracy_from_the_rest": rest, "standard_error": 0.01, "majority": 0.5}
    (statement,) = advise(Facts(mean_versus_spread=known)).statements
    assert (statement.certainty, statement.favours) == (certainty, favours)


def test_a_shift_that_hardly_helps() -> None:
    known = {"better": 3, "equal": 0, "worse": 2, "median_improvement": 1.05}
    (statement,) = advise(Facts(condition=known)).statements
    assert (statement.favours, statement.against) == ((), ())
    assert advise(Facts(condition=known | dict.fromkeys(("better", "worse"), 0))).statements == ()


@pytest.mark.parametrize(("deviation", "against"), [(0.4, ("batch",)), (0.02, ())])
def test_noise(deviation: float, against: tuple[str, ...]) -> None:
    noise = {"relative_deviation": [0.1, deviation], "batch_size": 64, "layer": "last", "epochs": [0, 7]}
    (statement,) = advise(Facts(noise=noise)).statements
    assert statement.against == against
    assert "batches of 64" in statement.evidence
    assert "after 7 epochs" in statement.evidence


def test_nothing_known() -> None:
    advice = advise(Facts(noise={"relative_deviation": [None], "batch_size": 1, "layer": "", "epochs": [0]}))
    assert (advice.statements, advice.agreement) == ((), "")
    assert "No clear winner" in advice.verdict


# Measurement


def about(advice_statements: tuple[Statement, ...], norm: str) -> Statement:
    return next(statement for statement in advice_statements if statement.text.startswith(f"{norm} "))


def test_a_clear_winner_outranks_predictions() -> None:
    advice = advise(facts("trees"), measured(batch=GOOD, graph=WORSE, instance=WORSE))
    assert (advice.first, advice.clear, advice.contenders) == ("batch", True, ("batch",))
    assert advice.basis == "measurement"
    assert advice.verdict.startswith("Use batch")
    beaten = about(advice.statements, "graph")
    assert (beaten.favours, beaten.against, beaten.certainty) == (("batch",), ("graph",), "likely")


def test_no_clear_winner() -> None:
    advice = advise(Facts(), measured(batch=GOOD, graph=ALIKE, none=WORSE))
    assert (advice.first, advice.clear, advice.contenders) == ("batch", False, ("batch", "graph"))
    assert advice.verdict.startswith("No clear winner. Try batch first")
    assert advice.verdict.endswith("Not none.")
    assert about(advice.statements, "graph").text.endswith("may be chance.")
    best = about(advice.statements, "batch")
    assert (best.favours, best.certainty) == (("batch",), "likely")
    assert "a-study: gin, 30 epochs, protocol paper, 10 folds" in best.evidence
    assert "optimistic" in best.evidence


def test_ties_go_to_the_fastest() -> None:
    advice = advise(Facts(), measured({"batch": 70.0, "graph": 90.0}, batch=GOOD, graph=GOOD))
    assert (advice.first, set(advice.contenders)) == ("graph", {"graph", "batch"})
    assert "fastest training" in advice.verdict
    assert about(advice.statements, "batch").text.endswith("scored the same as graph.")


def test_what_is_impossible_is_no_contender() -> None:
    advice = advise(facts("regular"), measured(none=[100.0] * 3, graph=[100.0] * 3, instance=[50.0] * 3))
    assert "instance" not in advice.contenders
    assert advice.verdict.endswith("Not instance.")
    assert "(certain), and scored 50.0 points less" in advice.agreement
    alone = advise(facts("regular"), measured(graph=[100.0] * 3, instance=[50.0] * 3))
    assert (alone.first, alone.clear) == ("graph", True)
    assert "instance cannot learn" in alone.verdict


def test_a_prediction_that_fails_is_reported() -> None:
    speed = {"graph": 60.0, "none": 80.0, "instance": 55.0}
    advice = advise(facts("regular"), measured(speed, instance=GOOD, graph=WORSE, none=WORSE))
    assert advice.first == "instance"  # measured, whatever was predicted
    assert "(certain), but scored 9.3 points more" in advice.agreement
    slow = advise(facts("trees"), measured(speed, instance=GOOD, graph=GOOD, none=GOOD))
    assert "but its average training score" in slow.agreement
    assert "80.0 % against 60.0 %" in slow.agreement


def test_few_folds_that_agree_are_a_hint() -> None:
    advice = advise(Facts(), measured(graph=[90.0, 91.0], none=[70.0, 72.0]))
    behind = about(advice.statements, "none")
    assert (behind.certainty, behind.against) == ("likely", ("none",))
    assert about(advice.statements, "graph").certainty == "weak"


@pytest.mark.parametrize(("chance", "basis"), [(79.5, "prediction"), (79.0, "measurement"), (None, "measurement")])
def test_models_that_guess_say_nothing(chance: float | None, basis: str) -> None:
    advice = advise(Facts(), measured(chance=chance, graph=GOOD, instance=WORSE))
    assert (advice.basis, advice.clear) == (basis, basis == "measurement")
    first = advice.statements[0]
    assert ("no better than chance" in first.text) is (basis == "prediction")
    if basis == "prediction":
        assert "80.2 % after 30 epochs; chance is 79.5 %" in first.evidence


def test_one_and_diverged() -> None:
    advice = advise(Facts(), measured(graph=GOOD, none=[math.nan] * 10))
    assert (advice.first, advice.contenders, advice.clear) == ("graph", ("graph",), False)
    assert "only graph was trained" in advice.verdict
    assert advise(Facts(), measured(none=[math.nan])).basis == "prediction"
