"""Options that several commands take: where data is, how it is read, how results are printed."""

from __future__ import annotations

import argparse
import json
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Subparsers", "common", "data_options", "load_data", "print_facts"]

Subparsers = Any  # argparse keeps the type of add_subparsers' result private


def common(**defaults: Any) -> argparse.ArgumentParser:
    """Options that every action takes, and that may stand before or after it.

    Only the outermost parser has defaults: an inner one would undo what was given before it.
    """
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--data-root", metavar="DIR", help="folder of archives (or $GRAPHNORM_DATA)")
    parser.add_argument("--json", action="store_const", const=True, help="print JSON")
    parser.set_defaults(**defaults)
    return parser


def data_options() -> argparse.ArgumentParser:
    """Which data, and how the user's own is read."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument("name", metavar="NAME_OR_PATH", help="a dataset's name, or your own graphs")
    parser.add_argument("--symmetrise", action="store_true", help="add the missing direction of edges")
    parser.add_argument("--merge-duplicates", action="store_true", help="keep the first of equal edges")
    parser.add_argument("--smiles", metavar="COLUMN", help="column of SMILES in a table")
    parser.add_argument("--label", metavar="COLUMN", help="column of labels in a table")
    parser.add_argument(
        "--threshold", type=_threshold, metavar="VALUE", help="split measurements at a value or 'median'"
    )
    parser.add_argument("--skip-invalid", action="store_true", help="leave out SMILES that cannot be read")
    return parser


def load_data(options: argparse.Namespace) -> PackedGraphs:
    """Load what :func:`data_options` names."""
    from graphnorm.data import load

    keywords = ("symmetrise", "merge_duplicates", "smiles", "label", "threshold", "skip_invalid")
    return load(options.name, options.data_root, **{name: getattr(options, name) for name in keywords})


def print_facts(facts: dict[str, Any], as_json: bool) -> None:
    """Print one fact a line, or JSON."""
    if as_json:
        print(json.dumps(facts, indent=2))
        return
    width = max(map(len, facts))
    for name, value in facts.items():
        text = ", ".join(map(str, value)) if isinstance(value, (tuple, list)) else value
        print(f"{name.replace('_', ' '):{width}}  {text}")


def _threshold(text: str) -> float | str:
    if text == "median":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'median'") from None
