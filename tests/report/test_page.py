"""The page: what it says, that it needs nothing else, and that names stay names."""

from __future__ import annotations

import re
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from graphnorm.colours import colour
from graphnorm.data import load
from graphnorm.errors import GraphnormError
from graphnorm.paper.item import QUICK
from graphnorm.paper.output import QUICK_NOTE
from graphnorm.report import Chapter, build_page, model_sections, read_studies
from graphnorm.report.page import leading
from graphnorm.settings import Grid
from graphnorm.study import Result, Score, Store
from graphnorm.study.paper_numbers import Reported
from graphnorm.study.protocol import find_protocol
from graphnorm.training import find_metric
from pages import EVIL, ONE, TWO, Reader, alpha_run, enter

pytest.importorskip("plotly")


def rows_of(page: str) -> dict[str, dict[str, str]]:
    """The cells of the tables of scores, by row and column."""
    found = {}
    for table in re.findall(r'<table class="scores">(.*?)</table>', page, re.DOTALL):
        _, *columns = re.findall(r'<th scope="col".*?>(.*?)</th>', table)
        for row in re.findall(r'<tr.*?scope="row".*?</tr>', table):
            name, *cells = (Reader(cell).text.strip() for cell in re.findall(r"<t[hd].*?</t[hd]>", row))
            found[name] = dict(zip(columns, cells, strict=True))
    return found


def test_the_gallery_is_no_larger_than_a_page_may_be() -> None:
    assert (Path(__file__).parents[2] / "docs" / "gallery" / "gallery.html").stat().st_size < 6e6


def test_it_needs_nothing_else(page: str) -> None:
    for tag, attributes in Reader(page).tags:
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert "@import" not in page
    assert "url(" not in page.split("<body>")[0]


def test_it_has_the_metric_of_each_target(result: Result) -> None:
    names = ("NR-AR", EVIL)
    norms = {
        name: replace(score, choices=tuple(choice._replace(targets=(0.25, 0.75)) for choice in score.choices))
        for name, score in result.norms.items()
    }
    several = replace(result, norms=norms, spec={**result.spec, "target_names": list(names)})
    page = build_page([Chapter(several)])
    text = Reader(page).text
    assert "of each of 2 targets" in text
    assert EVIL not in page
    assert "NR-AR25.0" in re.sub(r"\s", "", text)
    assert "of each of" not in Reader(build_page([Chapter(result)])).text


def test_it_says_what_the_result_says(page: str, result: Result) -> None:
    text = Reader(page).text
    assert result.verdict in text
    assert all(note in text for note in result.notes)
    rows = rows_of(page)
    assert list(rows) == result.ranking
    table = [dict(zip(result.table.columns[1:], row[1:], strict=True)) for row in result.table.rows]
    assert list(rows.values()) == table
    assert rows["layer"]["accuracy %"].endswith("(1 diverged)")
    best = re.findall(r'<tr class="leads"><th.*?>(?:<span.*?></span>)(.*?)</th>', page)
    assert tuple(best) == result.groups[0]
    assert "1 configuration; 5 folds; trained on fake." in text
    facts = dict(re.findall("<dt>(.*?)</dt><dd>(.*?)</dd>", page))
    assert (facts["batch size"], facts["trials"], facts["trained on"]) == ("128", "25", "fake")
    assert "origin" not in facts


def test_every_chart_has_words_and_data(page: str) -> None:
    reader = Reader(page)
    places = {tag["id"]: tag for tag in reader.having("id") if tag.get("class") == "chart"}
    figure = r'<figure>.*?class="chart" id="(.*?)".*?<figcaption>(.*?) <a href'
    captions = dict(re.findall(figure, page, re.DOTALL))
    assert set(places) == set(reader.charts) == set(reader.data)
    for name in ("train-curves", "valid-curves", "scores", "signal-kept", "alpha"):
        assert f"part-1-{name}" in places
    for name, rows in reader.data.items():
        assert len(captions[name]) > 40
        assert len(rows) > 3
        assert len({len(row) for row in rows}) == 1


def renamed(result: Result) -> Result:
    """The same with a name to beware of wherever a user's own can be."""
    spec = {**result.spec, "dataset": EVIL, "model": EVIL, "classes": [EVIL]}
    norms = {EVIL if name == "graph" else name: replace(score, name=EVIL) for name, score in result.norms.items()}
    return replace(result, study=EVIL, spec=spec, norms=norms, code=(EVIL,))


