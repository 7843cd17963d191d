"""Figures of the results of this package: each function takes results and returns a matplotlib figure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Mapping, Sequence
from textwrap import fill
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np

from graphnorm.analysis.along_training import brief_layer, readable_layer
from graphnorm.analysis.alpha import Alphas
from graphnorm.analysis.curvature import Curvature
from graphnorm.analysis.measurement import Floats, Integers
from graphnorm.analysis.noise import LayerNoise
from graphnorm.analysis.regularity import Regularity
from graphnorm.analysis.spectrum import Conditions, Spectra, conditions
from graphnorm.analysis.theory import ConvergenceRates
from graphnorm.data import PackedGraphs, draw_graph
from graphnorm.errors import GraphnormError, need
from graphnorm.study.plots import label_ends, new_figure

if TYPE_CHECKING:
    from matplotlib.axes import Axes
    from matplotlib.figure import Figure

__all__ = ["Panel", "panels", "plot_alpha", "plot_conditions", "plot_curvature", "plot_noise", "plot_rates"]
__all__ += ["plot_regularity", "plot_spectra", "plot_typical", "shades"]

BEFORE, AFTER, REFERENCE = "#33658a", "#d1495b", "0.4"
DEPTHS = ("#0871b7", "#526ad0", "#965cbf", "#bf4fa4", "#d74983", "#df5261", "#d96342", "#c87828")
"""From the first layer to the last, blue to orange: told apart by the colour-blind, too. The contrast is 3 or more on a
light and on a dark page."""
STYLE = {
    "axes.labelsize": 9,
    "axes.spines.right": False,
    "axes.spines.top": False,
    "axes.titlesize": 8,
    "figure.titlesize": 11,
    "legend.fontsize": 9,
    "legend.frameon": False,
}
Arguments = ParamSpec("Arguments")


def _styled(plot: Callable[Arguments, Figure]) -> Callable[Arguments, Figure]:
    @functools.wraps(plot)
    def styled(*args: Arguments.args, **kwargs: Arguments.kwargs) -> Figure:
        with need("matplotlib", "plotting", "plots").rc_context(STYLE):
            return plot(*args, **kwargs)

    return styled


def _figure(title: str, rows: int, columns: int, width: float, height: float) -> tuple[Figure, list[Axes]]:
    """A figure of ``rows`` × ``columns`` axes of ``width`` × ``height`` inches, and its axes, row by row."""
    figure = new_figure(width * columns, height * rows)
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.tick_params(labelsize=8)
    figure.suptitle(title)
    return figure, axes


# ---- graphs ---------------------------------------------------------------------------------------------------------


class Panel(NamedTuple):
    """The singular values of one graph."""

    title: str
    q: Floats
    shifted: Floats


def panels(result: Spectra, members: Sequence[int], name: str = "") -> list[Panel]:
    """The k-th graphs of a result as panels; their titles give the condition numbers of Q and QN."""
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


@_styled
def plot_spectra(graphs: Sequence[Panel], *, columns: int = 3, title: str = "") -> Figure:
    """Singular values of Q and QN of some graphs, smallest first, as in the paper's Figures 3 and 7.

    Theorem 1: the two curves interlace.
    """
    if not graphs:
        raise GraphnormError("there is no graph to plot", remedy="give one panel or more")
    columns = min(columns, len(graphs))
    rows = -(-len(graphs) // columns)
    ticker = need("matplotlib.ticker", "plotting", "plots")
    figure = new_figure(3.2 * columns, 3.0 * rows)
    grid = figure.subplots(2 * rows, columns, squeeze=False, sharex=False, height_ratios=[3, 1.1] * rows)
    tops, gaps = grid[::2].reshape(-1), grid[1::2].reshape(-1)
    for top, gap, panel in zip(tops, gaps, graphs, strict=False):
        n = len(panel.q)
        ranks = np.arange(1, n + 1)
        # Many values make a line. Its end, the largest value, stays a visible point.
        line: dict[str, Any] = {"lw": 1.1, "marker": "o", "markersize": 3.2, "markevery": 1 if n <= 60 else [-1]}
        top.plot(ranks, panel.q, color=BEFORE, label="$Q$", **line)
        if n > 1:  # the i-th value of QN lies between the i-th and the next of Q
            top.plot(ranks[:-1], panel.shifted, color=AFTER, label="$QN$", **line)
            gap.vlines(ranks[:-1], 0, panel.shifted - panel.q[:-1], color=AFTER, lw=max(0.6, min(3, 90 / n)))
        top.set_title(panel.title)
        top.tick_params(labelbottom=False, labelsize=8)
        gap.tick_params(labelsize=8)
        top.set_ylim(bottom=0)
        gap.set_ylim(bottom=0)
        for axis in (top, gap):
            axis.set_xlim(0, n + 1)
            axis.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        gap.yaxis.set_major_locator(ticker.MaxNLocator(2))
    for axis in (*tops[len(graphs) :], *gaps[len(graphs) :]):
        axis.set_axis_off()
    for top, gap in zip(tops[::columns], gaps[::columns], strict=True):
        top.set_ylabel("singular value")
        gap.set_ylabel("$QN - Q$")
    for axis in gaps[max(0, len(graphs) - columns) : len(graphs)]:
        axis.set_xlabel("rank, smallest first")
    tops[0].legend()
    figure.suptitle(title)
    return figure


@_styled
def plot_conditions(result: Spectra, condition: Conditions, *, title: str = "") -> Figure:
    """The distribution of all singular values, and condition numbers before and after the shift."""
    figure, (values, scatter) = _figure(title, 1, 2, 4.2, 3.4)
    scale = np.repeat(result.largest, result.sizes)
    for numbers, color, label in (
        (result.q / scale, BEFORE, "$Q$"),
        (result.shifted / np.delete(scale, result.ptr[1:] - 1), AFTER, "$QN$"),
    ):
        share = np.full(len(numbers), 1 / max(1, len(numbers)))
        bins = np.linspace(0, 1, 41).tolist()
        values.hist(numbers, bins=bins, weights=share, histtype="step", color=color, label=label, lw=1.5)
    values.set(yscale="log", xlabel="singular value / largest of the graph's $Q$", ylabel="share")
    values.legend()
    known = np.isfinite(condition.improvement)
    if known.any():
        both = np.stack([condition.q[known], condition.shifted[known]])
        ends = [both.min() / 1.3, both.max() * 1.3]
        scatter.plot(ends, ends, color="0.6", lw=1)
        alpha = float(np.clip(300 / known.sum(), 0.08, 0.7))
        scatter.scatter(both[0], both[1], s=9, color=AFTER, alpha=alpha, linewidths=0, rasterized=known.sum() > 2000)
        scatter.set(xscale="log", yscale="log", xlim=ends, ylim=ends)
        better = float((condition.improvement[known] > 1 + 1e-6).mean())
        scatter.set_title(f"below the line: the shift helps ({better:.0%} of graphs)")
    scatter.set(xlabel="condition number of $Q$", ylabel="condition number of $QN$")
    return figure


@_styled
def plot_regularity(result: Regularity, *, title: str = "") -> Figure:
    """How much of the first layer's signal and of the structure the full shift keeps, and how degrees vary."""
    figure, (signal, structure, degrees) = _figure(title, 1, 3, 3.3, 2.9)
    for axis, values, label in (
        (signal, result.signal_kept[np.isfinite(result.signal_kept)], r"signal kept, $\|HQN\|\,/\,\|HQ\|$"),
        (structure, result.structure_kept, r"structure kept, $\|(A{+}I)N\|\,/\,\|A{+}I\|$"),
    ):
        axis.hist(np.clip(values, 0, 1), bins=np.linspace(0, 1, 41).tolist(), color=AFTER, alpha=0.85)
        axis.set_xlabel(label)
        if len(values):
            axis.axvline(float(np.median(values)), color="0.2", lw=1, ls="--")
            axis.set_title(f"median {np.median(values):.2f}; nothing on {np.mean(values < 1e-6):.1%}")
    signal.set_ylabel("graphs")
    deviation = np.sqrt(result.degree_variance) / np.maximum(result.mean_degree, 1e-12)
    degrees.hist(deviation, bins=40, color=BEFORE, alpha=0.85)
    degrees.set_xlabel("deviation of degrees / their mean")
    degrees.set_title(f"regular {result.regular.mean():.1%}, complete {result.complete.mean():.1%}")
    return figure


