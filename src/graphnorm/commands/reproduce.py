"""``graphnorm reproduce``: tables and figures of the paper, measured here."""

from __future__ import annotations

import argparse
import json
import shlex
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryFile
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import Subparsers, common
from graphnorm.commands.printing import print_table
from graphnorm.errors import GraphnormError, StudyError
from graphnorm.wording import listing

if TYPE_CHECKING:
    from graphnorm.paper.laboratory import Laboratory
    from graphnorm.paper.recipe import Recipe

__all__ = ["add"]

DESCRIPTION = """\
Measure tables and figures of the GraphNorm paper again, and write them beside the reported numbers.

ITEM is one of these, or all:

{items}

What is trained goes into one store: items share their trials, and the same command goes on where it was stopped. What
{apart} train goes into a file beside the store, model by model.

In full, a table takes days on a CPU; --quick takes minutes, and says so on everything it writes. The tables have
baselines beside the normalized models; --models or --norms leave out those that --baselines does not name.
"""
EXAMPLES = """\
examples:
  graphnorm reproduce all --quick
  graphnorm reproduce fig2 --device cuda --store results/fig2.db --out results
  graphnorm reproduce table1 --datasets MUTAG,PTC --protocols paper --dry-run
  graphnorm reproduce table1 --models none --baselines wl,mlp --device cpu
  graphnorm reproduce table1 --datasets NCI1 --train-only --store gpu.db   part by part, into one store ...
  graphnorm reproduce all --no-train --store gpu.db --out results          ... and the items of all it has
"""


class _Help(argparse.RawDescriptionHelpFormatter):
    """Fills in the items, which are known once torch is imported: only for who asks for this help."""

    def add_text(self, text: str | None) -> None:
        super().add_text(_describe_items(text) if text is DESCRIPTION else text)


def _describe_items(text: str) -> str:
    from graphnorm.paper.recipes import RECIPES

    apart = [item for item, recipe in RECIPES.items() if recipe.watched or recipe.learned]
    items = "\n".join(f"  {item:<8}{recipe.caption}" for item, recipe in RECIPES.items())
    return text.format(items=items, apart=listing(apart))


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "reproduce",
        help="tables and figures of the paper, measured here",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=_Help,
        parents=[common(data_root=None, json=False)],
    )
    parser.add_argument("items", nargs="+", metavar="ITEM", help="what to reproduce, or all")
    parser.add_argument("--quick", action="store_true", help="scaled down to minutes on a CPU; marked on every output")
    parser.add_argument("--out", type=Path, metavar="DIR", help="default: reproduction, or reproduction-quick")
    parser.add_argument("--store", type=Path, metavar="FILE", help="default: graphnorm.db in the output folder")
    parser.add_argument(
        "--noise", type=Path, metavar="FILE", help="batch noise (default: beside the store, .noise.json)"
    )
    parser.add_argument("--device", help="cpu, cuda ... (default: a GPU where there is one)")
    parser.add_argument("--workers", type=int, metavar="N", help="processes to train in, on a CPU")
    parser.add_argument("--dry-run", action="store_true", help="say what would be trained, and stop")
    how = parser.add_mutually_exclusive_group()
    how.add_argument("--train-only", action="store_true", help="train what the store lacks, and make no items of it")
    how.add_argument("--no-train", action="store_true", help="make the items of what the store has")
    part = parser.add_argument_group("a part of an item")
    for name in ("datasets", "models", "norms", "protocols"):
        part.add_argument(f"--{name}", metavar="A,B,…", help=f"only these {name}")
    part.add_argument(
        "--baselines", metavar="A,B,…", help="only these of the tables' other rows (wl, ogb-gin …), or none"
    )
    part.add_argument(
        "--grid", metavar="GRID", help="another grid: paper, curves, quick, or a .toml file (not for molhiv)"
    )
    part.add_argument("--seeds", type=int, metavar="N", help="another number of seeds")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from graphnorm.paper.laboratory import Laboratory

    recipes = _recipes(options)
    if too_large := [recipe.item for recipe in recipes if not recipe.datasets]:
        if len(too_large) == len(recipes):
            raise StudyError(f"there is no quick pass of {', '.join(too_large)}", remedy="leave out --quick, on a GPU")
        print(f"no quick pass: {', '.join(too_large)}", file=sys.stderr)
        recipes = [recipe for recipe in recipes if recipe.datasets]
    folder: Path = options.out or Path("reproduction-quick" if options.quick else "reproduction")
    laboratory = Laboratory(
        options.store or folder / "graphnorm.db",
        data_root=options.data_root,
        device=options.device,
        workers=options.workers,
        progress=not options.json,
        noise=options.noise,
    )
    if options.no_train and options.store and not (options.store.exists() or laboratory.notebook.path.exists()):
        raise StudyError(
            "there is no such store", where=options.store, remedy="check the path, or leave out --no-train"
        )
    if not options.no_train:
        laboratory.check_data(recipes)
    if options.dry_run:
        _show_plans(options, laboratory, recipes)
        return
    if not options.no_train and any(recipe.watched or recipe.learned for recipe in recipes):
        _check_place(laboratory.notebook.path.parent)
    if options.train_only:
        _check_place(laboratory.store.parent)
        with _stoppable():
            _train(options, laboratory, recipes)
        return
    _check_place(folder)
    _keep_more(folder, laboratory.store, recipes, options.quick)
    with _stoppable():
        _make(options, laboratory, recipes, folder)


