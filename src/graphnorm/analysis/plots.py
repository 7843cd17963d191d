"""Figures of what the tools of this package give; each takes results and gives a matplotlib figure."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from graphnorm.analysis.along_training import Alphas, Curvature, LayerNoise, brief_layer, readable_layer
from graphnorm.analysis.measurement import Floats, Integers
from graphnorm.analysis.regularity import Regularity
from graphnorm.analysis.spectrum import Conditions, Spectra, conditions
from graphnorm.analysis.theory import ConvergenceRates
from graphnorm.data import PackedGraphs, draw_graph
from graphnorm.errors import GraphnormError, MissingDependencyError

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = [
    "Panel",
    "panels",
    "plot_alpha",
    "plot_conditions",
    "plot_curvature",
    "plot_noise",
    "plot_rates",
    "plot_regularity",
    "plot_spectra",
    "plot_typical",
]

BEFORE, AFTER = "#33658a", "#d1495b"
HIGH, DATASET, LOW = "#3a9d5d", "#e377a2", "#33658a"


class Panel(NamedTuple):
    """One graph in a figure of spectra."""

    title: str
    q: Floats
    shifted: Floats


def panels(result: Spectra, members: Sequence[int], name: str = "") -> list[Panel]:
    """Take the k-th graphs of a result as panels; their titles give the condition numbers of Q and QN."""
    condition = conditions(result)

    def number(value: float) -> str:
        return "–" if np.isnan(value) else f"{value:,.0f}" if value >= 100 else f"{value:.3g}"

    return [
        Panel(
            f"{name} #{result.ids[k]} · {result.sizes[k]} nodes\n"
            f"condition {number(condition.q[k])} → {number(condition.shifted[k])}".strip(),
            *result.of(k),
        )
        for k in members
    ]


def plot_spectra(graphs: Sequence[Panel], *, columns: int = 3, title: str = "") -> Figure:
    """Singular values of Q and of QN for sampled graphs, as in the paper's Figures 3 and 7.

    The values of each matrix are sorted and drawn against their rank; Theorem 1 says that the two curves
    interlace.
    """
    if not graphs:
        raise GraphnormError("there is no graph to plot", remedy="give one panel or more")
    columns = min(columns, len(graphs))
    rows = -(-len(graphs) // columns)
    figure, axes = _figure(rows, columns, width=3.2, height=2.5)
    from matplotlib.ticker import MaxNLocator

    for axis, panel in zip(axes, graphs, strict=False):
        n = len(panel.q)
        # Many values make a line; its end, the largest value, stays a point to be seen.
        marker: dict[str, Any] = {"marker": "o", "markersize": 3.2, "markevery": 1 if n <= 60 else [-1]}
        axis.plot(np.arange(1, n + 1), panel.q, color=BEFORE, label="$Q$", lw=1.1, **marker)
        # Theorem 1 puts the i-th value of QN between the i-th and the next of Q.
        if n > 1:
            axis.plot(np.arange(1, n) + 0.5, panel.shifted, color=AFTER, label="$QN$", lw=1.1, **marker)
        axis.xaxis.set_major_locator(MaxNLocator(5, integer=True))
        axis.set_title(panel.title, fontsize=8)
        axis.set_ylim(bottom=0)
    for axis in axes[len(graphs) :]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("singular value")
    for axis in axes[max(0, len(graphs) - columns) : len(graphs)]:
        axis.set_xlabel("rank, smallest first")
    axes[0].legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def plot_conditions(result: Spectra, condition: Conditions, *, title: str = "") -> Figure:
    """Distribution of all singular values, and condition numbers before and after the shift."""
    figure, (values, scatter) = _figure(1, 2, width=4.2, height=3.4)
    scale = np.repeat(result.largest, result.sizes)
    bins = np.linspace(0, 1, 41).tolist()
    keep = np.ones(len(scale), bool)
    keep[result.ptr[1:] - 1] = False
    for numbers, color, label in (
        (result.q / scale, BEFORE, "$Q$"),
        (result.shifted / scale[keep], AFTER, "$QN$"),
    ):
        share = np.full(len(numbers), 1 / max(1, len(numbers)))
        values.hist(numbers, bins=bins, weights=share, histtype="step", color=color, label=label, lw=1.5)
    values.set_yscale("log")
    values.set_xlabel("singular value / largest of the graph's $Q$")
    values.set_ylabel("share")
    values.legend(frameon=False, fontsize=9)

    known = np.isfinite(condition.improvement)
    if known.any():
        both = np.stack([condition.q[known], condition.shifted[known]])
        ends = [both.min() / 1.3, both.max() * 1.3]
        scatter.plot(ends, ends, color="0.6", lw=1)
        alpha = float(np.clip(300 / known.sum(), 0.08, 0.7))
        scatter.scatter(both[0], both[1], s=9, color=AFTER, alpha=alpha, linewidths=0, rasterized=known.sum() > 2000)
        scatter.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        better = float((condition.improvement[known] > 1 + 1e-6).mean())
        scatter.set_title(f"below the line: the shift helps ({better:.0%} of graphs)", fontsize=8)
    scatter.set_xlabel("condition number of $Q$")
    scatter.set_ylabel("condition number of $QN$")
    figure.suptitle(title, fontsize=11)
    return figure


def plot_regularity(result: Regularity, *, title: str = "") -> Figure:
    """What the full shift keeps of the first layer's signal and of the structure, and how degrees vary."""
    figure, (signal, structure, degrees) = _figure(1, 3, width=3.3, height=2.9)
    bins = np.linspace(0, 1, 41).tolist()
    for axis, values, label in (
        (signal, result.signal_kept[np.isfinite(result.signal_kept)], r"signal kept, $\|HQN\|\,/\,\|HQ\|$"),
        (structure, result.structure_kept, r"structure kept, $\|(A{+}I)N\|\,/\,\|A{+}I\|$"),
    ):
        axis.hist(np.clip(values, 0, 1), bins=bins, color=AFTER, alpha=0.85)
        axis.set_xlabel(label)
        if len(values):
            axis.axvline(float(np.median(values)), color="0.2", lw=1, ls="--")
            axis.set_title(f"median {np.median(values):.2f}; nothing on {np.mean(values < 1e-6):.1%}", fontsize=8)
    signal.set_ylabel("graphs")
    deviation = np.sqrt(result.degree_variance) / np.maximum(result.mean_degree, 1e-12)
    degrees.hist(deviation, bins=40, color=BEFORE, alpha=0.85)
    degrees.set_xlabel("deviation of degrees / their mean")
    degrees.set_title(f"regular {result.regular.mean():.1%}, complete {result.complete.mean():.1%}", fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def plot_typical(graphs: PackedGraphs, result: Regularity, ids: Integers, *, title: str = "") -> Figure:
    """Drawings of the given graphs, each with the share of the first layer's signal that the shift keeps."""
    place = {int(graph): k for k, graph in enumerate(result.ids)}
    unknown = [int(graph) for graph in ids if int(graph) not in place]
    if unknown or not len(ids):
        raise GraphnormError(f"graphs {unknown} were not measured", remedy="choose ids with typical_graphs")
    figure, axes = _figure(1, len(ids), width=2.6, height=2.9)
    for axis, graph in zip(axes, ids, strict=True):
        draw_graph(axis, graphs, int(graph))
        axis.set_title(f"{axis.get_title()}\nsignal kept {result.signal_kept[place[int(graph)]]:.2f}", fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def plot_rates(study: ConvergenceRates, *, title: str = "") -> Figure:
    """Speeds of convergence of the linear example: measured against predicted, and what the shift gains."""
    figure, (agreement, gain) = _figure(1, 2, width=3.9, height=3.3)
    for column, color, label in ((0, BEFORE, "without shift"), (1, AFTER, "with shift")):
        predicted, measured = -np.log(study.predicted[:, column]), -np.log(study.measured[:, column])
        agreement.scatter(predicted, measured, s=16, color=color, alpha=0.7, label=label, linewidths=0)
    ends = np.array([-np.log(study.predicted.max()), -np.log(study.predicted.min())]) * [0.97, 1.03]
    agreement.plot(ends, ends, color="0.6", lw=1, zorder=0)
    agreement.set_xlabel(r"predicted speed, $-\log\rho$ of $ZZ^\top$")
    agreement.set_ylabel("measured speed")
    agreement.set_title(f"largest error {study.error.max():.2%}", fontsize=8)
    agreement.legend(frameon=False, fontsize=9)
    for samples in np.unique(study.samples):
        chosen = study.samples == samples
        levels = np.unique(study.noise[chosen])
        means = [study.speedup[chosen & (study.noise == level)].mean() for level in levels]
        gain.plot(levels, means, marker="o", markersize=4, label=f"{samples} samples")
    gain.axhline(1, color="0.6", lw=1)
    gain.set_xticks(np.unique(study.noise).tolist())
    gain.set_xlabel("noise $s$")
    gain.set_ylabel("steps without / with shift")
    gain.legend(frameon=False, fontsize=9)
    figure.suptitle(title, fontsize=11)
    return figure


def plot_noise(layers: Sequence[LayerNoise], *, title: str = "") -> Figure:
    """Largest and smallest mean and standard deviation of a batch against the dataset's, as in the paper's Figure 4.

    A column for each layer (or batch size), of the feature with the layer's usual deviation; the last row has the
    relative deviation of all features: the median, and between which values half of them lie.
    """
    if not layers:
        raise GraphnormError("there is no layer to plot", remedy="give one or more")
    figure, axes = _figure(3, len(layers), width=3.0, height=2.1)
    for column, noise in enumerate(layers):
        mean, std, deviation = axes[column :: len(layers)]
        feature = noise.typical_feature
        for axis, low, middle, high in (
            (mean, noise.mean_low, noise.mean, noise.mean_high),
            (std, noise.std_low, noise.std, noise.std_high),
        ):
            axis.fill_between(noise.epochs, low[:, feature], high[:, feature], color="0.5", alpha=0.12, lw=0)
            axis.plot(noise.epochs, high[:, feature], color=HIGH, lw=1.1, label="largest batch")
            axis.plot(noise.epochs, middle[:, feature], color=DATASET, lw=1.6, label="dataset")
            axis.plot(noise.epochs, low[:, feature], color=LOW, lw=1.1, label="smallest batch")
        mean.set_title(f"{readable_layer(noise.layer)}\nbatches of {noise.batch_size}, feature {feature}", fontsize=8)
        known = noise.deviation[:, np.isfinite(noise.deviation).all(0)]
        if known.size:
            quarter, half, most = np.quantile(known, (0.25, 0.5, 0.75), axis=1)
            deviation.fill_between(noise.epochs, quarter, most, color=AFTER, alpha=0.2, lw=0)
            deviation.plot(noise.epochs, half, color=AFTER, lw=1.4)
        deviation.set_xlabel("epoch")
    deviations = axes[2 * len(layers) :]
    highest = max(axis.get_ylim()[1] for axis in deviations)
    for axis in deviations:  # the row to compare layers by
        axis.set_ylim(0, highest)
    for axis, label in zip(axes[:: len(layers)], ("mean", "standard deviation", "relative deviation"), strict=True):
        axis.set_ylabel(label)
    _legend_below(figure, axes[0], 3)
    figure.suptitle(title, fontsize=11)
    return figure


def _legend_below(figure: Figure, axis: Axes, columns: int) -> None:
    """The legend of one axis, where it covers nothing."""
    lines, labels = axis.get_legend_handles_labels()
    place: Any = "outside lower center"
    figure.legend(lines, labels, loc=place, ncols=columns, frameon=False, fontsize=8)


def plot_alpha(alphas: Alphas, *, columns: int = 3, title: str = "") -> Figure:
    """How α is spread over the channels of each layer after the last epoch, and its median along training."""
    layers = len(alphas.layers)
    columns = min(columns, layers + 1)
    rows = -(-(layers + 1) // columns)
    figure, axes = _figure(rows, columns, width=2.7, height=2.2)
    last = [values[-1].ravel() for values in alphas.values]
    low, high = min(0.0, *(v.min() for v in last)), max(1.0, *(v.max() for v in last))
    bins = np.linspace(low - 0.05, high + 0.05, 31).tolist()
    along = axes[layers]
    for axis, layer, values, every in zip(axes, alphas.layers, last, alphas.values, strict=False):
        axis.hist(values, bins=bins, weights=np.full(len(values), 1 / len(values)), color=AFTER, alpha=0.85)
        axis.axvline(1, color="0.4", lw=1, ls=":")
        axis.set_title(f"{readable_layer(layer)}\nmedian {np.median(values):.2f}", fontsize=8)
        along.plot(alphas.epochs, np.median(every, axis=(1, 2)), lw=1.1, label=brief_layer(layer))
    axes[0].set_ylabel("share of channels")
    for axis in axes[:layers]:
        axis.set_xlabel("α")
    along.axhline(1, color="0.4", lw=1, ls=":")
    along.set_xlabel("epoch")
    along.set_ylabel("median α")
    _legend_below(figure, along, 4)
    for axis in axes[layers + 1 :]:
        axis.remove()
    figure.suptitle(title, fontsize=11)
    return figure


def plot_curvature(curvature: Curvature, *, title: str = "") -> Figure:
    """Extreme Hessian eigenvalues and the loss along training, medians over seeds, for each normalization."""
    figure, axes = _figure(1, 3, width=3.4, height=3.0)
    for axis, arrays, label in (
        (axes[0], curvature.largest, "largest eigenvalue"),
        (axes[1], curvature.smallest, "smallest eigenvalue"),
        (axes[2], curvature.loss, "loss on the same graphs"),
    ):
        for norm, values in zip(curvature.norms, arrays, strict=True):
            axis.plot(curvature.epochs, np.median(values, axis=-1), marker="o", markersize=3, lw=1.2, label=norm)
        axis.set_xlabel("epoch")
        axis.set_ylabel(label)
        axis.set_yscale("symlog", linthresh=1e-2)
    axes[0].legend(frameon=False, fontsize=8)
    figure.suptitle(title, fontsize=11)
    return figure


def _figure(rows: int, columns: int, *, width: float, height: float) -> tuple[Figure, list[Axes]]:
    try:
        import matplotlib.figure
    except ImportError as error:
        raise MissingDependencyError("matplotlib", "plotting", "plots") from error
    figure = matplotlib.figure.Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes: Any = figure.subplots(rows, columns, squeeze=False)
    flat: list[Axes] = list(axes.reshape(-1))
    for axis in flat:
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.label.set_fontsize(9)
        axis.yaxis.label.set_fontsize(9)
    return figure, flat
