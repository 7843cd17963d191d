"""The paper's figures: training curves, singular values, batch noise, the learned α."""

from __future__ import annotations

import re
from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from graphnorm.analysis import Aggregation, LayerNoise, plots, readable_layer, regularity, spectra, typical_graphs
from graphnorm.errors import need
from graphnorm.files import plain
from graphnorm.paper.noise import NoiseRun, NothingThereError
from graphnorm.settings import colour
from graphnorm.study.protocol import find_protocol
from graphnorm.study.render import Table
from graphnorm.study.store import Record
from graphnorm.training import Trial

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphnorm.paper.output import Output
    from graphnorm.paper.reproduce import Measured, Work

__all__ = ["AUTHORS_Q", "CONVERGED", "batch_noise", "curves", "learned_alpha", "learned_shift", "singular_values"]

Values = npt.NDArray[np.float64]
AUTHORS_Q = Aggregation("gin", xi=0.0, self_loop=True)
"""Q as the authors' data makes it: A + 2I."""
LARGEST_SAMPLE = 500
"""Nodes of a graph whose singular values are shown."""
CONVERGED = 0.98
"""A training curve has converged at this share of what GraphNorm's ends with."""
BAND_POINTS = 100
"""Of the outline of a band: more make a file large and nothing visible."""
FOOT_CHARACTERS = 18
"""Of the line above the legend, on an inch."""


# Figures 2, 6, 11 and 12: training curves


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


def curves(work: Work) -> Output:
    """Training curves, a panel for each study, and for each batch size of it where there are several."""
    panels: dict[str, list[Curves]] = {}
    averaged_over: dict[str, tuple[str, int]] = {}
    gaps: list[str] = []
    in_part: set[str] = set()
    several = any(len(part.models) > 1 for part in work.item.trained)
    metrics = dict.fromkeys(find_protocol(measured.protocol).metric for measured in work.studies)
    for measured in work.studies:
        title = f"{measured.dataset}, {measured.model}" if several else measured.dataset
        sizes = measured.plan.spec["grid"]["batch_size"]
        records = work.store.records(measured.plan, curves=("train", "valid"))
        panels[title] = average_curves(records, "batch_size" if len(sizes) > 1 else None)
        averaged_over[title] = find_protocol(measured.protocol).unit, measured.units
        found = _gaps(measured, panels[title], len(sizes))
        in_part |= {title} if found else set()
        gaps += [f"{title}: {gap}" for gap in found]
    trained_in_part = (f"Trained in part: {'; '.join(gaps)}.",) if gaps else ()
    remarks = (*trained_in_part, *work.about_absent, *work.about_quick)
    return work.output(
        figures={"": plot_panels(panels, metric=f"training {' or '.join(metrics)} (%)", in_part=in_part)},
        data=_curve_data(panels),
        sentences=remarks,
        facts={
            "convergence": convergence(panels, averaged_over),
            "missing": [*gaps, *work.absent],
            "remarks": list(remarks),
        },
    )


