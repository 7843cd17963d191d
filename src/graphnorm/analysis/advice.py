"""Advice: which normalization to try first, with the evidence for each statement and its certainty.

There are two kinds of evidence. *Predictions* follow from the graphs alone: Proposition 1, where it applies, is
mathematics, and the others are hints from the paper's explanations. *Measurements* are scores of models trained on the
same graphs. They outrank predictions. The advice gives both, and says where they disagree.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

import numpy as np

from graphnorm.analysis.measurement import Measurement
from graphnorm.analysis.regularity import classify_from_mean, regularity
from graphnorm.analysis.spectrum import affordable, conditions, spectra
from graphnorm.analysis.track_record import TrackRecord, track_record
from graphnorm.data import PackedGraphs
from graphnorm.errors import listing, require
from graphnorm.study.result import Result

__all__ = ["Advice", "Facts", "Statement", "advise", "gather_facts"]

Certainty = Literal["certain", "likely", "weak"]
SAMPLE = 1000
"""The most graphs that :func:`gather_facts` looks at."""
NORMS = ("graph", "instance", "batch", "layer", "none")
LARGE = 0.06
"""A difference that counts even without a test, as a share of the best score."""
MEASURABLE = 2.0
"""Differences of accuracies below this many standard errors do not count."""
SAME = 1e-6
"""Scores that differ by a smaller share count as equal: curves are float32."""


@dataclass(frozen=True)
class Statement(Measurement):
    """A statement, its evidence and its certainty."""

    text: str
    evidence: str
    certainty: Certainty
    favours: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    about: Literal["score", "speed"] = "score"
    """Whether it predicts the score or the speed of training."""


@dataclass(frozen=True)
class Facts:
    """Summaries of the tools on a dataset; None where a tool was not run."""

    regularity: Mapping[str, Any] | None = None
    """:meth:`Regularity.summary`."""
    condition: Mapping[str, Any] | None = None
    """:meth:`Conditions.summary`."""
    mean_versus_spread: Mapping[str, Any] | None = None
    """:meth:`MeanVersusSpread.summary`."""
    noise: Mapping[str, Any] | None = None
    """The last norm layer's :meth:`LayerNoise.summary`."""


@dataclass(frozen=True)
class Advice(Measurement):
    """Which normalization to try first, and why."""

    first: str
    """The normalization to try first."""
    contenders: tuple[str, ...]
    """Those that no evidence rules out, ``first`` among them."""
    clear: bool
    """Whether ``first`` is significantly better than all others."""
    basis: Literal["measurement", "prediction"]
    verdict: str
    agreement: str
    """A sentence on which predictions came true; empty without a measurement."""
    statements: tuple[Statement, ...]
    record: TrackRecord | None = None
    """How often such predictions were right; None for measurements."""

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        if self.record is not None:  # first where a constant answer does as well
            lines = [str(self.record), "", *lines] if not self.record.is_better else [*lines, str(self.record), ""]
        for statement in self.statements:
            lines += [f"- {statement.text} [{statement.certainty}: {statement.evidence}]"]
        return "\n".join(lines + (["", self.agreement] if self.agreement else []))


def gather_facts(graphs: PackedGraphs, analyzed: Mapping[str, Any] | None = None) -> Facts:
    """The facts of a dataset: those of an earlier analysis, and by a quick look at up to 1,000 graphs those it lacks.

    analyzed: the summaries of the parts of ``graphnorm analyze``, by name.

    >>> from graphnorm.data import load
    >>> gather_facts(load("synthetic:regular")).regularity["share_without_signal"]  # Proposition 1
    1.0
    """
    analyzed = analyzed or {}
    sample = np.sort(np.random.default_rng(0).permutation(graphs.num_graphs)[:SAMPLE])
    if "spectrum" in analyzed:
        condition = analyzed["spectrum"]["condition"]
    else:
        within = np.sort(affordable(graphs, sample))
        condition = conditions(spectra(graphs, within)).summary() if len(within) else None
    accuracy = classify_from_mean(graphs, sample)
    return Facts(
        regularity=analyzed["regularity"] if "regularity" in analyzed else regularity(graphs, sample).summary(),
        condition=condition,
        mean_versus_spread=None if accuracy is None else accuracy.summary(),
        noise=analyzed["noise"]["layers"][-1] if "noise" in analyzed else None,
    )


