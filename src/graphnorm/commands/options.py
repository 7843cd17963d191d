"""Options that several commands share, each in one place."""

from __future__ import annotations

import argparse
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = [
    "LOADING",
    "Subparsers",
    "common",
    "load_graphs",
    "loading_keywords",
    "model_options",
    "own_graphs",
    "own_norms",
    "register_own_norms",
]

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


def model_options(epochs: str) -> argparse.ArgumentParser:
    """How a model is made and trained; what is left out (None) is as in the paper's training curves or Table 2.

    epochs: what the help says of the number of epochs.
    """
    parser = argparse.ArgumentParser(add_help=False)
    group = parser.add_argument_group(
        "model and training",
        "Data with an official split, as ogbg-molhiv has, is trained by default in the setting of the paper's\n"
        "Table 2: molhiv-gin, learning rate 0.0001, width 300.",
    )
    group.add_argument("--model", metavar="NAME", help="gin (the default), gcn, molecular-gin, molhiv-gcn …")
    group.add_argument("--epochs", type=int, metavar="E", help=epochs)
    group.add_argument("--batch-size", type=int, metavar="B", help="graphs of one step (default: 128)")
    group.add_argument("--lr", type=float, help="learning rate at the start; it falls to 0 (default: 0.01)")
    group.add_argument("--weight-decay", type=float, metavar="W", help="default: 0")
    group.add_argument(
        "--dropout",
        type=float,
        metavar="P",
        help="share dropped in training: of scores, with molecular-* after every convolution (default: 0.5)",
    )
    group.add_argument("--hidden", type=int, metavar="WIDTH", help="default: 64")
    group.add_argument("--layers", type=int, metavar="L", help="with the linear head (default: 5)")
    group.add_argument(
        "--readout", metavar="NAME", help="sum or mean over the nodes (default: the catalogue's, or sum)"
    )
    group.add_argument("--self-loops", action="store_true", help="a self-loop on every node, as in the authors' data")
    group.add_argument("--device", help="cpu, cuda ... (default: a GPU where there is one)")
    return parser


def own_norms() -> argparse.ArgumentParser:
    """Normalizations that are not of this package."""
    parser = argparse.ArgumentParser(add_help=False)
    parser.add_argument(
        "--norm-module",
        action="append",
        default=[],
        metavar="NAME=MODULE:FACTORY",
        help="a normalization of your own: FACTORY(channels) gives a module called with x, batch, batch_size",
    )
    return parser


def register_own_norms(options: argparse.Namespace) -> list[str]:
    """Make known what :func:`own_norms` parsed; gives the names."""
    from graphnorm.layers import import_norm

    return [import_norm(text) for text in options.norm_module]


def _threshold(text: str) -> float | str:
    if text == "median":
        return text
    try:
        return float(text)
    except ValueError:
        raise argparse.ArgumentTypeError(f"{text!r} is neither a number nor 'median'") from None
