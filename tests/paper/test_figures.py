"""Figures of curves and of singular values: what they are made of, and what they say of themselves."""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import replace
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

from fakes import FakeFleet
from graphnorm.paper import figures
from graphnorm.paper.figures import CONVERGED, Curves, average_curves, convergence, describe_panels, plot_panels
from graphnorm.paper.items import CURVES, Item, Trainings
from graphnorm.paper.output import Output
from graphnorm.paper.reproduce import Reproduction
from graphnorm.settings import Grid
from graphnorm.training import Trial

TREES, REGULAR = "synthetic:trees", "synthetic:regular"
SHORT = CURVES.fixed(epochs=3)
FOLDS = tuple(Trial(dataset="MUTAG", fold=fold) for fold in range(10))
SEEDS = tuple(Trial(dataset="ogbg-molhiv", folds=1, seed=seed, lr=1e-4, epochs=25) for seed in range(10))


def item(make: Any = figures.curves, graphs: tuple[str, ...] = (), **changes: Any) -> Item:
    given: dict[str, Any] = {"datasets": (TREES, REGULAR), "norms": ("none", "batch", "graph"), "folds": 4}
    return Item(name="figure", caption="Figure", make=make, trained=(Trainings(**given | changes),), graphs=graphs)


def titles(output: Output) -> list[str]:
    return [axis.get_title() for axis in output.figures[""].axes if axis.get_title()]


# Averages


def record(train: list[float], status: str = "done", **settings: Any) -> Any:
    curves = {"train": np.array(train, np.float32), "valid": np.array(train, np.float32)}
    return SimpleNamespace(status=status, trial=Trial(dataset="A", **settings), curves=curves)


def test_averages_by_fold() -> None:
    """Seeds of a fold are averaged, and a fold that diverged is left out."""
    records = [record([0.5, 0.7], fold=2), record([0.9, 0.9], fold=2, seed=1), record([0.1, 0.3], fold=0)]
    (found,) = average_curves([*records, record([0.0, 0.0], "diverged", fold=1)])
    assert found.averages == pytest.approx({0: 20.0, 2: 75.0})
    mean, std = found.values["train"]
    assert mean == pytest.approx([50.0, 190 / 3])
    assert std == pytest.approx(np.std([[50, 70], [90, 90], [10, 30]], axis=0, ddof=1))
    (entry,) = convergence({"A": [found]}, {"A": ("fold", 4)})
    assert (entry["unit"], entry["train_averages"]) == ("fold", [20.0, None, 75.0, None])
    assert (entry["members"], entry["diverged"]) == (4, 1)


def test_averages_by_seed() -> None:
    (found,) = average_curves([record([0.5, 0.7], protocol="ogb", seed=seed) for seed in (3, 1)])
    assert found.averages == pytest.approx({1: 60.0, 3: 60.0})
    (gone,) = average_curves([record([0.5], "diverged", protocol="ogb")])
    (entry,) = convergence({"A": [gone]}, {"A": ("seed", 2)})
    assert (entry["train_average"], entry["train_averages"], entry["epochs_to_converge"]) == (None, [None, None], None)


def drawn(norm: str, *train: float, variant: str = "") -> Curves:
    values = (np.array(train), np.zeros(len(train)))
    return Curves(norm, variant, 1, 0, {"train": values, "valid": values}, ())


def test_epochs_to_converge_go_by_the_end_of_graphnorm() -> None:
    end = 90.0
    near = CONVERGED * end
    members = [drawn("graph", 50.0, near - 0.1, near + 0.1, end), drawn("batch", 50.0, near + 0.1, 80.0, 99.0)]
    members += [drawn("none", 50.0, 60.0, 70.0, near - 0.1), drawn("batch", 50.0, 60.0, 70.0, 99.0, variant="other")]
    found = convergence({"A": members, "B": [drawn("batch", 99.0)]}, dict.fromkeys("AB", ("fold", 1)))
    assert [entry["epochs_to_converge"] for entry in found] == [3, 2, None, None, None]


# Training curves


def test_a_row_for_each_epoch_and_the_numbers_behind_it(made: Callable[..., Output]) -> None:
    output = made(item(datasets=(TREES,), grid=SHORT, folds=2), lambda trial: trial.norm != "none" or trial.fold == 0)
    assert output.data is not None
    assert output.data.columns[4:] == ("train_mean", "train_std", "valid_mean", "valid_std")
    rows = [row for row in output.data.rows if row[1] == "graph"]
    assert [row[3] for row in rows] == [1, 2, 3]
    entry = next(entry for entry in output.facts["convergence"] if entry["norm"] == "graph")
    assert rows[-1][4] == entry["train_end"]
    assert max(row[6] for row in rows) == entry["valid_best"]  # type: ignore[type-var]
    assert entry["train_average"] == pytest.approx(np.mean([row[4] for row in rows]), abs=1e-3)  # type: ignore[arg-type]
    assert {row[5] is None for row in output.data.rows if row[1] == "none"} == {True}  # one fold has no deviation


