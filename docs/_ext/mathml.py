"""Formulas as MathML, which browsers draw by themselves: pages need neither a network nor JavaScript."""

from __future__ import annotations

import re
from html import escape
from typing import Any

from docutils import nodes
from docutils.utils.math import MathError
from docutils.utils.math.latex2mathml import tex2mathml
from sphinx.application import Sphinx
from sphinx.util.logging import getLogger


def mathml(node: nodes.Node, as_block: bool) -> str:
    """The formula's MathML. Sizes such as ``\\big`` are left to the browser, which stretches parentheses by itself."""
    tex = re.sub(r"\\[bB]igg?[lr]?(?![a-z])", "", node.astext())
    try:
        return str(tex2mathml(tex, as_block=as_block))
    except MathError as error:
        getLogger(__name__).warning("%s in the formula %s", error, tex, location=node)
        return f"<code>{escape(tex)}</code>"


def inline(translator: Any, node: nodes.math) -> None:
    translator.body.append(mathml(node, as_block=False))
    raise nodes.SkipNode


def block(translator: Any, node: nodes.math_block) -> None:
    translator.body.append(f'<div class="math">{mathml(node, as_block=True)}</div>')
    raise nodes.SkipNode


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_html_math_renderer("mathml", (inline, None), (block, None))
    return {"parallel_read_safe": True, "parallel_write_safe": True}
