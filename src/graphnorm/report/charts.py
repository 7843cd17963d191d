"""Charts as data for Plotly, each with its meaning in words and its numbers as CSV."""

from __future__ import annotations

import base64
import gzip
import html
from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any

from graphnorm.paper.colours import colour
from graphnorm.paper.products import Table
from graphnorm.report.sources import NormScore, Source

__all__ = ["Chart", "curve_charts", "packed", "score_chart", "text_for_plotly"]

TITLES = {"train": "Training", "valid": "Validation", "test": "Test"}


@dataclass(frozen=True)
class Chart:
    """One chart of a page."""

    name: str
    """Of the file that its data is saved as."""
    title: str
    text: str
    """What it shows, for who does not see it."""
    data: Table
    traces: Sequence[dict[str, Any]]
    layout: dict[str, Any] = field(default_factory=dict)

    @property
    def link(self) -> str:
        """The data, compressed, as an address that holds it."""
        return "data:application/gzip;base64," + packed(self.data.to_csv())


def packed(text: str) -> str:
    """Compressed, and as letters that mean nothing to HTML."""
    return base64.b64encode(gzip.compress(text.encode(), mtime=0)).decode()


def curve_charts(source: Source) -> list[Chart]:
    """A chart for each of the training, validation and test curves."""
    charts = []
    for curve, title in TITLES.items():
        norms = [norm for norm in source.norms if curve in norm.curves]
        if norms:
            charts.append(_curves(source, norms, curve, f"{title} {source.metric}"))
    return charts


def _curves(source: Source, norms: Sequence[NormScore], curve: str, title: str) -> Chart:
    traces, rows, ends = [], [], []
    for norm in norms:
        mean, std = norm.curves[curve]
        epochs = list(range(1, len(mean) + 1))
        rows += [[norm.name, *row] for row in zip(epochs, _rounded(mean), _rounded(std), strict=True)]
        traces.append(_line(norm.name, epochs, mean, std))
        known = [value for value in mean if value is not None]
        if known:
            higher = f" (highest {max(known):.1f} %)" if max(known) - known[-1] >= 0.05 else ""
            ends.append(f"{norm.name} ends at {known[-1]:.1f} %{higher}")
    averaged = f"mean over {source.unit}s with a band of one standard deviation"
    return Chart(
        name=f"{curve}-curves",
        title=f"{title} by epoch",
        text=f"{averaged.capitalize()}: {'; '.join(ends)}.",
        data=Table(("norm", "epoch", "mean", "std"), rows),
        traces=traces,
        layout={
            "xaxis": {"title": {"text": "epoch"}},
            "yaxis": {"title": {"text": f"{source.metric} (%)"}},
            "hovermode": "x unified",
        },
    )


def _line(name: str, epochs: list[int], mean: Sequence[float | None], std: Sequence[float | None]) -> dict[str, Any]:
    """The mean as a line, with the standard deviation, where it is known, for the page's script to draw around it."""
    known = all(value is not None for value in (*mean, *std))
    return {
        "meta": name,
        "legendgroup": name,
        "name": text_for_plotly(name),
        "mode": "lines",
        "type": "scatter",
        "x": epochs,
        "y": _rounded(mean),
        "line": {"color": colour(name), "width": 2},
        "hovertemplate": "%{y:.1f} %",
        **({"band": _rounded(std)} if known else {}),
    }


def score_chart(source: Source) -> Chart | None:
    """Every fold's or seed's score, beside its mean and the paper's number."""
    norms = [norm for norm in source.norms if norm.mean is not None]
    if not norms:
        return None
    traces: list[dict[str, Any]] = []
    rows: list[list[Any]] = []
    for norm in norms:
        label, paint = text_for_plotly(norm.name), colour(norm.name)
        rows += [[norm.name, unit, score] for unit, score in enumerate(norm.scores)]
        shared = {"type": "scatter", "mode": "markers", "meta": norm.name, "name": label}
        traces.append(
            shared
            | {
                "x": _rounded(norm.scores),
                "y": [label] * len(norm.scores),
                "marker": {"color": paint, "size": 8, "opacity": 0.45},
                "hovertemplate": f"{source.unit} score %{{x:.1f}} %<extra></extra>",
            }
        )
        traces.append(
            shared
            | {
                "x": _rounded([norm.mean]),
                "y": [label],
                "marker": {"color": paint, "size": 14, "symbol": "diamond", "line": {"width": 1.5, "color": "white"}},
                "error_x": {"type": "data", "array": _rounded([norm.std or 0.0]), "color": paint, "thickness": 1.5},
                "hovertemplate": "mean %{x:.1f} %<extra></extra>",
            }
        )
        if norm.paper is not None:
            traces.append(
                shared
                | {
                    "x": [norm.paper.mean],
                    "y": [label],
                    "marker": {"color": "#888888", "size": 13, "symbol": "line-ns-open", "line": {"width": 2.5}},
                    "hovertemplate": "paper %{x:.1f} %<extra></extra>",
                }
            )
    means = "; ".join(f"{norm.name} {norm.mean:.1f} %" for norm in norms)
    paper = " A grey bar is the paper's number." if any(norm.paper for norm in norms) else ""
    return Chart(
        name="scores",
        title=f"{source.metric[0].upper()}{source.metric[1:]} of every {source.unit}",
        text=f"Every {source.unit} as a dot, means as diamonds: {means}.{paper}",
        data=Table(("norm", source.unit, "score"), rows),
        traces=traces,
        layout={
            "xaxis": {"title": {"text": f"{source.metric} (%)"}},
            "yaxis": {"autorange": "reversed", "type": "category"},
            "hovermode": "closest",
        },
    )


def text_for_plotly(text: str) -> str:
    """Text that Plotly shows as it is, whatever markup it looks like."""
    return html.escape(text, quote=False)


def _rounded(values: Sequence[float | None]) -> list[float | None]:
    return [None if value is None else round(value, 3) for value in values]
