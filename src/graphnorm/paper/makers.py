"""Makers: from trained studies and datasets to the paper's tables and figures. A recipe names its maker."""

from __future__ import annotations

import re
from typing import Any

import numpy as np

from graphnorm.analysis import (
    Aggregation,
    LayerNoise,
    affordable,
    conditions,
    interlacing,
    plots,
    readable_layer,
    regularity,
    typical_graphs,
)
from graphnorm.analysis import spectra as singular_values
from graphnorm.analysis.parts import Subject, theory_part
from graphnorm.data.catalog import find
from graphnorm.files import plain
from graphnorm.paper.figures import Curves, average_curves, convergence, plot_panels
from graphnorm.paper.material import Material, Measured, NothingThereError
from graphnorm.paper.products import Product, Table
from graphnorm.paper.recipe import MOLHIV
from graphnorm.paper.remarks import about_absent, about_quick
from graphnorm.paper.reported import dataset_table
from graphnorm.paper.scores import scores
from graphnorm.paper.tables import dataset_rows
from graphnorm.study.protocol import find_protocol

__all__ = ["alpha", "curves", "dataset_statistics", "learned_shift", "noise", "scores", "spectra", "theory"]

AUTHORS = Aggregation("gin", xi=0.0, self_loop=True)
"""Q as the authors' data makes it: A + 2I."""
LARGEST_SAMPLE = 500
"""Nodes of a graph whose singular values are shown."""
WORK_QUICK = 2e9


def curves(material: Material) -> Product:
    """Training curves, a panel for each study, and for each batch size of it where there are several."""
    panels: dict[str, list[Curves]] = {}
    averaged_over: dict[str, tuple[str, int]] = {}
    gaps: list[str] = []
    in_part: set[str] = set()
    several = any(len(part.models) > 1 for part in material.recipe.trained)
    metrics = dict.fromkeys(find_protocol(measured.protocol).metric for measured in material.studies)
    for measured in material.studies:
        title = f"{measured.dataset}, {measured.model}" if several else measured.dataset
        sizes = measured.study.spec["grid"]["batch_size"]
        panels[title] = average_curves(measured.records(), "batch_size" if len(sizes) > 1 else None)
        unit = find_protocol(measured.protocol).unit
        averaged_over[title] = unit, measured.study.spec[f"{unit}s"]
        found = _gaps(measured, panels[title], len(sizes))
        in_part |= {title} if found else set()
        gaps += [f"{title}: {gap}" for gap in found]
    in_part_words = (f"Trained in part: {'; '.join(gaps)}.",) if gaps else ()
    remarks = (*in_part_words, *about_absent(material), *about_quick(material))
    return material.product(
        figures={"": plot_panels(panels, metric=f"training {' or '.join(metrics)} (%)", in_part=in_part)},
        data=_curve_data(panels),
        sentences=remarks,
        facts={
            "convergence": convergence(panels, averaged_over),
            "missing": [*gaps, *material.absent],
            "remarks": list(remarks),
        },
    )


def _gaps(measured: Measured, found: list[Curves], variants: int) -> list[str]:
    """The curves of a study that are made of fewer trainings than planned, or of none."""
    planned = measured.results[0].members
    counts: dict[str, list[Curves]] = {result.norm: [] for result in measured.results}
    for curve in found:
        counts[curve.norm].append(curve)
    gaps = []
    for norm, curves_of_norm in counts.items():
        gaps += [f"{one.label} ({one.members} of {planned})" for one in curves_of_norm if one.members < planned]
        if len(curves_of_norm) < variants:
            lacking = variants - len(curves_of_norm)
            gaps.append(f"{norm} (none)" if lacking == variants else f"{norm} ({lacking} of {variants} without any)")
    return gaps


def _curve_data(panels: dict[str, list[Curves]]) -> Table:
    rows: list[list[str | int | float]] = []
    for panel, members in panels.items():
        for curve in members:
            for name, (mean, std) in curve.values.items():
                for epoch, (average, spread) in enumerate(zip(mean.tolist(), std.tolist(), strict=True), start=1):
                    rows.append([panel, curve.norm, curve.variant, name, epoch, average, spread])
    return Table(("panel", "norm", "variant", "curve", "epoch", "mean", "std"), rows)


