"""Options that several commands share, each in one place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["LOADING", "Subparsers", "common", "load_graphs", "loading_keywords", "own_graphs"]

Subparsers = Any  # argparse keeps the type of add_subparsers' result private

LOADING = ("symmetrise", "merge_duplicates", "smiles", "label", "threshold", "skip_invalid")
"""What :func:`own_graphs` adds, as :func:`graphnorm.data.load` calls it."""


def common(**defaults: Any) -> argparse.ArgumentParser:
    """Options that every action takes, and that may stand before or after it.

    Only the outermost parser has defaults: an inner one would undo what was given before it.
    """
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--data-root", metavar="DIR", help="folder of archives (or $GRAPHNORM_DATA)")
    parser.add_argument("--json", action="store_const", const=True, help="print JSON")
    parser.set_defaults(**defaults)
    return parser


def own_graphs() -> argparse.ArgumentParser:
    """How the user's own graphs are read."""
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group("your own graphs")
    group.add_argument("--symmetrise", action="store_true", help="add the missing direction of edges")
    group.add_argument("--merge-duplicates", action="store_true", help="keep the first of equal edges")
    group.add_argument("--smiles", metavar="COLUMN", help="column of SMILES in a table")
    group.add_argument("--label", metavar="COLUMN", help="column of labels in a table")
    group.add_argument(
        "--threshold", type=_threshold, metavar="VALUE", help="split measurements at a value or 'median'"
    )
    group.add_argument("--skip-invalid", action="store_true", help="leave out SMILES that cannot be read")
    return parser


def loading_keywords(options: argparse.Namespace) -> dict[str, Any]:
    """What :func:`own_graphs` parsed, as keywords of :func:`graphnorm.data.load`."""
    return {name: getattr(options, name) for name in LOADING}


def load_graphs(options: argparse.Namespace) -> PackedGraphs:
    """The graphs that ``data`` and the options of :func:`own_graphs` name."""
    from graphnorm.data import load

    return load(options.data, options.data_root, **loading_keywords(options))


def _threshold(text: str) -> float | str:
    if text == "median":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'median'") from None