def advise(facts: Facts, measured: Result | None = None) -> Advice:
    """Recommend a normalization to try first.

    facts: see :func:`gather_facts`.
    measured: the result of a comparison of the same graphs.

    >>> regular = {"share_without_signal": 1.0, "graphs": 400, "signal_kept_quantiles": {"0.5": 0.0}}
    >>> advice = advise(Facts(regularity=regular))
    >>> advice.first, advice.clear, "instance" in advice.contenders
    ('graph', False, False)
    """
    require("facts", facts, Facts, "Facts about a dataset, as gather_facts(graphs) gives them")
    require("measured", measured, (Result, NoneType), "the Result of compare or search, or None")
    predictions = list(_predictions(facts))
    if measured is not None and measured.best is not None:
        if measured.metric.learned(measured.norms[measured.best].mean, measured.chance):
            return _from_measurement(measured, predictions)
        return _from_predictions([_no_better_than_chance(measured), *predictions], "nothing that was trained learned")
    return _from_predictions(predictions, "nothing was trained")


# ---- predictions ----------------------------------------------------------------------------------------------------


def _from_predictions(predictions: Sequence[Statement], why: str) -> Advice:
    """why: the reason for having no measurement."""
    excluded = {norm for statement in predictions for norm in statement.against if statement.certainty != "weak"}
    contenders = tuple(norm for norm in NORMS if norm not in excluded)
    others = f"No clear winner among {listing(contenders)}: {why}. Measure it with graphnorm compare."
    if "instance" in excluded:
        verdict = f"Try graph first, and not instance, which removes what distinguishes these graphs. {others}"
    else:
        verdict = (
            "These graphs do not strongly favour one normalization. Try graph first: it contains instance as the case "
            f"α = 1. {others}"
        )
    return Advice("graph", contenders, False, "prediction", verdict, "", tuple(predictions), track_record())


def _predictions(facts: Facts) -> Iterator[Statement]:
    regularity, condition, noise = facts.regularity, facts.condition, facts.noise
    signal = regularity is not None and regularity.get("signal_kept_quantiles") is not None
    without_signal = regularity["share_without_signal"] if regularity is not None and signal else 0.0
    if regularity is not None and signal:
        yield _about_signal(regularity["graphs"], regularity["signal_kept_quantiles"]["0.5"], without_signal)
    if facts.mean_versus_spread is not None:
        yield _about_mean(facts.mean_versus_spread)
    if condition is not None and (compared := condition["better"] + condition["equal"] + condition["worse"]):
        yield _about_condition(compared, condition["median_improvement"], without_signal)
    if noise is not None and noise["relative_deviation"][-1] is not None:
        yield _about_noise(noise)


def _about_signal(graphs: int, kept: float, lost: float) -> Statement:
    """kept: the median share of the signal; lost: the share of graphs without any."""
    evidence = f"‖HQN‖/‖HQ‖ on {graphs:,} graphs: median {kept:.2f}, zero on {lost:.1%}; exact for the first layer"
    if lost < 0.05 and kept >= 0.5:
        text = f"InstanceNorm keeps {kept:.0%} of the first layer's signal in the median graph: no reason against it."
        return Statement(text, evidence, "weak", favours=("instance", "graph"))
    if lost >= 0.5:
        certainty: Certainty = "certain"
        loss = f"removes the whole signal of the first layer on {lost:.0%} of the graphs (Proposition 1)"
    else:
        certainty = "weak"
        loss = f"removes much of the first layer's signal: it keeps {kept:.0%} of it in the median graph" + (
            f", and nothing on {lost:.0%} of the graphs" if lost >= 0.01 else ""
        )
    text = f"InstanceNorm {loss}. GraphNorm can learn to keep the mean."
    return Statement(text, evidence, certainty, favours=("graph",), against=("instance",))


def _about_mean(accuracy: Mapping[str, Any]) -> Statement:
    names = ("accuracy_from_the_mean", "accuracy_from_the_rest", "standard_error", "majority")
    mean, rest, error, majority = (accuracy[name] for name in names)
    evidence = (
        f"logistic regressions on the first layer, 5 folds: {mean:.1%} from the means, {rest:.1%} from the spread, "
        f"{majority:.1%} by guessing; standard error of the difference {error:.1%}"
    )
    difference, subject = mean - rest, "The graphs' means, which a shift subtracts, predict the class"
    if abs(difference) <= MEASURABLE * error or abs(difference) < 0.01:
        return Statement(f"{subject} no better than the rest.", evidence, "weak")
    if difference < 0:
        return Statement(f"{subject} less well than the rest.", evidence, "weak", favours=("instance", "graph"))
    blind = ": without them a linear layer can only guess" if rest <= majority + 0.05 else ""
    certainty: Certainty = "likely" if difference > 0.02 else "weak"
    text = f"{subject} better than the rest{blind}."
    return Statement(text, evidence, certainty, favours=("graph",), against=("instance",))


