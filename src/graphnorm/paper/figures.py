"""The paper's figures: training curves, singular values, batch noise, the learned α."""

from __future__ import annotations

import re
from collections import Counter
from collections.abc import Collection, Iterator, Mapping, Sequence
from dataclasses import dataclass, field, replace
from textwrap import fill
from typing import TYPE_CHECKING, Any

import numpy as np

from graphnorm.analysis import Aggregation, plots, readable_layer, regularity, spectra, typical_graphs
from graphnorm.analysis.measurement import Floats
from graphnorm.errors import StudyError
from graphnorm.files import plain
from graphnorm.paper.image_fleet import IMAGES
from graphnorm.paper.item import NoiseRuns
from graphnorm.paper.noise_and_alpha import NoiseRun, origin, read_alpha, read_noise
from graphnorm.paper.output import NothingThereError
from graphnorm.study.grouping import by_key
from graphnorm.study.plots import MOST_BANDS, draw_curve, label_ends, new_figure, style_axis
from graphnorm.study.protocol import find_protocol
from graphnorm.study.reading import average_curves
from graphnorm.study.render import Table, span
from graphnorm.study.store import Record
from graphnorm.training import Trial, metric_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

    from graphnorm.paper.output import Output
    from graphnorm.paper.reproduce import Work
    from graphnorm.study.result import Result

__all__ = ["AUTHORS_Q", "CONVERGED", "batch_noise", "curves", "learned_alpha", "learned_shift", "singular_values"]

AUTHORS_Q = Aggregation("gin", xi=0.0, self_loop=True)
"""Q of the authors' data: A + 2I."""
LARGEST_SAMPLE = 500
"""Nodes of a graph whose singular values are shown."""
CONVERGED = 0.98
"""A training curve has converged at this share of what GraphNorm's ends with."""
FOOT_CHARACTERS = 18
"""Per inch, of the text below a figure."""
NAMES = {
    "none": "none",
    "layer": "LayerNorm",
    "batch": "BatchNorm",
    "instance": "InstanceNorm",
    "graph": "GraphNorm",
    "batch-alpha": "α-BatchNorm",
    "batch-running": "MS-BatchNorm",
    "batch-detached": "DT-BatchNorm",
}
"""As the paper calls them."""


# Figures 2, 6, 11 and 12: training curves


@dataclass(frozen=True, eq=False)
class Curves:
    """The average curves of some trainings, in percent."""

    norm: str
    variant: str
    """The setting that distinguishes curves of one normalization in a panel; may be empty."""
    members: int
    diverged: int
    values: Mapping[str, tuple[Floats, Floats]]
    """Mean and standard deviation by epoch, for ``train`` and ``valid``."""
    trials: tuple[Trial, ...]
    """Those that are averaged."""
    averages: Mapping[int, float] = field(default_factory=dict)
    """By fold or seed (the protocol's unit): the average of its training curve over epochs."""


def curves(work: Work) -> Output:
    """Training curves: a panel for each study, and for each batch size if it has several."""
    panels: dict[str, list[Curves]] = {}
    gaps: dict[str, list[str]] = {}
    facts: list[dict[str, Any]] = []
    several = any(len(part.models) > 1 for part in work.item.trained)
    for plan, result in work.studies:
        title = f"{result.dataset}, {result.model}" if several else result.dataset
        sizes = result.axes["batch_size"]
        records = work.store.records(plan, curves=("train", "valid"))
        panels[title] = find_curves(records, "batch_size" if len(sizes) > 1 else None)
        facts += convergence(title, result, panels[title])
        if found := _gaps(result, panels[title], len(sizes)):
            gaps[title] = [f"{title}: {gap}" for gap in found]
    missing = [gap for of_panel in gaps.values() for gap in of_panel]
    remarks = (*([f"Trained in part: {'; '.join(missing)}."] if missing else []), *work.remarks)
    metrics = dict.fromkeys(result.metric.label for _, result in work.studies)
    return work.output(
        figures={"": plot_panels(panels, metric=f"training {' or '.join(metrics)}", in_part=gaps)},
        data=_curve_data(panels),
        sentences=remarks,
        facts={"convergence": facts, "missing": [*missing, *work.absent], "remarks": list(remarks)},
    )


