"""The page: what it says, that it needs nothing else, and that names stay names."""

from __future__ import annotations

import base64
import csv
import gzip
import io
import json
import re
from collections.abc import Callable, Mapping
from dataclasses import replace
from pathlib import Path
from typing import Any

import networkx as nx
import numpy as np
import pytest

from fake_training import LEVEL, FakeTraining
from graphnorm.analysis import Alphas, Moments, batch_noise, join_epochs
from graphnorm.data import PackedGraphs, from_networkx, load
from graphnorm.errors import GraphnormError
from graphnorm.paper.products import QUICK_NOTE
from graphnorm.paper.recipe import QUICK, Watching
from graphnorm.paper.watching import Learned, Notebook, Seen
from graphnorm.report import (
    Insight,
    Source,
    build_page,
    read_analysis,
    read_comparison,
    read_notebook,
    read_study,
)
from graphnorm.report.charts import curve_charts, score_chart
from graphnorm.report.structure import look_at
from graphnorm.study.grid import Grid
from graphnorm.study.plan import make_plan
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import Store
from page_reader import Reader

pytest.importorskip("plotly")

EVIL = "<img src=x onerror=alert(1)>\"'</script><b>"


@pytest.fixture(scope="module")
def source(comparison: Path) -> Source:
    return read_comparison(comparison)


@pytest.fixture(scope="module")
def page(source: Source, analysis: Path) -> str:
    insights = [read_analysis(analysis)]
    return build_page([source], find_graphs=lambda source: load(source.dataset), insights=insights)


def test_size(page: str) -> None:
    assert len(page.encode()) < 6e6


def test_it_needs_nothing_else(page: str) -> None:
    for tag, attributes in Reader(page).tags:
        for name in ("src", "href", "srcset", "action"):
            value = attributes.get(name)
            assert value is None or value.startswith(("#", "data:")), (tag, value)
    assert "@import" not in page
    assert "url(" not in page.split("<body>")[0]


def test_it_says_what_the_comparison_says(page: str, source: Source) -> None:
    text = Reader(page).text
    assert source.verdict in text
    best = max((norm for norm in source.norms if norm.mean is not None), key=lambda norm: norm.mean)
    assert f"{best.mean:.1f} ± {best.std:.1f}" in text
    assert "1 diverged" in text
    assert "batch size128" in re.sub(r"\s+", " ", text)


def charts_of(page: str) -> Any:
    """What the page's script finds to draw."""
    packed = re.findall(r'id="charts">(.*?)</script>', page, re.DOTALL)[0]
    return json.loads(gzip.decompress(base64.b64decode(packed)))


def test_the_gallery_is_no_larger_than_a_page_may_be() -> None:
    assert (Path(__file__).parents[2] / "docs" / "gallery" / "gallery.html").stat().st_size < 6e6


def test_every_chart_has_words_and_data(page: str) -> None:
    reader = Reader(page)
    places = {a["id"]: a for _, a in reader.tags if a.get("class") == "chart"}
    links = {a["download"]: a["href"] for _, a in reader.tags if "download" in a}
    charts = charts_of(page)
    assert len(charts) >= 3 + 2 + 2  # curves and scores, spectra and regularity, batch noise and α
    assert set(places) == {chart["id"] for chart in charts}
    for name, attributes in places.items():
        assert len(attributes["aria-label"] or "") > 40
        packed = (links[f"{name}.csv.gz"] or "").partition(",")[2]
        rows = list(csv.reader(io.StringIO(gzip.decompress(base64.b64decode(packed)).decode())))
        assert len(rows) > 3
        assert len({len(row) for row in rows}) == 1


def test_curves_have_a_band_where_their_spread_is_known(source: Source) -> None:
    curves = {"train": ([99.0, 1.0], [3.0, 3.0]), "valid": ([99.0, None], [3.0, None])}
    norms = [replace(source.norms[0], curves=curves)]
    (train,), (valid,) = (chart.traces for chart in curve_charts(replace(source, norms=norms)))
    assert (train["y"], train["band"]) == ([99.0, 1.0], [3.0, 3.0])
    assert valid["y"] == [99.0, None]
    assert "band" not in valid


def test_names_stay_names(renamed: Callable[[Callable[[dict[str, Any]], None]], Path]) -> None:
    def edit(content: dict[str, Any]) -> None:
        content["dataset"] = content["verdict"] = EVIL
        content["config"]["model"] = EVIL
        content["norms"][EVIL] = content["norms"].pop("graph")

    source = read_comparison(renamed(edit))
    reader = Reader(build_page([source], title=EVIL))
    assert not [tag for tag, attributes in reader.tags if tag in ("img", "b") or "onerror" in attributes]
    assert sum(tag == "script" for tag, _ in reader.tags) == 3
    assert EVIL in reader.text
    for chart in (*curve_charts(source), score_chart(source)):
        assert chart is not None
        assert not [trace for trace in chart.traces if "<img" in trace["name"]]


