"""Training and validation curves, as in the paper's Figure 2."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from graphnorm.errors import MissingDependencyError
from graphnorm.paper.colours import colour

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphnorm.comparison.result import Comparison

__all__ = ["plot_curves"]


def plot_curves(comparison: Comparison) -> Figure:
    """Draw the mean curves of all normalizations, with a band of one standard deviation over the members.

    A dot marks the chosen epoch, where all members share one.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "drawing curves", "study") from error
    figure = Figure(figsize=(10, 4.2), layout="constrained")
    panels = figure.subplots(1, 2, sharey=True)
    metric = comparison.protocol.metric
    for panel, (curve, title) in zip(panels, (("train", "training"), ("valid", "validation")), strict=True):
        for name, result in comparison.norms.items():
            if curve not in result.curves:
                continue
            mean, spread = result.curves[curve]
            epochs = np.arange(1, len(mean) + 1)
            panel.plot(epochs, mean, color=colour(name), label=name, linewidth=1.6)
            if np.isfinite(spread).all():
                low, high = np.clip([mean - spread, mean + spread], 0, 100)
                panel.fill_between(epochs, low, high, color=colour(name), alpha=0.12, linewidth=0)
            chosen = result.selection.epoch
            if curve == "valid" and chosen is not None:
                panel.plot(chosen, mean[chosen - 1], "o", color=colour(name), markersize=5)
        panel.set_title(f"{title} {metric}")
        panel.set_xlabel("epoch")
        panel.xaxis.set_major_locator(MaxNLocator(integer=True))
        panel.grid(alpha=0.25)
        panel.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel(f"{metric} (%)")
    if panels[0].lines:
        figure.legend(*panels[0].get_legend_handles_labels(), loc="outside right center", frameon=False)
    members = len(next(iter(comparison.norms.values())).outcomes) if comparison.norms else 0
    figure.suptitle(
        f"{comparison.dataset}, {comparison.settings.model}: mean ± standard deviation of {members} trainings",
        fontsize="medium",
    )
    return figure
