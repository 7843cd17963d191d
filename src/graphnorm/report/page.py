"""From sources to one page: the template, with everything that it needs inside.

Every name that comes from a user is escaped: in HTML by the template engine, in scripts as JSON, in charts as text.
"""

from __future__ import annotations

import datetime
import json
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import Any

from graphnorm._version import exact_version
from graphnorm.analysis import Aggregation
from graphnorm.comparison.job import beside_name
from graphnorm.data import PackedGraphs
from graphnorm.errors import GraphnormError, MissingDependencyError
from graphnorm.paper.colours import colour
from graphnorm.paper.products import QUICK_NOTE, signed
from graphnorm.report.charts import Chart, curve_charts, packed, score_chart
from graphnorm.report.items import Items, block, inline, tone
from graphnorm.report.sources import NormScore, Source
from graphnorm.report.structure import Structure, aggregation_of, look_at
from graphnorm.report.trained import Insight
from graphnorm.study.kernels import KERNELS

__all__ = ["build_page"]

NOTHING = "–"
FIGURE = """<figure>
  <h4>{{ chart.title }}</h4>
  <div class="chart" id="{{ id }}" role="img" aria-label="{{ chart.title }}. {{ chart.text }}">
    <p class="waiting">Drawing …</p>
  </div>
  <figcaption>{{ chart.text }} <a href="{{ chart.link }}" download="{{ id }}.csv.gz">Data (CSV)</a></figcaption>
</figure>"""


@dataclass(frozen=True)
class Placed:
    """A chart and where it stands on the page."""

    id: str
    chart: Chart
    chapter: str
    """Whose normalizations can be hidden in it; empty where it has none."""

    def for_plotly(self) -> dict[str, Any]:
        """What the page's script reads."""
        return {"id": self.id, "chapter": self.chapter, "traces": self.chart.traces, "layout": self.chart.layout}


