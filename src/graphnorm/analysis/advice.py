"""Advice: which normalization to try first, with the evidence behind each sentence and how sure it is.

Two kinds of evidence come together. *Predictions* follow from the graphs alone: Proposition 1 where it applies is
mathematics; the rest are hints from the paper's explanations. *Measurements* are trainings on the same graphs, and they
outrank predictions. Both are said, and where they disagree, that is said too.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from types import NoneType
from typing import Any, Literal

from graphnorm.analysis.measurement import Measurement
from graphnorm.errors import require
from graphnorm.study.protocol import has_learned
from graphnorm.study.render import listing
from graphnorm.study.result import Result

__all__ = ["Advice", "Facts", "Statement", "advise"]

Certainty = Literal["certain", "likely", "weak"]
NORMS = ("graph", "instance", "batch", "layer", "none")
MEASURABLE = 2.0
"""Standard errors that a difference of accuracies must have to count."""
SAME = 1e-4
"""Scores, in percent, that differ by less are equal."""


@dataclass(frozen=True)
class Statement(Measurement):
    """One sentence, and what stands behind it."""

    text: str
    evidence: str
    certainty: Certainty
    favours: tuple[str, ...] = ()
    against: tuple[str, ...] = ()
    about: Literal["score", "speed"] = "score"
    """What is expected to be better: the score, or the speed of training."""


@dataclass(frozen=True)
class Facts:
    """What was found out about a dataset without training: summaries of the tools, None where one was not run."""

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
    """What to try."""

    first: str
    """The normalization to try first."""
    contenders: tuple[str, ...]
    """Those that nothing speaks against, or that did not score significantly less; ``first`` among them."""
    clear: bool
    """Whether ``first`` is better than all others with significance."""
    basis: Literal["measurement", "prediction"]
    verdict: str
    agreement: str
    """Whether predictions and measurement agree; empty without a measurement."""
    statements: tuple[Statement, ...]

    def __str__(self) -> str:
        lines = [self.verdict, ""]
        for statement in self.statements:
            lines += [f"- {statement.text} [{statement.certainty}: {statement.evidence}]"]
        return "\n".join(lines + (["", self.agreement] if self.agreement else []))


def advise(facts: Facts, measured: Result | None = None) -> Advice:
    """Say which normalization to try first.

    >>> regular = {"share_without_signal": 1.0, "graphs": 400, "signal_kept_quantiles": {"0.5": 0.0}}
    >>> advice = advise(Facts(regularity=regular))
    >>> advice.first, advice.clear, "instance" in advice.contenders
    ('graph', False, False)
    """
    require(
        "facts", facts, Facts, "Facts about a dataset, of summaries: Facts(regularity=regularity(graphs).summary())"
    )
    require("measured", measured, (Result, NoneType), "the Result of compare or search, or None")
    predictions = [
        statement
        for statement in (
            _about_signal(facts.regularity),
            _about_mean(facts.mean_versus_spread),
            _about_condition(facts.condition, facts.regularity),
            _about_noise(facts.noise),
        )
        if statement is not None
    ]
    if measured is not None and measured.best is not None:
        if has_learned(measured.norms[measured.best].mean, measured.chance):
            return _from_measurement(measured, predictions)
        return _from_predictions([_no_better_than_chance(measured), *predictions], "nothing that was trained learned")
    return _from_predictions(predictions, "nothing was trained")


# ---- predictions ----------------------------------------------------------------------------------------------------


def _from_predictions(predictions: Sequence[Statement], why: str) -> Advice:
    """why: there is no measurement."""
    excluded = {norm for statement in predictions for norm in statement.against if statement.certainty != "weak"}
    contenders = tuple(norm for norm in NORMS if norm not in excluded)
    others = f"No clear winner among {listing(contenders)}: {why}. Measure it with graphnorm compare."
    if "instance" in excluded:
        verdict = f"Try graph first, and not instance, which removes something that tells these graphs apart. {others}"
    else:
        verdict = (
            "Nothing in these graphs speaks strongly for one normalization. Try graph first: it contains instance "
            f"(α = 1) and can do otherwise. {others}"
        )
    return Advice("graph", contenders, False, "prediction", verdict, "", tuple(predictions))


def _about_signal(regularity: Mapping[str, Any] | None) -> Statement | None:
    if regularity is None or regularity.get("signal_kept_quantiles") is None:
        return None
    lost, kept = regularity["share_without_signal"], regularity["signal_kept_quantiles"]["0.5"]
    evidence = (
        f"‖HQN‖/‖HQ‖ on {regularity['graphs']:,} graphs: median {kept:.2f}, nothing left on {lost:.1%}; exact for the "
        "first layer"
    )
    if lost >= 0.5:
        return Statement(
            f"InstanceNorm subtracts the whole signal of the first layer on {lost:.0%} of the graphs (Proposition 1). "
            "They all look alike to it. GraphNorm can learn to keep the mean.",
            evidence,
            "certain",
            favours=("graph",),
            against=("instance",),
        )
    if lost >= 0.05 or kept < 0.5:
        return Statement(
            f"InstanceNorm removes much of the first layer's signal: it keeps {kept:.0%} of it in the median graph"
            f"{f', and nothing on {lost:.0%}' if lost >= 0.005 else ''}. GraphNorm can learn to keep it.",
            evidence,
            "weak",
            favours=("graph",),
            against=("instance",),
        )
    return Statement(
        f"The full shift leaves {kept:.0%} of the first layer's signal in the median graph: no reason against "
        "InstanceNorm.",
        evidence,
        "weak",
        favours=("instance", "graph"),
    )


def _about_mean(accuracy: Mapping[str, Any] | None) -> Statement | None:
    if accuracy is None:
        return None
    mean, rest, error = (
        accuracy["accuracy_from_the_mean"],
        accuracy["accuracy_from_the_rest"],
        accuracy["standard_error"],
    )
    evidence = (
        f"logistic regressions on the first layer, 5 folds: {mean:.1%} from the means, {rest:.1%} from the spread, "
        f"{accuracy['majority']:.1%} by guessing; standard error of the difference {error:.1%}"
    )
    difference = mean - rest
    if abs(difference) <= MEASURABLE * error or abs(difference) < 0.01:
        text = "The graphs' means, which a shift subtracts, tell the classes apart no better than what it leaves."
        return Statement(text, evidence, "weak")
    if difference < 0:
        return Statement(
            "What the shift leaves tells the classes apart better than the means that it subtracts.",
            evidence,
            "weak",
            favours=("instance", "graph"),
        )
    blind = rest <= accuracy["majority"] + 0.05
    return Statement(
        "The graphs' means, which the full shift subtracts, tell the classes apart better than what it leaves"
        + (": without them a linear layer can only guess." if blind else "."),
        evidence,
        "likely" if difference > 0.02 else "weak",
        favours=("graph",),
        against=("instance",),
    )


def _about_condition(condition: Mapping[str, Any] | None, regularity: Mapping[str, Any] | None) -> Statement | None:
    if condition is None:
        return None
    compared = condition["better"] + condition["equal"] + condition["worse"]
    if not compared:
        return None
    gain = condition["median_improvement"]
    evidence = (
        f"median of κ(Q)/κ(QN) over {compared:,} graphs; the paper argues from it, but it bounds the speed of a linear "
        "model only"
    )
    if regularity is not None and (regularity.get("share_without_signal") or 0.0) >= 0.5:
        return Statement(
            f"A shift would make the aggregation's condition number {gain:.2f} times better, but here it has no signal "
            "left to work on.",
            evidence,
            "weak",
        )
    if gain > 1.1:
        return Statement(
            f"A shift makes the aggregation's condition number {gain:.2f} times better in the median: norms that shift "
            "each graph, graph and instance, should train faster than none and layer.",
            evidence,
            "weak",
            favours=("graph", "instance"),
            against=("none", "layer"),
            about="speed",
        )
    return Statement(
        f"A shift hardly changes the aggregation's condition number ({gain:.2f} times): little speed to gain by it.",
        evidence,
        "weak",
    )


def _about_noise(noise: Mapping[str, Any] | None) -> Statement | None:
    deviation = None if noise is None else noise["relative_deviation"][-1]
    if noise is None or deviation is None:
        return None
    evidence = (
        f"relative deviation of batches of {noise['batch_size']} from the dataset at {noise['layer']}, after "
        f"{noise['epochs'][-1]} epochs"
    )
    if deviation > 0.1:
        return Statement(
            f"Batch statistics are noisy: they stray by {deviation:.2f} standard deviations from the dataset's. "
            "BatchNorm may train less steadily and evaluate with averages that fit no batch.",
            evidence,
            "weak",
            favours=("graph", "instance"),
            against=("batch",),
        )
    return Statement(
        f"Batch statistics are steady ({deviation:.2f} standard deviations): no reason against BatchNorm.",
        evidence,
        "weak",
        favours=("batch",),
    )


# ---- measurement ----------------------------------------------------------------------------------------------------


def _from_measurement(measured: Result, predictions: Sequence[Statement]) -> Advice:
    means = _means(measured)
    top = max(means.values())
    tied = [norm for norm, mean in means.items() if top - mean < SAME]
    best = max(tied, key=lambda norm: measured.convergence.area.get(norm, 0.0))
    others = [norm for norm in means if norm != best]
    tests = {norm: measured.pair(best, norm) for norm in others}
    impossible = {norm for statement in predictions for norm in statement.against if statement.certainty == "certain"}
    beaten = [
        norm
        for norm in others
        if (tests[norm].significant or norm in impossible) and (tests[norm].difference or 0) > SAME
    ]
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
        reason = "the highest score"
        if len(tied) > 1:
            reason = "one of the highest scores" + (
                " and the fastest training among these" if measured.convergence.area else ""
            )
        verdict = (
            f"No clear winner. Try {best} first, with {reason}; {listing(contenders[1:])} cannot be told from it by "
            f"significance.{ruled_out}"
        )
    agreement = _agreement(measured, predictions)
    return Advice(best, contenders, clear, "measurement", verdict, agreement, (*statements, *predictions))


def _means(measured: Result) -> dict[str, float]:
    """The average of each normalization that has a score, from the best on."""
    return {norm: measured.norms[norm].mean for norm in measured.ranking}


def _no_better_than_chance(measured: Result) -> Statement:
    best, mean = next(iter(_means(measured).items()))
    return Statement(
        f"The trainings say nothing: the highest score, that of {best}, is no better than chance. Train for longer.",
        f"study {measured.study}: {mean:.1f} % after {max(measured.values_of('epochs'))} epochs, where chance has "
        f"{measured.chance:.1f} %",
        "likely",
    )


def _score(measured: Result, best: str, tied: Sequence[str]) -> Statement:
    count = len(measured.norms[best].scores)
    shared = f", and shares it with {listing([norm for norm in tied if norm != best])}" if len(tied) > 1 else ""
    optimistic = (
        " The folds that chose the epoch are those reported: optimistic." if measured.protocol.name == "paper" else ""
    )
    return Statement(
        f"{best} has the highest score, {measured.norms[best].mean:.1f} %{shared}.",
        f"study {measured.study}: {measured.model}, {max(measured.values_of('epochs'))} epochs, protocol "
        f"{measured.protocol.name}, {count} {measured.protocol.unit}s.{optimistic}",
        "likely" if count >= 5 else "weak",
        favours=(best,),
    )


def _against(measured: Result, best: str, norm: str) -> Statement:
    test = measured.pair(best, norm)
    difference = test.difference or 0.0
    chance = "no test possible" if test.p_adjusted is None else f"p = {test.p_adjusted:.3f} after Holm's correction"
    interval = "" if test.low is None else f", 95 % interval {test.low:+.1f} to {test.high:+.1f}"
    how = f"paired over {test.pairs}" if test.paired else f"Welch's test, at least {test.pairs}"
    evidence = f"{how} {measured.protocol.unit}s{interval}, {chance}" + (f"; {test.note}" if test.note else "")
    if abs(difference) < SAME:
        return Statement(f"{norm} scored the same as {best}.", evidence, "weak")
    if test.significant:
        text = f"{norm} scored {difference:.1f} points less than {best}: more than chance."
        return Statement(text, evidence, "likely", favours=(best,), against=(norm,))
    if test.note and test.pairs > 1:
        unit = measured.protocol.unit
        text = f"{norm} scored {difference:.1f} points less than {best} on every {unit}, but these are few."
        return Statement(text, evidence, "likely" if difference > 5 else "weak", against=(norm,))
    return Statement(f"{norm} scored {difference:.1f} points less than {best}: may be chance.", evidence, "weak")


def _agreement(measured: Result, predictions: Sequence[Statement]) -> str:
    """Whether what the predictions said of the normalizations that were measured came true."""
    said = [
        _came_true(measured, statement, norm)
        for statement in predictions
        for norm in statement.against
        if norm in measured.ranking
    ]
    known = dict.fromkeys(sentence for sentence in said if sentence)
    return f"Prediction and measurement: {'; '.join(known)}." if known else ""


def _came_true(measured: Result, statement: Statement, norm: str) -> str:
    """What a statement against a normalization expected, and what happened; empty if that was not measured."""
    values = _means(measured) if statement.about == "score" else measured.convergence.area
    rivals = [rival for rival in statement.favours if rival in values]
    if not rivals or norm not in values:
        return ""
    rival = max(rivals, key=lambda name: values[name])
    lead = values[rival] - values[norm]
    turn = "and" if lead > SAME else "but"
    if statement.about == "speed":
        return (
            f"{norm} was expected to train more slowly than {rival} ({statement.certainty}), {turn} its average "
            f"training score over the epochs is {values[norm]:.1f} % against {values[rival]:.1f} %"
        )
    expected = f"{norm} was expected to score less than {rival} ({statement.certainty}), {turn} scored"
    if abs(lead) < SAME:
        return f"{expected} the same"
    sure = "" if measured.pair(rival, norm).significant else ", not significantly"
    return f"{expected} {abs(lead):.1f} points {'less' if lead > 0 else 'more'}{sure}"
