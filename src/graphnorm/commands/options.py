"""Options that several commands share: from :mod:`graphnorm.settings` to a parser, and back to keywords."""

from __future__ import annotations

import argparse
import contextlib
import json
import os
import shutil
import sys
from collections.abc import Callable, Sequence
from contextlib import AbstractContextManager
from functools import partial
from typing import TYPE_CHECKING, Any

from graphnorm.commands.parser import NARROWEST
from graphnorm.errors import GraphnormError, StudyError
from graphnorm.settings import DEFAULT_NORMS, VARIABLE, Hyperparameters, Loading, Running, Settings, options_of

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.study import Result

__all__ = [
    "add_data",
    "add_json",
    "add_norm_module",
    "add_options",
    "add_study",
    "fitted",
    "given",
    "load_graphs",
    "print_result",
    "register_own_norms",
    "result_text",
    "results_alone",
    "study_keywords",
    "width",
]


WIDEST = 100
"""Longer lines are hard to read."""


def add_options(parser: argparse.ArgumentParser, title: str, cls: type, *names: str, leave_out: Any = ()) -> None:
    """Add options of a settings class (those named, or all except some) as a group of a parser.

    An option that is not given is None, because its default may depend on the data.
    """
    group = parser.add_argument_group(title)
    for name, about in options_of(cls).items():
        if (names and name not in names) or name in leave_out:
            continue
        flag = "--" + name.replace("_", "-")
        if about.kind is bool:
            group.add_argument(flag, action="store_true", default=None, help=about.help)
        else:
            kind: Any = str if about.is_time else {int: whole_number, float: _number}.get(about.kind, str)
            kind = partial(_several, kind) if cls is Hyperparameters and name in VARIABLE else kind
            group.add_argument(flag, type=kind, metavar=about.metavar or name.upper(), help=about.help)


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_data(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    about = "a dataset's name (see `graphnorm datasets`), or the path of your own graphs"
    if default is None:
        parser.add_argument("data", metavar="DATA", help=about)
    else:
        parser.add_argument("data", metavar="DATA", nargs="?", default=default, help=f"{about} (default: {default})")
    add_options(parser, "your own graphs", Loading)


def add_norm_module(parser: argparse.ArgumentParser) -> None:
    parser.add_argument(
        "--norm-module",
        action="append",
        default=[],
        metavar="NAME=FILE.py:FACTORY",
        help="a custom normalization: FACTORY(channels) returns a module that is called with x, batch, batch_size",
    )


def add_study(parser: argparse.ArgumentParser, default_data: str | None = None) -> None:
    """The options that ``compare`` and ``search`` share."""
    add_norm_module(parser)
    add_data(parser, default_data)
    add_options(parser, "study", Settings, leave_out=options_of(Hyperparameters))
    add_options(parser, "model and training", Hyperparameters)
    add_options(parser, "where and how to run", Running)


def register_own_norms(options: argparse.Namespace) -> list[str]:
    """Register the normalizations of ``--norm-module``, and return their names."""
    from graphnorm.layers import import_norm

    return [import_norm(text) for text in options.norm_module]


def given(options: argparse.Namespace, *classes: type) -> dict[str, Any]:
    """The options of some settings classes that were given, as keywords."""
    found = {name: value for name in options_of(*classes) if (value := getattr(options, name, None)) is not None}
    for name in found:
        if found[name] == []:  # what argparse makes of --name=--
            raise GraphnormError(f"{name} has no value", remedy="give one, or leave it out")
    if "threshold" in found:
        found["threshold"] = _threshold(found["threshold"])
    return found


def study_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """The options of :func:`add_study` that were given, as keywords; custom normalizations are added to ``norms``."""
    keywords = given(options, Settings, Running, Loading)
    if own := register_own_norms(options):
        keywords["norms"] = ",".join([keywords.get("norms") or ",".join(DEFAULT_NORMS), *own])
    return keywords


def print_result(result: Result, options: argparse.Namespace, note: str = "") -> None:
    """Print a result as text, with a note below, or as JSON; raise an error if every trial failed."""
    if options.json:
        print(json.dumps(result.to_dict(), indent=1))
    else:
        print(result_text(result, options.words), *([f"\n{note}"] if note else []), sep="\n")
    if result.trials and result.counts.get("failed") == result.trials:
        from graphnorm.study.verdict import after_failures

        raise StudyError(f"all {result.trials} trials failed: {result.errors[0]}", remedy=after_failures(result))


def load_graphs(options: argparse.Namespace) -> PackedGraphs:
    from graphnorm.data import load

    loading = given(options, Loading)
    return load(options.data, loading.pop("data_root", None), **loading)


def result_text(result: Result, words: Sequence[str] = ()) -> str:
    """A result as text for this terminal, or for a file or pipe: 80 columns without colours.

    words: those of the command, to suggest the next one.
    """
    colour = sys.stdout.isatty() and not os.environ.get("NO_COLOR") and os.environ.get("TERM") != "dumb"
    return result.to_text(min(width() or 80, WIDEST), colour=colour, command=words)


def results_alone() -> AbstractContextManager[object]:
    """Inside, what is printed goes to standard error: models of users may print, and tables and JSON are read on."""
    return contextlib.redirect_stdout(sys.stderr)


def width() -> int | None:
    """Characters of a line of this terminal; None for a file or pipe."""
    is_told = sys.stdout.isatty() or "COLUMNS" in os.environ
    return max(shutil.get_terminal_size().columns, NARROWEST) if is_told else None


def fitted(text: str) -> str:
    """Paragraphs and list items, broken between words."""
    from graphnorm.study.layout import wrapped

    lines = (
        wrapped(line, min(width() or 80, WIDEST), hanging="  " if line[:2] in ("- ", "  ") else "")
        for line in text.split("\n")
    )
    return "\n".join("\n".join(line) for line in lines)


def whole_number(text: str) -> int:
    """Argument type of counts.

    >>> whole_number("12")
    12
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _several(kind: Callable[[str], Any], text: str) -> Any:
    """Argument type of a setting: a value, or a list of values with commas between them."""
    values = [kind(part.strip()) for part in text.split(",")]
    return values if len(values) > 1 else values[0]


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def _threshold(text: str) -> float | str:
    if text == "median":
        return "median"
    try:
        return float(text)
    except ValueError:
        raise GraphnormError(f"threshold is {text!r}", remedy="give a number or 'median'") from None
