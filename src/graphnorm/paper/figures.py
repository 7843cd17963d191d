"""Figures of training curves, in panels as the paper has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.errors import MissingDependencyError
from graphnorm.paper.colours import colour
from graphnorm.study.store import Record

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["Curves", "average_curves", "plot_panels"]

Values = npt.NDArray[np.float64]
DASHES: tuple[Any, ...] = ("-", "--", "-.", ":")


@dataclass(frozen=True, eq=False)
class Curves:
    """The average course of some trainings, in percent: mean and standard deviation for each epoch."""

    norm: str
    variant: str
    """What else tells it from other curves of a panel; may be empty."""
    members: int
    diverged: int
    values: Mapping[str, tuple[Values, Values]]
    """By ``train`` and ``valid``."""

    @property
    def label(self) -> str:
        """For a legend."""
        return f"{self.norm}, {self.variant}" if self.variant else self.norm


def average_curves(records: Sequence[Record], variant: str | None = None) -> list[Curves]:
    """Average curves over folds and seeds, for each normalization and each value of the setting ``variant``.

    Members that diverged are counted and left out.
    """
    groups: dict[tuple[str, str], list[Record]] = {}
    for record in records:
        if record.status in ("done", "diverged"):
            value = "" if variant is None else f"{variant.replace('_', ' ')} {getattr(record.trial, variant)}"
            groups.setdefault((record.trial.norm, value), []).append(record)
    found = []
    for (norm, value), members in groups.items():
        alive = [record for record in members if record.status == "done"]
        stacks = {
            name: 100 * np.stack([record.curves[name] for record in alive]).astype(np.float64)
            for name in ("train", "valid")
            if alive and all(name in record.curves for record in alive)
        }
        values = {name: (stack.mean(0), stack.std(0)) for name, stack in stacks.items()}
        found.append(Curves(norm, value, len(members), len(members) - len(alive), values))
    return found


def plot_panels(
    panels: Mapping[str, Sequence[Curves]],
    *,
    metric: str = "training accuracy (%)",
    in_part: Collection[str] = (),
) -> Figure:
    """Training curves, one panel for each entry; the band is one standard deviation over folds or seeds.

    in_part: panels that do not show all that they should; their titles say so.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "drawing curves", "study") from error
    columns = min(4, max(1, len(panels)))
    rows = max(1, -(-len(panels) // columns))
    figure = Figure(figsize=(max(3.1 * columns, 5.5), 2.6 * rows + 0.9), layout="constrained")
    axes: Any = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    labels: dict[str, Any] = {}
    for axis, (title, curves) in zip(axes, panels.items(), strict=False):
        variants = list(dict.fromkeys(curve.variant for curve in curves))
        for curve in curves:
            if "train" not in curve.values:
                continue
            mean, std = curve.values["train"]
            epochs = np.arange(1, len(mean) + 1)
            dash = DASHES[variants.index(curve.variant) % len(DASHES)]
            (line,) = axis.plot(epochs, mean, color=colour(curve.norm), lw=1.4, ls=dash)
            low, high = np.clip([mean - std, mean + std], 0, 100)
            axis.fill_between(epochs, low, high, color=colour(curve.norm), alpha=0.1, lw=0)
            labels.setdefault(curve.label, line)
        axis.set_title(f"{title} (trained in part)" if title in in_part else title, fontsize=9)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for axis in axes[len(panels) :]:
        axis.set_axis_off()
    for axis in axes[max(0, len(panels) - columns) : len(panels)]:
        axis.set_xlabel("epoch", fontsize=9)
    figure.supylabel(metric, fontsize=9)
    if labels:
        longest = max(map(len, labels))
        at_once = max(1, min(len(labels), int(11 * figure.get_figwidth() / (longest + 6))))
        legend: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8}
        figure.legend(labels.values(), labels.keys(), ncols=at_once, **legend)
    return figure
