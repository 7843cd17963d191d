"""``graphnorm report``: studies and comparisons as one page to look at."""

from __future__ import annotations

import argparse
import math
import sys
from collections import defaultdict
from collections.abc import Mapping, Sequence
from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from graphnorm.commands.options import Subparsers, common
from graphnorm.commands.printing import print_facts
from graphnorm.commands.runs import find_study
from graphnorm.errors import GraphnormError

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.report import Insight, Source
    from graphnorm.report.sources import FindGraphs
    from graphnorm.study.store import Study

__all__ = ["add"]

DESCRIPTION = """\
Write one page of HTML that needs no network: verdict, tables, training curves to zoom into, spectra, regularity with
drawings, batch noise and the learned α where they were measured, configuration and environment.

WHAT is the folder of a comparison (graphnorm compare --out), a study of the store (graphnorm runs lists them), or the
folder of an analysis of the same graphs (graphnorm analyze --parts noise alpha). With nothing given, all studies of the
store are shown, with what graphnorm reproduce has put beside it. Studies of the same graphs, model, protocol and grid
are one part of the page, judged together.
"""
EXAMPLES = """\
examples:
  graphnorm report mutag/ --open
  graphnorm report mutag/ analysis-MUTAG/
  graphnorm report NCI1-gin-paper --store graphnorm.db --out nci1.html
  graphnorm report --store gpu.db --items results/
"""


def add(subparsers: Subparsers) -> None:
    """Add the command."""
    parser = subparsers.add_parser(
        "report",
        help="studies and comparisons as one page of HTML",
        description=DESCRIPTION,
        epilog=EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
        parents=[common(data_root=None, json=False)],
    )
    parser.add_argument("what", nargs="*", metavar="WHAT", help="folders of comparisons, names of studies")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    parser.add_argument(
        "--store", type=Path, default=Path("graphnorm.db"), metavar="FILE", help="default: graphnorm.db"
    )
    parser.add_argument("--noise", type=Path, metavar="FILE", help="of batch noise and α; default: beside the store")
    parser.add_argument(
        "--items",
        type=Path,
        metavar="FOLDER",
        help="that graphnorm reproduce wrote: its claims and Tables 1 and 2 stand at the top of the page",
    )
    parser.add_argument("--title", default="Which normalization?", help="of the page")
    parser.add_argument("--no-graphs", action="store_true", help="say nothing of the graphs themselves")
    parser.add_argument("--open", action="store_true", help="show it in the browser")
    parser.set_defaults(run=_run)


def _run(options: argparse.Namespace) -> None:
    from graphnorm.files import replacing
    from graphnorm.report import build_page, read_items

    if options.out.is_dir():
        raise GraphnormError("this is a folder", where=options.out, remedy="name a file: --out page.html")
    analyses = [name for name in options.what if (Path(name) / "analysis.json").exists()]
    options.what = [name for name in options.what if name not in analyses]
    if analyses and not options.what:
        raise GraphnormError(
            "an analysis alone makes no report", where=analyses[0], remedy="name the comparison of these graphs, too"
        )

    def find_graphs(dataset: str, fingerprint: str, origin: Mapping[str, Any] | None) -> PackedGraphs:
        from graphnorm.data import load

        if origin is None:
            graphs = load(dataset, options.data_root, download=False)
        elif (path := Path(origin["name_or_path"])).exists():
            graphs = load(**origin)
        else:
            print(f"graphnorm: {path} is not there any more; nothing is said of these graphs", file=sys.stderr)
            raise GraphnormError("they are not where they were")
        if graphs.fingerprint != fingerprint:
            raise GraphnormError(f"the graphs found as {dataset} are not those that were trained on")
        return graphs

    items = None if options.items is None else read_items(options.items)
    sources = _told_apart(_sources(options, find_graphs))
    insights = _insights(options, [Path(name) for name in analyses], sources)

    def say(title: str) -> None:
        if not options.json:
            print(f"{title} …", file=sys.stderr, flush=True)

    page = build_page(
        sources,
        title=options.title,
        find_graphs=None if options.no_graphs else lambda s: find_graphs(s.dataset, s.fingerprint, s.origin),
        insights=insights,
        items=items,
        progress=say,
    )
    with replacing(options.out) as fresh:
        fresh.write_text(page, encoding="utf-8")
    size = f"{options.out.stat().st_size / 1e6:.1f} MB"
    print_facts({"written": str(options.out), "size": size, "parts": len(sources)}, options.json)
    if options.open:
        import webbrowser

        webbrowser.open(options.out.resolve().as_uri())


