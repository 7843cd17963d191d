"""Docstrings describe a parameter as ``name: what it is``; this makes them field lists, which Sphinx shows as such."""

from __future__ import annotations

import inspect
import re
from typing import Any

from sphinx.application import Sphinx

DESCRIBED = re.compile(r"(\w+(?:, \w+)*): ")


def parameters_as_fields(app: Sphinx, what: str, name: str, obj: Any, options: Any, lines: list[str]) -> None:
    if what not in ("function", "method", "class"):
        return
    try:
        known = set(inspect.signature(obj).parameters)
    except (TypeError, ValueError):
        return
    for place, line in enumerate(lines):
        found = DESCRIBED.match(line)
        if found and set(found[1].split(", ")) <= known:
            names = found[1].replace(", ", ",\u200b")  # a space would make the first name the type of the second
            lines[place] = f":param {names}: {line[found.end() :]}"


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("autodoc-process-docstring", parameters_as_fields)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