def _about_condition(compared: int, gain: float, without_signal: float) -> Statement:
    """gain: the median improvement; without_signal: the share of graphs on which the shift leaves no signal."""
    evidence = (
        f"median of κ(Q)/κ(QN) over {compared:,} graphs; this is the paper's argument, but it bounds the speed of "
        "linear models only"
    )
    if without_signal >= 0.5:
        text = f"A shift improves the aggregation's condition number {gain:.2f} times, but here it leaves no signal."
        return Statement(text, evidence, "weak")
    if gain > 1.1:
        text = (
            f"A shift improves the aggregation's condition number {gain:.2f} times in the median: graph and instance, "
            "which shift each graph, should train faster than none and layer."
        )
        return Statement(text, evidence, "weak", ("graph", "instance"), ("none", "layer"), about="speed")
    text = f"A shift hardly changes the aggregation's condition number ({gain:.2f} times), so it gains little speed."
    return Statement(text, evidence, "weak")


def _about_noise(noise: Mapping[str, Any]) -> Statement:
    deviation = noise["relative_deviation"][-1]
    evidence = (
        f"relative deviation of batches of {noise['batch_size']} from the dataset at {noise['layer']}, after "
        f"{noise['epochs'][-1]} epochs"
    )
    if deviation <= 0.1:
        text = f"Batch statistics are steady ({deviation:.2f} standard deviations): no reason against BatchNorm."
        return Statement(text, evidence, "weak", favours=("batch",))
    text = (
        f"Batch statistics are noisy: they deviate by {deviation:.2f} standard deviations from the dataset's. "
        "BatchNorm may train less steadily, and its running averages may fit no batch."
    )
    return Statement(text, evidence, "weak", favours=("graph", "instance"), against=("batch",))


# ---- measurement ----------------------------------------------------------------------------------------------------


def _from_measurement(measured: Result, predictions: Sequence[Statement]) -> Advice:
    means, sign = _means(measured), measured.metric.sign
    top = next(iter(means.values()))
    tied = [norm for norm, mean in means.items() if abs(top - mean) <= SAME * abs(top)]
    best = max(tied, key=lambda norm: sign * measured.convergence.area.get(norm, 0.0))
    others = [norm for norm in means if norm != best]
    tests = {norm: measured.pair(best, norm) for norm in others}
    impossible = {norm for statement in predictions for norm in statement.against if statement.certainty == "certain"}
    beaten = [norm for norm in others if (tests[norm].significant or norm in impossible) and norm not in tied]
    contenders = (best, *(norm for norm in others if norm not in beaten))
    clear = bool(others) and contenders == (best,)
    ruled_out = f" Not {listing(beaten)}." if beaten else ""
    statements = [_score(measured, best, tied), *(_against(measured, best, norm) for norm in others)]
    if not others:
        verdict = f"No clear winner: only {best} was trained. Compare it with others."
    elif clear:
        by_test = [norm for norm in others if tests[norm].significant]
        reasons = [f"it scored significantly better than {listing(by_test)}"] if by_test else []
        reasons += [f"{norm} cannot learn these graphs" for norm in others if norm not in by_test]
        verdict = f"Use {best}: {listing(reasons)}."
    else:
        reason = "the best score"
        if len(tied) > 1:
            reason = "one of the best scores" + (
                " and the fastest training among these" if measured.convergence.area else ""
            )
        verdict = (
            f"No clear winner. Try {best} first: it has {reason}, but is not significantly better than "
            f"{listing(contenders[1:], 'or')}.{ruled_out}"
        )
    agreement = _agreement(measured, predictions)
    return Advice(best, contenders, clear, "measurement", verdict, agreement, (*statements, *predictions))


def _means(measured: Result) -> dict[str, float]:
    """The average of each normalization that has a score, from the best on."""
    return {norm: measured.norms[norm].mean for norm in measured.ranking}


