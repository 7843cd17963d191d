"""``graphnorm report``: write studies and comparisons as an HTML page."""

from __future__ import annotations

import argparse
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from graphnorm.commands.options import add_json, add_options
from graphnorm.errors import GraphnormError
from graphnorm.settings import Loading

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.report import Chapter, Section
    from graphnorm.study import Result

DESCRIPTION = """\
Write an HTML page that needs no network: verdict, tables, interactive training curves, spectra, regularity with
drawings, batch noise and the learned α if they were measured, configuration and environment.

WHAT is the folder of a comparison (graphnorm compare --out), a study of the store (graphnorm runs lists them), or the
folder of an analysis of the same graphs (graphnorm analyze --parts noise alpha). Without it, all studies of the store
are shown. Studies of the same graphs, model, protocol and configurations are merged into one part and tested together.
"""
EXAMPLES = """\
examples:
  graphnorm report mutag/ --open                         the comparison in mutag/, in the browser
  graphnorm report mutag/ analysis-MUTAG/                with batch noise and the learned α
  graphnorm report NCI1-gin-paper --out nci1.html        a study of graphnorm.db
  graphnorm report --store gpu.db --items results/       all studies, with the paper's claims and tables at the top
"""


def add(parser: argparse.ArgumentParser) -> None:
    add_json(parser)
    parser.add_argument("what", nargs="*", metavar="WHAT", help="folders of comparisons and analyses, names of studies")
    parser.add_argument("--out", type=Path, default=Path("report.html"), metavar="FILE", help="default: report.html")
    parser.add_argument(
        "--store", type=Path, default=Path("graphnorm.db"), metavar="FILE", help="default: graphnorm.db in this folder"
    )
    parser.add_argument(
        "--items",
        type=Path,
        metavar="DIR",
        help="folder of graphnorm reproduce: its claims and Tables 1 and 2 are shown at the top of the page",
    )
    parser.add_argument("--title", default="Which normalization?", help="title of the page")
    parser.add_argument("--no-graphs", action="store_true", help="leave out spectra, regularity and drawings")
    parser.add_argument("--open", action="store_true", help="open the page in the browser")
    add_options(parser, "datasets", Loading, "data_root")


def run(options: argparse.Namespace) -> None:
    from graphnorm.files import write_text
    from graphnorm.report import build_page, read_reproduced, tell_apart
    from graphnorm.study.render import facts

    if options.out.is_dir():
        raise GraphnormError("this is a folder", where=options.out, remedy="name a file: --out page.html")
    analyses = [Path(name) for name in options.what if (Path(name) / "analysis.json").exists()]
    what = [name for name in dict.fromkeys(options.what) if Path(name) not in analyses]
    if analyses and not what:
        raise GraphnormError(
            "an analysis alone makes no report", where=analyses[0], remedy="also name the comparison of these graphs"
        )
    reproduced = None if options.items is None else read_reproduced(options.items)
    chapters = tell_apart(_read_chapters(what, options.store))
    page = build_page(
        chapters,
        title=options.title,
        find_graphs=None if options.no_graphs else lambda result: _find_graphs(result, options.data_root),
        models=_read_models(analyses, options.store, chapters),
        reproduced=reproduced,
        progress=lambda title: None if options.json else print(f"{title} …", file=sys.stderr, flush=True),
    )
    write_text(options.out, page)
    size = f"{options.out.stat().st_size / 1e6:.1f} MB"
    print(facts({"written": str(options.out), "size": size, "parts": len(chapters)}, as_json=options.json))
    if options.open:
        import webbrowser

        webbrowser.open(options.out.resolve().as_uri())


def _read_chapters(what: Sequence[str], store: Path) -> list[Chapter]:
    """The chapters of the named folders and studies, in order; by default of all studies of the store."""
    from graphnorm.report import by_dataset, join_baselines, read_folder, read_studies
    from graphnorm.study.store import open_store

    found = {name: read_folder(Path(name)) for name in what if (Path(name) / "result.json").exists()}
    names = [name for name in what if name not in found]
    for name in names:
        if Path(name).is_dir():
            inside = Path(name) / "graphnorm.db"
            remedy = f"graphnorm report --store {inside}" if inside.exists() else "give another folder"
            raise GraphnormError("there is no comparison in it", where=name, remedy=remedy)
    if found and not names:
        return join_baselines(list(found.values()))
    if not store.exists():
        problem = f"there is no folder {names[0]!r} with a comparison, and no store" if names else "there is no store"
        raise GraphnormError(problem, where=store, remedy="name a folder, or --store FILE")
    with open_store(store) as opened:
        if not what:
            studies = [study for study in opened.studies() if study.has_scores]
            studies = [study for study in studies if study.finished] or studies
            return by_dataset(join_baselines(read_studies(opened, studies, fold=True)), studies)
        named = {name: opened.study(name) for name in names}
        for study in named.values():
            if not study.has_scores:
                problem = f"{study.name} has no scores: it trained on all graphs"
                raise GraphnormError(problem, remedy="name another study, or none for all")
        first = {study.name: name for name, study in reversed(named.items())}
        studies = [study for name, study in named.items() if first[study.name] == name]
        found |= {first[chapter.studies[0]]: chapter for chapter in read_studies(opened, studies)}
    return join_baselines([found[name] for name in what if name in found])


def _read_models(analyses: Sequence[Path], store: Path, chapters: Sequence[Chapter]) -> list[tuple[str, Section]]:
    """Sections on batch noise and the learned α, from analyses and the store, with the graphs' fingerprints."""
    from graphnorm.paper.noise_and_alpha import alpha_runs, noise_runs
    from graphnorm.report import model_sections, read_analysis
    from graphnorm.study.store import open_store

    found = []
    for folder in analyses:
        dataset, fingerprint, section = read_analysis(folder)
        if fingerprint not in {chapter.result.fingerprint for chapter in chapters}:
            raise GraphnormError(
                f"nothing else on the page is about the graphs of this analysis, {dataset}",
                where=folder,
                remedy="name the comparison of the same graphs",
            )
        found.append((fingerprint, section))
    if store.exists():
        with open_store(store) as opened:
            found += model_sections(noise_runs(opened), alpha_runs(opened)).items()
    return found


def _find_graphs(result: Result, data_root: str | None) -> PackedGraphs:
    """The graphs of a result, if they are on this machine; otherwise an error for the page, without paths."""
    from graphnorm.data import load

    origin = result.spec.get("origin")
    try:
        if origin is None:
            graphs = load(result.dataset, data_root, download=False)
        elif (path := Path(origin["name_or_path"])).exists():
            graphs = load(**origin)
        else:
            print(f"graphnorm: {path} does not exist any more; the page leaves these graphs out", file=sys.stderr)
            raise GraphnormError("they are not where they were")
    except (KeyError, TypeError) as error:
        raise GraphnormError("where they are is not written as graphnorm compare does") from error
    if graphs.fingerprint != result.fingerprint:
        raise GraphnormError(f"the graphs found as {result.dataset} are not those that were trained on")
    return graphs
