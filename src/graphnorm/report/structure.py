"""What a report says of the graphs themselves: spectra, regularity, and drawings."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from graphnorm.analysis import Aggregation, Floats, conditions, interlacing, regularity, spectra, typical_graphs
from graphnorm.data import to_networkx
from graphnorm.paper.products import Table
from graphnorm.report.charts import Chart

if TYPE_CHECKING:
    from graphnorm.data import PackedGraphs

__all__ = ["Drawing", "Structure", "aggregation_of", "look_at"]

MOST_GRAPHS = 300
"""That are looked at."""
LARGEST = 250
"""Nodes of a graph whose spectrum is shown."""
LARGEST_DRAWN = 60
"""Nodes of a graph that is drawn."""
DRAWINGS = 6
BEFORE, AFTER = "#3b82c4", "#e0556a"


@dataclass(frozen=True)
class Drawing:
    """A graph as circles and lines, in a square from 0 to 100."""

    label: str
    points: Sequence[tuple[float, float, float]]
    """x, y and share of the largest degree."""
    edges: Sequence[tuple[float, float, float, float]]


@dataclass(frozen=True)
class Structure:
    """Words, charts and drawings about a dataset."""

    sentences: Sequence[str]
    charts: Sequence[Chart]
    drawings: Sequence[Drawing]


def aggregation_of(model: str, *, self_loops: bool = False) -> Aggregation:
    """How a model aggregates neighbours: what spectra and regularity are of."""
    return Aggregation("gcn") if "gcn" in model else Aggregation("gin", self_loop=self_loops)


def look_at(graphs: PackedGraphs, model: str = "gin", *, self_loops: bool = False, seed: int = 0) -> Structure:
    """Spectra and regularity of a sample, by the aggregation of the model."""
    aggregation = aggregation_of(model, self_loops=self_loops)
    order = np.random.default_rng(seed).permutation(graphs.num_graphs)
    sizes = graphs.sizes.cpu().numpy()
    sample = np.sort(order[sizes[order] <= LARGEST][:MOST_GRAPHS])
    measured = regularity(graphs, np.sort(order[:MOST_GRAPHS]), aggregation)
    kept = measured.signal_kept[np.isfinite(measured.signal_kept)]
    sentences = [
        f"Of {len(measured.ids):,} sampled graphs {measured.regular.mean():.0%} are regular and "
        f"{measured.complete.mean():.0%} complete. Subtracting the whole mean, as InstanceNorm does, keeps "
        f"{np.median(kept):.0%} of the first layer's signal in the median graph."
        if len(kept)
        else "The features are 0 everywhere: there is no signal."
    ]
    charts: list[Chart] = []
    if len(sample):
        values = spectra(graphs, sample, aggregation)
        theorem, numbers = interlacing(values).summary(), conditions(values).summary()
        sentences.insert(
            0,
            f"The singular values of QN interlace those of Q, as Theorem 1 says, on {theorem['holds']:,} of "
            f"{theorem['graphs']:,} sampled graphs of up to {LARGEST} nodes. The condition number is "
            f"{numbers['median_condition_q']:.3g} for Q and {numbers['median_condition_shifted']:.3g} for QN in the "
            "median.",
        )
        middle = np.argsort(values.sizes, kind="stable")[[len(sample) // 4, len(sample) // 2, 3 * len(sample) // 4]]
        charts += [_spectrum(int(values.ids[k]), *values.of(int(k))) for k in dict.fromkeys(middle.tolist())]
    if len(kept):
        charts.append(_kept(np.clip(kept, 0, 1)))
    typical = typical_graphs(measured, DRAWINGS, max_nodes=LARGEST_DRAWN)
    if not len(typical):
        sentences.append(f"None is drawn: no sampled graph with a signal has {LARGEST_DRAWN} nodes or fewer.")
    place = {int(graph): k for k, graph in enumerate(measured.ids)}
    drawings = [_draw(graphs, int(graph), float(measured.signal_kept[place[int(graph)]])) for graph in typical]
    return Structure(sentences, charts, drawings)


def _spectrum(graph: int, q: Floats, shifted: Floats) -> Chart:
    rows: list[list[str | int | float]] = [
        [matrix, rank, float(value)]
        for matrix, values in (("Q", q), ("QN", shifted))
        for rank, value in enumerate(values, start=1)
    ]
    traces = [
        {
            "type": "scatter",
            "mode": "lines+markers" if len(q) <= 60 else "lines",
            "name": name,
            "x": [rank + offset for rank in range(1, len(values) + 1)],
            "y": [round(float(value), 4) for value in values],
            "line": {"color": paint, "width": 1.5},
            "marker": {"size": 4},
            "hovertemplate": f"{name}: %{{y:.3g}}<extra></extra>",
        }
        for name, values, paint, offset in (("Q", q, BEFORE, 0.0), ("QN", shifted, AFTER, 0.5))
    ]
    largest = f"the largest of Q is {q[-1]:.3g}" + (f", of QN {shifted[-1]:.3g}" if len(shifted) else "")
    return Chart(
        name=f"spectrum-{graph}",
        title=f"Spectrum of graph {graph}",
        text=f"Singular values of Q (blue) and QN (red) of graph {graph}, {len(q)} nodes, in order: {largest}.",
        data=Table(("matrix", "rank", "singular value"), rows),
        traces=traces,
        layout={"xaxis": {"title": {"text": "rank"}}, "yaxis": {"rangemode": "tozero"}, "hovermode": "closest"},
    )


def _kept(kept: Floats) -> Chart:
    counts, edges = np.histogram(kept, bins=25, range=(0, 1))
    centres = [round(float(value), 3) for value in (edges[:-1] + edges[1:]) / 2]
    return Chart(
        name="signal-kept",
        title="Signal kept by the full shift",
        text="How many graphs keep which share of the first layer's signal when the whole mean is subtracted: median "
        f"{np.median(kept):.0%}, from {kept.min():.0%} to {kept.max():.0%}.",
        data=Table(("share kept", "graphs"), [list(pair) for pair in zip(centres, counts.tolist(), strict=True)]),
        traces=[
            {
                "type": "bar",
                "x": centres,
                "y": counts.tolist(),
                "marker": {"color": AFTER},
                "hovertemplate": "%{y} graphs keep about %{x:.0%}<extra></extra>",
            }
        ],
        layout={
            "xaxis": {"title": {"text": "share of the signal kept"}, "range": [0, 1], "tickformat": ".0%"},
            "yaxis": {"title": {"text": "graphs"}},
            "bargap": 0.08,
        },
    )


def _counted(count: int, what: str) -> str:
    return f"{count} {what}" if count == 1 else f"{count} {what}s"


def _draw(graphs: PackedGraphs, graph_id: int, kept: float, seed: int = 0) -> Drawing:
    graph = to_networkx(graphs, graph_id)
    import networkx as nx

    layout = nx.spring_layout(graph, seed=seed, iterations=80, k=1.6 / max(1, len(graph) ** 0.5))
    at = np.array([layout[node] for node in graph])
    span = np.ptp(at, axis=0).max() or 1.0
    at = 50 + 90 * (at - (at.max(0) + at.min(0)) / 2) / span
    at = at.round(1)
    degrees = np.array([degree for _, degree in graph.degree()], dtype=float)
    share = degrees / max(float(degrees.max(initial=1.0)), 1.0)
    name = graphs.classes[int(graphs.labels[graph_id])]
    return Drawing(
        label=f"graph {graph_id}, class {name}: {_counted(len(graph), 'node')}, "
        f"{_counted(graph.number_of_edges(), 'edge')}, {kept:.0%} of the signal kept",
        points=[(round(x, 1), round(y, 1), round(d, 2)) for (x, y), d in zip(at.tolist(), share.tolist(), strict=True)],
        edges=[
            (*(round(v, 1) for v in at[a].tolist()), *(round(v, 1) for v in at[b].tolist())) for a, b in graph.edges()
        ],
    )
