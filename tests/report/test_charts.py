"""Charts: of results, of trained models, and of graphs."""

from __future__ import annotations

import json
import re
from dataclasses import replace
from itertools import pairwise
from pathlib import Path

import networkx as nx
import numpy as np
import pytest
import torch

from graphnorm.analysis import Aggregation
from graphnorm.analysis.plots import shades
from graphnorm.data import from_networkx, load
from graphnorm.errors import GraphnormError
from graphnorm.report import model_sections, read_analysis
from graphnorm.report.charts import BLUE, DARK_RED, GREY, RED, graph_section, result_charts
from graphnorm.study import Result
from pages import alpha_run, noise_run
from vision import VIEWERS, contrast, difference

# Results


def with_curves(result: Result, **curves: tuple[list[float], list[float]]) -> Result:
    """The same with other curves, and of one normalization alone."""
    arrays = {name: (np.array(mean), np.array(std)) for name, (mean, std) in curves.items()}
    return replace(result, norms={"graph": replace(result.norms["graph"], curves=arrays)})


def test_curves_have_a_band_where_their_spread_is_known(result: Result) -> None:
    train, valid, _ = result_charts(with_curves(result, train=([99, 1], [3, 3]), valid=([9, np.nan], [3, np.nan])))
    (line,) = train.traces
    assert (line["x"], line["y"], line["band"]) == ([1, 2], [99.0, 1.0], [3.0, 3.0])
    assert train.text.endswith("graph ends at 1.0 % (highest 99.0 %).")
    assert train.data.rows == [["graph", 1, 99.0, 3.0], ["graph", 2, 1.0, 3.0]]
    (line,) = valid.traces
    assert line["y"] == [9.0, None]
    assert "band" not in line


def test_errors_have_a_logarithmic_axis_and_bands_above_zero(result: Result) -> None:
    errors = with_curves(result, train=([300, 2, 1], [290, 3, 0.1]))
    errors = replace(errors, spec=errors.spec | {"metric": "rmse"})
    (chart,) = (chart for chart in result_charts(errors) if chart.name == "train-curves")
    (line,) = chart.traces
    assert line["ends"] == [0.5, None]
    assert chart.layout["yaxis"]["type"] == "log"
    assert chart.layout["yaxis"]["tickvals"] == [0.1, 1, 10, 100, 1000]
    assert errors.plot().axes[0].get_yscale() == "log"
    assert "type" not in result_charts(result)[0].layout["yaxis"]


def test_scores_are_those_of_the_result(result: Result) -> None:
    *_, chart = result_charts(result)
    scores = {name: list(score.scores.values()) for name, score in result.norms.items()}
    dots, means = chart.traces[::2], chart.traces[1::2]
    for (name, score), dot, mean in zip(result.norms.items(), dots, means, strict=True):
        assert dot["meta"] == mean["meta"] == name
        known = [np.nan if value is None else value for value in dot["x"]]
        assert known == pytest.approx(scores[name], abs=1e-3, nan_ok=True)
        assert mean["x"] == pytest.approx([score.mean], abs=1e-3)
        assert mean["error_x"]["array"] == pytest.approx([score.std], abs=1e-3)
    assert dots[1]["x"][1] is None  # it diverged
    assert chart.data.rows[0] == ["none", 0, round(scores["none"][0], 4)]


def test_nothing_is_drawn_of_nothing(result: Result) -> None:
    assert result_charts(replace(result, norms={})) == []


# Trained models


def test_batch_noise_and_alpha_of_a_store() -> None:
    """Several batch sizes, images for comparison, and α."""
    noise = [noise_run("A", 4), noise_run("A", 16, trained=9), noise_run("A", 16), noise_run("CIFAR-10", 16)]
    found = model_sections(noise, [alpha_run("A", 9), alpha_run("A"), alpha_run("B")])
    assert {name: [chart.name for chart in section.charts] for name, section in found.items()} == {
        "a": ["noise-16", "noise-by-size", "alpha"],
        "b": ["alpha"],
    }
    by_depth, by_size, alpha = found["a"].charts
    assert [trace["line"]["dash"] for trace in by_depth.traces] == ["solid", "solid", "dot", "dash"]
    names = ["0, first", "3, second", "CIFAR-10, first", "CIFAR-10, last"]
    assert [trace["name"] for trace in by_depth.traces] == names
    assert by_depth.traces[1]["x"] == [0, 9]  # of two trainings the longer one
    assert by_depth.traces[0]["y"] == [0.1, None]
    assert "convolution 0, first norm –; convolution 3, second norm 0.160" in by_depth.text
    assert [trace["name"] for trace in by_size.traces] == ["batches of 16", "batches of 4"]
    assert {row[1] for row in by_size.data.rows} == {4, 16}
    wide, narrow, median = alpha.traces
    assert (wide["y"], narrow["y"], median["y"]) == ([0.5, 4.5, None], [0.8, 1.0, None], [0.9])
    assert "after 9 epochs" in alpha.text


