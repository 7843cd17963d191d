"""Figure of a result: training and validation curves, as in the paper's Figure 2; parts of other figures."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import pairwise
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.colours import colour, dash
from graphnorm.errors import need
from graphnorm.study.render import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from graphnorm.study.result import Result

__all__ = ["MOST_BANDS", "curve_ends", "draw_curve", "label_ends", "new_figure", "plot_curves", "style_axis"]

DASHES = {"solid": "-", "dash": "--", "dot": ":"}
MOST_BANDS = 4
"""Bands of more curves cover each other."""
BAND_POINTS = 100
"""More points make the file of a figure larger, and change nothing visible."""


def new_figure(width: float, height: float) -> Figure:
    figure: Figure = need("matplotlib.figure", "drawing curves", "study").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure


def draw_curve(
    axis: Axes,
    norm: str,
    mean: npt.NDArray[Any],
    std: npt.NDArray[Any] | None = None,
    ends: tuple[float, float] = (0, 100),
) -> Line2D:
    """A curve by epoch, with a band of one standard deviation where that is given and known.

    ends: the smallest and the largest value that there can be.
    """
    epochs = np.arange(1, len(mean) + 1)
    (line,) = axis.plot(epochs, mean, color=colour(norm), ls=DASHES[dash(norm)], label=norm, lw=1.4)
    if std is not None and np.isfinite(std).all():
        few = np.unique([*range(0, len(mean), max(1, len(mean) // BAND_POINTS)), len(mean) - 1])
        low, high = np.clip([mean - std, mean + std], *ends)[:, few]
        axis.fill_between(epochs[few], low, high, color=colour(norm), alpha=0.15, lw=0)
    return line


def label_ends(axis: Axes, lines: Sequence[Line2D], *, gap: float = 0.07) -> None:
    """Write the label of each line at its end; labels keep a distance of a share of the axes' height."""
    bottom, top = axis.get_ylim()
    ends = np.array([np.asarray(line.get_ydata(), np.float64)[-1] for line in lines])
    places = (np.nan_to_num(ends) - bottom) / (top - bottom)
    neighbours = list(pairwise(np.argsort(places, kind="stable")))
    for _ in range(100):
        for below, above in neighbours:
            apart = max(0.0, gap - (places[above] - places[below])) / 2
            places[below] -= apart
            places[above] += apart
    for line, place in zip(lines, places, strict=True):
        at: Any = {"xycoords": "axes fraction", "va": "center", "annotation_clip": False}
        axis.annotate(str(line.get_label()), (1.02, place), color=line.get_color(), fontsize=8, **at)


def style_axis(axis: Axes, ticks: int = 10) -> None:
    """A light grid, an open frame, and whole epochs."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(need("matplotlib.ticker", "drawing curves", "study").MaxNLocator(ticks, integer=True))


def curve_ends(result: Result, curves: Iterable[str]) -> tuple[float, float]:
    """Between which values bands are drawn. Errors, on a logarithmic axis, end at half of the lowest mean."""
    low, high = result.metric.ends
    if result.metric.higher_is_better:
        return low, high
    means = [score.curves[curve][0] for score in result.norms.values() for curve in curves if curve in score.curves]
    positive = [mean[np.isfinite(mean) & (mean > 0)] for mean in means]
    return min((float(mean.min()) / 2 for mean in positive if len(mean)), default=low), high


def plot_curves(result: Result) -> Figure:
    """See :meth:`Result.plot`. Errors begin many times as large as they end, and have a logarithmic axis."""
    figure = new_figure(10, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    with_bands, metric = len(result.norms) <= MOST_BANDS, result.metric
    ends = curve_ends(result, ("train", "valid"))
    for panel, (curve, title) in zip(panels, (("train", "training"), ("valid", "validation")), strict=True):
        for name, score in result.norms.items():
            if curve not in score.curves:
                continue
            mean, std = score.curves[curve]
            draw_curve(panel, name, mean, std if with_bands else None, ends)
            if curve == "valid" and score.epoch is not None:
                panel.plot(score.epoch, mean[score.epoch - 1], "o", color=colour(name), markersize=5)
        panel.set_title(f"{title} {metric.name}")
        panel.set_xlabel("epoch")
        style_axis(panel)
        if not metric.higher_is_better:
            panel.set_yscale("log")
            ticker = need("matplotlib.ticker", "drawing curves", "study")
            panel.yaxis.set_major_locator(ticker.LogLocator(subs=(1, 2, 5)))
            panel.yaxis.set_major_formatter(ticker.StrMethodFormatter("{x:g}"))
            panel.yaxis.set_minor_locator(ticker.NullLocator())
    panels[0].set_ylabel(metric.label)
    if panels[0].lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    trainings = max((len(score.choices) for score in result.norms.values()), default=0)
    what = f"{result.dataset}, {result.model}: mean of {counted(trainings, 'training')}"
    what += ", band: one standard deviation" if with_bands else ""
    figure.suptitle(what, fontsize="medium")
    return figure
