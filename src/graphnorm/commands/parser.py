"""The parser of the command line: help that fits the terminal, and errors that name the nearest option."""

from __future__ import annotations

import argparse
import re
import shutil
import textwrap
from typing import Any, NoReturn

from graphnorm.errors import GraphnormError, unknown
from graphnorm.settings import nearest

__all__ = ["NARROWEST", "Parser"]

NARROWEST = 40
"""No text is made narrower, whatever the terminal says."""
FEW_OPTIONS = 6
"""More than these are not listed in the line of usage."""
SECOND_COLUMN = 24
"""Where the explanation of an entry of a help text begins, at the latest."""


class HelpFormatter(argparse.HelpFormatter):
    """Help that fits the terminal: paragraphs are wrapped, and lists of indented entries keep two columns."""

    def __init__(self, prog: str, **options: Any) -> None:
        super().__init__(prog, width=max(shutil.get_terminal_size().columns - 2, NARROWEST), **options)

    def add_usage(self, usage: str | None, actions: Any, groups: Any, prefix: str | None = None) -> None:
        positional = [action for action in actions if not action.option_strings]
        if usage is None and len(actions) - len(positional) > FEW_OPTIONS:
            usage = " ".join(["%(prog)s [options]", *(self._format_args(action, action.dest) for action in positional)])
        super().add_usage(usage, actions, groups, prefix)

    def add_argument(self, action: argparse.Action) -> None:
        super().add_argument(action)
        if isinstance(action, argparse._SubParsersAction):  # argparse forgets that commands are indented
            self._action_max_length += self._indent_increment

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)

    def _fill_text(self, text: str, width: int, indent: str) -> str:
        blocks = ([line for line in block.split("\n") if line] for block in text.split("\n\n"))
        return "\n\n".join("\n".join(self._block(lines, width)) for lines in blocks)

    def _block(self, lines: list[str], width: int) -> list[str]:
        if not any(line.startswith("  ") for line in lines):
            return textwrap.wrap(" ".join(lines), width, break_on_hyphens=False)
        shown = []
        entries: list[list[str]] = []  # the two columns of each
        for line in lines:
            if line.startswith("   ") and entries:  # the second column goes on
                entries[-1][1] += f" {line.strip()}"
            elif line.startswith("  "):
                entries.append([*re.split(r"\s{2,}", line.strip(), maxsplit=1), ""][:2])
            else:
                shown.append(line)
        column = min(max(len(name) for name, _ in entries), SECOND_COLUMN - 4) + 4
        for name, about in entries:
            first, *more = textwrap.wrap(about, width - column, break_on_hyphens=False) or [""]
            beside = len(name) <= column - 4
            shown += [f"  {name:<{column - 2}}{first}".rstrip()] if beside else self._command(name, width)
            shown += [" " * column + line for line in (more if beside else [first, *more]) if line]
        return shown

    def _command(self, text: str, width: int) -> list[str]:
        """A command on as many lines as it takes, as a shell reads them."""
        lines = textwrap.wrap(text, width - 4, break_on_hyphens=False, break_long_words=False)
        return [f"  {line}" for line in (" \\\n      ".join(lines)).split("\n")]


class Parser(argparse.ArgumentParser):
    """A parser whose errors are those of the package: one message, with the nearest name and a remedy."""

    def __init__(self, **options: Any) -> None:
        options.setdefault("formatter_class", HelpFormatter)
        super().__init__(allow_abbrev=False, **options)

    def error(self, message: str) -> NoReturn:
        raise GraphnormError(message, remedy=f"see {self.prog} --help")

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        found, extra = super().parse_known_args(args, namespace)
        if extra:
            what = "option" if extra[0].startswith("-") else "argument"
            name = extra[0].partition("=")[0]
            flags = list(self._option_string_actions)
            near = next((flag for flag in flags if flag.startswith(name)), None) or nearest(name, flags)
            hint = f"; did you mean {near}?" if near else ""
            self.error(f"unknown {what} {name}{hint}")
        return found, extra

    def _get_value(self, action: argparse.Action, arg_string: str) -> Any:
        if not arg_string and action.nargs != argparse.PARSER:  # an empty path would be the current folder
            raise GraphnormError(f"{action.dest} is empty", remedy="give a value, or leave it out")
        return super()._get_value(action, arg_string)

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        if action.choices is not None and value not in action.choices:
            raise unknown(str(action.metavar or action.dest).lower(), str(value), action.choices)
