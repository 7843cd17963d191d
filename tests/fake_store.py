"""Stores of trials that a stand-in trained, for what is made of stores."""

from __future__ import annotations

from collections.abc import Callable

from fake_training import FakeTraining
from graphnorm.paper.laboratory import Laboratory
from graphnorm.paper.recipe import Recipe
from graphnorm.study.protocol import make_splits
from graphnorm.study.store import Store
from graphnorm.training import Trial


def brought_home(
    laboratory: Laboratory, recipe: Recipe, kept: Callable[[Trial], bool], training: FakeTraining | None = None
) -> None:
    """Put the trials of a recipe that are kept into the laboratory's store, in studies of their own."""
    for planned in laboratory.plans(recipe):
        trials = [trial for trial in planned.plan.trials if kept(trial)]
        if trials:
            graphs = laboratory.graphs(planned.dataset)
            with Store(laboratory.store) as store:
                study = store.add_study(f"part of {planned.plan.name}", planned.plan.spec, trials, [range(len(trials))])
                outcomes = (training or FakeTraining())(graphs, trials, make_splits(graphs, trials))
                store.save(store.begin_session(study, "local"), outcomes)
