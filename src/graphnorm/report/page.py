"""From chapters to one page of HTML that needs no other file.

Every name that comes from a user is escaped: in HTML by the template engine, in scripts as JSON, in charts as text.
"""

from __future__ import annotations

import datetime
import json
import math
from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cache
from importlib import resources
from typing import TYPE_CHECKING, Any, NamedTuple

from graphnorm._version import exact_version
from graphnorm.analysis import Aggregation
from graphnorm.colours import COLOURS, colour, dash
from graphnorm.errors import GraphnormError, need
from graphnorm.models import MODELS
from graphnorm.paper.output import QUICK_NOTE
from graphnorm.report.chapters import Chapter
from graphnorm.report.charts import Chart, Section, graph_section, packed, result_charts
from graphnorm.report.reproduced import Reproduced, inline
from graphnorm.settings import DEFAULT_NORMS
from graphnorm.study.grouping import by_key
from graphnorm.study.layout import in_order, target_title
from graphnorm.study.paper_numbers import TABLE_2
from graphnorm.study.render import NOTHING, counted, signed

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.study import Result

__all__ = ["build_page"]

FindGraphs = Callable[["Result"], "PackedGraphs"]


class Row(NamedTuple):
    """A row of the table of scores."""

    name: str
    colour: str
    """Empty if the row is not ranked."""
    dash: str
    leads: bool
    """Whether it is the best, or not significantly worse."""
    cells: Sequence[str]


class Line(NamedTuple):
    """A row of the overview: for each normalization its mean, and whether it leads; None if it has none."""

    part: Part
    cells: Sequence[tuple[str, bool] | None]


Overview = tuple[Sequence[str], Sequence[Line]]
"""Normalizations, and lines with a cell for each of them."""


@dataclass
class Part:
    """A chapter as the template shows it."""

    id: str
    chapter: Chapter
    charts: Sequence[Chart]
    columns: Sequence[str]
    rows: Sequence[Row]
    repeats_graphs: bool = False
    """Whether a part above has the same graphs."""
    graphs: Section | None = None
    graphs_at: Part | None = None
    """The part above with the section on the same graphs and aggregation."""
    no_graphs: str = ""
    """Why there is no such section."""
    models: Section | None = None

    @property
    def tag(self) -> tuple[str, str]:
        """A few words for the contents, and a colour: of a normalization that is better than all others."""
        leaders, ranked = leading(self.chapter.result), self.chapter.result.ranking
        if len(ranked) > 1:
            return (leaders[0], colour(leaders[0])) if len(leaders) == 1 else (_tie(leaders, ranked), "")
        first = self.rows[0] if self.rows else None
        return ("" if first is None else f"{first.name} {first.cells[0]}", "")

    @property
    def aggregation(self) -> Aggregation:
        """How the model aggregates neighbours, for spectra and regularity."""
        result = self.chapter.result
        if result.model in MODELS and MODELS[result.model].family == "GCN":
            return Aggregation("gcn")
        return Aggregation("gin", self_loop=bool(result.values_of("self_loops")[0]))

    @property
    def configuration(self) -> list[tuple[str, str]]:
        chapter, spec = self.chapter, self.chapter.result.spec
        shown = {name: value for name, value in spec.items() if name not in ("origin", "fingerprint")}
        return _facts({"study": chapter.studies or chapter.result.study} | shown)

    @property
    def environment(self) -> list[tuple[str, str]]:
        result = self.chapter.result
        return _facts(
            {
                "code": "; ".join(result.code),
                "trained on": result.devices,
                "trials": f"{result.trials:,}",
                "training hours": f"{result.seconds / 3600:.3f}",
                "begun": self.chapter.begun,
                "fingerprint": result.fingerprint[:16],
            }
        )