@_styled
def plot_typical(graphs: PackedGraphs, result: Regularity, ids: Integers, *, title: str = "") -> Figure:
    """Drawings of some graphs, each with the share of the first layer's signal that the shift keeps."""
    kept = dict(zip(result.ids.tolist(), result.signal_kept, strict=True))
    unknown = [graph for graph in ids.tolist() if graph not in kept]
    if unknown or not len(ids):
        raise GraphnormError(f"graphs {unknown} were not measured", remedy="choose ids with typical_graphs")
    figure, axes = _figure(title, 1, len(ids), 2.6, 2.9)
    for axis, graph in zip(axes, ids.tolist(), strict=True):
        draw_graph(axis, graphs, graph)
        axis.set_title(f"{axis.get_title()}\nsignal kept {kept[graph]:.2f}")
    return figure


# ---- theory ---------------------------------------------------------------------------------------------------------


@_styled
def plot_rates(rates: ConvergenceRates, *, title: str = "") -> Figure:
    """Speeds of convergence of the linear GNN: measured against predicted, and the gain of the shift."""
    figure, (agreement, gain) = _figure(title, 1, 2, 3.9, 3.3)
    for column, color, label in ((0, BEFORE, "without shift"), (1, AFTER, "with shift")):
        predicted, measured = -np.log(rates.predicted[:, column]), -np.log(rates.measured[:, column])
        agreement.scatter(predicted, measured, s=16, color=color, alpha=0.7, label=label, linewidths=0)
    ends = np.array([-np.log(rates.predicted.max()), -np.log(rates.predicted.min())]) * [0.97, 1.03]
    agreement.plot(ends, ends, color="0.6", lw=1, zorder=0)
    agreement.set(xlabel=r"predicted speed, $-\log\rho$ of $ZZ^\top$", ylabel="measured speed")
    agreement.set_title(f"largest error {rates.error.max():.2%}")
    agreement.legend()
    for samples in np.unique(rates.samples):
        chosen = rates.samples == samples
        levels = np.unique(rates.noise[chosen])
        means = [rates.speedup[chosen & (rates.noise == level)].mean() for level in levels]
        gain.plot(levels, means, marker="o", markersize=4, label=f"{samples} samples")
    gain.axhline(1, color="0.6", lw=1)
    gain.set_xticks(np.unique(rates.noise).tolist())
    gain.set(xlabel="noise $s$", ylabel="steps without / with shift")
    gain.legend()
    return figure


