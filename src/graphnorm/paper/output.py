"""The output of an item: figures with their data, tables, sentences and facts, and how they are written to files.

An item that cannot be made is left out; the errors here say why.
"""

from __future__ import annotations

import io
import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from graphnorm.errors import StudyError
from graphnorm.files import replacing, write_text
from graphnorm.study.render import Table, TwoLines

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["QUICK_NOTE", "LeftOutError", "NothingThereError", "Output", "Sheet", "provenance"]

QUICK_NOTE = "QUICK PASS: scaled down, not the paper's setting"
COLOURS_OF_A_PNG = 128
FONTS = ["DejaVu Sans", "Verdana"]
"""For the text of an SVG, after which a viewer takes any without serifs."""


class LeftOutError(StudyError):
    """An item cannot be made without training or downloads."""


class NothingThereError(LeftOutError):
    """The store has nothing for an item."""

    def __init__(self, item: str, where: Path) -> None:
        super().__init__(
            f"this store has no results for {item}",
            where=where,
            remedy="leave out --no-train; add --retry-failed if it failed",
        )


class Sheet(NamedTuple):
    """A table in a file of its own."""

    table: Table
    notes: tuple[str, ...] = ()
    """Below it: what its marks mean, and where its numbers come from."""
    addition: str = ""
    """Appended to the item's caption."""


@dataclass(frozen=True, eq=False)
class Output:
    """A table or figure, ready to be written."""

    item: str
    caption: str
    quick: bool
    figures: Mapping[str, Figure] = field(default_factory=dict)
    """By the suffix of the file's name; '' if there is only one."""
    data: Table | None = None
    """The numbers behind the figures, or the table with a number in each column: written as CSV."""
    table: Table | None = None
    """For people: written as Markdown and LaTeX, and as CSV if there is no ``data``."""
    sheets: Mapping[str, Sheet] = field(default_factory=dict)
    """More tables, by the suffix of their files' names."""
    sentences: tuple[str, ...] = ()
    facts: Mapping[str, Any] = field(default_factory=dict)
    """Configuration, versions, devices, numbers."""

    @property
    def title(self) -> str:
        """The caption, with the mark of a quick pass."""
        return self._titled("")

    def _titled(self, addition: str) -> str:
        caption = self.caption + addition
        return f"{caption}. {QUICK_NOTE}" if self.quick else caption

    @property
    def stem(self) -> str:
        """The beginning of its files' names."""
        return f"{self.item}-quick" if self.quick else self.item

    def to_dict(self) -> dict[str, Any]:
        """Everything but the figures, for JSON."""
        return {
            "item": self.item,
            "title": self.title,
            "quick": self.quick,
            "sentences": list(self.sentences),
            **self.facts,
            "tables": {
                suffix: {
                    "title": self._titled(sheet.addition),
                    "columns": list(sheet.table.columns),
                    "rows": [
                        [cell._asdict() if isinstance(cell, TwoLines) else cell for cell in row]
                        for row in sheet.table.rows
                    ],
                    "notes": list(sheet.notes),
                }
                for suffix, sheet in self._sheets().items()
            },
        }

    def _sheets(self) -> dict[str, Sheet]:
        main = {} if self.table is None else {"": Sheet(self.table, (*self.sentences, *provenance(self.facts)))}
        return {**main, **self.sheets}

    def write(self, folder: Path) -> list[Path]:
        """Write all files, each completely or not at all."""
        texts: dict[str, str] = {}
        for suffix, (table, notes, addition) in self._sheets().items():
            title = self._titled(addition)
            texts[f"{suffix}.md"] = table.to_markdown(title) + "".join(f"\n{note}\n" for note in notes)
            texts[f"{suffix}.tex"] = table.to_latex(title, notes)
        if (data := self.data or self.table) is not None:
            texts[".csv"] = data.to_csv()
        texts[".json"] = json.dumps(self.to_dict(), indent=1, ensure_ascii=False) + "\n"
        files = []
        for suffix, figure in self.figures.items():
            self._mark(figure)
            for ending in ("png", "svg"):
                files.append(folder / f"{self.stem}{suffix}.{ending}")
                with replacing(files[-1]) as fresh:
                    _save(figure, fresh, ending)
        for ending, text in texts.items():
            files.append(folder / f"{self.stem}{ending}")
            write_text(files[-1], text)
        return files

    def _mark(self, figure: Figure) -> None:
        own = figure.get_suptitle()
        title = own if own.startswith(self.title) else f"{self.title}\n{own}".strip()
        figure.suptitle(title, fontsize=10, color="#b3261e" if self.quick else "black", wrap=True)


