"""Charts as data for Plotly, each with a description in words and its numbers as CSV.

Results have curves and scores; trained models have batch noise and the learned α; graphs have spectra, regularity and
drawings.
"""

from __future__ import annotations

import base64
import gzip
import html
import json
import math
import os
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphnorm.analysis import (
    Aggregation,
    brief_layer,
    conditions,
    interlacing,
    readable_layer,
    regularity,
    spectra,
    typical_graphs,
)
from graphnorm.analysis.measurement import Floats
from graphnorm.analysis.plots import shades
from graphnorm.colours import colour, dash
from graphnorm.data import to_networkx
from graphnorm.data.drawing import molecule_as_svg
from graphnorm.errors import GraphnormError
from graphnorm.files import plain
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.noise_and_alpha import AlphaRun, NoiseRun
from graphnorm.study.plots import curve_ends
from graphnorm.study.render import NOTHING, Table, counted

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs
    from graphnorm.study import Result

__all__ = ["Chart", "Drawing", "Section", "alpha_chart", "graph_section", "model_sections", "noise_chart", "packed"]
__all__ += ["read_analysis", "result_charts"]

TITLES = {"train": "Training", "valid": "Validation", "test": "Test"}
LEGEND: dict[str, Any] = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}}
GREY, BLUE, RED, DARK_RED = "#888888", "#3b82c4", "#e0556a", "#d1495b"
"""The colours of normalizations are in :data:`graphnorm.colours.COLOURS`, those of layers in
:mod:`graphnorm.analysis.plots`, those of the page in ``page.css``."""
SAMPLED_GRAPHS = 300
LARGEST = 250
"""Nodes of a graph whose spectrum is shown."""
LARGEST_DRAWN = 60
"""Nodes of a graph that is drawn."""
DRAWINGS = 6

Layer = Mapping[str, Any]
"""``LayerNoise.summary()`` as JSON: layer, batch_size, epochs, relative_deviation …"""


@dataclass(frozen=True)
class Chart:
    """One chart of a page."""

    name: str
    """Also of the file that its data is saved as."""
    title: str
    text: str
    """A description for readers who do not see it."""
    data: Table
    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The data as a compressed CSV file, inside the link."""
        return "data:application/gzip;base64," + packed(self.data.to_csv())


class Drawing(NamedTuple):
    """A graph as circles and lines, in a square from 0 to 100; a molecule as RDKit draws it."""

    label: str
    points: Sequence[tuple[float, float, float]]
    """x, y and degree relative to the largest."""
    edges: Sequence[tuple[float, float, float, float]]
    molecule: str
    """SVG elements in a square from 0 to 250, or empty."""


class Section(NamedTuple):
    """Sentences, charts and drawings."""

    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = ()
    drawings: Sequence[Drawing] = ()


def packed(text: str) -> str:
    """Text, compressed, in characters that need no escaping in HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def _text(text: str) -> str:
    """Text that Plotly shows as it is, even if it looks like markup."""
    return html.escape(text, quote=False)


def _rounded(values: Iterable[Any], digits: int = 3) -> list[float | None]:
    """Rounded to this many decimals, and small values to as many digits."""
    known = (None if value is None or not math.isfinite(value) else float(value) for value in values)
    return [v if v is None else round(v, digits) if abs(v) >= 1 else float(f"{v:.{digits + 1}g}") for v in known]


def _axes(x: str, y: str, *, hovermode: str = "x unified", **more: Any) -> dict[str, Any]:
    return {"xaxis": {"title": {"text": x}}, "yaxis": {"title": {"text": y}}, "hovermode": hovermode, **more}


def _line(
    name: str, x: Iterable[Any], y: Iterable[Any], paint: str, *, dashes: str = "solid", digits: int = 3, **more: Any
) -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": _text(name),
        "x": list(x),
        "y": _rounded(y, digits),
        "line": {"color": paint, "width": 2, "dash": dashes},
        **more,
    }


# Results


def result_charts(result: Result) -> list[Chart]:
    """Training, validation and test curves, and the score of every fold or seed."""
    return [chart for chart in (*(_curves(result, curve) for curve in TITLES), _scores(result)) if chart is not None]