def average_curves(records: Sequence[Record], variant: str | None = None) -> list[Curves]:
    """Average curves over folds and seeds, for each normalization and each value of the setting ``variant``.

    Members that diverged are counted and left out. The standard deviation is the sample's, n − 1.
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
        values = {
            name: (stack.mean(0), stack.std(0, ddof=1) if len(stack) > 1 else np.full(stack.shape[1], np.nan))
            for name, stack in stacks.items()
        }
        averages = {}
        if "train" in stacks:
            units = np.array([getattr(record.trial, find_protocol(record.trial.protocol).unit) for record in alive])
            averages = {int(unit): float(stacks["train"][units == unit].mean()) for unit in np.unique(units)}
        trials = tuple(record.trial for record in alive)
        found.append(Curves(norm, value, len(members), len(members) - len(alive), values, trials, averages))
    return found


def _gaps(measured: Measured, found: list[Curves], variants: int) -> list[str]:
    """The curves of a study that are made of fewer trainings than planned, or of none."""
    planned = measured.scores[0].members
    counts: dict[str, list[Curves]] = {score.name: [] for score in measured.scores}
    for curve in found:
        counts[curve.norm].append(curve)
    gaps = []
    for norm, of_norm in counts.items():
        gaps += [f"{one.label} ({one.members} of {planned})" for one in of_norm if one.members < planned]
        if len(of_norm) < variants:
            lacking = variants - len(of_norm)
            gaps.append(f"{norm} (none)" if lacking == variants else f"{norm} ({lacking} of {variants} without any)")
    return gaps


def _curve_data(panels: Mapping[str, Sequence[Curves]]) -> Table:
    """A row for each epoch of each training."""
    rows: list[list[str | int | float | None]] = []
    for panel, members in panels.items():
        for curve in members:
            columns = [
                [None if np.isnan(value) else round(value, 3) for value in values.tolist()]
                for name in ("train", "valid")
                for values in curve.values.get(name, ())
            ]
            for epoch, numbers in enumerate(zip(*columns, strict=True), start=1):
                rows.append([panel, curve.norm, curve.variant, epoch, *numbers])
    return Table(("panel", "norm", "variant", "epoch", "train_mean", "train_std", "valid_mean", "valid_std"), rows)


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
    drawn = {title: [one.trials for one in of if "train" in one.values] for title, of in panels.items()}
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
    locator = need("matplotlib.ticker", "drawing curves", "study").MaxNLocator
    # A few lines in each of many panels are easier to read than many lines in a few.
    shown = [
        (panel, variant, [curve for curve in of if curve.variant == variant])
        for panel, of in panels.items()
        for variant in dict.fromkeys(curve.variant for curve in of) or [""]
    ]
    columns = min(4, max(1, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    figure: Figure = need("matplotlib.figure", "drawing curves", "study").Figure(
        figsize=(max(3.1 * columns, 5.5), 2.6 * rows + 0.9), layout="constrained"
    )
    axes: Any = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    labels: dict[str, Any] = {}
    for axis, (panel, variant, of_panel) in zip(axes, shown, strict=False):
        for curve in of_panel:
            if "train" not in curve.values:
                continue
            mean, std = curve.values["train"]
            epochs = np.arange(1, len(mean) + 1)
            (line,) = axis.plot(epochs, mean, color=colour(curve.norm), lw=1.4)
            if np.isfinite(std).all():
                few = np.unique([*range(0, len(mean), max(1, len(mean) // BAND_POINTS)), len(mean) - 1])
                low, high = np.clip([mean - std, mean + std], 0, 100)[:, few]
                axis.fill_between(epochs[few], low, high, color=colour(curve.norm), alpha=0.1, lw=0)
            labels.setdefault(curve.norm, line)
        title = f"{panel}, {variant}" if variant else panel
        axis.set_title(f"{title}\n(trained in part)" if panel in in_part else title, fontsize=9)
        axis.grid(alpha=0.25)
        axis.spines[["top", "right"]].set_visible(False)
        axis.tick_params(labelsize=8)
        axis.xaxis.set_major_locator(locator(5, integer=True))
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


# Figure 5: the learned shift


def learned_shift(work: Work) -> Output:
    """GraphNorm against InstanceNorm, with drawings of graphs that the full shift harms least and most."""
    output = curves(work)
    drawn, kept = dict(output.figures), {}
    for name in work.item.graphs:
        graphs = work.graphs(name)
        result = regularity(graphs, aggregation=AUTHORS_Q)
        title = f"{name}: how much of the first layer's signal is left by InstanceNorm's shift; colours are degrees"
        drawn[f"-graphs-{name}"] = plots.plot_typical(graphs, result, typical_graphs(result), title=title)
        kept[name] = result.summary()
    return replace(output, figures=drawn, facts={**output.facts, "regularity": plain(kept)})


# Figures 3 and 7: singular values


def singular_values(work: Work) -> Output:
    """Singular values of Q and QN of sampled graphs of each dataset."""
    names = work.item.graphs
    per_dataset = 1 if len(names) > 3 else 2
    shown: list[plots.Panel] = []
    rows: list[list[str | int | float]] = []
    for name in names:
        graphs = work.graphs(name)
        sizes = graphs.sizes.cpu().numpy()
        possible = np.flatnonzero((sizes <= LARGEST_SAMPLE) & (sizes >= np.median(sizes)))
        ids = np.sort(np.random.default_rng(0).permutation(possible)[:per_dataset])
        result = spectra(graphs, ids, AUTHORS_Q)
        shown += plots.panels(result, range(len(ids)), name)
        for k, graph in enumerate(ids.tolist()):
            for matrix, values in zip(("Q", "QN"), result.of(k), strict=True):
                rows += [[name, graph, matrix, rank, value] for rank, value in enumerate(values.tolist(), start=1)]
    return work.output(
        figures={"": plots.plot_spectra(shown, columns=2 if len(shown) == 4 else 3)},
        data=Table(("dataset", "graph", "matrix", "rank", "singular value"), rows),
        sentences=work.about_quick,
        facts={"aggregation": AUTHORS_Q.label},
    )


# Figures 4 and 8 to 10: batch noise


def batch_noise(work: Work) -> Output:
    """How far the statistics of batches are from the dataset's, along training."""
    runs = work.item.noise
    assert runs is not None, "the item says which trainings it shows"
    found: dict[str, tuple[NoiseRun, list[LayerNoise]]] = {}
    missing, remarks = [], []
    for dataset, size, run in work.noise_runs():
        words = f", batches of {size}" if len(runs.batch_sizes) > 1 else ""
        if run is None:
            missing.append(f"{dataset}{words}")
            continue
        found[f"{run.title}{words}"] = run, [run.layers[depth] for depth in runs.layers]
        if run.trained < run.epochs:
            remarks.append(f"{run.title} was trained for {run.trained} of {run.epochs} epochs.")
        if run.lossy:
            remarks.append(f"The images of {dataset} went through JPEG.")
    if not found:
        raise NothingThereError(work.item.name, work.store.path)
    if missing:
        remarks.append(f"Not measured: {'; '.join(missing)}.")
    rows: list[list[str | int | float | None]] = []
    for title, (_, layers) in found.items():
        for layer in layers:
            said = plain(layer.summary())
            for k, epoch in enumerate(said["epochs"]):
                parts = [said[name][k] for name in ("relative_deviation", "of_mean", "of_std")]
                rows.append([title, layer.layer, layer.batch_size, epoch, *parts])
    remarks += work.about_quick
    sentences = [
        f"{title}, {readable_layer(layer.layer)}: after the last epoch a batch of {layer.batch_size} is away from the "
        f"dataset by {layer.relative_deviation[-1]:.3f} standard deviations."
        for title, (_, layers) in found.items()
        for layer in layers
    ]
    columns = ("what", "layer", "batch size", "epoch", "relative deviation", "of mean", "of std")
    return work.output(
        figures={f"-{_file_name(title)}": plots.plot_noise(of, title=title) for title, (_, of) in found.items()},
        data=Table(columns, rows),
        sentences=(*sentences, *remarks),
        records=[run.record for run, _ in found.values()],
        facts={
            "trainings": {title: run.facts for title, (run, _) in found.items()},
            "missing": missing,
            "relative_deviation": [
                {"what": title, "layer": layer.layer, "batch_size": layer.batch_size} | last
                for title, (_, layers) in found.items()
                for layer in layers
                if (last := _at_the_end(layer))["at_the_end"] is not None
            ],
            "remarks": remarks,
        },
    )


