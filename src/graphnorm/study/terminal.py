"""A result as text for a terminal: the norms in groups, best first, then what follows from them."""

from __future__ import annotations

import shlex
import textwrap
from collections.abc import Callable, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np
import numpy.typing as npt

from graphnorm.study.render import NOTHING

if TYPE_CHECKING:
    from graphnorm.study.result import Result, Score

__all__ = ["show", "sparkline", "wrapped"]

CURVE = (8, 20)
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
    for note in result.explanations:
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


@dataclass
class _Column:
    title: str
    cells: dict[str, str]
    """By the label of a score."""
    left: bool = False
    keep: int = 9
    """The columns with the lowest number are left out first."""

    @property
    def width(self) -> int:
        return max(len(self.title), *map(len, self.cells.values()))

    def text(self, cell: str) -> str:
        return f"{cell:<{self.width}}" if self.left else f"{cell:>{self.width}}"


def _table(result: Result, width: int, styled: Callable[[str, str], str]) -> list[str]:
    groups = result.grouped
    scores = {label: score for _, group in groups for label, score in group.items()}
    if not scores:
        return []
    columns = _fitting(result, _columns(result, scores), scores, width - 2)

    def line(cells: Sequence[str]) -> str:
        return ("  " + "  ".join(column.text(cell) for column, cell in zip(columns, cells, strict=True))).rstrip()

    lines = [line([column.title for column in columns])]
    for title, group in groups:
        lines += [styled(title, BOLD)] if title else []
        lines += [line([column.cells[label] for column in columns]) for label in group]
    return lines


def _columns(result: Result, scores: dict[str, Score]) -> list[_Column]:
    def cells(value: Callable[[str, Score], str]) -> dict[str, str]:
        return {label: value(label, score) for label, score in scores.items()}

    columns = [
        _Column("norm", cells(lambda _, score: score.name), left=True),
        _Column(result.metric.title, cells(lambda _, score: score.shown)),
    ]
    if any(result.against_best(label) for label in scores):
        differences = cells(lambda label, _: result.shown_difference(label))
        columns.append(_Column(f"against {result.best} [95 %]", differences, keep=4))
        columns.append(_Column("p", cells(lambda label, _: result.shown_p(label)), keep=5))
    if any(score.paper for score in scores.values()):
        columns.append(_Column("paper", cells(lambda _, score: str(score.paper or NOTHING)), keep=3))
    columns.append(_Column("epoch", cells(lambda _, score: score.chosen_epoch), keep=2))
    return columns


def _fitting(result: Result, columns: list[_Column], scores: dict[str, Score], width: int) -> list[_Column]:
    """The columns that fit, and the curves in what they leave."""

    def left() -> int:
        return width - sum(column.width + 2 for column in columns)

    while left() < -2 and len(columns) > 2:
        columns.remove(min(columns, key=lambda column: column.keep))
    curves = {label: score.curves["valid"][0] for label, score in scores.items() if "valid" in score.curves}
    if curves and not result.metric.higher_is_better:  # errors begin many times as large as they end
        curves = {label: np.log(np.maximum(curve, np.finfo(float).tiny)) for label, curve in curves.items()}
    if curves and left() >= max(CURVE[0], len("validation")):
        characters = min(left(), CURVE[1])
        low, high = np.nanpercentile(np.concatenate(list(curves.values())), (1, 99))
        drawn = {label: sparkline(curves[label], low, high, characters) if label in curves else "" for label in scores}
        columns.append(_Column("validation", drawn, left=True))
    return columns
