"""``graphnorm reproduce``: reproduce tables and figures of the paper."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import (
    add_json,
    add_norm_module,
    add_options,
    fitted,
    given,
    register_own_norms,
    whole_number,
)
from graphnorm.errors import StudyError, listing
from graphnorm.settings import Loading, Running

if TYPE_CHECKING:
    from graphnorm.paper.item import Item
    from graphnorm.paper.reproduce import Reproduction

DESCRIPTION = """\
Reproduce tables and figures of the GraphNorm paper, and compare them with the reported numbers.

ITEM is one of these, or all:

  table1   accuracy on graph classification
  table2   test ROC-AUC on ogbg-molhiv
  table3   statistics of the datasets
  fig2     training curves of GIN
  fig3     singular values of Q and QN
  fig4     batch noise of graphs and of images
  fig5     the learned shift on regular graphs
  fig6     training curves of GCN
  fig7     singular values of Q and QN on six datasets
  fig8     batch noise on four more datasets
  fig9     batch noise by depth
  fig10    batch noise by batch size
  fig11    GraphNorm and BatchNorm by batch size
  fig12    GraphNorm and variants of BatchNorm
  alpha    the learned α of GraphNorm
  theory   Theorem 1 on every graph, the linear example, Fact 1

Items share their trials through one store, and the same command continues where it stopped.

In full, a table takes days on a CPU; --quick takes minutes, and marks all its outputs. The tables include baselines;
with --models or --norms, only the baselines that --baselines names.
"""
EXAMPLES = """\
examples:
  graphnorm reproduce all --quick
  graphnorm reproduce fig2 --device cuda --store results/fig2.db --out results
  graphnorm reproduce table1 --datasets MUTAG,PTC --protocols paper --dry-run
  graphnorm reproduce table1 --models none --baselines wl,mlp --device cpu
  graphnorm reproduce table1 --datasets NCI1 --train-only --store gpu.db   train one part after another ...
  graphnorm reproduce all --no-train --store gpu.db --out results          ... then make the items
"""
PARTS = ("datasets", "models", "norms", "protocols", "baselines")


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("items", nargs="+", metavar="ITEM", help="what to reproduce, or all")
    parser.add_argument("--quick", action="store_true", help="scaled down to minutes on a CPU; outputs are marked")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: reproduction, or reproduction-quick")
    parser.add_argument("--store", type=Path, metavar="FILE", help="default: graphnorm.db in the output folder")
    parser.add_argument("--dry-run", action="store_true", help="list the trials; train nothing")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--train-only", action="store_true", help="train the missing trials; make no items")
    how.add_argument("--no-train", action="store_true", help="make the items from the trials in the store")
    add_norm_module(parser)
    part = parser.add_argument_group("a part of an item")
    for name in PARTS[:-1]:
        part.add_argument(f"--{name}", metavar="A,B,…", help=f"only these {name}")
    part.add_argument("--baselines", metavar="A,B,…", help="only these baselines (wl, ogb-gin …), or none")
    part.add_argument(
        "--grid", metavar="GRID", help="another grid: paper, curves, quick, or a .toml file (not for molhiv)"
    )
    part.add_argument("--as-authors", action="store_true", help="ξ = 0, ε = 1e-6 and GCN's first weights as theirs")
    part.add_argument("--seeds", type=whole_number, metavar="N", help="another number of seeds")
    add_options(parser, "where and how to run", Running)
    add_options(parser, "datasets", Loading, "data_root")


def run(options: argparse.Namespace) -> None:
    """Train the missing trials of the items, make the items, and judge the paper's claims."""
    from graphnorm.files import refuse_unwritable
    from graphnorm.paper.reproduce import Reproduction
    from graphnorm.study.runner import make_running

    items = _items(options)
    if too_large := [item.name for item in items if not item.datasets]:
        if len(too_large) == len(items):
            raise StudyError(f"there is no quick pass of {', '.join(too_large)}", remedy="leave out --quick, on a GPU")
        print(f"no quick pass: {', '.join(too_large)}", file=sys.stderr)
        items = [item for item in items if item.datasets]
    folder: Path = options.out or Path("reproduction-quick" if options.quick else "reproduction")
    reproduction = Reproduction(
        options.store or folder / "graphnorm.db",
        data_root=options.data_root,
        running=make_running(**given(options, Running)),
        progress=not options.json,
    )
    if options.no_train and options.store and not options.store.exists():
        raise StudyError(
            "there is no such store", where=options.store, remedy="check the path, or leave out --no-train"
        )
    if not options.no_train:
        reproduction.check_data(items)
    if options.dry_run:
        _show_plans(options, reproduction, items)
    elif options.train_only:
        refuse_unwritable(reproduction.store.parent)
        _train(options, reproduction, items)
    else:
        refuse_unwritable(folder)
        _refuse_to_replace_more(folder, reproduction.store, items, options.quick)
        _make(options, reproduction, items, folder)