def _curves(result: Result, curve: str) -> Chart | None:
    curves = {name: score.curves[curve] for name, score in result.norms.items() if curve in score.curves}
    if not curves:
        return None
    metric = result.metric
    limits = curve_ends(result, [curve])
    traces, rows, ends = [], [], []
    for name, (mean, spread) in curves.items():
        epochs = range(1, len(mean) + 1)
        rows += [[name, *row] for row in zip(epochs, _rounded(mean), _rounded(spread), strict=True)]
        more: dict[str, Any] = {
            "meta": name,
            "legendgroup": name,
            "hovertemplate": f"%{{y:.4~g}} {metric.unit}".rstrip(),
        }
        if np.isfinite([mean, spread]).all():
            more["band"] = _rounded(spread)  # the page's script draws it as an area around the line
            more["ends"] = [end if math.isfinite(end) else None for end in limits]  # within these
        traces.append(_line(name, epochs, mean, colour(name), dashes=dash(name), **more))
        if len(known := mean[np.isfinite(mean)]):
            best, last = (metric.with_unit(value) for value in (metric.sign * (metric.sign * known).max(), known[-1]))
            ends.append(f"{name} ends at {last}" + (f" ({metric.best} {best})" if best != last else ""))
    layout = _axes("epoch", metric.label)
    if not metric.higher_is_better:
        layout["yaxis"] |= _logarithmic(limits[0], curves.values())
    return Chart(
        name=f"{curve}-curves",
        title=f"{TITLES[curve]} {metric.name} by epoch",
        text=f"Mean over {result.protocol.unit}s; up to four curves have a band of one standard deviation. "
        f"{'; '.join(ends)}.",
        data=Table(("norm", "epoch", "mean", "std"), rows),
        traces=traces,
        layout=layout,
    )


def _logarithmic(lowest: float, curves: Iterable[tuple[Any, Any]]) -> dict[str, Any]:
    """An axis for errors, which begin many times as large as they end."""
    highest = max((float((mean + spread)[np.isfinite(mean)].max(initial=0)) for mean, spread in curves), default=0.0)
    if not 0 < lowest < highest < math.inf:
        return {}
    decades = range(math.floor(math.log10(lowest)), math.ceil(math.log10(highest)) + 1)
    steps = (1, 2, 5) if len(decades) < 5 else (1,)
    return {"type": "log", "tickvals": [float(f"{step}e{k}") for k in decades for step in steps]}


def _scores(result: Result) -> Chart | None:
    scores = {name: score for name, score in result.norms.items() if name in result.ranking}
    if not scores:
        return None
    metric, member = result.metric, result.protocol.unit

    def marks(name: str, values: Iterable[float], what: str, **marker: Any) -> dict[str, Any]:
        x, label = _rounded(values), _text(name)
        hover = f"{what} %{{x:.4~g}} {metric.unit}".rstrip() + "<extra></extra>"
        shared = {"type": "scatter", "mode": "markers", "meta": name, "name": label, "hovertemplate": hover}
        return {**shared, "x": x, "y": [label] * len(x), "marker": marker}

    traces = []
    for name, score in scores.items():
        paint = colour(name)
        traces.append(marks(name, score.scores.values(), f"{member} score", color=paint, size=8, opacity=0.45))
        outline = {"width": 1.5, "color": "white"}
        spread = {"type": "data", "array": [_rounded([score.std])[0] or 0.0], "color": paint, "thickness": 1.5}
        mean = marks(name, [score.mean], "mean", color=paint, size=14, symbol="diamond", line=outline)
        traces.append(mean | {"error_x": spread})
        if score.paper is not None:
            bar = {"symbol": "line-ns-open", "line": {"width": 2.5}}
            traces.append(marks(name, [score.paper.mean], "paper", color=GREY, size=13, **bar))
    means = "; ".join(f"{name} {metric.with_unit(score.mean)}" for name, score in scores.items())
    paper = " A grey bar is the paper's number." if any(score.paper for score in scores.values()) else ""
    rows = [
        [name, *row]
        for name, score in scores.items()
        for row in zip(score.scores, _rounded(score.scores.values(), 4), strict=True)
    ]
    return Chart(
        name="scores",
        title=f"{metric.name[0].upper()}{metric.name[1:]} of every {member}",
        text=f"Every {member} as a dot, means as diamonds: {means}.{paper}",
        data=Table(("norm", member, "score"), rows),
        traces=traces,
        layout={
            "xaxis": {"title": {"text": metric.label}},
            "yaxis": {"autorange": "reversed", "type": "category"},
            "hovermode": "closest",
        },
    )


# Trained models


