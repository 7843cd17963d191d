"""Figures of training curves: what they say of themselves."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

from graphnorm.paper.figures import Curves, describe_panels, plot_panels
from graphnorm.training import Trial

FOLDS = tuple(Trial(dataset="MUTAG", fold=fold) for fold in range(10))
SEEDS = tuple(Trial(dataset="ogbg-molhiv", folds=1, seed=seed, lr=1e-4, epochs=25) for seed in range(10))


def curve(*trials: Trial, drawn: bool = True, norm: str = "graph") -> Curves:
    line = np.linspace(50, 60, 5)
    return Curves(norm, "", len(trials), 0, {"train": (line, line / 50)} if drawn else {}, trials)


def changed(trials: tuple[Trial, ...], **settings: object) -> tuple[Trial, ...]:
    return tuple(replace(trial, **settings) for trial in trials)  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("panels", "words"),
    [
        ({}, ""),
        ({"a": [curve(*FOLDS, drawn=False)]}, ""),
        (
            {"a": [curve(*FOLDS), curve(*FOLDS[:3], drawn=False)], "b": [], "c": [curve(*FOLDS)]},
            "mean of 10 folds, band: one standard deviation; "
            "batches of 128, learning rate 0.01, dropout 0.5, 400 epochs",
        ),
        (
            {"a": [curve(*FOLDS), curve(*FOLDS[:7])], "b": [curve(*FOLDS)]},
            "mean, band: one standard deviation; batches of 128, learning rate 0.01, dropout 0.5, 400 epochs; "
            "a: 7 to 10 folds; other panels: 10 folds",
        ),
        (
            {"a": [curve(*FOLDS)], "hiv": [curve(*SEEDS), curve(*SEEDS[:3])], "b": [curve(*FOLDS)]},
            "mean, band: one standard deviation; batches of 128, dropout 0.5; "
            "hiv: 3 to 10 seeds, learning rate 0.0001, 25 epochs; "
            "other panels: 10 folds, learning rate 0.01, 400 epochs",
        ),
        (
            {"a": [curve(*FOLDS), curve(*changed(FOLDS, batch_size=8))]},  # the legend has them
            "mean of 10 folds, band: one standard deviation; learning rate 0.01, dropout 0.5, 400 epochs",
        ),
        (
            {"a": [curve(*FOLDS, *changed(FOLDS, lr=0.001))]},
            "mean of 20 trainings, band: one standard deviation; batches of 128, dropout 0.5, 400 epochs",
        ),
        (
            {"a": [curve(FOLDS[0])]},
            "mean of 1 fold, band: one standard deviation; batches of 128, learning rate 0.01, dropout 0.5, 400 epochs",
        ),
    ],
)  # fmt: skip
def test_what_is_drawn_in_words(panels: dict[str, list[Curves]], words: str) -> None:
    assert describe_panels(panels) == words


@pytest.mark.parametrize("columns", [1, 4])
def test_the_words_stand_in_the_figure_and_cover_nothing(columns: int) -> None:
    pytest.importorskip("matplotlib")
    panels = {f"panel {k}": [curve(*FOLDS), curve(*FOLDS, norm="batch")] for k in range(columns - 1)}
    panels["hiv"] = [curve(*SEEDS), curve(*SEEDS[:3], norm="batch")]
    figure = plot_panels(panels)
    figure.suptitle("Figure 2. QUICK PASS")  # what a product adds
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert " ".join(legend.get_title().get_text().split()) == describe_panels(panels)
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    assert all(not box.overlaps(axis.get_tightbbox()) for axis in figure.axes)
    assert figure.get_suptitle() == "Figure 2. QUICK PASS"