# ---- along training -------------------------------------------------------------------------------------------------


def shades(count: int) -> list[str]:
    """Colours of as many layers, or of other things in order."""
    return [DEPTHS[round(k * (len(DEPTHS) - 1) / max(count - 1, 1))] for k in range(count)]


@_styled
def plot_noise(trainings: Mapping[str, Sequence[LayerNoise]], *, title: str = "") -> Figure:
    """How far the means and standard deviations of batches are from the dataset's, as in the paper's Figure 4.

    Each training, by name, has a row, and each layer a colour. The first two columns show the layer's typical feature:
    the smallest and the largest mean of a batch, and its standard deviation, in units of the dataset's standard
    deviation. The third shows the relative deviation of all features: the median, and the range of the middle half. A
    column has one scale.
    """
    if not trainings or not all(trainings.values()):
        raise GraphnormError("there is no layer to plot", remedy="give one or more")
    figure = new_figure(10, 1.7 * len(trainings) + 0.7)
    grid = figure.subplots(len(trainings), 3, squeeze=False, sharex="row", sharey="col")
    ends = []
    for (name, layers), axes in zip(trainings.items(), grid, strict=True):
        of_mean, of_std, of_all = axes
        medians = []
        for noise, paint in zip(layers, shades(len(layers)), strict=True):
            feature = noise.typical_feature
            mean, scale = noise.mean[:, feature], noise.std[:, feature]
            for axis, low, high in (
                (of_mean, (noise.mean_low[:, feature] - mean) / scale, (noise.mean_high[:, feature] - mean) / scale),
                (of_std, noise.std_low[:, feature] / scale, noise.std_high[:, feature] / scale),
            ):
                axis.fill_between(noise.epochs, low, high, color=paint, alpha=0.15, lw=0)
                for end in (low, high):
                    axis.plot(noise.epochs, end, color=paint, lw=1.1)
            known = noise.deviation[:, np.isfinite(noise.deviation).all(0)]
            if known.size:
                quarter, half, most = np.quantile(known, (0.25, 0.5, 0.75), axis=1)
                of_all.fill_between(noise.epochs, quarter, most, color=paint, alpha=0.2, lw=0)
                medians += of_all.plot(noise.epochs, half, color=paint, lw=1.4, label=readable_layer(noise.layer))
        of_mean.axhline(0, color=REFERENCE, lw=1)
        of_std.axhline(1, color=REFERENCE, lw=1)
        of_mean.set_ylabel(fill(name, 18), fontsize=8)
        for axis in axes:
            axis.tick_params(labelsize=7)
        ends.append((of_all, medians))
    grid[0, 2].set_ylim(bottom=0)  # when all are drawn: a column has one scale
    for axis, medians in ends:
        label_ends(axis, medians, gap=0.12)
    grid[0, 0].set_title("mean: (batch − dataset) / dataset's deviation\nsmallest and largest batch")
    grid[0, 1].set_title("standard deviation: batch / dataset\nsmallest and largest batch")
    grid[0, 2].set_title("relative deviation\nall features: median and middle half")
    for axis in grid[-1]:
        axis.set_xlabel("epoch")
    figure.suptitle(title)
    return figure


