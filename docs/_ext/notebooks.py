"""Notebooks as pages: their cells as Markdown, with the outputs that they were saved with."""

from __future__ import annotations

import json
from typing import Any

from docutils import nodes
from myst_parser.parsers.sphinx_ import MystParser
from sphinx.application import Sphinx


def output(one: dict[str, Any]) -> str:
    """The richest form of an output that a page can show."""
    data = one.get("data", {})
    if "image/png" in data:
        picture = "".join(data["image/png"]).strip()
        return f'```{{raw}} html\n<img class="output" alt="output" src="data:image/png;base64,{picture}">\n```'
    if "text/html" in data:
        return f'```{{raw}} html\n<div class="output">{"".join(data["text/html"])}</div>\n```'
    return f"```text\n{''.join(one.get('text') or data.get('text/plain', []))}\n```"


def markdown(notebook: dict[str, Any]) -> str:
    cells = []
    for cell in notebook["cells"]:
        source = "".join(cell["source"])
        if cell["cell_type"] == "markdown":
            cells.append(source)
        else:
            cells += [f"```python\n{source}\n```", *map(output, cell["outputs"])]
    return "\n\n".join(cells)


class NotebookParser(MystParser):
    """Reads ``.ipynb`` files."""

    supported = ("ipynb",)

    def parse(self, inputstring: str, document: nodes.document) -> None:
        super().parse(markdown(json.loads(inputstring)), document)


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_source_suffix(".ipynb", "ipynb")
    app.add_source_parser(NotebookParser)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