def find_curves(records: Sequence[Record], variant: str | None = None) -> list[Curves]:
    """The curves of each normalization, and of each value of the setting ``variant``.

    Members that diverged are counted and left out.
    """

    def which(record: Record) -> tuple[str, str]:
        trial = record.trial
        return trial.norm, "" if variant is None else f"{variant.replace('_', ' ')} {getattr(trial, variant)}"

    def unit(record: Record) -> int:
        return int(getattr(record.trial, find_protocol(record.trial.protocol).unit))

    found = []
    ended = [record for record in records if record.status in ("done", "diverged")]
    for (norm, value), members in by_key(ended, which).items():
        alive = [record for record in members if record.status == "done"]
        if any("train" not in record.curves for record in alive):
            raise StudyError(
                f"the training curves of {norm} on {alive[0].trial.dataset} are no longer in this store",
                remedy="use a store that was not pruned, or train again in a new one",
            )
        scale = metric_of(members[0].trial).scale
        averages = {
            key: scale * float(np.mean([record.curves["train"] for record in of_unit], dtype=np.float64))
            for key, of_unit in by_key(alive, unit).items()
        }
        trials = tuple(record.trial for record in alive)
        diverged = len(members) - len(alive)
        found.append(Curves(norm, value, len(members), diverged, average_curves(alive, scale), trials, averages))
    return found


def _gaps(result: Result, found: Sequence[Curves], variants: int) -> list[str]:
    """The curves of a study that average fewer trainings than planned, or none."""
    gaps = []
    for score in result.scores.values():
        of_norm = [curve for curve in found if curve.norm == score.name]
        for curve in of_norm:
            if curve.members < score.members:
                name = f"{curve.norm}, {curve.variant}" if curve.variant else curve.norm
                gaps.append(f"{name} ({curve.members} of {score.members})")
        if not of_norm:
            gaps.append(f"{score.name} (none)")
        elif len(of_norm) < variants:
            gaps.append(f"{score.name} ({variants - len(of_norm)} of {variants} without any)")
    return gaps


def _curve_data(panels: Mapping[str, Sequence[Curves]]) -> Table:
    rows: list[list[str | int | float | None]] = []
    for panel, members in panels.items():
        for curve in members:
            columns = [plain(values.round(2)) for both in curve.values.values() for values in both]
            for epoch, numbers in enumerate(zip(*columns, strict=True), start=1):
                rows.append([panel, curve.norm, curve.variant, epoch, *numbers])
    return Table(("panel", "norm", "variant", "epoch", "train_mean", "train_std", "valid_mean", "valid_std"), rows)


def convergence(panel: str, result: Result, found: Sequence[Curves]) -> Iterator[dict[str, Any]]:
    """For each training curve its average over epochs, its end, and the epoch at which it had converged."""
    ends = {curve.variant: curve.values["train"][0][-1] for curve in found if curve.norm == "graph" and curve.values}
    for curve in found:
        entry: dict[str, Any] = {
            "panel": panel,
            "norm": curve.norm,
            "variant": curve.variant,
            "members": curve.members,
            "diverged": curve.diverged,
            "train_average": None,
            "train_end": None,
            "valid_best": None,
            "epochs_to_converge": None,
            "unit": result.protocol.unit,
            "train_averages": [
                round(curve.averages[k], 3) if k in curve.averages else None for k in range(result.units)
            ],
        }
        if curve.values:
            train, valid = curve.values["train"][0], curve.values["valid"][0]
            entry["train_average"] = round(float(train.mean()), 3)
            entry["train_end"] = round(float(train[-1]), 3)
            entry["valid_best"] = round(float(valid.max()), 3)
            reached = train >= CONVERGED * ends.get(curve.variant, np.inf)
            entry["epochs_to_converge"] = int(reached.argmax()) + 1 if reached.any() else None
        yield entry


def describe_panels(panels: Mapping[str, Sequence[Curves]]) -> str:
    """The meaning of lines and bands, and how the models were trained: first what all panels share, then the rest.

    A setting that has several values in a panel is left out there.
    """
    drawn = {title: [one.trials for one in members if "train" in one.values] for title, members in panels.items()}
    facts = {title: _facts(trials) for title, trials in drawn.items() if trials}
    if not facts:
        return ""
    first = next(iter(facts.values()))
    shared = [fact for fact in first if all(fact in found for found in facts.values())]
    own: dict[tuple[str, ...], list[str]] = {}
    for title, found in facts.items():
        own.setdefault(tuple(fact for fact in found if fact not in shared), []).append(title)
    *few, (rest, _) = sorted(own.items(), key=lambda group: len(group[1]))
    averaged = [f"mean of {shared.pop(0)}" if first[0] in shared else "mean"]
    averaged += ["band: one standard deviation"] if _has_bands(panels) else []
    parts = [f"{', '.join(titles)}: {', '.join(found)}" for found, titles in few if found]
    parts += [f"other panels: {', '.join(rest)}"] if rest else []
    return "; ".join(filter(None, [", ".join(averaged), ", ".join(shared), *parts]))


def _has_bands(panels: Mapping[str, Sequence[Curves]]) -> bool:
    """Whether no axes has too many curves for bands."""
    axes = Counter((panel, curve.variant) for panel, members in panels.items() for curve in members)
    return max(axes.values(), default=0) <= MOST_BANDS


