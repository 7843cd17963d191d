"""Products: a table or figure that was made, and the files it is written to."""

from __future__ import annotations

import csv
import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphnorm.files import replacing

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["QUICK_NOTE", "Product", "Sheet", "Stacked", "Table", "list_some", "provenance", "signed"]

QUICK_NOTE = "QUICK PASS: scaled down, not the paper's setting"
"""What every output of a quick pass says."""
NOTHING = "–"
PAGE = 40
"""Rows of a table that fit on a page."""
LINE = 120
"""Characters of a row that fit on its width, in footnote size."""


class Stacked(NamedTuple):
    """Two lines in one cell, the lower one smaller."""

    above: str
    below: str | None = None


Cell = str | int | float | bool | Stacked | None


@dataclass(frozen=True)
class Table:
    """Columns and rows of plain values; None is what there is not."""

    columns: tuple[str, ...]
    rows: Sequence[Sequence[Cell]]

    def to_csv(self) -> str:
        """Comma-separated, with a line of column names."""
        stream = io.StringIO()
        writer = csv.writer(stream, lineterminator="\n")
        writer.writerow(self.columns)
        writer.writerows([_for_csv(cell) for cell in row] for row in self.rows)
        return stream.getvalue()

    def to_markdown(self, caption: str) -> str:
        """With its caption above; a vertical bar in a cell is escaped."""
        rows = [[_markdown(cell) for cell in row] for row in self.rows]
        lines = [list(self.columns), ["---"] * len(self.columns), *rows]
        return f"**{caption}**\n\n" + "\n".join(f"| {' | '.join(line)} |" for line in lines) + "\n"

    def to_latex(self, caption: str, notes: Sequence[str] = ()) -> str:
        """To be put into a document by ``\\input``: a ``table``, or a ``longtable`` where it is longer than a page.

        notes: paragraphs under it. A table wider than a page is turned. Packages that it needs are in its first line.
        """
        is_long, is_wide = len(self.rows) > PAGE, self._width > LINE
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

    @property
    def _width(self) -> int:
        """Characters of a row, each column as wide as its widest cell, and two between columns."""
        shown = [self.columns, *([_shown(cell).partition("\n")[0] for cell in row] for row in self.rows)]
        return sum(max(map(len, column)) for column in zip(*shown, strict=True)) + 2 * (len(self.columns) - 1)


class Sheet(NamedTuple):
    """A table beside an item's main one."""

    table: Table
    notes: tuple[str, ...] = ()
    """Under it: what its marks mean, and where its numbers come from."""
    addition: str = ""
    """To the item's caption."""


@dataclass(frozen=True, eq=False)
class Product:
    """An item as it came out: figures with the data behind them, tables, and sentences."""

    item: str
    caption: str
    quick: bool
    figures: dict[str, Figure] = field(default_factory=dict)
    """By what is added to the item's name in the file's name; '' for the item's one figure."""
    data: Table | None = None
    """What the figures show."""
    table: Table | None = None
    """For people: shown as Markdown and LaTeX."""
    sheets: dict[str, Sheet] = field(default_factory=dict)
    """Tables in files of their own, by what is added to the item's name."""
    sentences: tuple[str, ...] = ()
    facts: dict[str, Any] = field(default_factory=dict)
    """Configuration, versions, devices, numbers: written as JSON."""

    @property
    def title(self) -> str:
        """The caption, with the mark of a quick pass."""
        return self._titled("")

    def _titled(self, addition: str) -> str:
        caption = self.caption + addition
        return f"{caption}. {QUICK_NOTE}" if self.quick else caption

    @property
    def stem(self) -> str:
        """How its files' names begin."""
        return f"{self.item}-quick" if self.quick else self.item

    def write(self, folder: Path) -> list[Path]:
        """Write every file, each wholly or not at all."""
        texts: dict[str, str] = {}
        main = {} if self.table is None else {"": Sheet(self.table, (*self.sentences, *provenance(self.facts)))}
        for suffix, (table, notes, addition) in (main | self.sheets).items():
            title = self._titled(addition)
            texts[f"{suffix}.md"] = table.to_markdown(title) + "".join(f"\n{note}\n" for note in notes)
            texts[f"{suffix}.tex"] = table.to_latex(title, notes)
        if (data := self.data or self.table) is not None:
            texts[".csv"] = data.to_csv()
        described = {"item": self.item, "title": self.title, "quick": self.quick, "sentences": list(self.sentences)}
        texts[".json"] = json.dumps(described | self.facts, indent=1, ensure_ascii=False) + "\n"
        files = []
        for suffix, figure in self.figures.items():
            self._mark(figure)
            for ending in ("png", "svg", "pdf"):
                files.append(folder / f"{self.stem}{suffix}.{ending}")
                with replacing(files[-1]) as fresh:
                    _save(figure, fresh, ending)
        for ending, text in texts.items():
            files.append(folder / f"{self.stem}{ending}")
            with replacing(files[-1]) as fresh:
                fresh.write_text(text, encoding="utf-8")
        return files

    def _mark(self, figure: Figure) -> None:
        own = figure.get_suptitle()
        title = self.title if not own or own.startswith(self.title) else f"{self.title}\n{own}"
        figure.suptitle(title, fontsize=10, color="#b3261e" if self.quick else "black", wrap=True)


