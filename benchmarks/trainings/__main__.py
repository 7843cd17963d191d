"""Train the entries of ``queue.toml`` that a store lacks, one after another.

python -m benchmarks.trainings --list                    what is done, and what is left
python -m benchmarks.trainings                           go on; Ctrl-C stops, the same command continues
python -m benchmarks.trainings --only proteins-60
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import shlex
import subprocess
import sys
import tomllib
from pathlib import Path
from typing import NamedTuple

from graphnorm.cli import main as graphnorm
from graphnorm.cli import make_parser
from graphnorm.commands.options import study_keywords
from graphnorm.study.api import plan_search
from graphnorm.study.render import Table
from graphnorm.study.store import Store

FILE = Path(__file__).with_name("queue.toml")
ROOT = FILE.parents[2]


class Entry(NamedTuple):
    """One command."""

    part: int
    name: str
    what: str
    minutes: int
    """About how long all of it takes on an H200."""
    command: str

    def arguments(self, store: Path) -> list[str]:
        return [*shlex.split(self.command), "--store", str(store)]


def entries() -> list[Entry]:
    return [Entry(**entry) for entry in tomllib.loads(FILE.read_text(encoding="utf-8"))["entry"]]


def trials(entry: Entry, store: Path) -> tuple[int, int]:
    """How many an entry has, and how many of them the store lacks."""
    arguments = entry.arguments(store)
    if arguments[0] == "search":  # its dry run would measure the time, for minutes on a CPU
        options = make_parser("search").parse_args(arguments)
        _, plan, _ = plan_search(options.data, options.grid, store=store, **study_keywords(options))
        keys = {trial.key for trial in plan.trials}
        with Store(store, writable=False) if store.exists() else contextlib.nullcontext() as known:
            return len(keys), len(keys - (known.finished_keys() if known else set()))
    arguments.remove("--train-only")
    with contextlib.redirect_stdout(io.StringIO()) as out:
        if graphnorm([*arguments, "--dry-run", "--json"]):
            raise SystemExit(f"{entry.name}: this command has no plan: {entry.command}")
    plan = json.loads(out.getvalue())
    return sum(row["trials"] for row in plan), sum(row["to train"] for row in plan)


def show(chosen: list[Entry], store: Path) -> None:
    rows: list[list[str | int]] = []
    for entry in chosen:
        count, left = trials(entry, store)
        state = "done" if not left else "to do" if left == count else "begun"
        rows.append([entry.part, entry.name, entry.what, f"{entry.minutes} min", f"{count:,}", f"{left:,}", state])
    columns = ("part", "name", "what", "about", "trials", "left", "")
    print(Table(columns, rows).to_text(left=("name", "what", "")))


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--store", type=Path, default=ROOT / "results" / "graphnorm.db")
    parser.add_argument("--only", metavar="A,B,…", help="only these entries")
    parser.add_argument("--list", action="store_true", help="say what is done; train nothing")
    options = parser.parse_args()
    wanted = None if options.only is None else options.only.split(",")
    known = entries()
    if unknown := set(wanted or ()) - {entry.name for entry in known}:
        raise SystemExit(f"no entry {', '.join(sorted(unknown))}; known: {', '.join(entry.name for entry in known)}")
    chosen = [entry for entry in known if wanted is None or entry.name in wanted]
    store = options.store.resolve()
    os.chdir(ROOT)  # grids are named from here
    if options.list:
        show(chosen, store)
        return
    for entry in chosen:
        _, left = trials(entry, store)
        if not left:
            continue
        print(f"{entry.name}: {entry.what} ({left:,} trials, at most {entry.minutes} minutes on an H200)", flush=True)
        done = subprocess.run([sys.executable, "-m", "graphnorm", *entry.arguments(store)], check=False)
        if done.returncode:
            raise SystemExit(done.returncode)


if __name__ == "__main__":
    main()
