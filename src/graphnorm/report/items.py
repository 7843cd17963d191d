"""The paper's claims and tables for a page's head, as ``graphnorm reproduce`` wrote them.

They are Markdown of one small form: headings, tables and paragraphs, with ``**bold**``, ```code``` and, in a cell, a
second line ``<br><small>…</small>``. Everything else is text, whatever markup it looks like.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import NamedTuple

from graphnorm.errors import GraphnormError

__all__ = ["Items", "Span", "Told", "read_items", "spans", "tone"]

CLAIMS = "claims"
TABLES = ("table1", "table2")
REMEDY = "graphnorm reproduce all --no-train --store STORE --out FOLDER writes it"


class Span(NamedTuple):
    """A piece of text, and the name of the HTML element that it is shown as; none for plain text."""

    element: str
    text: str


@dataclass(frozen=True)
class Told:
    """A table with its title, what is said about it, and of its first column's words."""

    id: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    paragraphs: Sequence[str] = ()
    more: Mapping[str, Sequence[str]] = field(default_factory=dict)
    """Paragraphs by the row's first cell."""

    @property
    def names(self) -> int:
        """How many of the first columns name a row: those before the first with a number in it."""
        numbers = [any(re.match(r"[+−]?\d", row[place]) for row in self.rows) for place in range(len(self.columns))]
        return max(1, [*numbers, True].index(True))


@dataclass(frozen=True)
class Items:
    """What there is of them."""

    claims: Told | None
    tables: Sequence[Told]


def read_items(folder: Path) -> Items:
    """Read ``claims.md`` and the tables of a folder, in the paper's shape where it has them so; else quick ones."""
    claims = _find(folder, CLAIMS)
    tables = [_read(file) for name in TABLES if (file := _find(folder, name)) is not None]
    if claims is None and not tables:
        problem = "there are neither claims nor tables in it" if folder.is_dir() else "there is no such folder"
        raise GraphnormError(problem, where=folder, remedy=REMEDY)
    return Items(None if claims is None else _read(claims), tables)


def spans(text: str) -> list[Span]:
    """Text in pieces.

    >>> spans("**Holds**: <b> of `table1`")
    [Span(element='strong', text='Holds'), Span(element='', text=': <b> of '), Span(element='code', text='table1')]
    """
    found, end = [], 0
    for match in re.finditer(r"\*\*(.+?)\*\*|`([^`]+)`|<br><small>(.*?)</small>", text):
        found.append(Span("", text[end : match.start()]))
        element = ("strong", "code", "small")[(match.lastindex or 1) - 1]
        found.append(Span(element, match[match.lastindex or 0]))
        end = match.end()
    return [span for span in [*found, Span("", text[end:])] if span.text]


def tone(verdict: str) -> str:
    """How a claim's verdict is marked beside its words; nothing for what is no verdict.

    >>> tone("holds"), tone("holds in part"), tone("does not hold here"), tone("4 of 8")
    ('yes', 'part', 'no', '')
    """
    starts = {"holds in part": "part", "holds": "yes", "does not hold": "no"}
    return next((mark for start, mark in starts.items() if verdict.startswith(start)), "")


def _find(folder: Path, name: str) -> Path | None:
    names = [f"{stem}{shape}.md" for stem in (name, f"{name}-quick") for shape in ("-wide", "")]
    return next((folder / file for file in names if (folder / file).exists()), None)


def _read(file: Path) -> Told:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GraphnormError("this is no text", where=file, remedy=REMEDY) from error
    title, section = "", ""
    table: list[list[str]] = []
    told: dict[str, list[str]] = {"": []}
    for block in re.split(r"\n\s*\n", text.strip()):
        if block.startswith("|") and not table:
            table = _table(block, file)
        elif heading := re.fullmatch(r"#{2,} (.*)", block):
            section = heading[1]
            told[section] = []
        elif not title and (found := re.fullmatch(r"# (.*)|\*\*(.*)\*\*", block)):
            title = found[1] or found[2]
        else:
            told[section].append(" ".join(block.splitlines()))
    if not table:
        raise GraphnormError("there is no table in it", where=file, remedy=REMEDY)
    columns, *rows = table
    paragraphs = told.pop("")
    name = file.stem.removesuffix("-wide")
    return Told(name, title or name, columns, rows, [*paragraphs, *_origin(file.with_name(f"{name}.json"), text)], told)


def _table(block: str, file: Path) -> list[list[str]]:
    """Cells by row, the head first."""
    lines = [line.strip() for line in block.splitlines()]
    rows = [
        [cell.strip().replace("\\|", "|") for cell in re.split(r"(?<!\\)\|", line[1:-1])]
        for line in lines
        if line.startswith("|") and line.endswith("|")
    ]
    if (
        len(rows) < len(lines)
        or len(rows) < 2
        or len({len(row) for row in rows}) > 1
        or not all(re.fullmatch(r":?-+:?", cell) for cell in rows[1])
    ):
        raise GraphnormError("its table is not whole", where=file, remedy=REMEDY)
    return [rows[0], *rows[2:]]


def _origin(file: Path, text: str) -> list[str]:
    """When and on what it was made, by the item's facts, where its own text does not say so."""
    try:
        facts = json.loads(file.read_text(encoding="utf-8"))
        day, devices = facts["made"][:10], ", ".join(facts["trained_on"])
    except (OSError, ValueError, KeyError, TypeError):
        return []
    return [] if day in text else [f"Made on {day}" + (f"; trained on {devices}." if devices else ".")]
