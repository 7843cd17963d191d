"""Figure of a result: training and validation curves, as in the paper's Figure 2."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.errors import need
from graphnorm.settings import colour, dash
from graphnorm.study.render import counted

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure
    from matplotlib.lines import Line2D

    from graphnorm.study.result import Result

__all__ = ["draw_curve", "new_figure", "plot_curves", "style_axis"]

DASHES = {"solid": "-", "dash": "--", "dot": ":"}
BAND_POINTS = 100
"""More points make the file of a figure larger, and change nothing visible."""


def new_figure(width: float, height: float) -> Figure:
    figure: Figure = need("matplotlib.figure", "drawing curves", "study").Figure(
        figsize=(width, height), layout="constrained"
    )
    return figure


def draw_curve(axis: Axes, norm: str, mean: npt.NDArray[Any], std: npt.NDArray[Any]) -> Line2D:
    """A curve by epoch in percent, with a band of one standard deviation where that is known."""
    epochs = np.arange(1, len(mean) + 1)
    (line,) = axis.plot(epochs, mean, color=colour(norm), ls=DASHES[dash(norm)], label=norm, lw=1.4)
    if np.isfinite(std).all():
        few = np.unique([*range(0, len(mean), max(1, len(mean) // BAND_POINTS)), len(mean) - 1])
        low, high = np.clip([mean - std, mean + std], 0, 100)[:, few]
        axis.fill_between(epochs[few], low, high, color=colour(norm), alpha=0.1, lw=0)
    return line


def style_axis(axis: Axes, ticks: int = 10) -> None:
    """A light grid, an open frame, and whole epochs."""
    axis.grid(alpha=0.25)
    axis.spines[["top", "right"]].set_visible(False)
    axis.xaxis.set_major_locator(need("matplotlib.ticker", "drawing curves", "study").MaxNLocator(ticks, integer=True))


def plot_curves(result: Result) -> Figure:
    """See :meth:`Result.plot`."""
    figure = new_figure(10, 4.2)
    panels = figure.subplots(1, 2, sharey=True)
    metric, unit = result.protocol.metric, result.protocol.task.unit
    for panel, (curve, title) in zip(panels, (("train", "training"), ("valid", "validation")), strict=True):
        for name, score in result.norms.items():
            if curve not in score.curves:
                continue
            mean, std = score.curves[curve]
            draw_curve(panel, name, mean, std)
            if curve == "valid" and score.epoch is not None:
                panel.plot(score.epoch, mean[score.epoch - 1], "o", color=colour(name), markersize=5)
        panel.set_title(f"{title} {metric}")
        panel.set_xlabel("epoch")
        style_axis(panel)
    panels[0].set_ylabel(f"{metric} ({unit})")
    if panels[0].lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    trainings = max((len(score.choices) for score in result.norms.values()), default=0)
    what = f"{result.dataset}, {result.model}: mean ± standard deviation of {counted(trainings, 'training')}"
    figure.suptitle(what, fontsize="medium")
    return figure