def model_sections(noise: Sequence[NoiseRun], alphas: Sequence[AlphaRun]) -> dict[str, Section]:
    """Batch noise and the learned α, by the fingerprint of the graphs.

    If trainings differ only in the number of epochs, the longest is shown.
    """
    noise = sorted(noise, key=lambda run: run.record.epochs)
    images: list[Layer] = []
    by_size: dict[str, dict[int, list[Layer]]] = {}
    for run in noise:
        layers = [plain(layer.summary()) for layer in run.layers]
        if run.trial.dataset == IMAGES:
            images = [layers[0], layers[-1]]
        else:
            by_size.setdefault(run.trial.fingerprint, {})[run.trial.batch_size] = layers
    charts: dict[str, list[Chart]] = {}
    for fingerprint, sizes in by_size.items():
        largest_first = [sizes[size] for size in sorted(sizes, reverse=True)]
        charts[fingerprint] = [noise_chart(largest_first[0], images)]
        if len(sizes) > 1:
            charts[fingerprint].append(_size_chart([layers[-1] for layers in largest_first]))
    longest = {run.trial.fingerprint: run.alphas for run in sorted(alphas, key=lambda run: run.trial.epochs)}
    for fingerprint, found in longest.items():
        chart = alpha_chart(plain(found.summary()), int(found.epochs[-1]))
        charts.setdefault(fingerprint, []).append(chart)
    return {fingerprint: Section(charts=found) for fingerprint, found in charts.items()}


def read_analysis(folder: str | os.PathLike[str]) -> tuple[str, str, Section]:
    """The dataset, its fingerprint, and batch noise and α from a folder that ``graphnorm analyze --out`` wrote."""
    file = Path(folder) / "analysis.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        parts = {name: content["parts"][name] for name in ("noise", "alpha") if name in content["parts"]}
        charts = []
        if "noise" in parts:
            charts.append(noise_chart(parts["noise"]["summary"]["layers"]))
        if "alpha" in parts:
            found = parts["alpha"]["summary"]
            charts.append(alpha_chart(found["layers"], found["epochs"]))
        sentences = [part["text"][-1] for part in parts.values()]  # the charts' texts have the rest
        dataset, fingerprint = str(content["dataset"]), str(content["fingerprint"])
    except (AttributeError, IndexError, KeyError, TypeError, ValueError) as error:
        raise GraphnormError(f"this is no analysis: {error!r}", where=file, remedy="analyze again") from error
    if not charts:
        remedy = "graphnorm analyze DATA --parts noise alpha"
        raise GraphnormError("this analysis has neither noise nor alpha", where=folder, remedy=remedy)
    return dataset, fingerprint, Section(sentences, charts)


def noise_chart(layers: Sequence[Layer], images: Sequence[Layer] = ()) -> Chart:
    """The relative deviation of batches at each layer, along training; grey lines are the first and last of images."""
    size = layers[0]["batch_size"]
    traces, rows = [], []
    for layer, paint in zip(layers, shades(len(layers)), strict=True):
        traces.append(_noise_line(brief_layer(layer["layer"]), layer, paint))
        rows.append((readable_layer(layer["layer"]), layer))
    for layer, which, dashes in zip(images, ("first", "last"), ("dot", "dash"), strict=False):
        traces.append(_noise_line(f"{IMAGES}, {which}", layer, GREY, dashes))
        rows.append((f"{IMAGES}, {which} layer", layer))
    about = (
        "How far the mean and standard deviation of a batch are from the dataset's, in the dataset's standard "
        "deviations, at each norm layer (by convolution, from 0) of a network trained with BatchNorm."
    )
    return _noise(f"noise-{size}", f"Batch noise, batches of {size}", about, traces, rows)


def _size_chart(layers: Sequence[Layer]) -> Chart:
    rows = [(f"batches of {layer['batch_size']}", layer) for layer in layers]
    traces = [_noise_line(*row, paint) for row, paint in zip(rows, shades(len(rows)), strict=True)]
    about = f"The same at {readable_layer(layers[0]['layer'])}, trained with several batch sizes."
    return _noise("noise-by-size", "Batch noise at the last layer, by batch size", about, traces, rows)


def _noise_line(name: str, layer: Layer, paint: str, dashes: str = "solid") -> dict[str, Any]:
    values = layer["relative_deviation"]
    return _line(name, layer["epochs"], values, paint, dashes=dashes, digits=4, hovertemplate="%{y:.3f}")


def _noise(
    name: str, title: str, about: str, traces: Sequence[dict[str, Any]], layers: Sequence[tuple[str, Layer]]
) -> Chart:
    """layers: with their names."""
    rows, ends = [], []
    for label, layer in layers:
        values = layer["relative_deviation"]
        rows += [[label, layer["batch_size"], *row] for row in zip(layer["epochs"], values, strict=True)]
        ends.append(f"{label} {NOTHING if values[-1] is None else f'{values[-1]:.3f}'}")
    layout = _axes("epoch", "relative deviation", **LEGEND)
    layout["yaxis"]["rangemode"] = "tozero"
    table = Table(("layer", "batch size", "epoch", "relative deviation"), rows)
    return Chart(name, title, f"{about} After the last epoch: {'; '.join(ends)}.", table, traces, layout)


