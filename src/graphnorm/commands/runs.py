"""``graphnorm runs``: what a store of studies holds."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import Subparsers
from graphnorm.commands.printing import print_facts, print_table
from graphnorm.commands.search import COLUMNS, result_rows
from graphnorm.errors import StudyError

if TYPE_CHECKING:
    from graphnorm.study.store import Store, Study

__all__ = ["add", "find_study"]

DESCRIPTION = """\
List the studies of a store, with how far each one is. A store can be read while a study writes to it.
"""
EXAMPLES = """\
examples:
  graphnorm runs --dataset NCI1                          the studies of one dataset
  graphnorm runs show NAME                               what a study chose, what it scores, what failed
  graphnorm runs export trials.parquet NAME --curves     every epoch of every trial
  graphnorm runs merge gpu1.db gpu2.db --store all.db    what other machines have finished
  graphnorm runs slim NAME                               a smaller store: training curves of the chosen alone
  graphnorm runs rescue graphnorm.db new.db              what is readable of a damaged store
"""


def add(subparsers: Subparsers) -> None:
    """Add the command and its actions."""
    runs = subparsers.add_parser(
        "runs",
        help="list, show and export studies",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[_common(store="graphnorm.db", json=False)],
    )
    for name in ("dataset", "model", "norm", "protocol"):
        runs.add_argument(f"--{name}", metavar="NAME", help=f"only studies of this {name}")
    runs.add_argument("--unfinished", action="store_true", help="only studies with trials still missing")
    runs.set_defaults(run=_list)
    actions = runs.add_subparsers(metavar="ACTION")
    show = actions.add_parser("show", help="what a study chose and scores", parents=[_common()])
    show.add_argument("study", metavar="NAME", help="as the list has it, or how it begins")
    show.set_defaults(run=_show)
    export = actions.add_parser("export", help="write trials to a CSV or Parquet file", parents=[_common()])
    export.add_argument("file", type=Path, metavar="FILE", help="a .csv or .parquet file")
    export.add_argument(
        "study",
        nargs="*",
        metavar="NAME",
        help="default: all studies, or those of --dataset and the like before the action",
    )
    export.add_argument("--curves", action="store_true", help="a row for every epoch of every trial")
    export.set_defaults(run=_export)
    delete = actions.add_parser("delete", help="remove a study, and the trials only it has", parents=[_common()])
    delete.add_argument("study", metavar="NAME")
    delete.set_defaults(run=_delete)
    merge = actions.add_parser("merge", help="take over what other stores have finished", parents=[_common()])
    merge.add_argument("others", nargs="+", type=Path, metavar="FILE", help="stores, of other machines say")
    merge.set_defaults(run=_merge)
    slim = actions.add_parser("slim", help="let go of training curves that nothing draws", parents=[_common()])
    slim.add_argument("study", nargs="+", metavar="NAME", help="finished studies; what they chose and score stays")
    slim.set_defaults(run=_slim)
    rescue = actions.add_parser("rescue", help="save what is readable of a damaged store", parents=[_common()])
    rescue.add_argument("damaged", type=Path, metavar="FILE")
    rescue.add_argument("target", type=Path, metavar="NEW", help="a file that is not there yet")
    rescue.set_defaults(run=_rescue)


def _common(**defaults: Any) -> argparse.ArgumentParser:
    """Options of the list and of every action, as in :func:`graphnorm.commands.options.common`.

    Each parser has its own: argparse keeps defaults in the options themselves, and the action's would undo what was
    given before it.
    """
    parser = argparse.ArgumentParser(add_help=False, argument_default=argparse.SUPPRESS)
    parser.add_argument("--store", metavar="FILE", help="default: graphnorm.db in this folder")
    parser.add_argument("--json", action="store_const", const=True, help="print JSON")
    parser.set_defaults(**defaults)
    return parser


def _open(options: argparse.Namespace, *, writable: bool = False) -> Store:
    from graphnorm.study.store import Store

    return Store(options.store, writable=writable)


def _list(options: argparse.Namespace) -> None:
    with _open(options) as store:
        studies = [study for study in store.studies() if _fits(study, options)]
    if options.json:
        print(json.dumps([_describe(study) for study in studies], indent=1))
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
    print_table(("study", "trials", "done", "dropped", "failed", "missing", "hours", "begun"), rows, left=("study",))


def _fits(study: Study, options: argparse.Namespace) -> bool:
    spec = study.spec
    wanted = {name: getattr(options, name) for name in ("dataset", "model", "protocol")}
    equal = all(value is None or str(spec.get(name, "")).lower() == value.lower() for name, value in wanted.items())
    norm = options.norm is None or options.norm in spec.get("norms", ())
    return equal and norm and (not options.unfinished or study.missing > 0)


def _describe(study: Study) -> dict[str, Any]:
    return {
        "name": study.name,
        "created": study.created,
        "trials": study.trials,
        "missing": study.missing,
        "counts": dict(study.counts),
        "seconds": study.seconds,
        "spec": dict(study.spec),
    }


def find_study(store: Store, name: str) -> Study:
    """A study by its name, or by a beginning that only it has."""
    studies = store.studies()
    matches = [s for s in studies if s.name == name] or [s for s in studies if s.name.startswith(name)]
    if len(matches) > 1:
        names = ", ".join(study.name for study in matches)
        raise StudyError(f"{len(matches)} studies begin with {name!r}: {names}", remedy="write more of the name")
    return matches[0] if matches else store.study(name)


def _show(options: argparse.Namespace) -> None:
    from graphnorm.study.results import study_results
    from graphnorm.study.search import SearchResult
    from graphnorm.study.standings import circumstances

    with _open(options) as store:
        study = find_study(store, options.study)
        result = SearchResult(study, tuple(study_results(store, study)))
        codes, devices, errors = circumstances(store, study)
    if options.json:
        print(json.dumps(result.to_dict() | {"errors": errors, "code": codes, "devices": devices}, indent=1))
        return
    print_table(COLUMNS, result_rows(result), left=("norm", "configuration"))
    facts = {"study": study.name, "protocol": study.spec.get("protocol", "?"), "begun": study.created}
    facts |= {"missing": study.missing, "failed": study.counts.get("failed", 0)}
    facts |= {"code": "; ".join(codes), "devices": devices}
    print_facts(facts, as_json=False)
    for error in errors:
        print(f"failed: {error}")


def _export(options: argparse.Namespace) -> None:
    from graphnorm.study.export import export_trials

    with _open(options) as store:
        every = [study for study in store.studies() if _fits(study, options)]
        studies = [find_study(store, name) for name in options.study] or every
        rows = export_trials(store, studies, options.file, curves=options.curves)
    print_facts({"written": str(options.file), "rows": rows}, options.json)


def _delete(options: argparse.Namespace) -> None:
    from graphnorm.study.lock import study_lock

    with _open(options) as reading:
        name = find_study(reading, options.study).name
    with _open(options, writable=True) as store:
        study = store.study(name)
        with study_lock(store, study):
            store.delete_study(study)
    print_facts({"deleted": name}, options.json)


def _slim(options: argparse.Namespace) -> None:
    from graphnorm.study.slim import slim

    with _open(options) as reading:
        names = [find_study(reading, name).name for name in options.study]
    with _open(options, writable=True) as store:
        found = slim(store, [store.study(name) for name in names])
    print_facts({"written": str(options.store), **found._asdict()}, options.json)


def _merge(options: argparse.Namespace) -> None:
    from graphnorm.study.merge import merge

    found = merge(Path(options.store), options.others)
    print_facts({"written": str(options.store), **found._asdict()}, options.json)


def _rescue(options: argparse.Namespace) -> None:
    from graphnorm.study.rescue import rescue

    found = rescue(options.damaged, options.target)
    print_facts({"written": str(options.target), **found._asdict()}, options.json)