def test_names_stay_names(result: Result) -> None:
    evil = renamed(result)
    chapter = Chapter(evil, studies=(EVIL,), notes=(EVIL,), unranked={EVIL: evil.norms[EVIL]})
    reader = Reader(build_page([chapter, replace(chapter, told_apart=EVIL)], title=EVIL))
    assert not [tag for tag, attributes in reader.tags if tag in ("img", "b") or "onerror" in attributes]
    assert sum(tag == "script" for tag, _ in reader.tags) == 3
    assert EVIL in reader.text
    assert not [trace for chart in reader.charts.values() for trace in chart["traces"] if "<img" in trace["name"]]


# Rows and marks


def test_rows_that_are_not_ranked_and_numbers_of_the_paper(store: Store) -> None:
    enter(store, ["graph"], TWO)
    enter(store, ["graph", "batch"], ONE)
    (chapter,) = read_studies(store, store.studies(), fold=True)
    graph, batch = chapter.result.norms.values()
    norms = {"graph": replace(graph, paper=Reported(80.0, 1.5, 1)), "batch": batch}
    result = replace(chapter.result, norms=norms, baselines={"wl": replace(batch, name="wl")})
    page = build_page([replace(chapter, result=result)])
    rows = rows_of(page)
    assert list(rows) == ["graph", "batch", "graph, 2 configurations", "baseline wl"]
    assert rows["graph, 2 configurations"]["configuration"] == "lr=1e-3"
    assert [row["p"] for row in rows.values()][2:] == ["–", "–"]
    assert [row["paper"] for row in rows.values()] == ["80.0 ± 1.5", "–", "–", "–"]
    assert [row["difference"] for row in rows.values()] == [f"+{graph.mean - 80:.1f}", "–", "–", "–"]
    assert re.findall(r'<tr class="baseline"><th.*?>(.*?)</th>', page) == list(rows)[2:]
    assert [tag["data-norm"] for tag in Reader(page).having("data-norm")] == ["graph", "batch"]


def test_what_is_not_trained_yet(store: Store) -> None:
    enter(store, ["batch", "graph"], TWO, protocol="fair", share=0.5)
    page = build_page(read_studies(store, store.studies()))
    rows = rows_of(page)
    assert rows["graph"]["accuracy %"] == rows["graph"]["configuration"] == "–"
    assert (rows["batch"]["trials"], rows["graph"]["trials"]) == ("6 of 6", "0 of 6")
    assert "Only batch has a result" in page
    (test,) = [chart for chart in Reader(page).charts if chart.endswith("test-curves")]
    assert [trace["meta"] for trace in Reader(page).charts[test]["traces"]] == ["batch"]


def marks(chapters: Sequence[Chapter]) -> list[str]:
    return re.findall(r'<p class="quick">(.*?)</p>', build_page(chapters).replace("&#39;", "'"))


def test_studies_of_a_quick_pass_are_marked(store: Store) -> None:
    enter(store, ["graph"], Grid(QUICK.grid, {"epochs": (QUICK.epochs,)}), folds=QUICK.folds)
    enter(store, ["batch"], folds=4)
    quick, full = read_studies(store, store.studies())
    assert marks([quick]) == [QUICK_NOTE] * 2  # the page and its part
    assert marks([full, quick]) == [f"{QUICK_NOTE} (1 of 2 parts, each marked)", QUICK_NOTE]
    assert not marks([full])


# Graphs and models


def test_graphs_that_are_not_at_hand(result: Result) -> None:
    def missing(of: Result) -> Any:
        raise GraphnormError("they are elsewhere")

    text = Reader(build_page([Chapter(result), Chapter(result)], find_graphs=missing)).text
    assert text.count("There is no analysis of these graphs: they are elsewhere.") == 2


def test_the_same_graphs_are_shown_once(result: Result) -> None:
    gin = Chapter(result)
    gcn = Chapter(replace(result, spec={**result.spec, "model": "molecular-gcn"}))
    others = Chapter(replace(result, spec={**result.spec, "fingerprint": "other"}))
    page = build_page([gin, gcn, gin, others, gcn, gin], find_graphs=lambda of: load(of.dataset))
    reader = Reader(page)
    ids = [tag["id"] for tag in reader.having("id") if "signal-kept" in tag["id"]]
    assert ids == ["part-1-signal-kept", "part-2-signal-kept", "part-4-signal-kept"]
    links = [tag["href"] for tag in reader.having("href")]
    assert (links.count("#part-1-graphs"), links.count("#part-2-graphs")) == (2, 1)
    folded = [number for number, part in enumerate(page.split("<article")) if 'class="folded"' in part]
    assert folded == [2]  # the same graphs, aggregated otherwise


