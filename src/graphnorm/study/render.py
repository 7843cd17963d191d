"""Tables as text for a terminal, CSV, Markdown, LaTeX and HTML, and how words and numbers are written in them."""

from __future__ import annotations

import csv
import html
import io
import json
import re
from collections.abc import Collection, Hashable, Iterable, Mapping, Sequence
from dataclasses import dataclass
from typing import Any, NamedTuple

from graphnorm.errors import listing
from graphnorm.study.grouping import by_key

__all__ = ["NOTHING", "Table", "TwoLines", "by_value", "clock", "counted", "facts", "list_some", "short", "shown"]
__all__ += ["signed", "span"]

NOTHING = "–"
ROWS_PER_PAGE = 40
CHARACTERS_PER_LINE = 120
"""On a printed page, in footnote size."""


class TwoLines(NamedTuple):
    """A cell of two lines; the lower one is smaller."""

    above: str
    below: str | None = None


Cell = str | int | float | bool | TwoLines | None


@dataclass(frozen=True)
class Table:
    """Columns and rows of plain values; None is a missing value."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]

    @classmethod
    def of(cls, rows: Sequence[Mapping[str, Cell]], without: Collection[str] = ()) -> Table:
        """From rows with the same columns, some of which are left out."""
        columns = tuple(name for name in (rows[0] if rows else ()) if name not in without)
        return cls(columns, [[row[name] for name in columns] for row in rows])

    def to_text(self, left: Sequence[str] = (), *, width: int | None = None, spare: Sequence[str] = ()) -> str:
        """Columns for a terminal, aligned to the right; those named in ``left`` are aligned to the left.

        width: characters of a line; columns named in ``spare`` are left out, in this order, until the others fit.
        """
        lines = [self.columns, *([shown(cell) for cell in row] for row in self.rows)]
        columns = {name: cells for name, *cells in zip(self.columns, *lines, strict=True)}
        widths = {name: max(map(len, cells)) for name, cells in columns.items()}
        for name in spare:
            if width is not None and sum(widths.values()) + 2 * (len(widths) - 1) > width:
                widths.pop(name, None)
        texts = []
        for place in range(len(lines)):
            cells = (
                f"{columns[name][place]:{'<' if name in left else '>'}{widest}}" for name, widest in widths.items()
            )
            texts.append("  ".join(cells).rstrip())
        return "\n".join(texts)

    def to_csv(self) -> str:
        """Comma-separated, with a header; numbers have six digits."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_for_csv(cell) for cell in row] for row in self.rows)
        return stream.getvalue()

    def to_markdown(self, caption: str) -> str:
        rows = [[_markdown(cell) for cell in row] for row in self.rows]
        lines = [list(self.columns), ["---"] * len(self.columns), *rows]
        return f"**{caption}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def to_html(self, strong: Sequence[bool] = ()) -> str:
        """A ``table`` element; rows marked in ``strong`` are bold."""

        def line(cells: Sequence[Cell], tag: str, bold: bool = False) -> str:
            texts = [html.escape(shown(cell)) for cell in cells]
            return "<tr>" + "".join(f"<{tag}>{f'<b>{t}</b>' if bold else t}</{tag}>" for t in texts) + "</tr>"

        marks = [*strong, *[False] * (len(self.rows) - len(strong))]
        body = "".join(line(row, "td", bold) for row, bold in zip(self.rows, marks, strict=True))
        return f"<table><thead>{line(self.columns, 'th')}</thead><tbody>{body}</tbody></table>"

    def to_latex(self, caption: str, notes: Sequence[str] = ()) -> str:
        """For ``\\input`` in a document: a ``table``, or a ``longtable`` if it is longer than a page.

        A table wider than a page is rotated. The first line names the packages that it needs.

        notes: paragraphs below it.
        """
        texts = [self.columns, *([shown(cell).partition("\n")[0] for cell in row] for row in self.rows)]
        width = sum(max(map(len, column)) + 2 for column in zip(*texts, strict=True)) - 2
        is_long, is_wide = len(self.rows) > ROWS_PER_PAGE, width > CHARACTERS_PER_LINE
        small, smaller = (r"\scriptsize", r"\tiny") if is_wide else (r"\footnotesize", r"\scriptsize")
        rows = [" & ".join(_latex_cell(cell, smaller) for cell in row) + r" \\" for row in self.rows]
        head = " & ".join(_latex(name) for name in self.columns) + r" \\"
        about, form = rf"\caption{{{_latex(caption)}}}", "l" * len(self.columns)
        head_lines, body = [r"\hline", head, r"\hline"], [*rows, r"\hline"]
        under = [rf"\par\smallskip {{{smaller} {_latex(note)}\par}}" for note in notes]
        if is_long:
            begin = [rf"{{{small}\setlength{{\tabcolsep}}{{3pt}}"]
            begin += [rf"\begin{{longtable}}{{{form}}}", rf"{about} \\", *head_lines, r"\endhead"]
            lines = [*begin, *body, r"\end{longtable}", *under, "}"]
        else:
            begin = [r"\begin{table}", rf"\centering{small}\setlength{{\tabcolsep}}{{3pt}}", about]
            begin += [rf"\begin{{tabular}}{{{form}}}", *head_lines]
            lines = [*begin, *body, r"\end{tabular}", *under, r"\end{table}"]
        if is_wide:
            lines = [r"\begin{landscape}", *lines, r"\end{landscape}"]
        packages = [name for name, needed in (("longtable", is_long), ("pdflscape", is_wide)) if needed]
        needs = [rf"% needs \usepackage{{{','.join(packages)}}}"] if packages else []
        return "\n".join([*needs, *lines]) + "\n"