def _no_better_than_chance(measured: Result) -> Statement:
    best, mean = next(iter(_means(measured).items()))
    return Statement(
        f"The trainings say nothing: the best score, that of {best}, is no better than chance. Train for longer.",
        f"study {measured.study}: {measured.metric.with_unit(mean)} after {max(measured.values_of('epochs'))} epochs; "
        f"chance is {measured.metric.with_unit(measured.chance or 0.0)}",
        "likely",
    )


def _score(measured: Result, best: str, tied: Sequence[str]) -> Statement:
    count = len(measured.norms[best].scores)
    shared = f", and shares it with {listing([norm for norm in tied if norm != best])}" if len(tied) > 1 else ""
    optimistic = (
        " The folds that chose the epoch are those reported: optimistic." if measured.protocol.name == "paper" else ""
    )
    return Statement(
        f"{best} has the {measured.metric.best} {measured.metric.name}, "
        f"{measured.metric.with_unit(measured.norms[best].mean)}{shared}.",
        f"study {measured.study}: {measured.model}, {max(measured.values_of('epochs'))} epochs, protocol "
        f"{measured.protocol.name}, {count} {measured.protocol.unit}s.{optimistic}",
        "likely" if count >= 5 else "weak",
        favours=(best,),
    )


def _against(measured: Result, best: str, norm: str) -> Statement:
    test = measured.pair(best, norm)
    metric, top = measured.metric, measured.norms[best].mean
    difference = metric.sign * (test.difference or 0.0)
    worse = metric.worse_by(difference)
    chance = "no test possible" if test.p_adjusted is None else f"p = {test.p_adjusted:.3f} after Holm's correction"
    interval = (
        ""
        if test.low is None or test.high is None
        else f", 95 % interval {metric.signed(test.low)} to {metric.signed(test.high)}"
    )
    how = f"paired over {test.pairs}" if test.paired else f"Welch's test, at least {test.pairs}"
    evidence = f"{how} {measured.protocol.unit}s{interval}, {chance}" + (f"; {test.note}" if test.note else "")
    if abs(difference) <= SAME * abs(top):
        return Statement(f"{norm} scored the same as {best}.", evidence, "weak")
    if test.significant:
        text = f"{norm} scored {worse} than {best}, which is significant."
        return Statement(text, evidence, "likely", favours=(best,), against=(norm,))
    if test.note and test.pairs > 1:
        unit = measured.protocol.unit
        text = f"{norm} scored {worse} than {best} on every {unit}, but these are few."
        return Statement(text, evidence, "likely" if difference > LARGE * abs(top) else "weak", against=(norm,))
    return Statement(f"{norm} scored {worse} than {best}, which may be chance.", evidence, "weak")


def _agreement(measured: Result, predictions: Sequence[Statement]) -> str:
    """A sentence on which predictions about the measured normalizations came true."""
    outcomes = [
        _came_true(measured, statement, norm)
        for statement in predictions
        for norm in statement.against
        if norm in measured.ranking
    ]
    known = dict.fromkeys(outcome for outcome in outcomes if outcome)
    return f"Prediction and measurement: {'; '.join(known)}." if known else ""


def _came_true(measured: Result, statement: Statement, norm: str) -> str:
    """The prediction against a normalization, and the outcome; empty if it was not measured."""
    values = _means(measured) if statement.about == "score" else measured.convergence.area
    rivals = [rival for rival in statement.favours if rival in values]
    if not rivals or norm not in values:
        return ""
    metric = measured.metric
    rival = max(rivals, key=lambda name: metric.sign * values[name])
    lead = metric.better(values[rival], values[norm])
    same = abs(lead) <= SAME * abs(values[rival])
    turn = "and" if lead > 0 and not same else "but"
    if statement.about == "speed":
        return (
            f"{norm} was expected to train more slowly than {rival} ({statement.certainty}), {turn} its average "
            f"training score over the epochs is {metric.with_unit(values[norm])} against "
            f"{metric.with_unit(values[rival])}"
        )
    expected = f"{norm} was expected to score worse than {rival} ({statement.certainty}), {turn} scored"
    if same:
        return f"{expected} the same"
    sure = "" if measured.pair(rival, norm).significant else ", not significantly"
    return f"{expected} {metric.worse_by(lead)}{sure}"
