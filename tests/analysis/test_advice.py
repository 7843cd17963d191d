"""Advice: what is said from predictions alone, from measurements, and where both meet."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from graphnorm.analysis import (
    Facts,
    Measured,
    advise,
    classify_from_mean,
    conditions,
    measured_by_study,
    regularity,
    spectra,
)
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError
from graphnorm.study.store import Store
from graphnorm.training import Outcome, Trial


def facts_of(graphs: PackedGraphs) -> Facts:
    accuracy = classify_from_mean(graphs)
    assert accuracy is not None
    return Facts(regularity(graphs).summary(), conditions(spectra(graphs)).summary(), accuracy.summary())


def measured(speed: dict[str, float] | None = None, **scores: list[float]) -> Measured:
    return Measured(
        source="a test",
        model="gin",
        protocol="paper",
        epochs=30,
        overlap=1 / 9,
        scores={norm: dict(enumerate(values)) for norm, values in scores.items()},
        speed=speed or {},
    )


GOOD = [80.0, 81.0, 79.5, 80.5, 80.2, 79.8, 80.9, 80.1, 79.9, 80.4]
WORSE = [value - 9 - 0.3 * (place % 3) for place, value in enumerate(GOOD)]
ALIKE = [value + (0.5 if place % 2 else -0.6) for place, value in enumerate(GOOD)]


class TestPredictions:
    def test_regular_graphs(self) -> None:
        advice = advise(facts_of(synthetic.regular(60)))
        assert (advice.first, advice.basis, advice.clear) == ("graph", "prediction", False)
        assert "instance" not in advice.contenders
        assert {"batch", "none"} <= set(advice.contenders)
        signal, mean, condition = advice.statements
        assert (signal.certainty, signal.favours, signal.against) == ("certain", ("graph",), ("instance",))
        assert (mean.certainty, mean.favours, mean.against) == ("likely", ("graph",), ("instance",))
        assert (condition.certainty, condition.favours, condition.against) == ("weak", (), ())  # no signal to speed up
        assert "not instance" in advice.verdict
        text = str(advice)
        for statement in advice.statements:
            assert f"[{statement.certainty}: {statement.evidence}]" in text

    def test_irregular_graphs(self) -> None:
        advice = advise(facts_of(synthetic.trees(60)))
        assert advice.contenders == ("graph", "instance", "batch", "layer", "none")
        assert {statement.certainty for statement in advice.statements} == {"weak"}
        _, mean, condition = advice.statements
        assert mean.favours == ("instance", "graph")  # the spread predicts the class better
        assert (condition.about, condition.against) == ("speed", ("none", "layer"))

    @pytest.mark.parametrize(("deviation", "against"), [(0.4, ("batch",)), (0.02, ())])
    def test_noise(self, deviation: float, against: tuple[str, ...]) -> None:
        noise = {"relative_deviation": [0.1, deviation], "batch_size": 64, "layer": "last", "epochs": [0, 7]}
        (statement,) = advise(Facts(noise=noise)).statements
        assert statement.against == against
        assert "batches of 64" in statement.evidence
        assert "after 7 epochs" in statement.evidence

    def test_nothing_known(self) -> None:
        advice = advise(Facts(noise={"relative_deviation": [None], "batch_size": 1, "layer": "", "epochs": [0]}))
        assert advice.statements == ()
        assert "No clear winner" in advice.verdict


class TestMeasurement:
    def test_a_clear_winner_outranks_predictions(self) -> None:
        advice = advise(facts_of(synthetic.trees(60)), measured(batch=GOOD, graph=WORSE, instance=WORSE))
        assert (advice.first, advice.clear, advice.contenders) == ("batch", True, ("batch",))
        assert advice.verdict == "Use batch: it scored significantly better than graph and instance."

    def test_no_clear_winner(self) -> None:
        advice = advise(Facts(), measured(batch=GOOD, graph=ALIKE, none=WORSE))
        assert (advice.first, advice.clear) == ("batch", False)
        assert set(advice.contenders) == {"batch", "graph"}
        assert advice.verdict.startswith("No clear winner. Try batch first")
        assert "Not none." in advice.verdict
        assert any("may be chance" in statement.text and "graph" in statement.text for statement in advice.statements)
        assert "optimistic" in advice.statements[0].evidence

    def test_ties_go_to_the_fastest(self) -> None:
        advice = advise(Facts(), measured({"batch": 70.0, "graph": 90.0}, batch=GOOD, graph=GOOD))
        assert advice.first == "graph"
        assert "fastest training" in advice.verdict

    def test_what_is_impossible_is_no_contender(self) -> None:
        scores = measured(none=[100.0] * 3, graph=[100.0] * 3, instance=[50.0] * 3)
        advice = advise(facts_of(synthetic.regular(60)), scores)
        assert "instance" not in advice.contenders
        assert "Not instance." in advice.verdict
        assert (
            "instance was expected to score less than graph (certain), and scored 50.0 points less" in advice.agreement
        )
        alone = advise(facts_of(synthetic.regular(60)), measured(graph=[100.0] * 3, instance=[50.0] * 3))
        assert alone.verdict == "Use graph: instance cannot learn these graphs."

    def test_a_prediction_that_fails_is_reported(self) -> None:
        speed = {"graph": 60.0, "none": 80.0, "instance": 55.0}
        advice = advise(facts_of(synthetic.regular(60)), measured(speed, instance=GOOD, graph=WORSE, none=WORSE))
        assert advice.first == "instance"  # measured, whatever was predicted
        assert "(certain), but scored 9.3 points more" in advice.agreement
        expected = facts_of(synthetic.trees(60))
        slow = advise(expected, measured(speed, instance=GOOD, graph=GOOD, none=GOOD))
        assert "but its average training score over the epochs is 80.0 % against 60.0 %" in slow.agreement

    def test_models_that_guess_say_nothing(self) -> None:
        guessers = replace(measured(graph=GOOD, instance=WORSE), guessing=79.5)
        advice = advise(Facts(), guessers)
        assert (advice.basis, advice.clear) == ("prediction", False)
        assert "nothing that was trained learned" in advice.verdict
        assert "no better than guessing" in advice.statements[0].text
        assert "80.2 % after 30 epochs, where guessing has 79.5 %" in advice.statements[0].evidence
        assert advise(Facts(), replace(guessers, guessing=79.0)).verdict.startswith("Use graph")

    def test_one_and_diverged(self) -> None:
        advice = advise(Facts(), measured(graph=GOOD, none=[math.nan] * 10))
        assert advice.verdict.startswith("No clear winner: only graph was trained")
        assert advise(Facts(), measured(none=[math.nan])).basis == "prediction"


class TestStudy:
    def test_scores_of_a_store(self, tmp_path: Path) -> None:
        graphs = synthetic.trees(60)
        fingerprint = graphs.fingerprint
        trials = [
            Trial(dataset=graphs.name, fingerprint=fingerprint, norm=norm, fold=fold, folds=3, epochs=2)
            for norm in ("graph", "none")
            for fold in range(3)
        ]
        with Store(tmp_path / "a.db") as store:
            study = store.add_study("mine", {"fingerprint": fingerprint}, trials, [range(6)])
            session = store.begin_session(study, "local")
            curve = np.array([0.5, 0.75], np.float32)
            store.save(
                session,
                [Outcome(t, {"valid": curve + np.float32(0.05 * (t.norm == "graph") + 0.01 * t.fold)}) for t in trials],
            )
            store.end_session(session, "done")
        found = measured_by_study(tmp_path / "a.db", graphs)
        assert found.scores["none"] == pytest.approx({0: 75, 1: 76, 2: 77}, rel=1e-5)
        assert found.means == pytest.approx({"graph": 81, "none": 76}, rel=1e-5)
        assert (found.protocol, found.epochs, found.model) == ("paper", 2, "gin")
        assert found.overlap == pytest.approx(0.5)
        assert "'mine'" in found.source
        assert found.guessing == 50
        with pytest.raises(GraphnormError, match=r"no study here has results for these graphs.*there are: mine"):
            measured_by_study(tmp_path / "a.db", synthetic.trees(30))