def _save(figure: Figure, path: Path, ending: str) -> None:
    """Equal figures give equal bytes: without a date, and with fixed ids of their parts."""
    import matplotlib
    from PIL import Image

    if ending == "svg":
        text = io.StringIO()
        with matplotlib.rc_context({"svg.hashsalt": "graphnorm", "svg.fonttype": "none", "font.sans-serif": FONTS}):
            figure.savefig(text, format="svg", metadata=dict.fromkeys(("Creator", "Date", "Format", "Type")))
        path.write_text(smaller(text.getvalue()), encoding="utf-8")
        return
    buffer = io.BytesIO()
    figure.savefig(buffer, format="png", dpi=150)
    with Image.open(buffer) as image:
        few = image.convert("RGB").quantize(COLOURS_OF_A_PNG, dither=Image.Dither.NONE)
        few.save(path, format="png", optimize=True)


def smaller(svg: str) -> str:
    """The same picture in less text: without needless digits and spaces, and lines as steps from point to point.

    >>> smaller('<path d="M 1.00004 2 L 2.51234 3.1 L 3.5 3.1 z" style="fill: none; opacity: 0.123456"/>')
    '<path d="M1 2l1.5 1.1 1 0z" style="fill:none;opacity:0.12"/>'
    """
    svg = svg.replace("*{stroke-linejoin", "text{text-rendering: geometricPrecision} *{stroke-linejoin")
    return re.sub(r"<[^>]+>", lambda tag: _smaller_tag(tag[0]), re.sub(r"\n\s*", "\n", svg))


def _smaller_tag(tag: str) -> str:
    tag = re.sub(r' d="([^"]*)"', lambda path: f' d="{_steps(path[1])}"', tag)
    tag = re.sub(r"\d+\.\d{3,}", lambda number: f"{float(number[0]):.2f}".rstrip("0").rstrip("."), tag)
    return re.sub(r"([:;]) ", r"\1", tag)


def _steps(path: str) -> str:
    """Lines in tenths of a point; a path with curves keeps its coordinates."""
    if re.search("[CQ]", path):
        return " ".join(path.split())
    x = y = 0
    text = ""
    for command, numbers in re.findall(r"([MLz])([^MLz]*)", path):
        if command == "z":
            text += "z"
            continue
        before, (x, y) = (x, y), (round(10 * float(number)) for number in numbers.split())
        if command == "M":
            text, last = f"{text}M{x / 10:g} {y / 10:g}", "M"
        else:
            step = f"{(x - before[0]) / 10:g} {(y - before[1]) / 10:g}"
            text, last = text + (" " if last == "l" else "l") + step, "l"
    return text


def provenance(facts: Mapping[str, Any]) -> tuple[str, ...]:
    """A line with the protocol, date, versions and devices behind the numbers of an item.

    >>> facts = {"made": "2026-11-16T08:00:00+00:00", "graphnorm": "2", "torch": "5", "trained_on": ["cpu"],
    ...          "trained_with": ["graphnorm 1, torch 4"], "studies": [{"spec": {"protocol": "paper"}}]}
    >>> provenance(facts)
    ('Protocol paper; made on 2026-11-16 with graphnorm 2, torch 5; trained on cpu with graphnorm 1, torch 4.',)
    """
    if "made" not in facts:
        return ()
    studies: Sequence[Mapping[str, Any]] = facts["studies"]
    protocols = [p for p in dict.fromkeys(study["spec"]["protocol"] for study in studies) if p != "all"]
    parts = [f"Protocol {' and '.join(protocols)}"] if protocols else []
    parts.append(f"{'made' if parts else 'Made'} on {facts['made'][:10]} with graphnorm {facts['graphnorm']}")
    parts[-1] += f", torch {facts['torch']}"
    if facts["trained_on"]:
        parts.append(f"trained on {' and '.join(facts['trained_on'])} with {' and '.join(facts['trained_with'])}")
    return ("; ".join(parts) + ".",)