def _train(options: argparse.Namespace, reproduction: Reproduction, items: list[Item]) -> None:
    if idle := [item.name for item in items if not item.parts]:
        if len(idle) == len(items):
            raise StudyError(f"nothing is trained for {', '.join(idle)}", remedy="leave out --train-only")
        print(f"nothing is trained for {', '.join(idle)}", file=sys.stderr)
    items = [item for item in items if item.parts]
    for item in items:
        reproduction.train(item)
    names, store = [item.name for item in items], str(reproduction.store)
    if options.json:
        print(json.dumps({"items": names, "store": store}, indent=1))
        return
    quick = " --quick" if options.quick else ""
    print(f"{', '.join(names)}: trained. To make the items:")
    print(f"  graphnorm reproduce {' '.join(names)}{quick} --no-train --store {shlex.quote(store)}")


def _make(options: argparse.Namespace, reproduction: Reproduction, items: list[Item], folder: Path) -> None:
    """Make the items, unless --no-train after training them, and judge the claims."""
    from graphnorm.paper.output import LeftOutError

    written: dict[str, list[str]] = {}
    for item in items:
        try:
            output = reproduction.make(item, quick=options.quick, train=not options.no_train)
        except LeftOutError as error:
            if item is items[-1] and not written:
                raise
            where = f" ({error.where})" if error.where else ""
            print(f"{item.name}: left out, {error.problem}{where}", file=sys.stderr)
            continue
        written[item.name] = [str(path) for path in output.write(folder)]
        if not options.json:
            print(output.title)
            for sentence in output.sentences:
                print(fitted(f"  {sentence}"))
    written["claims"] = _write_claims(folder, options.quick)
    if options.json:
        print(json.dumps(written, indent=1))
    else:
        print(f"written to {folder}: {listing(list(map(_to_read, written.values())))} to look at; the data beside them")


def _to_read(files: Sequence[str]) -> str:
    """The name of an item's file to look at: the table in the paper's shape, another table, or the figure."""
    names = [Path(file).name for file in files]
    return next(name for ending in ("-wide.md", ".md", ".png", "") for name in names if name.endswith(ending))


def _write_claims(folder: Path, quick: bool) -> list[str]:
    """Judge the claims of all items in the folder."""
    from graphnorm.files import write_text
    from graphnorm.paper.claims import claims_markdown, judge_claims
    from graphnorm.paper.items import ITEMS

    whole = {name: item.quick() if quick else item for name, item in ITEMS.items()}
    judged = judge_claims(whole, _held_items(folder, quick))
    texts = {".json": json.dumps(judged, indent=1, ensure_ascii=False) + "\n", ".md": claims_markdown(judged)}
    files = []
    for ending, text in texts.items():
        files.append(folder / f"claims{'-quick' if quick else ''}{ending}")
        write_text(files[-1], text)
    return [str(path) for path in files]


def _held_items(folder: Path, quick: bool) -> dict[str, Any]:
    """The JSON of the items in a folder, by name."""
    items: dict[str, Any] = {}
    for file in sorted(folder.glob("*-quick.json" if quick else "*.json")):
        try:
            content = json.loads(file.read_text(encoding="utf-8"))
            if content["quick"] is quick:
                items[content["item"]] = content
        except (KeyError, TypeError, UnicodeDecodeError, json.JSONDecodeError):
            continue  # not one of ours
    return items


def _refuse_to_replace_more(folder: Path, store: Path, items: list[Item], quick: bool) -> None:
    """Do not overwrite a complete item with a subset."""
    from graphnorm.paper.item import covers, describe_narrow

    held = _held_items(folder, quick)
    for item in items:
        if item.name not in held:
            continue
        old = held[item.name].get("narrowed")
        if not covers(item.narrow, old):
            has = "all of it" if old is None else f"other parts of it ({describe_narrow(old)})"
            what = "the item without these" if item.narrow is None else f"a part ({describe_narrow(item.narrow)})"
            raise StudyError(
                f"{item.name} is here already, with {has}; {what} would take its place",
                where=folder,
                remedy=f"name another folder, and the same store: --out DIR --store {store}",
            )


