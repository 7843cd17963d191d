"""The directive ``commands``: every command and option, as the command line's own parser declares them."""

from __future__ import annotations

import argparse
import os
import re
from collections.abc import Iterator

from docutils import nodes
from docutils.statemachine import StringList
from sphinx.application import Sphinx
from sphinx.util.docutils import SphinxDirective

from graphnorm.cli import COMMANDS, make_parser


def subparsers(parser: argparse.ArgumentParser) -> dict[str, argparse.ArgumentParser]:
    for action in parser._actions:
        if isinstance(action, argparse._SubParsersAction):
            return dict(action.choices)
    return {}


def spelled(action: argparse.Action) -> str:
    """An option as one types it: ``-n, --norms A,B``."""
    if action.nargs == 0:
        return ", ".join(action.option_strings)
    name = action.metavar or (action.dest if not action.option_strings else action.dest.upper())
    value = " ".join(name) if isinstance(name, tuple) else name
    if action.choices is not None and action.metavar is None:
        value = "{" + ",".join(map(str, action.choices)) + "}"
    if action.nargs in ("*", "+") or isinstance(action.nargs, int):
        value += " …"
    return ", ".join(f"{option} {value}" for option in action.option_strings) or value


def sentence(text: str) -> str:
    """Plain text as reStructuredText: commands and options as code, on one line."""
    outside = [
        re.sub(r"(?<![\w-])(--[a-z][\w-]*)", r"``\1``", part.replace("*", r"\*")) if place % 2 == 0 else f"``{part}``"
        for place, part in enumerate(" ".join(text.split()).split("`"))
    ]
    return "".join(outside)


def prose(text: str) -> Iterator[str]:
    """Paragraphs of a help text; those with indented lines keep their layout."""
    for paragraph in text.strip("\n").split("\n\n"):
        if "\n  " in f"\n{paragraph}":
            yield from ["::", "", *(f"    {line}" for line in paragraph.splitlines()), ""]
        else:
            yield from [sentence(paragraph), ""]


def lines(parser: argparse.ArgumentParser) -> Iterator[str]:
    """reStructuredText of one parser: what it is for, its options by group, examples."""
    yield from prose(parser.description or "")
    yield from [f".. program:: {parser.prog}", ""]
    for group in parser._action_groups:
        actions = [a for a in group._group_actions if a.help != argparse.SUPPRESS]
        actions = [a for a in actions if not isinstance(a, (argparse._HelpAction, argparse._SubParsersAction))]
        if actions and group.title not in ("positional arguments", "options"):
            yield from [f"**{group.title}**", ""]
        for action in actions:
            help_text = parser._get_formatter()._expand_help(action) if action.help else ""
            yield from [f".. option:: {spelled(action)}", "", f"   {sentence(help_text)}", ""]
    if parser.epilog:
        yield from prose(parser.epilog)


class Commands(SphinxDirective):
    def section(self, parser: argparse.ArgumentParser) -> nodes.section:
        found = nodes.section(ids=[nodes.make_id(parser.prog)])
        found += nodes.title(text=parser.prog)
        usage = re.sub("(?m)^(usage: |       )", "", parser.format_usage())
        found += nodes.literal_block(usage, usage, language="text", classes=["usage"])
        self.state.nested_parse(StringList(list(lines(parser)), source=parser.prog), 0, found)
        found += [self.section(one) for one in subparsers(parser).values()]
        return found

    def run(self) -> list[nodes.Node]:
        os.environ["COLUMNS"] = "84"
        return [self.section(subparsers(make_parser(command))[command]) for command in COMMANDS]


def setup(app: Sphinx) -> dict[str, bool]:
    app.add_directive("commands", Commands)
    return {"parallel_read_safe": True, "parallel_write_safe": True}
