"""Figures of curves and of singular values: what they are made of, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from typing import Any

import numpy as np
import pytest

from fakes import FakeFleet
from graphnorm.paper import figures
from graphnorm.paper.figures import CONVERGED, Curves, describe_panels, plot_panels
from graphnorm.paper.item import CURVES, Item, Trainings
from graphnorm.paper.output import Output
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import DEFAULT_NORMS, Grid
from graphnorm.training import Trial

TREES, REGULAR = "synthetic:trees", "synthetic:regular"
SHORT = CURVES.fixed(epochs=4)
FOLDS = tuple(Trial(dataset="MUTAG", fold=fold) for fold in range(10))
SEEDS = tuple(Trial(dataset="ogbg-molhiv", folds=1, seed=seed, lr=1e-4, epochs=25) for seed in range(10))
Made = Callable[..., Output]


def item(make: Any = figures.curves, graphs: tuple[str, ...] = (), **changes: Any) -> Item:
    given: dict[str, Any] = {"datasets": (TREES,), "norms": ("none", "batch", "graph"), "grid": SHORT, "folds": 4}
    return Item(name="figure", caption="Figure", make=make, parts=(Trainings(**given | changes),), graphs=graphs)


def titles(output: Output) -> list[str]:
    return [axis.get_title() for axis in output.figures[""].axes if axis.get_title()]


# Training curves


def test_averages_are_of_the_folds_that_did_not_diverge(reproduction: Reproduction, fill: Any, made: Made) -> None:
    """Seeds of a fold are averaged; one that was not trained has no value."""
    wanted = item(norms=("graph", "none"), seeds=2)
    (plan,) = reproduction.plans(wanted)
    fill(wanted, lambda trial: trial.fold == 1, status="diverged")
    saved = [(0, 0), (0, 1), (2, 0)]
    output = made(wanted, lambda trial: trial.norm == "graph" and (trial.fold, trial.seed) in saved, values=apart)
    alive = [trial for trial in plan.trials if trial.norm == "graph" and (trial.fold, trial.seed) in saved]
    each = 100 * np.array([[apart(trial, epoch)["train"] for epoch in range(1, 5)] for trial in alive])
    entry, gone = output.facts["convergence"]
    assert (gone["members"], gone["diverged"], gone["train_average"], gone["epochs_to_converge"]) == (2, 2, None, None)
    assert gone["train_averages"] == [None] * 4
    assert (entry["unit"], entry["members"], entry["diverged"]) == ("fold", 5, 2)
    assert entry["train_averages"] == [
        pytest.approx(each[:2].mean(), abs=1e-3), None, pytest.approx(each[2].mean(), abs=1e-3), None,
    ]  # fmt: skip
    assert entry["train_average"] == pytest.approx(each.mean(), abs=1e-3)
    assert entry["train_end"] == pytest.approx(each[:, -1].mean(), abs=1e-3)
    assert output.data is not None
    assert output.data.columns[3:] == ("epoch", "train_mean", "train_std", "valid_mean", "valid_std")
    assert [row[3] for row in output.data.rows] == [1, 2, 3, 4]
    means, stds, valid = (np.array([row[k] for row in output.data.rows], float) for k in (4, 5, 6))
    np.testing.assert_allclose(means, each.mean(0), atol=5e-3)
    np.testing.assert_allclose(stds, each.std(0, ddof=1), atol=5e-3)
    assert entry["valid_best"] == pytest.approx(valid.max(), abs=5e-3)


def apart(trial: Trial, epoch: int) -> dict[str, float]:
    """Folds and seeds that differ; validation is best in the middle."""
    train = 0.5 + 0.1 * epoch - 0.05 * trial.fold + 0.01 * trial.seed
    return {"loss": 1.0, "train": train, "valid": 0.9 - 0.1 * (epoch - 2) ** 2}


def test_epochs_to_converge_go_by_the_end_of_graphnorm(made: Made) -> None:
    near = CONVERGED * 0.9
    courses = {
        "graph": (0.5, near - 0.01, near + 0.01, 0.9),
        "batch": (0.5, near + 0.01, 0.8, 0.99),
        "none": (0.5, 0.6, 0.7, near - 0.01),
    }

    def values(trial: Trial, epoch: int) -> dict[str, float]:
        return dict.fromkeys(("train", "valid"), courses[trial.norm][epoch - 1])

    wanted = item(datasets=(TREES, REGULAR), folds=2)
    output = made(wanted, lambda trial: trial.dataset == TREES or trial.norm == "batch", values=values)
    found = {(one["panel"], one["norm"]): one["epochs_to_converge"] for one in output.facts["convergence"]}
    assert found == {(TREES, "none"): None, (TREES, "batch"): 2, (TREES, "graph"): 3, (REGULAR, "batch"): None}


def test_curves_say_what_they_are_made_of(made: Made) -> None:
    sizes = Grid("sizes", {**SHORT.axes, "batch_size": (8, 16)})

    def trained(trial: Trial) -> bool:
        if trial.dataset != TREES or trial.norm == "none":
            return False
        return trial.norm == "graph" or (trial.batch_size == 8 and trial.fold == 0)

    output = made(item(datasets=(TREES, REGULAR), grid=sizes), trained)
    assert [(c["norm"], c["variant"], c["members"]) for c in output.facts["convergence"]] == [
        ("batch", "batch size 8", 1),
        ("graph", "batch size 8", 4),
        ("graph", "batch size 16", 4),
    ]
    assert output.facts["missing"] == [
        f"{TREES}: none (none)",
        f"{TREES}: batch, batch size 8 (1 of 4)",
        f"{TREES}: batch (1 of 2 without any)",
        f"gin under paper on {REGULAR}",
    ]
    assert output.facts["remarks"] == list(output.sentences)
    in_part, absent = output.sentences
    assert all(gap in in_part for gap in output.facts["missing"][:3])
    assert output.facts["missing"][3] in absent
    assert titles(output) == [f"{TREES}, batch size {size}\n(trained in part)" for size in (8, 16)]
    assert output.data is not None
    assert {row[5] is None for row in output.data.rows if row[1] == "batch"} == {True}  # one fold has no deviation


def test_curves_of_several_models_name_them(made: Made) -> None:
    """Also where each dataset has one of them so far."""
    wanted = item(datasets=(TREES, REGULAR), models=("gin", "gcn"), norms=("graph",), folds=2)
    output = made(wanted, lambda trial: (trial.dataset == TREES) == (trial.model == "gin"))
    assert titles(output) == [f"{TREES}, gin", f"{REGULAR}, gcn"]


def curve(*trials: Trial, drawn: bool = True, norm: str = "graph") -> Curves:
    line = np.linspace(50, 60, 5)
    return Curves(norm, "", len(trials), 0, {"train": (line, line / 50)} if drawn else {}, trials)


def changed(trials: tuple[Trial, ...], **settings: object) -> tuple[Trial, ...]:
    return tuple(replace(trial, **settings) for trial in trials)  # type: ignore[arg-type]


RATE, SIZE, REST = "learning rate 0.01", "batches of 128", "dropout 0.5, 400 epochs"


@pytest.mark.parametrize(
    ("panels", "parts"),
    [
        ({}, [""]),
        (
            {"a": [curve(*FOLDS), curve(*FOLDS[:3], drawn=False)], "b": [], "c": [curve(*FOLDS)]},
            ["mean of 10 folds", f"{SIZE}, {RATE}, {REST}"],
        ),
        (
            {"a": [curve(*FOLDS)], "hiv": [curve(*SEEDS), curve(*SEEDS[:3])], "b": [curve(*FOLDS)]},
            [
                "mean",
                f"{SIZE}, dropout 0.5",
                "hiv: 3 to 10 seeds, learning rate 0.0001, 25 epochs",
                f"other panels: 10 folds, {RATE}, 400 epochs",
            ],
        ),
        (  # the panels' titles have the sizes
            {"a": [curve(*FOLDS), curve(*changed(FOLDS, batch_size=8))]},
            ["mean of 10 folds", f"{RATE}, {REST}"],
        ),
        ({"a": [curve(*FOLDS, *changed(FOLDS, lr=0.001))]}, ["mean of 20 trainings", f"{SIZE}, {REST}"]),
        ({"a": [curve(FOLDS[0])]}, ["mean of 1 fold", f"{SIZE}, {RATE}, {REST}"]),
    ],
)
def test_what_is_drawn_in_words(panels: dict[str, list[Curves]], parts: list[str]) -> None:
    first, *others = parts
    band = [f"{first}, band: one standard deviation"] if first else [""]
    assert describe_panels(panels).split("; ") == [*band, *others]


@pytest.mark.parametrize("count", [1, 6])
def test_the_words_stand_in_the_figure_and_cover_nothing(count: int) -> None:
    """Also where a curve has nothing to draw, and where panels do not fill their last row."""
    panels = {f"panel {k}": [curve(*FOLDS), curve(*FOLDS, norm="batch", drawn=k > 1)] for k in range(count - 1)}
    panels["hiv"] = [curve(*SEEDS), curve(*SEEDS[:3], norm="batch")]
    figure = plot_panels(panels)
    figure.suptitle("Figure 2. QUICK PASS")  # what an output adds
    figure.draw_without_rendering()
    assert " ".join(figure.get_supxlabel().split()) == describe_panels(panels)
    box = figure._supxlabel.get_window_extent()
    assert 0 <= box.x0 < box.x1 <= figure.bbox.x1
    shown = [axis for axis in figure.axes if axis.axison]
    assert [text.get_text() for text in shown[-1].texts] == ["GraphNorm", "BatchNorm"]
    assert len(shown) == count
    assert all(not box.overlaps(axis.get_tightbbox()) for axis in shown)


@pytest.mark.parametrize("count", [4, 5])
def test_many_curves_have_no_bands(count: int) -> None:
    panels = {"a": [curve(*FOLDS, norm=norm) for norm in (*DEFAULT_NORMS,)[:count]]}
    assert ("band" in describe_panels(panels)) is (count == 4)
    assert len(plot_panels(panels).axes[0].collections) == (4 if count == 4 else 0)


# The graphs themselves


@pytest.mark.usefixtures("fleets")
def test_drawings_of_graphs_beside_curves(reproduction: Reproduction) -> None:
    output = reproduction.make(item(figures.learned_shift, (TREES,), norms=("instance", "graph"), folds=2))
    assert set(output.figures) == {"", f"-graphs-{TREES}"}
    assert 0 <= output.facts["regularity"][TREES]["share_regular"] <= 1


def test_singular_values_need_no_training(reproduction: Reproduction, fleets: type[FakeFleet]) -> None:
    wanted = Item(name="figure", caption="Figure", make=figures.singular_values, graphs=(TREES, REGULAR))
    output = reproduction.make(wanted)
    assert output.data is not None
    graphs = {(row[0], row[1]) for row in output.data.rows}
    assert {tuple(row[:3]) for row in output.data.rows} == {
        (*graph, matrix) for graph in graphs for matrix in ("Q", "QN")
    }
    assert len(titles(output)) == len(graphs) == 4  # two of each dataset
    assert min(row[4] for row in output.data.rows) >= 0  # type: ignore[type-var]
    assert fleets.made == []
    assert not reproduction.store.exists()
