"""What commands print: facts by name, and tables."""

from __future__ import annotations

import json
from collections.abc import Sequence
from typing import Any

__all__ = ["print_facts", "print_table"]


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print names and values, one a line, or as JSON."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else value
        print(f"{name.replace('_', ' '):{width}}  {text}")


def print_table(columns: Sequence[str], rows: Sequence[Sequence[str]], *, left: Sequence[str] = ()) -> None:
    """Print rows in columns; those named in ``left`` begin at the left, the others end at the right."""
    widths = [max(map(len, cells)) for cells in zip(columns, *rows, strict=True)]
    for row in (columns, *rows):
        cells = (
            f"{cell:<{width}}" if column in left else f"{cell:>{width}}"
            for column, cell, width in zip(columns, row, widths, strict=True)
        )
        print("  ".join(cells).rstrip())