@contextmanager
def _stoppable() -> Iterator[None]:
    """Says, where a signal ends the training, that it can go on."""
    from graphnorm.paper.laboratory import Interrupted

    try:
        yield
    except Interrupted as stop:
        print("graphnorm: stopped; the same command goes on from here", file=sys.stderr)
        raise SystemExit(128 + stop.signal) from None


def _train(options: argparse.Namespace, laboratory: Laboratory, recipes: list[Recipe]) -> None:
    """Train what the items need."""
    if idle := [recipe.item for recipe in recipes if not recipe.trains]:
        if len(idle) == len(recipes):
            raise StudyError(f"nothing is trained for {', '.join(idle)}", remedy="leave out --train-only")
        print(f"nothing is trained for {', '.join(idle)}", file=sys.stderr)
    recipes = [recipe for recipe in recipes if recipe.trains]
    for recipe in recipes:
        laboratory.train(recipe)
    items, store = [recipe.item for recipe in recipes], str(laboratory.store)
    if options.json:
        print(json.dumps({"items": items, "store": store}, indent=1))
        return
    quick = " --quick" if options.quick else ""
    print(f"{', '.join(items)}: trained. What is made of all that is there:")
    print(f"  graphnorm reproduce {' '.join(items)}{quick} --no-train --store {shlex.quote(store)}")


def _make(options: argparse.Namespace, laboratory: Laboratory, recipes: list[Recipe], folder: Path) -> None:
    """Make the items, and the page of claims; train what they need, where that is allowed."""
    from graphnorm.paper.material import LeftOutError

    written: dict[str, list[str]] = {}
    for recipe in recipes:
        try:
            product = laboratory.make(recipe, quick=options.quick, train=not options.no_train)
        except LeftOutError as error:
            if recipe is recipes[-1] and not written:
                raise
            where = f" ({error.where})" if error.where else ""
            print(f"{recipe.item}: left out, {error.problem}{where}", file=sys.stderr)
            continue
        written[recipe.item] = [str(path) for path in product.write(folder)]
        if not options.json:
            print(f"{recipe.item}: {product.title}")
            for sentence in product.sentences:
                print(f"  {sentence}")
    written["claims"] = [str(_write_claims(folder, options.quick))]
    if options.json:
        print(json.dumps(written, indent=1))
    else:
        print(f"written to {folder}: figures as .png, .svg and .pdf, tables as .md and .tex, data as .csv and .json")


def _check_place(folder: Path) -> None:
    """Refuse a folder that cannot be written to, before anything is trained; nothing is left in it."""
    there = next(place for place in (folder, *folder.absolute().parents) if place.exists())
    if not there.is_dir():
        raise StudyError("this is a file, not a folder", where=there, remedy="name a folder")
    try:
        with TemporaryFile(dir=there):
            pass
    except OSError as error:
        error.filename = str(there)
        raise


def _keep_more(folder: Path, store: Path, recipes: list[Recipe], quick: bool) -> None:
    """Refuse to put a part of an item in the place of what the folder holds of it, where that is made of more."""
    from graphnorm.paper.claims import read_items
    from graphnorm.paper.narrowing import covers, describe

    try:
        held = read_items(folder, quick=quick)
    except GraphnormError:
        return  # there are none
    for recipe in recipes:
        if recipe.narrow is None or recipe.item not in held:
            continue
        old = held[recipe.item].get("narrowed")
        if not covers(recipe.narrow, old):
            has = "all of it" if old is None else f"other parts of it ({describe(old)})"
            raise StudyError(
                f"{recipe.item} is here already, with {has}; a part ({describe(recipe.narrow)}) would take its place",
                where=folder,
                remedy=f"name another folder, and the same store: --out DIR --store {store}",
            )