def alpha_chart(layers: Mapping[str, Any], epochs: int) -> Chart:
    """The distribution of α over the channels of each layer: the median, the middle half, the middle nine tenths.

    layers: ``Alphas.summary()`` as JSON.
    """
    names = [brief_layer(layer) for layer in layers]
    quantiles = [{float(level): value for level, value in numbers["quantiles"].items()} for numbers in layers.values()]

    def bars(name: str, low: float, high: float, **line: Any) -> dict[str, Any]:
        x = [place for place in names for _ in range(3)]
        # None: a gap before the next layer
        y = [value for levels in quantiles for value in (levels[low], levels[high], None)]
        return _line(name, x, y, RED, connectgaps=False, hoverinfo="skip") | line

    medians = _line("median", names, [levels[0.5] for levels in quantiles], DARK_RED) | {
        "mode": "markers",
        "marker": {"color": "#ffffff", "size": 8, "line": {"color": DARK_RED, "width": 2}},
        "hovertemplate": "median %{y:.2f}<extra></extra>",
    }
    words = "; ".join(
        f"{readable_layer(layer)} {levels[0.5]:.2f} ({levels[0.05]:.2f} to {levels[0.95]:.2f})"
        for layer, levels in zip(layers, quantiles, strict=True)
    )
    near = [numbers["share_near_1"] for numbers in layers.values()]
    layout = _axes("convolution (from 0) and norm layer", "α", hovermode="x", **LEGEND)
    layout["xaxis"]["type"] = "category"
    at_one = {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1}
    layout["shapes"] = [at_one | {"line": {"color": GREY, "width": 1, "dash": "dot"}}]
    rows = [[layer, *row] for layer, levels in zip(layers, quantiles, strict=True) for row in levels.items()]
    return Chart(
        name="alpha",
        title="The learned α of GraphNorm",
        text=f"The share of the mean that GraphNorm subtracts after {epochs} epochs; it begins at 1, InstanceNorm's "
        f"full shift. Median over the channels of each layer, and between which values nine of ten lie: {words}. "
        f"Within 0.1 of 1 are {min(near):.0%} to {max(near):.0%} of a layer's channels.",
        data=Table(("layer", "quantile", "alpha"), rows),
        traces=[
            bars("nine of ten channels", 0.05, 0.95),
            bars("half of the channels", 0.25, 0.75, line={"color": RED, "width": 8}, opacity=0.85),
            medians,
        ],
        layout=layout,
    )


# Graphs