def _save(figure: Figure, path: Path, ending: str) -> None:
    """The same picture, the same bytes: no date in it, and names of its parts that are not drawn at random."""
    import matplotlib

    undated = {"svg": {"Date": None}, "pdf": {"CreationDate": None}}
    with matplotlib.rc_context({"svg.hashsalt": "graphnorm"}):
        figure.savefig(path, format=ending, dpi=150, metadata=undated.get(ending))


def _shown(cell: Cell) -> str:
    if cell is None:
        return NOTHING
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, float):
        return f"{cell:.4g}" if abs(cell) < 1000 else f"{cell:.1f}"
    if isinstance(cell, Stacked):
        return "\n".join(line for line in cell if line is not None)
    return str(cell)


def _for_csv(cell: Cell) -> str | int | float | None:
    if isinstance(cell, bool):
        return "yes" if cell else "no"
    if isinstance(cell, Stacked):
        return _shown(cell)
    return f"{cell:.6g}" if isinstance(cell, float) else cell


def _markdown(cell: Cell) -> str:
    text = _shown(cell).replace("|", "\\|")
    above, _, below = text.partition("\n")
    return f"{above}<br><small>{below}</small>" if below else text


def _latex_cell(cell: Cell, smaller: str) -> str:
    above, _, below = _shown(cell).partition("\n")
    if not below:
        return _latex(above)
    return rf"\shortstack[l]{{\strut {_latex(above)}\\{{{smaller} {_latex(below)}}}}}"


_LATEX = {"\\": r"\textbackslash{}", "~": r"\textasciitilde{}", "^": r"\textasciicircum{}"}
_LATEX |= {character: f"\\{character}" for character in "&%$#_{}"}
_LATEX |= {"±": r"$\pm$", "−": "$-$", "–": "--", "α": r"$\alpha$", "×": r"$\times$", "→": r"$\to$", "√": r"$\surd$"}
_LATEX |= {"†": r"\dag{}", "‡": r"\ddag{}", "§": r"\S{}"}


def _latex(text: str) -> str:
    return re.sub("|".join(map(re.escape, _LATEX)), lambda found: _LATEX[found.group()], text)


def provenance(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """One line that says by which protocol, when, with what and where the numbers of an item came to be.

    >>> facts = {"made": "2026-11-16T08:00:00+00:00", "graphnorm": "2", "torch": "5", "trained_on": ["cpu"],
    ...          "trained_with": ["graphnorm 1, torch 4"], "studies": [{"spec": {"protocol": "paper"}}]}
    >>> provenance(facts)
    ('Protocol paper; made on 2026-11-16 with graphnorm 2, torch 5; trained on cpu with graphnorm 1, torch 4.',)
    """
    if "made" not in facts:
        return ()
    protocols = dict.fromkeys(study["spec"]["protocol"] for study in facts["studies"])
    parts = [f"Protocol {' and '.join(protocols)}"] if protocols else []
    parts.append(f"{'made' if parts else 'Made'} on {facts['made'][:10]} with graphnorm {facts['graphnorm']}")
    parts[-1] += f", torch {facts['torch']}"
    if facts["trained_on"]:
        parts.append(f"trained on {' and '.join(facts['trained_on'])} with {' and '.join(facts['trained_with'])}")
    return ("; ".join(parts) + ".",)


def list_some(names: Sequence[str], most: int = 12) -> str:
    """The first names, and how many there are besides.

    >>> list_some(["a", "b", "c"], most=2)
    'a; b; and 1 more'
    """
    rest = [f"and {len(names) - most} more"] if len(names) > most else []
    return "; ".join([*names[:most], *rest])


def signed(difference: float, digits: int = 1) -> str:
    """A difference to so many digits, with its sign; none where they are all 0.

    >>> signed(-3.04), signed(-0.04), signed(-0.04, 2)
    ('−3.0', '0.0', '−0.04')
    """
    text = f"{difference:+.{digits}f}"
    return text.replace("-", "−") if text.strip("+-0.") else text[1:]