def learned_shift(material: Material) -> Product:
    """GraphNorm against InstanceNorm, with drawings of graphs that the full shift harms least and most."""
    product = curves(material)
    figures, kept = dict(product.figures), {}
    for name in material.recipe.looked_at:
        graphs = material.graphs(name)
        result = regularity(graphs, aggregation=AUTHORS)
        title = f"{name}: how much of the first layer's signal is left by InstanceNorm's shift; colours are degrees"
        figures[f"-graphs-{name}"] = plots.plot_typical(graphs, result, typical_graphs(result), title=title)
        kept[name] = result.summary()
    return material.product(
        figures=figures,
        data=product.data,
        sentences=product.sentences,
        facts={name: product.facts[name] for name in ("convergence", "missing", "remarks")}
        | {"regularity": plain(kept)},
    )


def spectra(material: Material) -> Product:
    """Singular values of Q and QN of sampled graphs of each dataset."""
    names = material.recipe.looked_at
    per_dataset = 1 if len(names) > 3 else 2
    shown: list[plots.Panel] = []
    rows: list[list[str | int | float]] = []
    for name in names:
        graphs = material.graphs(name)
        sizes = graphs.sizes.cpu().numpy()
        possible = np.flatnonzero((sizes <= LARGEST_SAMPLE) & (sizes >= np.median(sizes)))
        ids = np.sort(np.random.default_rng(0).permutation(possible)[:per_dataset])
        result = singular_values(graphs, ids, AUTHORS)
        shown += plots.panels(result, range(len(ids)), name)
        for k, graph in enumerate(ids.tolist()):
            for matrix, values in zip(("Q", "QN"), result.of(k), strict=True):
                rows += [[name, graph, matrix, rank, value] for rank, value in enumerate(values.tolist(), start=1)]
    return material.product(
        figures={"": plots.plot_spectra(shown, columns=2 if len(shown) == 4 else 3)},
        data=Table(("dataset", "graph", "matrix", "rank", "singular value"), rows),
        sentences=about_quick(material),
        facts={"aggregation": AUTHORS.label},
    )


def dataset_statistics(material: Material) -> Product:
    """The dataset table, counted and as printed."""
    rows: list[list[str | float | bool]] = []
    for name in material.recipe.looked_at:
        found, said = material.graphs(name).statistics(), dataset_table()[name]
        edges, degree = found.avg_edges, found.avg_degree
        if name == MOLHIV:  # the paper's one column without self-loops, and undirected
            edges, degree = found.avg_undirected_edges, 2 * found.avg_undirected_edges / found.avg_nodes
        counted = (found.num_graphs, found.num_classes, found.avg_nodes, edges, degree)
        rows += dataset_rows(name, counted, said)
    equal = sum(bool(row[-1]) for row in rows)
    notes = [f"{name}: {find(name).note}" for name in material.recipe.looked_at if find(name).note]
    return material.product(
        table=Table(("dataset", "statistic", "counted", "printed", "equal"), rows),
        sentences=(f"{equal} of {len(rows)} statistics are as printed.", *notes, *about_quick(material)),
        facts={"as_printed": {"equal": equal, "statistics": len(rows)}},
    )


def theory(material: Material) -> Product:
    """Theorem 1 on the graphs of all datasets, and the numbers of the linear example, the gradient and Fact 1."""
    rows: list[list[str | int | float]] = []
    for name in material.recipe.looked_at:
        graphs = material.graphs(name)
        order = np.random.default_rng(0).permutation(graphs.num_graphs)
        ids = np.sort(affordable(graphs, order, WORK_QUICK) if material.quick else affordable(graphs, order))
        result = singular_values(graphs, ids, AUTHORS, progress=True)
        holds, numbers = interlacing(result).summary(), conditions(result).summary()
        medians = [numbers[f"median_{key}"] for key in ("condition_q", "condition_shifted", "improvement")]
        rows.append([name, graphs.num_graphs, holds["graphs"], holds["holds"], *medians])
    finding = theory_part(Subject(material.graphs(material.recipe.looked_at[-1]), progress=True))
    columns = ("dataset", "graphs", "checked", "Theorem 1 holds", "condition of Q", "condition of QN", "quotient")
    checked, held = sum(int(row[2]) for row in rows), sum(int(row[3]) for row in rows)
    return material.product(
        figures=finding.figures and {f"-{name}": figure for name, figure in finding.figures.items()},
        table=Table(columns, rows),
        sentences=(f"Theorem 1 holds on {held:,} of {checked:,} graphs.", *finding.text, *about_quick(material)),
        facts={
            "theorem_1": {"checked": checked, "holds": held},
            "summary": plain(finding.summary),
            "aggregation": AUTHORS.label,
        },
    )