def test_curves_say_what_they_are_made_of(made: Callable[..., Output]) -> None:
    sizes = Grid("sizes", {**SHORT.axes, "batch_size": (8, 16)})

    def trained(trial: Trial) -> bool:
        if trial.dataset != TREES or trial.norm == "none":
            return False
        return trial.norm == "graph" or (trial.batch_size == 8 and trial.fold != 1)

    output = made(item(grid=sizes), trained)
    assert [(c["norm"], c["variant"], c["members"]) for c in output.facts["convergence"]] == [
        ("batch", "batch size 8", 3),
        ("graph", "batch size 8", 4),
        ("graph", "batch size 16", 4),
    ]
    assert output.facts["missing"] == [
        f"{TREES}: none (none)",
        f"{TREES}: batch, batch size 8 (3 of 4)",
        f"{TREES}: batch (1 of 2 without any)",
        f"gin under paper on {REGULAR}",
    ]
    assert output.facts["remarks"] == list(output.sentences)
    in_part, absent = output.sentences
    assert all(gap in in_part for gap in output.facts["missing"][:3])
    assert output.facts["missing"][3] in absent
    assert [value is None for value in output.facts["convergence"][0]["train_averages"]] == [False, True, False, False]
    assert titles(output) == [f"{TREES}, batch size {size}\n(trained in part)" for size in (8, 16)]


def test_curves_of_several_models_name_them(made: Callable[..., Output]) -> None:
    """Also where each dataset has one of them so far."""
    wanted = item(models=("gin", "gcn"), norms=("graph",), grid=SHORT, folds=2)
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
        ({"a": [curve(*FOLDS, drawn=False)]}, [""]),
        (
            {"a": [curve(*FOLDS), curve(*FOLDS[:3], drawn=False)], "b": [], "c": [curve(*FOLDS)]},
            ["mean of 10 folds", f"{SIZE}, {RATE}, {REST}"],
        ),
        (
            {"a": [curve(*FOLDS), curve(*FOLDS[:7])], "b": [curve(*FOLDS)]},
            ["mean", f"{SIZE}, {RATE}, {REST}", "a: 7 to 10 folds", "other panels: 10 folds"],
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
        (  # the legend has the sizes
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


@pytest.mark.parametrize("count", [1, 4, 6])
def test_the_words_stand_in_the_figure_and_cover_nothing(count: int) -> None:
    """Also where a curve has nothing to draw, and where panels do not fill their last row."""
    panels = {f"panel {k}": [curve(*FOLDS), curve(*FOLDS, norm="batch", drawn=k > 1)] for k in range(count - 1)}
    panels["hiv"] = [curve(*SEEDS), curve(*SEEDS[:3], norm="batch")]
    figure = plot_panels(panels)
    figure.suptitle("Figure 2. QUICK PASS")  # what an output adds
    figure.draw_without_rendering()
    (legend,) = figure.legends
    assert " ".join(legend.get_title().get_text().split()) == describe_panels(panels)
    box = legend.get_window_extent()
    assert box.x0 >= 0
    assert box.x1 <= figure.bbox.x1
    shown = [axis for axis in figure.axes if axis.axison]
    assert len(shown) == count
    assert all(not box.overlaps(axis.get_tightbbox()) for axis in shown)
    assert figure.get_suptitle() == "Figure 2. QUICK PASS"


# The graphs themselves


@pytest.mark.usefixtures("fleets")
def test_drawings_of_graphs_beside_curves(reproduction: Reproduction) -> None:
    small = item(figures.learned_shift, (TREES,), datasets=(TREES,), norms=("instance", "graph"), grid=SHORT, folds=2)
    output = reproduction.make(small)
    assert set(output.figures) == {"", f"-graphs-{TREES}"}
    assert 0 <= output.facts["regularity"][TREES]["share_regular"] <= 1


def test_singular_values_need_no_training(reproduction: Reproduction, fleets: type[FakeFleet]) -> None:
    wanted = Item(name="figure", caption="Figure", make=figures.singular_values, graphs=(TREES, REGULAR))
    output = reproduction.make(wanted)
    assert output.data is not None
    assert {tuple(row[:3]) for row in output.data.rows} == {
        (name, row[1], matrix) for row in output.data.rows for name in [row[0]] for matrix in ("Q", "QN")
    }
    assert len(titles(output)) == 4  # two graphs of each
    values = [row[4] for row in output.data.rows if row[0] == TREES and row[2] == "Q"]
    assert min(values) >= 0  # type: ignore[type-var]
    assert fleets.made == []
    assert not reproduction.store.exists()