def test_models_stand_with_the_first_chapter_of_their_graphs(result: Result) -> None:
    (section,) = model_sections([], [alpha_run("A")]).values()
    others = Chapter(replace(result, spec={**result.spec, "fingerprint": "other"}))
    models = [(result.fingerprint, section), ("of no chapter", section), (result.fingerprint, section)]
    page = build_page([others, Chapter(result), Chapter(result)], models=models)
    assert [name for name in Reader(page).charts if "alpha" in name] == ["part-2-alpha", "part-2-alpha-2"]


# The page as a whole


def test_what_the_page_says_of_itself(result: Result) -> None:
    alone = Reader(build_page([Chapter(result)])).text
    assert "5 normalizations on synthetic:trees, and how sure their differences are." in alone
    assert "Contents" not in alone
    other = replace(result, spec={**result.spec, "dataset": "others"})
    assert "5 normalizations on 2 datasets, and" in Reader(build_page([Chapter(result), Chapter(other)])).text
    baselines = replace(result, norms={}, baselines={"wl": replace(result.norms["none"], name="wl")})
    assert "Baselines on synthetic:trees." in Reader(build_page([Chapter(baselines)])).text
    with pytest.raises(GraphnormError, match="nothing to report"):
        build_page([])


def test_contents_by_dataset(result: Result) -> None:
    others = Chapter(replace(result, spec={**result.spec, "dataset": "others", "model": "gcn"}))
    wl = Score("wl", find_protocol("paper"), find_metric("paper"), 5, 5, ({},), result.norms["none"].choices)
    baseline = Chapter(replace(result, spec={**result.spec, "model": "wl"}, norms={}, baselines={"wl": wl}))
    page = build_page([Chapter(result, told_apart="more"), others, baseline])
    contents = page[page.index("<nav") : page.index("</nav>")]
    assert re.findall('<h3>(.*?)</h3>|<a href="(.*?)">(.*?)</a>', contents) == [
        ("", "#main", "Overview"),
        ("synthetic:trees", "", ""),
        ("", "#part-1", "gin, paper: more"),
        ("", "#part-3", "wl, paper"),
        ("others", "", ""),
        ("", "#part-2", "gcn, paper"),
    ]
    assert re.findall(r'class="tag.*?>(.*?)</span>', contents) == ["graph", f"baseline wl {wl.shown}", "graph"]


def test_only_one_that_is_better_than_all_others_is_marked_as_the_winner(result: Result) -> None:
    """Its name has its colour in the contents; in the overview, all that lead are bold."""
    assert leading(result) == ("graph",)
    graph, batch = result.norms["graph"], result.norms["batch"]
    twins = {"graph": graph, "layer": replace(graph, name="layer"), "batch": batch}
    few = {name: replace(score, choices=score.choices[:1]) for name, score in twins.items()}
    page = build_page(
        [
            Chapter(replace(result, spec={**result.spec, "dataset": name}, norms=norms))
            for name, norms in {"clear": result.norms, "tied": twins, "few": few}.items()
        ]
    )
    tags = re.findall(r'class="(tag.*?)"(.*?)>(.*?)</span>', page[: page.index("</nav>")])
    won = f' style="--paint: {colour("graph")}"'
    assert tags == [("tag won", won, "graph"), ("tag", "", "2 of 3 tied"), ("tag", "", "no verdict")]
    overview = page[page.index('id="overview"') : page.index("</article>", page.index('id="overview"'))]
    assert [row.count('class="leads"') for row in re.findall(r'<tr><th scope="row".*?</tr>', overview)] == [1, 2, 0]


def test_the_papers_model_is_the_one_of_the_overview(result: Result) -> None:
    trained = [("MUTAG", "gcn"), ("MUTAG", "gin"), ("ogbg-molhiv", "molecular-gin"), ("ogbg-molhiv", "molhiv-gin")]
    page = build_page(
        [
            Chapter(replace(result, spec={**result.spec, "dataset": dataset, "model": model}))
            for dataset, model in trained
        ]
    )
    overview, _, others = page[page.index('id="overview"') :].partition("<details>")
    assert re.findall(r"<small>([\w-]+), ", overview) == ["gin", "molhiv-gin"]
    assert re.findall(r"<small>([\w-]+), ", others.partition("</details>")[0]) == ["gcn", "molecular-gin"]