def build_page(
    chapters: Sequence[Chapter],
    *,
    title: str = "Which normalization?",
    find_graphs: FindGraphs | None = None,
    models: Sequence[tuple[str, Section]] = (),
    reproduced: Reproduced | None = None,
    progress: Callable[[str], None] = lambda text: None,
) -> str:
    """The page as text.

    find_graphs: gives the graphs of a result, or raises a ``GraphnormError`` that says why not. Without it, the page
        has no section on the graphs.
    models: measurements of trained models, with the fingerprint of their graphs. They go into the first chapter with
        these graphs.
    reproduced: the paper's claims and tables.
    progress: called with the title of each chapter.
    """
    if not chapters:
        raise GraphnormError("there is nothing to report", remedy="name a study, or the folder of a comparison")
    parts: list[Part] = []
    for number, chapter in enumerate(chapters, start=1):
        progress(chapter.title)
        fingerprint = chapter.result.fingerprint
        part = Part(f"part-{number}", chapter, result_charts(chapter.result), *_table(chapter))
        above = [other for other in parts if other.chapter.result.fingerprint == fingerprint]
        part.repeats_graphs = bool(above)
        if find_graphs is not None:
            _add_graphs(part, above, find_graphs)
        if not above:
            part.models = _joined([section for trained_on, section in models if trained_on == fingerprint])
        parts.append(part)
    overview, more = _overview(parts)
    return str(
        _template().render(
            title=title,
            lead=_lead(chapters),
            quick_note=QUICK_NOTE,
            quick=_quick(chapters),
            reproduced=reproduced,
            parts=parts,
            overview=overview,
            more=more,
            target_title=target_title,
            contents=by_key(parts, lambda part: part.chapter.result.dataset),
            charts=packed(json.dumps(_for_plotly(parts), separators=(",", ":"))),
            css=_file("page.css"),
            js=_file("page.js"),
            plotly=_plotly(),
            made=datetime.datetime.now(datetime.UTC).strftime("%d %B %Y"),
            version=exact_version(),
        )
    )


def _table(chapter: Chapter) -> tuple[list[str], list[Row]]:
    """The table of the result, with the chapter's own rows and with differences from the paper."""
    result = replace(chapter.result, baselines={**chapter.unranked, **chapter.result.baselines})
    table = result.table
    scores = in_order(result)
    leaders = leading(result)
    columns = [column for column in table.columns if column not in ("paper", "configuration")]
    columns[2:2] = ["paper", "difference"] if "paper" in table.columns else []
    columns += ["configuration"] if "configuration" in table.columns else []
    rows = []
    for (label, score), row in zip(scores.items(), table.rows, strict=True):
        cells = dict(zip(table.columns, map(str, row), strict=True))
        cells["difference"] = NOTHING
        if score.paper is not None and math.isfinite(score.mean):
            cells["difference"] = signed(score.mean - score.paper.mean)
        name = bare if (bare := label.removeprefix("baseline ")) in chapter.unranked else label
        shade = colour(name) if name in result.norms else ""
        rows.append(Row(name, shade, dash(name), name in leaders, [cells[column] for column in columns[1:]]))
    return columns, rows


def leading(result: Result) -> tuple[str, ...]:
    """The best normalization and those that are not significantly worse; none if nothing was learned or tested."""
    tested = any(test.p_adjusted is not None for test in result.tests)
    return result.groups[0] if result.learned and tested else ()


def _tie(leaders: Sequence[str], ranked: Sequence[str]) -> str:
    """In a few words, that several lead.

    >>> _tie(["a", "b"], ["a", "b"]), _tie(["a", "b"], ["a", "b", "c"]), _tie([], ["a", "b"])
    ('all tied', '2 of 3 tied', 'no verdict')
    """
    if not leaders:
        return "no verdict"
    return "all tied" if len(leaders) == len(ranked) else f"{len(leaders)} of {len(ranked)} tied"


def _overview(parts: Sequence[Part]) -> tuple[Overview, Overview]:
    """A line for each dataset, with the paper's model or else the first, and a line for each other model and protocol.

    Of several comparisons that of most of the usual normalizations counts, then that of most configurations.
    """
    best: dict[tuple[str, str, str], Part] = {}
    for part in parts:
        result = part.chapter.result
        question = result.dataset, result.model, result.protocol.name
        if len(result.ranking) > 1 and (question not in best or _usual(part) > _usual(best[question])):
            best[question] = part
    names = [*MODELS, *(model for _, model, _ in best)]
    first: dict[str, Part] = {}
    for question in sorted(best, key=lambda question: (question[1] not in TABLE_2, names.index(question[1]))):
        first.setdefault(question[0], best[question])
    others = [part for part in best.values() if part is not first[part.chapter.result.dataset]]
    return _grid([part for part in best.values() if part not in others]), _grid(others)


