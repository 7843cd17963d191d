"""What a report says of trained models: the noise of batches along training, and the α that GraphNorm learned."""

from __future__ import annotations

import json
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from graphnorm.analysis import brief_layer, readable_layer
from graphnorm.errors import GraphnormError
from graphnorm.paper.products import Table
from graphnorm.paper.recipe import IMAGES
from graphnorm.paper.watching import Notebook, Seen
from graphnorm.report.charts import Chart, text_for_plotly

__all__ = ["Insight", "alpha_chart", "noise_chart", "read_analysis", "read_notebook"]

DEPTHS = ("#9ecae1", "#6baed6", "#4292c6", "#2171b5", "#3f6fb0", "#5a5fae", "#7a4fa8", "#9a3f9e")
"""From the first layer to the last; readable on light and on dark."""
REFERENCE = "#888888"
SPREAD, CENTRE = "#e0556a", "#d1495b"

Layer = Mapping[str, Any]
"""``LayerNoise.summary()`` as JSON: layer, batch_size, epochs, relative_deviation …"""


@dataclass(frozen=True)
class Insight:
    """Words and charts about models that were trained on some graphs."""

    dataset: str
    fingerprint: str
    sentences: Sequence[str] = ()
    charts: Sequence[Chart] = field(default=(), repr=False)


def read_analysis(folder: Path) -> Insight:
    """Read the parts ``noise`` and ``alpha`` of what ``graphnorm analyze --out`` wrote."""
    file = folder / "analysis.json"
    try:
        content = json.loads(file.read_text(encoding="utf-8"))
        parts = {name: content["parts"][name] for name in ("noise", "alpha") if name in content["parts"]}
        charts = []
        if "noise" in parts:
            charts.append(noise_chart(parts["noise"]["summary"]["layers"]))
        if "alpha" in parts:
            found = parts["alpha"]["summary"]
            charts.append(alpha_chart(found["layers"], found["epochs"]))
        sentences = [part["text"][-1] for part in parts.values()]  # the charts' own words have the rest
        return Insight(content["dataset"], content["fingerprint"], sentences, charts)
    except FileNotFoundError as error:
        raise GraphnormError("there is no analysis in it", where=folder, remedy="give another folder") from error
    except (KeyError, TypeError, AttributeError, ValueError) as error:
        raise GraphnormError(f"this is no analysis: {error}", where=file, remedy="analyze again") from error


def read_notebook(path: Path) -> list[Insight]:
    """Read a file of batch noise: an insight for each dataset of graphs, with the images for comparison."""
    notebook = Notebook(path)
    seen = notebook.watched()
    images = next((one for one in seen if one.watching.dataset == IMAGES), None)
    learned = {one.dataset: one for one in notebook.learned()}
    datasets = dict.fromkeys([one.watching.dataset for one in seen if one is not images] + list(learned))
    insights = []
    for dataset in datasets:
        own = sorted((one for one in seen if one.watching.dataset == dataset), key=lambda one: -one.watching.batch_size)
        charts = _by_depth_and_size(own, images) if own else []
        fingerprints = [one.facts.get("fingerprint", "") for one in own]
        if dataset in learned:
            found = learned[dataset]
            charts.append(alpha_chart(found.alphas.summary(), int(found.alphas.epochs[-1])))
            fingerprints.append(found.facts.get("fingerprint", ""))
        insights.append(Insight(dataset, fingerprints[0], (), charts))
    return insights


def _by_depth_and_size(own: Sequence[Seen], images: Seen | None) -> list[Chart]:
    """The layers at the largest batch size; the last layer at every batch size, where there are several."""
    reference = () if images is None else (images.layers[0].summary(), images.layers[-1].summary())
    charts = [noise_chart([layer.summary() for layer in own[0].layers], reference)]
    if len(own) > 1:
        charts.append(_size_chart([one.layers[-1].summary() for one in own]))
    return charts


def noise_chart(layers: Sequence[Layer], images: Sequence[Layer] = ()) -> Chart:
    """The relative deviation of batches at each layer, along training; that of images as grey lines."""
    named = [(readable_layer(layer["layer"]), layer) for layer in layers]
    shades = [DEPTHS[round(k * (len(DEPTHS) - 1) / max(len(layers) - 1, 1))] for k in range(len(layers))]
    traces = [_line(brief_layer(layer["layer"]), layer, shade) for layer, shade in zip(layers, shades, strict=True)]
    compared = [
        (f"{IMAGES}, {name}", layer) for name, layer in zip(("first layer", "last layer"), images, strict=False)
    ]
    traces += [
        _line(name.removesuffix(" layer"), layer, REFERENCE, dash=dash)
        for (name, layer), dash in zip(compared, ("dot", "dash"), strict=False)
    ]
    ends = "; ".join(f"{name} {_last(layer)}" for name, layer in (*named, *compared))
    size = layers[0]["batch_size"]
    return Chart(
        name=f"noise-{size}",
        title=f"Batch noise, batches of {size}",
        text="How far the mean and standard deviation of a batch are from the dataset's, in the dataset's standard "
        f"deviations, at each norm layer (by convolution, from 0) of a network trained with BatchNorm. After the last "
        f"epoch: {ends}.",
        data=_noise_table((*named, *compared)),
        traces=traces,
        layout=_noise_layout(),
    )