def _items(options: argparse.Namespace) -> list[Item]:
    """The items, narrowed to the chosen parts; those without any remaining part are left out."""
    from dataclasses import replace

    from graphnorm.paper.item import QUICK, NothingLeftError
    from graphnorm.paper.items import find_items
    from graphnorm.settings import find_grid

    if options.seeds is not None and options.seeds < 1:
        raise StudyError(f"--seeds is {options.seeds}", remedy="give 1 or more")
    choice: dict[str, Any] = {
        name: None if (text := getattr(options, name)) is None else tuple(part.strip() for part in text.split(","))
        for name in PARTS
    }
    whole = find_items(options.items)
    own = tuple(register_own_norms(options))
    _check_names(choice, own)
    grid = None if options.grid is None else find_grid(options.grid)
    if options.quick:
        whole = [item.quick() for item in whole]
        grid = grid and replace(grid, name=QUICK.grid)
    items, nothing = [], []
    for item in whole:
        try:
            items.append(
                item.narrowed(
                    **choice,
                    grid=grid,
                    seeds=options.seeds,
                    as_authors=options.as_authors or None,
                    more_norms=own or None,
                )
            )
        except NothingLeftError as error:
            nothing.append((item.name, error))
    if not items:
        raise nothing[0][1]
    if nothing:
        print(f"nothing is left of {', '.join(name for name, _ in nothing)}", file=sys.stderr)
    if options.grid is not None:
        _check_grid(items)
    if own and not any(item.trained for item in items):
        raise StudyError(
            f"--norm-module does not apply to {', '.join(item.name for item in items)}, which train no comparison",
            remedy="leave it out, or choose an item with training curves or scores",
        )
    return items


def _check_grid(items: list[Item]) -> None:
    """Refuse a grid that applies to no item, and name items with parts that keep their own settings."""
    fixed = [item.name for item in items if not any(part.takes_grid for part in item.trained)]
    if len(fixed) == len(items):
        raise StudyError(
            f"{', '.join(fixed)}: --grid does not apply, the settings are fixed", remedy="leave out --grid"
        )
    if own := [item.name for item in items if not all(part.takes_grid for part in item.trained)]:
        print(f"--grid is not for ogbg-molhiv, which keeps its settings in {', '.join(own)}", file=sys.stderr)


def _check_names(choice: dict[str, Any], own_norms: Sequence[str]) -> None:
    from graphnorm.paper.items import ITEMS

    parts = [part for item in ITEMS.values() for part in item.parts]
    for option in ("models", "norms", "protocols"):
        known = list(dict.fromkeys(name for part in parts for name in getattr(part, option, ())))
        if unknown := [name for name in choice[option] or () if name not in (*known, "none", *own_norms)]:
            raise StudyError(
                f"there is no {option.removesuffix('s')} {', '.join(map(repr, unknown))} in the paper's items; "
                f"known: {', '.join(known)}",
                remedy="choose some",
            )


def _show_plans(options: argparse.Namespace, reproduction: Reproduction, items: list[Item]) -> None:
    from graphnorm.study.render import Table

    rows: list[list[Any]] = []
    different: set[str] = set()
    train = not options.no_train
    for item in items:
        for plan in reproduction.plans(item, train=train):
            left = reproduction.missing(plan)
            different |= set(left)
            names = [item.name, *(plan.spec[name] for name in ("dataset", "model", "protocol"))]
            rows.append([*names, len(plan.trials), len(left)])
    columns = ("item", "dataset", "model", "protocol", "trials", "to train")
    if options.json:
        print(json.dumps([dict(zip(columns, row, strict=True)) for row in rows], indent=1))
        return
    print(Table(columns, [[*row[:4], f"{row[4]:,}", f"{row[5]:,}"] for row in rows]).to_text(left=columns[:4]))
    if idle := [item.name for item in items if item.name not in {row[0] for row in rows}]:
        print(f"nothing is trained for {', '.join(idle)}")
    if len(different) < sum(row[-1] for row in rows):
        print(f"items share trials: {len(different):,} different ones are to be trained")