def noise(material: Material) -> Product:
    """How far the statistics of batches are from the dataset's, along training."""
    watched = material.recipe.watched
    assert watched is not None, "the recipe says what is watched"
    found: dict[str, list[LayerNoise]] = {}
    where: dict[str, dict[str, Any]] = {}
    missing, remarks = [], []
    for training in watched.trainings:
        size = f", batches of {training.batch_size}" if len(watched.batch_sizes) > 1 else ""
        seen = material.watch(training)
        if seen is None:
            missing.append(f"{training.dataset}{size}")
            continue
        where[f"{seen.title}{size}"] = {"epochs": seen.trained} | seen.facts
        found[f"{seen.title}{size}"] = seen.at_depths(watched.layers)
        if seen.trained < training.epochs:
            remarks.append(f"{seen.title} was trained for {seen.trained} of {training.epochs} epochs.")
        if seen.facts.get("lossy"):
            remarks.append(f"The images of {training.dataset} went through JPEG.")
    if not found:
        raise NothingThereError(material.recipe.item, material.laboratory.notebook.path)
    if missing:
        remarks.append(f"Not measured: {'; '.join(missing)}.")
    rows: list[list[str | int | float | None]] = []
    for title, layers in found.items():
        for layer in layers:
            said = plain(layer.summary())
            for k, epoch in enumerate(said["epochs"]):
                parts = [said[name][k] for name in ("relative_deviation", "of_mean", "of_std")]
                rows.append([title, layer.layer, layer.batch_size, epoch, *parts])
    remarks += about_quick(material)
    sentences = [
        f"{title}, {readable_layer(layer.layer)}: after the last epoch a batch of {layer.batch_size} is away from the "
        f"dataset by {layer.relative_deviation[-1]:.3f} standard deviations."
        for title, layers in found.items()
        for layer in layers
    ]
    figures = {f"-{_file_name(title)}": plots.plot_noise(layers, title=title) for title, layers in found.items()}
    columns = ("what", "layer", "batch size", "epoch", "relative deviation", "of mean", "of std")
    return material.product(
        figures=figures,
        data=Table(columns, rows),
        sentences=(*sentences, *remarks),
        apart=list(where.values()),
        facts={
            "watched": where,
            "missing": missing,
            "relative_deviation": [
                {"what": title, "layer": layer.layer, "batch_size": layer.batch_size} | last
                for title, layers in found.items()
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


def alpha(material: Material) -> Product:
    """What share of the mean each layer of a trained GraphNorm takes away."""
    wanted = material.recipe.learned
    assert wanted is not None, "the recipe says where α is learned"
    found = {name: material.learned(name, wanted.epochs) for name in wanted.datasets}
    there = {name: learned for name, learned in found.items() if learned is not None}
    if not there:
        raise NothingThereError(material.recipe.item, material.laboratory.notebook.path)
    missing = [name for name in found if name not in there]
    rows: list[list[str | int | float]] = []
    sentences, layers = [], {}
    for name, learned in there.items():
        layers[name] = learned.alphas.summary()
        for layer, numbers in layers[name].items():
            rows += [[name, layer, wanted.epochs, float(level), value] for level, value in numbers["quantiles"].items()]
        last = np.concatenate([values[-1].ravel() for values in learned.alphas.values])
        sentences.append(
            f"{name}: after {wanted.epochs} epochs the median α is {np.median(last):.2f}, nine of ten lie from "
            f"{np.quantile(last, 0.05):.2f} to {np.quantile(last, 0.95):.2f}; {np.mean(np.abs(last - 1) < 0.1):.0%} "
            "are within 0.1 of 1, InstanceNorm's full shift."
        )
    if missing:
        sentences.append(f"Not trained: {', '.join(missing)}.")
    return material.product(
        figures={
            f"-{_file_name(name)}": plots.plot_alpha(learned.alphas, title=f"{name}, after {wanted.epochs} epochs")
            for name, learned in there.items()
        },
        data=Table(("dataset", "layer", "epoch", "quantile", "alpha"), rows),
        sentences=(*sentences, *about_quick(material)),
        apart=[learned.facts for learned in there.values()],
        facts={"alpha": plain(layers), "missing": missing, "learned": {n: one.facts for n, one in there.items()}},
    )


def _file_name(title: str) -> str:
    return re.sub(r"[^\w-]+", "-", title)