def _size_chart(layers: Sequence[Layer]) -> Chart:
    named = [(f"batches of {layer['batch_size']}", layer) for layer in layers]
    shades = [DEPTHS[round(k * (len(DEPTHS) - 1) / max(len(layers) - 1, 1))] for k in range(len(layers))]
    ends = "; ".join(f"{name} {_last(layer)}" for name, layer in named)
    return Chart(
        name="noise-by-size",
        title="Batch noise at the last layer, by batch size",
        text=f"The same at {readable_layer(layers[0]['layer'])}, trained with several batch sizes. After the last "
        f"epoch: {ends}.",
        data=_noise_table(named),
        traces=[_line(name, layer, shade) for (name, layer), shade in zip(named, shades, strict=True)],
        layout=_noise_layout(),
    )


def alpha_chart(layers: Mapping[str, Any], epochs: int) -> Chart:
    """How α is spread over the channels of each layer: median, half of them, and nine of ten."""
    names = [brief_layer(layer) for layer in layers]
    quantiles = [{float(key): value for key, value in numbers["quantiles"].items()} for numbers in layers.values()]
    words = "; ".join(
        f"{readable_layer(layer)} {of[0.5]:.2f} ({of[0.05]:.2f} to {of[0.95]:.2f})"
        for layer, of in zip(layers, quantiles, strict=True)
    )
    near = [numbers["share_near_1"] for numbers in layers.values()]
    return Chart(
        name="alpha",
        title="The learned α of GraphNorm",
        text=f"The share of the mean that GraphNorm takes away after {epochs} epochs; it begins at 1, InstanceNorm's "
        f"full shift. Median over the channels of each layer, and between which values nine of ten lie: {words}. "
        f"Within 0.1 of 1 are {min(near):.0%} to {max(near):.0%} of a layer's channels.",
        data=Table(
            ("layer", "quantile", "alpha"),
            [[layer, level, value] for layer, of in zip(layers, quantiles, strict=True) for level, value in of.items()],
        ),
        traces=[
            _bars("nine of ten channels", names, quantiles, (0.05, 0.95), width=2),
            _bars("half of the channels", names, quantiles, (0.25, 0.75), width=8),
            {
                "type": "scatter",
                "mode": "markers",
                "name": "median",
                "x": names,
                "y": [round(of[0.5], 3) for of in quantiles],
                "marker": {"color": "#ffffff", "size": 8, "line": {"color": CENTRE, "width": 2}},
                "hovertemplate": "median %{y:.2f}<extra></extra>",
            },
        ],
        layout={
            "xaxis": {"type": "category", "title": {"text": "convolution (from 0) and norm layer"}},
            "yaxis": {"title": {"text": "α"}},
            "shapes": [
                {"type": "line", "xref": "paper", "x0": 0, "x1": 1, "y0": 1, "y1": 1}
                | {"line": {"color": REFERENCE, "width": 1, "dash": "dot"}}
            ],
            "hovermode": "x",
            **LEGEND,
        },
    )


LEGEND = {"showlegend": True, "legend": {"orientation": "h", "x": 0, "y": 1.02, "yanchor": "bottom"}}


def _bars(
    name: str, places: Sequence[str], quantiles: Sequence[Mapping[float, float]], ends: tuple[float, float], width: int
) -> dict[str, Any]:
    """A line for each layer, with gaps between them."""
    values = [[round(of[ends[0]], 3), round(of[ends[1]], 3), None] for of in quantiles]
    return {
        "type": "scatter",
        "mode": "lines",
        "name": name,
        "x": [place for place in places for _ in range(3)],
        "y": [value for three in values for value in three],
        "line": {"color": SPREAD, "width": width},
        "opacity": 0.85 if width > 2 else 1.0,
        "connectgaps": False,
        "hoverinfo": "skip",
    }


def _line(name: str, layer: Layer, paint: str, dash: str = "solid") -> dict[str, Any]:
    return {
        "type": "scatter",
        "mode": "lines",
        "name": text_for_plotly(name),
        "x": list(map(int, layer["epochs"])),
        "y": [None if value is None else round(float(value), 4) for value in layer["relative_deviation"]],
        "line": {"color": paint, "width": 2, "dash": dash},
        "hovertemplate": "%{y:.3f}",
    }


def _noise_layout() -> dict[str, Any]:
    return {
        "xaxis": {"title": {"text": "epoch"}},
        "yaxis": {"title": {"text": "relative deviation"}, "rangemode": "tozero"},
        "hovermode": "x unified",
        **LEGEND,
    }


def _noise_table(layers: Iterable[tuple[str, Layer]]) -> Table:
    rows = [
        [name, layer["batch_size"], int(epoch), None if value is None else float(value)]
        for name, layer in layers
        for epoch, value in zip(layer["epochs"], layer["relative_deviation"], strict=True)
    ]
    return Table(("layer", "batch size", "epoch", "relative deviation"), rows)


def _last(layer: Layer) -> str:
    value = layer["relative_deviation"][-1]
    return "–" if value is None else f"{value:.3f}"
