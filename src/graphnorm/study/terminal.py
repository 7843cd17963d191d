"""A result as text for a terminal: the norms in groups, best first, then what follows from them."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphnorm.study.layout import grouped, in_order
from graphnorm.study.render import Cell, Table
from graphnorm.study.verdict import explanations

if TYPE_CHECKING:
    from graphnorm.study.result import Result
    from graphnorm.study.score import Score

__all__ = ["show", "sparkline", "wrapped"]

CURVE = (10, 20)
"""The fewest and the most characters of a curve."""
BARS = "▁▂▃▄▅▆▇█"
STYLES = {"BEST": "1;32", "TIED": "1;32", "AVOID": "1;31", "SPEED": "1;36", "CAUTION": "1;33", "NEXT": "1;35"}
BOLD, DIM = "1", "2"
TOGETHER = "\N{NO-BREAK SPACE}"


def show(result: Result, *, width: int, colour: bool = False, command: Sequence[str] = ()) -> str:
    """See :meth:`Result.to_text`."""

    def styled(text: str, code: str) -> str:
        return f"\033[{code}m{text}\033[0m" if colour else text

    lines = [styled(line, BOLD) for line in wrapped(result.title, width)]
    lines += ["", *_table(result, width, styled)]
    notes = explanations(result)
    lines += [""] if notes else []
    for note in notes:
        lines += [styled(line, DIM) for line in wrapped(note, width, "  ")]
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

    >>> _changed(["graphnorm", "compare", "NCI1", "--epochs", "12", "--out", "a"], ["--epochs", "100"])
    ['graphnorm', 'compare', 'NCI1', '--out', 'a-epochs-100', '--epochs', '100']
    """
    name, value = options
    words = [word for word in command if word != "--overwrite" and not word.startswith(f"{name}=")]
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


def _table(result: Result, width: int, styled: Callable[[str, str], str]) -> list[str]:
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