@_styled
def plot_alpha(alphas: Alphas, *, title: str = "") -> Figure:
    """The distribution of α over the channels of each layer after the last epoch, and its median along training."""
    layers = len(alphas.layers)
    columns = min(3, layers + 1)
    figure, axes = _figure(title, -(-(layers + 1) // columns), columns, 2.7, 2.2)
    last = [values[-1].ravel() for values in alphas.values]
    low, high = min(0.0, *(v.min() for v in last)), max(1.0, *(v.max() for v in last))
    bins = np.linspace(low - 0.05, high + 0.05, 31).tolist()
    along, lines = axes[layers], []
    for axis, layer, values, every, paint in zip(
        axes, alphas.layers, last, alphas.values, shades(layers), strict=False
    ):
        axis.hist(values, bins=bins, weights=np.full(len(values), 1 / len(values)), color=paint)
        axis.axvline(1, color="0.4", lw=1, ls=":")
        axis.set_title(f"{readable_layer(layer)}\nmedian {np.median(values):.2f}")
        axis.set_xlabel("α")
        lines += along.plot(alphas.epochs, np.median(every, axis=(1, 2)), color=paint, lw=1.1, label=brief_layer(layer))
    axes[0].set_ylabel("share of channels")
    along.axhline(1, color="0.4", lw=1, ls=":")
    along.set(xlabel="epoch", ylabel="median α")
    label_ends(along, lines, gap=0.09)
    for axis in axes[layers + 1 :]:
        axis.remove()
    return figure


@_styled
def plot_curvature(curvature: Curvature, *, title: str = "") -> Figure:
    """Extreme Hessian eigenvalues and the loss along training, medians over seeds, for each normalization."""
    figure, axes = _figure(title, 1, 3, 3.4, 3.0)
    for axis, arrays, label in zip(
        axes,
        (curvature.largest, curvature.smallest, curvature.loss),
        ("largest eigenvalue", "smallest eigenvalue", "loss on the same graphs"),
        strict=True,
    ):
        for norm, values in zip(curvature.norms, arrays, strict=True):
            axis.plot(curvature.epochs, np.median(values, axis=-1), marker="o", markersize=3, lw=1.2, label=norm)
        axis.set(xlabel="epoch", ylabel=label)
        axis.set_yscale("symlog", linthresh=1e-2)
    axes[0].legend(fontsize=8)
    return figure
