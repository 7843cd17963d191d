"""Figures hold what the results say."""

from __future__ import annotations

import numpy as np
import pytest

from graphnorm.analysis import Aggregation, conditions, convergence_rates, regularity, spectra, typical_graphs
from graphnorm.analysis.plots import (
    panels,
    plot_conditions,
    plot_rates,
    plot_regularity,
    plot_spectra,
    plot_typical,
)
from graphnorm.data import PackedGraphs, synthetic
from graphnorm.errors import GraphnormError


def test_spectra(corner_cases: PackedGraphs) -> None:
    result = spectra(corner_cases)
    figure = plot_spectra(panels(result, [9, 4, 0, 3], "corners"), columns=3, title="these")
    assert figure.get_suptitle() == "these"
    shown = [axis for axis in figure.axes if axis.axison and axis.get_title()]
    assert len(shown) == 4
    gaps = [axis for axis in figure.axes if axis.axison and not axis.get_title()]
    for axis, gap, k in zip(shown, gaps, [9, 4, 0, 3], strict=True):
        q, shifted = result.of(k)
        heights = [segment[1, 1] for lines in gap.collections for segment in lines.get_segments()]
        np.testing.assert_allclose(heights, shifted - q[:-1])
        drawn = [values for values in result.of(k) if len(values)]
        for line, values in zip(axis.lines, drawn, strict=True):
            np.testing.assert_array_equal(line.get_ydata(), values)
    assert "corners #4 · 5 nodes\ncondition 1 → –" in shown[1].get_title()
    with pytest.raises(GraphnormError, match="no graph to plot"):
        plot_spectra([])


def test_conditions(corner_cases: PackedGraphs) -> None:
    result = spectra(corner_cases, None, Aggregation(xi=0.3))
    condition = conditions(result)
    figure = plot_conditions(result, condition)
    points = figure.axes[1].collections[0].get_offsets()
    known = np.isfinite(condition.improvement)
    np.testing.assert_allclose(points, np.stack([condition.q[known], condition.shifted[known]], 1))
    nothing = spectra(corner_cases, [0, 4])
    assert not plot_conditions(nothing, conditions(nothing)).axes[1].collections


def test_regularity_and_typical_graphs() -> None:
    graphs = synthetic.cliques(20)
    result = regularity(graphs)
    figure = plot_regularity(result, title="cliques")
    assert sum(patch.get_height() for patch in figure.axes[0].patches) == 20
    assert f"median {np.median(result.signal_kept):.2f}" in figure.axes[0].get_title()
    ids = typical_graphs(result, 3)
    drawn = plot_typical(graphs, result, ids)
    assert [axis.get_title().split(" ")[0] for axis in drawn.axes] == [f"#{graph}" for graph in ids]
    with pytest.raises(GraphnormError, match=r"\[19\] were not measured"):
        plot_typical(graphs, regularity(graphs, [0, 1]), np.array([0, 19]))


def test_rates() -> None:
    study = convergence_rates(noise=(0.0, 0.1), samples=(100, 200), seeds=(0,))
    figure = plot_rates(study)
    measured = figure.axes[0].collections[1].get_offsets()[:, 1]
    np.testing.assert_allclose(measured, -np.log(study.measured[:, 1]))
    assert len(figure.axes[1].lines) == 3