def graph_section(graphs: PackedGraphs, aggregation: Aggregation) -> Section:
    """Spectra and regularity of sampled graphs, and drawings of some, ordered by the signal that the shift keeps."""
    order = np.random.default_rng(0).permutation(graphs.num_graphs)
    sizes = graphs.sizes.cpu().numpy()
    sample = np.sort(order[sizes[order] <= LARGEST][:SAMPLED_GRAPHS])
    measured = regularity(graphs, np.sort(order[:SAMPLED_GRAPHS]), aggregation)
    kept = measured.signal_kept[np.isfinite(measured.signal_kept)]
    sentences, charts = [], []
    if len(sample):
        values = spectra(graphs, sample, aggregation)
        theorem, numbers = interlacing(values).summary(), conditions(values).summary()
        sentences.append(
            "Q is the matrix by which the model combines a node with its neighbours. QN is the same after the mean of "
            "each graph is subtracted. The singular values of QN lie between those of Q, as Theorem 1 of the GraphNorm "
            f"paper says, on {theorem['holds']:,} of {theorem['graphs']:,} sampled graphs of up to {LARGEST} nodes. "
            f"The median condition number is {numbers['median_condition_q']:.3g} for Q and "
            f"{numbers['median_condition_shifted']:.3g} for QN. The paper expects faster training where it is lower."
        )
        middle = np.argsort(values.sizes, kind="stable")[[len(sample) // 4, len(sample) // 2, 3 * len(sample) // 4]]
        charts += [_spectrum(int(values.ids[k]), *values.of(int(k))) for k in dict.fromkeys(middle.tolist())]
    if len(kept):
        sentences.append(
            f"Of {len(measured.ids):,} sampled graphs {measured.regular.mean():.0%} are regular: all nodes have the "
            f"same degree. {measured.complete.mean():.0%} are complete: all nodes are neighbours. Subtracting the "
            f"whole mean, as InstanceNorm does, keeps {np.median(kept):.0%} of the first layer's signal in the median "
            "graph."
        )
        charts.append(_signal_kept(np.clip(kept, 0, 1)))
    else:
        sentences.append("The features are 0 everywhere: there is no signal.")
    typical = typical_graphs(measured, DRAWINGS, max_nodes=LARGEST_DRAWN)
    if not len(typical):
        sentences.append(f"None is drawn: no sampled graph with a signal has {LARGEST_DRAWN} nodes or fewer.")
    share = dict(zip(measured.ids.tolist(), measured.signal_kept.tolist(), strict=True))
    return Section(sentences, charts, [_draw(graphs, graph, share[graph]) for graph in typical.tolist()])


def _spectrum(graph: int, q: Floats, shifted: Floats) -> Chart:
    traces, rows = [], []
    for name, values, paint, offset in (("Q", q, BLUE, 0.0), ("QN", shifted, RED, 0.5)):
        ranks = np.arange(1, len(values) + 1)
        rows += [[name, *row] for row in zip(ranks.tolist(), values.tolist(), strict=True)]
        hover = f"{name}: %{{y:.3g}}<extra></extra>"
        line = _line(name, (ranks + offset).tolist(), values, paint, digits=4, marker={"size": 4}, hovertemplate=hover)
        traces.append(line | {"mode": "lines+markers" if len(q) <= LARGEST_DRAWN else "lines"})
    largest = f"the largest of Q is {q[-1]:.3g}" + (f", of QN {shifted[-1]:.3g}" if len(shifted) else "")
    return Chart(
        name=f"spectrum-{graph}",
        title=f"Spectrum of graph {graph}",
        text=f"Singular values of Q (blue) and QN (red) of graph {graph}, {len(q)} nodes, in order: {largest}.",
        data=Table(("matrix", "rank", "singular value"), rows),
        traces=traces,
        layout={"xaxis": {"title": {"text": "rank"}}, "yaxis": {"rangemode": "tozero"}, "hovermode": "closest"},
    )


def _signal_kept(kept: Floats) -> Chart:
    counts, edges = np.histogram(kept, bins=25, range=(0, 1))
    centres, heights = ((edges[:-1] + edges[1:]) / 2).round(3).tolist(), counts.tolist()
    hover = "%{y} graphs keep about %{x:.0%}<extra></extra>"
    layout = _axes("share of the signal kept", "graphs", hovermode="closest", bargap=0.08)
    layout["xaxis"] |= {"range": [0, 1], "tickformat": ".0%"}
    return Chart(
        name="signal-kept",
        title="Signal kept by the full shift",
        text="How many graphs keep which share of the first layer's signal when the whole mean is subtracted: median "
        f"{np.median(kept):.0%}, from {kept.min():.0%} to {kept.max():.0%}.",
        data=Table(("share kept", "graphs"), list(zip(centres, heights, strict=True))),
        traces=[{"type": "bar", "x": centres, "y": heights, "marker": {"color": RED}, "hovertemplate": hover}],
        layout=layout,
    )


def _draw(graphs: PackedGraphs, graph_id: int, kept: float) -> Drawing:
    graph = to_networkx(graphs, graph_id)
    import networkx as nx

    layout = nx.spring_layout(graph, seed=0, iterations=80, k=1.6 / max(1, len(graph) ** 0.5))
    at = np.array([layout[node] for node in graph])
    span = np.ptp(at, axis=0).max() or 1.0
    at = (50 + 90 * (at - (at.max(0) + at.min(0)) / 2) / span).round(1)
    places = dict(zip(graph, ((round(x, 1), round(y, 1)) for x, y in at.tolist()), strict=True))
    degrees = dict(graph.degree())
    largest = max([1, *degrees.values()])
    nodes, edges = counted(len(graph), "node"), counted(graph.number_of_edges(), "edge")
    known = "" if graphs.target_names else f", class {graphs.classes[int(graphs.labels[graph_id])]}"
    if graphs.targets is not None and len(graphs.target_names) == 1:
        known = f", {graphs.target_names[0]} {float(graphs.targets[graph_id, 0]):.3g}"
    return Drawing(
        label=f"graph {graph_id}{known}: {nodes}, {edges}, {kept:.0%} of the signal kept",
        points=[(*places[node], round(degrees[node] / largest, 2)) for node in graph],
        edges=[(*places[a], *places[b]) for a, b in graph.edges()],
        molecule=molecule_as_svg(graphs, graph_id, 250),
    )
