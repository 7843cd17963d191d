"""``graphnorm advise``: suggest which normalization to try first, and why."""

from __future__ import annotations

import argparse
import json
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.analyze import default_folder
from graphnorm.commands.options import add_data, add_json, fitted, load_graphs
from graphnorm.errors import GraphnormError
from graphnorm.files import read_text

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.study import Result

DESCRIPTION = """\
Say in plain words which normalization to try first on a dataset, with the evidence behind each sentence in brackets.

There are two kinds of evidence: measured trainings of the same graphs (--study), and predictions from the graphs
alone. Predictions use the folder of an earlier `graphnorm analyze` if there is one, otherwise a quick look at up to
1,000 graphs. Each sentence is marked certain (a mathematical fact), likely, or weak (a hint). Each
prediction comes with its track record on eight benchmarks, beside that of a constant answer.
"""

EXAMPLES = """\
examples:
  graphnorm advise IMDB-BINARY                       predictions only, in seconds
  graphnorm compare NCI1 --out nci1
  graphnorm advise NCI1 --study nci1                 measurements, and whether the predictions agree
  graphnorm advise NCI1 --study graphnorm.db         the same, from the store of graphnorm search
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument(
        "--study", type=Path, metavar="PATH", help="a folder of compare --out, or a store of graphnorm search"
    )
    parser.add_argument(
        "--analysis",
        type=Path,
        metavar="DIR",
        help="the folder of graphnorm analyze (default: analysis-NAME, if it exists)",
    )
    add_data(parser)


def run(options: argparse.Namespace) -> None:
    from graphnorm.analysis.advice import SAMPLE, advise, gather_facts
    from graphnorm.files import plain

    graphs = load_graphs(options)
    measured = None if options.study is None else _measured(options.study, graphs)
    parts = _parts(options, graphs)
    if not options.json and not {"regularity", "spectrum"} <= parts.keys():
        print(f"looking at up to {SAMPLE:,} graphs …", file=sys.stderr, flush=True)
    facts = gather_facts(graphs, parts)
    advice = advise(facts, measured)
    if options.json:
        values = {"dataset": graphs.name, "fingerprint": graphs.fingerprint} | advice.to_dict()
        values["statements"] = [statement.to_dict() for statement in advice.statements]
        values["measured"] = None if measured is None else measured.to_dict()
        values["facts"] = vars(facts)
        print(json.dumps(plain(values), indent=1, ensure_ascii=False))
        return
    print(f"{graphs.name}\n\n{fitted(str(advice))}")


def _measured(path: Path, graphs: PackedGraphs) -> Result:
    """The result for these graphs: of a comparison's folder, or of the store's study with the most finished trials."""
    from graphnorm.study import load_result, read
    from graphnorm.study.store import open_store

    if not path.exists():
        remedy = "name a folder of compare or a store of search"
        raise GraphnormError("there is no such file or folder", where=path, remedy=remedy)
    if path.is_dir():
        found = load_result(path)
        if found.fingerprint != graphs.fingerprint:
            raise GraphnormError(
                f"this compares other graphs ({found.dataset}) than {graphs.name} as loaded here",
                where=path,
                remedy="compare the same data, loaded with the same options",
            )
        return found
    with open_store(path) as store:
        studies = [study for study in store.studies() if study.spec.get("fingerprint") == graphs.fingerprint]
        for study in sorted(studies, key=lambda study: -study.finished):
            if study.has_scores and (result := read(store, store.plan(study))).ranking:
                return result
        names = ", ".join(study.name for study in store.studies()) or "none"
    raise GraphnormError(
        f"no study here has results for these graphs ({graphs.name}); there are: {names}",
        where=path,
        remedy="run graphnorm search on the same data, or leave --study out",
    )


def _parts(options: argparse.Namespace, graphs: PackedGraphs) -> dict[str, Any]:
    """The parts of an earlier analysis of these graphs, by name."""
    folder = options.analysis or default_folder(graphs.name)
    file = folder / "analysis.json"
    if not file.exists():
        if options.analysis is not None:
            raise GraphnormError("there is no analysis here", where=folder, remedy="run graphnorm analyze --out DIR")
        return {}
    try:
        content = json.loads(read_text(file))
        if content["fingerprint"] == graphs.fingerprint:
            return {part: values["summary"] for part, values in content["parts"].items()}
    except (json.JSONDecodeError, KeyError, TypeError) as error:
        raise GraphnormError("this is no analysis", where=file, remedy="run graphnorm analyze again") from error
    if options.analysis is not None:
        problem = f"this is the analysis of other graphs ({content.get('dataset', 'unnamed')})"
        raise GraphnormError(problem, where=file, remedy="analyze the same data")
    return {}  # another dataset of the same name