def _at_the_end(layer: LayerNoise) -> dict[str, float | None]:
    """The deviation after the last epoch, and those of the mean and of the standard deviation by themselves."""
    said = plain(layer.summary())
    names = {"at_the_end": "relative_deviation", "of_mean": "of_mean", "of_std": "of_std"}
    return {ours: said[theirs][-1] for ours, theirs in names.items()}


# The learned α


def learned_alpha(work: Work) -> Output:
    """What share of the mean each layer of a trained GraphNorm subtracts."""
    wanted = work.item.alpha
    assert wanted is not None, "the item says where α is learned"
    found = dict(work.alpha_runs())
    there = {name: run for name, run in found.items() if run is not None}
    if not there:
        raise NothingThereError(work.item.name, work.store.path)
    missing = [name for name in found if name not in there]
    rows: list[list[str | int | float]] = []
    sentences, layers = [], {}
    for name, run in there.items():
        layers[name] = run.alphas.summary()
        for layer, numbers in layers[name].items():
            rows += [[name, layer, wanted.epochs, float(level), value] for level, value in numbers["quantiles"].items()]
        last = np.concatenate([values[-1].ravel() for values in run.alphas.values])
        sentences.append(
            f"{name}: after {wanted.epochs} epochs the median α is {np.median(last):.2f}, nine of ten lie from "
            f"{np.quantile(last, 0.05):.2f} to {np.quantile(last, 0.95):.2f}; {np.mean(np.abs(last - 1) < 0.1):.0%} "
            "are within 0.1 of 1, InstanceNorm's full shift."
        )
    if missing:
        sentences.append(f"Not trained: {', '.join(missing)}.")
    return work.output(
        figures={
            f"-{_file_name(name)}": plots.plot_alpha(run.alphas, title=f"{name}, after {wanted.epochs} epochs")
            for name, run in there.items()
        },
        data=Table(("dataset", "layer", "epoch", "quantile", "alpha"), rows),
        sentences=(*sentences, *work.about_quick),
        records=[record for run in there.values() for record in run.records],
        facts={
            "alpha": plain(layers),
            "missing": missing,
            "trainings": {name: run.facts for name, run in there.items()},
        },
    )


def _file_name(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title)