def _write_claims(folder: Path, quick: bool) -> Path:
    """The page of claims, of all items that the folder holds."""
    from graphnorm.files import replacing
    from graphnorm.paper.claims import claims_page, read_items

    path = folder / ("claims-quick.md" if quick else "claims.md")
    with replacing(path) as fresh:
        fresh.write_text(claims_page(read_items(folder, quick=quick)), encoding="utf-8")
    return path


def _recipes(options: argparse.Namespace) -> list[Recipe]:
    """What is left of each item; those of which nothing is are left out, where there are others."""
    from graphnorm.paper.recipe import NothingLeftError
    from graphnorm.paper.recipes import find_recipes

    if options.seeds is not None and options.seeds < 1:
        raise StudyError(f"--seeds is {options.seeds}", remedy="give 1 or more")
    items = find_recipes(options.items)
    _check_names(options)
    recipes, nothing = [], []
    for item in items:
        try:
            recipes.append(_part(options, item))
        except NothingLeftError as error:
            nothing.append((item.item, error))
    if not recipes:
        raise nothing[0][1]
    if nothing:
        print(f"nothing is left of {', '.join(name for name, _ in nothing)}", file=sys.stderr)
    if options.grid is not None:
        _check_grid(recipes)
    return recipes


def _check_grid(recipes: list[Recipe]) -> None:
    """Refuse a grid that no item takes, and say which of the others are trained with their own."""
    fixed = [recipe.item for recipe in recipes if not any(part.takes_grid for part in recipe.trained)]
    if len(fixed) == len(recipes):
        raise StudyError(
            f"{', '.join(fixed)}: --grid changes nothing of it, its settings are fixed", remedy="leave out --grid"
        )
    if own := [recipe.item for recipe in recipes if not all(part.takes_grid for part in recipe.trained)]:
        print(f"--grid is not for ogbg-molhiv, which keeps its settings in {', '.join(own)}", file=sys.stderr)


def _check_names(options: argparse.Namespace) -> None:
    """Refuse names that no item has."""
    from graphnorm.paper.recipes import RECIPES

    parts = [part for recipe in RECIPES.values() for part in recipe.trained]
    for option, what in (("models", "model"), ("norms", "norm"), ("protocols", "protocol")):
        known = list(dict.fromkeys(name for part in parts for name in getattr(part, option)))
        given = (getattr(options, option) or "none").split(",")
        if unknown := [name for name in map(str.strip, given) if name not in (*known, "none")]:
            raise StudyError(
                f"there is no {what} {', '.join(map(repr, unknown))} in the paper's items; known: {', '.join(known)}",
                remedy="choose some",
            )


def _part(options: argparse.Namespace, recipe: Recipe) -> Recipe:
    from graphnorm.paper.recipe import QUICK
    from graphnorm.study.grid import find_grid

    choice: dict[str, Any] = {
        name: None if (given := getattr(options, name)) is None else tuple(text.strip() for text in given.split(","))
        for name in ("datasets", "models", "norms", "protocols", "baselines")
    }
    grid = None if options.grid is None else find_grid(options.grid)
    if options.quick:
        recipe = recipe.quick()
        grid = None if grid is None else replace(grid, name=QUICK.grid)
    return recipe.narrowed(**choice, grid=grid, seeds=options.seeds)


def _show_plans(options: argparse.Namespace, laboratory: Laboratory, recipes: list[Recipe]) -> None:
    rows: list[list[str | int]] = []
    different: set[str] = set()
    notes: dict[int, str] = {}
    for recipe in recipes:
        for planned in laboratory.plans(recipe, train=not options.no_train):
            left = laboratory.lacking(planned.plan)
            different |= set(left)
            names = [recipe.item, planned.dataset, planned.model, planned.protocol]
            rows.append([*names, len(planned.plan.trials), len(left)])
        for dataset, model, done, note in laboratory.apart(recipe):
            if note:
                notes[len(rows)] = note
            rows.append([recipe.item, dataset, model, "all graphs", 1, int(not done)])
    columns = ("item", "dataset", "model", "protocol", "trials", "to train")
    if options.json:
        described = [dict(zip(columns, row, strict=True)) for row in rows]
        for place, note in notes.items():
            described[place]["note"] = note
        print(json.dumps(described, indent=1))
        return
    texts = [[cell if isinstance(cell, str) else f"{cell:,}" for cell in row] for row in rows]
    print_table(columns, texts, left=columns[:4])
    for note in dict.fromkeys(notes.values()):
        print(note)
    if idle := [recipe.item for recipe in recipes if recipe.item not in {row[0] for row in rows}]:
        print(f"nothing is trained for {', '.join(idle)}")
    if len(different) < sum(int(row[-1]) for row in rows if row[3] != "all graphs"):
        print(f"items share trials: {len(different):,} different ones are to be trained")