def test_a_study_that_is_complete(store: Path) -> None:
    with Store(store, writable=False) as opened:
        source = read_study(opened, opened.study("trees-paper"))
    graph = next(norm for norm in source.norms if norm.name == "graph")
    assert source.verdict.startswith("graph has the highest accuracy on synthetic:trees")
    assert graph.settings in ("lr 0.001", "lr 0.01")
    assert len(graph.scores) == 4
    assert len(graph.curves["valid"][0]) == 12
    assert "test" not in graph.curves
    assert source.notes[-1].startswith("p: paired over folds, corrected for overlapping training sets")
    assert "lr 0.0" in Reader(build_page([source])).text


def test_numbers_of_another_setting_are_not_passed_over(tmp_path: Path) -> None:
    graphs = replace(load("synthetic:trees"), name="MUTAG")
    plan = make_plan(graphs, Grid("one", {"epochs": (3,)}), norms=["graph"], folds=2)
    with Store(tmp_path / "a.db") as opened:
        study = opened.add_study("mutag", plan.spec, plan.trials, [[0, 1]])
        outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
        opened.save(opened.begin_session(study, "local"), outcomes)
        source = read_study(opened, opened.study("mutag"))
    assert source.norms[0].paper is not None
    assert (
        "the paper's numbers are of 10 folds, 400 epochs and the best of 60 configurations; these of 2, 3 and 1"
        in source.notes
    )


def test_studies_of_a_quick_pass_are_marked(store: Path, tmp_path: Path) -> None:
    graphs = load("synthetic:trees")
    plan = make_plan(graphs, Grid("quick", {"epochs": (QUICK.epochs,)}), norms=["graph"], folds=QUICK.folds)
    with Store(tmp_path / "a.db") as opened:
        study = opened.add_study("quick", plan.spec, plan.trials, [range(len(plan.trials))])
        outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
        opened.save(opened.begin_session(study, "local"), outcomes)
        quick = read_study(opened, opened.study("quick"))
    with Store(store, writable=False) as opened:
        full = read_study(opened, opened.study("trees-paper"))

    def marks(*sources: Source) -> list[str]:
        return re.findall(r'<p class="quick">(.*?)</p>', build_page(sources).replace("&#39;", "'"))

    assert marks(quick) == [QUICK_NOTE] * 2  # the page and its part
    assert marks(full, quick) == [f"{QUICK_NOTE} (1 of 2 parts, each marked)", QUICK_NOTE]
    assert not marks(full)


def a_study_that_guesses(path: Path, monkeypatch: pytest.MonkeyPatch) -> Store:
    """Of two normalizations, one of them significantly below the other, and that no better than guessing."""
    monkeypatch.setitem(LEVEL, "graph", 0.50)
    monkeypatch.setitem(LEVEL, "none", 0.25)
    graphs = load("synthetic:trees")
    plan = make_plan(graphs, Grid("one", {"epochs": (1,)}), norms=["none", "graph"], folds=4)
    opened = Store(path)
    study = opened.add_study("guesses", plan.spec, plan.trials, [range(len(plan.trials))])
    outcomes = FakeTraining()(graphs, plan.trials, make_splits(graphs, plan.trials))
    opened.save(opened.begin_session(study, "local"), outcomes)
    return opened


