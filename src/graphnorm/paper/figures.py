"""Figures of training curves, in panels as the paper has them."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.errors import MissingDependencyError
from graphnorm.paper.colours import colour
from graphnorm.study.protocol import find_protocol
from graphnorm.study.store import Record
from graphnorm.training import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

__all__ = ["CONVERGED", "Curves", "average_curves", "convergence", "describe_panels", "plot_panels"]

Values = npt.NDArray[np.float64]
CONVERGED = 0.98
"""A training curve has converged at this share of what GraphNorm's ends with."""
FOOT_CHARACTERS = 18
"""Of the line above the legend, on an inch."""


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
    trials: tuple[Trial, ...]
    """What was averaged."""
    averages: Mapping[int, float] = field(default_factory=dict)
    """By fold (or seed, where that is what a protocol averages over): the average of its training curve over epochs."""

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
        averages = _averages(alive, stacks["train"]) if "train" in stacks else {}
        trials = tuple(record.trial for record in alive)
        found.append(Curves(norm, value, len(members), len(members) - len(alive), values, trials, averages))
    return found


def _averages(records: Sequence[Record], curves: Values) -> dict[int, float]:
    """Of each fold's curves (or each seed's), (M, E), over seeds and epochs."""
    units = np.array([getattr(record.trial, find_protocol(record.trial.protocol).unit) for record in records])
    return {int(unit): float(curves[units == unit].mean()) for unit in np.unique(units)}


def convergence(
    panels: Mapping[str, Sequence[Curves]], averaged_over: Mapping[str, tuple[str, int]]
) -> list[dict[str, Any]]:
    """The average of each training curve over its epochs, its end, who diverged, and when it had converged.

    averaged_over: whether the curves of a panel are averages over folds or over seeds, and how many of them.
    """
    ends = {
        (panel, curve.variant): float(curve.values["train"][0][-1])
        for panel, members in panels.items()
        for curve in members
        if curve.norm == "graph" and curve.values
    }
    return [
        {
            "panel": panel,
            "norm": curve.norm,
            "variant": curve.variant,
            "members": curve.members,
            "diverged": curve.diverged,
            "train_average": round(float(curve.values["train"][0].mean()), 3) if curve.values else None,
            "train_end": round(float(curve.values["train"][0][-1]), 3) if curve.values else None,
            "valid_best": round(float(curve.values["valid"][0].max()), 3) if curve.values else None,
            "epochs_to_converge": _epochs_to_converge(curve, ends.get((panel, curve.variant))),
            "unit": averaged_over[panel][0],
            "train_averages": [
                round(curve.averages[k], 3) if k in curve.averages else None for k in range(averaged_over[panel][1])
            ],
        }
        for panel, members in panels.items()
        for curve in members
    ]


def _epochs_to_converge(curve: Curves, end: float | None) -> int | None:
    """After how many it has, for the first time; None if never, or if there is no end to go by."""
    if end is None or not curve.values:
        return None
    there = curve.values["train"][0] >= CONVERGED * end
    return int(there.argmax()) + 1 if there.any() else None


def describe_panels(panels: Mapping[str, Sequence[Curves]]) -> str:
    """What the lines and bands are, and how the models were trained: first what all panels share, then the others.

    A setting that has several values in a panel is left out there.
    """
    drawn = {title: [one.trials for one in curves if "train" in one.values] for title, curves in panels.items()}
    facts = {title: _facts(trials) for title, trials in drawn.items() if trials}
    if not facts:
        return ""
    first = next(iter(facts.values()))
    shared = [fact for fact in first if all(fact in found for found in facts.values())]
    own: dict[tuple[str, ...], list[str]] = {}
    for title, found in facts.items():
        own.setdefault(tuple(fact for fact in found if fact not in shared), []).append(title)
    *few, (rest, _) = sorted(own.items(), key=lambda group: len(group[1]))
    averaged = [f"mean of {shared.pop(0)}" if first[0] in shared else "mean", "band: one standard deviation"]
    parts = [f"{', '.join(titles)}: {', '.join(found)}" for found, titles in few if found]
    parts += [f"other panels: {', '.join(rest)}"] if rest else []
    return "; ".join(filter(None, [", ".join(averaged), ", ".join(shared), *parts]))