def shown(cell: Cell) -> str:
    """A cell as text.

    >>> shown(None), shown(True), shown(0.123456), shown(TwoLines("92.0", "91.6"))
    ('–', 'yes', '0.1235', '92.0\\n91.6')
    """
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:.1f}"
    if isinstance(cell, TwoLines):
        return "\n".join(line for line in cell if line is not None)
    return str(cell)


def _for_csv(cell: Cell) -> str | int | float | None:
    if isinstance(cell, bool | TwoLines):
        return shown(cell)
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def _markdown(cell: Cell) -> str:
    above, _, below = shown(cell).replace("|", "\\|").partition("\n")
    return f"{above}<br><small>{below}</small>" if below else above


def _latex_cell(cell: Cell, smaller: str) -> str:
    above, _, below = shown(cell).partition("\n")
    if not below:
        return _latex(above)
    return rf"\shortstack[l]{{\strut {_latex(above)}\\{{{smaller} {_latex(below)}}}}}"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "−": "$-$", "–": "--", "α": r"$\alpha$", "×": r"$\times$", "→": r"$\to$", "√": r"$\surd$"}
_LATEX |= {"†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}"}


def _latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found.group()], text)


def facts(values: dict[str, Any], *, as_json: bool = False) -> str:
    """Names and values, one per line, or as JSON."""
    if as_json:
        return json.dumps(values, indent=1)
    width = max(map(len, values))
    texts = {
        name: ", ".join(map(str, value)) if isinstance(value, tuple | list) else value for name, value in values.items()
    }
    return "\n".join(f"{name.replace('_', ' '):{width}}  {text}" for name, text in texts.items())


def list_some(names: Sequence[str], most: int = 12) -> str:
    """The first names, and how many more there are.

    >>> list_some(["a", "b", "c"], most=2)
    'a; b; and 1 more'
    """
    rest = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *rest])


def by_value(values: Mapping[str, Hashable]) -> str:
    """Each value with the names that have it; the value alone if all names share one.

    >>> by_value({"none": 3, "layer": 3, "graph": 10}), by_value({"none": 3, "layer": 3})
    ('3 (none and layer), 10 (graph)', '3')
    """
    names = by_key(values, values.__getitem__)
    if len(names) == 1:
        return str(*names)
    return ", ".join(f"{value} ({listing(group)})" for value, group in names.items())


def span(numbers: Iterable[int], between: str = " to ") -> str:
    """The smallest and the largest number.

    >>> span([3, 7, 5]), span([4, 4]), span({1, 2}, "–")
    ('3 to 7', '4', '1–2')
    """
    known = list(numbers)
    return between.join(str(number) for number in sorted({min(known), max(known)}))


def counted(number: int, noun: str) -> str:
    """A number with its noun.

    >>> counted(1, "cell"), counted(2, "cell"), counted(1200, "trial")
    ('1 cell', '2 cells', '1,200 trials')
    """
    return f"{number:,} {noun}" if number == 1 else f"{number:,} {noun}s"


def signed(difference: float, digits: int = 1) -> str:
    """A difference with its sign; without one if all digits are 0.

    >>> signed(-3.04), signed(-0.04), signed(-0.04, 2)
    ('−3.0', '0.0', '−0.04')
    """
    text = f"{difference:+.{digits}f}"
    return text.replace("-", "−") if text.strip("+-0.") else text[1:]


def short(value: Any) -> str:
    """A setting in few characters.

    >>> [short(value) for value in (1e-3, 5e-5, 0.0, 0.5, 64, "sum")]
    ['1e-3', '5e-5', '0', '0.5', '64', 'sum']
    """
    if isinstance(value, float) and 0 < abs(value) < 0.1:
        mantissa, _, exponent = f"{value:e}".partition("e")
        return f"{float(mantissa):g}e{int(exponent)}"
    return f"{value:g}" if isinstance(value, float) else str(value)


def clock(seconds: float) -> str:
    """A duration.

    >>> clock(75), clock(7384), clock(0.4)
    ('1 min 15 s', '2 h 3 min', '0 s')
    """
    whole = round(seconds)
    if whole >= 3600:
        return f"{whole // 3600} h {whole % 3600 // 60} min"
    return f"{whole // 60} min {whole % 60} s" if whole >= 60 else f"{whole} s"