def _usual(part: Part) -> int:
    return len(set(part.chapter.result.ranking).intersection(DEFAULT_NORMS))


def _grid(parts: Sequence[Part]) -> Overview:
    found = {name for part in parts for name in part.chapter.result.ranking}
    norms = [name for name in COLOURS if name in found] + sorted(found - COLOURS.keys())
    lines = []
    for part in parts:
        result, leaders = part.chapter.result, leading(part.chapter.result)
        cells = [(f"{result.norms[n].mean:.1f}", n in leaders) if n in result.ranking else None for n in norms]
        lines.append(Line(part, cells))
    return norms, lines


def _facts(values: Mapping[str, Any]) -> list[tuple[str, str]]:
    """Names and values as text; nested mappings are flattened, and empty values are left out."""
    found = []
    for name, value in values.items():
        if isinstance(value, Mapping):
            found += _facts({f"{name} {inner}": item for inner, item in value.items()})
        elif value not in (None, "", [], ()):
            text = ", ".join(map(str, value)) if isinstance(value, list | tuple) else str(value)
            found.append((name.replace("_", " "), text))
    return found


def _add_graphs(part: Part, above: Sequence[Part], find_graphs: FindGraphs) -> None:
    """Add spectra, regularity and drawings, or a link to them on this page, or why there are none."""
    same = next((other for other in above if other.aggregation == part.aggregation), None)
    if same is not None:
        part.no_graphs = same.no_graphs
        part.graphs_at = same.graphs_at or same
        return
    try:
        part.graphs = graph_section(find_graphs(part.chapter.result), part.aggregation)
    except GraphnormError as error:
        part.no_graphs = f"There is no analysis of these graphs: {error.problem.rstrip('.')}."


def _joined(sections: Sequence[Section]) -> Section | None:
    """Several sections as one, None if there is none; a second chart of the same name gets a number."""
    counts: Counter[str] = Counter()
    charts = []
    for chart in (chart for section in sections for chart in section.charts):
        counts[chart.name] += 1
        number = counts[chart.name]
        charts.append(replace(chart, name=f"{chart.name}-{number}") if number > 1 else chart)
    return Section([text for section in sections for text in section.sentences], charts) if charts else None


def _for_plotly(parts: Sequence[Part]) -> list[dict[str, Any]]:
    """The input of the page's script; ``chapter`` is set if a chapter's normalizations can be hidden."""
    return [
        {"id": f"{part.id}-{chart.name}", "chapter": chapter, "traces": chart.traces, "layout": chart.layout}
        for part in parts
        for chapter, charts in (
            (part.id, part.charts),
            ("", part.graphs.charts if part.graphs else ()),
            ("", part.models.charts if part.models else ()),
        )
        for chart in charts
    ]


def _lead(chapters: Sequence[Chapter]) -> str:
    datasets = list(dict.fromkeys(chapter.result.dataset for chapter in chapters))
    norms = {norm for chapter in chapters for norm in chapter.result.norms}
    what = datasets[0] if len(datasets) == 1 else f"{len(datasets)} datasets"
    if not norms:
        return f"Baselines on {what}."
    lead = f"{counted(len(norms), 'normalization')} on {what}, and how sure their differences are."
    if len(chapters) == 1:
        return lead
    return (
        f"{lead} Within a part all have the same graphs, model, protocol and grid of settings. How many "
        "configurations, folds or seeds were trained, and on what, differs: the first line of each part says it."
    )


def _quick(chapters: Sequence[Chapter]) -> str:
    """The mark of quick passes at the top of the page; empty if there are none."""
    quick = sum(chapter.is_quick for chapter in chapters)
    if not quick:
        return ""
    return QUICK_NOTE if quick == len(chapters) else f"{QUICK_NOTE} ({quick} of {len(chapters)} parts, each marked)"


@cache
def _template() -> Any:
    jinja2 = need("jinja2", "a report", "report")
    environment = jinja2.Environment(autoescape=True, undefined=jinja2.StrictUndefined, trim_blocks=True)
    environment.filters["inline"] = inline
    return environment.from_string(_file("page.html.j2"))


def _file(name: str) -> str:
    return resources.files(__package__).joinpath(name).read_text(encoding="utf-8")


@cache
def _plotly() -> str:
    """Plotly's script, compressed, as text."""
    return packed(need("plotly.offline", "a report", "report").get_plotlyjs())
