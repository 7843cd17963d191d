"""From the options of :mod:`graphnorm.settings` to a parser, and from what it parsed to keywords."""

from __future__ import annotations

import argparse
import re
from typing import TYPE_CHECKING, Any

from graphnorm.settings import Loading, Running, Settings, options_of

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = [
    "add_data",
    "add_json",
    "add_norm_module",
    "add_options",
    "duration",
    "given",
    "load_graphs",
    "register_own_norms",
]

SECONDS = {"s": 1.0, "m": 60.0, "h": 3600.0, "d": 86400.0}


def add_options(parser: argparse.ArgumentParser, title: str, cls: type, *names: str, leave_out: Any = ()) -> None:
    """Add the options of a settings class (those named, or all but some) to a parser, as a group.

    Left out on the command line, an option is None: its default may depend on the data.
    """
    group = parser.add_argument_group(title)
    for name, about in options_of(cls).items():
        if (names and name not in names) or name in leave_out:
            continue
        flag = "--" + name.replace("_", "-")
        if about.kind is bool:
            group.add_argument(flag, action="store_true", default=None, help=about.help)
        else:
            kind = {int: whole_number, float: _number}.get(about.kind, str)
            group.add_argument(flag, type=kind, metavar=about.metavar or name.upper(), help=about.help)


def add_json(parser: argparse.ArgumentParser) -> None:
    """``--json``."""
    parser.add_argument("--json", action="store_true", help="print JSON")


def add_data(parser: argparse.ArgumentParser, default: str | None = None) -> None:
    """The graphs, and how the user's own are read."""
    about = "a dataset's name (see `graphnorm datasets`), or the path of your own graphs"
    if default is None:
        parser.add_argument("data", metavar="DATA", help=about)
    else:
        parser.add_argument("data", metavar="DATA", nargs="?", default=default, help=f"{about} (default: {default})")
    add_options(parser, "your own graphs", Loading)


def add_norm_module(parser: argparse.ArgumentParser) -> None:
    """``--norm-module``."""
    parser.add_argument(
        "--norm-module",
        action="append",
        default=[],
        metavar="NAME=MODULE:FACTORY",
        help="a normalization of your own: FACTORY(channels) gives a module called with x, batch, batch_size",
    )


def register_own_norms(options: argparse.Namespace) -> list[str]:
    """Make known what ``--norm-module`` names; gives the names."""
    from graphnorm.layers import import_norm

    return [import_norm(text) for text in options.norm_module]


def given(options: argparse.Namespace, *classes: type) -> dict[str, Any]:
    """What was given of the options of some classes, as keywords."""
    names = options_of(*(classes or (Settings, Running, Loading)))
    found = {name: value for name in names if (value := getattr(options, name, None)) is not None}
    if "threshold" in found:
        found["threshold"] = _threshold(found["threshold"])
    return found


def load_graphs(options: argparse.Namespace, **more: Any) -> PackedGraphs:
    """The graphs that ``data`` and the options of loading name."""
    from graphnorm.data import load

    loading = given(options, Loading)
    return load(options.data, loading.pop("data_root", None), **loading, **more)


def whole_number(text: str) -> int:
    """The type of a count.

    >>> whole_number("12")
    12
    """
    try:
        return int(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a whole number") from None


def _number(text: str) -> float:
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is not a number") from None


def duration(text: str) -> float:
    """The type of a time.

    >>> duration("10m")
    600.0
    """
    match = re.fullmatch(r"(\d+(?:\.\d+)?)([smhd]?)", text)
    if not match or float(match[1]) <= 0:
        raise argparse.ArgumentTypeError(f"{text!r} is no time; write 90s, 10m, 2h or 1d")
    return float(match[1]) * SECONDS[match[2] or "s"]


def _threshold(text: str | float) -> float | str:
    from graphnorm.errors import GraphnormError

    if text == "median":
        return "median"
    try:
        return float(text)
    except ValueError:
        raise GraphnormError(f"threshold is {text!r}", remedy="give a number or 'median'") from None