def test_a_study_in_which_nothing_was_learned(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with a_study_that_guesses(tmp_path / "a.db", monkeypatch) as opened:
        source = read_study(opened, opened.study("guesses"))
    other = source.norms[0].against_best
    assert other is not None
    assert other.significant
    assert source.verdict.startswith("Nothing can be said: the highest accuracy on synthetic:trees")
    assert source.verdict.endswith("and guessing has 50.0 %. Train for longer.")
    assert "graph and none: no better than guessing (50.0 %)" in source.notes
    assert source.config["guessing"] == 50.0


def test_older_studies_ask_the_graphs_what_guessing_has(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    def lost(dataset: str, fingerprint: str, origin: Mapping[str, Any] | None) -> PackedGraphs:
        raise GraphnormError(f"{dataset} is not at hand")

    def at_hand(dataset: str, fingerprint: str, origin: Mapping[str, Any] | None) -> PackedGraphs:
        assert fingerprint == graphs.fingerprint
        return graphs

    graphs = load("synthetic:trees")
    with a_study_that_guesses(tmp_path / "a.db", monkeypatch) as opened:
        study = opened.study("guesses")
        older = replace(study, spec={name: value for name, value in study.spec.items() if name != "guessing"})
        assert read_study(opened, older, at_hand).verdict == read_study(opened, study, lost).verdict
        for unknown in (read_study(opened, older), read_study(opened, older, lost)):
            assert unknown.verdict.startswith("graph has the highest accuracy")
            assert not [note for note in unknown.notes if "guessing" in note]


def test_a_study_under_way(store: Path) -> None:
    with Store(store, writable=False) as opened:
        source = read_study(opened, opened.study("trees-fair"))
    batch, graph = source.norms
    assert batch.mean is not None
    assert "test" in batch.curves
    assert (graph.mean, dict(graph.curves)) == (None, {})
    assert "8 of 16 trials are trained" in source.notes[0]
    assert source.verdict.startswith("Only batch has a result")
    assert build_page([source])


@pytest.mark.parametrize(
    "origin", [5, ["mine.csv"], {}, {"name_or_path": 5}, {"name_or_path": "mine.csv", "code": "x"}]
)
def test_an_origin_that_cannot_be(origin: object, renamed: Callable[[Callable[[dict[str, Any]], None]], Path]) -> None:
    folder = renamed(lambda content: content.update(origin=origin))
    with pytest.raises(GraphnormError, match="this is no comparison: "):
        read_comparison(folder)


def test_graphs_that_are_not_at_hand(source: Source) -> None:
    def missing(source: Source) -> Any:
        raise GraphnormError("they are elsewhere")

    text = Reader(build_page([source], find_graphs=missing)).text
    assert "Nothing is said of the graphs themselves: they are elsewhere." in text


def test_the_same_graphs_are_shown_once(source: Source) -> None:
    gcn = replace(source, model="gcn", title="with gcn")
    elsewhere = replace(source, fingerprint="other", title="of others")
    page = build_page([source, gcn, source, elsewhere, gcn], find_graphs=lambda source: load(source.dataset))
    reader = Reader(page)
    ids = [attributes["id"] for _, attributes in reader.tags if "signal-kept" in (attributes.get("id") or "")]
    assert ids == ["part-1-signal-kept", "part-2-signal-kept", "part-4-signal-kept"]
    links = [attributes["href"] for tag, attributes in reader.tags if tag == "a"]
    assert links.count("#part-1-graphs") == links.count("#part-2-graphs") == 1
    folded = [number for number, part in enumerate(page.split("<article")) if 'class="folded"' in part]
    assert folded == [2]  # the same graphs, aggregated otherwise


def test_what_the_page_says_of_itself(source: Source) -> None:
    other = replace(source, dataset="others", norms=source.norms[:1])
    alone = Reader(build_page([source])).text
    assert "5 normalizations on synthetic:trees, and how sure their differences are." in alone
    assert "One configuration; 5 folds; trained on fake." in alone
    both = Reader(build_page([source, other])).text
    assert "5 normalizations on 2 datasets, and" in both
    assert "alike" not in both


def test_contents_by_dataset(source: Source) -> None:
    other = replace(source, dataset="others", title="others, gcn, paper")
    page = build_page([source, other, replace(source, title="synthetic:trees, gcn: more")])
    contents = page[page.index("<nav") : page.index("</nav>")]
    assert re.findall('<h3>(.*?)</h3>|<a href="(.*?)">(.*?)</a>', contents) == [
        ("synthetic:trees", "", ""),
        ("", "#part-1", "gin"),
        ("", "#part-3", "gcn: more"),
        ("others", "", ""),
        ("", "#part-2", "gcn, paper"),
    ]


def test_structure_of_regular_graphs() -> None:
    found = look_at(load("synthetic:regular"))
    assert "100% are regular" in found.sentences[1]
    assert "keeps 0% of the first layer's signal" in found.sentences[1]
    assert len(found.drawings) == 6
    for drawing in found.drawings:
        assert len(drawing.points) <= 60
        assert re.match(r"graph \d+, class degree [46]: \d+ nodes, \d+ edges, 0% of the signal kept", drawing.label)
        assert all(0 <= value <= 100 for x, y, _ in drawing.points for value in (x, y))
        assert {round(share, 2) for _, _, share in drawing.points} == {1.0}


def test_graphs_too_large_to_draw() -> None:
    found = look_at(from_networkx([nx.path_graph(70), nx.cycle_graph(61)], ["path", "cycle"]))
    assert not found.drawings
    assert found.sentences[-1] == "None is drawn: no sampled graph with a signal has 60 nodes or fewer."


def test_batch_noise_and_alpha_are_those_of_the_analysis(page: str, analysis: Path) -> None:
    parts = json.loads((analysis / "analysis.json").read_text())["parts"]
    charts = {chart["id"]: chart for chart in charts_of(page)}
    noise = charts[f"part-1-noise-{parts['noise']['summary']['batch_size']}"]
    layers = parts["noise"]["summary"]["layers"]
    assert [trace["x"] for trace in noise["traces"]] == [layer["epochs"] for layer in layers]
    for trace, layer in zip(noise["traces"], layers, strict=True):
        assert trace["y"] == pytest.approx(layer["relative_deviation"], abs=1e-4)
    medians = charts["part-1-alpha"]["traces"][-1]
    said = parts["alpha"]["summary"]["layers"]
    assert medians["x"][:2] == ["0, first", "0, second"]
    assert medians["y"] == pytest.approx([numbers["quantiles"]["0.5"] for numbers in said.values()], abs=1e-3)
    text = Reader(page).text
    assert parts["noise"]["text"][0] in text
    assert f"convolution 3, second norm {layers[-1]['relative_deviation'][-1]:.3f}" in text


def test_insights_stand_with_the_first_source_of_their_graphs(source: Source, analysis: Path) -> None:
    insight = read_analysis(analysis)
    elsewhere = replace(insight, fingerprint="of other graphs")
    page = build_page([replace(source, fingerprint="unknown"), source, source], insights=[insight, elsewhere, insight])
    ids = {attributes["id"] for _, attributes in Reader(page).tags if attributes.get("class") == "chart"}
    assert {name for name in ids if name.endswith(("alpha", "alpha-2"))} == {"part-2-alpha", "part-2-alpha-2"}


def test_the_file_that_reproduce_leaves_beside_its_store(tmp_path: Path) -> None:
    """Several batch sizes, images for comparison, and α."""
    random = np.random.default_rng(0)

    def seen(dataset: str, size: int) -> Seen:
        layers = tuple(
            replace(join_epochs([batch_noise(moments, size, layer=name, epoch=e) for e in (0, 3)]), layer=name)
            for name in ("convolutions.0.first_norm", "convolutions.3.second_norm")
            for moments in [Moments(np.ones(40), random.normal(size=(40, 5)), np.ones((40, 5)))]
        )
        return Seen(Watching(dataset, size, 3), 3, layers, {"fingerprint": dataset.lower()})

    notebook = Notebook(tmp_path / "noise.json")
    for new in (seen("A", 4), seen("A", 16), seen("CIFAR-10", 16)):
        notebook.add(new)
    alphas = Alphas(("convolutions.0.first_norm",), np.array([0, 3]), (random.uniform(0.5, 1, (2, 3, 5)),))
    notebook.add(Learned("A", 3, alphas, {"fingerprint": "a"}))
    notebook.add(Learned("B", 3, alphas, {"fingerprint": "b"}))
    found: list[Insight] = read_notebook(notebook.path)
    assert [(insight.fingerprint, [chart.name for chart in insight.charts]) for insight in found] == [
        ("a", ["noise-16", "noise-by-size", "alpha"]),
        ("b", ["alpha"]),
    ]
    by_depth, by_size, _ = found[0].charts
    assert [trace["line"]["dash"] for trace in by_depth.traces] == ["solid", "solid", "dot", "dash"]
    assert [trace["name"] for trace in by_size.traces] == ["batches of 16", "batches of 4"]
    assert {row[1] for row in by_size.data.rows} == {4, 16}


def test_folders_that_are_no_analysis(tmp_path: Path) -> None:
    with pytest.raises(GraphnormError, match="no analysis in it"):
        read_analysis(tmp_path)
    (tmp_path / "analysis.json").write_text('{"parts": {"alpha": {}}}')
    with pytest.raises(GraphnormError, match="this is no analysis"):
        read_analysis(tmp_path)


def test_nothing_to_report() -> None:
    with pytest.raises(GraphnormError, match="nothing to report"):
        build_page([])


def test_a_normalization_that_is_not_trained_has_dashes(source: Source) -> None:
    first, second, *_ = source.norms
    empty = replace(
        second,
        mean=None,
        std=None,
        epoch=None,
        scores=[],
        against_best=None,
        seconds=0.0,
        diverged=0,
        settings="",
        curves={},
    )
    page = build_page([replace(source, norms=[first, empty])])
    rows = re.findall(r"<tr[^>]*>(.*?)</tr>", page, re.DOTALL)
    (row,) = [row for row in rows if f"{second.name}</th>" in row]
    assert set(re.findall(r"<td[^>]*>(.*?)</td>", row)) == {"–"}


def test_folders_that_are_no_comparison(tmp_path: Path, renamed: Callable[..., Path]) -> None:
    with pytest.raises(GraphnormError, match="no comparison in it"):
        read_comparison(tmp_path)
    with pytest.raises(GraphnormError, match="the format is 'x'"):
        read_comparison(renamed(lambda content: content.update(format="x")))
    with pytest.raises(GraphnormError, match="this is no comparison: 'norms'"):
        read_comparison(renamed(lambda content: content.pop("norms")))
