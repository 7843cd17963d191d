"""How a result is laid out: its title, the groups of its scores, and the table that all its forms show."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING

from graphnorm.study.protocol import ALL_GRAPHS
from graphnorm.study.render import NOTHING, Table, counted

if TYPE_CHECKING:
    from graphnorm.study.result import Result
    from graphnorm.study.score import Score

__all__ = ["grouped", "in_order", "table", "title"]


def title(result: Result) -> str:
    """See :attr:`Result.title`."""
    spec = result.spec
    parts = [f"{result.dataset} ({spec['graphs']:,} graphs)" if spec.get("graphs") else result.dataset, result.model]
    if result.protocol.unit == "fold":
        parts += [f"protocol {result.protocol.label}", f"{spec['folds']} folds"]
    else:
        parts += ["all graphs train" if result.protocol is ALL_GRAPHS else result.protocol.label]
    parts += [f"{spec['seeds']} seeds"] if spec["seeds"] > 1 else []
    configurations = max((len(score.configurations) for score in result.norms.values()), default=1)
    parts += [counted(configurations, "configuration")] if configurations > 1 else []
    epochs = result.values_of("epochs")
    return ", ".join(parts + ([counted(epochs[0], "epoch")] if len(epochs) == 1 else []))


def grouped(result: Result) -> list[tuple[str, list[str]]]:
    """All scores in the order of the table: the titles of groups, and the labels of their scores."""
    leaders, others = (*result.groups, (), ())[:2]
    leading = "tied for the best" if len(leaders) > 1 else "best"
    if not others and not (result.learned and any(test.p is not None for test in result.tests)):
        leading = ""
    reasons = ["significantly worse"] * bool(result.worse) + ["no better than chance"] * bool(result.guessing)
    groups = [
        (leading, list(leaders)),
        (", or ".join(reasons), list(others)),
        ("without a score", [name for name in result.norms if name not in result.ranking]),
        ("baselines, not ranked", [label for label in result.scores if label not in result.norms]),
    ]
    return [(heading, labels) for heading, labels in groups if labels]


def in_order(result: Result) -> dict[str, Score]:
    """All scores by their labels, in the order of the table."""
    return {label: result.scores[label] for _, labels in grouped(result) for label in labels}


def table(result: Result) -> Table:
    """See :attr:`Result.table`."""
    convergence, metric, scores = result.convergence, result.metric, in_order(result)
    goal = "target" if convergence.target is None else metric.with_unit(convergence.target)
    rows = []
    for label, score in scores.items():  # a baseline has no test and no convergence
        lost = f" ({score.diverged} diverged)" if score.diverged and math.isfinite(score.mean) else ""
        area = convergence.area.get(label)
        row = {
            "norm": label,
            metric.title: score.shown + lost,
            f"difference to {result.best} [95 %]": _difference(result, label),
            "p": _p_value(result, label),
            "epoch": score.chosen_epoch,
            "configuration": score.chosen_settings,
            "trials": f"{score.finished:,} of {score.trials:,}",
            f"epochs to {goal} in training": str(convergence.epochs.get(label, NOTHING)),
            f"mean {metric.title} in training": NOTHING if area is None else metric.text(area),
            "paper": str(score.paper or NOTHING),
        }
        rows.append(row)
    needless = {
        "configuration": all(len(score.configurations) <= 1 for score in scores.values()),
        "trials": all(score.finished == score.trials for score in scores.values()),
        "paper": not any(score.paper for score in scores.values()),
    }
    return Table.of(rows, without=[name for name, is_needless in needless.items() if is_needless])


def _difference(result: Result, label: str) -> str:
    """The difference to the best with its interval."""
    test = result.against_best(label)
    if test is None or test.difference is None:
        return NOTHING
    best = result.norms[test.first].mean
    low, high = (None if end is None else result.metric.signed(-end, best) for end in (test.high, test.low))
    return result.metric.signed(-test.difference, best) + ("" if low is None else f" [{low}, {high}]")


def _p_value(result: Result, label: str) -> str:
    """The adjusted p-value, with a star if the best is significantly better."""
    if label == result.best:
        return "best"
    test = result.against_best(label)
    if test is None or test.p_adjusted is None:
        return NOTHING
    return ("<0.001" if test.p_adjusted < 0.001 else f"{test.p_adjusted:.3f}") + (" *" if test.significant else "")