def build_page(
    sources: Sequence[Source],
    *,
    title: str = "Which normalization?",
    find_graphs: Callable[[Source], PackedGraphs] | None = None,
    insights: Sequence[Insight] = (),
    items: Items | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> str:
    """Give the page of some comparisons and studies.

    find_graphs: gives the graphs of a source, or raises a ``GraphnormError`` that says why not; without it, the page
    says nothing of the graphs themselves.
    insights: about models trained on the same graphs, shown with the first source of these; others are left out.
    items: the paper's claims and tables, for the top of the page.
    """
    if not sources:
        raise GraphnormError("there is nothing to report", remedy="name a study, or the folder of a comparison")
    template, figure = _templates()
    placed: list[Placed] = []
    chapters = []
    known: dict[tuple[str, Aggregation], Structure | str] = {}
    shown_at: dict[int, dict[str, str]] = {}
    seen: set[str] = set()
    left = list(insights)
    for number, source in enumerate(sources, start=1):
        name = f"part-{number}"
        progress(source.title)
        charts = [*curve_charts(source), *([chart] if (chart := score_chart(source)) else [])]
        structure = _structure(source, find_graphs, known) if find_graphs else None
        own = [Placed(f"{name}-{chart.name}", chart, name) for chart in charts]
        shown = shown_at.get(id(structure))
        others = (
            [Placed(f"{name}-{chart.name}", chart, "") for chart in structure.charts]
            if isinstance(structure, Structure) and shown is None
            else []
        )
        if isinstance(structure, Structure):
            shown_at.setdefault(id(structure), {"id": f"{name}-graphs", "title": source.title})
        here = [insight for insight in left if insight.fingerprint == source.fingerprint]
        left = [insight for insight in left if insight.fingerprint != source.fingerprint]
        trained = [Placed(f"{name}-{chart.name}", chart, "") for chart in _named_apart(here)]
        placed += own + others + trained
        chapters.append(
            _chapter(name, source)
            | {
                "charts": own,
                "structure": structure if isinstance(structure, Structure) and shown is None else None,
                "structure_at": shown,
                "structure_first": source.fingerprint not in seen,
                "structure_charts": others,
                "why_no_structure": structure if isinstance(structure, str) else None,
                "trained": [sentence for insight in here for sentence in insight.sentences],
                "trained_charts": trained,
            }
        )
        seen.add(source.fingerprint)
    from markupsafe import Markup

    return str(
        template.render(
            title=title,
            lead=_lead(sources),
            quick_note=QUICK_NOTE,
            quick=_quick(sources),
            items=items,
            block=block,
            inline=inline,
            tone=tone,
            chapters=chapters,
            contents=_contents(chapters),
            charts=packed(json.dumps([item.for_plotly() for item in placed], separators=(",", ":"))),
            show=lambda item: Markup(figure.render(id=item.id, chart=item.chart)),
            css=Markup(_file("page.css")),
            js=Markup(_file("page.js")),
            plotly=_plotly(),
            made=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y"),
            version=exact_version(),
        )
    )


def _named_apart(insights: Sequence[Insight]) -> list[Chart]:
    """Their charts; where two have one name, a number is added."""
    charts: dict[str, Chart] = {}
    for chart in (chart for insight in insights for chart in insight.charts):
        count = sum(name.partition("~")[0] == chart.name for name in charts)
        charts[f"{chart.name}~{count}"] = replace(chart, name=f"{chart.name}-{count + 1}") if count else chart
    return list(charts.values())


def _structure(
    source: Source,
    find_graphs: Callable[[Source], PackedGraphs],
    known: dict[tuple[str, Aggregation], Structure | str],
) -> Structure | str:
    """What there is to say of a source's graphs, or why nothing; once for the same graphs and aggregation."""
    loops = bool(source.config.get("self_loops", False))
    key = (source.fingerprint, aggregation_of(source.model, self_loops=loops))
    if key not in known:
        try:
            known[key] = look_at(find_graphs(source), source.model, self_loops=loops)
        except GraphnormError as error:
            known[key] = f"Nothing is said of the graphs themselves: {error.problem.rstrip('.')}."
    return known[key]


def _lead(sources: Sequence[Source]) -> str:
    datasets = list(dict.fromkeys(source.dataset for source in sources))
    norms = list(dict.fromkeys(norm.name for source in sources for norm in source.norms))
    what = datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"
    if not norms:
        return f"Baselines on {what}."
    count = "One normalization" if len(norms) == 1 else f"{len(norms)} normalizations"
    lead = f"{count} on {what}, and how sure their differences are."
    if len(sources) == 1:
        return lead
    return (
        f"{lead} Within a part all have the same graphs, model, protocol and grid of settings. How many "
        "configurations, folds or seeds were trained, and on what, differs: the first line of each part says it."
    )


def _contents(chapters: Sequence[Mapping[str, Any]]) -> dict[str, list[tuple[Mapping[str, Any], str]]]:
    """Chapters by dataset, each with what its title says besides that."""
    groups: dict[str, list[tuple[Mapping[str, Any], str]]] = {}
    for chapter in chapters:
        source = chapter["source"]
        groups.setdefault(source.dataset, []).append((chapter, source.title.removeprefix(f"{source.dataset}, ")))
    return groups


def _quick(sources: Sequence[Source]) -> str:
    """What the page's head says of quick passes on it; nothing where there are none."""
    quick = sum(source.quick for source in sources)
    if not quick:
        return ""
    return QUICK_NOTE if quick == len(sources) else f"{QUICK_NOTE} ({quick} of {len(sources)} parts, each marked)"


def _chapter(name: str, source: Source) -> dict[str, Any]:
    ranked = sorted((n for n in source.norms if n.mean is not None), key=lambda norm: -(norm.mean or 0))
    best = ranked[0] if ranked else None
    everything = [*source.norms, *source.beside, *source.baselines]
    has_paper = any(norm.paper for norm in everything)
    has_settings = any(norm.settings for norm in everything)
    columns = ["norm", f"{source.metric} %", *(["paper", "difference"] if has_paper else [])]
    columns += ["p vs best", "epoch", "seconds", *(["configuration"] if has_settings else [])]
    rows = [
        {
            "name": norm.name,
            "colour": colour(norm.name),
            "best": norm is best,
            "cells": _cells(norm, norm is best, has_paper, has_settings),
        }
        for norm in source.norms
    ]
    beside = [(score.name, score) for score in source.beside]
    beside += [(beside_name(score.name), score) for score in source.baselines]
    shown = best or next((score for score in source.baselines if score.mean is not None), None)
    return {
        "id": name,
        "source": source,
        "columns": columns,
        "rows": rows,
        "beside": [{"name": name, "cells": _cells(score, False, has_paper, has_settings)} for name, score in beside],
        "shown": shown and {"name": shown.name, "colour": colour(shown.name), "score": _score(shown)},
        "config": _facts(source.config),
        "environment": _facts(source.environment),
    }


def _cells(norm: NormScore, best: bool, has_paper: bool, has_settings: bool) -> list[str]:
    score = _score(norm) + (f" ({norm.diverged} diverged)" if norm.diverged else "")
    cells = [score]
    if has_paper:
        difference = None if norm.paper is None or norm.mean is None else norm.mean - norm.paper.mean
        cells += [NOTHING if norm.paper is None else str(norm.paper)]
        cells += [NOTHING if difference is None else signed(difference)]
    seconds = f"{norm.seconds:.1f}" if norm.seconds or norm.mean is not None else NOTHING
    cells += ["best" if best else _against_best(norm), _epoch(norm), seconds]
    return cells + ([norm.settings or NOTHING] if has_settings else [])


def _score(norm: NormScore) -> str:
    if norm.mean is None:
        return NOTHING
    return f"{norm.mean:.1f}" if norm.std is None else f"{norm.mean:.1f} ± {norm.std:.1f}"


def _epoch(norm: NormScore) -> str:
    if norm.name in KERNELS:
        return NOTHING
    return (NOTHING if norm.mean is None else "varies") if norm.epoch is None else str(norm.epoch)


def _against_best(norm: NormScore) -> str:
    test = norm.against_best
    if test is None or test.p_adjusted is None:
        return NOTHING
    number = "<0.001" if test.p_adjusted < 0.001 else f"{test.p_adjusted:.3f}"
    return number + (" *" if test.significant else "")


def _facts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as text; a mapping inside is written out."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _facts({f"{name} {inner}": item for inner, item in value.items()})
        else:
            text = ", ".join(map(str, value)) if isinstance(value, (list, tuple)) else str(value)
            found.append((name.replace("_", " "), text))
    return found


def _templates() -> tuple[Any, Any]:
    try:
        import jinja2
    except ImportError as error:
        raise MissingDependencyError("jinja2", "a report", "report") from error
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    return environment.from_string(_file("page.html.j2")), environment.from_string(FIGURE)


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Plotly's script, compressed, as text."""
    try:
        from plotly.offline import get_plotlyjs
    except ImportError as error:
        raise MissingDependencyError("plotly", "a report", "report") from error
    return packed(get_plotlyjs())
