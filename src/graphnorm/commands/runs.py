"""``graphnorm runs``: list, show, export and maintain the studies of a store."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING

from graphnorm.commands.options import result_text, width

if TYPE_CHECKING:
    from graphnorm.study import Study

DESCRIPTION = """\
List the studies of a store and their progress. A store can be read while a study writes to it.
"""
EXAMPLES = """\
examples:
  graphnorm runs --dataset NCI1                          the studies of one dataset
  graphnorm runs show NAME                               scores, selected configurations and failures of a study
  graphnorm runs export trials.parquet NAME --curves     every epoch of every trial
  graphnorm runs merge gpu1.db gpu2.db --store all.db    copy finished trials from other machines
  graphnorm runs prune NAME                              delete training curves of unselected configurations
  graphnorm runs recover graphnorm.db new.db             save the readable part of a damaged store
"""


def add(parser: argparse.ArgumentParser) -> None:
    _add_common(parser, store="graphnorm.db", json=False)
    for name in ("dataset", "model", "norm", "protocol"):
        parser.add_argument(f"--{name}", metavar="NAME", help=f"only studies of this {name}")
    parser.add_argument("--unfinished", action="store_true", help="only studies with trials still missing")
    parser.set_defaults(action=_list)
    actions = parser.add_subparsers(metavar="ACTION")

    def action(name: str, help_: str, function: object) -> argparse.ArgumentParser:
        made = actions.add_parser(name, help=help_, description=help_[0].upper() + help_[1:] + ".")
        _add_common(made)
        made.set_defaults(action=function)
        return made

    show = action("show", "show scores and selected configurations of a study", _show)
    show.add_argument("study", metavar="NAME", help="name of the study, or its beginning")
    export = action("export", "write trials to a CSV or Parquet file", _export)
    export.add_argument("file", type=Path, metavar="FILE", help="a .csv or .parquet file")
    export.add_argument(
        "study",
        nargs="*",
        metavar="NAME",
        help="default: all studies, or those that --dataset etc. (before the action) select",
    )
    export.add_argument("--curves", action="store_true", help="a row for every epoch of every trial")
    delete = action("delete", "delete a study, and the trials that only it has", _delete)
    delete.add_argument("study", metavar="NAME")
    merge = action("merge", "copy the finished trials of other stores", _merge)
    merge.add_argument("others", nargs="+", type=Path, metavar="FILE", help="other stores")
    prune = action("prune", "delete training curves of unselected configurations", _prune)
    prune.add_argument("study", nargs="+", metavar="NAME", help="finished studies; their scores stay")
    recover = action("recover", "save the readable part of a damaged store", _recover)
    recover.add_argument("damaged", type=Path, metavar="FILE")
    recover.add_argument("target", type=Path, metavar="NEW", help="a new file")


def _add_common(parser: argparse.ArgumentParser, **defaults: object) -> None:
    """Options that may stand before or after the action; only the outer parser has defaults."""
    parser.add_argument(
        "--store", metavar="FILE", default=argparse.SUPPRESS, help="default: graphnorm.db in this folder"
    )
    parser.add_argument("--json", action="store_const", const=True, default=argparse.SUPPRESS, help="print JSON")
    parser.set_defaults(**defaults)


def run(options: argparse.Namespace) -> None:
    from graphnorm.study.render import facts

    if (found := options.action(options)) is not None:
        print(facts(found, as_json=options.json))


def _list(options: argparse.Namespace) -> None:
    from graphnorm.study.render import Table
    from graphnorm.study.store import open_store

    with open_store(options.store) as store:
        studies = [study for study in store.studies() if _fits(study, options)]
    if options.json:
        print(json.dumps([study.to_dict() for study in studies], indent=1))
        return
    rows = [
        [
            study.name,
            f"{study.trials:,}",
            f"{study.finished:,}",
            *(f"{study.counts.get(status, 0):,}" for status in ("dropped", "failed")),
            f"{study.missing:,}",
            f"{study.seconds / 3600:,.2f}",
            study.created[:16].replace("T", " "),
        ]
        for study in studies
    ]
    columns = ("study", "trials", "done", "dropped", "failed", "missing", "hours", "begun")
    zero = tuple(name for place, name in enumerate(columns) if all(row[place] == "0" for row in rows))
    spare = (*(name for name in zero if name in ("dropped", "failed", "missing")), "hours", "begun")
    print(Table(columns, rows).to_text(left=("study",), width=width(), spare=spare))


def _fits(study: Study, options: argparse.Namespace) -> bool:
    spec = study.spec
    wanted = {name: getattr(options, name) for name in ("dataset", "model", "protocol")}
    equal = all(value is None or str(spec.get(name, "")).lower() == value.lower() for name, value in wanted.items())
    norm = options.norm is None or options.norm in spec.get("norms", ())
    return equal and norm and (not options.unfinished or study.missing > 0)


def _show(options: argparse.Namespace) -> None:
    from graphnorm.study import read
    from graphnorm.study.render import facts
    from graphnorm.study.store import open_store

    with open_store(options.store) as store:
        study = store.study(options.study)
        result = read(store, store.plan(study))
        if options.json:
            print(json.dumps(result.to_dict(), indent=1))
            return
        for error in result.errors:
            print(f"failed: {error}")
        print(("\n" if result.errors else "") + result_text(result))
        shown = {"study": study.name, "begun": study.created, "missing": study.missing}
        shown |= {"failed": study.counts.get("failed", 0), "code": "; ".join(result.code), "devices": result.devices}
        print("\n" + facts(shown))


def _export(options: argparse.Namespace) -> dict[str, object]:
    from graphnorm.study.export import export_trials
    from graphnorm.study.store import open_store

    with open_store(options.store) as store:
        every = [study for study in store.studies() if _fits(study, options)]
        studies = [store.study(name) for name in options.study] or every
        rows = export_trials(store, studies, options.file, curves=options.curves)
    return {"written": str(options.file), "rows": rows}


def _delete(options: argparse.Namespace) -> dict[str, object]:
    from graphnorm.study.store import open_store

    with open_store(options.store, writable=True) as store:
        study = store.study(options.study)
        with store.lock(study):
            store.delete(study)
    return {"deleted": study.name}


def _prune(options: argparse.Namespace) -> dict[str, object]:
    from graphnorm.study.maintenance import prune
    from graphnorm.study.store import open_store

    with open_store(options.store, writable=True) as store:
        found = prune(store, [store.study(name) for name in options.study])
    return {"written": str(options.store), **found._asdict()}


def _merge(options: argparse.Namespace) -> dict[str, object]:
    from graphnorm.study.maintenance import merge

    return {"written": str(options.store), **merge(Path(options.store), options.others)._asdict()}


def _recover(options: argparse.Namespace) -> dict[str, object]:
    from graphnorm.study.maintenance import recover

    return {"written": str(options.target), **recover(options.damaged, options.target)._asdict()}
