"""The paper's claims and tables for a page's head, as ``graphnorm reproduce`` wrote them: Markdown.

No HTML of theirs reaches the page but a cell's second line, ``<br><small>…</small>``; all else that looks like markup
is text.
"""

from __future__ import annotations

import json
import re
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, field
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING

from graphnorm.errors import GraphnormError, MissingDependencyError

if TYPE_CHECKING:
    from markdown_it import MarkdownIt
    from markupsafe import Markup

__all__ = ["Items", "Told", "block", "inline", "read_items", "tone"]

CLAIMS = "claims"
TABLES = (("table1", ("-wide", "")), ("table1", ("-fair",)), ("table2", ("-wide", "")))
"""Items, and in which shape: the first of these that there is."""
REMEDY = "graphnorm reproduce all --no-train --store STORE --out FOLDER writes it"


@dataclass(frozen=True)
class Told:
    """A table with its title, what is said about it, and of its first column's words; all in Markdown."""

    id: str
    title: str
    columns: Sequence[str]
    rows: Sequence[Sequence[str]]
    before: str = ""
    after: str = ""
    more: Mapping[str, str] = field(default_factory=dict)
    """By the row's first cell."""

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
    tables = [_read(file) for name, shapes in TABLES if (file := _find(folder, name, shapes)) is not None]
    if claims is None and not tables:
        problem = "there are neither claims nor tables in it" if folder.is_dir() else "there is no such folder"
        raise GraphnormError(problem, where=folder, remedy=REMEDY)
    return Items(None if claims is None else _read(claims), tables)


def inline(text: str) -> Markup:
    """One line of Markdown as HTML, that of a cell or a title.

    >>> inline("**Holds**: <b> of `table1`<br><small>91.6</small>")
    Markup('<strong>Holds</strong>: &lt;b&gt; of <code>table1</code><br><small>91.6</small>')
    """
    return _with_second_lines(_markdown().renderInline(text))


def block(text: str) -> Markup:
    """Paragraphs, lists and tables of Markdown as HTML."""
    return _with_second_lines(_markdown().render(text))


@cache
def _markdown() -> MarkdownIt:
    try:
        from markdown_it import MarkdownIt
    except ImportError as error:
        raise MissingDependencyError("markdown-it-py", "a page with the paper's claims and tables", "report") from error
    return MarkdownIt("js-default").disable(["link", "image", "autolink"])


def _with_second_lines(escaped: str) -> Markup:
    from markupsafe import Markup

    return Markup(re.sub(r"&lt;br&gt;&lt;small&gt;(.*?)&lt;/small&gt;", r"<br><small>\1</small>", escaped))


def tone(verdict: str) -> str:
    """How a claim's verdict is marked beside its words; nothing for what is no verdict.

    >>> tone("holds"), tone("holds in part"), tone("does not hold here"), tone("undecided"), tone("4 of 8")
    ('yes', 'part', 'no', 'open', '')
    """
    starts = {"holds in part": "part", "holds": "yes", "does not hold": "no", "undecided": "open"}
    return next((mark for start, mark in starts.items() if verdict.startswith(start)), "")


def _find(folder: Path, name: str, shapes: Sequence[str] = ("",)) -> Path | None:
    names = [f"{stem}{shape}.md" for stem in (name, f"{name}-quick") for shape in shapes]
    return next((folder / file for file in names if (folder / file).exists()), None)


def _read(file: Path) -> Told:
    try:
        text = file.read_text(encoding="utf-8")
    except UnicodeDecodeError as error:
        raise GraphnormError("this is no text", where=file, remedy=REMEDY) from error
    title = ""
    table: list[list[str]] = []
    around: tuple[list[str], list[str]] = ([], [])
    sections: list[_Section] = []
    for part in re.split(r"\n\s*\n", text.strip()):
        if part.startswith("|") and not table:
            table = _table(part, file)
        elif heading := re.fullmatch(r"(#{2,}) (.*)", part):
            sections.append(_Section(len(heading[1]), heading[2]))
        elif not title and (found := re.fullmatch(r"# (.*)|\*\*(.*)\*\*", part)):
            title = found[1] or found[2]
        else:
            (sections[-1].parts if sections else around[bool(table)]).append(part)
    if not table:
        raise GraphnormError("there is no table in it", where=file, remedy=REMEDY)
    columns, *rows = table
    name = file.stem.removesuffix("-wide")
    facts = file.with_name(f"{name.removesuffix('-fair')}.json")
    before, after = map("\n\n".join, (around[0], [*around[1], *_origin(facts, text)]))
    return Told(name, title or name, columns, rows, before, after, _by_section(sections))


@dataclass(frozen=True)
class _Section:
    level: int
    title: str
    parts: list[str] = field(default_factory=list)


def _by_section(sections: Sequence[_Section]) -> dict[str, str]:
    """What each section says; where sections form a chapter, with the origin and notes at that chapter's end."""
    chapters: list[list[_Section]] = []
    for section in sections:
        if section.level == 2 or not chapters:
            chapters.append([])
        chapters[-1].append(section)
    told = {}
    for chapter in chapters:
        last = chapter[-1].parts
        start = next((k for k, part in enumerate(last) if part.startswith("From `")), len(last))
        for section in chapter:
            own = last[:start] if section is chapter[-1] else section.parts
            told[section.title] = "\n\n".join([*own, *last[start:]])
    return told


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