def _facts(drawn: Sequence[Sequence[Trial]]) -> list[str]:
    """How many trainings the curves of a panel average, and the settings that all share; drawn: trials by curve."""
    counts = [len(trials) for trials in drawn]
    if drawn[0][0].folds > 1 and all(len({trial.fold for trial in trials}) == len(trials) for trials in drawn):
        unit = "fold"
    elif all(len({trial.seed for trial in trials}) == len(trials) for trials in drawn):
        unit = "seed"
    else:
        unit = "training"
    found = [f"{span(counts)} {unit}" if max(counts) == 1 else f"{span(counts)} {unit}s"]
    for name, form in (
        ("batch_size", "batches of {}"),
        ("lr", "learning rate {:g}"),
        ("dropout", "dropout {:g}"),
        ("epochs", "{} epochs"),
    ):
        values = {getattr(trial, name) for trials in drawn for trial in trials}
        found += [form.format(*values)] if len(values) == 1 else []
    return found


def plot_panels(
    panels: Mapping[str, Sequence[Curves]], *, metric: str = "training accuracy (%)", in_part: Collection[str] = ()
) -> Figure:
    """Training curves, in one panel for each entry and variant; a band is one standard deviation over folds or seeds.

    The text at the foot is :func:`describe_panels`.

    in_part: panels that lack some trainings; their titles say so.
    """
    # A few lines in each of many panels are easier to read than many lines in a few.
    shown = [
        (panel, variant, [curve for curve in members if curve.variant == variant and "train" in curve.values])
        for panel, members in panels.items()
        for variant in dict.fromkeys(curve.variant for curve in members) or [""]
    ]
    columns = min(4, max(1, len(shown)))
    rows = max(1, -(-len(shown) // columns))
    figure = new_figure(max(2.6 * columns, 5.5), 2.5 * rows + 0.6)
    room_for_wider_fonts: Any = figure.get_layout_engine()
    room_for_wider_fonts.set(rect=(0, 0, 0.985, 1))
    axes: Any = figure.subplots(rows, columns, squeeze=False).reshape(-1)
    with_bands = _has_bands(panels)
    for axis, (panel, variant, of_panel) in zip(axes, shown, strict=False):
        lines = []
        for curve in of_panel:
            mean, std = curve.values["train"]
            lines.append(draw_curve(axis, curve.norm, mean, std if with_bands else None))
            lines[-1].set_label(NAMES.get(curve.norm, curve.norm))
        label_ends(axis, lines)
        title = f"{panel}, {variant}" if variant else panel
        axis.set_title(f"{title}\n(trained in part)" if panel in in_part else title, fontsize=9)
        style_axis(axis, ticks=5)
        axis.tick_params(labelsize=8)
    for axis in axes[len(shown) :]:
        axis.set_axis_off()
    for axis in axes[max(0, len(shown) - columns) : len(shown)]:
        axis.set_xlabel("epoch", fontsize=9)
    figure.supylabel(metric, fontsize=9)
    if text := describe_panels(panels):
        figure.supxlabel(fill(text, int(FOOT_CHARACTERS * figure.get_figwidth())), fontsize=7, color="0.35")
    return figure


# Figure 5: the learned shift


def learned_shift(work: Work) -> Output:
    """Curves of GraphNorm and InstanceNorm, and drawings of the graphs that the full shift harms least and most."""
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
        sentences=work.remarks,
        facts={"aggregation": AUTHORS_Q.label},
    )


# Figures 4 and 8 to 10: batch noise


def batch_noise(work: Work) -> Output:
    """How far the statistics of batches are from the dataset's, along training."""
    wanted = [part for part in work.item.parts if isinstance(part, NoiseRuns)]
    layers, seeds = wanted[0].layers, wanted[0].seeds  # the same in all parts
    sizes_differ = any(len(part.batch_sizes) > 1 for part in wanted)

    def name_of(trial: Trial) -> str:
        if trial.dataset == IMAGES:
            return f"{trial.dataset}, ResNet18"
        batches = f", batches of {trial.batch_size}" if sizes_differ else ""
        return f"{trial.dataset}, GIN{batches}"

    tried = [(name_of(plan.trials[0]), plan.trials[0], read_noise(work.store, plan)) for plan in work.probed]
    found: dict[str, list[NoiseRun]] = {}
    for name, _, run in tried:
        if run is not None:
            shown = run._replace(layers=[run.layers[depth] for depth in layers])
            found.setdefault(name, []).append(shown)
    if not found:
        raise NothingThereError(work.item.name, work.store.path)
    remarks = [*_what_noise_lacks(tried, seeds), *work.remarks]
    rows, ends = _noise_numbers(found)
    sentences = [
        f"{end['what']}, {readable_layer(end['layer'])}: after the last epoch a batch of {end['batch_size']} is away "
        f"from the dataset by {span([round(value, 3) for value in end['relative_deviation']])} standard deviations."
        for end in ends
    ]
    if any(len(runs) > 1 for runs in found.values()):
        sentences.append("Of several seeds the figure shows the first; the numbers are of all.")
    columns = ("what", "seed", "layer", "batch size", "epoch", "relative deviation", "of mean", "of std")
    return work.output(
        figures={"": plots.plot_noise({title: runs[0].layers for title, runs in found.items()})},
        data=Table(columns, rows),
        sentences=(*sentences, *remarks),
        records=[run.record for of_seeds in found.values() for run in of_seeds],
        facts={
            "trainings": {
                title: {"epochs": runs[0].record.epochs, "seeds": len(runs), **origin([run.record for run in runs])}
                for title, runs in found.items()
            },
            "missing": list(dict.fromkeys(name for name, _, run in tried if run is None)),
            "relative_deviation": ends,
            "remarks": remarks,
        },
    )


def _what_noise_lacks(tried: Sequence[tuple[str, Trial, NoiseRun | None]], seeds: int) -> Iterator[str]:
    """Sentences on epochs and seeds that are missing, and on images that went through JPEG.

    tried: the name of each training, its trial as planned, and the run if there is one.
    """
    short: dict[tuple[int, int], list[str]] = {}
    for name, trial, run in tried:
        if run is not None and run.record.epochs < trial.epochs:
            short.setdefault((run.record.epochs, trial.epochs), []).append(name)
    for (done, planned), names in short.items():
        yield f"{done} of {planned} epochs: {'; '.join(dict.fromkeys(names))}."
    for dataset in dict.fromkeys(run.trial.dataset for _, _, run in tried if run is not None and run.lossy):
        yield f"The images of {dataset} went through JPEG."
    there = Counter(name for name, _, run in tried if run is not None)
    lacking = dict.fromkeys(name for name, _, run in tried if run is None)
    for count, names in by_key(lacking, there.__getitem__).items():
        yield f"{count} of {seeds} seeds: {'; '.join(names)}."


def _noise_numbers(found: Mapping[str, Sequence[NoiseRun]]) -> tuple[list[list[Any]], list[dict[str, Any]]]:
    """A row for each training, seed, layer and epoch; and for each training and layer the deviations at its end."""
    rows, ends = [], []
    parts = ("relative_deviation", "of_mean", "of_std")
    for name, of_seeds in found.items():
        for layers in zip(*(run.layers for run in of_seeds), strict=True):
            summaries = [plain(layer.summary()) for layer in layers]
            about = {key: summaries[0][key] for key in ("layer", "batch_size")}
            for run, summary in zip(of_seeds, summaries, strict=True):
                numbers = zip(*(summary[part] for part in ("epochs", *parts)), strict=True)
                rows += [[name, run.trial.seed, *about.values(), *row] for row in numbers]
            end = {part: [summary[part][-1] for summary in summaries] for part in parts}
            if None not in end["relative_deviation"]:
                ends.append({"what": name, **about, **end})
    return rows, ends


# The learned α


def learned_alpha(work: Work) -> Output:
    """The share of the mean that each layer of a trained GraphNorm subtracts."""
    found = {plan.spec["dataset"]: read_alpha(work.store, plan) for plan in work.probed}
    there = {name: run for name, run in found.items() if run is not None}
    if not there:
        raise NothingThereError(work.item.name, work.store.path)
    missing = [name for name in found if name not in there]
    rows: list[list[str | int | float]] = []
    sentences, layers, figures = [], {}, {}
    for name, run in there.items():
        epochs = run.trial.epochs
        layers[name] = run.alphas.summary()
        for layer, numbers in layers[name].items():
            rows += [[name, layer, epochs, float(level), value] for level, value in numbers["quantiles"].items()]
        last = np.concatenate([values[-1].ravel() for values in run.alphas.values])
        sentences.append(
            f"{name}: after {epochs} epochs the median α is {np.median(last):.2f}, nine of ten lie from "
            f"{np.quantile(last, 0.05):.2f} to {np.quantile(last, 0.95):.2f}; {np.mean(np.abs(last - 1) < 0.1):.0%} "
            "are within 0.1 of 1, InstanceNorm's full shift."
        )
        figures["-" + re.sub(r"[^\w-]+", "-", name)] = plots.plot_alpha(
            run.alphas, title=f"{name}, after {epochs} epochs"
        )
    if missing:
        sentences.append(f"Not trained: {', '.join(missing)}.")
    return work.output(
        figures=figures,
        data=Table(("dataset", "layer", "epoch", "quantile", "alpha"), rows),
        sentences=(*sentences, *work.remarks),
        records=[record for run in there.values() for record in run.records],
        facts={
            "alpha": plain(layers),
            "missing": missing,
            "trainings": {name: origin(run.records) for name, run in there.items()},
        },
    )