def _facts(drawn: Sequence[Sequence[Trial]]) -> list[str]:
    """What holds of every curve of a panel, in words, given the trials of each."""
    counts = sorted({len(trials) for trials in drawn})
    number = f"{counts[0]}" if len(counts) == 1 else f"{counts[0]} to {counts[-1]}"
    found = [f"{number} {_unit(drawn, counts[-1])}"]
    for name, form in (
        ("batch_size", "batches of {}"),
        ("lr", "learning rate {:g}"),
        ("dropout", "dropout {:g}"),
        ("epochs", "{} epochs"),
    ):
        values = {getattr(trial, name) for trials in drawn for trial in trials}
        found += [form.format(*values)] if len(values) == 1 else []
    return found


def _unit(drawn: Sequence[Sequence[Trial]], most: int) -> str:
    """What is averaged over."""
    if all(len({trial.fold for trial in trials}) == len(trials) for trials in drawn) and drawn[0][0].folds > 1:
        return "fold" if most == 1 else "folds"
    if all(len({trial.seed for trial in trials}) == len(trials) for trials in drawn):
        return "seed" if most == 1 else "seeds"
    return "trainings"


def plot_panels(
    panels: Mapping[str, Sequence[Curves]],
    *,
    metric: str = "training accuracy (%)",
    in_part: Collection[str] = (),
) -> Figure:
    """Training curves, a panel for each entry and variant; the band is one standard deviation over folds or seeds.

    A line above the legend says so, and how the models were trained (:func:`describe_panels`).

    in_part: panels that do not show all that they should; their titles say so.
    """
    try:
        from matplotlib.figure import Figure
        from matplotlib.ticker import MaxNLocator
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "drawing curves", "study") from error
    shown = _split(panels)
    columns = min(4, max(1, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    figure = Figure(figsize=(max(3.1 * columns, 5.5), 2.6 * rows + 0.9), layout="constrained")
    axes: Any = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    labels: dict[str, Any] = {}
    for axis, (panel, variant, curves) in zip(axes, shown, strict=False):
        for curve in curves:
            if "train" not in curve.values:
                continue
            mean, std = curve.values["train"]
            epochs = np.arange(1, len(mean) + 1)
            (line,) = axis.plot(epochs, mean, color=colour(curve.norm), lw=1.4)
            low, high = np.clip([mean - std, mean + std], 0, 100)
            axis.fill_between(epochs, low, high, color=colour(curve.norm), alpha=0.1, lw=0)
            labels.setdefault(curve.norm, line)
        title = f"{panel}, {variant}" if variant else panel
        axis.set_title(f"{title}\n(trained in part)" if panel in in_part else title, fontsize=9)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[max(0, len(shown) - columns) : len(shown)]:
        axis.set_xlabel("epoch", fontsize=9)
    figure.supylabel(metric, fontsize=9)
    if labels:
        longest = max(map(len, labels))
        at_once = max(1, min(len(labels), int(11 * figure.get_figwidth() / (longest + 6))))
        place: Any = {"loc": "outside lower center", "frameon": False, "fontsize": 8, "title_fontsize": 7}
        foot = fill(describe_panels(panels), int(FOOT_CHARACTERS * figure.get_figwidth()))
        legend = figure.legend(labels.values(), labels.keys(), ncols=at_once, title=foot, **place)
        legend.get_title().set(color="0.35", multialignment="center")
    return figure


def _split(panels: Mapping[str, Sequence[Curves]]) -> list[tuple[str, str, list[Curves]]]:
    """Panel, variant and curves: a few lines in each of many panels are easier to read than many lines in a few."""
    return [
        (panel, variant, [curve for curve in curves if curve.variant == variant])
        for panel, curves in panels.items()
        for variant in dict.fromkeys(curve.variant for curve in curves) or [""]
    ]
