"""Pages for readers with a keyboard or a screen reader: what the theme leaves out."""

from __future__ import annotations

import re
from typing import Any

from sphinx.application import Sphinx

SCROLLED = re.compile(r'<(pre|div class="(?:table-wrapper|math)[^"]*")>')
LATE = 900
"""After the theme has made its navigation."""


def complete(app: Sphinx, page: str, template: str, context: dict[str, Any], doctree: Any) -> None:
    """Code, tables and formulas that are wider than the screen are scrolled by keys; captions have a level."""
    if "body" in context:
        context["body"] = SCROLLED.sub(r'<\1 tabindex="0">', context["body"])
    if "furo_navigation_tree" in context:
        tree = context["furo_navigation_tree"]
        context["furo_navigation_tree"] = tree.replace('role="heading"', 'role="heading" aria-level="2"')


def setup(app: Sphinx) -> dict[str, bool]:
    app.connect("html-page-context", complete, priority=LATE)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