def _by_dataset(sources: list[Source], begun: Sequence[Study]) -> list[Source]:
    """Studies of one dataset together, of one model and protocol among these, the largest grids first.

    begun: all studies; what is asked first of them stands first.
    """
    order = {name: [study.spec.get(name) for study in begun] for name in ("dataset", "model", "protocol")}

    def place(source: Source) -> tuple[int, ...]:
        return (*(values.index(getattr(source, name)) for name, values in order.items()), -_count(source))

    return sorted(sources, key=place)


def _told_apart(sources: list[Source]) -> list[Source]:
    """The same; titles that several studies have say, in as few words as can be, what each has of its own."""
    same = defaultdict(list)
    for source in sources:
        same[source.title].append(source)
    more: dict[int, str] = {}
    for studies in ([s for s in group if "study" in s.config] for group in same.values() if len(group) > 1):
        for tell in (_name, _norms_and_grid, _norms, _grid):  # the last that only it has
            texts = [tell(study) for study in studies]
            more |= {id(s): text for s, text in zip(studies, texts, strict=True) if texts.count(text) == 1}
    return [replace(s, title=f"{s.title}: {more[id(s)]}") if id(s) in more else s for s in sources]


def _count(study: Source) -> int:
    return math.prod(len(values) for name, values in study.config.get("grid", {}).items() if name != "name")


def _grid(study: Source) -> str:
    return f"{_count(study)} configuration{'s' if _count(study) > 1 else ''}"


def _norms(study: Source) -> str:
    return ", ".join(study.config.get("norms", ()))


def _norms_and_grid(study: Source) -> str:
    return f"{_norms(study)}; {_grid(study)}"


def _name(study: Source) -> str:
    return ", ".join(study.config["study"])


def _insights(options: argparse.Namespace, analyses: list[Path], sources: list[Source]) -> list[Insight]:
    from graphnorm.report import read_analysis, read_notebook

    insights = []
    known = {source.fingerprint for source in sources}
    for folder in analyses:
        insight = read_analysis(folder)
        if not insight.charts:
            remedy = "graphnorm analyze DATA --parts noise alpha"
            raise GraphnormError("this analysis has neither noise nor alpha", where=folder, remedy=remedy)
        if insight.fingerprint not in known:
            raise GraphnormError(
                f"nothing else on the page is about the graphs of this analysis, {insight.dataset}",
                where=folder,
                remedy="name the comparison of the same graphs",
            )
        insights.append(insight)
    beside = options.noise or options.store.with_suffix(".noise.json")
    if options.noise and not beside.exists():
        raise GraphnormError("there is no such file", where=beside, remedy="check the path")
    return [*insights, *read_notebook(beside)]


def _sources(options: argparse.Namespace, find_graphs: FindGraphs) -> list[Source]:
    from graphnorm.report import join_baselines, read_comparison, read_studies
    from graphnorm.study.store import Store

    folders = {name: Path(name) for name in options.what if (Path(name) / "comparison.json").exists()}
    names = [name for name in options.what if name not in folders]
    for name in names:
        if Path(name).is_dir():
            inside = Path(name) / "graphnorm.db"
            remedy = f"graphnorm report --store {inside}" if inside.exists() else "give another folder"
            raise GraphnormError("there is no comparison in it", where=name, remedy=remedy)
    found: dict[str, Source] = {name: read_comparison(folder) for name, folder in folders.items()}
    if names or not options.what:
        if not options.store.exists():
            what = f"no folder {names[0]!r} with a comparison, and no store" if names else "no store of studies"
            raise GraphnormError(f"there is {what}", where=options.store, remedy="name a folder, or --store FILE")
        with Store(options.store, writable=False) as store:
            if not options.what:
                begun = [study for study in store.studies() if study.finished] or store.studies()
                return _by_dataset(join_baselines(read_studies(store, begun, find_graphs, fold=True)), begun)
            named = {name: find_study(store, name) for name in names}
            called = {study.name: name for name, study in reversed(named.items())}
            studies = [study for name, study in named.items() if called[study.name] == name]
            for source in read_studies(store, studies, find_graphs):
                found[called[source.config["study"][0]]] = source
    return join_baselines([found[name] for name in dict.fromkeys(options.what) if name in found])
