"""How a result is laid out: its title, the groups of its scores, its table, and all of it as text for a terminal."""

from __future__ import annotations

import math
import shlex
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphnorm.study.notes import explanations
from graphnorm.study.protocol import ALL_GRAPHS
from graphnorm.study.render import NOTHING, Cell, Table, counted
from graphnorm.study.score import Spread

if TYPE_CHECKING:
    from graphnorm.study.result import Result
    from graphnorm.study.score import Score

__all__ = ["grouped", "in_order", "show", "sparkline", "table", "target_table", "target_title", "title", "wrapped"]

CURVE = (10, 20)
"""The fewest and the most characters of a curve."""
MOST_TARGETS = 20
"""Targets whose scores a terminal shows."""
BARS = "▁▂▃▄▅▆▇█"
STYLES = {"BEST": "1;32", "TIED": "1;32", "AVOID": "1;31", "SPEED": "1;36", "CAUTION": "1;33", "NEXT": "1;35"}
BOLD, DIM = "1", "2"
TOGETHER = "\N{NO-BREAK SPACE}"


def title(result: Result) -> str:
    """See :attr:`Result.title`."""
    spec = result.spec
    parts = [f"{result.dataset} ({spec['graphs']:,} graphs)" if spec.get("graphs") else result.dataset, result.model]
    if result.protocol.unit == "fold":
        parts += [f"protocol {result.protocol.label}", f"{spec['folds']} folds"]
    else:
        parts += ["all graphs train" if result.protocol is ALL_GRAPHS else result.division]
    parts += [f"{spec['seeds']} seeds"] if spec["seeds"] > 1 else []
    configurations = max((len(score.configurations) for score in result.norms.values()), default=1)
    parts += [counted(configurations, "configuration")] if configurations > 1 else []
    epochs = result.values_of("epochs")
    return ", ".join(parts + ([counted(epochs[0], "epoch")] if len(epochs) == 1 else []))


