"""The paper's claims and tables for the top of a page, from the JSON that ``graphnorm reproduce`` writes."""

from __future__ import annotations

import base64
import html
import json
import os
import re
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from functools import partial
from pathlib import Path
from typing import Any, NamedTuple

from graphnorm.errors import GraphnormError
from graphnorm.study.render import TwoLines, shown

__all__ = ["Reproduced", "inline", "read_reproduced"]

TABLES = (("table1", ("-wide", "")), ("table1", ("-fair",)), ("table2", ("-wide", "")))
"""Items with their layouts, the preferred one first."""
FIGURE = "fig2"
"""The picture at the top of the page."""
NAMES = ("dataset", "model", "norm")
"""The columns of a table that name its rows."""
TONES = {"holds": "yes", "in part": "half", "does not hold here": "no", "undecided": "open", "not tested": "open"}
"""The CSS class of each verdict, in the order of the strip."""
REMEDY = "graphnorm reproduce all --no-train --store STORE --out FOLDER writes it"


class Reproduced(NamedTuple):
    """Claims and tables, ready for the template."""

    claims: Mapping[str, Any] | None
    tables: Sequence[Mapping[str, Any]]
    figure: Picture | None = None


class Picture(NamedTuple):
    """A figure as an image inside the page."""

    title: str
    link: str


def read_reproduced(folder: str | os.PathLike[str]) -> Reproduced:
    """Read the claims and Tables 1 and 2 of a folder; those of a quick pass if there are no others."""
    folder = Path(folder)
    claims = _read(folder, "claims", _claims)
    tables = [_read(folder, item, partial(_table, item, layouts)) for item, layouts in TABLES]
    found = Reproduced(claims, [table for table in tables if table is not None], _read_picture(folder))
    if not any(found):
        problem = "there are neither claims nor tables in it" if folder.is_dir() else "there is no such folder"
        raise GraphnormError(problem, where=folder, remedy=REMEDY)
    return found


def _read_picture(folder: Path) -> Picture | None:
    file = next((path for stem in (FIGURE, f"{FIGURE}-quick") if (path := folder / f"{stem}.svg").exists()), None)
    if file is None:
        return None
    title = _read(folder, FIGURE, lambda found: str(found["title"])) or file.stem
    return Picture(title, "data:image/svg+xml;base64," + base64.b64encode(file.read_bytes()).decode())


def _read(folder: Path, stem: str, make: Callable[[Any], Any]) -> Any:
    """Convert a JSON file, or that of a quick pass, by ``make``; None if there is neither."""
    file = next((path for name in (stem, f"{stem}-quick") if (path := folder / f"{name}.json").exists()), None)
    if file is None:
        return None
    try:
        return make(json.loads(file.read_text(encoding="utf-8")))
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        problem = f"this is not what graphnorm reproduce writes: {error!r}"
        raise GraphnormError(problem, where=file, remedy=REMEDY) from error


def _claims(found: Mapping[str, Any]) -> dict[str, Any]:
    texts = ("claim", "verdict", "tally", "words", "remark", "notes", "provenance", "columns", "rows")
    rows = [{**{name: one[name] for name in texts}, "tone": TONES.get(one["verdict"], "")} for one in found["claims"]]
    counts = Counter(row["verdict"] for row in rows)
    strip = [(verdict, TONES[verdict], counts[verdict]) for verdict in TONES if counts[verdict]]
    unjudged = dict(found["unjudged"])
    return {"quick": found["quick"], "rules": found["rules"], "unjudged": unjudged, "rows": rows, "strip": strip}


def _table(item: str, layouts: Sequence[str], found: Mapping[str, Any]) -> dict[str, Any] | None:
    layout = next((layout for layout in layouts if layout in found["tables"]), None)
    if layout is None:
        return None
    table = found["tables"][layout]
    columns = list(table["columns"])
    if any(len(row) != len(columns) for row in table["rows"]):
        raise ValueError("a row has too few cells, or too many")
    return {
        "id": item + layout.removesuffix("-wide"),
        "title": table["title"],
        "columns": columns,
        "names": next((k for k, column in enumerate(columns) if column not in NAMES), len(columns)),
        "rows": [
            [TwoLines(**cell) if isinstance(cell, Mapping) else TwoLines(shown(cell)) for cell in row]
            for row in table["rows"]
        ],
        "notes": list(table["notes"]),
    }


def inline(text: str) -> str:
    """Text in HTML, with ``code`` in backticks and *emphasis* in asterisks.

    >>> inline("*Holds* for `graph` & <b>")
    '<em>Holds</em> for <code>graph</code> &amp; &lt;b&gt;'
    """
    escaped = html.escape(text)
    return re.sub(r"\*([^*]+)\*", r"<em>\1</em>", re.sub(r"`([^`]+)`", r"<code>\1</code>", escaped))