def test_batch_noise_and_alpha_of_an_analysis(analysis: Path) -> None:
    parts = json.loads((analysis / "analysis.json").read_text())["parts"]
    dataset, fingerprint, section = read_analysis(analysis)
    assert (dataset, fingerprint) == ("synthetic:trees", load("synthetic:trees").fingerprint)
    noise, alpha = section.charts
    assert noise.name == f"noise-{parts['noise']['summary']['batch_size']}"
    layers = parts["noise"]["summary"]["layers"]
    for trace, layer in zip(noise.traces, layers, strict=True):
        assert trace["x"] == layer["epochs"]
        assert trace["y"] == pytest.approx(layer["relative_deviation"], abs=1e-4)
    medians = alpha.traces[-1]
    assert medians["x"][:2] == ["0, first", "0, second"]
    said = [numbers["quantiles"]["0.5"] for numbers in parts["alpha"]["summary"]["layers"].values()]
    assert medians["y"] == pytest.approx(said, abs=1e-3)
    assert section.sentences == [parts[name]["text"][-1] for name in ("noise", "alpha")]


@pytest.mark.parametrize("text", ['{"parts": {"alpha": {}}}', "[]", "{"])
def test_files_that_are_no_analysis(tmp_path: Path, text: str) -> None:
    (tmp_path / "analysis.json").write_text(text)
    with pytest.raises(GraphnormError, match="this is no analysis"):
        read_analysis(tmp_path)


# Graphs


def test_graphs_that_are_regular() -> None:
    spectrum, regular = (section := graph_section(load("synthetic:regular"), Aggregation())).sentences
    assert re.search(r"on (\d+) of \1 sampled graphs", spectrum)
    assert "100% are regular" in regular
    assert "keeps 0% of the first layer's signal" in regular
    assert len(section.drawings) == 6
    for drawing in section.drawings:
        assert len(drawing.points) <= 60
        assert re.match(r"graph \d+, class degree [46]: \d+ nodes, \d+ edges, 0% of the signal kept", drawing.label)
        assert all(0 <= value <= 100 for x, y, _ in drawing.points for value in (x, y))
        assert {share for _, _, share in drawing.points} == {1.0}
        assert {(x, y) for *start, x, y in drawing.edges} <= {(x, y) for x, y, _ in drawing.points}


def test_molecules_are_drawn_by_rdkit() -> None:
    pytest.importorskip("rdkit")
    drawings = graph_section(load("molecules"), Aggregation()).drawings
    assert len(drawings) == 6
    assert all("<path" in drawing.molecule for drawing in drawings)


def test_the_spectrum_is_that_of_the_aggregation() -> None:
    trees = load("synthetic:trees")
    gin, gcn = (graph_section(trees, Aggregation(model)).charts[0].traces for model in ("gin", "gcn"))
    assert [len(trace["y"]) for trace in gin] == [len(trace["y"]) for trace in gcn]
    assert max(gcn[0]["y"]) == pytest.approx(1)
    assert max(gin[0]["y"]) > 2


def test_graphs_of_which_nothing_is_drawn() -> None:
    """Without a signal, or too large."""
    trees = load("synthetic:trees")
    blank = replace(trees, tags=None, cardinalities=(), x=torch.zeros(trees.num_nodes, 1))
    large = from_networkx([nx.path_graph(70), nx.cycle_graph(61)], ["path", "cycle"])
    for graphs, signal in ((blank, "there is no signal"), (large, "of the first layer's signal")):
        section = graph_section(graphs, Aggregation())
        *_, about_signal, none_drawn = section.sentences
        assert signal in about_signal
        assert none_drawn.startswith("None is drawn")
        assert not section.drawings


@pytest.mark.parametrize("page", ["#ffffff", "#1b1f26"])
def test_charts_stand_out_from_a_light_and_a_dark_page(page: str) -> None:
    for paint in (*shades(8), GREY, BLUE, RED, DARK_RED):
        assert contrast(paint, page) >= 3, paint


@pytest.mark.parametrize("viewer", VIEWERS)
def test_layers_are_told_apart_by_all_viewers(viewer: str) -> None:
    colours = shades(8)
    assert min(difference(one, other, viewer) for one, other in pairwise(colours)) > 2
    assert difference(colours[0], colours[-1], viewer) > 40