def grouped(result: Result) -> list[tuple[str, list[str]]]:
    """All scores in the order of the table: the titles of groups, and the labels of their scores."""
    leaders, others = (*result.groups, (), ())[:2]
    if result.learned and any(test.p is not None for test in result.tests):
        leading, following = "tied for the best" if len(leaders) > 1 else "best", "significantly worse"
    else:  # nothing can be concluded
        leading, following, leaders, others = "", "", tuple(result.ranking), ()
    groups = [
        (leading, list(leaders)),
        (following, list(others)),
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


def target_title(result: Result) -> str:
    """The heading of :func:`target_table`."""
    return f"{result.metric.title} of each of {len(result.targets)} targets"


def target_table(result: Result, *, with_std: bool = True) -> Table:
    """See :attr:`Result.target_table`."""
    labels = [label for label in in_order(result) if any(label in of for of in result.targets.values())]

    def cell(spread: Spread) -> str:
        return (spread if with_std else Spread(spread.mean, math.nan)).shown(result.metric)

    rows = [[name, *(cell(of[label]) for label in labels)] for name, of in result.targets.items()]
    return Table(("target", *labels), rows)


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


# For a terminal


def show(result: Result, *, width: int, colour: bool = False, command: Sequence[str] = ()) -> str:
    """See :meth:`Result.to_text`."""

    def styled(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colour else text

    lines = [styled(line, BOLD) for line in wrapped(result.title, width)]
    lines += ["", *_text_table(result, width, styled)]
    notes = explanations(result)
    lines += [""] if notes else []
    for note in notes:
        lines += [styled(line, DIM) for line in wrapped(note, width, "  ")]
    lines += _text_targets(result, width, styled)
    if any(len(score.configurations) > 1 for score in result.norms.values()):
        chosen = (f"{name}: {score.chosen_settings}" for name, score in result.norms.items() if score.choices)
        lines += [
            "",
            styled("chosen settings", BOLD),
            *(line for text in chosen for line in wrapped(text, width, "  ")),
        ]
    lines.append("")
    label = max(map(len, STYLES)) + 2
    for kind, text, options in result.findings:
        if options:
            words = [shlex.quote(word) for word in _changed(command, options)]
            text += f": {' '.join(words[:-1])}{TOGETHER}{words[-1]}"
        first, *more = wrapped(text, width - label)
        lines += [styled(f"{kind:<{label}}", STYLES[kind]) + first, *(" " * label + line for line in more)]
    return "\n".join(lines)


def _changed(command: Sequence[str], options: Sequence[str]) -> list[str]:
    """A command with another value of an option, and with another folder to write to.

    >>> _changed(["graphnorm", "compare", "NCI1", "--epochs", "12", "--out=a"], ["--epochs", "100"])
    ['graphnorm', 'compare', 'NCI1', '--out', 'a-epochs-100', '--epochs', '100']
    """
    name, value = options
    apart = [part for word in command for part in (word.split("=", 1) if word.startswith("--out=") else [word])]
    words = [word for word in apart if word != "--overwrite" and not word.startswith(f"{name}=")]
    if name in words:
        del words[words.index(name) : words.index(name) + 2]
    if "compare" in words and "--out" in words[:-1]:  # a store takes several studies, this folder only one
        words[words.index("--out") + 1] += f"-{name.strip('-')}-{value}"
    return [*words, *options]


def wrapped(text: str, width: int, indent: str = "", hanging: str = "") -> list[str]:
    """Lines of a text, broken between words; all but the first begin with ``hanging``, if it is given."""
    lines = textwrap.wrap(
        text,
        width,
        initial_indent=indent,
        subsequent_indent=hanging or indent,
        break_long_words=False,
        break_on_hyphens=False,
    )
    return [line.replace(TOGETHER, " ") for line in lines]


def sparkline(curve: npt.ArrayLike, low: float, high: float, width: int) -> str:
    """A curve in some characters, each the mean of a part of it; values outside of the range are drawn at its ends.

    >>> sparkline([0, 1, 2, 3, 4, 5, 6, 7], 0, 7, width=8), sparkline([1, 1, 5, 5], 1, 5, width=2)
    ('▁▂▃▄▅▆▇█', '▁█')
    """
    values = np.asarray(curve, float)
    parts = np.array_split(values, width) if len(values) > width else values[:, None]
    means = np.array([np.mean(part) for part in parts])
    places = (means - low) / (high - low) if high > low else np.zeros_like(means)
    return "".join(
        BARS[int(np.clip(place * len(BARS), 0, len(BARS) - 1))] if np.isfinite(place) else " " for place in places
    )


def _text_table(result: Result, width: int, styled: Callable[[str, str], str]) -> list[str]:
    """The columns that fit, and the curves in what they leave."""
    scores = in_order(result)
    if not scores:
        return []
    whole = dict(zip(result.table.columns, zip(*result.table.rows, strict=True), strict=True))
    against = f"against {result.best} [95 %]"
    columns: dict[str, Sequence[Cell]] = {
        "norm": [score.name for score in scores.values()],
        result.metric.title: [score.shown for score in scores.values()],
    }
    if any(result.against_best(label) for label in scores):
        columns |= {against: whole[f"difference to {result.best} [95 %]"], "p": whole["p"]}
    columns |= {name: whole[name] for name in ("paper", "epoch") if name in whole}
    table = Table(tuple(columns), list(zip(*columns.values(), strict=True)))
    lines = table.to_text(["norm"], width=width - 2, spare=["epoch", "paper", against, "p"]).splitlines()
    taken = max(map(len, lines))
    drawn = _draw_curves(result, scores, width - 4 - taken)
    head, *rows = (f"  {line:<{taken}}  {curve}".rstrip() for line, curve in zip(lines, drawn, strict=True))
    of_label = dict(zip(scores, rows, strict=True))
    lines = [head]
    for title, labels in grouped(result):
        lines += [styled(title, BOLD)] if title else []
        lines += [of_label[label] for label in labels]
    return lines


def _text_targets(result: Result, width: int, styled: Callable[[str, str], str]) -> list[str]:
    """The means of each target, where the worst normalizations are left out if they do not fit."""
    if not result.targets:
        return []
    if len(result.targets) > MOST_TARGETS:
        text = f"{target_title(result)}: in the JSON (--json), and with --out in scores.csv"
        return ["", *(styled(line, DIM) for line in wrapped(text, width, "  "))]
    table = target_table(result, with_std=False)
    lines = table.to_text(["target"], width=width - 2, spare=table.columns[:1:-1]).splitlines()
    return ["", styled(target_title(result), BOLD), *(f"  {line}" for line in lines)]


def _draw_curves(result: Result, scores: dict[str, Score], width: int) -> list[str]:
    """A heading, and the validation curve of each score; empty texts where that does not fit."""
    curves = {label: score.curves["valid"][0] for label, score in scores.items() if "valid" in score.curves}
    if not curves or width < CURVE[0]:
        return [""] * (1 + len(scores))
    if not result.metric.higher_is_better:  # errors begin many times as large as they end
        curves = {label: np.log(np.maximum(curve, np.finfo(float).tiny)) for label, curve in curves.items()}
    low, high = np.nanpercentile(np.concatenate(list(curves.values())), (1, 99))
    drawn = {label: sparkline(curve, low, high, min(width, CURVE[1])) for label, curve in curves.items()}
    return ["validation", *(drawn.get(label, "") for label in scores)]
