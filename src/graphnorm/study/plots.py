"""Figure of a result: training and validation curves, as in the paper's Figure 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphnorm.errors import need
from graphnorm.settings import colour
from graphnorm.study.render import counted

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphnorm.study.result import Result

__all__ = ["plot_curves"]


def plot_curves(result: Result) -> Figure:
    """See :meth:`Result.plot`."""
    figure: Figure = need("matplotlib.figure", "drawing curves", "study").Figure(
        figsize=(10, 4.2), layout="constrained"
    )
    locator = need("matplotlib.ticker", "drawing curves", "study").MaxNLocator
    panels = figure.subplots(1, 2, sharey=True)
    metric, unit = result.protocol.metric, result.protocol.task.unit
    for panel, (curve, title) in zip(panels, (("train", "training"), ("valid", "validation")), strict=True):
        for name, score in result.norms.items():
            if curve not in score.curves:
                continue
            mean, spread = score.curves[curve]
            epochs = np.arange(1, len(mean) + 1)
            panel.plot(epochs, mean, color=colour(name), label=name, linewidth=1.6)
            if np.isfinite(spread).all():
                low, high = np.clip([mean - spread, mean + spread], 0, 100)
                panel.fill_between(epochs, low, high, color=colour(name), alpha=0.12, linewidth=0)
            if curve == "valid" and score.epoch is not None:
                panel.plot(score.epoch, mean[score.epoch - 1], "o", color=colour(name), markersize=5)
        panel.set_title(f"{title} {metric}")
        panel.set_xlabel("epoch")
        panel.xaxis.set_major_locator(locator(integer=True))
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"{metric} ({unit})")
    if panels[0].lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    trainings = max((len(score.choices) for score in result.norms.values()), default=0)
    what = f"{result.dataset}, {result.model}: mean ± standard deviation of {counted(trainings, 'training')}"
    figure.suptitle(what, fontsize="medium")
    return figure
