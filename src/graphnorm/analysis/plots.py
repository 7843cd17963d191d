"""Figures of the results of this package: each function takes results and returns a matplotlib figure."""

from __future__ import annotations

import functools
from collections.abc import Callable, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple, ParamSpec

import numpy as np

from graphnorm.analysis.along_training import Alphas, Curvature, LayerNoise, brief_layer, readable_layer
from graphnorm.analysis.measurement import Floats, Integers
from graphnorm.analysis.regularity import Regularity
from graphnorm.analysis.spectrum import Conditions, Spectra, conditions
from graphnorm.analysis.theory import ConvergenceRates
from graphnorm.data import PackedGraphs, draw_graph
from graphnorm.errors import GraphnormError, need

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
    matplotlib = need("matplotlib.figure", "plotting", "plots")
    figure: Figure = matplotlib.Figure(figsize=(width * columns, height * rows), layout="constrained")
    axes = list(figure.subplots(rows, columns, squeeze=False).flat)
    for axis in axes:
        axis.tick_params(labelsize=8)
    figure.suptitle(title)
    return figure, axes


def _legend_below(figure: Figure, axis: Axes, columns: int) -> None:
    lines, labels = axis.get_legend_handles_labels()
    figure.legend(lines, labels, loc="outside lower center", ncols=columns, fontsize=8)


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
    figure, axes = _figure(title, -(-len(graphs) // columns), columns, 3.2, 2.5)
    ticker = need("matplotlib.ticker", "plotting", "plots")
    for axis, panel in zip(axes, graphs, strict=False):
        n = len(panel.q)
        # Many values make a line. Its end, the largest value, stays a visible point.
        line: dict[str, Any] = {"lw": 1.1, "marker": "o", "markersize": 3.2, "markevery": 1 if n <= 60 else [-1]}
        axis.plot(np.arange(1, n + 1), panel.q, color=BEFORE, label="$Q$", **line)
        if n > 1:  # the i-th value of QN lies between the i-th and the next of Q
            axis.plot(np.arange(1, n) + 0.5, panel.shifted, color=AFTER, label="$QN$", **line)
        axis.xaxis.set_major_locator(ticker.MaxNLocator(5, integer=True))
        axis.set_title(panel.title)
        axis.set_ylim(bottom=0)
    for axis in axes[len(graphs) :]:
        axis.set_axis_off()
    for axis in axes[::columns]:
        axis.set_ylabel("singular value")
    for axis in axes[max(0, len(graphs) - columns) : len(graphs)]:
        axis.set_xlabel("rank, smallest first")
    axes[0].legend()
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


@_styled
def plot_noise(layers: Sequence[LayerNoise], *, title: str = "") -> Figure:
    """The largest and smallest mean and standard deviation of a batch, and the dataset's, as in the paper's Figure 4.

    Each layer (or batch size) has a column, which shows the layer's typical feature. The last row has the relative
    deviation of all features: the median, and the range of the middle half.
    """
    if not layers:
        raise GraphnormError("there is no layer to plot", remedy="give one or more")
    figure, axes = _figure(title, 3, len(layers), 3.0, 2.1)
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
        mean.set_title(f"{readable_layer(noise.layer)}\nbatches of {noise.batch_size}, feature {feature}")
        known = noise.deviation[:, np.isfinite(noise.deviation).all(0)]
        if known.size:
            quarter, half, most = np.quantile(known, (0.25, 0.5, 0.75), axis=1)
            deviation.fill_between(noise.epochs, quarter, most, color=AFTER, alpha=0.2, lw=0)
            deviation.plot(noise.epochs, half, color=AFTER, lw=1.4)
        deviation.set_xlabel("epoch")
    deviations = axes[2 * len(layers) :]
    highest = max(axis.get_ylim()[1] for axis in deviations)
    for axis in deviations:  # one scale, to compare layers
        axis.set_ylim(0, highest)
    for axis, label in zip(axes[:: len(layers)], ("mean", "standard deviation", "relative deviation"), strict=True):
        axis.set_ylabel(label)
    _legend_below(figure, axes[0], 3)
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
    along = axes[layers]
    for axis, layer, values, every in zip(axes, alphas.layers, last, alphas.values, strict=False):
        axis.hist(values, bins=bins, weights=np.full(len(values), 1 / len(values)), color=AFTER, alpha=0.85)
        axis.axvline(1, color="0.4", lw=1, ls=":")
        axis.set_title(f"{readable_layer(layer)}\nmedian {np.median(values):.2f}")
        axis.set_xlabel("α")
        along.plot(alphas.epochs, np.median(every, axis=(1, 2)), lw=1.1, label=brief_layer(layer))
    axes[0].set_ylabel("share of channels")
    along.axhline(1, color="0.4", lw=1, ls=":")
    along.set(xlabel="epoch", ylabel="median α")
    _legend_below(figure, along, 4)
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
